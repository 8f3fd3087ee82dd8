// Products of float32 matrices in a memory that WebAssembly shares; in plain JavaScript where a
// browser has no WebAssembly with SIMD.
//
//   const products = new Products(count);                 room for so many numbers of parameters
//   const matrix = products.keep(numbers, rows, width);   stays
//   products.linear(matrix, x, T, bias)                   (T, width) -> (T, rows)
//
//   const keys = products.load(rows, width, (to, at) => …);         until the next `load`
//   products.times(keys, x, T, out, {rows, width})        the first so many rows or columns of it
//
// A matrix is stored row by row, each padded with zeros to a multiple of 4; so are its rows.

import { PRODUCTS } from "./products_wasm.js";

const PAGE = 65536; // bytes
const ROWS = 32; // of x at a time: with 1024 columns they stay in the cache

/**
 * @typedef {{at: number, rows: number, width: number, stride: number}} Matrix
 * @typedef {(x: number, w: number, out: number, T: number, I: number, O: number, stride: number)
 *   => void} Tiles
 * @typedef {(x: number, w: number, out: number, I: number, O: number) => void} Vector
 */

/** @param {number} n */
export const padded = (n) => (n + 3) & ~3;

export class Products {
  /** @param {number} count numbers, each row padded */
  constructor(count) {
    this.end = 0; // of what is kept, in numbers
    const initial = Math.ceil((4 * count) / PAGE) + 1;
    /** Null where there is no WebAssembly at all, as in Safari's lockdown mode. */
    this.memory =
      typeof WebAssembly === "undefined" ? null : new WebAssembly.Memory({ initial });
    this.f32 = new Float32Array(this.memory?.buffer ?? new ArrayBuffer(initial * PAGE));
    /** @type {{tiles: Tiles, vector: Vector}} */
    this.kernel = this.#assembled() ?? {
      tiles: (...args) => plainTiles(this.f32, ...args),
      vector: (...args) => plainVector(this.f32, ...args),
    };
  }

  #assembled() {
    if (!this.memory) return null;
    try {
      const bytes = Uint8Array.from(atob(PRODUCTS), (c) => c.charCodeAt(0));
      const module = new WebAssembly.Module(bytes);
      const made = new WebAssembly.Instance(module, { page: { memory: this.memory } });
      return /** @type {{tiles: Tiles, vector: Vector}} */ (/** @type {any} */ (made.exports));
    } catch {
      return null; // no SIMD, or a page that forbids it
    }
  }

  /** @param {ArrayLike<number>} numbers @param {number} rows @param {number} width */
  keep(numbers, rows, width) {
    const matrix = this.#place(this.end, rows, width);
    for (let r = 0; r < rows; r++)
      for (let i = 0; i < width; i++)
        this.f32[matrix.at + r * matrix.stride + i] = numbers[r * width + i];
    this.end = matrix.at + padded(rows) * matrix.stride;
    return matrix;
  }

  /** A matrix that `fill` writes, as rows of `stride` numbers from `at` on, until the next one.
   * @param {number} rows
   * @param {number} width
   * @param {(to: Float32Array, at: number, stride: number) => void} fill
   */
  load(rows, width, fill) {
    const matrix = this.#place(this.end, rows, width);
    this.f32.fill(0, matrix.at, matrix.at + padded(rows) * matrix.stride);
    fill(this.f32, matrix.at, matrix.stride);
    return matrix;
  }

  /** @param {Matrix} matrix @param {number} row */
  row(matrix, row) {
    const at = matrix.at + row * matrix.stride;
    return this.f32.subarray(at, at + matrix.width);
  }

  /** x @ matrix^T + bias
   * @param {Matrix} matrix
   * @param {Float32Array} x
   * @param {number} T
   * @param {Float32Array | null} [bias]
   */
  linear(matrix, x, T, bias = null) {
    const out = new Float32Array(T * matrix.rows);
    this.times(matrix, x, T, out);
    if (bias)
      for (let t = 0, at = 0; t < T; t++)
        for (let o = 0; o < matrix.rows; o++) out[at++] += bias[o];
    return out;
  }

  /** Write x @ matrix^T, of the first `rows` and `width` of the matrix only; x has `width` columns.
   * @param {Matrix} matrix
   * @param {Float32Array} x
   * @param {number} T
   * @param {Float32Array} out
   * @param {{rows?: number, width?: number}} [part]
   */
  times(matrix, x, T, out, { rows = matrix.rows, width = matrix.width } = {}) {
    const I = padded(width), O = padded(rows);
    const at = this.end + (matrix.at < this.end ? 0 : padded(matrix.rows) * matrix.stride);
    const to = at + ROWS * I;
    this.#reach(to + ROWS * O);
    if (T === 1 && I === matrix.stride) {
      this.#copy(x, 0, 1, width, at, I);
      this.kernel.vector(4 * at, 4 * matrix.at, 4 * to, I, O);
      out.set(this.f32.subarray(to, to + rows));
      return;
    }
    for (let start = 0; start < T; start += ROWS) {
      const n = Math.min(ROWS, T - start);
      this.#copy(x, start, n, width, at, I);
      this.kernel.tiles(4 * at, 4 * matrix.at, 4 * to, padded(n), I, O, matrix.stride);
      for (let r = 0; r < n; r++)
        out.set(this.f32.subarray(to + r * O, to + r * O + rows), (start + r) * rows);
    }
  }

  /**
   * @param {Float32Array} x
   * @param {number} start
   * @param {number} n
   * @param {number} width
   * @param {number} at
   * @param {number} I
   */
  #copy(x, start, n, width, at, I) {
    if (I > width || n & 3) this.f32.fill(0, at, at + padded(n) * I);
    for (let r = 0; r < n; r++)
      this.f32.set(x.subarray((start + r) * width, (start + r + 1) * width), at + r * I);
  }

  /** @param {number} at @param {number} rows @param {number} width @returns {Matrix} */
  #place(at, rows, width) {
    const stride = padded(width);
    this.#reach(at + padded(rows) * stride);
    return { at, rows, width, stride };
  }

  /** @param {number} end in numbers */
  #reach(end) {
    const missing = Math.ceil((4 * end - this.f32.byteLength) / PAGE);
    if (missing <= 0) return;
    if (this.memory) {
      this.memory.grow(missing);
      this.f32 = new Float32Array(this.memory.buffer);
    } else {
      const wider = new Float32Array(this.f32.length + (missing * PAGE) / 4);
      wider.set(this.f32);
      this.f32 = wider;
    }
  }
}

/**
 * @param {Float32Array} f
 * @param {number} x
 * @param {number} w
 * @param {number} out
 * @param {number} T
 * @param {number} I
 * @param {number} O
 * @param {number} stride
 */
function plainTiles(f, x, w, out, T, I, O, stride) {
  for (let o = 0; o < O; o += 2)
    for (let t = 0; t < T; t += 4) {
      let a = x / 4 + t * I, b = w / 4 + o * stride;
      let [s00, s01, s10, s11, s20, s21, s30, s31] = [0, 0, 0, 0, 0, 0, 0, 0];
      for (const end = a + I; a < end; a++, b++) {
        const [b0, b1] = [f[b], f[b + stride]];
        s00 += f[a] * b0;
        s01 += f[a] * b1;
        s10 += f[a + I] * b0;
        s11 += f[a + I] * b1;
        s20 += f[a + 2 * I] * b0;
        s21 += f[a + 2 * I] * b1;
        s30 += f[a + 3 * I] * b0;
        s31 += f[a + 3 * I] * b1;
      }
      const to = out / 4 + t * O + o;
      f[to] = s00;
      f[to + 1] = s01;
      f[to + O] = s10;
      f[to + O + 1] = s11;
      f[to + 2 * O] = s20;
      f[to + 2 * O + 1] = s21;
      f[to + 3 * O] = s30;
      f[to + 3 * O + 1] = s31;
    }
}

/**
 * @param {Float32Array} f
 * @param {number} x
 * @param {number} w
 * @param {number} out
 * @param {number} I
 * @param {number} O
 */
function plainVector(f, x, w, out, I, O) {
  for (let o = 0; o < O; o++) {
    let [sum, more] = [0, 0];
    for (let i = 0, a = x / 4, b = w / 4 + o * I; i < I; i += 2) {
      sum += f[a + i] * f[b + i];
      more += f[a + i + 1] * f[b + i + 1];
    }
    f[out / 4 + o] = sum + more;
  }
}
