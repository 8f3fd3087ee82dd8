// The answers of the Write view: a text token by token, and every choice.

import { InputError } from "./errors.js";
import { GPT } from "./models.js";
import { largest } from "./predictions.js";
import { choose, generator } from "./sampling.js";
import { logSumExp } from "./search.js";
import { characters, decodeTokens } from "./text_words.js";
import { StreamDecoder } from "./tokenizers.js";

const KEYS = 32; // the strongest keys of a head to send
const ROWS = 64; // rows of logits at a time

/** @typedef {import("./host.js").Host} Host */
/** @typedef {() => Promise<void>} Pause */

/** @param {Host} host @returns {GPT} */
function gpt({ model, entry }) {
  if (model instanceof GPT) return model;
  throw new InputError(`${entry.name} does not generate text`, { hint: "choose a GPT" });
}

/** @param {Host} host @param {number[]} ids */
function check(host, ids) {
  const most = Math.max(...ids);
  if (most >= host.known)
    throw new InputError(`id ${most} is not in the vocabulary`, {
      hint: `its ids end at ${host.known - 1}`,
    });
}

/** @param {Host} host @param {number} id @param {number} logprob */
function alternative({ tokenizer }, id, logprob) {
  const [{ text }] = characters(decodeTokens(tokenizer, [id]));
  const special = tokenizer.names.has(id) ? { special: true } : {};
  return { id, text, logprob: finite(logprob), ...special };
}

/** @param {number} x */
const finite = (x) => (Number.isFinite(x) ? x : null);

/** The likeliest next ids.
 * @param {Host} host
 * @param {Float32Array} logits
 * @param {number} k
 */
function likely(host, logits, k) {
  const lse = logSumExp(logits);
  return largest(logits, k, host.known).map((id) => alternative(host, id, logits[id] - lse));
}

/** Tokens of a text, their probabilities, and likely next ones.
 * @param {Host} host
 * @param {{text?: string | null, ids?: number[] | null, alternatives?: number}} ask
 * @param {Pause} pause
 */
export async function read(host, { text, ids: given, alternatives: k = 8 }, pause) {
  const model = gpt(host), { tokenizer } = host, V = model.config.vocab_size;
  const encoded = given ?? tokenizer.prompt(text ?? "");
  const ids = encoded.length ? encoded : host.told.start_ids;
  check(host, ids);
  const start = Math.max(0, ids.length - model.config.max_len), mine = ids.slice(start);
  const x = model.features(mine), C = model.config.d_model;
  /** @type {{own: number | null, others: ReturnType<typeof likely>}[]} */
  const found = [];
  for (let at = 0; at < mine.length; at += ROWS) {
    await pause();
    const n = Math.min(ROWS, mine.length - at);
    const logits = model.logits(x.subarray(at * C, (at + n) * C), n);
    for (let r = 0; r < n; r++) {
      const row = logits.subarray(r * V, (r + 1) * V), next = mine[at + r + 1];
      const own = next === undefined ? null : finite(row[next] - logSumExp(row));
      found.push({ own, others: likely(host, row, k) });
    }
  }
  const tokens = describeTokens(host, ids);
  const known = tokens.map((token, n) => {
    const before = found[n - 1 - start];
    return n > start && before
      ? { ...token, logprob: before.own, alternatives: before.others }
      : token;
  });
  return { tokens: known, next: found[found.length - 1].others, from: start };
}

/** What each id adds to the text: nothing if it does not complete a character.
 * @param {Host} host
 * @param {number[]} ids
 */
function describeTokens({ tokenizer }, ids) {
  const stream = new StreamDecoder(tokenizer);
  /** @type {{id: number, text: string, special?: boolean}[]} */
  const tokens = ids.map((id) => {
    const name = tokenizer.names.get(id);
    return name ? { id, text: name, special: true } : { id, text: stream.push(id) };
  });
  if (tokens.length) tokens[tokens.length - 1].text += stream.flush();
  return tokens;
}

/** What every head looked at to generate token `at`.
 * @param {Host} host
 * @param {{ids: number[], at: number}} ask
 */
export function lookAtToken(host, { ids, at }) {
  const model = gpt(host);
  check(host, ids);
  if (at < 1 || at > ids.length)
    throw new InputError(`at (${at}) is beyond the text`, {
      hint: `use a number from 1 to ${ids.length}`,
    });
  const start = Math.max(0, at - model.config.max_len);
  /** @type {Map<number, number[][][]>} */
  const heads = new Map();
  const record = (/** @type {import("./attention.js").Call} */ call) => {
    const rows = Array.from({ length: call.layer.H }, (_, h) => {
      const weights = call.row(h, call.T - 1);
      return largest(weights, Math.min(KEYS, call.S)).map((key) => [start + key, weights[key]]);
    });
    heads.set(call.layer.index, rows);
  };
  model.features(ids.slice(start, at), { beside: { record } });
  const layers = model.layers.map(({ index, name }) => ({ index, name, heads: heads.get(index) }));
  return { at, from: start, layers };
}

/** Write a text; `emit` gets an event for each token, then how it ended.
 * @param {Host} host
 * @param {import("./sampling.js").Sampling & {
 *   ids: number[], max_tokens?: number, seed?: number, alternatives?: number,
 * }} ask
 * @param {Pause} pause
 * @param {(event: string, data: unknown) => void} emit
 */
export async function write(host, ask, pause, emit) {
  const model = gpt(host), { max_tokens: most = 64, alternatives: k = 8, seed = 0 } = ask;
  check(host, ask.ids);
  const ends = new Set(host.told.end_ids), random = generator(seed);
  const stream = new StreamDecoder(host.tokenizer), C = model.config.d_model;
  const ids = [...ask.ids], longest = model.config.max_len;
  let caches = model.newCaches(), unread = ids.slice(-longest), length = 0;
  for (let n = 0; n < most; n++) {
    if (length + unread.length > longest) {
      // It is read again from its last half, and grows from there.
      unread = ids.slice(-Math.max(1, Math.floor(longest / 2)));
      [caches, length] = [model.newCaches(), 0];
    }
    const x = model.features(unread, { caches });
    length += unread.length;
    const logits = model.logits(x.subarray(x.length - C), 1), lse = logSumExp(logits);
    const others = likely(host, logits, k), own = logits.slice();
    const id = choose(logits, ask, ids, random);
    if (ends.has(id)) return emit("end", { finish: "stop", text: stream.flush() });
    ids.push(id);
    unread = [id];
    emit("token", {
      id, text: stream.push(id), logprob: finite(own[id] - lse), alternatives: others,
    });
    await pause();
  }
  emit("end", { finish: "length", text: stream.flush() });
}
