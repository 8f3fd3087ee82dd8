// What the Look view asks for, and which layers, words and head it shows, by the address.

import { counted } from "./look_text.js";

/** @import { Layer, LookAnswer, Word } from "./look_text.js" */

/**
 * Where the pinned words stand among rows and columns.
 * @typedef {{row: number | null, col: number | null}} Pin
 *
 * Heads by how they look from one word ("from"), or at it ("to"), strongest first. `most` is the
 * weight of the word at `at`.
 * @typedef {{
 *   layer: number, head: number, most: number, at: number, weights: (number | null)[],
 * }} RankedHead
 * @typedef {{
 *   word: number, of: number, besides_first: boolean, heads: RankedHead[],
 * }} Ranking
 * @typedef {"from" | "to"} Way
 *
 * @typedef {{rows: number, cols: number, values: Float32Array}} Thumb
 */

/** The requests of a text that was read.
 * @param {LookAnswer} data
 * @param {number} layer
 */
export function pathsOf(data, layer) {
  const seen = `/api/seen/${data.seen}`;
  return {
    /** @param {Way} way @param {number} at @param {string} how */
    rank: (way, at, how) =>
      `${seen}/${way}?layer=${layer}&${way === "from" ? "query" : "key"}=${at}&${how}`,
    /** @param {string} how */
    thumbs: (how) => `${seen}/thumbs?${how}`,
    /** @param {Layer} one @param {number} head @param {string} how */
    weights: (one, head, how) => `${seen}/weights?layer=${one.index}&head=${head}&${how}`,
  };
}

/** The layers with the same query text and key text as the chosen one. A translator starts with
 * cross-attention.
 * @param {LookAnswer} data
 * @param {Where} now
 */
export function layersLike(data, now) {
  const named = data.layers.find((layer) => String(layer.index) === now.layer);
  const first = named ?? data.layers.find((layer) => layer.kind === "cross") ?? data.layers[0];
  return data.layers.filter((layer) => layer.rows === first.rows && layer.cols === first.cols);
}

/** @param {Word[]} words @param {number} token */
function placeOf(words, token) {
  const i = words.findIndex((word) => word.start <= token && token < word.stop);
  return i < 0 ? null : i;
}

/**
 * @param {Where} now
 * @param {LookAnswer} data
 * @param {Layer} layer
 * @returns {Pin}
 */
export function pinned(now, data, layer) {
  const [rows, cols, same] = [data[layer.rows], data[layer.cols], layer.rows === layer.cols];
  const col = !same && now.key !== undefined ? placeOf(cols, Number(now.key)) : null;
  if (now.query === "none") return { row: null, col };
  if (now.query !== undefined) return { row: placeOf(rows, Number(now.query)), col };
  return { row: col === null ? data.pins[layer.rows] : null, col };
}

/** The head in the address; else the first ranked head whose strongest key is a word and not
 * punctuation; else the head with the lowest entropy.
 * @param {Where} now
 * @param {LookAnswer} data
 * @param {Layer[]} group
 * @param {Ranking | null} ranked
 * @param {Word[]} others the words that `ranked` has weights of
 * @returns {{layer: Layer, head: number}}
 */
export function headOf(now, data, group, ranked, others) {
  const layer = group.find((one) => String(one.index) === now.layer);
  const named = layer ? counted(now.head, layer.heads) : null;
  if (layer && named !== null) return { layer, head: named };
  for (const { layer: index, head, at } of ranked?.heads ?? []) {
    const own = data.layers.find((each) => each.index === index);
    if (!own || (layer && own !== layer)) continue;
    if (at > 0 && /[\p{L}\p{N}]/u.test(others[at].text)) return { layer: own, head };
  }
  const spread = data.statistics.relative_entropy?.values;
  const best = { layer: layer ?? group[group.length - 1], head: 0, value: Infinity };
  for (const one of layer ? [layer] : group)
    (spread?.[data.layers.indexOf(one)] ?? []).forEach((value, head) => {
      if (value !== null && value < best.value) Object.assign(best, { layer: one, head, value });
    });
  return { layer: best.layer, head: best.head };
}

/** Small maps of all heads, by "layer:head".
 * @param {Answer} answer
 * @param {LookAnswer} data
 */
export function thumbsOf({ buffer, headers }, data) {
  const values = new Float32Array(buffer);
  /** @type {Map<string, Thumb>} */
  const found = new Map();
  let at = 0;
  headers["x-shapes"].split(";").forEach((shape, n) => {
    const [heads, rows, cols] = shape.split(",").map(Number);
    for (let i = 0; i < heads; i++) {
      const map = values.subarray(at, at + rows * cols);
      found.set(`${data.layers[n].index}:${i}`, { rows, cols, values: map });
      at += rows * cols;
    }
  });
  return found;
}
