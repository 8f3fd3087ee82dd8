// The text beside the map: tokens as they are needed, and two strips of it that scroll along.

import { query } from "../api.js";
import { h } from "../dom.js";
import { count, t } from "../words.js";

const CHUNK = 128; // tokens that are fetched and shown together
const KEPT = 400; // chunks

/** @typedef {"rows" | "cols"} Side */

// Tokens of queries ("rows") and keys ("cols") of a layer.
export class Tokens {
  /** @param {Context["api"]} api @param {string} seen */
  constructor(api, seen) {
    this.api = api;
    this.seen = seen;
    /** @type {Map<string, Piece[] | Promise<Piece[]>>} */
    this.chunks = new Map();
  }

  /** Layers that look at the same text share it.
   * @param {AtlasLayer} layer
   * @param {Side} side
   * @param {number} n
   */
  #name(layer, side, n) {
    return `${side} ${layer.kind === "cross" ? "cross" : (layer.part ?? "")} ${n}`;
  }

  /**
   * @param {AtlasLayer} layer
   * @param {Side} side
   * @param {number} start
   * @param {number} stop
   * @returns {Piece[]}
   */
  known(layer, side, start, stop) {
    /** @type {Piece[]} */
    const found = [];
    for (let n = Math.floor(start / CHUNK); n * CHUNK < stop; n++) {
      const chunk = this.chunks.get(this.#name(layer, side, n));
      if (Array.isArray(chunk))
        found.push(...chunk.filter(([at]) => at >= n * CHUNK && at < (n + 1) * CHUNK));
    }
    return found.map(([from, to, text]) => [from, to, visible(text)]);
  }

  /** True when something has come that was not there before.
   * @param {AtlasLayer} layer
   * @param {Side} side
   * @param {number} start
   * @param {number} stop
   */
  async load(layer, side, start, stop) {
    /** @type {Promise<Piece[]>[]} */
    const missing = [];
    for (let n = Math.floor(start / CHUNK); n * CHUNK < stop; n++)
      if (!this.chunks.has(this.#name(layer, side, n))) missing.push(this.chunk(layer, side, n));
    await Promise.all(missing);
    return missing.length > 0;
  }

  /** @param {AtlasLayer} layer @param {Side} side @param {number} n */
  async chunk(layer, side, n) {
    const name = this.#name(layer, side, n);
    const known = this.chunks.get(name);
    if (known) return known;
    const coming = this.#fetch(name, layer, side, n);
    this.chunks.set(name, coming);
    return coming;
  }

  /**
   * @param {string} name
   * @param {AtlasLayer} layer
   * @param {Side} side
   * @param {number} n
   * @returns {Promise<Piece[]>}
   */
  async #fetch(name, layer, side, n) {
    const where = query({
      layer: layer.index, side, start: n * CHUNK, stop: (n + 1) * CHUNK,
    });
    try {
      const { pieces } = await this.api.get(`/api/seen/${this.seen}/tokens?${where}`);
      this.chunks.set(name, pieces);
      for (const old of this.chunks.keys()) {
        if (this.chunks.size <= KEPT) break;
        this.chunks.delete(old);
      }
      return pieces;
    } catch (error) {
      this.chunks.delete(name);
      throw error;
    }
  }
}

/** What cannot be seen, by a sign.
 * @param {string} text
 */
export function visible(text) {
  /** @type {Record<string, string>} */
  const signs = { "\n": "↵", "\r": "␍", "\t": "⇥" };
  const shown = text.replace(/[\n\r\t]/g, (c) => signs[c]);
  return shown.trim() ? shown.trim() : shown.replace(/[ \u3000]/g, "␣") || "∅";
}

// One text: what is around a token, with that token in the middle. Scrolling it moves on, a click
// goes there.
export class Strip {
  frame = 0; // that is asked for
  text = ""; // which one
  /** @type {HTMLElement | null} the token in the middle */
  here = null;

  /**
   * @param {{
   *   tokens: Tokens, side: Side, onpick: (at: number) => void, onscroll: (at: number) => void,
   * }} of
   */
  constructor({ tokens, side, onpick, onscroll }) {
    this.tokens = tokens;
    this.side = side;
    this.onpick = onpick;
    this.onscroll = onscroll;
    this.where = h("span", { class: "quiet small number" });
    this.body = h("div", { class: "strip", tabindex: 0, role: "region" });
    this.node = h("div", { class: "beside" },
      h("div", { class: "row" },
        h("h3", {}, t(side === "rows" ? "atlas.from" : "atlas.to")),
        this.where,
      ),
      this.body,
    );
    this.body.setAttribute("aria-label", t(side === "rows" ? "atlas.from" : "atlas.to"));
    /** @type {Map<number, HTMLElement>} number of a chunk → its element */
    this.shown = new Map();
    /** @type {number | null} */
    this.wanted = null;
    this.mine = 0; // until when scrolling is our own doing
    this.placed = -1; // where we scrolled to last
    this.theirs = 0; // until when it is the reader's
    this.body.addEventListener("click", (event) => {
      const { at } = /** @type {HTMLElement} */ (event.target).dataset;
      if (at !== undefined) this.onpick(Number(at));
    });
    this.body.addEventListener("scroll", () => this.#scrolled());
  }

  /** Show what is around token `at`; first to last are in sight on the map.
   * @param {AtlasLayer} layer
   * @param {number} at
   * @param {number} first
   * @param {number} last
   */
  async go(layer, at, first, last) {
    const total = this.side === "rows" ? layer.T : layer.S;
    at = Math.min(total - 1, Math.max(0, Math.floor(at)));
    const name = `${layer.kind} ${layer.part}`;
    if (this.text !== name) {
      this.text = name;
      this.shown.clear();
      this.body.replaceChildren();
    }
    this.wanted = at;
    this.where.textContent = count(at);
    const middle = Math.floor(at / CHUNK);
    const numbers = [middle - 1, middle, middle + 1].filter((n) => n >= 0 && n * CHUNK < total);
    let found;
    try {
      found = await Promise.all(numbers.map((n) => this.tokens.chunk(layer, this.side, n)));
    } catch {
      return; // the next move asks again
    }
    if (this.wanted !== at || this.text !== name) return; // somewhere else by now
    this.#fill(numbers, found);
    this.#mark(at, first, last);
    if (performance.now() > this.theirs) this.#centre();
  }

  /** @param {number[]} numbers @param {Piece[][]} found */
  #fill(numbers, found) {
    for (const [n, node] of this.shown)
      if (!numbers.includes(n)) {
        node.remove();
        this.shown.delete(n);
      }
    numbers.forEach((n, i) => {
      if (this.shown.has(n)) return;
      const own = found[i].filter(([from]) => Math.floor(from / CHUNK) === n);
      const node = h("span", { class: "chunk", dataset: { n } },
        own.map(([from, , text]) =>
          h("span", { class: text.trim() ? null : "gap", dataset: { at: from } }, text),
        ),
      );
      const after = [...this.shown.entries()].filter(([m]) => m > n).sort((a, b) => a[0] - b[0])[0];
      this.body.insertBefore(node, after ? after[1] : null);
      this.shown.set(n, node);
    });
  }

  /** @param {number} at @param {number} first @param {number} last */
  #mark(at, first, last) {
    const near = last - first <= 2 * CHUNK;
    this.here?.classList.remove("here");
    this.here = null;
    for (const node of this.shown.values())
      for (const piece of pieces(node)) {
        const from = Number(piece.dataset.at);
        const inside = near && from >= first && from < last;
        if (piece.classList.contains("in") !== inside) piece.classList.toggle("in", inside);
        if (from <= at) this.here = piece;
      }
    this.here?.classList.add("here");
  }

  #centre() {
    if (!this.here) return;
    const top = this.here.offsetTop + this.here.offsetHeight / 2 - this.body.clientHeight / 2;
    if (Math.abs(top - this.body.scrollTop) < 2) return;
    this.mine = performance.now() + 120;
    this.body.scrollTop = top;
    this.placed = this.body.scrollTop;
  }

  #scrolled() {
    // The event of our own scrolling may come late: it is known by its place.
    if (performance.now() < this.mine || this.body.scrollTop === this.placed) return;
    this.theirs = performance.now() + 400;
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => {
      const middle = this.body.scrollTop + this.body.clientHeight / 2;
      const chunks = [...this.shown.entries()].sort((a, b) => a[0] - b[0]);
      for (const [, node] of chunks)
        for (const piece of pieces(node))
          if (piece.offsetTop + piece.offsetHeight >= middle)
            return this.onscroll(Number(piece.dataset.at));
    });
  }

  stop() {
    cancelAnimationFrame(this.frame);
    this.wanted = null;
  }
}

/** @param {HTMLElement} chunk */
function pieces(chunk) {
  return /** @type {HTMLCollectionOf<HTMLElement>} */ (chunk.children);
}
