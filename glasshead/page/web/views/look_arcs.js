// The strongest looks of the pinned word as curves that a click cuts, and those that were cut.

import { h } from "../dom.js";
import { percent, t } from "../words.js";
import { cutsOf } from "./look_cut.js";
import { curveOf } from "./look_lines.js";
import { deserves } from "./look_strips.js";

/** @import { Book } from "./look.js" */
/** @import { Box, Lines } from "./look_lines.js" */
/** @typedef {{at: number, weight: number, cut: boolean}} Arc */

const SVG = "http://www.w3.org/2000/svg";
const MOST = 3; // that can be cut by a click; the others are faint
const HALF = 16; // pixels from the middle of a button to its edge
const SCISSORS =
  "M5 2.5 13.6 14M15 2.5 6.4 14M4.6 17.6a2.2 2.2 0 1 1 0-4.4 2.2 2.2 0 0 1 0 4.4" +
  "M15.4 17.6a2.2 2.2 0 1 1 0-4.4 2.2 2.2 0 0 1 0 4.4";
const BACK = "M4 9a6.5 6.5 0 1 1 1.6 6M4 3.6V9h5.4";

/** The arcs of the chosen head from the pinned word: what is there now, and what was cut.
 * @param {Book} book
 * @returns {Arc[]}
 */
export function arcsOf(book) {
  const { pin, rows, cols, weights, layer, head, same } = book;
  if (pin.row === null || book.dir === "to" || book.kind === "ratio") return [];
  const row = pin.row;
  const from = rows[row];
  const gone = cutsOf(book.cut).edges.filter(
    (edge) =>
      edge.layer === layer.index && (edge.head ?? head) === head &&
      edge.query <= from.start && from.stop <= edge.query_stop,
  );
  const cut = gone
    .map((edge) => cols.findIndex((word) => word.start <= edge.key && edge.key < word.stop))
    .filter((at) => at >= 0)
    .map((at) => ({ at, weight: 0, cut: true }));
  const live = cols
    .map((_, at) => ({ at, weight: weights[row * cols.length + at], cut: false }))
    .filter(({ at, weight }) => deserves(weight, cols.length) && !(same && at === row))
    .sort((a, b) => b.weight - a.weight)
    .slice(0, MOST);
  return [...live, ...cut];
}

/** @param {string} path */
function svg(path, size = 16) {
  const node = document.createElementNS(SVG, "svg");
  node.setAttribute("viewBox", "0 0 20 20");
  node.setAttribute("width", String(size));
  node.setAttribute("height", String(size));
  node.setAttribute("class", "sign");
  node.append(line(path));
  return node;
}

/** @param {string} d @param {string} kind */
function line(d, kind = "") {
  const node = document.createElementNS(SVG, "path");
  node.setAttribute("d", d);
  if (kind) node.setAttribute("class", kind);
  return node;
}

/** Where on a curve its button stands: as near to the middle as words and other buttons allow.
 * @param {number[]} curve
 * @param {Box[]} boxes that it should not cover
 */
export function buttonPlace([x1, y1, a, b, c, d, x2, y2], boxes) {
  let best = { x: 0, y: 0, covered: Infinity };
  for (const t of [0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74]) {
    const [p, q] = [1 - t, t];
    const x = p ** 3 * x1 + 3 * p * p * q * a + 3 * p * q * q * c + q ** 3 * x2;
    const y = p ** 3 * y1 + 3 * p * p * q * b + 3 * p * q * q * d + q ** 3 * y2;
    const covered = boxes.reduce((sum, box) => {
      const wide = Math.min(x + HALF, box.x + box.w) - Math.max(x - HALF, box.x);
      const high = Math.min(y + HALF, box.y + box.h) - Math.max(y - HALF, box.y);
      return sum + Math.max(0, wide) * Math.max(0, high);
    }, 0);
    if (covered < best.covered) best = { x, y, covered };
  }
  return best;
}

/**
 * @param {Book} book
 * @param {Lines} lines
 * @param {{cut: (at: number) => void, back: (at: number) => void}} of
 */
export function arcsOver(book, lines, { cut, back }) {
  const arcs = arcsOf(book);
  const field = document.createElementNS(SVG, "svg");
  field.setAttribute("class", "arcs");
  field.setAttribute("width", String(lines.width));
  field.setAttribute("height", String(lines.bottom));
  const from = lines.boxes.rows[book.pin.row ?? 0];
  /** @type {HTMLElement[]} */
  const buttons = [];
  const taken = [...new Set([...lines.boxes.rows, ...lines.boxes.cols])];
  arcs.forEach(({ at, weight, cut: severed }, n) => {
    const curve = curveOf(from, lines.boxes.cols[at], lines.same, lines.air);
    const [x1, y1, ...rest] = curve;
    const path = `M${x1} ${y1}C${rest.join(" ")}`;
    const words = { from: book.rows[book.pin.row ?? 0].text, to: book.cols[at].text };
    if (severed) {
      const ghost = line(path, "severed");
      ghost.setAttribute("pathLength", "1");
      field.append(ghost);
    } else {
      const hit = line(path, "arc");
      hit.addEventListener("click", () => snap(at, path));
      field.append(hit);
    }
    if (!severed && n > 0) return; // the others are cut by a click on the line itself
    const label = severed
      ? t("look.play.back", words)
      : t("look.play.arc", { ...words, weight: percent(weight) });
    const place = buttonPlace(curve, taken);
    taken.push({ x: place.x - HALF, y: place.y - HALF, w: 2 * HALF, h: 2 * HALF });
    buttons.push(
      h("button", {
        type: "button", class: `scissors ${severed ? "again" : ""}`, "aria-label": label,
        title: label, dataset: { word: words.to },
        style: { left: `${place.x}px`, top: `${place.y}px` },
        onclick: () => (severed ? back(at) : snap(at, path)),
      }, svg(severed ? BACK : SCISSORS)),
    );
  });

  /** The line breaks at once; the answer follows.
   * @param {number} at
   * @param {string} path
   */
  function snap(at, path) {
    const broken = line(path, "severed snap");
    broken.setAttribute("pathLength", "1");
    field.append(broken);
    cut(at);
  }
  return [field, ...buttons];
}
