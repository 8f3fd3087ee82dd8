// Pick the next id from logits, as glasshead/generation/sampling.py does:
//
//   repetition penalty -> temperature -> top-k -> top-p -> min-p -> softmax -> draw
//
// The greedy choice is the same as the command's. Draws use another generator of random numbers, so
// they differ.

import { logSumExp } from "./search.js";
import { largest } from "./predictions.js";

/**
 * @typedef {{
 *   temperature?: number, top_k?: number | null, top_p?: number, min_p?: number,
 *   repetition_penalty?: number,
 * }} Sampling
 */

/** Probabilities of the next id; null at temperature 0, where only the best counts.
 * @param {Float32Array} logits changed in place
 * @param {Sampling} how
 * @param {Iterable<number>} seen ids that occurred before
 */
export function probabilities(logits, how, seen) {
  const { temperature = 1, top_k: k = null, top_p: p = 1, min_p: least = 0 } = how;
  const penalty = how.repetition_penalty ?? 1;
  if (penalty !== 1)
    for (const id of new Set(seen))
      logits[id] = logits[id] > 0 ? logits[id] / penalty : logits[id] * penalty;
  if (!temperature) return null;
  const top = logits.reduce((most, x) => (x > most ? x : most), -Infinity);
  const x = Float64Array.from(logits, (one) => (one - top) / Math.max(temperature, 1e-38));
  if (k !== null && k < x.length) hide(x, x[largest(x, k)[k - 1]]);
  if (p < 1) {
    const ordered = Float64Array.from(x).sort().reverse(), lse = logSumExp(x);
    let mass = 0, last = 0;
    while (last < ordered.length && mass < p) mass += Math.exp(ordered[last++] - lse);
    hide(x, ordered[last - 1]);
  }
  if (least > 0) hide(x, Math.log(least)); // the largest is 0
  const lse = logSumExp(x);
  return x.map((one) => Math.exp(one - lse));
}

/** @param {Float64Array} x @param {number} least */
function hide(x, least) {
  for (let n = 0; n < x.length; n++) if (x[n] < least) x[n] = -Infinity;
}

/** @param {Float32Array} logits @param {Sampling} how @param {Iterable<number>} seen
 * @param {() => number} random
 */
export function choose(logits, how, seen, random) {
  const found = probabilities(logits, how, seen);
  if (!found) return largest(logits, 1)[0];
  let place = random(), last = 0;
  for (let id = 0; id < found.length; id++) {
    if (!found[id]) continue;
    last = id;
    place -= found[id];
    if (place < 0) break;
  }
  return last;
}

/** Random numbers in [0, 1), the same for the same seed: a counter, mixed (splitmix32).
 * @param {number} seed
 */
export function generator(seed) {
  let state = (seed ^ Math.floor(seed / 2 ** 32)) >>> 0;
  const next = () => {
    state = (state + 0x9e3779b9) >>> 0;
    let x = state ^ (state >>> 16);
    x = Math.imul(x, 0x21f0aaad);
    x = Math.imul(x ^ (x >>> 15), 0x735a2d97);
    return (x ^ (x >>> 15)) >>> 0;
  };
  return () => (next() * 2 ** 21 + (next() >>> 11)) / 2 ** 53;
}
