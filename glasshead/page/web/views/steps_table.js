// The four steps and the mask: how they are computed in the browser, and how they are drawn.

import { colours, palette, Scale } from "../scale.js";
import { percent, t } from "../words.js";

/**
 * What /api/seen/…/steps tells of one query in one head.
 * @typedef {object} Found
 * @property {number} query
 * @property {string[]} queries
 * @property {string[]} keys
 * @property {number} d
 * @property {number} scale
 * @property {number | null} softcap
 * @property {number[]} products q · k
 * @property {number[] | null} added
 * @property {boolean[] | null} allowed
 * @property {number[]} q
 * @property {number[][]} k
 * @property {number[][] | null} v
 *
 * @typedef {{scale: boolean, mask: "model" | "causal" | "none", temperature: number}} Options
 *
 * `now` is computed with the switches, `model` without; `hover` is a key.
 * @typedef {object} Shown
 * @property {Found} found
 * @property {Options} options
 * @property {boolean} changed
 * @property {ReturnType<typeof computed>} now
 * @property {ReturnType<typeof computed>} model
 * @property {number | null} [hover]
 *
 * @typedef {{x: number, w: number}} Column
 */

/** From the server's numbers of one query to its weights, as the switches say, in double
 * precision.
 * @param {Found} found
 * @param {Partial<Options>} options
 */
export function computed(found, { scale = true, mask = "model", temperature = 1 } = {}) {
  const { products, added, softcap } = found;
  const scaled = products.map((x, i) => {
    let s = x * (scale ? found.scale : 1);
    if (softcap) s = softcap * Math.tanh(s / softcap);
    return s + (added ? added[i] : 0);
  });
  // Causal lines the last query up with the last key.
  const last = found.query + found.keys.length - found.queries.length;
  const allowed = products.map((_, i) => {
    if (mask === "none") return true;
    return mask === "causal" ? i <= last : !found.allowed || found.allowed[i];
  });
  const heated = scaled.map((s, i) => (allowed[i] ? s / temperature : -Infinity));
  const high = Math.max(...heated);
  const powers = heated.map((s) => (high === -Infinity ? 0 : Math.exp(s - high)));
  const total = powers.reduce((a, b) => a + b, 0);
  const weights = powers.map((p) => (total ? p / total : 0));
  const { v } = found;
  const context = v && v[0].map((_, d) => weights.reduce((sum, w, i) => sum + w * v[i][d], 0));
  return { products, scaled, allowed, masked: heated, weights, context };
}

/** @param {number[]} weights */
export function entropy(weights) {
  return -weights.reduce((sum, p) => sum + (p > 0 ? p * Math.log(p) : 0), 0);
}

const ROW = 27;
const TOP = 112;

/** @param {Found} found @param {number} width */
export function placed(found, width) {
  const wide = Math.max(width, 960);
  const gap = 22;
  const shares = [0.09, 0.13, 0.15, 0.15, 0.11, 0.18, 0.19];
  const room = wide - gap * (shares.length - 1) - 4;
  let x = 0;
  const columns = shares.map((share) => {
    const column = { x, w: share * room };
    x += column.w + gap;
    return column;
  });
  return { columns, width: wide, height: TOP + ROW * found.keys.length + 70, row: ROW, top: TOP };
}

/** The word that asks, as it is named in a sentence.
 * @param {Found} found
 */
export const askedBy = ({ queries, query }) => queries[query].trim() || queries[query];

/** @param {Painter} painter @param {ReturnType<typeof placed>} place @param {Shown} shown */
export function paintSteps(painter, place, shown, x0 = 0, y0 = 0) {
  const { found, now, model, options, changed, hover = null } = shown;
  const paint = colours();
  const columns = place.columns.map((c) => ({ ...c, x: c.x + x0 }));
  const [word, k, products, scaled, masked, weights, v] = columns;
  /** @param {number} i */
  const y = (i) => y0 + TOP + i * ROW;
  heads(painter, [products, scaled, masked, weights, v], found, options, y0, paint);
  painter.text(k.x, y0 + 60, t("steps.q", { word: askedBy(found) }), {
    size: 12, fill: paint.accent, weight: 600, max: k.w,
  });
  strip(painter, k.x, y0 + 68, k.w, 20, found.q, most([found.q]));
  painter.rect(k.x - 1, y0 + 67, k.w + 2, 22, { stroke: paint.accent, width: 1.4, radius: 3 });
  painter.line(x0, y0 + TOP - 10, x0 + place.width, y0 + TOP - 10, { stroke: paint.line });
  const ofKeys = most(found.k);
  const ofValues = found.v ? most(found.v) : 1;
  /** @param {number[]} values */
  const highest = (values) => Math.max(1e-9, ...values.filter(Number.isFinite).map(Math.abs));
  // One scale for both columns, so that the effect of scaling can be seen.
  const scores = highest(found.products.concat(now.scaled));
  const size = {
    products: scores, scaled: scores, weights: highest(now.weights.concat(model.weights)),
  };
  // Each head has its own: what its bars reach to is written above them.
  /** @type {TextStyle} */
  const end = { size: 11, baseline: "middle", fill: paint.quiet, mono: true };
  painter.text(weights.x, y0 + TOP - 22, "0", end);
  painter.text(weights.x + weights.w - SHARE, y0 + TOP - 22, percent(size.weights), {
    ...end, align: "right",
  });
  found.keys.forEach((key, i) => {
    const top = y(i);
    const mid = top + ROW / 2;
    if (i === hover)
      painter.rect(x0 - 6, top, place.width + 12, ROW, {
        fill: paint.data, alpha: 0.07, radius: 5,
      });
    const seen = now.allowed[i];
    const alpha = seen ? 1 : 0.35;
    painter.text(word.x + word.w, mid, key, {
      size: 15,
      align: "right",
      baseline: "middle",
      fill:
        i === found.query && found.queries.length === found.keys.length ? paint.accent : paint.ink,
      max: word.w,
      alpha,
      weight: now.weights[i] === size.weights ? 600 : 400,
    });
    strip(painter, k.x, top + 5, k.w, ROW - 10, found.k[i], ofKeys, alpha);
    signed(painter, products, mid, found.products[i], size.products, paint, alpha);
    signed(painter, scaled, mid, now.scaled[i], size.scaled, paint, alpha);
    painter.text(
      masked.x + masked.w / 2,
      mid,
      seen ? now.masked[i].toFixed(2) : t("steps.hidden"),
      {
        size: 13, align: "center", baseline: "middle", mono: true,
        fill: seen ? paint.ink : paint.accent, weight: seen ? 400 : 700,
      },
    );
    share(
      painter, weights, mid, now.weights[i], changed ? model.weights[i] : null, size.weights, paint,
    );
    if (found.v)
      strip(
        painter, v.x, top + 5, v.w, ROW - 10, found.v[i], ofValues,
        0.06 + 0.94 * Math.min(1, now.weights[i] / size.weights),
      );
  });
  const bottom = y(found.keys.length);
  painter.line(x0, bottom + 8, x0 + place.width, bottom + 8, { stroke: paint.line });
  const told = found.v ? t("steps.sum", { word: askedBy(found) }) : t("steps.no values");
  painter.text(v.x - 14, bottom + 34, told, {
    size: 14, align: "right", baseline: "middle", fill: paint.ink, weight: 600,
  });
  if (!now.context) return;
  strip(painter, v.x, bottom + 22, v.w, 24, now.context, most([now.context]));
  painter.rect(v.x - 1, bottom + 21, v.w + 2, 26, { stroke: paint.accent, width: 1.4, radius: 3 });
}

/**
 * @param {Painter} painter
 * @param {Column[]} columns
 * @param {Found} found
 * @param {Options} options
 * @param {number} y0
 * @param {Colours} paint
 */
function heads(painter, columns, found, options, y0, paint) {
  const d = found.d;
  const names = ["products", "scaled", "masked", "weights", "v"];
  const biased = found.added || found.softcap;
  const formulas = [
    t("steps.formula.products"),
    options.scale
      ? t(biased ? "steps.formula.biased" : "steps.formula.scaled", { d })
      : t("steps.formula.unscaled"),
    t("steps.formula.masked"),
    options.temperature === 1
      ? t("steps.formula.weights")
      : t("steps.formula.heat", { t: options.temperature.toFixed(2) }),
    t("steps.formula.v"),
  ];
  let number = 0;
  columns.forEach((column, i) => {
    const { x } = column;
    const indent = names[i] === "masked" ? 0 : 30; // the mask is no step of its own
    if (indent) {
      painter.rect(x, y0 + 12, 22, 22, { fill: paint.ink, radius: 11 });
      painter.text(x + 11, y0 + 23.5, String(++number), {
        size: 12, align: "center", baseline: "middle", fill: paint.panel, weight: 700,
      });
    }
    painter.text(x + indent, y0 + 23.5, t(`steps.col.${names[i]}`), {
      size: 15, baseline: "middle", fill: paint.ink, weight: 600, max: column.w - indent,
    });
    painter.text(x, y0 + 58, formulas[i], {
      size: 13, baseline: "middle", fill: paint.quiet, mono: true, max: column.w,
    });
  });
}

/** @param {number[][]} rows */
const most = (rows) =>
  Math.max(1e-9, ...rows.map((row) => row.reduce((high, x) => Math.max(high, Math.abs(x)), 0)));

const SIGNED = new Scale("ratio", 2 ** -4, 2 ** 4);

/** A vector as a strip of colours: blue above zero, earth below. Ratios are logarithmic, so 2^x is
 * linear in x.
 * @param {Painter} painter
 * @param {number} x
 * @param {number} y
 * @param {number} w
 * @param {number} h
 * @param {number[]} values
 * @param {number} high
 */
function strip(painter, x, y, w, h, values, high, alpha = 1) {
  painter.cells(
    x,
    y,
    w / values.length,
    h,
    Float32Array.from(values, (value) => 2 ** ((4 * value) / high)),
    1,
    values.length,
    SIGNED,
  );
  if (alpha < 1)
    painter.rect(x - 0.5, y - 0.5, w + 1, h + 1, { fill: colours().panel, alpha: 1 - alpha });
}

/**
 * @param {Painter} painter
 * @param {Column} column
 * @param {number} mid
 * @param {number} value
 * @param {number} high
 * @param {Colours} paint
 * @param {number} alpha
 */
function signed(painter, column, mid, value, high, paint, alpha) {
  const text = 58; // for the number
  const half = (column.w - text) / 2;
  const zero = column.x + half;
  const long = (half * Math.abs(value)) / high;
  const ramp = palette("ratio");
  const earth = `rgb(${ramp[0]},${ramp[1]},${ramp[2]})`;
  painter.rect(value < 0 ? zero - long : zero, mid - 6, Math.max(0.5, long), 12, {
    fill: value < 0 ? earth : paint.data, radius: 2, alpha: value < 0 ? alpha : 0.8 * alpha,
  });
  painter.line(zero, mid - ROW / 2 + 3, zero, mid + ROW / 2 - 3, { stroke: paint.line });
  painter.text(column.x + column.w, mid, value.toFixed(2), {
    size: 13, align: "right", baseline: "middle", mono: true, fill: paint.ink, alpha,
  });
}

const SHARE = 56; // for the number

/**
 * @param {Painter} painter
 * @param {Column} column
 * @param {number} mid
 * @param {number} value
 * @param {number | null} before
 * @param {number} high
 * @param {Colours} paint
 */
function share(painter, column, mid, value, before, high, paint) {
  const room = column.w - SHARE;
  painter.rect(column.x, mid - 7, Math.max(0.5, (room * value) / high), 14, {
    fill: paint.data, radius: 3,
  });
  if (before !== null) {
    const x = column.x + (room * before) / high;
    painter.line(x, mid - 10, x, mid + 10, { stroke: paint.accent, width: 2 });
  }
  painter.text(column.x + column.w, mid, percent(value), {
    size: 13, align: "right", baseline: "middle", mono: true,
    fill: value > 0.02 ? paint.ink : paint.quiet,
  });
}
