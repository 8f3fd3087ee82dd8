// Tokenizers of glasshead/text: characters, bytes, byte-level BPE, or the words of a list.
//
//   const tokenizer = makeTokenizer(told);        what page/living.py writes
//   tokenizer.encode("江水")                       ids
//   tokenizer.token(2)                            the bytes of an id; a special token has none
//
// A text that cannot be encoded raises an InputError.

import { InputError } from "./errors.js";

/**
 * @typedef {{
 *   kind: "char" | "byte" | "bpe" | "word", specials: Record<string, number>, size: number,
 *   marks: [number[], number[]], lowercase: boolean, characters?: string, words?: string[],
 *   vocabulary?: Record<string, number>, merges?: [string, string][], pattern?: string,
 *   added?: Record<string, string>,
 * }} TokenizerTold
 */

const UTF8 = new TextEncoder();

/** @param {Uint8Array[]} parts */
export function joined(parts) {
  const found = new Uint8Array(parts.reduce((n, part) => n + part.length, 0));
  let at = 0;
  for (const part of parts) {
    found.set(part, at);
    at += part.length;
  }
  return found;
}

export class Tokenizer {
  /** @param {TokenizerTold} told */
  constructor(told) {
    this.told = told;
    this.specials = told.specials;
    this.size = told.size;
    /** @type {Map<number, string>} */
    this.names = new Map(Object.entries(told.specials).map(([name, id]) => [id, name]));
    /** @type {Uint8Array[]} */
    this.table = Array.from({ length: told.size }, () => new Uint8Array(0));
    this.fill();
  }

  fill() {}

  /** @param {string} text @returns {number[]} */
  encode(text) {
    throw new InputError(`no tokenizer for ${text}`);
  }

  /** A whole text, with the special tokens that its model expects around it.
   * @param {string} text
   */
  prompt(text) {
    const [before, after] = this.told.marks;
    return [...before, ...this.encode(this.told.lowercase ? text.toLowerCase() : text), ...after];
  }

  /** @param {number} id */
  token(id) {
    return this.table[id] ?? new Uint8Array(0);
  }

  /** @param {Iterable<number>} ids */
  decode(ids) {
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(
      joined([...ids].map((id) => this.token(id))),
    );
  }
}

class CharTokenizer extends Tokenizer {
  fill() {
    const characters = [...(this.told.characters ?? "")];
    this.ids = new Map(characters.map((one, id) => [one, id]));
    characters.forEach((one, id) => (this.table[id] = UTF8.encode(one)));
  }

  /** @param {string} text */
  encode(text) {
    const known = /** @type {Map<string, number>} */ (this.ids);
    return [...text].map((one) => {
      const id = known.get(one);
      if (id !== undefined) return id;
      const code = (one.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0");
      throw new InputError(`character '${one}' (U+${code}) was not in the training text`, {
        hint: "remove it",
      });
    });
  }
}

class ByteTokenizer extends Tokenizer {
  fill() {
    for (let byte = 0; byte < 256; byte++) this.table[byte] = Uint8Array.of(byte);
  }

  /** @param {string} text */
  encode(text) {
    return [...UTF8.encode(text)];
  }
}

class WordTokenizer extends Tokenizer {
  fill() {
    const words = this.told.words ?? [], first = Object.keys(this.specials).length;
    this.ids = new Map(words.map((word, n) => [word, first + n]));
    words.forEach((word, n) => (this.table[first + n] = UTF8.encode(word)));
    this.longest = Math.max(...words.map((word) => [...word].length));
  }

  /** The longest words first, with backtracking.
   * @param {string} text
   */
  encode(text) {
    const ids = /** @type {Map<string, number>} */ (this.ids), most = this.longest ?? 1;
    const letters = [...text];
    /** @type {string[]} */
    const found = [];
    const dead = new Set();
    let at = 0, length = most, farthest = 0;
    const word = (/** @type {number} */ n) => letters.slice(at, at + n).join("");
    while (at < letters.length) {
      farthest = Math.max(farthest, at);
      length = Math.min(length, letters.length - at);
      while (length && (!ids.has(word(length)) || dead.has(at + length))) length--;
      if (length) {
        found.push(word(length));
        at += length;
        length = most;
      } else if (found.length) {
        dead.add(at);
        length = [...(found.pop() ?? "")].length;
        at -= length;
        length--;
      } else {
        const rest = letters.slice(farthest, farthest + 12).join("");
        throw new InputError(
          `'${rest}' (index ${farthest}) is not one of the ${ids.size} words of this vocabulary`,
          { hint: "use other words" },
        );
      }
    }
    return found.map((one) => /** @type {number} */ (ids.get(one)));
  }
}

class BPETokenizer extends Tokenizer {
  fill() {
    const { vocabulary = {}, merges = [], pattern = "", added = {} } = this.told;
    /** @type {Map<string, number>} one character for each byte */
    this.ids = new Map(Object.entries(vocabulary));
    const bytes = new Map(VISIBLE.map((shown, byte) => [shown, byte]));
    for (const [token, id] of this.ids)
      this.table[id] = Uint8Array.from([...token], (one) => bytes.get(one) ?? 0);
    for (const [id, text] of Object.entries(added)) this.table[Number(id)] = UTF8.encode(text);
    this.ranks = new Map(merges.map(([a, b], rank) => [`${a} ${b}`, rank]));
    this.pattern = new RegExp(pattern, "gu");
    /** @type {Map<string, number[]>} */
    this.known = new Map();
  }

  /** @param {string} text */
  encode(text) {
    const cut = /** @type {RegExp} */ (this.pattern);
    return [...text.matchAll(cut)].flatMap(([word]) => {
      let ids = this.known?.get(word);
      if (!ids) {
        ids = this.#merge(word);
        this.known?.set(word, ids);
      }
      return ids;
    });
  }

  /** Join the pair that was learned first, again and again.
   * @param {string} word
   */
  #merge(word) {
    const parts = [...UTF8.encode(word)].map((byte) => VISIBLE[byte]);
    for (;;) {
      let best = Infinity, at = -1;
      for (let n = 0; n + 1 < parts.length; n++) {
        const rank = this.ranks?.get(`${parts[n]} ${parts[n + 1]}`) ?? Infinity;
        if (rank < best) [best, at] = [rank, n];
      }
      if (at < 0) break;
      parts.splice(at, 2, parts[at] + parts[at + 1]);
    }
    return parts.map((part) => /** @type {number} */ (this.ids?.get(part)));
  }
}

/** How a byte-level vocabulary writes each byte: printable ones of Latin-1 as themselves. */
const VISIBLE = (() => {
  let hidden = 0x100;
  return Array.from({ length: 256 }, (_, byte) => {
    const shows =
      (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte < 0xad) || byte > 0xad;
    return String.fromCharCode(shows ? byte : hidden++);
  });
})();

/** @param {TokenizerTold} told @returns {Tokenizer} */
export function makeTokenizer(told) {
  if (told.kind === "char") return new CharTokenizer(told);
  if (told.kind === "byte") return new ByteTokenizer(told);
  return told.kind === "word" ? new WordTokenizer(told) : new BPETokenizer(told);
}

/** Decodes ids one by one into whole characters. */
export class StreamDecoder {
  /** @param {Tokenizer} tokenizer */
  constructor(tokenizer) {
    this.tokenizer = tokenizer;
    this.decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  }

  /** @param {number} id */
  push(id) {
    return this.decoder.decode(this.tokenizer.token(id), { stream: true });
  }

  flush() {
    return this.decoder.decode();
  }
}
