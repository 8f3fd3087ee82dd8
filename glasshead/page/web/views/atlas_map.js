// The map itself: a camera over T × S weights, pages of cells under it, rulers on two sides and a
// small map of all.
//
// The camera is the weight at the middle (x: key, y: query) and how many pixels a token takes. All
// drawing goes through a painter, so that the same picture can be saved.

import { h } from "../dom.js";
import { CanvasPainter } from "../paint.js";
import { colours } from "../scale.js";
import { LEFT, TOP, drawCross, drawGrid, drawRulers } from "./atlas_rulers.js";
import { Tiles } from "./atlas_tiles.js";

const NEAREST = 44; // pixels of a token
const BUDGET = 4; // milliseconds of colouring in a frame
const MINI = 148;

/** @typedef {import("./atlas_tiles.js").Page} Page */
/** @typedef {import("./atlas_tiles.js").Tile} Tile */

export class AtlasMap {
  shown = false; // whether `show` was called
  frame = 0; // that is asked for
  stopped = false;
  missing = 0; // pages in sight that have not come
  /** @type {CanvasPainter | null} */
  small = null;

  /**
   * @param {{
   *   api: Context["api"], told: AtlasTold, tokens: import("./atlas_text.js").Tokens,
   *   onmove: () => void, onlost: (error: any) => void,
   *   first: string | undefined, names: [rows: string, cols: string],
   * }} of `first` is where to begin
   */
  constructor({ api, told, tokens, onmove, onlost, first, names }) {
    this.told = told;
    this.layer = told.layers[0];
    this.tokens = tokens;
    this.onmove = onmove;
    this.first = first;
    this.names = names;
    this.tiles = new Tiles(api, told.seen, told.page, { onchange: () => this.redraw(), onlost });
    this.canvas = h("canvas", {
      class: "sheet", tabindex: 0, role: "img", "aria-roledescription": "map",
    });
    this.mini = h("canvas", { class: "mini", "aria-hidden": "true" });
    this.node = h("div", { class: "map" }, this.canvas, this.mini);
    this.painter = new CanvasPainter(this.canvas);
    this.camera = { x: 0, y: 0, px: 1 };
    /** @type {{row: number, col: number} | null} what is pointed at */
    this.cursor = null;
    /** @type {[w: number, h: number]} */
    this.size = [0, 0];
    this.slowest = 0; // milliseconds that a frame took
    this.watch = new ResizeObserver(() => this.#resized());
    this.watch.observe(this.node);
  }

  // -- what is shown --

  /**
   * @param {{
   *   layer: AtlasLayer, head: number, show: "mean" | "max", log: boolean, hideSink: boolean,
   * }} what
   */
  show({ layer, head, show, log, hideSink }) {
    const before = this.layer;
    this.layer = layer;
    this.tiles.use({
      layer: layer.index, head, show, log, hideSink, causal: layer.causal, shift: layer.S - layer.T,
    });
    const first = !this.shown;
    this.shown = true;
    if (first || before.T !== layer.T || before.S !== layer.S) {
      this.size = [0, 0];
      this.#resized();
    }
    this.redraw();
  }

  /** @returns {[w: number, h: number]} */
  get inner() {
    return [Math.max(1, this.size[0] - LEFT), Math.max(1, this.size[1] - TOP)];
  }

  get fit() {
    const [w, hi] = this.inner;
    return Math.min((w - 8) / this.layer.S, (hi - 8) / this.layer.T);
  }

  get level() {
    const { finest, levels } = this.layer;
    return Math.min(levels - 1, Math.max(finest, Math.ceil(-Math.log2(this.camera.px) - 1e-9)));
  }

  get whole() {
    return this.camera.px <= this.fit * 1.001;
  }

  /** Move to where the address says, or to all of it.
   * @param {string | null | undefined} at
   */
  place(at) {
    const [x, y, zoom] = (at ?? "").split(",").map(Number);
    if (![x, y, zoom].every(Number.isFinite)) return this.home(false);
    this.move({ x, y, px: 2 ** zoom }, false);
  }

  get address() {
    const { x, y, px } = this.camera;
    return this.whole ? null : `${x.toFixed(1)},${y.toFixed(1)},${Math.log2(px).toFixed(3)}`;
  }

  home(tell = true) {
    this.move({ x: this.layer.S / 2, y: this.layer.T / 2, px: this.fit }, tell);
  }

  /** @param {{x?: number, y?: number, px?: number}} to */
  move({ x = this.camera.x, y = this.camera.y, px = this.camera.px }, tell = true) {
    const [w, hi] = this.inner;
    const { T, S } = this.layer;
    px = Math.min(Math.max(NEAREST, this.fit), Math.max(this.fit, px));
    // A map that fits stays in the middle; of another at least a half is in sight.
    /** @param {number} at @param {number} n @param {number} room */
    const within = (at, n, room) => (n * px <= room ? n / 2 : Math.min(n, Math.max(0, at)));
    this.camera = { x: within(x, S, w), y: within(y, T, hi), px };
    this.redraw();
    if (tell) this.onmove();
  }

  /** Nearer by a factor, while what is at (cx, cy) stays there.
   * @param {number} factor
   */
  zoom(factor, cx = LEFT + this.inner[0] / 2, cy = TOP + this.inner[1] / 2) {
    const at = this.at(cx, cy);
    const px = Math.min(Math.max(NEAREST, this.fit), Math.max(this.fit, this.camera.px * factor));
    const [w, hi] = this.inner;
    this.move({ px, x: at.x - (cx - LEFT - w / 2) / px, y: at.y - (cy - TOP - hi / 2) / px });
  }

  /** From pixels of the canvas to the map, and back.
   * @param {number} cx
   * @param {number} cy
   */
  at(cx, cy) {
    const [w, hi] = this.inner;
    const { x, y, px } = this.camera;
    return { x: x + (cx - LEFT - w / 2) / px, y: y + (cy - TOP - hi / 2) / px };
  }

  /** @param {number} col */
  toX(col) {
    return LEFT + this.inner[0] / 2 + (col - this.camera.x) * this.camera.px;
  }

  /** @param {number} row */
  toY(row) {
    return TOP + this.inner[1] / 2 + (row - this.camera.y) * this.camera.px;
  }

  get view() {
    const a = this.at(LEFT, TOP);
    const b = this.at(...this.size);
    const { T, S } = this.layer;
    return {
      r0: Math.max(0, Math.floor(a.y)),
      r1: Math.min(T, Math.ceil(b.y)),
      c0: Math.max(0, Math.floor(a.x)),
      c1: Math.min(S, Math.ceil(b.x)),
    };
  }

  /** Whether causality hides all of a page.
   * @param {Page} page
   */
  hides(...[level, i, j]) {
    const side = this.told.page * 2 ** level;
    return this.layer.causal && j * side > (i + 1) * side - 1 + this.layer.S - this.layer.T;
  }

  /** Pages in sight at a level, nearest to the middle first; what causality hides is left out.
   * @param {number} level
   */
  pages(level) {
    const side = this.told.page * 2 ** level;
    const { r0, r1, c0, c1 } = this.view;
    /** @type {Page[]} */
    const found = [];
    for (let i = Math.floor(r0 / side); i * side < r1; i++)
      for (let j = Math.floor(c0 / side); j * side < c1; j++) {
        if (!this.hides(level, i, j)) found.push([level, i, j]);
      }
    /** @param {Page} page */
    const far = ([, i, j]) =>
      Math.hypot((i + 0.5) * side - this.camera.y, (j + 0.5) * side - this.camera.x);
    return found.sort((a, b) => far(a) - far(b));
  }

  // -- frames --

  redraw() {
    if (this.frame || this.stopped || !this.shown) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      if (!this.size[0]) return;
      const from = performance.now();
      this.#ask();
      const top = this.tiles.find(this.layer.levels - 1, 0, 0); // for the small map
      const more = this.tiles.tint(top ? [top, ...this.#cached()] : this.#cached(), BUDGET);
      if (this.painter.w !== this.size[0] || this.painter.h !== this.size[1])
        this.painter.size(...this.size);
      this.painter.rect(0, 0, ...this.size, { fill: colours().panel });
      this.draw(this.painter);
      this.#drawMini();
      this.slowest = Math.max(this.slowest, performance.now() - from);
      Object.assign(this.node.dataset, {
        level: this.level, missing: this.missing, slowest: this.slowest.toFixed(1),
      });
      if (more) this.redraw();
    });
  }

  #ask() {
    const top = this.layer.levels - 1;
    this.missing = this.tiles.want([[top, 0, 0], ...this.pages(this.level)]);
    this.node.classList.toggle("busy", this.missing > 0);
  }

  // What is there to be shown, coarse first: whatever is missing at this level is covered by what
  // is nearest to it.
  #cached() {
    const { level, layer } = this;
    /** @param {number} l */
    const at = (l) => this.pages(l).map((page) => this.tiles.find(...page));
    const found = at(level);
    if (!found.every((tile) => tile?.canvas)) {
      const around = [];
      for (let l = layer.levels - 1; l > level; l--) around.push(...at(l));
      if (level > 0) around.push(...at(level - 1));
      found.unshift(...around);
    }
    return found.filter((tile) => tile !== undefined);
  }

  /** @param {Painter} painter */
  draw(painter) {
    const ink = colours();
    const [w, hi] = this.size;
    const { T, S } = this.layer;
    const [x0, x1] = [Math.max(LEFT, this.toX(0)), Math.min(w, this.toX(S))];
    const [y0, y1] = [Math.max(TOP, this.toY(0)), Math.min(hi, this.toY(T))];
    painter.clip(x0, y0, Math.max(0, x1 - x0), Math.max(0, y1 - y0), () => {
      painter.rect(x0, y0, x1 - x0, y1 - y0, { fill: ink.paper });
      for (const tile of this.#cached()) this.#place(painter, tile);
      drawGrid(painter, this);
      drawCross(painter, this);
    });
    painter.rect(x0, y0, x1 - x0, y1 - y0, { stroke: ink.line });
    drawRulers(painter, this, (side, from, to, put) => this.#written(side, from, to, put));
  }

  /** @param {Painter} painter @param {Tile} tile */
  #place(painter, tile) {
    if (!tile.canvas) return;
    const side = 2 ** tile.level;
    const whole = this.told.page * side;
    const fine = painter.density ?? 1;
    /** @param {number} v */
    const snap = (v) => Math.round(v * fine) / fine; // no seams between pages
    const x = snap(this.toX(tile.col * whole));
    const y = snap(this.toY(tile.row * whole));
    const x1 = snap(this.toX(tile.col * whole + tile.cols * side));
    const y1 = snap(this.toY(tile.row * whole + tile.rows * side));
    painter.image(x, y, x1 - x, y1 - y, tile.canvas, { smooth: tile.level > this.level });
  }

  /**
   * @param {"rows" | "cols"} side
   * @param {number} start
   * @param {number} stop
   * @param {(at: number, text: string) => void} put
   */
  #written(side, start, stop, put) {
    for (const [at, , text] of this.tokens.known(this.layer, side, start, stop))
      if (at >= start && at < stop) put(at, text);
    this.tokens.load(this.layer, side, start, stop).then(
      (fresh) => fresh && this.redraw(),
      () => {},
    );
  }

  // -- the small map --

  #drawMini() {
    const { T, S, levels } = this.layer;
    this.mini.hidden = this.whole;
    if (this.whole) return;
    const side = innerWidth < 560 ? 92 : MINI;
    const px = side / Math.max(T, S), ink = colours();
    const painter = (this.small ??= new CanvasPainter(this.mini));
    if (painter.w !== S * px || painter.h !== T * px) painter.size(S * px, T * px);
    painter.rect(0, 0, S * px, T * px, { fill: ink.paper });
    const top = this.tiles.find(levels - 1, 0, 0);
    const cell = 2 ** (levels - 1);
    if (top?.canvas) painter.image(0, 0, top.cols * cell * px, top.rows * cell * px, top.canvas);
    const { r0, r1, c0, c1 } = this.view;
    const w = Math.max(7, (c1 - c0) * px), hi = Math.max(7, (r1 - r0) * px);
    painter.rect(((c0 + c1) / 2) * px - w / 2, ((r0 + r1) / 2) * px - hi / 2, w, hi, {
      stroke: ink.accent, width: 2,
    });
  }

  // -- the rest --

  /** Mean and max of the cell that holds a weight, and of how many weights a side; null before it
   * is there.
   * @param {number} row
   * @param {number} col
   */
  cell(row, col) {
    const { level } = this;
    const side = this.told.page * 2 ** level;
    const tile = this.tiles.find(level, Math.floor(row / side), Math.floor(col / side));
    if (!tile) return null;
    const at =
      Math.floor((row % side) / 2 ** level) * tile.cols + Math.floor((col % side) / 2 ** level);
    return { mean: tile.mean[at], max: tile.max[at], side: 2 ** level };
  }

  #resized() {
    const w = this.node.clientWidth, hi = this.node.clientHeight;
    if (!w || !hi || !this.shown || (this.size[0] === w && this.size[1] === hi)) return;
    const stay = this.size[0] && !this.whole;
    this.size = [w, hi];
    if (stay) this.move({}, false);
    else this.place(this.first);
  }

  stop() {
    this.stopped = true;
    cancelAnimationFrame(this.frame);
    this.watch.disconnect();
    this.tiles.stop();
  }
}
