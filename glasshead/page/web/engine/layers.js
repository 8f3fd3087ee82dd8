// The parts of every model, as in glasshead/model/layers.py: norms, feed-forwards, positions.
//
// A text is (T, C) in one Float32Array, row by row.

const SIDE = 9; // the normal distribution function is 0 below -9 and 1 above 9, to float32
const STEPS = 128; // entries of its table for each unit

/** @typedef {import("./parameters.js").Parameters} Parameters */
/** @typedef {Record<string, any>} Config as config.json has it, every field */
/** @typedef {(x: Float32Array, T: number) => Float32Array} Layer */

/** @param {Parameters} parameters @param {string} name @param {string} kind @param {number} eps
 * @returns {Layer}
 */
export function makeNorm(parameters, name, kind, eps) {
  const weight = parameters.vector(`${name}.weight`);
  const bias = parameters.vector(`${name}.bias`);
  const C = weight?.length ?? 0;
  return (x, T) => {
    if (!weight) return x; // a norm that this model does not have
    const out = new Float32Array(x.length);
    for (let t = 0, at = 0; t < T; t++, at += C) {
      let mean = 0, square = 0;
      if (kind === "layer") {
        for (let c = 0; c < C; c++) mean += x[at + c];
        mean /= C;
      }
      for (let c = 0; c < C; c++) square += (x[at + c] - mean) ** 2;
      const rate = 1 / Math.sqrt(square / C + eps);
      for (let c = 0; c < C; c++)
        out[at + c] = (x[at + c] - mean) * rate * weight[c] + (bias ? bias[c] : 0);
    }
    return out;
  };
}

/** Linear layer; null if the model has none of that name.
 * @param {Parameters} parameters
 * @param {string} name
 * @returns {Layer | null}
 */
export function makeLinear(parameters, name) {
  if (!parameters.has(`${name}.weight`)) return null;
  const matrix = parameters.matrix(`${name}.weight`), bias = parameters.vector(`${name}.bias`);
  return (x, T) => parameters.products.linear(matrix, x, T, bias);
}

/** What stands around attention or a feed-forward: norm and residual connection.
 * @param {Parameters} parameters
 * @param {string} name
 * @param {Config} config
 * @returns {(x: Float32Array, T: number, layer: Layer) => Float32Array}
 */
export function makeSublayer(parameters, name, { norm, norm_eps: eps, residual }) {
  const before = makeNorm(parameters, `${name}.before`, norm, eps);
  const after = makeNorm(parameters, `${name}.after`, norm, eps);
  return (x, T, layer) => {
    const change = layer(before(x, T), T);
    if (residual) for (let n = 0; n < change.length; n++) change[n] += x[n];
    return after(change, T);
  };
}

/** @param {Parameters} parameters @param {string} name @param {Config} config
 * @returns {Layer | null}
 */
export function makeFeedForward(parameters, name, { feed_forward: kind }) {
  if (kind === "none") return null;
  const linear = makeLinear(parameters, `${name}.linear`);
  if (linear) return (x, T) => each(linear(x, T), relu);
  const up = makeLinear(parameters, `${name}.up`), down = makeLinear(parameters, `${name}.down`);
  const gate = makeLinear(parameters, `${name}.gate`);
  if (!up || !down) throw new Error(`the file has no ${name}.up and ${name}.down`);
  if (gate)
    return (x, T) => {
      const wide = up(x, T), rate = each(gate(x, T), silu);
      for (let n = 0; n < wide.length; n++) wide[n] *= rate[n];
      return down(wide, T);
    };
  const activation = ACTIVATIONS[kind];
  if (!activation) throw new Error(`unknown feed_forward '${kind}'`);
  return (x, T) => down(each(up(x, T), activation), T);
}

// -- activations --

/** @param {Float32Array} x @param {(x: number) => number} f */
function each(x, f) {
  for (let n = 0; n < x.length; n++) x[n] = f(x[n]);
  return x;
}

/** @param {number} x */
const relu = (x) => (x > 0 ? x : 0);
/** @param {number} x */
const silu = (x) => x / (1 + Math.exp(-x));
/** @param {number} x */
const density = (x) => Math.exp(-0.5 * x * x) / Math.sqrt(2 * Math.PI);

/** The part of a normal distribution below x, by its series.
 * @param {number} x
 */
function below(x) {
  let term = x, sum = x;
  for (let n = 1; Math.abs(term) > 1e-18 * Math.abs(sum); n++) {
    term *= (x * x) / (2 * n + 1);
    sum += term;
  }
  return 0.5 + density(x) * sum;
}

/** The same at every step from 0 to SIDE; between two, a cubic has their values and slopes. */
const TABLE = Float64Array.from({ length: SIDE * STEPS + 2 }, (_, n) => below(n / STEPS));
const SLOPES = Float64Array.from(TABLE, (_, n) => density(n / STEPS) / STEPS);

/** @param {number} x */
export function gelu(x) {
  const size = x < 0 ? -x : x;
  if (size >= SIDE) return x < 0 ? 0 : x;
  if (!(size >= 0)) return NaN;
  const at = size * STEPS, n = at | 0, r = at - n;
  const rise = TABLE[n + 1] - TABLE[n];
  const bend = SLOPES[n] - rise, other = rise - SLOPES[n + 1];
  const part = TABLE[n] + r * (rise + (1 - r) * (bend * (1 - r) + other * r));
  return x * (x < 0 ? 1 - part : part);
}

/** @type {Record<string, (x: number) => number>} */
const ACTIVATIONS = {
  relu,
  silu,
  gelu,
  relu2: (x) => relu(x) ** 2,
  "gelu-tanh": (x) =>
    0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x * x * x))),
};

// -- positions --

/** What positions do to embeddings, to queries and keys, and to scores.
 * @typedef {{cos: Float32Array, sin: Float32Array, half: number}} Rotation (T, half) each
 */
export class Positions {
  /** Frequencies and slopes come with the file, as torch computes them.
   * @param {Parameters} parameters
   * @param {string} name of the learned table
   * @param {Config} config
   */
  constructor(parameters, name, config) {
    this.kind = config.positions;
    this.gain = config.rope_gain ?? 1;
    this.table = parameters.has(`${name}.table.weight`)
      ? parameters.matrix(`${name}.table.weight`)
      : null;
    this.parameters = parameters;
    this.frequencies = parameters.vector("frequencies");
    this.slopes = this.kind === "alibi" ? parameters.needed("slopes") : null;
  }

  /** Add to embeddings (T, C) of the positions from `start` on.
   * @param {Float32Array} x
   * @param {number} T
   * @param {number} C
   * @param {number} start
   */
  embed(x, T, C, start) {
    if (this.table)
      for (let t = 0; t < T; t++) {
        const row = this.parameters.products.row(this.table, start + t);
        for (let c = 0; c < C; c++) x[t * C + c] += row[c];
      }
    if (!this.kind.startsWith("sinusoidal")) return;
    const split = this.kind === "sinusoidal-split";
    const waves = /** @type {Float32Array} */ (this.frequencies);
    for (let t = 0; t < T; t++)
      for (let f = 0; f < waves.length; f++) {
        const angle = Math.fround((start + t) * waves[f]);
        const at = t * C + (split ? f : 2 * f);
        x[at] += Math.fround(Math.sin(angle));
        x[at + (split ? waves.length : 1)] += Math.fround(Math.cos(angle));
      }
  }

  /** @param {number} T @param {number} start @returns {Rotation | null} */
  rotation(T, start) {
    if (this.kind !== "rotary") return null;
    const waves = /** @type {Float32Array} */ (this.frequencies), half = waves.length;
    const cos = new Float32Array(T * half), sin = new Float32Array(T * half);
    for (let t = 0, n = 0; t < T; t++)
      for (let f = 0; f < half; f++, n++) {
        const angle = Math.fround((start + t) * waves[f]);
        cos[n] = this.gain * Math.fround(Math.cos(angle));
        sin[n] = this.gain * Math.fround(Math.sin(angle));
      }
    return { cos, sin, half };
  }
}
