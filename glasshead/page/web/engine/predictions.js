// What a model predicts, with all of its attention and with some of it cut, as
// glasshead/page/predictions.py tells it.

import { InputError } from "./errors.js";
import { Reader, Translator } from "./models.js";
import { logSumExp, search } from "./search.js";
import { characters, decodeTokens, strip, visible } from "./text_words.js";
import { encodeText } from "./recording.js";

const TOP = 6; // words, of the most likely before the cut and of the most likely after it

/** @typedef {import("./host.js").Host} Host */
/** @typedef {import("./attention.js").Cut} Cut */

/** @param {Host} host @param {string} text @param {Cut} cut @param {number | null} at */
export function predict(host, text, cut, at) {
  const { model } = host;
  if (model instanceof Translator) return predictTranslation(host, model, text, cut, at);
  if (!model.head)
    throw new InputError(`${host.entry.name} makes no predictions`, {
      hint: "choose a GPT, a reader or a translator",
    });
  const ids = encodeText(host, text), C = model.config.d_model;
  const place = checked(at ?? ids.length - 1, ids.length);
  const probabilities = (/** @type {Cut | undefined} */ without) => {
    const x = model.features(ids, { beside: { cut: without } });
    return softmax(model.logits(x.subarray(place * C, (place + 1) * C), 1));
  };
  const before = probabilities(undefined), after = cut.empty ? null : probabilities(cut);
  checkEdges(cut);
  const kind = model instanceof Reader ? "answer" : "next";
  return { kind, at: place, words: likelyWords(host, before, after) };
}

/** @param {Host} host @param {Translator} model @param {string} text @param {Cut} cut
 * @param {number | null} at
 */
function predictTranslation(host, model, text, cut, at) {
  const { tokenizer } = host, { bos, eos } = host.specials;
  const source = encodeText(host, strip(text));
  const [found] = search(host, source);
  const said = [bos, ...found.ids, ...(found.ended ? [eos] : [])], V = model.config.vocab_size;
  const probabilities = (/** @type {Cut | undefined} */ without) => {
    const beside = { cut: without }, read = model.encode(source, beside);
    const x = model.features(said.slice(0, -1), { ...read, beside });
    const logits = model.logits(x, said.length - 1);
    return said.slice(1).map((_, t) => softmax(logits.subarray(t * V, (t + 1) * V)));
  };
  const before = probabilities(undefined), after = cut.empty ? null : probabilities(cut);
  checkEdges(cut);
  const changes = before.map((row, t) =>
    row.reduce((sum, p, id) => sum + Math.abs(p - (after ? after[t][id] : p)), 0),
  );
  const place = checked(at ?? changes.indexOf(Math.max(...changes)), before.length);
  let changed = null;
  if (!cut.empty) {
    cut.found.clear();
    const [other] = search(host, source, { cut });
    // The new translation may be too short for the edge.
    if (cut.edges.every((edge) => cut.found.has(edge)))
      changed = strip(tokenizer.decode(other.ids));
  }
  return {
    kind: "word", at: place,
    words: likelyWords(host, before[place], after && after[place]),
    translation: strip(tokenizer.decode(found.ids)),
    changed,
    prefix: strip(tokenizer.decode(said.slice(1, place + 1))),
  };
}

/** @param {Cut} cut */
function checkEdges(cut) {
  if (cut.edges.some((edge) => !cut.found.has(edge)))
    throw new InputError("an edge is outside the text", { hint: "positions count from 0" });
}

/** @param {number} place @param {number} size */
function checked(place, size) {
  if (place >= 0 && place < size) return place;
  throw new InputError(`there is no position ${place}`, {
    hint: `there are ${size}, counted from 0`,
  });
}

/** @param {Float32Array} logits */
export function softmax(logits) {
  const lse = logSumExp(logits);
  return Float64Array.from(logits, (x) => Math.exp(x - lse));
}

/** The k ids with the largest numbers, largest first.
 * @param {ArrayLike<number> & Iterable<number>} numbers
 * @param {number} k
 * @param {number} [size] of those that count
 */
export function largest(numbers, k, size = numbers.length) {
  /** @type {number[]} */
  const found = [];
  for (let id = 0; id < size; id++) {
    if (found.length === k && !(numbers[id] > numbers[found[k - 1]])) continue;
    let at = found.length;
    while (at && numbers[found[at - 1]] < numbers[id]) at--;
    found.splice(at, 0, id);
    if (found.length > k) found.pop();
  }
  return found;
}

/** @param {Host} host @param {Float64Array} before @param {Float64Array | null} after */
function likelyWords(host, before, after) {
  const ids = new Set([...largest(before, TOP), ...(after ? largest(after, TOP) : [])]);
  return [...ids]
    .filter((id) => id < host.tokenizer.size)
    .sort((a, b) => before[b] - before[a])
    .map((id) => ({
      id, text: visible(characters(decodeTokens(host.tokenizer, [id]))[0].text),
      before: before[id], after: after && after[id],
    }));
}
