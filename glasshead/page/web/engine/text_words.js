// Tokens joined to characters and words, as glasshead/observe/words.py joins them.
//
//   characters(["a", Uint8Array.of(0xe7), …])    whole characters; others as ⟨E5 B0⟩
//   words(tokens)                                the words of a text: {text, start, stop}
//   merge(weights, T, S, rows, cols)             weights between tokens -> between words
//
// A token is its text, or its bytes if they are no valid text.

import { joined } from "./tokenizers.js";

/** @typedef {{text: string, start: number, stop: number}} Word the tokens from start to stop */
/** @typedef {string | Uint8Array} Token */

const STRICT = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const UTF8 = new TextEncoder();
// What Python calls white space.
const SPACE =
  "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const ONLY_SPACE = new RegExp(`^[${SPACE}]+$`, "u");
const ENDS = new RegExp(`^[${SPACE}]+|[${SPACE}]+$`, "gu");
// Letters, digits and marks of scripts without spaces between words: East Asian wide, not Hangul.
const WIDE = [
  [0x3005, 0x302d], [0x3031, 0x312f], [0x3192, 0x3229], [0x3251, 0xa48c], [0xf900, 0xfad9],
  [0xff10, 0xff5a], [0x16fe0, 0x1b2ff], [0x20000, 0x3134a],
];
const SIGNS = [[0x3000, 0x303e], [0xfe30, 0xfe6f], [0xff01, 0xff60], [0xffe0, 0xffe6]];

/** @param {Uint8Array} bytes @returns {Token} */
function asToken(bytes) {
  try {
    return STRICT.decode(bytes);
  } catch {
    return bytes;
  }
}

/** Text or bytes of each id; the name of a special token.
 * @param {import("./tokenizers.js").Tokenizer} tokenizer
 * @param {Iterable<number>} ids
 * @returns {Token[]}
 */
export const decodeTokens = (tokenizer, ids) =>
  [...ids].map((id) => tokenizer.names.get(id) ?? asToken(tokenizer.token(id)));

/** Whether bytes are text ("whole"), the beginning of one ("begun"), or neither.
 * @param {Uint8Array} bytes
 */
function state(bytes) {
  if (typeof asToken(bytes) === "string") return "whole";
  // Only the last character may lack bytes.
  for (let cut = 1; cut <= 3 && cut <= bytes.length; cut++) {
    const lead = bytes[bytes.length - cut], rest = bytes.subarray(0, bytes.length - cut);
    const size = lead >= 0xf0 && lead < 0xf5 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc2 ? 2 : 1;
    if (lead >= 0xf5 || size <= cut || typeof asToken(rest) !== "string") continue;
    // Some second bytes follow some first ones never.
    const second = cut > 1 ? bytes[bytes.length - cut + 1] : null;
    const later = cut > 2 ? bytes[bytes.length - 1] : 0x80;
    const [low, high] =
      lead === 0xe0 ? [0xa0, 0xbf] : lead === 0xed ? [0x80, 0x9f]
        : lead === 0xf0 ? [0x90, 0xbf] : lead === 0xf4 ? [0x80, 0x8f] : [0x80, 0xbf];
    const fits = second === null || (second >= low && second <= high);
    if (fits && later >= 0x80 && later <= 0xbf) return "begun";
  }
  return "wrong";
}

/** Bytes as text; those that are none as ⟨E5 B0⟩, neighbours together.
 * @param {Uint8Array} bytes
 */
function show(bytes) {
  let text = "", bad = /** @type {number[]} */ ([]), at = 0;
  const flush = () => {
    if (bad.length) text += `⟨${hex(bad)}⟩`;
    bad = [];
  };
  while (at < bytes.length) {
    const size = [1, 2, 3, 4].find(
      (n) => at + n <= bytes.length && typeof asToken(bytes.subarray(at, at + n)) === "string",
    );
    if (size) {
      flush();
      text += STRICT.decode(bytes.subarray(at, at + size));
    } else {
      // A new character begins a new group.
      if (bad.length && (bytes[at] & 0xc0) !== 0x80) flush();
      bad.push(bytes[at]);
    }
    at += size ?? 1;
  }
  flush();
  return text;
}

/** @param {Iterable<number>} bytes */
const hex = (bytes) =>
  Array.from(bytes, (byte) => byte.toString(16).toUpperCase().padStart(2, "0")).join(" ");

/** @param {Token[]} tokens @returns {Word[]} */
export function characters(tokens) {
  /** @type {Word[]} */
  const found = [];
  let waiting = new Uint8Array(0), start = 0;
  tokens.forEach((token, place) => {
    const piece = typeof token === "string" ? UTF8.encode(token) : token;
    if (waiting.length && state(joined([waiting, piece])) === "wrong") {
      found.push({ text: show(waiting), start, stop: place });
      [waiting, start] = [new Uint8Array(0), place];
    }
    waiting = joined([waiting, piece]);
    if (state(waiting) !== "begun") {
      found.push({ text: show(waiting), start, stop: place + 1 });
      [waiting, start] = [new Uint8Array(0), place + 1];
    }
  });
  if (waiting.length) found.push({ text: show(waiting), start, stop: tokens.length });
  return found;
}

/** @param {Token[]} tokens @returns {Word[]} */
export function words(tokens) {
  /** @type {Word[]} */
  const found = [];
  const pieces = characters(tokens);
  pieces.forEach((piece, n) => {
    const before = found.at(-1);
    if (before && together(before.text, piece.text, pieces[n + 1]?.text ?? "")) {
      before.text += piece.text;
      before.stop = piece.stop;
    } else found.push({ ...piece });
  });
  const last = found.at(-1);
  if (last && found.length > 1 && isSpace(last.text)) {
    found.pop();
    found[found.length - 1].stop = last.stop;
  }
  return found.map((word) => ({ ...word, text: strip(word.text) || word.text }));
}

/** Each token as a word of its own.
 * @param {Token[]} tokens
 * @returns {Word[]}
 */
export const singleTokens = (tokens) =>
  tokens.map((token, n) => ({
    text: typeof token === "string" ? token : `⟨${hex(token)}⟩`, start: n, stop: n + 1,
  }));

/** @param {string} text */
export const strip = (text) => text.replace(ENDS, "");

/** @param {string} text */
const isSpace = (text) => ONLY_SPACE.test(text) && !/[\n\r]/.test(text);

/** @param {string} before @param {string} here @param {string} after */
function together(before, here, after) {
  if (!here || !before) return true;
  if (isSpace(before)) return here[0] !== "\n";
  const letters = [...before], first = [...here][0];
  let last = /** @type {string} */ (letters.at(-1));
  if (/\p{M}/u.test(first) || first === "\u200d" || last === "\u200d") return true;
  if ("'’".includes(first)) return inWord(last) && inWord([...(here + after)][1] ?? "");
  const other = letters.at(-2) ?? "";
  if ("'’".includes(last) && inWord(other)) last = other;
  return inWord(last) && inWord(first);
}

/** @param {string} one */
function inWord(one) {
  return one !== "" && /[\p{L}\p{M}\p{N}]/u.test(one) && !within(one, WIDE);
}

/** @param {string} one @param {number[][]} ranges */
function within(one, ranges) {
  const code = one.codePointAt(0) ?? 0;
  const [low, high] = ranges.find(([, end]) => code <= end) ?? [Infinity, 0];
  if (code < low || code > high) return false;
  return !/\p{Script=Hangul}/u.test(one);
}

/** Characters that cannot be seen, as signs.
 * @param {string} text
 */
export function visible(text) {
  if (!text) return "∅";
  const blank = ONLY_SPACE.test(text);
  /** @type {Record<string, string>} */
  const signs = { "\n": "↵", "\r": "␍", "\t": "⇥", ...(blank ? { " ": "␣", "\u3000": "␣" } : {}) };
  return [...text]
    .map((one) => signs[one] ?? one)
    .map((one) => {
      if (one === " " || one === "\u3000" || !/[\p{C}\p{Z}]/u.test(one)) return one;
      const code = (one.codePointAt(0) ?? 0).toString(16).toUpperCase();
      return `⟨U+${code.padStart(4, "0")}⟩`;
    })
    .join("");
}

/** Texts with spaces in between, except in Chinese and Japanese.
 * @param {string[]} texts
 */
export function join(texts) {
  const noSpaces = (/** @type {string} */ one) => within(one, WIDE) || within(one, SIGNS);
  return texts.reduce((all, text) => {
    const last = [...all].at(-1), first = [...text][0];
    return last && first && !noSpaces(last) && !noSpaces(first) ? `${all} ${text}` : all + text;
  }, "");
}

/** The number of each token's word.
 * @param {Word[]} found
 */
function numbers(found) {
  const all = new Int32Array(found.at(-1)?.stop ?? 0);
  found.forEach(({ start, stop }, n) => all.fill(n, start, stop));
  return all;
}

/** Sums over the tokens of the keys' words, means over those of the queries'.
 * @param {Float32Array} weights (T, S)
 * @param {number} T
 * @param {number} S
 * @param {Word[]} rows
 * @param {Word[]} cols
 */
export function merge(weights, T, S, rows, cols) {
  const out = new Float32Array(rows.length * cols.length), sums = new Float64Array(cols.length);
  const of = numbers(cols), wide = cols.length;
  rows.forEach(({ start, stop }, r) => {
    sums.fill(0);
    for (let t = start; t < stop; t++)
      for (let s = 0, at = t * S; s < S; s++, at++) sums[of[s]] += weights[at];
    for (let c = 0; c < wide; c++) out[r * wide + c] = sums[c] / (stop - start);
  });
  return out;
}
