// The parameters of a model, out of the bytes that `glasshead export` wrote (page/living.py).
//
//   const parameters = new Parameters(header, bytes);
//   parameters.matrix("head.weight")     a Matrix of `parameters.products`, made when first asked
//   parameters.vector("norm.weight")     Float32Array; null if the model has none of that name
//
// `header.tensors` maps a name to {shape, kind, at}: where its bytes begin. Of kind "int8" each row
// has a float32 factor; the factors come first.

import { Products, padded } from "./products.js";

/** @typedef {{shape: number[], kind: "float32" | "float16" | "int8", at: number}} Stored */

export class Parameters {
  /**
   * @param {Record<string, Stored>} tensors
   * @param {ArrayBuffer} bytes
   */
  constructor(tensors, bytes) {
    this.tensors = tensors;
    this.bytes = bytes;
    const matrices = Object.values(tensors).filter(({ shape }) => shape.length === 2);
    const count = matrices.reduce((n, { shape: [O, I] }) => n + padded(O) * padded(I), 0);
    this.products = new Products(count);
    /** @type {Map<string, import("./products.js").Matrix>} */
    this.matrices = new Map();
    /** @type {Map<string, Float32Array | null>} */
    this.vectors = new Map();
  }

  /** @param {string} name */
  has(name) {
    return Object.hasOwn(this.tensors, name);
  }

  /** @param {string} name @returns {import("./products.js").Matrix} */
  matrix(name) {
    const known = this.matrices.get(name);
    if (known) return known;
    const [rows, width] = this.tensors[name].shape;
    const made = this.products.keep(numbers(this.tensors[name], this.bytes), rows, width);
    this.matrices.set(name, made);
    return made;
  }

  /** @param {string} name @returns {Float32Array | null} */
  vector(name) {
    const known = this.vectors.get(name);
    if (known !== undefined) return known;
    const made = this.has(name) ? numbers(this.tensors[name], this.bytes) : null;
    this.vectors.set(name, made);
    return made;
  }

  /** @param {string} name */
  needed(name) {
    const found = this.vector(name);
    if (!found) throw new Error(`the file has no ${name}`);
    return found;
  }
}

/** @param {Stored} stored @param {ArrayBuffer} bytes */
function numbers({ shape, kind, at }, bytes) {
  const count = shape.reduce((n, size) => n * size, 1);
  if (kind === "float32") return new Float32Array(bytes.slice(at, at + 4 * count));
  const found = new Float32Array(count);
  if (kind === "float16") {
    const halves = new Uint16Array(bytes.slice(at, at + 2 * count));
    for (let n = 0; n < count; n++) found[n] = fromHalf(halves[n]);
    return found;
  }
  const [rows, width] = shape;
  const factors = new Float32Array(bytes.slice(at, at + 4 * rows));
  const integers = new Int8Array(bytes, at + 4 * rows, count);
  for (let r = 0, n = 0; r < rows; r++)
    for (let i = 0; i < width; i++, n++) found[n] = factors[r] * integers[n];
  return found;
}

/** @param {number} half the bits of a float16 */
export function fromHalf(half) {
  const sign = half & 0x8000 ? -1 : 1, exponent = (half >> 10) & 31, rest = half & 1023;
  if (exponent === 31) return rest ? NaN : sign * Infinity;
  if (!exponent) return sign * rest * 2 ** -24;
  return sign * (1 + rest / 1024) * 2 ** (exponent - 15);
}
