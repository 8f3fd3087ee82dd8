// Curves over each other, for any painter.
//
//   const place = chart(painter, {x, y, w, h, series, log, labels: {x, y}, colours})
//   place.step(px) and place.at(step), place.y(loss): from pixels to numbers and back

const LEFT = 58;
const RIGHT = 24;
const TOP = 14;
const BOTTOM = 40;

/**
 * @typedef {{
 *   name: string, colour: string, points: Point[], width?: number, alpha?: number,
 *   dots?: boolean, dash?: number[],
 * }} Series
 */

/**
 * @param {Painter} painter
 * @param {{
 *   x?: number, y?: number, w: number, h: number, series: Series[], log?: boolean,
 *   labels?: {x?: string, y?: string}, colours: Colours, from?: number | null, to?: number | null,
 * }} of
 */
export function chart(
  painter,
  { x = 0, y = 0, w, h, series, log = false, labels = {}, colours, from = null, to = null },
) {
  const inner = {
    x: x + LEFT, y: y + TOP, w: Math.max(40, w - LEFT - RIGHT), h: Math.max(40, h - TOP - BOTTOM),
  };
  const all = series
    .flatMap((one) => one.points)
    .filter(([, value]) => Number.isFinite(value) && (!log || value > 0));
  const steps = all.map(([step]) => step);
  const last = Math.max(1, extreme(steps, Math.max));
  const first = Math.min(0, extreme(steps, Math.min));
  const values = all.map(([, value]) => value);
  let low = from ?? (values.length ? extreme(values, Math.min) : 1);
  let high = to ?? (values.length ? extreme(values, Math.max) : 1);
  if (!(high > low)) [low, high] = log ? [low / 2, high * 2] : [low - 0.5, high + 0.5];
  const ticks = log ? decades(low, high) : evenly(low, high, Math.max(2, Math.floor(inner.h / 64)));
  /** @type {(value: number) => number} */
  const bend = log ? Math.log10 : (value) => value;
  const span = bend(high) - bend(low);
  const [bottom, top] = [bend(low) - 0.04 * span, bend(high) + 0.05 * span];
  /** @param {number} step */
  const at = (step) => inner.x + (inner.w * (step - first)) / (last - first);
  /** @param {number} value */
  const up = (value) => inner.y + inner.h * (1 - (bend(value) - bottom) / (top - bottom));

  for (const tick of ticks) {
    painter.line(inner.x, up(tick), inner.x + inner.w, up(tick), { stroke: colours.line });
    painter.text(inner.x - 10, up(tick), short(tick), {
      size: 12, fill: colours.quiet, align: "right", baseline: "middle",
    });
  }
  for (const tick of evenly(first, last, Math.max(2, Math.floor(inner.w / 110)), true)) {
    painter.text(at(tick), inner.y + inner.h + 18, short(tick), {
      size: 12, fill: colours.quiet, align: "center",
    });
  }
  painter.line(inner.x, inner.y + inner.h, inner.x + inner.w, inner.y + inner.h, {
    stroke: colours.quiet, alpha: 0.5,
  });
  if (labels.x)
    painter.text(inner.x + inner.w, y + h - 4, labels.x, {
      size: 12, fill: colours.quiet, align: "right",
    });
  if (labels.y) painter.text(x, y + h - 4, labels.y, { size: 12, fill: colours.quiet });
  painter.clip(inner.x - 4, inner.y - 8, inner.w + 8, inner.h + 10, () => {
    for (const one of series) draw(painter, one, at, up, log, inner.w);
  });
  /** @param {number} px */
  const step = (px) => first + ((last - first) * (px - inner.x)) / inner.w;
  return { inner, at, y: up, step };
}

/**
 * @param {Painter} painter
 * @param {Series} series
 * @param {(step: number) => number} at
 * @param {(value: number) => number} up
 * @param {boolean} log
 * @param {number} room
 */
function draw(
  painter,
  { points, colour, width = 2, alpha = 1, dots = false, dash = [] },
  at,
  up,
  log,
  room,
) {
  const kept = thinned(
    points.filter(([, value]) => Number.isFinite(value) && (!log || value > 0)),
    Math.max(60, room / 2),
  );
  for (let i = 1; i < kept.length; i++) {
    const [[s1, v1], [s2, v2]] = [kept[i - 1], kept[i]];
    painter.line(at(s1), up(v1), at(s2), up(v2), { stroke: colour, width, alpha, dash });
  }
  if (dots || kept.length === 1)
    for (const [step, value] of kept)
      painter.rect(at(step) - 2.5, up(value) - 2.5, 5, 5, { fill: colour, radius: 2.5, alpha });
}

/** At most so many points; each is the mean of its neighbours', so that no one of them decides.
 * @param {Point[]} points
 * @param {number} most
 */
export function thinned(points, most) {
  if (points.length <= most) return points;
  const size = Math.ceil(points.length / most);
  /** @type {Point[]} */
  const kept = [];
  for (let start = 0; start < points.length; start += size) {
    const some = points.slice(start, start + size);
    /** @param {0 | 1} which */
    const mean = (which) => some.reduce((sum, point) => sum + point[which], 0) / some.length;
    kept.push([mean(0), mean(1)]);
  }
  kept[0] = points[0];
  kept[kept.length - 1] = points[points.length - 1];
  return kept;
}

/** Of the last point at or before a step.
 * @param {Point[]} points
 * @param {number} step
 */
export function valueAt(points, step) {
  let [low, high] = [0, points.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] <= step) low = middle + 1;
    else high = middle;
  }
  return low ? points[low - 1] : null;
}

/** Not Math.min(...values): a long run has more numbers than a call has arguments.
 * @param {number[]} values
 * @param {(a: number, b: number) => number} pick
 */
function extreme(values, pick) {
  return values.length ? values.reduce((a, b) => pick(a, b)) : 0;
}

/** 1, 2 or 5 times a power of ten apart.
 * @param {number} low
 * @param {number} high
 * @param {number} most
 */
export function evenly(low, high, most, whole = false) {
  const rough = (high - low) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(rough || 1));
  let step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough) ?? 10 * power;
  if (whole) step = Math.max(1, Math.round(step));
  const ticks = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + 1e-9 * step; n++)
    ticks.push(n * step);
  return ticks;
}

/** @param {number} low @param {number} high */
function decades(low, high) {
  const found = [];
  const many = Math.log10(high / low) > 2.5;
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
    for (const n of many ? [1] : [1, 2, 5]) {
      const tick = n * 10 ** power;
      if (tick >= low * 0.93 && tick <= high * 1.07) found.push(tick);
    }
  return found.length > 1 ? found : evenly(low, high, 3);
}

/** 0.02, 1.5, 2,000, 20k
 * @param {number} value
 */
export function short(value) {
  const size = Math.abs(value);
  if (!size) return "0";
  if (size >= 1e6) return `${Number((value / 1e6).toPrecision(3))}M`;
  if (size >= 1e4) return `${Number((value / 1e3).toPrecision(3))}k`;
  if (size < 1e-3) return value.toExponential(0);
  return String(Number(value.toPrecision(3)));
}
