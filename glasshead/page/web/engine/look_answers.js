// The answers of the Look view, as glasshead/page/look_answers.py makes them.
//
// Words, queries and keys are named by the position of their first token; NaN (null in JSON) stands
// where there is nothing to see.

import { InputError } from "./errors.js";
import { countVisible, standoutHeads } from "./statistics.js";
import { merge, strip, visible } from "./text_words.js";

const MAX_WORDS = 400; // shown one by one; a longer text is for the Atlas
const THUMBNAIL = 40; // cells a side of a small map, at most
const RANKED = 64; // heads of a ranking

/**
 * @typedef {import("./recording.js").Recording} Recording
 * @typedef {import("./text_words.js").Word} Word
 * @typedef {{tokens: boolean, hideSink: boolean, ratio: boolean}} Shown
 * @typedef {{values: Float32Array, rows: number, cols: number}} WordMap
 */

/** @param {Recording} recording @param {boolean} tokens */
export function describeLook(recording, tokens) {
  const { layers, host } = recording;
  const about = { translation: recording.translation, layers };
  /** @type {Record<string, Word[]>} */
  const texts = {};
  for (const { index, rows, cols } of layers)
    [texts[rows], texts[cols]] = recording.sides(index, tokens);
  if (Object.values(texts).some((found) => found.length > MAX_WORDS))
    return { ...about, long: true, words: [] };
  const each = (/** @type {(found: Word[]) => unknown} */ make) =>
    Object.fromEntries(Object.entries(texts).map(([name, found]) => [name, make(found)]));
  return {
    ...about, long: false, words: [],
    ...each((found) => found.map((word) => ({ ...word, text: visible(word.text) }))),
    pins: each((found) => firstPin(found, host.entry.kind, host.told.wording.pronouns)),
    statistics: describeStatistics(recording),
    telling: standoutHeads(recording.measured).map((one) => ({
      role: one.role, label: inBoth(host.told.wording.roles, one.role), layer: one.layer,
      head: one.head, value: one.value, uniform: one.uniform,
    })),
  };
}

/** @param {Recording} recording */
export function describeStatistics({ measured, host }) {
  const names = [...new Set(measured.flatMap(({ means }) => Object.keys(means)))];
  return Object.fromEntries(
    names.map((name) => [
      name,
      {
        explain: inBoth(host.told.wording.statistics, name),
        values: measured.map(({ means }) => (means[name] ? jsonNumbers(means[name]) : null)),
      },
    ]),
  );
}

/** @param {Record<string, Record<string, string>>} wording @param {string} name */
export const inBoth = (wording, name) =>
  Object.fromEntries(Object.entries(wording).map(([lang, texts]) => [lang, texts[name] ?? name]));

/** The word that is looked at first: the last pronoun, or without one the last word.
 * @param {Word[]} found
 * @param {string} kind
 * @param {string[]} pronouns
 */
function firstPin(found, kind, pronouns) {
  if (kind === "gpt") return found.length ? found.length - 1 : null;
  const names = found.map(({ text }) => strip(text).toLowerCase());
  const last = (/** @type {(name: string) => boolean} */ is) => names.findLastIndex(is);
  const places = [
    last((name) => pronouns.includes(name)), last((name) => /[\p{L}\p{N}]/u.test(name)),
  ];
  return places.find((place) => place >= 0) ?? null;
}

/** Six decimals; null for NaN and infinity.
 * @param {Iterable<number>} values
 */
export const jsonNumbers = (values) =>
  Array.from(values, (x) => (Number.isFinite(x) ? Math.round(x * 1e6) / 1e6 : null));

/** One head's map from words to words.
 * @param {Recording} recording
 * @param {number} layer
 * @param {number} head
 * @param {Shown} shown
 * @returns {WordMap}
 */
export function wordMap(recording, layer, head, shown) {
  const [rows, cols] = recording.sides(layer, shown.tokens);
  const longest = Math.max(rows.length, cols.length);
  if (longest > MAX_WORDS)
    throw new InputError(`the text has ${longest} words, more than ${MAX_WORDS} at once`, {
      hint: "the Atlas shows texts of any length",
    });
  const { T, S } = recording.call(layer);
  let values = shorten(merge(recording.map(layer, head), T, S, rows, cols), cols.length, shown);
  if (shown.ratio) {
    const equal = equalWeights(recording, layer, head);
    const expected = shorten(merge(equal, T, S, rows, cols), cols.length, shown);
    values = values.map((x, n) => (expected[n] > 0 ? x / expected[n] : NaN));
    // The column of the first word stays empty where it is hidden.
  }
  return { values, rows: rows.length, cols: cols.length };
}

/** Without the first word, each row sums to 1 again; its column has no numbers.
 * @param {Float32Array} values
 * @param {number} wide
 * @param {Shown} shown
 */
function shorten(values, wide, { hideSink }) {
  if (!hideSink) return values;
  for (let at = 0; at < values.length; at += wide) {
    let total = 0;
    for (let c = 1; c < wide; c++) total += values[at + c];
    for (let c = 1; c < wide; c++) values[at + c] = total > 0 ? values[at + c] / total : 0;
    values[at] = NaN;
  }
  return values;
}

/** The same weight on every key that the mask lets a query see.
 * @param {Recording} recording
 * @param {number} layer
 * @param {number} head
 */
function equalWeights(recording, layer, head) {
  const call = recording.call(layer), { T, S } = call;
  const found = new Float32Array(T * S), { window, edges } = call.rules;
  for (let i = 0; i < T; i++) {
    const share = 1 / Math.max(1, countVisible(call, i, head)), place = i + S - T;
    for (let j = 0; j < call.reach(i); j++) {
      if (window && Math.abs(place - j) >= window) continue;
      const cut = edges.some(
        (edge) =>
          (edge.head === null || edge.head === head) && i >= edge.query && i < edge.query_stop &&
          j >= edge.key && j < edge.key_stop,
      );
      if (!cut) found[i * S + j] = share;
    }
  }
  return found;
}

/** Small maps of all heads.
 * @param {Recording} recording
 * @param {Shown} shown
 * @param {() => Promise<void>} pause
 */
export async function thumbnails(recording, shown, pause) {
  const maps = [], shapes = [];
  for (const { index, heads } of recording.layers) {
    let side = [0, 0];
    for (let head = 0; head < heads; head++) {
      const small = shrink(wordMap(recording, index, head, shown));
      side = [small.rows, small.cols];
      maps.push(small.values);
      await pause();
    }
    shapes.push([heads, ...side].join(","));
  }
  const all = new Float32Array(maps.reduce((n, map) => n + map.length, 0));
  let at = 0;
  for (const map of maps) {
    all.set(map, at);
    at += map.length;
  }
  return { data: all, shapes: shapes.join(";") };
}

/** At most THUMBNAIL cells a side, each with the largest of its numbers.
 * @param {WordMap} map
 * @returns {WordMap}
 */
function shrink({ values, rows, cols }) {
  const high = Math.min(rows, THUMBNAIL), wide = Math.min(cols, THUMBNAIL);
  if (high === rows && wide === cols) return { values, rows, cols };
  const small = new Float32Array(high * wide).fill(-1);
  /** @param {number} n @param {number} of @param {number} size @returns {[number, number]} */
  const span = (n, of, size) => [Math.floor((n * size) / of), Math.ceil(((n + 1) * size) / of)];
  for (let r = 0; r < high; r++)
    for (let c = 0; c < wide; c++) {
      const [top, bottom] = span(r, high, rows), [left, right] = span(c, wide, cols);
      let most = -1;
      for (let i = top; i < bottom; i++)
        for (let j = left; j < right; j++)
          if (values[i * cols + j] > most) most = values[i * cols + j];
      small[r * wide + c] = most < 0 ? NaN : most;
    }
  return { values: small, rows: high, cols: wide };
}

/** How each head looks from the word of a token, or how each word looks at it.
 * @param {Recording} recording
 * @param {number} layer
 * @param {number} token
 * @param {"from" | "to"} way
 * @param {Shown} shown
 */
export function rankHeads(recording, layer, token, way, shown) {
  const mine = recording.layer(layer);
  const found = recording.sides(layer, shown.tokens)[way === "from" ? 0 : 1];
  const word = found.findIndex(({ start, stop }) => start <= token && token < stop);
  if (word < 0)
    throw new InputError(`there is no token ${token}`, {
      hint: `there are ${found.at(-1)?.stop ?? 0}, from 0 on`,
    });
  const same = recording.layers.filter((one) => one.rows === mine.rows && one.cols === mine.cols);
  const heads = same.flatMap(({ index, heads: n }) =>
    Array.from({ length: n }, (_, head) => {
      const { values, rows, cols } = wordMap(recording, index, head, shown);
      const weights =
        way === "from"
          ? values.subarray(word * cols, (word + 1) * cols)
          : Float32Array.from({ length: rows }, (__, r) => values[r * cols + word]);
      // How much a word looks at itself says little.
      const others = Float32Array.from(weights, (weight, place) =>
        mine.rows === mine.cols && place === word ? 0 : weight || 0);
      return { layer: index, head, weights, others };
    }),
  );
  // Heads with nothing to look at rest on the first word.
  const besides = way === "from" && recording.call(layer).rules.causal &&
    heads.some(({ others }) => others.subarray(1).some((weight) => weight > 0));
  const ranked = heads.map(({ layer: index, head, weights, others }) => {
    if (besides) others[0] = 0;
    const most = Math.max(...others);
    return { layer: index, head, most, at: others.indexOf(most), weights: jsonNumbers(weights) };
  });
  ranked.sort((a, b) => b.most - a.most);
  return { word, of: heads.length, besides_first: besides, heads: ranked.slice(0, RANKED) };
}
