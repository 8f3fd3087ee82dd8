// The map itself: a camera over T × S weights, pages of cells under it, rulers on two sides and a small map of all.
//
// The camera is the weight at the middle (x: key, y: query) and how many pixels a token takes. All drawing goes
// through a painter, so that the same picture can be saved.

import { h } from "../dom.js";
import { CanvasPainter } from "../paint.js";
import { colours } from "../scale.js";
import { count } from "../words.js";
import { Tiles } from "./atlas_tiles.js";

export const LEFT = 62; // of the ruler down the side
export const TOP = 50;
const NEAREST = 44; // pixels of a token
const READABLE = 13; // from here on tokens are written beside the rulers
const BUDGET = 4; // milliseconds of colouring in a frame
const MINI = 148;

export class AtlasMap {
  constructor({ api, told, tokens, onmove, onpoint, onlost }) {
    Object.assign(this, { told, tokens, onmove, onpoint });
    this.tiles = new Tiles(api, told.seen, told.page, () => this.redraw());
    this.tiles.lost = onlost;
    this.canvas = h("canvas", { class: "sheet", tabindex: 0, role: "img", "aria-roledescription": "map" });
    this.mini = h("canvas", { class: "mini", "aria-hidden": "true" });
    this.node = h("div", { class: "map" }, this.canvas, this.mini);
    this.painter = new CanvasPainter(this.canvas);
    this.camera = { x: 0, y: 0, px: 1 };
    this.cursor = null; // {row, col} of what is pointed at
    this.size = [0, 0];
    this.slowest = 0; // milliseconds that a frame took
    this.watch = new ResizeObserver(() => this.#resized());
    this.watch.observe(this.node);
  }

  // -- what is shown --

  show({ layer, head, show, log, hideSink }) {
    const before = this.layer;
    this.layer = layer;
    this.tiles.use({ layer: layer.index, head, show, log, hideSink, causal: layer.causal, shift: layer.S - layer.T });
    if (!before || before.T !== layer.T || before.S !== layer.S) {
      this.size = [0, 0];
      this.#resized();
    }
    this.redraw();
  }

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

  // Move to where the address says, or to all of it.
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

  move({ x = this.camera.x, y = this.camera.y, px = this.camera.px }, tell = true) {
    const [w, hi] = this.inner;
    const { T, S } = this.layer;
    px = Math.min(Math.max(NEAREST, this.fit), Math.max(this.fit, px));
    // A map that fits stays in the middle; of another at least a half is in sight.
    const within = (at, n, room) => (n * px <= room ? n / 2 : Math.min(n, Math.max(0, at)));
    this.camera = { x: within(x, S, w), y: within(y, T, hi), px };
    this.redraw();
    if (tell) this.onmove?.();
  }

  // Nearer by a factor, while what is at (cx, cy) stays there.
  zoom(factor, cx = LEFT + this.inner[0] / 2, cy = TOP + this.inner[1] / 2) {
    const at = this.at(cx, cy);
    const px = Math.min(Math.max(NEAREST, this.fit), Math.max(this.fit, this.camera.px * factor));
    const [w, hi] = this.inner;
    this.move({ px, x: at.x - (cx - LEFT - w / 2) / px, y: at.y - (cy - TOP - hi / 2) / px });
  }

  // From pixels of the canvas to the map, and back.
  at(cx, cy) {
    const [w, hi] = this.inner;
    const { x, y, px } = this.camera;
    return { x: x + (cx - LEFT - w / 2) / px, y: y + (cy - TOP - hi / 2) / px };
  }

  toX(col) {
    return LEFT + this.inner[0] / 2 + (col - this.camera.x) * this.camera.px;
  }

  toY(row) {
    return TOP + this.inner[1] / 2 + (row - this.camera.y) * this.camera.px;
  }

  get view() {
    const a = this.at(LEFT, TOP);
    const b = this.at(...this.size);
    const { T, S } = this.layer;
    return { r0: Math.max(0, Math.floor(a.y)), r1: Math.min(T, Math.ceil(b.y)), c0: Math.max(0, Math.floor(a.x)), c1: Math.min(S, Math.ceil(b.x)) };
  }

  // Whether causality hides all of a page.
  hides(level, i, j) {
    const side = this.told.page * 2 ** level;
    return this.layer.causal && j * side > (i + 1) * side - 1 + this.layer.S - this.layer.T;
  }

  // Pages in sight at a level, nearest to the middle first; what causality hides is left out.
  pages(level) {
    const side = this.told.page * 2 ** level;
    const { r0, r1, c0, c1 } = this.view;
    const found = [];
    for (let i = Math.floor(r0 / side); i * side < r1; i++)
      for (let j = Math.floor(c0 / side); j * side < c1; j++) {
        if (!this.hides(level, i, j)) found.push([level, i, j]);
      }
    const far = ([, i, j]) => Math.hypot((i + 0.5) * side - this.camera.y, (j + 0.5) * side - this.camera.x);
    return found.sort((a, b) => far(a) - far(b));
  }

  // -- frames --

  redraw() {
    if (this.frame || this.stopped || !this.layer) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      if (!this.size[0]) return;
      const from = performance.now();
      this.#ask();
      const top = this.tiles.find(this.layer.levels - 1, 0, 0); // for the small map
      const more = this.tiles.tint(top ? [top, ...this.#cached()] : this.#cached(), BUDGET);
      if (this.painter.w !== this.size[0] || this.painter.h !== this.size[1]) this.painter.size(...this.size);
      this.painter.rect(0, 0, ...this.size, { fill: colours().panel });
      this.draw(this.painter);
      this.#drawMini();
      this.slowest = Math.max(this.slowest, performance.now() - from);
      Object.assign(this.node.dataset, { level: this.level, missing: this.missing, slowest: this.slowest.toFixed(1) });
      if (more) this.redraw();
    });
  }

  #ask() {
    const top = this.layer.levels - 1;
    this.missing = this.tiles.want([[top, 0, 0], ...this.pages(this.level)]);
    this.node.classList.toggle("busy", this.missing > 0);
  }

  // What is there to be shown, coarse first: whatever is missing at this level is covered by what is nearest to it.
  #cached() {
    const { level, layer } = this;
    const at = (l) => this.pages(l).map((page) => this.tiles.find(...page));
    const exact = at(level);
    if (!exact.every((tile) => tile?.canvas)) {
      const around = [];
      for (let l = layer.levels - 1; l > level; l--) around.push(...at(l));
      if (level > 0) around.push(...at(level - 1));
      exact.unshift(...around);
    }
    return exact.filter(Boolean);
  }

  draw(painter) {
    const ink = colours();
    const [w, hi] = this.size;
    const { T, S } = this.layer;
    const x0 = Math.max(LEFT, this.toX(0)), x1 = Math.min(w, this.toX(S));
    const y0 = Math.max(TOP, this.toY(0)), y1 = Math.min(hi, this.toY(T));
    painter.clip(x0, y0, Math.max(0, x1 - x0), Math.max(0, y1 - y0), () => {
      painter.rect(x0, y0, x1 - x0, y1 - y0, { fill: ink.paper });
      for (const tile of this.#cached()) if (tile.canvas) this.#place(painter, tile);
      this.#grid(painter, ink);
      this.#cross(painter, ink);
    });
    painter.rect(x0, y0, x1 - x0, y1 - y0, { stroke: ink.line });
    this.#rulers(painter, ink);
  }

  #place(painter, tile) {
    const side = 2 ** tile.level, whole = this.told.page * side;
    const snap = (v) => Math.round(v * (painter.density ?? 1)) / (painter.density ?? 1); // no seams between pages
    const x = snap(this.toX(tile.col * whole)), y = snap(this.toY(tile.row * whole));
    const x1 = snap(this.toX(tile.col * whole + tile.cols * side)), y1 = snap(this.toY(tile.row * whole + tile.rows * side));
    painter.image(x, y, x1 - x, y1 - y, tile.canvas, { smooth: tile.level > this.level });
  }

  #grid(painter, ink) {
    if (this.camera.px < READABLE) return;
    const { r0, r1, c0, c1 } = this.view;
    const line = { stroke: ink.paper, width: 1, alpha: 0.7 };
    for (let c = c0; c <= c1; c++) painter.line(this.toX(c), this.toY(r0), this.toX(c), this.toY(r1), line);
    for (let r = r0; r <= r1; r++) painter.line(this.toX(c0), this.toY(r), this.toX(c1), this.toY(r), line);
  }

  #cross(painter, ink) {
    if (!this.cursor) return;
    const { row, col } = this.cursor;
    const px = Math.max(1, this.camera.px);
    const x = this.toX(col), y = this.toY(row);
    const [w, hi] = this.size;
    const soft = { fill: ink.accent, alpha: px > 3 ? 0.13 : 0.55 };
    painter.rect(LEFT, y, w, px, soft);
    painter.rect(x, TOP, px, hi, soft);
    if (px > 3) painter.rect(x, y, px, px, { stroke: ink.accent, width: 1.5 });
  }

  #rulers(painter, ink) {
    const { r0, r1, c0, c1 } = this.view;
    const [w, hi] = this.size;
    const { px } = this.camera;
    painter.rect(0, 0, w, TOP, { fill: ink.panel });
    painter.rect(0, 0, LEFT, hi, { fill: ink.panel });
    const words = px >= READABLE;
    const small = { size: 11, fill: ink.quiet };
    const step = nice((words ? 56 : 74) / px);
    const ticks = (from, to) => Array.from({ length: Math.max(0, Math.floor((to - 1) / step) - Math.ceil(from / step) + 1) }, (_, n) => (Math.ceil(from / step) + n) * step);
    painter.clip(LEFT, 0, w - LEFT, TOP, () => {
      for (const c of ticks(c0, c1)) {
        const x = this.toX(c) + px / 2;
        if (!words) painter.line(x, TOP - 5, x, TOP - 1, { stroke: ink.quiet });
        painter.text(x, words ? 12 : TOP - 10, count(c), { ...small, align: "center" });
      }
      if (!words) painter.text(w - 12, 16, this.names[1], { ...small, align: "right" });
      if (words) this.#written("cols", c0, c1, (c, text) => {
        const style = { size: 13, fill: this.cursor?.col === c ? ink.accent : ink.ink, max: TOP - 22 };
        const x = this.toX(c) + px / 2;
        if (painter.measure(text, style) <= px + 2) painter.text(x, TOP - 8, text, { ...style, align: "center", max: 0 });
        else painter.text(x, TOP - 5, text, { ...style, rotate: -Math.PI / 2, baseline: "middle" });
      });
    });
    painter.clip(0, TOP, LEFT, hi - TOP, () => {
      for (const r of ticks(r0, r1)) {
        const y = this.toY(r) + px / 2;
        if (!words) painter.line(LEFT - 5, y, LEFT - 1, y, { stroke: ink.quiet });
        if (!words) painter.text(LEFT - 9, y, count(r), { ...small, align: "right", baseline: "middle" });
        else painter.text(3, y, count(r), { ...small, size: 9, baseline: "middle" });
      }
      if (words) this.#written("rows", r0, r1, (r, text) => {
        const fill = this.cursor?.row === r ? ink.accent : ink.ink;
        painter.text(LEFT - 6, this.toY(r) + px / 2, text, { size: 13, fill, align: "right", baseline: "middle", max: LEFT - 10 });
      });
    });
    painter.rect(0, 0, LEFT, TOP, { fill: ink.panel });
    painter.text(LEFT - 8, TOP - 8, this.names[0], { ...small, align: "right", max: LEFT - 8 });
    painter.line(LEFT, TOP, w, TOP, { stroke: ink.line });
    painter.line(LEFT, TOP, LEFT, hi, { stroke: ink.line });
  }

  #written(side, start, stop, put) {
    for (const [at, , text] of this.tokens.known(this.layer, side, start, stop)) if (at >= start && at < stop) put(at, text);
    this.tokens.load(this.layer, side, start, stop).then((fresh) => fresh && this.redraw(), () => {});
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
    painter.rect(((c0 + c1) / 2) * px - w / 2, ((r0 + r1) / 2) * px - hi / 2, w, hi, { stroke: ink.accent, width: 2 });
  }

  // -- the rest --

  // Mean and max of the cell that holds a weight, and of how many weights a side; null before it is there.
  cell(row, col) {
    const { level } = this;
    const side = this.told.page * 2 ** level;
    const tile = this.tiles.find(level, Math.floor(row / side), Math.floor(col / side));
    if (!tile) return null;
    const at = Math.floor((row % side) / 2 ** level) * tile.cols + Math.floor((col % side) / 2 ** level);
    return { mean: tile.mean[at], max: tile.max[at], side: 2 ** level };
  }

  #resized() {
    const w = this.node.clientWidth, hi = this.node.clientHeight;
    if (!w || !hi || !this.layer || (this.size[0] === w && this.size[1] === hi)) return;
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

// The next of 1, 2, 5, 10, 20, …
function nice(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= least) ?? 10 * power;
}
