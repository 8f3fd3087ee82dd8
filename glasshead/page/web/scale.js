// From numbers to colours: the stops of colours.js, blended in OKLab.
//
//   const scale = Scale.of(values, cols, "linear")      "linear", "log" or "ratio"
//   scale.shade(0.3)      0 to 255
//   scale.colour(0.3)     "rgb(…)"        scale.colour(NaN)     the paper

import { COLOURS, DIVERGING, SEQUENTIAL } from "./colours.js";

const DECADES = 4;
const OCTAVES = 4;

/** @returns {Theme} */
export function theme() {
  const named = document.documentElement.dataset.theme;
  if (named) return /** @type {Theme} */ (named);
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

/** What painters need; the same as the variables of colours.css.
 * @returns {Colours}
 */
export function colours(which = theme()) {
  return COLOURS[which];
}

export class Scale {
  /** @param {ScaleKind} kind @param {number} low @param {number} high */
  constructor(kind, low, high) {
    this.kind = kind;
    this.low = low;
    this.high = high;
  }

  /** The strongest colour is the largest number of a row that has more than one; of ratios 16.
   * @param {Numbers} values
   * @param {number} cols
   * @param {ScaleKind} kind
   */
  static of(values, cols, kind) {
    if (kind === "ratio") return new Scale(kind, 2 ** -OCTAVES, 2 ** OCTAVES);
    let telling = 0;
    let any = 0;
    for (let start = 0; start < values.length; start += cols) {
      let most = 0;
      let n = 0;
      for (let i = start; i < start + cols; i++) {
        if (values[i] > most) most = values[i];
        if (values[i]) n++; // NaN counts as nothing
      }
      if (n > 1 && most > telling) telling = most;
      if (most > any) any = most;
    }
    const high = telling || any || 1;
    return new Scale(kind, kind === "log" ? high * 10 ** -DECADES : 0, high);
  }

  /** @param {number} value */
  shade(value) {
    if (Number.isNaN(value)) return this.kind === "ratio" ? 128 : 0;
    const share =
      this.kind === "linear"
        ? value / this.high
        : Math.log(value / this.low) / Math.log(this.high / this.low);
    return Math.round(255 * Math.min(1, Math.max(0, share)));
  }

  /** @param {number} value */
  colour(value, which = theme()) {
    if (Number.isNaN(value)) return COLOURS[which].paper;
    const colours = palette(this.kind, which);
    const at = 3 * this.shade(value);
    return `rgb(${colours[at]},${colours[at + 1]},${colours[at + 2]})`;
  }

  /** What to write with on a cell of this value.
   * @param {number} value
   */
  ink(value, which = theme()) {
    const colours = palette(this.kind, which);
    const at = 3 * this.shade(value);
    const light = 0.3 * colours[at] + 0.59 * colours[at + 1] + 0.11 * colours[at + 2];
    return light > 140 ? "#1b2027" : "#f6f8fb";
  }

  /** Four bytes for each value, for ImageData.
   * @param {Numbers} values
   */
  pixels(values, which = theme()) {
    const colours = palette(this.kind, which);
    const nothing = rgb(COLOURS[which].paper);
    const out = new Uint8ClampedArray(4 * values.length);
    for (let i = 0; i < values.length; i++) {
      const missing = Number.isNaN(values[i]);
      const at = 3 * this.shade(values[i]);
      for (let c = 0; c < 3; c++) out[4 * i + c] = missing ? nothing[c] : colours[at + c];
      out[4 * i + 3] = 255;
    }
    return out;
  }
}

/** @type {Map<string, Uint8Array>} */
const known = new Map();

/** 256 × 3 bytes.
 * @param {ScaleKind} kind
 */
export function palette(kind, which = theme()) {
  const name = `${kind === "ratio"} ${which}`;
  let colours = known.get(name);
  if (!colours) {
    colours = blended((kind === "ratio" ? DIVERGING : SEQUENTIAL)[which]);
    known.set(name, colours);
  }
  return colours;
}

/** @param {string[]} stops */
function blended(stops) {
  const points = stops.map((stop) => oklab(rgb(stop)));
  const out = new Uint8Array(768);
  for (let i = 0; i < 256; i++) {
    const place = (i * (stops.length - 1)) / 255;
    const before = Math.min(Math.floor(place), stops.length - 2);
    const share = place - before;
    const lab = points[before].map((x, axis) => x + share * (points[before + 1][axis] - x));
    out.set(srgb(lab), 3 * i);
  }
  return out;
}

/** @param {string} hex */
function rgb(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

/** @param {number[]} colour */
function oklab(colour) {
  const [r, g, b] = colour.map((x) =>
    x / 255 <= 0.04045 ? x / 255 / 12.92 : ((x / 255 + 0.055) / 1.055) ** 2.4,
  );
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ];
}

/** @param {number[]} lab */
function srgb([L, a, b]) {
  const l = (L + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (L - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (L - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  return linear.map((x) => {
    const y = Math.min(1, Math.max(0, x));
    return Math.round(255 * (y <= 0.0031308 ? 12.92 * y : 1.055 * y ** (1 / 2.4) - 0.055));
  });
}
