// One head as lines between words. The text is set as text, in lines as wide as there is room; a
// word's background says how much it is looked at (or looks), and curves lead there.

import { colours } from "../scale.js";
import { percent, three } from "../words.js";

/** @import { Pin } from "./look_choice.js" */
/** @import { Word } from "./look_text.js" */

/**
 * What is painted of one head. `row` and `col` say what is in focus; at most one of them is not
 * null. `cell` is the one under the pointer, of a matrix.
 * @typedef {object} Look
 * @property {Word[]} rows
 * @property {Word[]} cols
 * @property {Float32Array} weights
 * @property {import("../scale.js").Scale} scale
 * @property {number | null} row
 * @property {number | null} col
 * @property {Pin} pinned
 * @property {{r: number, c: number} | null} cell
 * @property {number | null} [gone] a word to which no line leads any more
 *
 * @typedef {{x: number, y: number, w: number, h: number}} Box
 *
 * Where everything stands. `rows` and `cols` are the same boxes for a text that looks at itself.
 * @typedef {object} Lines
 * @property {{rows: Box[], cols: Box[]}} boxes
 * @property {number} width
 * @property {number} height
 * @property {number} size of letters
 * @property {boolean} same
 * @property {boolean} oneLine whether the text stands on one line,
 * @property {number} left which begins here
 * @property {number} air for curves, above each line
 * @property {number} bottom of the words and their figures
 */

const MOST_LINES = 14; // from one word
const FAINT = 0.03; // of the strongest: no line
const LINE_SIZES = [30, 28, 26, 24, 22, 20, 18, 17]; // of letters, where a text stands on one line
const LINE_AIR = 104; // above that line

/** A text that looks at itself stands on one line, from `left` on, if it fits in legible letters.
 * @param {Painter} painter
 * @param {Word[]} rows
 * @param {Word[] | null} cols null for a text that looks at itself
 * @param {number} width
 * @param {number} left
 * @returns {Lines}
 */
export function arranged(painter, rows, cols, width, left) {
  const n = rows.length + (cols?.length ?? 0);
  const narrow = width < 520;
  for (const size of cols ? [] : LINE_SIZES) {
    const one = paragraph(painter, rows, width, LINE_AIR, 0, { size }, left);
    if (one.bottom > LINE_AIR + 2 * size) continue;
    const boxes = { rows: one.boxes, cols: one.boxes };
    const bottom = one.bottom + 22;
    return {
      boxes, width, size, left, bottom, height: bottom, same: true, oneLine: true, air: LINE_AIR,
    };
  }
  const size = n <= 70 ? (narrow ? 18 : 25) : n <= 160 ? (narrow ? 16 : 19) : 15;
  const style = { size };
  // Space between lines of text, for curves.
  const roomy = n <= 70 ? (narrow ? 25 : 62) : n <= 160 ? 40 : 26;
  const air = cols ? 18 : roomy;
  const upper = paragraph(painter, rows, width, cols ? 22 : air, air, style);
  const lower = cols && paragraph(painter, cols, width, upper.bottom + 120, air, style);
  const boxes = { rows: upper.boxes, cols: (lower ?? upper).boxes };
  const bottom = (lower ?? upper).bottom + 22;
  return {
    boxes, width, size, left: 0, bottom, height: bottom, same: !cols, oneLine: false, air,
  };
}

/**
 * @param {Painter} painter
 * @param {Word[]} words
 * @param {number} width
 * @param {number} top
 * @param {number} air between lines
 * @param {{size: number}} style
 */
function paragraph(painter, words, width, top, air, style, left = 0) {
  const pad = Math.round(style.size * 0.28);
  const high = Math.round(style.size * 1.5);
  /** @type {Box[]} */
  const boxes = [];
  let x = left;
  let y = top;
  for (const word of words) {
    // As wide as when it is pinned, and bold.
    const wide = painter.measure(word.text, { ...style, weight: 600 });
    const w = Math.min(width, Math.ceil(wide) + 2 * pad);
    if (x > left && x + w > width) {
      x = left;
      y += high + air;
    }
    boxes.push({ x, y, w, h: high });
    x += w + Math.max(2, Math.round(style.size * 0.12));
  }
  return { boxes, bottom: y + high };
}

/** @param {Painter} painter @param {Lines} place @param {Look} look */
export function paintLines(painter, place, look, x0 = 0, y0 = 0) {
  const { boxes, size, same } = place;
  const paint = colours();
  const nCols = look.cols.length;
  /** @param {number} r @param {number} c */
  const at = (r, c) => look.weights[r * nCols + c];
  /** @param {Box} box */
  const moved = (box) => ({ ...box, x: box.x + x0, y: box.y + y0 });
  const focus = look.row ?? look.col;
  /** @param {number} i */
  const reading = (i) => (look.row !== null ? at(look.row, i) : at(i, look.col ?? 0));
  const targets = look.row !== null ? boxes.cols : boxes.rows;

  if (focus === null) {
    for (const { r, c, w } of strongest(look, at, same))
      join(painter, moved(boxes.rows[r]), moved(boxes.cols[c]), {
        strength: w / (look.scale.high || 1), stroke: paint.data, same, most: 0.75, air: place.air,
      });
  } else {
    const order = targets
      .map((_, i) => i)
      .filter((i) => reading(i) > 0 && !(same && i === focus) && i !== look.gone)
      .sort((a, b) => reading(b) - reading(a));
    const top = order.length ? reading(order[0]) : 0;
    const from = (look.row !== null ? boxes.rows : boxes.cols)[focus];
    for (const i of order.slice(0, MOST_LINES).reverse()) {
      if (reading(i) < FAINT * top) continue;
      const strength =
        look.scale.kind === "linear" ? Math.min(1, reading(i)) : look.scale.shade(reading(i)) / 255;
      const [a, b] = look.row !== null ? [from, targets[i]] : [targets[i], from];
      join(painter, moved(a), moved(b), {
        strength, stroke: paint.data, same, most: 1, air: place.air,
      });
    }
  }
  /** @type {("rows" | "cols")[]} */
  const sides = same ? ["cols"] : ["rows", "cols"];
  for (const side of sides) {
    const words = same ? look.cols : look[side];
    const shaded = focus !== null && (same || (look.row !== null) === (side === "cols"));
    boxes[side].forEach((box, i) => {
      const value = shaded ? reading(i) : Number.NaN;
      const mine = focus === i && (same || !shaded);
      wordAt(painter, moved(box), words[i].text, {
        value: mine && !same ? Number.NaN : value, mine, pinned: isPinned(look, side, i, same),
        scale: look.scale, size, paint,
      });
    });
  }
  if (focus !== null) {
    const from = (look.row !== null ? boxes.rows : boxes.cols)[focus];
    figures(painter, targets.map(moved), moved(from), reading, look, paint);
  }
}

/** @param {Look} look @param {"rows" | "cols"} side @param {number} i @param {boolean} same */
function isPinned({ pinned }, side, i, same) {
  if (same) return pinned.row === i || pinned.col === i;
  return side === "rows" ? pinned.row === i : pinned.col === i;
}

/**
 * @param {Painter} painter
 * @param {Box} box
 * @param {string} text
 * @param {{
 *   value: number, mine: boolean, pinned: boolean, scale: Look["scale"], size: number,
 *   paint: Colours,
 * }} of
 */
function wordAt(painter, box, text, { value, mine, pinned, scale, size, paint }) {
  const { x, y, w, h } = box;
  const shaded = scale.kind === "ratio" ? value > 1 : value > 0 && scale.shade(value) > 6;
  if (shaded) painter.rect(x, y, w, h, { fill: scale.colour(value), radius: 7 });
  // Lines pass behind words.
  else painter.rect(x + 2, y + 3, w - 4, h - 6, { fill: paint.panel, radius: 7, alpha: 0.72 });
  if (pinned)
    painter.rect(x + 1, y + 1, w - 2, h - 2, { stroke: paint.accent, width: 2.2, radius: 7 });
  else if (mine)
    painter.rect(x + 1, y + 1, w - 2, h - 2, {
      stroke: paint.accent, width: 1.2, radius: 7, alpha: 0.7,
    });
  painter.text(x + w / 2, y + h / 2, text, {
    size,
    align: "center",
    baseline: "middle",
    max: w - 4,
    weight: pinned ? 600 : 400,
    fill: shaded
      ? scale.ink(value)
      : pinned
        ? paint.accent
        : /^<.+>$/.test(text)
          ? paint.quiet
          : paint.ink,
  });
}

/** The numbers of the three words that matter most, on the side where no line arrives.
 * @param {Painter} painter
 * @param {Box[]} targets
 * @param {Box} from
 * @param {(i: number) => number} reading
 * @param {Look} look
 * @param {Colours} paint
 */
function figures(painter, targets, from, reading, look, paint) {
  const order = targets
    .map((_, i) => i)
    .filter((i) => reading(i) > 0)
    .sort((a, b) => reading(b) - reading(a));
  /** @type {{y: number, middle: number}[]} */
  const taken = []; // numbers side by side must not touch
  for (const i of order.slice(0, 3)) {
    const { x, y, w, h } = targets[i];
    const middle = x + w / 2;
    if (
      reading(i) < 0.08 * reading(order[0]) ||
      taken.some((one) => one.y === y && Math.abs(one.middle - middle) < 36)
    )
      continue;
    taken.push({ y, middle });
    const above = y < from.y - 2;
    const text = look.scale.kind === "ratio" ? `${three(reading(i))}×` : percent(reading(i));
    painter.text(middle, above ? y - 6 : y + h + 5, text, {
      size: 12, align: "center", baseline: above ? "bottom" : "top", fill: paint.quiet, weight: 600,
    });
  }
}

/** @param {Look} look @param {(r: number, c: number) => number} at @param {boolean} same */
function strongest(look, at, same) {
  /** @type {{r: number, c: number, w: number}[]} */
  const pairs = [];
  for (let r = 0; r < look.rows.length; r++)
    for (let c = 0; c < look.cols.length; c++) {
      const w = at(r, c);
      if (w > 0.12 * look.scale.high && !(same && r === c)) pairs.push({ r, c, w });
    }
  pairs.sort((a, b) => a.w - b.w);
  return pairs.slice(-Math.max(40, 3 * look.rows.length));
}

/**
 * @param {Painter} painter
 * @param {Box} a
 * @param {Box} b
 * @param {{strength: number, stroke: string, same: boolean, most: number, air: number}} of
 */
function join(painter, a, b, { strength, stroke, same, most, air }) {
  const style = { stroke, width: 0.8 + 4.2 * strength, alpha: most * (0.12 + 0.8 * strength) };
  const [x1, y1, cx1, cy1, cx2, cy2, x2, y2] = curveOf(a, b, same, air);
  painter.curve(x1, y1, cx1, cy1, cx2, cy2, x2, y2, style);
}

/** The curve from one word to another: its ends and what bends it.
 * @param {Box} a
 * @param {Box} b
 * @param {boolean} same
 * @param {number} air
 */
export function curveOf(a, b, same, air) {
  const ax = a.x + a.w / 2;
  const bx = b.x + b.w / 2;
  if (same && Math.abs(a.y - b.y) < 2) {
    const rise = 1.25 * Math.min(Math.max(54, 0.84 * air), 16 + 0.13 * Math.abs(ax - bx));
    return [ax, a.y - 2, ax, a.y - 2 - rise, bx, b.y - 2 - rise, bx, b.y - 2];
  }
  const down = b.y > a.y;
  const ay = down ? a.y + a.h + 2 : a.y - 2;
  const by = down ? b.y - 2 : b.y + b.h + 2;
  const bend = (by - ay) * 0.5;
  return [ax, ay, ax, ay + bend, bx, by - bend, bx, by];
}
