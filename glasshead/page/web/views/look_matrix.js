// One head as a matrix: a row for each word that looks, a column for each that is looked at.

import { colours } from "../scale.js";
import { t } from "../words.js";

/** @import { Look } from "./look_lines.js" */
/** @import { Word } from "./look_text.js" */

/**
 * Where everything stands: the cells begin at `left` and `top`.
 * @typedef {{left: number, top: number, cell: number, width: number, height: number}} Matrix
 */

const LABEL = { size: 13 };

/**
 * @param {Painter} painter
 * @param {Word[]} rows
 * @param {Word[]} cols
 * @param {number} width
 * @returns {Matrix}
 */
export function laid(painter, rows, cols, width) {
  const left = Math.min(
    130,
    Math.max(74, ...rows.map((word) => painter.measure(word.text, LABEL) + 14)),
  );
  const longest = Math.min(
    120,
    Math.max(24, ...cols.map((word) => painter.measure(word.text, LABEL))),
  );
  const cell = Math.max(9, Math.min(42, Math.floor((width - left - 24) / cols.length)));
  const top = Math.round(longest * 0.82) + 26; // the labels lean
  const lean = Math.round(longest * 0.58);
  const wide = Math.ceil(left + cell * cols.length + lean + 6);
  return { left, top, cell, width: wide, height: Math.ceil(top + cell * rows.length + 8) };
}

/** @param {Painter} painter @param {Matrix} place @param {Look} look */
export function paintMatrix(painter, place, look, x0 = 0, y0 = 0) {
  const { left, top, cell } = place;
  const { rows, cols, weights, scale, pinned } = look;
  const paint = colours();
  const x = x0 + left;
  const y = y0 + top;
  painter.cells(x, y, cell, cell, weights, rows.length, cols.length, scale);
  const [wide, high] = [cols.length * cell, rows.length * cell];
  if (cell >= 14) {
    const thin = { stroke: paint.panel, width: 1 };
    for (let r = 0; r <= rows.length; r++)
      painter.line(x, y + r * cell, x + wide, y + r * cell, thin);
    for (let c = 0; c <= cols.length; c++)
      painter.line(x + c * cell, y, x + c * cell, y + high, thin);
  }
  const every = Math.max(1, Math.ceil(14 / cell)); // labels that would touch are left out
  rows.forEach((word, r) => {
    const mine = r === look.row || r === pinned.row;
    if (r % every && !mine) return;
    painter.text(x - 8, y + (r + 0.5) * cell, word.text, {
      ...LABEL, align: "right", baseline: "middle", max: left - 14,
      fill: mine ? paint.accent : paint.ink, weight: mine ? 600 : 400,
    });
  });
  cols.forEach((word, c) => {
    const mine = c === look.col || c === pinned.col;
    if (c % every && !mine) return;
    painter.text(x + (c + 0.5) * cell, y - 7, word.text, {
      ...LABEL, rotate: -0.96, baseline: "middle", max: 130, fill: mine ? paint.accent : paint.ink,
      weight: mine ? 600 : 400,
    });
  });
  painter.text(x0 + left - 8, y0 + 12, t("look.matrix.rows"), {
    size: 11, align: "right", fill: paint.quiet,
  });
  painter.text(x0 + left, y0 + 12, t("look.matrix.cols"), { size: 11, fill: paint.quiet });
  const frame = { stroke: paint.accent, width: 1.6, radius: 3 };
  if (pinned.row !== null)
    painter.rect(x - 1, y + pinned.row * cell - 1, wide + 2, cell + 2, frame);
  if (pinned.col !== null)
    painter.rect(x + pinned.col * cell - 1, y - 1, cell + 2, high + 2, frame);
  if (look.cell) {
    const { r, c } = look.cell;
    painter.rect(x + c * cell, y + r * cell, cell, cell, { stroke: paint.ink, width: 1.6 });
  }
}

/** The cell under a point of the picture, or null.
 * @param {Matrix} place
 * @param {{rows: Word[], cols: Word[]}} look
 * @param {number} x
 * @param {number} y
 */
export function cellAt(place, look, x, y) {
  const c = Math.floor((x - place.left) / place.cell);
  const r = Math.floor((y - place.top) / place.cell);
  return r >= 0 && c >= 0 && r < look.rows.length && c < look.cols.length ? { r, c } : null;
}
