// The answer of the Steps view: all inputs and outputs of one query's attention.

import { InputError } from "./errors.js";
import { singleTokens, visible } from "./text_words.js";

const MAX_KEYS = 512; // a longer row is for the Atlas

/** @param {import("./recording.js").Recording} recording @param {number} layer
 * @param {number} head @param {number} query
 */
export function describeSteps(recording, layer, head, query) {
  const { T, S, heads } = recording.layer(layer), call = recording.call(layer);
  for (const [what, value, size] of /** @type {[string, number, number][]} */ ([
    ["head", head, heads], ["query", query, T],
  ]))
    if (!(value < size))
      throw new InputError(`${what} ${value} does not exist`, {
        hint: `use a number from 0 to ${size - 1}`,
      });
  if (S > MAX_KEYS)
    throw new InputError(`the text has ${S} tokens, but the Steps view shows ${MAX_KEYS} at most`, {
      hint: "use a shorter text",
    });
  const { D, softcap } = call.layer, from = call.keysAt(head);
  const mine = [...call.q.subarray((head * T + query) * D, (head * T + query + 1) * D)];
  const rows = (/** @type {Float32Array} */ x) =>
    Array.from({ length: S }, (_, s) => [...x.subarray(from + s * D, from + (s + 1) * D)]);
  const keys = rows(call.k), values = rows(call.v);
  const weights = [...call.row(head, query)], place = query + S - T;
  const { causal, window, edges } = call.rules, slope = call.slopes?.[head];
  const hidden = (/** @type {number} */ j) =>
    (causal && j > place) || (window && Math.abs(place - j) >= window) ||
    edges.some(
      (edge) =>
        (edge.head === null || edge.head === head) && query >= edge.query &&
        query < edge.query_stop && j >= edge.key && j < edge.key_stop,
    );
  const any = (causal && T > 1) || window || edges.length;
  const [queries, others] = recording.texts(layer);
  const texts = (/** @type {import("./text_words.js").Token[]} */ tokens) =>
    singleTokens(tokens).map(({ text }) => visible(text));
  return {
    layer, head, query, queries: texts(queries), keys: texts(others), d: D, scale: call.scale,
    softcap: softcap ?? null, causal: Boolean(causal && T > 1),
    products: keys.map((key) => key.reduce((sum, x, d) => sum + x * mine[d], 0)),
    added: slope === undefined ? null : keys.map((_, j) => -slope * Math.abs(place - j)),
    allowed: any ? keys.map((_, j) => !hidden(j)) : null,
    weights, q: mine, k: keys, v: values,
    context: mine.map((_, d) => values.reduce((sum, v, s) => sum + weights[s] * v[d], 0)),
  };
}
