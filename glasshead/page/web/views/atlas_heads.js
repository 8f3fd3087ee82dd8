// Which head: a small map of each, a row for each layer, with a bar for what was measured of it;
// and the numbers of the chosen one.

import { fill, h, select } from "../dom.js";
import { pen } from "../paint.js";
import { Scale } from "../scale.js";
import { language, t, three } from "../words.js";
import { statisticName } from "./statistic_names.js";

const SIDE = 24; // cells of a small map
const AT_ONCE = 2; // small maps that are asked for

/** @typedef {{rows: number, cols: number, values: Float32Array}} Small */

export class Heads {
  /** @type {[layer: number, head: number] | null} */
  chosen = null;

  /** @type {Map<HTMLElement, Small>} by the button of the head */
  small = new Map();

  /** @type {HTMLElement[]} buttons in sight whose map is not there yet */
  wanted = [];
  asked = 0;
  leaving = new AbortController();

  /**
   * @param {AtlasTold} told
   * @param {{
   *   statistic: string | undefined, onpick: (layer: AtlasLayer, head: number) => void,
   *   onstatistic: (name: string) => void, api: Context["api"],
   *   path: (layer: AtlasLayer, head: number) => string,
   * }} on `path` is where the whole map of a head is
   */
  constructor(told, { statistic, onpick, onstatistic, api, path }) {
    this.told = told;
    this.api = api;
    this.path = path;
    this.onstatistic = onstatistic;
    this.names = Object.keys(told.statistics);
    const known = [statistic, "entropy"].find((name) => name && this.names.includes(name));
    this.statistic = known ?? this.names[0];
    this.grid = h("div", { class: "heads", role: "grid", "aria-label": t("atlas.heads.label") });
    this.numbers = h("div", { class: "numbers" });
    this.about = h("p", { class: "quiet small" });
    const choice = this.names.length
      ? select({
          label: t("atlas.coloured"),
          value: this.statistic,
          options: this.names.map((name) => [name, statisticName(name)]),
          onchange: (name) => this.colour(name),
        })
      : h("p", { class: "quiet small" }, t("atlas.unmeasured"));
    this.node = h("section", { class: "card picker" },
      choice,
      this.about,
      h("div", { class: "scroll" }, this.grid),
      this.numbers,
    );
    this.buttons = told.layers.map((layer, l) =>
      Array.from({ length: layer.heads }, (_, head) =>
        h("button", {
          type: "button", role: "gridcell", tabindex: -1, onclick: () => onpick(layer, head),
          onkeydown: (/** @type {KeyboardEvent} */ event) => this.#keys(event, l, head),
        }, h("canvas", { width: 1, height: 1, "aria-hidden": "true" }), h("i", {})),
      ),
    );
    const widest = Math.max(...told.layers.map((layer) => layer.heads), 1);
    this.grid.style.setProperty("--side", `${Math.max(26, Math.min(54, 240 / widest - 4))}px`);
    fill(
      this.grid,
      told.layers.map((layer, l) =>
        h("div", { class: "layer", role: "row" },
          h("span", { class: "quiet number", role: "rowheader", title: layer.module }, layer.name),
          this.buttons[l],
        ),
      ),
    );
    this.#paint();
    // A map that was not measured would have to be computed, for every head.
    this.sight = new IntersectionObserver((seen) => this.#seen(seen));
    if (this.names.length) for (const one of this.buttons.flat()) this.sight.observe(one);
  }

  /** @param {IntersectionObserverEntry[]} seen */
  #seen(seen) {
    for (const { target, isIntersecting } of seen) {
      const button = /** @type {HTMLElement} */ (target);
      this.wanted = this.wanted.filter((one) => one !== button);
      if (isIntersecting && !this.small.has(button)) this.wanted.push(button);
    }
    while (this.asked < AT_ONCE && this.wanted.length) this.#fetch();
  }

  async #fetch() {
    const button = /** @type {HTMLElement} */ (this.wanted.shift());
    const l = this.buttons.findIndex((row) => row.some((one) => one === button));
    const head = this.buttons[l].findIndex((one) => one === button);
    this.asked++;
    try {
      const path = this.path(this.told.layers[l], head);
      const { buffer, shape } = await this.api.bytes(path, { signal: this.leaving.signal });
      const [rows, cols] = /** @type {number[]} */ (shape);
      const most = new Float32Array(buffer, 4 * rows * cols, rows * cols); // behind the means
      this.small.set(button, shrunk(most, rows, cols));
      this.sight.unobserve(button);
      this.#thumb(button);
    } catch {
      // then its square stays empty: what is wrong is told of the map itself
    }
    this.asked--;
    this.#seen([]);
  }

  /** @param {HTMLElement} button */
  #thumb(button) {
    const found = this.small.get(button);
    const canvas = button.querySelector("canvas");
    if (!found || !canvas) return;
    const { rows, cols, values } = found;
    Object.assign(canvas, { width: cols, height: rows });
    const pixels = Scale.of(values, cols, "log").pixels(values);
    pen(canvas).putImageData(new ImageData(pixels, cols, rows), 0, 0);
  }

  close() {
    this.leaving.abort();
    this.sight.disconnect();
  }

  /** @param {string} name */
  colour(name) {
    this.statistic = name;
    this.onstatistic(name);
    this.#paint();
    this.#tell();
  }

  /** Theme or choice have changed.
   * @param {AtlasLayer} layer
   * @param {number} head
   */
  show(layer, head) {
    this.chosen = [this.told.layers.indexOf(layer), head];
    this.#paint();
    this.#tell();
  }

  /** @param {string} name */
  #values(name) {
    return this.told.statistics[name]?.values ?? [];
  }

  #paint() {
    this.about.textContent = this.told.statistics[this.statistic]?.explain[language()] ?? "";
    const values = this.#values(this.statistic);
    const all = values.flat().filter((value) => value !== null);
    // From the head that has least of it to the one with most.
    const low = Math.min(...all);
    const high = Math.max(...all);
    this.buttons.forEach((row, l) =>
      row.forEach((button, head) => {
        const value = values[l]?.[head] ?? null;
        const chosen = this.chosen?.[0] === l && this.chosen?.[1] === head;
        const name = t("atlas.head", { layer: this.told.layers[l].name, head });
        const bar = /** @type {HTMLElement} */ (button.lastChild);
        bar.style.width = value === null ? "0" : `${(100 * (value - low)) / (high - low || 1)}%`;
        this.#thumb(button);
        button.title = value === null ? name : `${name}: ${three(value)}`;
        button.setAttribute("aria-label", button.title);
        button.setAttribute("aria-selected", String(chosen));
        button.tabIndex = chosen ? 0 : -1;
      }),
    );
  }

  #tell() {
    if (!this.chosen) return;
    const [l, head] = this.chosen;
    const layer = this.told.layers[l];
    /** @param {string} name */
    const one = (name) =>
      h("tr", { class: name === this.statistic ? "chosen" : null },
        h("td", { title: this.told.statistics[name].explain[language()] }, statisticName(name)),
        h("td", { class: "number" }, three(this.#values(name)[l]?.[head] ?? NaN)),
      );
    const open = this.numbers.querySelector("details")?.open;
    fill(
      this.numbers,
      h("div", { class: "row" },
        h("h2", {}, t("atlas.head", { layer: layer.name, head })),
        this.names.length
          ? h("span", { class: "number" }, three(this.#values(this.statistic)[l]?.[head] ?? NaN))
          : null,
      ),
      this.names.length
        ? h("details", { open },
            h("summary", {}, t("atlas.numbers")),
            h("table", {}, h("tbody", {}, this.names.map(one))),
          )
        : null,
      layer.exact ? null : h("p", { class: "quiet small" }, t("atlas.statistics only")),
    );
  }

  /** @param {KeyboardEvent} event @param {number} l @param {number} head */
  #keys(event, l, head) {
    const [dl, dh] = {
      ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0],
    }[event.key] ?? [0, 0];
    if (!dl && !dh) return;
    event.preventDefault();
    const row = this.buttons[Math.min(this.buttons.length - 1, Math.max(0, l + dl))];
    const next = row[Math.min(row.length - 1, Math.max(0, head + dh))];
    next.focus();
    next.click();
  }
}

/** The largest weight of each cell of a smaller map.
 * @param {Float32Array} values
 * @param {number} rows
 * @param {number} cols
 * @returns {Small}
 */
export function shrunk(values, rows, cols) {
  const [high, wide] = [Math.min(rows, SIDE), Math.min(cols, SIDE)];
  const out = new Float32Array(high * wide);
  for (let r = 0; r < rows; r++)
    for (let c = 0; c < cols; c++) {
      const at = Math.floor((r * high) / rows) * wide + Math.floor((c * wide) / cols);
      out[at] = Math.max(out[at], values[r * cols + c]);
    }
  return { rows: high, cols: wide, values: out };
}
