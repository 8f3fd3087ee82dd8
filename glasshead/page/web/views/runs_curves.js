// What runs wrote, as points: read from their lines, along steps, tokens or time, and smoothed.

const AXES = ["step", "tokens", "seconds"];
const LOSSES = ["loss", "val_loss"];
const OTHER = ["returned_from", "rate", "best"]; // what says something of a line, not of the model
const FIRST = ["lr", "grad_norm", "tokens_per_s"];

/** @returns {Curve} */
export function nothing() {
  return { cursor: "", points: Object.create(null), damaged: 0 };
}

/** @param {Curve | undefined} curve @param {string} name @returns {Point[]} */
export const pointsOf = (curve, name) =>
  curve && Object.hasOwn(curve.points, name) ? curve.points[name] : [];

/** Add a line of metrics.jsonl.
 * @param {Curve} curve
 * @param {any} line
 */
export function addLine(curve, line) {
  const { points } = curve;
  if ("returned_from" in line)
    // What came after the step that it went back to did not lead here.
    for (const name of Object.keys(points))
      points[name] = points[name].filter(([step]) => step <= line.step);
  for (const [name, value] of Object.entries(line))
    if (name !== "step" && !OTHER.includes(name)) (points[name] ??= []).push([line.step, +value]);
}

/** Every metric besides the losses that any of them logged, the usual ones first.
 * @param {(Curve | undefined)[]} curves
 */
export function metricsOf(curves) {
  const names = new Set(curves.flatMap((curve) => Object.keys(curve?.points ?? {})));
  const others = [...names].filter((name) => ![...AXES, ...LOSSES, ...FIRST].includes(name));
  return [...FIRST.filter((name) => names.has(name)), ...others.sort()];
}

/** The step and the value of the lowest point, or null.
 * @param {Point[]} points
 */
export const lowest = (points) =>
  points.reduce(
    (best, one) => (best === null || one[1] < best[1] ? one : best), /** @type {Point?} */ (null),
  );

/** Points by tokens or seconds instead of steps, which are known at some steps only.
 * @param {Point[]} points
 * @param {Point[]} known tokens or seconds at a step
 * @returns {Point[]}
 */
export function along(points, known) {
  if (!known.length) return [];
  let n = 0;
  return points.map(([step, value]) => {
    while (n < known.length - 1 && known[n][0] < step) n++;
    const [s1, x1] = n ? known[n - 1] : [0, 0];
    const [s2, x2] = known[n];
    const share = s2 > s1 ? Math.min(1, (step - s1) / (s2 - s1)) : 1;
    return [x1 + share * (x2 - x1), value];
  });
}

/** The mean of a point and of those before it, each counting `factor` times as much as the next.
 * @param {Point[]} points
 * @param {number} factor from 0 to below 1
 * @returns {Point[]}
 */
export function smoothed(points, factor) {
  let sum = 0;
  let weight = 0;
  return points.map(([x, y]) => {
    if (!Number.isFinite(y)) return [x, y];
    sum = factor * sum + (1 - factor) * y;
    weight = factor * weight + (1 - factor);
    return [x, sum / weight];
  });
}

/** The last point at or before a place.
 * @param {Point[]} points
 * @param {number} x
 */
export function valueAt(points, x) {
  let [low, high] = [0, points.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] <= x) low = middle + 1;
    else high = middle;
  }
  return low ? points[low - 1] : null;
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

/** 0:45, 12:00, 3:05:00
 * @param {number} seconds
 */
export function clock(seconds) {
  const whole = Math.round(seconds);
  const [h, m, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  /** @param {number} n */
  const two = (n) => String(n).padStart(2, "0");
  return h ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}`;
}
