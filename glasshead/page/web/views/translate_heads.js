// Which head of a translation to show, and its weights.

import { deserves } from "./look_strips.js";
import { pronoun } from "./translate_stories.js";

/**
 * What one layer looked at for one candidate: weights (H × T × S), words of both texts.
 * @typedef {object} LayerLook
 * @property {string[]} source
 * @property {string[]} target
 * @property {[H: number, T: number, S: number]} shape
 * @property {Float32Array} weights
 */

/** @import { WeightMap } from "./translate_draw.js" */
/** @import { KnownStory } from "./translate_stories.js" */

/** A place among n, or null.
 * @param {string | undefined} value
 * @param {number} n
 */
export function index(value, n) {
  const number = Number(value ?? NaN);
  return Number.isInteger(number) && number >= 0 && number < n ? number : null;
}

/** Of a story: the head in which the pronoun looks most at what it stands for. `shows` is whether
 * it looks there much.
 * @param {LayerLook[]} looks
 * @param {KnownStory | null} story
 */
export function tellingHead(looks, story) {
  const { source, target, shape } = looks[0];
  const row = story ? pronoun(target, story) : null;
  if (!story || row === null || source[story.one.referent] !== story.one.stands_for) return null;
  const [H, T, S] = shape;
  const all = looks.flatMap(({ weights }, layer) =>
    Array.from({ length: H }, (_, head) => ({
      layer, head, weight: weights[(head * T + row) * S + story.one.referent],
    })),
  );
  const best = all.reduce((a, b) => (b.weight > a.weight ? b : a));
  return {
    ...best, word: target[row], referent: story.one.stands_for, shows: deserves(best.weight, S),
  };
}

/** The head whose words look at one word most of all, on average.
 * @param {LayerLook} look
 */
export function focusedHead({ shape: [H, T, S], weights }) {
  const focus = Array.from({ length: H }, (_, n) => {
    let sum = 0;
    for (let row = n * T; row < (n + 1) * T; row++)
      sum += weights.subarray(row * S, (row + 1) * S).reduce((a, b) => Math.max(a, b), 0);
    return sum;
  });
  return focus.indexOf(Math.max(...focus));
}

/** The weights of one head, or the mean of all.
 * @param {LayerLook} look
 * @param {number | "mean"} head
 * @returns {WeightMap}
 */
export function mapOf({ shape: [H, T, S], source, target, weights }, head) {
  const size = T * S;
  if (head !== "mean")
    return { source, target, weights: weights.subarray(head * size, (head + 1) * size) };
  const mean = new Float32Array(size);
  for (let i = 0; i < H * size; i++) mean[i % size] += weights[i] / H;
  return { source, target, weights: mean };
}
