// The answers of the Atlas: the whole map of a head, page by page, at any distance.

import { InputError } from "./errors.js";
import { inBoth, jsonNumbers } from "./look_answers.js";
import { largest } from "./predictions.js";
import { characters } from "./text_words.js";

const PAGE = 128; // cells on a side
const MAX_TOKENS = 4096; // of one answer
const AROUND = 12; // tokens to show on either side of one
const LONGEST = 16; // tokens that one character can be cut into, and more

/** @typedef {import("./recording.js").Recording} Recording */

/** @param {number} T @param {number} S */
const levels = (T, S) => Math.max(0, Math.ceil(Math.log2(Math.max(1, T, S) / PAGE))) + 1;

/** @param {Recording} recording */
export function describeAtlas(recording) {
  const { layers, host, measured } = recording;
  const names = [...new Set(measured.flatMap(({ all }) => Object.keys(all)))];
  const statistics = names.map((name) => [
    name,
    {
      explain: inBoth(host.told.wording.statistics, name),
      values: measured.map(({ all }) => (all[name] ? jsonNumbers(all[name]) : null)),
    },
  ]);
  return {
    name: host.entry.name, page: PAGE,
    layers: layers.map(({ index, name, module, part, kind, heads, T, S }) => ({
      index, name, module, part, kind, heads, T, S, levels: levels(T, S), exact: true, finest: 0,
      causal: recording.call(index).rules.causal,
    })),
    statistics: Object.fromEntries(statistics),
    tokens: Math.max(0, ...layers.map(({ T, S }) => Math.max(T, S))),
    texts: recording.source ? 2 : 1,
  };
}

/** A page of at most 128 x 128 cells: the means row by row, then the maxima.
 * @param {Recording} recording
 * @param {{layer: number, head: number, level: number, row: number, col: number}} where
 * @param {boolean} hideSink
 */
export function cells(recording, { layer, head, level, row, col }, hideSink) {
  const { T, S } = recording.layer(layer), side = 2 ** level, wide = PAGE * side;
  if (level >= levels(T, S) || row * wide >= T || col * wide >= S)
    throw new InputError(`level ${level} has no page ${row}, ${col}`, {
      hint: `there are ${levels(T, S)} levels, and the map is ${T} x ${S}`,
    });
  const map = recording.map(layer, head);
  const [top, left] = [row * wide, col * wide];
  const [bottom, right] = [Math.min(T, top + wide), Math.min(S, left + wide)];
  const high = Math.ceil((bottom - top) / side), across = Math.ceil((right - left) / side);
  const sums = new Float64Array(high * across), most = new Float32Array(high * across);
  for (let i = top; i < bottom; i++)
    for (let j = left; j < right; j++) {
      const weight = hideSink && !j ? 0 : map[i * S + j];
      const cell = Math.floor((i - top) / side) * across + Math.floor((j - left) / side);
      sums[cell] += weight;
      if (weight > most[cell]) most[cell] = weight;
    }
  const found = new Float32Array(2 * sums.length);
  sums.forEach((sum, n) => {
    const rows = Math.min(side, bottom - top - Math.floor(n / across) * side);
    found[n] = sum / (rows * Math.min(side, right - left - (n % across) * side));
  });
  found.set(most, sums.length);
  return { data: found, shape: `${high},${across}` };
}

/** The strongest keys of a query with the text around them, and the weight of `key`.
 * @param {Recording} recording
 * @param {{layer: number, head: number, query: number, key: number | null, top: number}} where
 */
export function exactRow(recording, { layer, head, query, key, top }) {
  const { T, S } = recording.layer(layer);
  if (query >= T || (key ?? 0) >= S)
    throw new InputError(`query ${query} or key ${key} does not exist`, {
      hint: `there are ${T} queries and ${S} keys, from 0 on`,
    });
  const weights = recording.map(layer, head).subarray(query * S, (query + 1) * S);
  const [rows, cols] = recording.texts(layer);
  return {
    query, text: surroundings(rows, query), key,
    weight: key === null ? null : weights[key],
    keys: largest(weights, Math.min(top, S)).map((at) => ({
      key: at, weight: weights[at], text: surroundings(cols, at),
    })),
  };
}

/** Pieces of text, each [first token, one past its last, text].
 * @param {Recording} recording
 * @param {number | null} layer
 * @param {"rows" | "cols"} side
 * @param {number} start
 * @param {number} stop
 */
export function tokenPieces(recording, layer, side, start, stop) {
  const index = layer ?? recording.layers[0].index, { T, S } = recording.layer(index);
  const tokens = recording.texts(index)[side === "rows" ? 0 : 1];
  const found = pieces(tokens, start, Math.min(stop, tokens.length, start + MAX_TOKENS));
  return {
    total: side === "rows" ? T : S,
    pieces: found.map((word) => [word.start, word.stop, word.text]),
  };
}

/** @param {import("./text_words.js").Token[]} tokens @param {number} start @param {number} stop */
function pieces(tokens, start, stop) {
  const first = Math.max(0, start - LONGEST);
  return characters(tokens.slice(first, stop + LONGEST))
    .map((word) => ({ ...word, start: word.start + first, stop: word.stop + first }))
    .filter((word) => word.start < stop && word.stop > start);
}

/** The text before a token, its own, and the text after it.
 * @param {import("./text_words.js").Token[]} tokens
 * @param {number} place
 */
function surroundings(tokens, place) {
  const parts = ["", "", ""];
  for (const word of pieces(tokens, place - AROUND, place + AROUND + 1))
    parts[Number(word.stop > place) + Number(word.start > place)] += word.text;
  return parts;
}
