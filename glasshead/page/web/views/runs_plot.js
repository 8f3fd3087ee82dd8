// Curves over each other, drawn by uPlot in the colours of the page.

import { styles } from "../dom.js";
import { SANS } from "../paint.js";
import { colours } from "../scale.js";
import library from "../vendor/uPlot.js";
import { clock, short } from "./runs_curves.js";

/**
 * @typedef {{
 *   id?: string, name: string, colour: string, points: Point[], width?: number, alpha?: number,
 *   dots?: boolean, quiet?: boolean,
 * }} Series `quiet`: not named at the cursor, it belongs to another
 *
 * @typedef {"step" | "tokens" | "seconds"} By
 *
 * @typedef {{
 *   w: number, h: number, series: Series[], log?: boolean, by?: By,
 *   zoom?: () => [from: number, to: number] | null, within?: [low: number, high: number],
 *   still?: boolean, right?: number, onzoom?: (range: [number, number] | null) => void,
 *   onhover?: (plot: UPlot, x: number | null, spot: Spot) => void, ondraw?: (plot: UPlot) => void,
 * }} Plotted `within`: the values that are to be seen; `still`: nothing to point at
 */

const UPlot = /** @type {UPlotLibrary} */ (/** @type {unknown} */ (library));
const DOTS = 40; // so many points are drawn as dots too
const SMALL = 200; // a plot of fewer pixels has less room for figures
const TIMES = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 86_400, 604_800];
const TOO_SHORT = 5; // pixels: a click, not a choice

/** @param {HTMLElement | undefined} root @param {Plotted} of @param {number} fine */
export function plot(root, of, fine = 1) {
  const { w, h, series, log = false, by = "step", zoom, within, still = false } = of;
  styles("vendor/uPlot.css");
  const ink = colours();
  const axis = {
    stroke: ink.quiet, font: `${Math.round(12 * fine)}px ${SANS}`, gap: 8 * fine,
    grid: { stroke: ink.line, width: fine }, ticks: { show: false },
  };
  const small = h < SMALL;
  return new UPlot({
    width: w * fine,
    height: h * fine,
    padding: [10, of.right ?? 18, 0, 0].map((pixels) => pixels * fine),
    legend: { show: false },
    cursor: still
      ? { show: false }
      : {
          y: false, sync: { key: "runs", filters: { pub: (type) => type === "mousemove" } },
          drag: { x: true, y: false, setScale: false },
          bind: { dblclick: () => () => of.onzoom?.(null) },
        },
    scales: {
      x: { time: false, range: (_, low, high) => zoom?.() ?? [low, high] },
      y: { distr: log ? 3 : 1, range: (_, low, high) => roomy(within, low, high, log) },
    },
    axes: [
      {
        ...axis, size: 30 * fine, space: 70 * fine, grid: { show: false },
        ...(by === "seconds" && { incrs: TIMES }),
        values: (_, ticks) => ticks.map(by === "seconds" ? clock : short),
      },
      {
        ...axis, size: 56 * fine, space: (small ? 34 : 44) * fine,
        ...(log && { splits: (_, __, low, high) => powers(low, high) }),
        values: (_, ticks) => ticks.map((tick) => (tick === null ? null : short(tick))),
      },
    ],
    series: [
      {},
      ...series.map(({ name, colour, width = 1.6, alpha = 1, dots, points }) => ({
        label: name, stroke: colour, width: width * fine, alpha, spanGaps: true,
        points: {
          show: dots ? points.length < DOTS : points.length === 1, size: 5 * fine, fill: colour,
        },
      })),
    ],
    hooks: {
      setSelect: [(plot) => {
        const { left, width } = plot.select;
        if (width >= TOO_SHORT)
          of.onzoom?.([plot.posToVal(left, "x"), plot.posToVal(left + width, "x")]);
        plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
      }],
      setCursor: [(plot) => {
        const { left, top, event } = plot.cursor;
        // Others follow the one that is pointed at, and say nothing.
        if (left >= 0 && !event && !root?.matches(":focus-visible")) return;
        const corner = plot.over.getBoundingClientRect();
        const spot = { clientX: corner.left + left, clientY: corner.top + Math.max(0, top) };
        of.onhover?.(plot, left >= 0 ? plot.posToVal(left, "x") : null, spot);
      }],
      draw: of.ondraw ? [of.ondraw] : [],
    },
  }, joined(of), root);
}

/** What uPlot draws: all places, then for each series what it has there.
 * @param {Plotted} of
 */
export function joined({ series, log = false }) {
  if (!series.length) return [[]];
  return UPlot.join(series.map(({ points }) => {
    const there = points.filter(([, y]) => Number.isFinite(y) && (!log || y > 0));
    return [there.map(([x]) => x), there.map(([, y]) => y)];
  }));
}

/** The same on a canvas of its own, `fine` times as large.
 * @param {Plotted} of
 * @param {number} fine
 */
export function still(of, fine) {
  const one = plot(undefined, { ...of, still: true }, fine / (devicePixelRatio || 1));
  one.batch(() => {}); // draws at once
  const { canvas } = one.ctx;
  one.destroy();
  return canvas;
}

/** A little more than what is to be seen.
 * @param {[low: number, high: number] | undefined} within
 * @param {number | null} low
 * @param {number | null} high
 * @param {boolean} log
 */
function roomy(within, low, high, log) {
  [low, high] = within ?? [low, high];
  if (low === null || high === null) return log ? [0.1, 1] : [0, 1];
  if (log) return low < high ? [low / (high / low) ** 0.04, high * (high / low) ** 0.04]
    : [low / 2, high * 2];
  const more = 0.05 * (high - low) || 0.5 * Math.abs(high) || 0.5;
  return [low - more, high + more];
}

/** What is written beside a logarithmic scale: powers of ten, with 2 and 5 times these if few.
 * @param {number} low
 * @param {number} high
 */
export function powers(low, high) {
  const found = [];
  const times = high / low > 300 ? [1] : [1, 2, 5];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
    found.push(...times.map((n) => n * 10 ** power).filter((x) => x >= low && x <= high));
  return found;
}

/** Arrow keys move the cursor, + and - zoom, 0 shows all.
 * @param {KeyboardEvent} event
 * @param {UPlot} plot
 * @param {(range: [number, number] | null) => void} onzoom
 */
export function keys(event, plot, onzoom) {
  const wide = plot.over.clientWidth;
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  const at = plot.cursor.left >= 0 ? plot.cursor.left : wide / 2;
  if (step) plot.setCursor({ left: Math.min(wide, Math.max(0, at + step * wide / 60)), top: 40 });
  else if (event.key === "+" || event.key === "-") onzoom(zoomed(plot, event.key === "+"));
  else if (event.key === "0") onzoom(null);
  else return;
  event.preventDefault();
}

/** Half as wide around the cursor, or the middle; or twice.
 * @param {UPlot} plot
 * @param {boolean} nearer
 * @returns {[number, number]}
 */
export function zoomed({ scales, cursor, posToVal }, nearer) {
  const { min, max } = scales.x;
  const middle = cursor.left >= 0 ? posToVal(cursor.left, "x") : (min + max) / 2;
  const factor = nearer ? 0.5 : 2;
  return [middle + factor * (min - middle), middle + factor * (max - middle)];
}
