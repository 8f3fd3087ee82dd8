// A recording that is opened: its map, the text beside it, its heads, and what is pointed at.

import { ended, query } from "../api.js";
import { after, fill, h, problem, segmented, sign, spoken, tip, toast, toggle } from "../dom.js";
import { colours } from "../scale.js";
import { count, t } from "../words.js";
import { gestures } from "./atlas_gestures.js";
import { Heads } from "./atlas_heads.js";
import { AtlasMap } from "./atlas_map.js";
import { legend, note, tipOf } from "./atlas_note.js";
import { Strip, Tokens } from "./atlas_text.js";

const PLUS = "M10 4v12M4 10h12";
const MINUS = "M4 10h12";
const ALL = "M3 8V3h5M12 3h5v5M17 12v5h-5M8 17H3v-5";
const DIAGONAL = "M3 3l14 14M11 17h6v-6";

/** @typedef {import("./atlas_tiles.js").Page} Page */
/** @typedef {{row: number, col: number}} At a weight */

export class Sheet {
  /** @type {AtlasLayer | null} */
  layer = null;
  head = 0;
  key = ""; // what is shown, as one text
  legendKey = "";
  /** @type {string | null | undefined} what the address was told last */
  written = undefined;
  closed = false;
  /** @type {At | null} what was picked */
  pinned = null;
  /** @type {(At & {weight: number | null}) | null} the weight that is known */
  known = null;
  /** @type {PointerEvent | null} the event that opened the tip */
  tipped = null;
  asked = new AbortController();

  /**
   * @param {HTMLElement} root
   * @param {Context} context
   * @param {AtlasTold} told
   * @param {{onask: () => void, onforgotten: () => void}} on
   */
  constructor(root, { entry, state, api }, told, { onask, onforgotten }) {
    this.entry = entry;
    this.state = state;
    this.api = api;
    this.told = told;
    this.onask = onask;
    this.onforgotten = onforgotten;
    this.tokens = new Tokens(api, told.seen);
    // One that was closed has no more say.
    this.map = new AtlasMap({
      api, told, tokens: this.tokens, onmove: () => this.closed || this.#moved(),
      onlost: (error) => this.closed || this.#lost(error), first: state.get().at,
      names: [t("atlas.rows"), t("atlas.cols")],
    });
    gestures(this.map, {
      onpoint: (at, event) => this.closed || this.#point(at, event),
      onpick: (at) => this.closed || this.#pick(at),
    });
    this.from = new Strip({
      tokens: this.tokens, side: "rows", onpick: (y) => this.#go({ y }),
      onscroll: (y) => this.map.move({ y }),
    });
    this.to = new Strip({
      tokens: this.tokens, side: "cols", onpick: (x) => this.#go({ x }),
      onscroll: (x) => this.map.move({ x }),
    });
    this.heads = new Heads(told, {
      statistic: state.get().by, onstatistic: (by) => state.set({ by }),
      onpick: (layer, head) => state.set({ layer: layer.index, head }), api,
      path: (layer, head) => this.#path(layer, head, [layer.levels - 1, 0, 0]),
    });
    this.legend = h("span", { class: "legend" });
    this.note = h("section", { class: "card note", "aria-live": "polite" },
      h("p", { class: "quiet small" }, t("atlas.point")),
    );
    this.said = spoken("");
    this.said.id = "atlas-said";
    this.map.canvas.setAttribute("aria-describedby", this.said.id);
    this.show = segmented({
      label: t("atlas.cell"),
      value: "max",
      options: [
        ["max", t("atlas.max"), t("atlas.max.why")],
        ["mean", t("atlas.mean"), t("atlas.mean.why")],
      ],
      onchange: (show) => state.set({ show: show === "max" ? null : show }),
    });
    this.log = toggle({
      label: t("atlas.log"), value: true,
      onchange: (on) => state.set({ scale: on ? null : "linear" }),
    });
    this.sink = toggle({
      label: t("atlas.sink"), title: t("atlas.sink.why"), value: false,
      onchange: (on) => state.set({ nosink: on }),
    });
    const texts = told.texts
      ? h("section", { class: "card texts" }, this.from.node, this.to.node)
      : null;
    fill(
      root,
      this.#tools(),
      h("div", { class: "desk" },
        h("div", { class: "sheet-box" }, this.map.node),
        texts,
        h("aside", { class: "side" }, this.heads.node, this.note),
      ),
      this.said,
    );
    this.settle = after(180, () => this.#settled());
    this.follow = after(40, () => this.#text("from", this.followMore));
    // In a task of its own: both would hold up a frame.
    this.followMore = after(0, () => this.#text("to"));
    this.look = after(90, () => this.#exact());
    this.watch = setInterval(() => this.#drawLegend(), 250);
  }

  /** The server has forgotten the recording, or cannot show a part of it.
   * @param {import("../api.js").ApiError} error
   */
  #lost(error) {
    if (error.status === 503) fill(this.note, problem(error, t)); // of a saved page: it has no more
    else if (error.status !== 404) toast(error.message, error.hint, "bad");
    else this.#forgotten();
  }

  /** It is made again, and shows the same place. */
  #forgotten() {
    this.#settled();
    this.onforgotten();
  }

  close() {
    this.closed = true;
    this.asked.abort();
    clearInterval(this.watch);
    for (const one of [this.settle, this.follow, this.followMore, this.look]) one.cancel();
    for (const one of [this.map, this.from, this.to]) one.stop();
    this.heads.close();
  }

  #tools() {
    const { told, map } = this;
    /** @param {string} path @param {string} name @param {() => void} act */
    const icon = (path, name, act) =>
      h("button", { type: "button", class: "icon", title: name, "aria-label": name, onclick: act },
        sign(path),
      );
    const heads = told.layers.reduce((sum, layer) => sum + layer.heads, 0);
    const sizes = { n: count(told.tokens), layers: told.layers.length, heads: count(heads) };
    return h("div", { class: "tools" },
      h("div", { class: "titles" },
        h("h1", {}, this.entry.name),
        h("p", { class: "quiet small" }, t("atlas.size", sizes)),
      ),
      this.entry.kind === "glass"
        ? null
        : h("button", { type: "button", onclick: () => this.onask() }, t("atlas.other text")),
      this.show,
      this.log,
      this.sink,
      this.legend,
      h("div", { class: "zooms" },
        icon(MINUS, t("atlas.out"), () => map.zoom(0.5)),
        icon(PLUS, t("atlas.in"), () => map.zoom(2)),
        icon(DIAGONAL, t("atlas.diagonal"), () =>
          map.move({ x: map.camera.y + map.layer.S - map.layer.T }),
        ),
        icon(ALL, t("atlas.whole"), () => map.home()),
      ),
    );
  }

  // -- the address, and what follows from it --

  /** @param {Where} now */
  update(now) {
    const { told } = this;
    const layer = told.layers.find((one) => String(one.index) === now.layer) ?? told.layers[0];
    const head = Math.min(layer.heads - 1, Math.max(0, Number(now.head) || 0));
    const show = now.show === "mean" ? "mean" : "max";
    const log = now.scale !== "linear";
    const hideSink = Boolean(now.nosink);
    this.show.value = show;
    this.log.value = log;
    this.sink.value = hideSink;
    const { theme } = document.documentElement.dataset;
    const key = [layer.index, head, show, log, hideSink, theme].join();
    if (key !== this.key) {
      const other = this.layer && this.layer !== layer;
      this.key = key;
      this.layer = layer;
      this.head = head;
      this.map.show({ layer, head, show, log, hideSink });
      this.heads.show(layer, head);
      this.#drawLegend();
      if (other || this.pinned) this.look();
    }
    const at = now.at ?? null;
    if (this.map.size[0] && at !== this.map.address && at !== this.written) this.map.place(at);
    this.#moved(false);
  }

  #moved(keep = true) {
    if (!this.map.shown || !this.map.size[0]) return;
    if (keep) this.settle();
    this.follow();
  }

  #settled() {
    const at = this.map.address;
    this.written = at; // what comes back from the address as it was is no news
    this.state.set({ at });
    const { r0, r1, c0, c1 } = this.map.view;
    const { T, S, name } = this.map.layer;
    this.map.canvas.setAttribute("aria-label", t("atlas.head", { layer: name, head: this.head }));
    this.said.textContent = t("atlas.map", {
      layer: name, head: this.head, T: count(T), S: count(S), r0: count(r0), r1: count(r1 - 1),
      c0: count(c0), c1: count(c1 - 1),
    });
  }

  /** @param {{x?: number, y?: number}} where */
  #go(where) {
    const px = Math.max(this.map.camera.px, 3);
    this.map.move({ ...where, px });
    const row = Math.floor(this.map.camera.y);
    const col = Math.floor(this.map.camera.x);
    const { T, S } = this.map.layer;
    this.#pick({ row: Math.min(row, T - 1), col: Math.min(col, S - 1) });
  }

  /** The text follows what is pointed at, or else the middle of the map.
   * @param {"from" | "to"} strip
   * @param {Later} [next]
   */
  #text(strip, next) {
    if (!this.told.texts) return;
    const { r0, r1, c0, c1 } = this.map.view;
    const { x, y } = this.map.camera;
    const at = this.map.cursor ?? { row: y, col: x };
    if (strip === "from") this.from.go(this.map.layer, at.row, r0, r1);
    else this.to.go(this.map.layer, at.col, c0, c1);
    next?.();
  }

  // -- reading weights --

  /** @param {At | null} at @param {PointerEvent} event */
  #point(at, event) {
    const shown = at ?? this.pinned;
    const same = shown?.row === this.map.cursor?.row && shown?.col === this.map.cursor?.col;
    this.map.cursor = shown;
    if (!at) tip.hide();
    else this.#tip(at, event);
    if (same) return;
    this.map.redraw();
    this.follow();
    if (at) this.look();
  }

  /** @param {At | null} at */
  #pick(at) {
    this.pinned = at;
    this.map.cursor = at;
    tip.hide();
    this.map.redraw();
    this.follow();
    if (at) this.look();
  }

  /** @param {At} at @param {PointerEvent} event */
  #tip(at, event) {
    const { layer } = this.map;
    const hidden = layer.causal && at.col > at.row + layer.S - layer.T;
    const exact = this.known?.row === at.row && this.known?.col === at.col ? this.known : null;
    tip.show(event, ...tipOf(at, this.map.cell(at.row, at.col), exact, hidden));
    this.tipped = event;
  }

  // The exact weight, and what its row looks at most.
  async #exact() {
    const at = this.map.cursor;
    const { layer } = this.map;
    if (!at || !layer.exact) return;
    this.asked.abort();
    this.asked = new AbortController();
    const where = query({
      layer: layer.index, head: this.head, query: at.row, key: at.col, top: 6,
    });
    try {
      /** @type {AtlasRow} */
      const found = await this.api.get(`/api/seen/${this.told.seen}/row?${where}`, {
        signal: this.asked.signal,
      });
      this.known = { row: at.row, col: at.col, weight: found.weight };
      fill(this.note, ...note(found, (key) => this.#go({ x: key, y: found.query })));
      if (this.map.cursor === at && this.tipped && !tip.node?.hidden) this.#tip(at, this.tipped);
    } catch (error) {
      if (error.status === 404) this.#forgotten();
      else if (!ended(error)) fill(this.note, problem(error, t));
    }
  }

  #drawLegend() {
    const { high, low, known } = this.map.tiles.range(this.map.shown ? this.map.level : 0);
    const kind = this.log.value ? "log" : "linear";
    const key = `${high} ${low} ${kind} ${document.documentElement.dataset.theme}`;
    if (!known || key === this.legendKey) return;
    this.legendKey = key;
    fill(this.legend, ...legend(kind, low, high));
  }

  // -- out of the page --

  /** @param {Painter} painter */
  picture(painter) {
    const { size } = this.map;
    if (!size[0]) return null;
    painter.size(...size, colours().panel);
    this.map.draw(painter);
    const { r0, r1, c0, c1 } = this.map.view;
    const { name } = this.map.layer;
    const rows = t("atlas.row", { n: `${count(r0)}–${count(r1 - 1)}` });
    const cols = t("atlas.col", { n: `${count(c0)}–${count(c1 - 1)}` });
    const about = [
      t(`atlas.${this.show.value}`),
      this.log.value && t("atlas.log"),
      this.sink.value && t("atlas.sink"),
      this.map.whole ? null : `${rows}, ${cols}`,
    ].filter(Boolean);
    return { title: t("atlas.head", { layer: name, head: this.head }), about: about.join(" · ") };
  }

  /** What is in sight, all of it from farther away, and every head from afar.
   * @returns {Ask[]}
   */
  /** @param {AtlasLayer} layer @param {number} head @param {Page} page */
  #path(layer, head, page) {
    const { tiles } = this.map;
    return tiles.path({ ...tiles.spec, layer: layer.index, head }, ...page);
  }

  wants() {
    const { map, told, layer, head } = this;
    if (!layer) return [];
    /** @type {Page[]} */
    const coarse = [];
    for (let level = layer.levels - 1; level > map.level; level--) {
      const side = told.page * 2 ** level;
      for (let row = 0; row * side < layer.T; row++)
        for (let col = 0; col * side < layer.S; col++)
          if (!map.hides(level, row, col)) coarse.push([level, row, col]);
      if (coarse.length > 200) break;
    }
    const afar = told.layers.flatMap((one) =>
      Array.from({ length: one.heads }, (_, at) => this.#path(one, at, [one.levels - 1, 0, 0])),
    );
    return [
      `/api/seen/${told.seen}/map`,
      ...[...map.pages(map.level), ...coarse].map((page) => this.#path(layer, head, page)),
      ...afar,
    ];
  }
}
