// Every head as a strip: how it looks from the pinned word (or at it), aligned under the words
// where these stand on one line. After a cut each strip has two lanes: as it was, and as it is.

import { fill, h, tip } from "../dom.js";
import { colours, Scale } from "../scale.js";
import { percent, t, three } from "../words.js";

/** @import { Book } from "./look.js" */
/** @import { RankedHead, Ranking } from "./look_choice.js" */
/** @import { Box, Lines } from "./look_lines.js" */

/**
 * One strip: the head as it was (`before` is null without a cut) and as it is.
 * @typedef {{name: string, head: RankedHead, before: RankedHead | null, y: number}} Strip
 *
 * Where the strips stand. `marks` are words above them, where they are not aligned.
 * @typedef {object} Strips
 * @property {Strip[]} rows
 * @property {{x: number, w: number}[]} cells
 * @property {{x: number, text: string}[]} marks
 * @property {number} left
 * @property {number} top
 * @property {number} high of a row
 * @property {number} bottom
 * @property {number} width
 * @property {Scale} scale
 * @property {number} target the word that the heads are compared by, or -1
 */

export const LABEL = 46; // pixels for the name of a head
export const FEW = 8; // strips, unless all are asked for
const CARRIES = 0.15; // of its attention: such a head carries the word
const GAP = 4;

/** Whether a weight is worth naming: many times what it would be by chance.
 * @param {number} weight
 * @param {number} words
 */
export const deserves = (weight, words) => weight >= CARRIES && weight >= 2 / words;

/** @param {Book} book */
export const nameOf = (book, /** @type {RankedHead} */ one) =>
  `${book.data.layers.find((each) => each.index === one.layer)?.name}:${one.head}`;

/** The same head of another ranking.
 * @param {Ranking | null} ranking
 * @param {{layer: number, head: number}} one
 */
export const sameHead = (ranking, one) =>
  ranking?.heads.find((each) => each.layer === one.layer && each.head === one.head) ?? null;

/** The word that the answer was looked up at: where the chosen head looks most, without cuts.
 * @param {Book} book
 */
export function targetOf(book) {
  const ranking = book.before ?? book.from;
  if (book.dir === "to" || !ranking) return -1;
  const one = sameHead(ranking, { layer: book.layer.index, head: book.head });
  return one && deserves(one.most, one.weights.length) ? one.at : -1;
}

/** Heads that still look at the target, those that look most first.
 * @param {Book} book
 */
export function carriers(book) {
  const target = targetOf(book);
  if (target < 0 || !book.from) return [];
  /** @param {RankedHead} one */
  const weight = (one) => one.weights[target] ?? 0;
  return book.from.heads
    .filter((one) => deserves(weight(one), one.weights.length))
    .sort((a, b) => weight(b) - weight(a));
}

/** What shows more heads of a ranking, or fewer; it need not have all of a large model.
 * @param {Ranking} ranking
 * @param {boolean} all
 */
export function moreHeads({ heads, of }, all) {
  if (all) return t("look.rank.few");
  return t(of > heads.length ? "look.rank.most" : "look.rank.all", { n: heads.length, of });
}

/** @param {Book} book @param {boolean} all */
function shownHeads(book, all) {
  const ranking = book.dir === "to" && book.same ? book.to : book.from;
  if (!ranking) return [];
  const before = book.dir === "to" ? null : book.before;
  // By layer if there are few, so that no strip moves at a cut; else those that look hardest first.
  const many = ranking.heads.length > FEW && !all;
  const order = many
    ? (before ?? ranking).heads.slice(0, FEW)
    : [...ranking.heads].sort((a, b) => a.layer - b.layer || a.head - b.head);
  return order.flatMap((one) => {
    const head = sameHead(ranking, one);
    return head ? [{ head, before: sameHead(before, one) }] : [];
  });
}

/**
 * @param {Book} book
 * @param {Lines} lines
 * @param {number} top
 * @param {boolean} all
 * @returns {Strips | null}
 */
export function stripsUnder(book, lines, top, all) {
  const heads = shownHeads(book, all);
  if (!heads.length) return null;
  const others = book.dir === "to" && book.same ? book.rows : book.cols;
  const aligned = lines.oneLine;
  const left = aligned ? lines.left : LABEL - 8;
  const cells = aligned ? lines.boxes.cols.map(({ x, w }) => ({ x, w })) : squeezed();
  const cut = heads.some((one) => one.before);
  const narrow = lines.width < 520;
  const high = (cut ? (narrow ? 15 : 20) : narrow ? 12 : 17) + GAP;
  const target = targetOf(book);
  const marks = aligned ? [] : marked();
  const start = top + (marks.length ? 18 : 0);
  const rows = heads.map((one, i) => ({
    ...one, name: nameOf(book, one.head), y: start + i * high,
  }));
  const high0 = Math.max(
    ...rows.flatMap((row) => [row.head.most, row.before?.most ?? 0]), 1e-9,
  );
  const scale =
    book.kind === "ratio"
      ? Scale.of([], 1, "ratio")
      : new Scale(book.kind, book.kind === "log" ? high0 * 1e-4 : 0, high0);
  return {
    rows, cells, marks, left, top: start, high, scale, target, width: lines.width,
    bottom: start + rows.length * high,
  };

  function squeezed() {
    const size = others.map((word) => 1 + [...word.text].length);
    const unit = (lines.width - left) / size.reduce((a, b) => a + b, 0);
    let x = left;
    return size.map((n) => {
      const cell = { x, w: n * unit };
      x += n * unit;
      return cell;
    });
  }

  /** The pinned word and the one it looks at, over their places in the strips. */
  function marked() {
    const pin = book.same ? book.pin.row : null;
    const wanted = [target >= 0 ? target : null, pin].filter((at) => at !== null);
    const found = wanted.map((at) => ({
      x: Math.min(lines.width - 20, Math.max(left + 14, cells[at].x + cells[at].w / 2)),
      text: others[at].text,
    }));
    return found.length === 2 && Math.abs(found[0].x - found[1].x) < 56 ? [found[0]] : found;
  }
}

/** @param {Painter} painter @param {Strips} place @param {Book} book */
export function paintStrips(painter, place, book, x0 = 0, y0 = 0) {
  const paint = colours();
  const { rows, cells, marks, left, high, scale } = place;
  for (const { x, text } of marks)
    painter.text(x0 + x, y0 + place.top - 5, text, {
      size: 11, align: "center", baseline: "bottom", fill: paint.quiet, max: 90,
    });
  painter.text(x0 + left - 10, y0 + place.top - 5, t("look.strips"), {
    size: 11, align: "right", baseline: "bottom", fill: paint.quiet,
  });
  for (const { name, head, before, y } of rows) {
    const chosen = head.layer === book.layer.index && head.head === book.head;
    painter.text(x0 + left - 10, y0 + y + (high - GAP) / 2, name, {
      size: 12, align: "right", baseline: "middle", weight: chosen ? 600 : 400,
      fill: chosen ? paint.accent : paint.quiet,
    });
    const lanes = before ? [before, head] : [head];
    const tall = (high - GAP - (before ? 2 : 0)) / lanes.length;
    lanes.forEach((lane, n) =>
      cells.forEach(({ x, w }, i) => {
        const value = lane.weights[i] ?? Number.NaN;
        painter.rect(x0 + x + 0.5, y0 + y + n * (tall + 2), Math.max(1, w - 1), tall, {
          fill: Number.isNaN(value) ? paint.paper : scale.colour(value), radius: 2,
          alpha: before && n === 0 ? 0.45 : 1,
        });
      }),
    );
  }
}

/** Buttons over the strips: a strip chooses its head; where a head still carries the word after a
 * cut, a smaller one cuts that too.
 * @param {Strips} place
 * @param {Book} book
 * @param {{choose: (one: RankedHead) => void, cut: ((one: RankedHead) => void) | null}} of
 */
export function stripButtons(place, book, { choose, cut }) {
  const others = book.dir === "to" && book.same ? book.rows : book.cols;
  const still = new Set(book.before ? carriers(book) : []);
  const buttons = place.rows.map(({ name, head, before, y }) => {
    const weight = book.kind === "ratio" ? `${three(head.most)}×` : percent(head.most);
    const chosen = head.layer === book.layer.index && head.head === book.head;
    const node = h("button", {
      type: "button", class: "strip", "aria-pressed": String(chosen),
      "aria-label": t("look.rank.row", { head: name, word: others[head.at].text, weight }),
      dataset: { head: name, word: others[head.at].text },
      style: { left: "0", top: `${y - 1}px`, width: "100%", height: `${place.high}px` },
      onclick: () => choose(head),
    });
    node.addEventListener("pointermove", (event) => {
      const x = event.offsetX;
      const at = place.cells.findIndex((cell) => cell.x <= x && x < cell.x + cell.w);
      if (at < 0) return tip.hide();
      const was = before ? [`${number(before.weights[at])} → `] : [];
      tip.show(event, `${name} · ${others[at].text} `, h("b", {}, was, number(head.weights[at])));
    });
    node.addEventListener("pointerleave", () => tip.hide());
    return node;
  });
  const lit = place.rows
    .filter(({ head }) => cut && still.has(head))
    .map(({ name, head, y }) => {
      const { x, w } = place.cells[place.target];
      const word = others[place.target].text;
      const weight = percent(head.weights[place.target] ?? 0);
      return h("button", {
        type: "button", class: "lit", tabindex: -1,
        "aria-label": t("look.play.cut", { head: name, word, weight }),
        title: t("look.play.cut", { head: name, word, weight }), dataset: { head: name },
        style: {
          left: `${x - 3}px`, top: `${y - 2}px`, width: `${Math.max(22, w + 6)}px`,
          height: `${place.high}px`,
        },
        onclick: () => cut?.(head),
      });
    });
  return fill(h("div", { class: "strips-over" }), buttons, lit);

  /** @param {number | null} value */
  function number(value) {
    return value === null ? "–" : book.kind === "ratio" ? `${three(value)}×` : percent(value);
  }
}
