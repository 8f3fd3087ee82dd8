// A card to share: the question, the sentence with its arcs, the answer, and one sentence on it.

import { colours } from "../scale.js";
import { language, percent, t } from "../words.js";
import { aboutOf, captionOf, sentences } from "./look_answer.js";
import { arcsOf } from "./look_arcs.js";
import { cutsOf } from "./look_cut.js";
import { arranged, curveOf, paintLines } from "./look_lines.js";
import { likeliest } from "./look_prediction.js";
import { nameOf, sameHead } from "./look_strips.js";

/** @import { Book } from "./look.js" */
/** @import { Look } from "./look_lines.js" */

const [WIDE, HIGH, SIDE] = [1200, 630, 64];
const PICTURE = { top: 138, bottom: 408 };
const SIZE = 21; // of the sentence that explains

/** @param {Painter} on @param {Book} book @param {Look} look @param {string} question */
export function paintCard(on, book, look, question) {
  const paint = colours();
  const room = WIDE - 2 * SIDE;
  on.size(WIDE, HIGH, paint.panel);
  on.rect(0, 0, 10, HIGH, { fill: paint.accent });
  on.text(SIDE, 58, aboutOf(book), { size: 19, fill: paint.quiet, max: room });
  on.text(SIDE, 108, question, { size: 42, weight: 600, fill: paint.ink, max: room });
  const lines = arranged(on, book.rows, book.same ? null : book.cols, room, 0);
  const high = lines.height + 26;
  const y = PICTURE.top + Math.max(0, (PICTURE.bottom - PICTURE.top - high) / 2);
  on.clip(0, PICTURE.top - 20, WIDE, PICTURE.bottom - PICTURE.top + 20, () => {
    severed(on, book, lines, SIDE, y);
    paintLines(on, lines, look, SIDE, y);
    const gloss = book.story?.gloss[language()];
    if (gloss)
      on.text(SIDE, y + lines.bottom + 14, gloss, { size: 17, fill: paint.quiet, max: room });
  });
  const said = answers(book);
  let x = SIDE;
  for (const { label, text, share, strong } of said) {
    on.text(x, 448, label, { size: 17, fill: paint.quiet });
    const size = text.length > 12 ? 34 : 52;
    on.text(x, 505, text, {
      size, weight: 600, fill: strong ? paint.accent : paint.ink, max: 300,
    });
    on.text(x, 537, share, { size: 17, fill: paint.quiet });
    x += Math.max(150, Math.min(300, on.measure(text, { size, weight: 600 }))) + 56;
  }
  const left = said.length ? x : SIDE;
  wrapped(on, sentence(book), WIDE - SIDE - left)
    .slice(0, 5)
    .forEach((line, n) => on.text(left, 452 + n * 29, line, { size: SIZE, fill: paint.ink }));
  on.line(SIDE, HIGH - 56, WIDE - SIDE, HIGH - 56, { stroke: paint.line });
  on.text(SIDE, HIGH - 26, t("look.card.foot"), { size: 16, fill: paint.quiet, max: room - 260 });
  on.text(WIDE - SIDE, HIGH - 26, "Glasshead", {
    size: 18, weight: 600, fill: paint.accent, align: "right",
  });
}

/** The looks that were cut: broken lines, under the words.
 * @param {Painter} on
 * @param {Book} book
 * @param {import("./look_lines.js").Lines} lines
 * @param {number} x
 * @param {number} y
 */
function severed(on, book, lines, x, y) {
  const { accent, panel } = colours();
  for (const { at, cut } of arcsOf(book)) {
    if (!cut) continue;
    const from = lines.boxes.rows[book.pin.row ?? 0];
    const to = lines.boxes.cols[at];
    const c = curveOf(from, to, lines.same, lines.air).map((v, i) => v + (i % 2 ? y : x));
    on.curve(c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7], {
      stroke: accent, width: 2, alpha: 0.7,
    });
    const [mx, my] = [0, 1].map((i) => (c[i] + 3 * c[i + 2] + 3 * c[i + 4] + c[i + 6]) / 8);
    on.rect(mx - 15, my - 12, 30, 24, { fill: panel });
    for (const s of [-1, 1])
      on.line(mx - 6, my - 6 * s, mx + 6, my + 6 * s, { stroke: accent, width: 2.5 });
  }
}

/** Which look was cut, and where: null where that takes more than a sentence.
 * @param {Book} book
 */
function cutOf(book) {
  const { heads, edges } = cutsOf(book.cut);
  const { pin, rows, cols, layers } = book;
  const from = rows[pin.row ?? 0];
  const keys = new Set(edges.map((edge) => edge.key));
  if (heads.length || keys.size !== 1 || edges.some((edge) => edge.query !== from.start))
    return null;
  const to = cols.find((word) => word.start === edges[0].key);
  const n = edges.reduce((sum, edge) => {
    const all = book.data.layers.find((one) => one.index === edge.layer)?.heads ?? 1;
    return sum + (edge.head === null ? all : 1);
  }, 0);
  const [{ layer, head }] = edges;
  const where =
    n >= layers.reduce((sum, one) => sum + one.heads, 0)
      ? t("look.card.all")
      : n === 1
        ? t("look.card.one", { head: `${layers.find((one) => one.index === layer)?.name}:${head}` })
        : t("look.card.some", { n });
  return to && { from: from.text, to: to.text, where };
}

/** What is seen on the card: which word is looked at how much, and what the answer needs.
 * @param {Book} book
 */
function sentence(book) {
  const { pin, rows, cols, from, dir, same, prediction } = book;
  const one = from && sameHead(from, { layer: book.layer.index, head: book.head });
  if (!one || pin.row === null || (dir === "to" && same)) return captionOf(book);
  const looked = t("look.see", {
    word: rows[pin.row].text, head: nameOf(book, one), to: cols[one.at].text,
    weight: percent(one.most),
  });
  const { first, then } = prediction ? likeliest(prediction.words) : { first: null, then: null };
  if (!first || !then) return sentences([looked, t("look.card.means")]);
  const words = { before: first.text.trim(), after: then.text.trim() };
  const key = first.id === then.id ? "look.card.still" : "look.card.changed";
  const cut = cutOf(book);
  if (!cut) return sentences([t(`${key}.some`, words), looked]);
  return sentences([t(key, { ...words, ...cut }), t("look.card.means")]);
}

/** What the model says, and after a cut what it says then.
 * @param {Book} book
 */
function answers({ prediction }) {
  if (!prediction) return [];
  const { first, then } = likeliest(prediction.words);
  const text = first.text.trim() || first.text;
  const before = { text, share: percent(first.before), strong: false };
  if (!then) return [{ ...before, label: t("look.answer") }];
  return [
    { ...before, label: t("look.cut.before") },
    {
      label: t("look.cut.after"), text: then.text.trim() || then.text,
      share: percent(then.after ?? 0), strong: then.id !== first.id,
    },
  ];
}

/** A text in lines of this width: broken at spaces, and between Chinese characters.
 * @param {Painter} on
 * @param {string} text
 * @param {number} width
 */
export function wrapped(on, text, width) {
  /** @type {string[]} */
  const lines = [];
  let line = "";
  for (const piece of text.match(/[^\s\u3000-\u9fff\uff00-\uffef]+\s*|\s+|./gu) ?? []) {
    // No line begins with a mark that closes what stands before it.
    const closes = /^[，。：；、！？”’）,.:;!?)]/u.test(piece);
    if (line && !closes && on.measure((line + piece).trimEnd(), { size: SIZE }) > width) {
      lines.push(line.trim());
      line = "";
    }
    line += piece;
  }
  return [...lines, line.trim()].filter(Boolean);
}
