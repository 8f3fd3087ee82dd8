// Atlas: the whole map of a head as pages of cells, near or from afar, with the text beside it.

import { ended } from "../api.js";
import { after, fill, h, offer, problem, segmented, sign, spoken, styles, tip, toast, toggle } from "../dom.js";
import { Scale, colours, palette } from "../scale.js";
import { count, t, three } from "../words.js";
import "./atlas_words.js";
import { gestures } from "./atlas_gestures.js";
import { Heads } from "./atlas_heads.js";
import { AtlasMap } from "./atlas_map.js";
import { Strip, Tokens } from "./atlas_text.js";

const IN_ADDRESS = 2000; // characters of a text that the address can carry
const PLUS = "M10 4v12M4 10h12", MINUS = "M4 10h12", ALL = "M3 8V3h5M12 3h5v5M17 12v5h-5M8 17H3v-5", DIAGONAL = "M3 3l14 14M11 17h6v-6";

let last = null; // what was shown last

export default {
  id: "atlas",
  title: () => t("atlas.title"),
  fits: (entry) => entry.can.includes("atlas"),
  mount: (root, context) => new Atlas(root, context),
};

class Atlas {
  constructor(root, context) {
    Object.assign(this, { root, ...context });
    styles("views/atlas.css");
    // Where one stood in another text means nothing in this one.
    if (last && last !== this.#subject()) this.state.set({ at: null });
    this.#open();
  }

  #subject({ text, seen } = this.state.get()) {
    return [this.entry.id, this.entry.kind === "glass" ? "" : (text ?? seen ?? "")].join("\n");
  }

  // -- opening --

  async #open() {
    const { entry, state } = this;
    const { text, seen } = state.get();
    this.subject = this.#subject();
    if (entry.kind !== "glass" && !text && !seen) return this.#ask("");
    this.#wait(t(entry.kind === "glass" ? "atlas.opening" : "atlas.reading"));
    try {
      if (entry.kind === "glass") return this.#show(await this.#post("/api/open", { model: entry.id }));
      if (text) return this.#show(await this.#post("/api/atlas", { model: entry.id, text }));
      const told = await this.api.get(`/api/seen/${encodeURIComponent(seen)}/map`, { signal: this.control.signal });
      if (told.model !== entry.id) return this.#ask("");
      this.#show(told);
    } catch (error) {
      if (ended(error)) return;
      if (error.status === 404 && !text && entry.kind !== "glass") return this.#ask(""); // long forgotten
      if (entry.kind === "glass") fill(this.root, problem(error, t));
      else this.#ask(text ?? "", error);
    }
  }

  #post(path, body) {
    return this.api.post(path, body, { signal: this.control.signal });
  }

  #wait(words) {
    this.#close();
    fill(this.root, h("p", { class: "quiet busy waiting", role: "status" }, words));
  }

  // A model needs a text first.
  async #ask(text, error = null) {
    this.#close();
    const most = this.limits?.max_text ?? 100000;
    const field = h("textarea", { rows: 10, placeholder: t("atlas.placeholder"), "aria-label": t("atlas.text"), maxlength: most });
    field.value = text;
    const form = h(
      "form",
      { class: "card asking" },
      h("h1", {}, t("atlas.title")),
      h("p", { class: "quiet" }, t("atlas.lead")),
      field,
      h("div", { class: "row" }, h("button", { type: "submit", class: "primary" }, t("atlas.read")), h("span", { class: "quiet small" }, t("atlas.most", { n: count(most) }))),
      error && problem(error, t),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (field.value.trim()) this.#read(field.value);
    });
    fill(this.root, form);
    if (text) return;
    try {
      const { examples } = await this.api.get(`/api/look/examples?${new URLSearchParams({ model: this.entry.id })}`, { signal: this.control.signal });
      // One of them: the model may have no token for what would join two, and no room for both.
      if (examples.length) offer(field, examples[0].text);
    } catch {
      // then the field stays empty
    }
  }

  async #read(text) {
    this.#wait(t("atlas.reading"));
    try {
      const told = await this.#post("/api/atlas", { model: this.entry.id, text });
      const now = { text: text.length <= IN_ADDRESS ? text : null, seen: told.seen };
      this.subject = this.#subject(now); // what comes back from the address is no news
      this.state.set({ ...now, at: null, layer: null, head: null }, { push: true });
      this.#show(told);
    } catch (error) {
      if (!ended(error)) this.#ask(text, error);
    }
  }

  // -- what is opened --

  #show(told) {
    const { state } = this;
    if (!told.layers.length) return fill(this.root, problem({ message: t("atlas.nothing") }, t));
    this.told = told;
    last = this.subject;
    this.tokens = new Tokens(this.api, told.seen);
    const own = (act) => (...args) => map === this.map && act(...args); // one that was closed has no more say
    const map = (this.map = new AtlasMap({
      api: this.api, told, tokens: this.tokens, onmove: own(() => this.#moved()),
      onlost: own((error) => this.#lost(error)),
    }));
    this.map.names = [t("atlas.rows"), t("atlas.cols")];
    this.map.first = state.get().at;
    gestures(this.map, { onpoint: own((at, event) => this.#point(at, event)), onpick: own((at) => this.#pick(at)) });
    const strips = { tokens: this.tokens };
    this.from = new Strip({ ...strips, side: "rows", onpick: (y) => this.#go({ y }), onscroll: (y) => this.map.move({ y }) });
    this.to = new Strip({ ...strips, side: "cols", onpick: (x) => this.#go({ x }), onscroll: (x) => this.map.move({ x }) });
    this.heads = new Heads(told, {
      statistic: state.get().by, onstatistic: (by) => state.set({ by }),
      onpick: (layer, head) => state.set({ layer: layer.index, head }),
    });
    this.legend = h("span", { class: "legend" });
    this.note = h("section", { class: "card note", "aria-live": "polite" }, h("p", { class: "quiet small" }, t("atlas.point")));
    this.said = spoken("");
    this.said.id = "atlas-said";
    this.map.canvas.setAttribute("aria-describedby", this.said.id);
    const texts = told.texts ? h("section", { class: "card texts" }, this.from.node, this.to.node) : null;
    fill(
      this.root,
      this.#tools(),
      h("div", { class: "desk" }, h("div", { class: "sheet-box" }, this.map.node), texts, h("aside", { class: "side" }, this.heads.node, this.note)),
      this.said,
    );
    this.settle = after(180, () => this.#settled());
    this.follow = after(40, () => this.#text("from", this.followMore));
    this.followMore = after(0, () => this.#text("to")); // in a task of its own: both would hold up a frame
    this.look = after(90, () => this.#exact());
    this.watch = setInterval(() => this.#drawLegend(), 250);
    this.update(state.get());
  }

  // The server has forgotten the recording, or cannot show a part of it.
  #lost(error) {
    if (error.status === 503) return fill(this.note, problem(error, t)); // of a saved page: it has no more
    if (error.status !== 404) return toast(error.message, error.hint, "bad");
    this.#open();
  }

  // What is shown, or on its way, makes room.
  #close() {
    this.control?.abort();
    this.control = new AbortController();
    this.asked?.abort();
    clearInterval(this.watch);
    for (const one of [this.settle, this.follow, this.followMore, this.look]) one?.cancel();
    for (const one of [this.map, this.from, this.to]) one?.stop();
    this.map = this.key = this.legendKey = this.layer = this.pinned = this.known = null;
    tip.hide();
  }

  #tools() {
    const { told, state } = this;
    const icon = (path, name, act) => h("button", { type: "button", class: "icon", title: name, "aria-label": name, onclick: act }, sign(path));
    this.show = segmented({ label: t("atlas.cell"), value: "max", options: [["max", t("atlas.max"), t("atlas.max.why")], ["mean", t("atlas.mean"), t("atlas.mean.why")]], onchange: (show) => state.set({ show: show === "max" ? null : show }) });
    this.log = toggle({ label: t("atlas.log"), value: true, onchange: (on) => state.set({ scale: on ? null : "linear" }) });
    this.sink = toggle({ label: t("atlas.sink"), title: t("atlas.sink.why"), value: false, onchange: (on) => state.set({ nosink: on }) });
    const heads = told.layers.reduce((sum, layer) => sum + layer.heads, 0);
    return h(
      "div",
      { class: "tools" },
      h("div", { class: "titles" }, h("h1", {}, this.entry.name), h("p", { class: "quiet small" }, t("atlas.size", { n: count(told.tokens), layers: told.layers.length, heads: count(heads) }))),
      this.entry.kind === "glass" ? null : h("button", { type: "button", onclick: () => this.#ask(state.get().text ?? "") }, t("atlas.other text")),
      this.show, this.log, this.sink, this.legend,
      h("div", { class: "zooms" }, icon(MINUS, t("atlas.out"), () => this.map.zoom(0.5)), icon(PLUS, t("atlas.in"), () => this.map.zoom(2)), icon(DIAGONAL, t("atlas.diagonal"), () => this.map.move({ x: this.map.camera.y + this.map.layer.S - this.map.layer.T })), icon(ALL, t("atlas.whole"), () => this.map.home())),
    );
  }

  // -- the address, and what follows from it --

  update(now) {
    if (this.#subject(now) !== this.subject) return void this.#open();
    if (!this.map) return;
    const { told } = this;
    const layer = told.layers.find((one) => String(one.index) === now.layer) ?? told.layers[0];
    const head = Math.min(layer.heads - 1, Math.max(0, Number(now.head) || 0));
    const show = now.show === "mean" ? "mean" : "max", log = now.scale !== "linear", hideSink = Boolean(now.nosink);
    this.show.value = show;
    this.log.value = log;
    this.sink.value = hideSink;
    const key = [layer.index, head, show, log, hideSink, document.documentElement.dataset.theme].join();
    if (key !== this.key) {
      const other = this.layer && this.layer !== layer;
      Object.assign(this, { key, layer, head });
      this.map.show({ layer, head, show, log, hideSink });
      this.heads.show(layer, head);
      this.#drawLegend();
      if (other || this.pinned) this.look();
    }
    if (this.map.size[0] && (now.at ?? null) !== this.map.address && (now.at ?? null) !== this.told.at) this.map.place(now.at);
    this.#moved(false);
  }

  #moved(keep = true) {
    if (!this.map.layer || !this.map.size[0]) return;
    if (keep) this.settle();
    this.follow();
  }

  #settled() {
    const at = this.map.address;
    this.told.at = at; // what comes back from the address as it was is no news
    this.state.set({ at });
    const { r0, r1, c0, c1 } = this.map.view;
    const { T, S, name } = this.layer;
    this.map.canvas.setAttribute("aria-label", t("atlas.head", { layer: name, head: this.head }));
    this.said.textContent = t("atlas.map", { layer: name, head: this.head, T: count(T), S: count(S), r0: count(r0), r1: count(r1 - 1), c0: count(c0), c1: count(c1 - 1) });
  }

  #go(where) {
    const px = Math.max(this.map.camera.px, 3);
    this.map.move({ ...where, px });
    const row = Math.floor(this.map.camera.y), col = Math.floor(this.map.camera.x);
    this.#pick({ row: Math.min(row, this.layer.T - 1), col: Math.min(col, this.layer.S - 1) });
  }

  // The text follows what is pointed at, or else the middle of the map.
  #text(strip, next) {
    if (!this.told.texts) return;
    const { r0, r1, c0, c1 } = this.map.view;
    const { x, y } = this.map.camera;
    const at = this.map.cursor ?? { row: y, col: x };
    if (strip === "from") this.from.go(this.layer, at.row, r0, r1);
    else this.to.go(this.layer, at.col, c0, c1);
    next?.();
  }

  // -- reading weights --

  #point(at, event) {
    const shown = at ?? this.pinned ?? null;
    const same = shown?.row === this.map.cursor?.row && shown?.col === this.map.cursor?.col;
    this.map.cursor = shown;
    if (!at) tip.hide();
    else this.#tip(at, event);
    if (same) return;
    this.map.redraw();
    this.follow();
    if (at) this.look();
  }

  #pick(at) {
    this.pinned = at;
    this.map.cursor = at;
    tip.hide();
    this.map.redraw();
    this.follow();
    if (at) this.look();
  }

  #hides(at) {
    return this.layer.causal && at.col > at.row + this.layer.S - this.layer.T;
  }

  #tip(at, event) {
    const cell = this.map.cell(at.row, at.col);
    const exact = this.known?.row === at.row && this.known?.col === at.col ? this.known.weight : cell?.side === 1 ? cell.max : null;
    const first = this.#hides(at) ? t("atlas.hidden") : exact !== null ? `${t("atlas.exact")} ${three(exact)}` : `${t("atlas.exact")} …`;
    tip.show(
      event,
      h("div", {}, h("strong", { class: "number" }, first)),
      h("div", { class: "quiet number" }, `${t("atlas.row", { n: count(at.row) })} → ${t("atlas.col", { n: count(at.col) })}`),
      cell && cell.side > 1 && !this.#hides(at) ? h("div", { class: "quiet number" }, t("atlas.of cell", { n: cell.side, mean: three(cell.mean), max: three(cell.max) })) : null,
    );
    this.tipped = event;
  }

  // The exact weight, and what its row looks at most.
  async #exact() {
    const at = this.map.cursor;
    if (!at || !this.layer.exact) return;
    this.asked?.abort();
    this.asked = new AbortController();
    const where = new URLSearchParams({ layer: this.layer.index, head: this.head, query: at.row, key: at.col, top: 6 });
    try {
      const found = await this.api.get(`/api/seen/${this.told.seen}/row?${where}`, { signal: this.asked.signal });
      this.known = { row: at.row, col: at.col, weight: found.weight };
      this.#note(found);
      if (this.map.cursor === at && this.tipped && !tip.node?.hidden) this.#tip(at, this.tipped);
    } catch (error) {
      if (!ended(error)) fill(this.note, problem(error, t));
    }
  }

  #note(found) {
    const words = ([before, text, behind]) => {
      const n = /[\u2e80-\uffff]/.test(before + behind) ? 4 : 9; // wide letters, or narrow ones
      return h("span", { class: "context" }, h("span", { class: "quiet" }, before.slice(-n)), h("b", {}, text), h("span", { class: "quiet" }, behind.slice(0, n)));
    };
    const most = found.keys[0]?.weight || 1;
    const scale = new Scale("linear", 0, most);
    fill(
      this.note,
      h("div", { class: "row" }, words(found.text), h("span", { class: "quiet small number" }, t("atlas.row", { n: count(found.query) }))),
      h("p", { class: "small quiet" }, t("atlas.looks")),
      h("ol", {}, found.keys.map((one) =>
        h("li", {}, h("button", { type: "button", class: "plain", onclick: () => this.#go({ x: one.key, y: found.query }) },
          h("span", { class: "bar", style: { width: `${Math.max(2, 56 * (one.weight / most))}px`, background: scale.colour(one.weight) } }),
          h("span", { class: "number" }, three(one.weight)), words(one.text), h("span", { class: "quiet small number" }, count(one.key)))))),
    );
  }

  #drawLegend() {
    const { high, low, known } = this.map.tiles.range(this.map.layer ? this.map.level : 0);
    const kind = this.log.value ? "log" : "linear";
    const key = `${high} ${low} ${kind} ${document.documentElement.dataset.theme}`;
    if (!known || key === this.legendKey) return;
    this.legendKey = key;
    const bar = h("canvas", { width: 96, height: 1, "aria-hidden": "true" });
    const pixels = new ImageData(96, 1), bytes = palette(kind);
    for (let i = 0; i < 96; i++) pixels.data.set([...bytes.subarray(3 * Math.round((i * 255) / 95)).subarray(0, 3), 255], 4 * i);
    bar.getContext("2d").putImageData(pixels, 0, 0);
    fill(this.legend, low ? `≤${three(low)}` : "0", bar, `≥${three(high)}`);
  }

  picture(painter) {
    if (!this.map?.size[0]) return null;
    painter.size(...this.map.size, colours().panel);
    this.map.draw(painter);
    const { r0, r1, c0, c1 } = this.map.view;
    const { name } = this.layer;
    const part = this.map.whole ? null : `${t("atlas.row", { n: `${count(r0)}–${count(r1 - 1)}` })}, ${t("atlas.col", { n: `${count(c0)}–${count(c1 - 1)}` })}`;
    const about = [t(`atlas.${this.show.value}`), this.log.value && t("atlas.log"), this.sink.value && t("atlas.sink"), part].filter(Boolean);
    return { title: t("atlas.head", { layer: name, head: this.head }), about: about.join(" · ") };
  }

  // What is in sight, all of it from farther away, and every head from afar.
  wants() {
    if (!this.map?.layer) return [];
    const { map, told, layer, head } = this;
    const path = (where, at, page) => map.tiles.path({ ...map.tiles.spec, layer: where.index, head: at }, ...page);
    const coarse = [];
    for (let level = layer.levels - 1; level > map.level; level--) {
      const side = told.page * 2 ** level;
      for (let row = 0; row * side < layer.T; row++) for (let col = 0; col * side < layer.S; col++) if (!map.hides(level, row, col)) coarse.push([level, row, col]);
      if (coarse.length > 200) break;
    }
    const afar = told.layers.flatMap((one) => Array.from({ length: one.heads }, (_, at) => path(one, at, [one.levels - 1, 0, 0])));
    return [`/api/seen/${told.seen}/map`, ...[...map.pages(map.level), ...coarse].map((page) => path(layer, head, page)), ...afar];
  }

  unmount() {
    this.#close();
  }
}
