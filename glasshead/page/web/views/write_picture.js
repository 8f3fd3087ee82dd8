// The Write view as a picture: the scale beside the text, and the page that is saved.

import { h } from "../dom.js";
import { CanvasPainter } from "../paint.js";
import { colours } from "../scale.js";
import { percent, three } from "../words.js";
import { drawPaper } from "./write_paper.js";
import { visible } from "./write_side.js";

/**
 * The colours from 0 to the largest value, with their unit.
 * @param {import("../scale.js").Scale} scale
 * @param {string} how
 * @param {string} meaning
 * @returns {Child[]}
 */
export function ramp(scale, how, meaning) {
  const canvas = h("canvas", { "aria-hidden": "true" });
  const painter = new CanvasPainter(canvas).size(90, 10);
  const values = Float32Array.from({ length: 90 }, (_, n) => (scale.high * n) / 89);
  painter.cells(0, 0, 1, 10, values, 1, 90, scale);
  const high = how === "surprise" ? `≥${scale.high}` : three(scale.high);
  return ["0", canvas, `${high} ${meaning}`];
}

/**
 * The text on the left, and the likeliest tokens on the right below their title.
 * @param {Painter} painter
 * @param {import("./write_paper.js").Paper} paper
 * @param {{
 *   scale: import("../scale.js").Scale, title: string,
 *   list: import("./write_paper.js").Alternative[],
 * }} of
 */
export function paintWriting(painter, paper, { scale, title, list }) {
  const c = colours();
  const text = { x: 24, y: 8, w: 620, scale, colours: c };
  const high = drawPaper(painter.size(940, 100), paper, text); // only to measure it
  painter.size(940, Math.max(high, 34 * list.length + 40) + 20, c.paper);
  drawPaper(painter, paper, text);
  painter.text(676, 26, title, { size: 15, weight: 600, fill: c.ink, max: 240 });
  list.forEach((one, n) => {
    const y = 44 + 34 * n;
    const share = Math.exp(one.logprob ?? -Infinity);
    painter.rect(676, y, 240 * share, 28, { fill: c.data, alpha: 0.18, radius: 4 });
    painter.text(684, y + 19, visible(one.text), { size: 15, fill: c.ink, max: 160 });
    painter.text(908, y + 19, percent(share), { size: 13, fill: c.quiet, align: "right" });
  });
}
