// Pages of cells: asked for nearest first, given up when out of sight, kept while there is room,
// and coloured a few at a time so that no frame is late.
//
//   tiles.use({layer, head, …})       of which head, and how it is shown
//   tiles.want(pages)                 nearest first; whatever else is under way is given up
//   tiles.find(level, row, col)       the page, if it is there, with .canvas if it is coloured
//   tiles.tint(shown, budget)         colours pages for so many milliseconds; true if some are left

import { ended, query } from "../api.js";
import { saved } from "../embedded.js";
import { pen } from "../paint.js";
import { palette, theme } from "../scale.js";

const KEPT = 640; // pages
const AT_ONCE = 4; // requests
const DECADES = 4;
const SAMPLE = 8; // one value of so many tells how bright a page is
const BRIGHT = 0.998; // the share of cells that are no brighter than the strongest colour

/** @typedef {[level: number, row: number, col: number]} Page */

/** Which head, and how it is shown; shift is S − T.
 * @typedef {{
 *   layer: number, head: number, hideSink: boolean, shift: number, causal: boolean,
 *   show: "mean" | "max", log: boolean,
 * }} Spec
 */

/** A page that has come: means and maxima, how bright they are, and how they are coloured.
 * @typedef {{
 *   level: number, row: number, col: number, rows: number, cols: number,
 *   layer: number, head: number, causal: boolean, shift: number,
 *   mean: Float32Array, max: Float32Array, bright: {mean?: number, max?: number},
 *   look?: string, canvas?: HTMLCanvasElement,
 * }} Tile
 */

export class Tiles {
  prefix = "";

  /** @type {Spec} until `use` tells another */
  spec = { layer: 0, head: 0, hideSink: false, shift: 0, causal: false, show: "max", log: false };

  /**
   * @param {Context["api"]} api
   * @param {string} seen
   * @param {number} page cells a side
   * @param {{onchange: () => void, onlost: (error: any) => void}} on
   */
  constructor(api, seen, page, { onchange, onlost }) {
    this.api = api;
    this.seen = seen;
    this.page = page;
    this.onchange = onchange;
    this.onlost = onlost;
    /** @type {Map<string, Tile>} by name, those used last at the end */
    this.kept = new Map();
    /** @type {Map<string, AbortController>} */
    this.asked = new Map();
    /** @type {Page[]} */
    this.wanted = [];
    /** @type {Map<string, number>} when to try again */
    this.failed = new Map();
    /** @type {Map<string, number>} what the colours reach to, by head, level and kind */
    this.ranges = new Map();
    /** @type {number[]} milliseconds that requests took */
    this.took = [];
  }

  /** @param {Spec} spec */
  use(spec) {
    this.spec = spec;
    this.prefix = `${spec.layer}.${spec.head}.${spec.hideSink ? 1 : 0}.`;
  }

  /** @param {Page} page */
  find(...[level, row, col]) {
    const name = `${this.prefix}${level}.${row}.${col}`;
    const tile = this.kept.get(name);
    if (tile) {
      this.kept.delete(name);
      this.kept.set(name, tile);
    }
    return tile;
  }

  /** @param {Page[]} pages */
  want(pages) {
    this.wanted = pages.filter(
      ([level, row, col]) => !this.kept.has(`${this.prefix}${level}.${row}.${col}`),
    );
    const names = new Set(this.wanted.map((page) => this.prefix + page.join(".")));
    for (const [name, control] of this.asked) if (!names.has(name)) control.abort();
    this.#ask();
    // What will not come is not waited for.
    return this.wanted.filter((page) => this.failed.get(this.prefix + page.join(".")) !== Infinity)
      .length;
  }

  /** @param {Spec} spec @param {Page} page */
  path({ layer, head, hideSink }, ...[level, row, col]) {
    const where = { layer, head, level, row, col, ...(hideSink ? { hide_sink: true } : {}) };
    return `/api/seen/${this.seen}/cells?${query(where)}`;
  }

  stop() {
    this.wanted = [];
    for (const control of this.asked.values()) control.abort();
  }

  #ask() {
    const now = performance.now();
    for (const [level, row, col] of this.wanted) {
      if (this.asked.size >= AT_ONCE) return;
      const name = `${this.prefix}${level}.${row}.${col}`;
      if (this.asked.has(name) || this.kept.has(name)) continue;
      if ((this.failed.get(name) ?? 0) > now) continue;
      this.#fetch(name, this.spec, level, row, col);
    }
  }

  /** @param {string} name @param {Spec} spec @param {Page} page */
  async #fetch(name, spec, ...[level, row, col]) {
    const control = new AbortController();
    this.asked.set(name, control);
    const from = performance.now();
    try {
      const { buffer, shape } = await this.api.bytes(this.path(spec, level, row, col), {
        signal: control.signal,
      });
      this.took.push(performance.now() - from);
      if (this.took.length > 400) this.took.shift();
      const [rows, cols] = /** @type {number[]} */ (shape);
      const size = rows * cols;
      this.kept.set(name, {
        level, row, col, rows, cols, layer: spec.layer, head: spec.head, causal: spec.causal,
        shift: spec.shift, mean: new Float32Array(buffer, 0, size),
        max: new Float32Array(buffer, 4 * size, size), bright: {},
      });
      for (const old of this.kept.keys()) {
        if (this.kept.size <= KEPT) break;
        this.kept.delete(old);
      }
      this.failed.delete(name);
    } catch (error) {
      if (ended(error)) return;
      // A saved page will not get more; a server that is busy, or away, is asked again later.
      const never = error.status === 400 || error.status === 404 || saved;
      const wait = 1000 * Math.max(1, error.wait);
      this.failed.set(name, never ? Infinity : performance.now() + wait);
      if (never) this.onlost(error);
      else setTimeout(() => this.#ask(), wait + 10);
    } finally {
      if (this.asked.get(name) === control) this.asked.delete(name);
      this.#ask();
      this.onchange();
    }
  }

  // -- colours --

  /** What is bright grows with what has been seen of this head at this level, and never shrinks:
   * panning keeps colours.
   * @param {number} level
   */
  range(level) {
    const { show, log } = this.spec;
    const high = this.ranges.get(`${this.prefix}${level}.${show}`) ?? 0;
    return { high: high || 1, low: log ? (high || 1) * 10 ** -DECADES : 0, known: high > 0 };
  }

  /** @param {Tile} tile */
  #learn(tile) {
    const { show } = this.spec;
    let bright = tile.bright[show];
    if (bright === undefined) {
      const values = tile[show];
      const some = new Float32Array(Math.ceil(values.length / SAMPLE));
      let n = 0;
      for (let i = (tile.row + tile.col) % SAMPLE; i < values.length; i += SAMPLE)
        if (values[i] > 0) some[n++] = values[i];
      const sorted = some.subarray(0, n).sort();
      bright = n ? sorted[Math.min(n - 1, Math.floor(BRIGHT * n))] : 0;
      tile.bright[show] = bright;
    }
    const name = `${tile.layer}.${tile.head}.${this.spec.hideSink ? 1 : 0}.${tile.level}.${show}`;
    const before = this.ranges.get(name) ?? 0;
    // A little more would repaint everything for nothing.
    if (bright > 1.25 * before) this.ranges.set(name, bright);
  }

  /** Colour the pages that are shown, at most for `budget` milliseconds.
   * @param {Tile[]} shown
   * @param {number} budget
   */
  tint(shown, budget) {
    const until = performance.now() + budget;
    for (const tile of shown) this.#learn(tile);
    for (const tile of shown) {
      const look = this.#lookOf(tile.level);
      if (tile.look === look) continue;
      if (performance.now() > until) return true;
      this.#colour(tile);
      tile.look = look;
    }
    return false;
  }

  /** @param {number} level */
  #lookOf(level) {
    const { high, low } = this.range(level);
    return `${this.spec.show} ${low} ${high} ${theme()}`;
  }

  /** @param {Tile} tile */
  #colour(tile) {
    const { rows, cols } = tile;
    const { high, low } = this.range(tile.level);
    const values = tile[this.spec.show];
    const colours = words(this.spec.log ? "log" : "linear");
    const pixels = new ImageData(cols, rows);
    const out = new Uint32Array(pixels.data.buffer);
    const slope = 255 / (low ? Math.log(high / low) : high);
    const side = 2 ** tile.level;
    for (let r = 0; r < rows; r++) {
      // Above the diagonal there is paper, not a weight of 0.
      const last = (tile.row * this.page + r + 1) * side - 1 + tile.shift;
      const seen = tile.causal
        ? Math.min(cols, Math.floor(last / side) - tile.col * this.page + 1)
        : cols;
      for (let c = 0, i = r * cols; c < seen; c++, i++) {
        const v = values[i];
        const shade = low ? (v > low ? slope * Math.log(v / low) : 0) : slope * v;
        out[i] = colours[shade > 255 ? 255 : (shade + 0.5) | 0];
      }
    }
    tile.canvas ??= Object.assign(document.createElement("canvas"), { width: cols, height: rows });
    pen(tile.canvas).putImageData(pixels, 0, 0);
  }
}

/** @type {Map<string, Uint32Array>} */
const known = new Map();

/** The palette as 256 numbers of four bytes.
 * @param {ScaleKind} kind
 */
function words(kind) {
  const name = `${kind} ${theme()}`;
  let found = known.get(name);
  if (!found) {
    const bytes = palette(kind);
    const out = new Uint8Array(1024).fill(255);
    for (let i = 0; i < 256; i++) out.set(bytes.subarray(3 * i, 3 * i + 3), 4 * i);
    found = new Uint32Array(out.buffer);
    known.set(name, found);
  }
  return found;
}
