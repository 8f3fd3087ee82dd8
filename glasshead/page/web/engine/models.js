// The models of glasshead/model, for one text at a time: GPT, Reader, Encoder and Translator.
//
//   const model = makeModel(kind, config, parameters);
//   model.layers                     all attention layers, in the order of glasshead/observe
//   model.features(ids, …)           (T, C) after the last block and norm
//   model.logits(x, T)               (T, V)

import { Attention, Cache } from "./attention.js";
import { Positions, makeFeedForward, makeNorm, makeSublayer } from "./layers.js";

/** @typedef {import("./parameters.js").Parameters} Parameters */
/** @typedef {import("./layers.js").Config} Config */
/** @typedef {import("./layers.js").Rotation} Rotation */
/** @typedef {import("./attention.js").Beside} Beside */

/** Of one layer of a decoder: of its own tokens, and of what the encoder read.
 * @typedef {{own: Cache, cross: Cache}} LayerCaches
 */

/** An attention layer as glasshead/attention/hooks.py describes it.
 * @typedef {{index: number, name: string, kind: "self" | "cross", part: string | null,
 *   attention: Attention}} LayerOf
 */

class Block {
  /** @param {Parameters} parameters @param {string} name @param {Config} config
   * @param {number} first index of its attention
   * @param {boolean} crosses
   */
  constructor(parameters, name, config, first, crosses = false) {
    const sublayer = (/** @type {string} */ part) =>
      makeSublayer(parameters, `${name}.${part}`, config);
    this.attention = new Attention(parameters, `${name}.attention`, config, first);
    this.aroundAttention = sublayer("around_attention");
    this.feedForward = makeFeedForward(parameters, `${name}.feed_forward`, config);
    this.aroundFeedForward = sublayer("around_feed_forward");
    this.cross = crosses ? new Attention(parameters, `${name}.cross`, config, first + 1) : null;
    this.aroundCross = sublayer("around_cross");
  }

  /**
   * @param {Float32Array} x
   * @param {number} T
   * @param {{causal?: boolean, window?: number | null, rotation?: Rotation | null,
   *   slopes?: Float32Array | null, memory?: Float32Array, S?: number, own?: Cache | null,
   *   other?: Cache | null, beside?: Beside}} how
   */
  forward(x, T, { memory, S, own = null, other = null, beside, ...rules }) {
    x = this.aroundAttention(x, T, (h, n) =>
      this.attention.forward(h, n, { ...rules, cache: own, beside }),
    );
    const { cross, feedForward } = this;
    if (cross)
      x = this.aroundCross(x, T, (h, n) =>
        cross.forward(h, n, { memory, S, cache: other, beside }),
      );
    return feedForward ? this.aroundFeedForward(x, T, feedForward) : x;
  }
}

/** Embeddings, blocks and the last norm, of a GPT, an encoder or a decoder. */
class Stack {
  /**
   * @param {Parameters} parameters
   * @param {{
   *   table: string, positions: string, blocks: string, norm: string, segments?: string,
   *   embedNorm?: string,
   * }} names
   * @param {Config} config
   * @param {{n: number, first: number, causal: boolean, crosses?: boolean}} how
   */
  constructor(parameters, names, config, { n, first, causal, crosses = false }) {
    this.parameters = parameters;
    this.config = config;
    this.causal = causal;
    this.table = parameters.matrix(names.table);
    this.positions = new Positions(parameters, names.positions, config);
    this.segments = names.segments ? parameters.has(names.segments)
      ? parameters.matrix(names.segments) : null : null;
    this.scale = config.scaled ? Math.fround(Math.sqrt(config.d_model)) : 1;
    this.embedNorm = makeNorm(
      parameters, names.embedNorm ?? "", config.norm, config.norm_eps,
    );
    const step = crosses ? 2 : 1;
    this.blocks = Array.from(
      { length: n },
      (_, i) => new Block(parameters, `${names.blocks}.${i}`, config, first + step * i, crosses),
    );
    this.norm = makeNorm(parameters, names.norm, config.norm, config.norm_eps);
  }

  /**
   * @param {ArrayLike<number>} ids
   * @param {{
   *   memory?: Float32Array, S?: number, caches?: LayerCaches[] | null, beside?: Beside,
   * }} [how]
   */
  forward(ids, { memory, S, caches = null, beside } = {}) {
    const T = ids.length, C = this.config.d_model, start = caches?.[0]?.own.length ?? 0;
    /** @type {Float32Array} */
    let x = new Float32Array(T * C);
    const { products } = this.parameters, segment = this.segments;
    for (let t = 0; t < T; t++) {
      const row = products.row(this.table, ids[t]);
      const more = segment && products.row(segment, 0);
      for (let c = 0; c < C; c++) x[t * C + c] = row[c] * this.scale + (more ? more[c] : 0);
    }
    this.positions.embed(x, T, C, start);
    x = this.embedNorm(x, T);
    const rules = {
      causal: this.causal, window: this.config.window ?? null,
      rotation: this.positions.rotation(T, start), slopes: this.positions.slopes,
    };
    this.blocks.forEach((block, n) => {
      const own = caches?.[n].own ?? null, other = caches?.[n].cross ?? null;
      x = block.forward(x, T, { ...rules, memory, S, own, other, beside });
    });
    return this.norm(x, T);
  }

  /** @returns {LayerCaches[]} */
  newCaches() {
    return this.blocks.map(() => ({ own: new Cache(), cross: new Cache() }));
  }
}

/** What all models share: the output layer. */
class Model {
  /** @param {Config} config @param {Parameters} parameters @param {string[]} tables that may be
   * the head's matrix, the first that the file has
   */
  constructor(config, parameters, tables) {
    this.config = config;
    this.parameters = parameters;
    const head = tables.find((name) => parameters.has(name)) ?? "";
    this.head = head ? parameters.matrix(head) : null;
    this.headBias = parameters.vector("head.bias");
    /** @type {LayerOf[]} */
    this.layers = [];
  }

  /** @param {Float32Array} x @param {number} T */
  logits(x, T) {
    if (!this.head) throw new Error("this model predicts nothing");
    const found = this.parameters.products.linear(this.head, x, T, this.headBias);
    const cap = this.config.logit_softcap;
    if (cap) for (let n = 0; n < found.length; n++) found[n] = cap * Math.tanh(found[n] / cap);
    return found;
  }

  /** @param {Attention} attention @param {string | null} part @param {"self" | "cross"} kind */
  addLayer(attention, part, kind = "self") {
    this.layers.push({ index: attention.index, name: attention.name, kind, part, attention });
  }
}

export class GPT extends Model {
  /** @param {Config} config @param {Parameters} parameters */
  constructor(config, parameters) {
    super(config, parameters, ["head.weight", "embedding.weight"]);
    const names = {
      table: "embedding.weight", positions: "positions", blocks: "blocks", norm: "norm",
    };
    const how = { n: config.n_layers, first: 0, causal: true };
    this.stack = new Stack(parameters, names, config, how);
    for (const { attention } of this.stack.blocks) this.addLayer(attention, null);
  }

  /** @param {ArrayLike<number>} ids
   * @param {{caches?: LayerCaches[] | null, beside?: Beside}} [how]
   */
  features(ids, how) {
    return this.stack.forward(ids, how);
  }

  newCaches() {
    return this.stack.newCaches();
  }
}

/** @param {Parameters} parameters @param {Config} config @param {string} name "encoder." or "" */
function makeEncoder(parameters, config, name) {
  return new Stack(
    parameters,
    {
      table: `${name}embedding.table.weight`, positions: `${name}embedding.positions`,
      blocks: `${name}blocks`, norm: `${name}norm`, embedNorm: `${name}embedding.norm`,
      segments: `${name}embedding.segments.weight`,
    },
    config,
    { n: config.n_layers, first: 0, causal: false },
  );
}

/** A Reader, which predicts a token at every position, or an Encoder, which does not. */
export class Reader extends Model {
  /** @param {Config} config @param {Parameters} parameters */
  constructor(config, parameters) {
    const name = parameters.has("encoder.embedding.table.weight") ? "encoder." : "";
    super(config, parameters, name ? ["head.weight", "encoder.embedding.table.weight"] : []);
    this.stack = makeEncoder(parameters, config, name);
    for (const { attention } of this.stack.blocks)
      this.addLayer(attention, name ? "encoder" : null);
  }

  /** @param {ArrayLike<number>} ids @param {{beside?: Beside}} [how] */
  features(ids, how) {
    return this.stack.forward(ids, how);
  }
}

export class Translator extends Model {
  /** @param {Config} config @param {Parameters} parameters */
  constructor(config, parameters) {
    const own = "decoder.embedding.table.weight", shared = "encoder.embedding.table.weight";
    super(config, parameters, ["head.weight", own, shared]);
    this.encoder = makeEncoder(parameters, config, "encoder.");
    this.decoder = new Stack(
      parameters,
      {
        table: parameters.has(own) ? own : shared, positions: "decoder.embedding.positions",
        blocks: "decoder.blocks", norm: "decoder.norm", embedNorm: "decoder.embedding.norm",
        segments: "decoder.embedding.segments.weight",
      },
      config,
      {
        n: config.n_decoder_layers ?? config.n_layers, first: config.n_layers, causal: true,
        crosses: true,
      },
    );
    for (const { attention } of this.encoder.blocks) this.addLayer(attention, "encoder");
    for (const { attention, cross } of this.decoder.blocks) {
      this.addLayer(attention, "decoder");
      if (cross) this.addLayer(cross, "decoder", "cross");
    }
  }

  /** @param {ArrayLike<number>} source @param {Beside} [beside] */
  encode(source, beside) {
    return { memory: this.encoder.forward(source, { beside }), S: source.length };
  }

  /** @param {ArrayLike<number>} ids
   * @param {{memory: Float32Array, S: number, caches?: LayerCaches[] | null, beside?: Beside}} how
   */
  features(ids, how) {
    return this.decoder.forward(ids, how);
  }

  newCaches() {
    return this.decoder.newCaches();
  }
}

/** @typedef {GPT | Reader | Translator} AnyModel */

/** @param {string} kind of config.json @param {Config} config @param {Parameters} parameters
 * @returns {AnyModel}
 */
export function makeModel(kind, config, parameters) {
  if (kind === "gpt") return new GPT(config, parameters);
  if (kind === "transformer") return new Translator(config, parameters);
  return new Reader(config, parameters);
}
