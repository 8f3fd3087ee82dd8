// One attention layer: self or cross, grouped-query, with any mask; and what it did, for those who
// look.
//
// Maps are computed in bands of rows: scores, mask, softmax, context. A Call keeps queries, keys
// and values, from which `call.rows(head, start, stop)` gives any rows of the map again, exactly
// those that the layer used.

import { makeLinear } from "./layers.js";

const BAND = 64; // rows of a map at a time

/** @typedef {import("./layers.js").Config} Config */
/** @typedef {import("./layers.js").Rotation} Rotation */

/**
 * Queries `query` to `query_stop` of a head, or of all heads, may not see these keys.
 * @typedef {{
 *   layer: number, head: number | null, query: number, query_stop: number, key: number,
 *   key_stop: number,
 * }} Edge
 */

/** Heads and edges that have no effect. */
export class Cut {
  /** @param {[number, number][]} [heads] @param {Edge[]} [edges] */
  constructor(heads = [], edges = []) {
    this.heads = new Set(heads.map(([layer, head]) => `${layer}:${head}`));
    this.edges = edges;
    /** @type {Set<Edge>} those that lay in a text */
    this.found = new Set();
  }

  get empty() {
    return !this.heads.size && !this.edges.length;
  }

  /** @param {number} layer */
  of(layer) {
    return this.edges.filter((edge) => edge.layer === layer);
  }
}

/** Keys and values of earlier tokens: (H, room, D), of which `length` are there. */
export class Cache {
  constructor() {
    this.length = this.room = 0;
    this.k = this.v = new Float32Array(0);
    this.fixed = false; // of a memory that does not grow
  }

  /** @param {Float32Array} k @param {Float32Array} v (H, T, D) @param {number} H @param {number} T
   * @param {number} D
   */
  append(k, v, H, T, D) {
    if (!this.length) {
      Object.assign(this, { k, v, length: T, room: T });
      return;
    }
    if (this.length + T > this.room) this.#grow(H, D, Math.max(64, 2 * (this.length + T)));
    for (let h = 0; h < H; h++) {
      const from = h * T * D, to = (h * this.room + this.length) * D;
      this.k.set(k.subarray(from, from + T * D), to);
      this.v.set(v.subarray(from, from + T * D), to);
    }
    this.length += T;
  }

  /** @param {number} H @param {number} D @param {number} room */
  #grow(H, D, room) {
    const [k, v] = [new Float32Array(H * room * D), new Float32Array(H * room * D)];
    for (let h = 0; h < H; h++) {
      const from = h * this.room * D;
      k.set(this.k.subarray(from, from + this.length * D), h * room * D);
      v.set(this.v.subarray(from, from + this.length * D), h * room * D);
    }
    Object.assign(this, { k, v, room });
  }

  copy() {
    const same = Object.assign(new Cache(), this);
    if (!this.fixed) Object.assign(same, { k: this.k.slice(), v: this.v.slice() });
    return same;
  }
}

/** One use of a layer: (H, T, D) queries; (H_kv, room, D) keys and values, of which S count. */
export class Call {
  /**
   * @param {Attention} layer
   * @param {Float32Array} q
   * @param {Float32Array} k
   * @param {Float32Array} v
   * @param {{T: number, S: number, room: number}} sizes
   * @param {{causal: boolean, window: number | null, edges: Edge[]}} rules
   * @param {Float32Array | null} slopes
   */
  constructor(layer, q, k, v, { T, S, room }, rules, slopes) {
    this.layer = layer;
    this.q = q;
    this.k = k;
    this.v = v;
    this.T = T;
    this.S = S;
    this.room = room;
    this.rules = rules;
    this.slopes = slopes;
    this.scale = 1 / Math.sqrt(layer.D);
  }

  /** Where the keys of a head begin.
   * @param {number} head
   */
  keysAt(head) {
    const { H, H_kv: shared, D } = this.layer;
    return Math.floor(head / (H / shared)) * this.room * D;
  }

  /** One past the last key that the query of a row can see.
   * @param {number} row
   */
  reach(row) {
    return this.rules.causal ? Math.min(this.S, row + this.S - this.T + 1) : this.S;
  }

  /** The keys of a head in the products' memory, for `rows`.
   * @param {number} head
   */
  loadKeys(head) {
    const { D, products } = this.layer, from = this.keysAt(head);
    return products.load(this.S, D, (to, at, stride) => {
      for (let s = 0; s < this.S; s++)
        to.set(this.k.subarray(from + s * D, from + (s + 1) * D), at + s * stride);
    });
  }

  /** The values of a head, (D, S), for contexts.
   * @param {number} head
   */
  loadValues(head) {
    const { D, products } = this.layer, from = this.keysAt(head);
    return products.load(D, this.S, (to, at, stride) => {
      for (let s = 0; s < this.S; s++)
        for (let d = 0; d < D; d++) to[at + d * stride + s] = this.v[from + s * D + d];
    });
  }

  /** Weights (stop - start, width) of some rows; width is as far as the last of them can see.
   * @param {number} head
   * @param {number} start
   * @param {number} stop
   * @param {import("./products.js").Matrix} keys of `loadKeys`
   */
  rows(head, start, stop, keys) {
    const { D, products, softcap } = this.layer;
    const n = stop - start, width = this.reach(stop - 1), shift = this.S - this.T;
    const x = new Float32Array(n * D), from = (head * this.T + start) * D;
    for (let i = 0; i < x.length; i++) x[i] = this.q[from + i] * this.scale;
    const w = new Float32Array(n * width);
    products.times(keys, x, n, w, { rows: width });
    const slope = this.slopes?.[head] ?? 0;
    for (let r = 0; r < n; r++) {
      const row = start + r, at = r * width;
      if (softcap)
        for (let j = 0; j < width; j++) w[at + j] = softcap * Math.tanh(w[at + j] / softcap);
      if (slope)
        for (let j = 0; j < width; j++) w[at + j] -= slope * Math.abs(row + shift - j);
      this.#hide(w, at, width, row, head);
      softmax(w, at, width);
    }
    return { w, width };
  }

  /** @param {Float32Array} w @param {number} at @param {number} width @param {number} row
   * @param {number} head
   */
  #hide(w, at, width, row, head) {
    const { window, causal, edges } = this.rules, place = row + this.S - this.T;
    if (causal && place + 1 < width) w.fill(-Infinity, at + place + 1, at + width);
    if (window) {
      w.fill(-Infinity, at, at + Math.max(0, Math.min(width, place - window + 1)));
      if (place + window < width) w.fill(-Infinity, at + place + window, at + width);
    }
    for (const edge of edges) {
      if ((edge.head !== null && edge.head !== head) || row < edge.query) continue;
      if (row >= edge.query_stop || edge.key >= width) continue;
      w.fill(-Infinity, at + edge.key, at + Math.min(edge.key_stop, width));
    }
  }

  /** The whole map (T, S) of a head.
   * @param {number} head
   */
  map(head) {
    const found = new Float32Array(this.T * this.S), keys = this.loadKeys(head);
    for (let start = 0; start < this.T; start += BAND) {
      const stop = Math.min(start + BAND, this.T);
      const { w, width } = this.rows(head, start, stop, keys);
      for (let r = start; r < stop; r++)
        found.set(w.subarray((r - start) * width, (r - start + 1) * width), r * this.S);
    }
    return found;
  }

  /** The weights of one query, (S,).
   * @param {number} head
   * @param {number} query
   */
  row(head, query) {
    const found = new Float32Array(this.S);
    found.set(this.rows(head, query, query + 1, this.loadKeys(head)).w);
    return found;
  }
}

/** In place; a row that may see nothing has weights 0.
 * @param {Float32Array} w
 * @param {number} at
 * @param {number} n
 */
function softmax(w, at, n) {
  let top = -Infinity, sum = 0;
  for (let j = at; j < at + n; j++) if (w[j] > top) top = w[j];
  if (top === -Infinity) return w.fill(0, at, at + n);
  for (let j = at; j < at + n; j++) sum += w[j] = Math.exp(w[j] - top);
  const rate = 1 / sum;
  for (let j = at; j < at + n; j++) w[j] *= rate;
}

/**
 * What happens beside the answer: what is cut, and who records.
 * @typedef {{cut?: Cut, record?: (call: Call) => void}} Beside
 */

export class Attention {
  /**
   * @param {import("./parameters.js").Parameters} parameters
   * @param {string} name
   * @param {Config} config
   * @param {number} index of the layer among all
   */
  constructor(parameters, name, config, index) {
    this.products = parameters.products;
    this.name = name;
    this.index = index;
    this.H = config.n_heads;
    this.H_kv = config.n_kv_heads ?? config.n_heads;
    this.D = config.d_head ?? config.d_model / config.n_heads;
    this.softcap = config.softcap;
    this.qkv = /** @type {import("./layers.js").Layer} */ (makeLinear(parameters, `${name}.qkv`));
    this.out = makeLinear(parameters, `${name}.out`);
    this.q_norm = parameters.vector(`${name}.q_norm.weight`);
    this.k_norm = parameters.vector(`${name}.k_norm.weight`);
    this.eps = config.qk_eps;
  }

  /**
   * @param {Float32Array} x (T, C)
   * @param {number} T
   * @param {{
   *   memory?: Float32Array, S?: number, causal?: boolean, window?: number | null,
   *   rotation?: Rotation | null, slopes?: Float32Array | null, cache?: Cache | null,
   *   beside?: Beside,
   * }} how
   */
  forward(x, T, { memory, S = 0, causal = false, window = null, rotation = null, slopes = null,
    cache = null, beside = {} }) {
    const { H, H_kv: shared, D } = this;
    const projected = this.qkv(x, T);
    const q = this.#heads(projected, T, 0, H, this.q_norm, rotation);
    const known = cache ?? new Cache();
    if (!known.fixed) {
      const other = memory ? this.qkv(memory, S) : projected, n = memory ? S : T;
      const k = this.#heads(other, n, H, shared, this.k_norm, rotation);
      const v = this.#heads(other, n, H + shared, shared, null, null);
      known.append(k, v, shared, n, D);
      known.fixed = Boolean(memory);
    }
    const { k, v, length: keys, room } = known;
    const edges = beside.cut?.of(this.index) ?? [];
    for (const edge of edges)
      if (edge.query < T && edge.key < keys) beside.cut?.found.add(edge);
    const sizes = { T, S: keys, room };
    const call = new Call(this, q, k, v, sizes, { causal, window, edges }, slopes);
    const context = this.#context(call, beside.cut ?? null);
    beside.record?.(call);
    return this.out ? this.out(context, T) : context;
  }

  /** (H, T, D) of some heads, normed and rotated.
   * @param {Float32Array} projected
   * @param {number} T
   * @param {number} first
   * @param {number} count
   * @param {Float32Array | null} norm
   * @param {Rotation | null} rotation
   */
  #heads(projected, T, first, count, norm, rotation) {
    const { D } = this, wide = projected.length / T;
    const found = new Float32Array(count * T * D);
    for (let h = 0; h < count; h++)
      for (let t = 0; t < T; t++) {
        const to = (h * T + t) * D, from = t * wide + (first + h) * D;
        found.set(projected.subarray(from, from + D), to);
        if (norm) {
          let square = 0;
          for (let d = 0; d < D; d++) square += found[to + d] ** 2;
          const rate = 1 / Math.sqrt(square / D + this.eps);
          for (let d = 0; d < D; d++) found[to + d] *= rate * norm[d];
        }
        if (!rotation) continue;
        const { half, cos, sin } = rotation;
        for (let f = 0; f < half; f++) {
          const a = found[to + f], b = found[to + half + f], n = t * half + f;
          found[to + f] = a * cos[n] - b * sin[n];
          found[to + half + f] = b * cos[n] + a * sin[n];
        }
      }
    return found;
  }

  /** (T, H * D): the weights times the values; 0 of heads that are cut.
   * @param {Call} call
   * @param {Cut | null} cut
   */
  #context(call, cut) {
    const { H, D } = this, { T, S } = call;
    const context = new Float32Array(T * H * D);
    for (let h = 0; h < H; h++) {
      if (cut?.heads.has(`${this.index}:${h}`)) continue;
      if (T === 1) {
        single(call, h, context);
        continue;
      }
      const bands = [], keys = call.loadKeys(h);
      for (let start = 0; start < T; start += BAND) {
        const stop = Math.min(start + BAND, T);
        bands.push({ start, stop, ...call.rows(h, start, stop, keys) });
      }
      const values = call.loadValues(h);
      for (const { start, stop, w, width } of bands) {
        const n = stop - start, out = new Float32Array(n * D);
        this.products.times(values, w, n, out, { width });
        for (let r = 0; r < n; r++)
          context.set(out.subarray(r * D, (r + 1) * D), ((start + r) * H + h) * D);
      }
    }
    return S ? context : context.fill(0);
  }
}

/** The context of one query: what generation needs for each token.
 * @param {Call} call
 * @param {number} h
 * @param {Float32Array} context
 */
function single(call, h, context) {
  const { D } = call.layer, { S, q, k, v, scale } = call, from = call.keysAt(h), at = h * D;
  if (call.layer.softcap || call.slopes || call.rules.edges.length || call.rules.window) {
    const w = call.row(h, 0);
    for (let s = 0; s < S; s++)
      for (let d = 0; d < D; d++) context[at + d] += w[s] * v[from + s * D + d];
    return;
  }
  const w = new Float64Array(S);
  let top = -Infinity, sum = 0;
  for (let s = 0; s < S; s++) {
    let score = 0;
    for (let d = 0, n = from + s * D; d < D; d++, n++) score += q[at + d] * k[n];
    w[s] = score * scale;
    if (w[s] > top) top = w[s];
  }
  for (let s = 0; s < S; s++) sum += w[s] = Math.exp(w[s] - top);
  for (let d = 0; d < D; d++) {
    let total = 0;
    for (let s = 0, n = from + d; s < S; s++, n += D) total += w[s] * v[n];
    context[at + d] = total / sum;
  }
}
