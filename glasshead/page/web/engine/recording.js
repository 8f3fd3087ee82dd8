// A text that was read while every attention layer was recorded, as glasshead/observe records it.
//
//   const recording = await Recording.read(host, text, cut, beyond, pause);
//   recording.layers                  of a translator encoder, decoder, cross
//   recording.map(layer, head)        the exact weights (T, S)
//   recording.sides(layer, tokens)    words, or tokens, of queries and of keys

import { InputError } from "./errors.js";
import { Translator } from "./models.js";
import { search } from "./search.js";
import { Measure, NAMES, OF_CROSS } from "./statistics.js";
import { decodeTokens, singleTokens, strip, words } from "./text_words.js";

const KEPT = 64e6; // bytes of maps that a recording keeps; others are computed again

/**
 * @typedef {import("./text_words.js").Word} Word
 * @typedef {import("./text_words.js").Token} Token
 * @typedef {import("./attention.js").Call} Call
 * @typedef {import("./attention.js").Cut} Cut
 * @typedef {import("./host.js").Host} Host
 * @typedef {"words" | "source_words" | "written_words"} TextName
 * @typedef {{
 *   index: number, name: string, module: string, part: string | null, kind: "self" | "cross",
 *   heads: number, T: number, S: number, rows: TextName, cols: TextName,
 * }} RecordedLayer
 */

/** The ids of a text; raises for one that is empty or too long.
 * @param {Host} host
 * @param {string} text
 * @param {boolean} [beyond] whether it may be longer than those of the training
 */
export function encodeText(host, text, beyond = false) {
  const ids = host.tokenizer.prompt(text);
  const unlimited = beyond && host.told.config.positions !== "learned";
  const most = unlimited ? Infinity : (host.entry.max_len ?? Infinity);
  if (!ids.length) throw new InputError("the text is empty", { hint: "give a text to look at" });
  if (ids.length > most) {
    const told = `the text has ${ids.length} tokens, but ${host.entry.name} reads ${most} at most`;
    throw new InputError(told, { hint: "use a shorter text" });
  }
  return ids;
}

export class Recording {
  /** @param {Host} host */
  constructor(host) {
    this.host = host;
    /** @type {Map<number, Call>} */
    this.calls = new Map();
    /** @type {Token[]} */
    this.tokens = [];
    /** @type {Token[] | null} */
    this.source = null;
    this.last = "";
    /** @type {string | null} */
    this.translation = null;
    /** @type {number[] | null} */
    this.ids = null;
    /** @type {Map<string, Float32Array>} */
    this.maps = new Map();
    this.size = 0;
    /** @type {Map<string, [Word[], Word[]]>} */
    this.joined = new Map();
    /** @type {import("./statistics.js").Measured[]} */
    this.measured = [];
  }

  /** `pause` lets other requests in, and raises when nobody wants the answer any more.
   * @param {Host} host
   * @param {string} text
   * @param {Cut} cut
   * @param {boolean} beyond
   * @param {() => Promise<void>} pause
   */
  static async read(host, text, cut, beyond, pause) {
    const found = new Recording(host), { model, tokenizer } = host;
    const beside = { cut, record: (/** @type {Call} */ call) => found.#keep(call) };
    if (model instanceof Translator) {
      const source = encodeText(host, strip(text), beyond);
      const { bos, eos } = host.specials;
      const [best] = search(host, source, { cut: null });
      const target = [bos, ...best.ids, ...(best.ended ? [eos] : [])];
      const { memory, S } = model.encode(source, beside);
      await pause();
      model.features(target.slice(0, -1), { memory, S, beside });
      const tokens = decodeTokens(tokenizer, target);
      found.tokens = tokens.slice(0, -1);
      const last = tokens[tokens.length - 1];
      found.last = typeof last === "string" ? last : singleTokens([last])[0].text;
      found.source = decodeTokens(tokenizer, source);
      found.translation = strip(tokenizer.decode(best.ids));
    } else {
      const ids = encodeText(host, text, beyond);
      model.features(ids, { beside });
      found.tokens = decodeTokens(tokenizer, ids);
      found.ids = ids;
    }
    const missing = cut.edges.find((edge) => !cut.found.has(edge));
    if (missing) throw new InputError("an edge is outside the text", { hint: "count from 0" });
    await pause();
    await found.#measure(pause);
    return found;
  }

  /** @param {Call} call */
  #keep(call) {
    this.calls.set(call.layer.index, call);
  }

  /** @param {() => Promise<void>} pause */
  async #measure(pause) {
    for (const layer of this.layers) {
      const call = this.call(layer.index), measure = new Measure(call, this.ids);
      for (let h = 0; h < layer.heads; h++) {
        measure.head(h, this.map(layer.index, h));
        await pause();
      }
      const known = layer.kind === "cross" ? OF_CROSS : NAMES;
      const named = known.filter((name) => name in measure.means);
      const means = Object.fromEntries(named.map((name) => [name, measure.means[name]]));
      const { index, kind } = layer;
      const { means: all, uniform } = measure;
      this.measured.push({ index, kind, means, all, uniform });
    }
  }

  /** @returns {RecordedLayer[]} */
  get layers() {
    const order = (/** @type {{part: string | null, kind: string}} */ { part, kind }) =>
      !this.source ? 0 : kind === "cross" ? 3 : part === "encoder" ? 1 : 2;
    const ran = this.host.model.layers.filter(({ index }) => this.calls.has(index));
    /** @type {Record<string, number>} */
    const counts = {};
    return [...ran].sort((a, b) => order(a) - order(b)).map((layer) => {
      const { T, S } = this.call(layer.index), [rows, cols] = this.#texts(layer);
      const group = layer.kind === "cross" ? "cross" : (layer.part ?? "self");
      const number = counts[group] ?? 0;
      counts[group] = number + 1;
      return {
        index: layer.index, name: this.source ? `${group}.${number}` : String(layer.index),
        module: layer.name, part: layer.part, kind: layer.kind, heads: layer.attention.H, T, S,
        rows, cols,
      };
    });
  }

  /** @param {{part: string | null, kind: string}} layer @returns {[TextName, TextName]} */
  #texts({ part, kind }) {
    if (!this.source) return ["words", "words"];
    if (kind === "cross") return ["written_words", "source_words"];
    return part === "encoder" ? ["source_words", "source_words"] : ["words", "words"];
  }

  /** @param {number} index @returns {RecordedLayer} */
  layer(index) {
    const found = this.layers.find((one) => one.index === index);
    if (found) return found;
    throw new InputError(`layer ${index} was not recorded`, {
      hint: `there are ${this.layers.length}, counted from 0`,
    });
  }

  /** @param {number} index */
  call(index) {
    return /** @type {Call} */ (this.calls.get(index));
  }

  /** @param {number} layer @param {number} head */
  map(layer, head) {
    const key = `${layer}:${head}`, known = this.maps.get(key);
    if (known) return known;
    const { heads } = this.layer(layer);
    if (head >= heads)
      throw new InputError(`layer ${layer} has no head ${head}`, {
        hint: `its heads are 0 to ${heads - 1}`,
      });
    const made = this.call(layer).map(head);
    if (this.size + made.byteLength <= KEPT) {
      this.maps.set(key, made);
      this.size += made.byteLength;
    }
    return made;
  }

  /** The tokens of queries and of keys.
   * @param {number} index
   * @returns {[Token[], Token[]]}
   */
  texts(index) {
    const { tokens, source } = this;
    if (!source) return [tokens, tokens];
    const { kind, part } = this.layer(index);
    if (kind === "cross") return [[...tokens.slice(1), this.last], source];
    return part === "encoder" ? [source, source] : [tokens, tokens];
  }

  /** Words of queries and of keys; single tokens if asked for.
   * @param {number} index
   * @param {boolean} single
   * @returns {[Word[], Word[]]}
   */
  sides(index, single) {
    const { rows, cols } = this.layer(index), key = `${rows} ${cols} ${single}`;
    const known = this.joined.get(key);
    if (known) return known;
    const join = single ? singleTokens : words;
    const [mine, others] = this.texts(index);
    const made = /** @type {[Word[], Word[]]} */ ([join(mine), join(others)]);
    this.joined.set(key, made);
    return made;
  }
}
