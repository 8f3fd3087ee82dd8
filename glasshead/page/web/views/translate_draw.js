// Two texts and what the one looked at in the other, for any painter: as lines, and as a matrix.
//
// Both give the boxes of what can be pointed at: words, and cells of the matrix.

import { h } from "../dom.js";
import { CanvasPainter } from "../paint.js";
import { Scale } from "../scale.js";

/**
 * Weights (T × S) between S words of the source and T words of the target.
 * @typedef {{source: string[], target: string[], weights: Float32Array}} WeightMap
 *
 * @typedef {"source" | "target"} Side
 * @typedef {{side: Side, at: number}} Pin
 *
 * @typedef {{x: number, y: number, w: number, h: number}} Area
 * @typedef {Area & Pin} WordBox
 * @typedef {Area & {side?: undefined, row: number, col: number}} CellBox
 * @typedef {WordBox | CellBox} Box
 *
 * @typedef {object} Options
 * @property {number} [x]
 * @property {number} [y]
 * @property {number} w
 * @property {Pin | null} pin
 * @property {{source: number, target: number | null} | null} marked
 * @property {Colours} colours
 */

const LEAST = 0.02; // lines that are fainter would not be seen
const ROW = 27;
const MARK = 6;
const THUMB = 84;

/** @param {WeightMap} map @param {number} w */
export function linesSize(map, w) {
  return { w: Math.min(w, 720), h: ROW * Math.max(map.source.length, map.target.length) + 20 };
}

/** @param {Painter} painter @param {WeightMap} map @param {Options} options */
export function drawLines(painter, map, { x = 0, y = 0, w, pin, marked, colours }) {
  const { source, target, weights } = map;
  const S = source.length;
  const height = ROW * Math.max(S, target.length) + 20;
  /** @param {string[]} list */
  const column = (list) =>
    Math.min(
      0.36 * w,
      Math.max(40, ...list.map((word) => painter.measure(shown(word), { size: 14 }) + 18)),
    );
  const [left, right] = [x + column(source), x + w - column(target)];
  /** @param {string[]} list */
  const top = (list) => y + (height - ROW * list.length) / 2 + ROW / 2;
  const [sourceTop, targetTop] = [top(source), top(target)];
  /** @type {WordBox[]} */
  const boxes = [];

  for (let row = 0; row < target.length; row++)
    for (let col = 0; col < S; col++) {
      const weight = weights[row * S + col];
      if (!(weight >= LEAST)) continue;
      const on = !pin || (pin.side === "target" ? pin.at === row : pin.at === col);
      const [y1, y2] = [targetTop + ROW * row, sourceTop + ROW * col];
      const middle = (left + right) / 2;
      painter.curve(right - MARK, y1, middle, y1, middle, y2, left + MARK, y2, {
        stroke: pin && on ? colours.accent : colours.data, width: 0.6 + 3.4 * weight,
        alpha: on ? 0.12 + 0.88 * weight : 0.12 * weight + 0.02,
      });
    }
  const strength = pin && strengths(map, pin);
  /** @param {string[]} list @param {Side} side @param {number} edge @param {number} first */
  const words = (list, side, edge, first) =>
    list.forEach((word, at) => {
      const own = pin?.side === side && pin.at === at;
      const seen = strength && pin?.side !== side ? strength[at] : 0;
      const mark = marked?.[side] === at;
      const middle = first + ROW * at;
      const wide = Math.min(
        column(list) - 6,
        painter.measure(shown(word), { size: 14, weight: own ? 600 : 400 }) + 12,
      );
      const start = side === "source" ? edge - wide : edge;
      if (own)
        painter.rect(start, middle - ROW / 2 + 2, wide, ROW - 4, {
          fill: colours.accent, radius: 6,
        });
      else if (seen > LEAST)
        painter.rect(start, middle - ROW / 2 + 2, wide, ROW - 4, {
          fill: colours.accent, radius: 6, alpha: 0.08 + 0.4 * seen,
        });
      if (mark && !own)
        painter.rect(start, middle - ROW / 2 + 2, wide, ROW - 4, {
          stroke: colours.accent, radius: 6, width: 1.4,
        });
      painter.text(side === "source" ? edge - 6 : edge + 6, middle, shown(word), {
        size: 14,
        weight: own ? 600 : 400,
        fill: own ? colours.paper : colours.ink,
        align: side === "source" ? "right" : "left",
        baseline: "middle",
        max: column(list) - 16,
        alpha: pin && !own && !(seen > LEAST) && pin.side !== side ? 0.45 : 1,
      });
      boxes.push({
        x: side === "source" ? x : right, y: middle - ROW / 2, w: column(list), h: ROW, side, at,
      });
    });
  words(source, "source", left, sourceTop);
  words(target, "target", right, targetTop);
  return { boxes, height };
}

/** @param {WeightMap} map @param {number} w @param {Painter} painter */
export function matrixSize(map, w, painter) {
  const { left, top } = margins(map, painter);
  const size = Math.max(11, Math.min(27, (w - left - 8) / map.source.length));
  return {
    w: left + size * map.source.length + 8,
    h: top + size * map.target.length + 8,
    left,
    top,
    size,
  };
}

/** @param {Painter} painter @param {WeightMap} map @param {Options} options */
export function drawMatrix(painter, map, { x = 0, y = 0, w, pin, marked, colours }) {
  const { source, target, weights } = map;
  const { left, top, size, w: width, h: height } = matrixSize(map, w, painter);
  const [x0, y0] = [x + left, y + top];
  const scale = Scale.of(weights, source.length, "linear");
  painter.cells(x0, y0, size, size, weights, target.length, source.length, scale);
  const letters = Math.max(9, Math.min(13, size - 4));
  /** @type {Box[]} */
  const boxes = [];
  source.forEach((word, col) => {
    const on = (pin?.side === "source" && pin.at === col) || (!pin && marked?.source === col);
    painter.text(x0 + size * (col + 0.5) + 2, y0 - 6, shown(word), {
      size: letters, rotate: -Math.PI / 3.2, fill: on ? colours.accent : colours.ink,
      weight: on ? 600 : 400, max: 130,
    });
    boxes.push({ x: x0 + size * col, y, w: size, h: top, side: "source", at: col });
  });
  target.forEach((word, row) => {
    const on = (pin?.side === "target" && pin.at === row) || (!pin && marked?.target === row);
    painter.text(x0 - 8, y0 + size * (row + 0.5), shown(word), {
      size: letters, align: "right", baseline: "middle", fill: on ? colours.accent : colours.ink,
      weight: on ? 600 : 400, max: 150,
    });
    boxes.push({ x, y: y0 + size * row, w: left, h: size, side: "target", at: row });
    for (let col = 0; col < source.length; col++)
      boxes.push({ x: x0 + size * col, y: y0 + size * row, w: size, h: size, row, col });
  });
  if (pin) {
    const [n, m] = [size * source.length, size * target.length];
    if (pin.side === "target")
      painter.rect(x0 - 1, y0 + size * pin.at - 1, n + 2, size + 2, {
        stroke: colours.accent, width: 1.6, radius: 3,
      });
    else
      painter.rect(x0 + size * pin.at - 1, y0 - 1, size + 2, m + 2, {
        stroke: colours.accent, width: 1.6, radius: 3,
      });
  }
  return { boxes, width, height, high: scale.high };
}

/** A small picture of a map, without words.
 * @param {WeightMap} map
 */
export function thumbnail({ source, target, weights }) {
  const [T, S] = [target.length, source.length];
  const cell = Math.max(2, Math.min(8, Math.floor(THUMB / Math.max(S, T))));
  const canvas = h("canvas", { "aria-hidden": "true" });
  const painter = new CanvasPainter(canvas).size(cell * S, cell * T);
  painter.cells(0, 0, cell, cell, weights, T, S, Scale.of(weights, S, "linear"));
  return canvas;
}

/** @param {WeightMap} map @param {Painter} painter */
function margins(map, painter) {
  /** @param {string[]} list @param {number} most */
  const widest = (list, most) =>
    Math.min(most, Math.max(20, ...list.map((word) => painter.measure(shown(word), { size: 13 }))));
  return {
    left: widest(map.target, 150) + 14,
    top: widest(map.source, 130) * Math.sin(Math.PI / 3.2) + 22,
  };
}

/** How much each word of the other side has to do with the pinned one.
 * @param {WeightMap} map
 * @param {Pin} pin
 */
function strengths({ weights, source, target }, { side, at }) {
  const S = source.length;
  if (side === "target") return Array.from(source, (_, col) => weights[at * S + col]);
  return Array.from(target, (_, row) => weights[row * S + at]);
}

/** @param {WeightMap} map @param {Pin} pin */
export function ranked(map, pin, most = 4) {
  const words = pin.side === "target" ? map.source : map.target;
  const found = strengths(map, pin).map((weight, at) => ({ word: shown(words[at]), weight }));
  return found
    .sort((a, b) => b.weight - a.weight)
    .slice(0, most)
    .filter((one) => one.weight >= LEAST);
}

/** @param {string} word */
export function shown(word) {
  return word.replaceAll("\n", "↵").replaceAll("\t", "⇥") || "∅";
}
