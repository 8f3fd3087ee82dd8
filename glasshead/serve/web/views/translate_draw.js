// Two texts and what the one looked at in the other, for any painter: as lines, and as a matrix.
//
// A map is {source: [S words], target: [T words], weights: Float32Array (T × S)}. `pin` is {side: "target" | "source", at} or null.
// Both give the boxes of what can be pointed at: {x, y, w, h, side, at} or {…, row, col}.

import { Scale } from "../scale.js";

const LEAST = 0.02; // lines that are fainter would not be seen
const ROW = 27;
const MARK = 6;

export function linesSize(map, w) {
  return { w: Math.min(w, 720), h: ROW * Math.max(map.source.length, map.target.length) + 20 };
}

export function drawLines(painter, map, { x = 0, y = 0, w, pin, marked, colours }) {
  const { source, target, weights } = map;
  const S = source.length;
  const height = ROW * Math.max(S, target.length) + 20;
  const column = (list) => Math.min(0.36 * w, Math.max(40, ...list.map((word) => painter.measure(shown(word), { size: 14 }) + 18)));
  const [left, right] = [x + column(source), x + w - column(target)];
  const top = (list) => y + (height - ROW * list.length) / 2 + ROW / 2;
  const [sourceTop, targetTop] = [top(source), top(target)];
  const boxes = [];

  for (let row = 0; row < target.length; row++)
    for (let col = 0; col < S; col++) {
      const weight = weights[row * S + col];
      if (!(weight >= LEAST)) continue;
      const on = !pin || (pin.side === "target" ? pin.at === row : pin.at === col);
      const [y1, y2] = [targetTop + ROW * row, sourceTop + ROW * col];
      const middle = (left + right) / 2;
      painter.curve(right - MARK, y1, middle, y1, middle, y2, left + MARK, y2, {
        stroke: pin && on ? colours.accent : colours.data,
        width: 0.6 + 3.4 * weight,
        alpha: on ? 0.12 + 0.88 * weight : 0.12 * weight + 0.02,
      });
    }
  const strength = pin && strengths(map, pin);
  const words = (list, side, edge, first) =>
    list.forEach((word, at) => {
      const own = pin?.side === side && pin.at === at;
      const seen = strength && pin.side !== side ? strength[at] : 0;
      const mark = marked?.[side] === at;
      const middle = first + ROW * at;
      const wide = Math.min(column(list) - 6, painter.measure(shown(word), { size: 14, weight: own ? 600 : 400 }) + 12);
      const start = side === "source" ? edge - wide : edge;
      if (own) painter.rect(start, middle - ROW / 2 + 2, wide, ROW - 4, { fill: colours.accent, radius: 6 });
      else if (seen > LEAST) painter.rect(start, middle - ROW / 2 + 2, wide, ROW - 4, { fill: colours.accent, radius: 6, alpha: 0.08 + 0.4 * seen });
      if (mark && !own) painter.rect(start, middle - ROW / 2 + 2, wide, ROW - 4, { stroke: colours.accent, radius: 6, width: 1.4 });
      painter.text(side === "source" ? edge - 6 : edge + 6, middle, shown(word), {
        size: 14, weight: own ? 600 : 400, fill: own ? colours.paper : colours.ink, align: side === "source" ? "right" : "left",
        baseline: "middle", max: column(list) - 16, alpha: pin && !own && !(seen > LEAST) && pin.side !== side ? 0.45 : 1,
      });
      boxes.push({ x: side === "source" ? x : right, y: middle - ROW / 2, w: column(list), h: ROW, side, at });
    });
  words(source, "source", left, sourceTop);
  words(target, "target", right, targetTop);
  return { boxes, height };
}

export function matrixSize(map, w, painter) {
  const { left, top } = margins(map, painter);
  const size = Math.max(11, Math.min(27, (w - left - 8) / map.source.length));
  return { w: left + size * map.source.length + 8, h: top + size * map.target.length + 8, left, top, size };
}

export function drawMatrix(painter, map, { x = 0, y = 0, w, pin, marked, colours }) {
  const { source, target, weights } = map;
  const { left, top, size, w: width, h: height } = matrixSize(map, w, painter);
  const [x0, y0] = [x + left, y + top];
  const scale = Scale.of(weights, source.length, "linear");
  painter.cells(x0, y0, size, size, weights, target.length, source.length, scale);
  const letters = Math.max(9, Math.min(13, size - 4));
  const boxes = [];
  source.forEach((word, col) => {
    const on = (pin?.side === "source" && pin.at === col) || (!pin && marked?.source === col);
    painter.text(x0 + size * (col + 0.5) + 2, y0 - 6, shown(word), { size: letters, rotate: -Math.PI / 3.2, fill: on ? colours.accent : colours.ink, weight: on ? 600 : 400, max: 130 });
    boxes.push({ x: x0 + size * col, y, w: size, h: top, side: "source", at: col });
  });
  target.forEach((word, row) => {
    const on = (pin?.side === "target" && pin.at === row) || (!pin && marked?.target === row);
    painter.text(x0 - 8, y0 + size * (row + 0.5), shown(word), { size: letters, align: "right", baseline: "middle", fill: on ? colours.accent : colours.ink, weight: on ? 600 : 400, max: 150 });
    boxes.push({ x, y: y0 + size * row, w: left, h: size, side: "target", at: row });
    for (let col = 0; col < source.length; col++) boxes.push({ x: x0 + size * col, y: y0 + size * row, w: size, h: size, row, col });
  });
  if (pin) {
    const [n, m] = [size * source.length, size * target.length];
    if (pin.side === "target") painter.rect(x0 - 1, y0 + size * pin.at - 1, n + 2, size + 2, { stroke: colours.accent, width: 1.6, radius: 3 });
    else painter.rect(x0 + size * pin.at - 1, y0 - 1, size + 2, m + 2, { stroke: colours.accent, width: 1.6, radius: 3 });
  }
  return { boxes, width, height, high: scale.high };
}

function margins(map, painter) {
  const widest = (list, most) => Math.min(most, Math.max(20, ...list.map((word) => painter.measure(shown(word), { size: 13 }))));
  return { left: widest(map.target, 150) + 14, top: widest(map.source, 130) * Math.sin(Math.PI / 3.2) + 22 };
}

// How much each word of the other side has to do with the pinned one.
function strengths({ weights, source, target }, { side, at }) {
  const S = source.length;
  if (side === "target") return Array.from(source, (_, col) => weights[at * S + col]);
  return Array.from(target, (_, row) => weights[row * S + at]);
}

export function ranked(map, pin, most = 4) {
  const words = pin.side === "target" ? map.source : map.target;
  const found = strengths(map, pin).map((weight, at) => ({ word: shown(words[at]), weight }));
  return found.sort((a, b) => b.weight - a.weight).slice(0, most).filter((one) => one.weight >= LEAST);
}

export function shown(word) {
  return word.replaceAll("\n", "↵").replaceAll("\t", "⇥") || "∅";
}
