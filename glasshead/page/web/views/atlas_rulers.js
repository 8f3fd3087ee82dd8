// Around the map: rulers on two sides, lines between tokens, and what is pointed at.

import { colours } from "../scale.js";
import { count } from "../words.js";

export const LEFT = 62; // of the ruler down the side
export const TOP = 50;
const READABLE = 13; // pixels of a token, from which on tokens are written beside the rulers

/** @typedef {import("./atlas_map.js").AtlasMap} AtlasMap */

/** Lines between tokens that are near.
 * @param {Painter} painter
 * @param {AtlasMap} map
 */
export function drawGrid(painter, map) {
  if (map.camera.px < READABLE) return;
  const { r0, r1, c0, c1 } = map.view;
  const line = { stroke: colours().paper, width: 1, alpha: 0.7 };
  for (let c = c0; c <= c1; c++)
    painter.line(map.toX(c), map.toY(r0), map.toX(c), map.toY(r1), line);
  for (let r = r0; r <= r1; r++)
    painter.line(map.toX(c0), map.toY(r), map.toX(c1), map.toY(r), line);
}

/** What is pointed at.
 * @param {Painter} painter
 * @param {AtlasMap} map
 */
export function drawCross(painter, map) {
  if (!map.cursor) return;
  const ink = colours();
  const { row, col } = map.cursor;
  const px = Math.max(1, map.camera.px);
  const x = map.toX(col);
  const y = map.toY(row);
  const [w, hi] = map.size;
  const soft = { fill: ink.accent, alpha: px > 3 ? 0.13 : 0.55 };
  painter.rect(LEFT, y, w, px, soft);
  painter.rect(x, TOP, px, hi, soft);
  if (px > 3) painter.rect(x, y, px, px, { stroke: ink.accent, width: 1.5 });
}

/** Where on the map one is, and the tokens where there is room for them.
 * @param {Painter} painter
 * @param {AtlasMap} map
 * @param {(
 *   side: "rows" | "cols", start: number, stop: number, put: (at: number, text: string) => void,
 * ) => void} written
 */
export function drawRulers(painter, map, written) {
  const ink = colours();
  const { r0, r1, c0, c1 } = map.view;
  const [w, hi] = map.size;
  const { px } = map.camera;
  painter.rect(0, 0, w, TOP, { fill: ink.panel });
  painter.rect(0, 0, LEFT, hi, { fill: ink.panel });
  const words = px >= READABLE;
  const small = { size: 11, fill: ink.quiet };
  const step = nice((words ? 56 : 74) / px);
  /** @param {number} from @param {number} to */
  const ticks = (from, to) =>
    Array.from(
      { length: Math.max(0, Math.floor((to - 1) / step) - Math.ceil(from / step) + 1) },
      (_, n) => (Math.ceil(from / step) + n) * step,
    );
  painter.clip(LEFT, 0, w - LEFT, TOP, () => {
    for (const c of ticks(c0, c1)) {
      const x = map.toX(c) + px / 2;
      if (!words) painter.line(x, TOP - 5, x, TOP - 1, { stroke: ink.quiet });
      painter.text(x, words ? 12 : TOP - 10, count(c), { ...small, align: "center" });
    }
    if (!words) painter.text(w - 12, 16, map.names[1], { ...small, align: "right" });
    if (words) written("cols", c0, c1, (c, text) => {
      const style = {
        size: 13, fill: map.cursor?.col === c ? ink.accent : ink.ink, max: TOP - 22,
      };
      const x = map.toX(c) + px / 2;
      if (painter.measure(text, style) <= px + 2)
        painter.text(x, TOP - 8, text, { ...style, align: "center", max: 0 });
      else painter.text(x, TOP - 5, text, { ...style, rotate: -Math.PI / 2, baseline: "middle" });
    });
  });
  painter.clip(0, TOP, LEFT, hi - TOP, () => {
    for (const r of ticks(r0, r1)) {
      const y = map.toY(r) + px / 2;
      if (!words) painter.line(LEFT - 5, y, LEFT - 1, y, { stroke: ink.quiet });
      if (!words)
        painter.text(LEFT - 9, y, count(r), { ...small, align: "right", baseline: "middle" });
      else painter.text(3, y, count(r), { ...small, size: 9, baseline: "middle" });
    }
    if (words) written("rows", r0, r1, (r, text) => {
      const fill = map.cursor?.row === r ? ink.accent : ink.ink;
      painter.text(LEFT - 6, map.toY(r) + px / 2, text, {
        size: 13, fill, align: "right", baseline: "middle", max: LEFT - 10,
      });
    });
  });
  painter.rect(0, 0, LEFT, TOP, { fill: ink.panel });
  painter.text(LEFT - 8, TOP - 8, map.names[0], { ...small, align: "right", max: LEFT - 8 });
  painter.line(LEFT, TOP, w, TOP, { stroke: ink.line });
  painter.line(LEFT, TOP, LEFT, hi, { stroke: ink.line });
}

/** The next of 1, 2, 5, 10, 20, …
 * @param {number} least
 */
function nice(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= least) ?? 10 * power;
}
