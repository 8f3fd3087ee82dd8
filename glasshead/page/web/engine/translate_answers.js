// The answers of the Translate view: the best translations, and their cross-attention.

import { InputError } from "./errors.js";
import { Translator } from "./models.js";
import { search } from "./search.js";
import { decodeTokens, join, merge, strip, words } from "./text_words.js";

/** @typedef {import("./host.js").Host} Host */

/** @param {Host} host @returns {Translator} */
function translator({ model, entry }) {
  if (model instanceof Translator) return model;
  throw new InputError(`${entry.name} is not a translator`, { hint: "choose one" });
}

/** The last layer but one, where cross-attention follows words best.
 * @param {Translator} model
 */
const usualLayer = (model) => Math.max(0, model.decoder.blocks.length - 2);

/** A text that is too long is cut at the ends of sentences.
 * @param {Host} host
 * @param {string} text
 */
function parts(host, text) {
  const most = host.entry.max_len ?? Infinity;
  const encode = (/** @type {string} */ part) => host.tokenizer.prompt(strip(part));
  const whole = encode(text);
  if (whole.length <= most) return whole.length ? [whole] : [];
  const found = (text.match(/.+?(?:[。！？…!?]+|\.(?=\s|$)|$)\s*/gsu) ?? []).map(encode);
  const long = found.find((ids) => ids.length > most);
  if (long)
    throw new InputError(`a sentence has ${long.length} tokens, more than ${most}`, {
      hint: "cut it into shorter sentences",
    });
  return found.filter((ids) => ids.length);
}

/** @param {Host} host @param {{text: string, beam?: number, alpha?: number, n_best?: number}} ask
 * @param {() => Promise<void>} pause
 */
export async function translate(host, { text, beam = 4, alpha = 0.6, n_best: n = 4 }, pause) {
  const model = translator(host), found = [];
  for (const source of parts(host, text)) {
    await pause();
    const best = search(host, source, { beam, alpha, n: n === 1 || beam === 1 ? 1 : beam });
    /** @type {Map<string, object>} */
    const distinct = new Map();
    for (const { ids, ...one } of best) {
      const said = strip(host.tokenizer.decode(ids));
      if (!distinct.has(said)) distinct.set(said, { text: said, ...one, target: ids });
    }
    found.push({
      source, words: words(decodeTokens(host.tokenizer, source)).map((word) => word.text),
      candidates: [...distinct.values()].slice(0, Math.min(n, beam)),
    });
  }
  return {
    text: join(found.map(({ candidates }) => /** @type {any} */ (candidates[0]).text)),
    parts: found,
    layers: model.decoder.blocks.length,
    heads: model.config.n_heads,
    usual_layer: usualLayer(model),
  };
}

/** Cross-attention of every head of a layer, over words. A word is predicted at the position before
 * it, so it gets that position's weights.
 * @param {Host} host
 * @param {{source: number[], target: number[], layer?: number | null}} ask
 */
export function align(host, { source, target, layer: wanted }) {
  const model = translator(host), layer = wanted ?? usualLayer(model);
  const cross = model.decoder.blocks[layer]?.cross;
  if (!cross)
    throw new InputError(`layer (${layer}) does not exist`, {
      hint: `the decoder has ${model.decoder.blocks.length} layers, counted from 0`,
    });
  const rows = words(decodeTokens(host.tokenizer, target));
  const cols = words(decodeTokens(host.tokenizer, source));
  const weights = new Float32Array(cross.H * rows.length * cols.length);
  const record = (/** @type {import("./attention.js").Call} */ call) => {
    if (call.layer !== cross) return;
    for (let h = 0; h < cross.H; h++)
      weights.set(
        merge(call.map(h), call.T, call.S, rows, cols), h * rows.length * cols.length,
      );
  };
  const ids = [host.specials.bos, ...target.slice(0, -1)];
  model.features(ids, { ...model.encode(source), beside: { record } });
  const bytes = new Uint8Array(weights.buffer);
  let letters = "";
  for (let at = 0; at < bytes.length; at += 0x8000)
    letters += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return {
    layer, source: cols.map((word) => word.text), target: rows.map((word) => word.text),
    shape: [cross.H, rows.length, cols.length], weights: btoa(letters),
  };
}

/** Stories for a model of the embedded world, some of those that the file has.
 * @param {Host} host
 * @param {number} start
 * @param {number} n
 */
export function examples({ told }, start, n) {
  const { langs, pairs } = told.stories;
  if (!langs || !pairs.length) return { langs: null, pairs: [], next: 0 };
  const from = start % pairs.length, found = pairs.slice(from, from + n);
  return { langs, pairs: found, next: from + found.length };
}
