// The first card: the question, the sentence with the looks of one head, every head as a strip
// under it, and beside it what the model says. Or one head as a matrix.

import { along, fill, h, segmented, spoken, tip, toggle } from "../dom.js";
import { CanvasPainter } from "../paint.js";
import { colours } from "../scale.js";
import { language, t, three } from "../words.js";
import { aboutOf, captionOf, playable, questionOf } from "./look_answer.js";
import { arcsOver } from "./look_arcs.js";
import { paintCard } from "./look_card.js";
import { drawLegend, spokenLooks } from "./look_legend.js";
import { arranged, paintLines } from "./look_lines.js";
import { cellAt, laid, paintMatrix } from "./look_matrix.js";
import {
  FEW, LABEL, moreHeads, paintStrips, stripButtons, stripsUnder,
} from "./look_strips.js";

/** @import { Book } from "./look.js" */
/** @import { Box, Lines, Look } from "./look_lines.js" */
/** @import { Matrix } from "./look_matrix.js" */
/** @import { Strips } from "./look_strips.js" */

/** @typedef {{row?: number, col?: number, cell?: {r: number, c: number}}} Hover */

const GLOSS = 24; // pixels for the line under the sentence

/**
 * @param {{
 *   set: (patch: Patch) => void, pick: (side: "row" | "col" | "none", i?: number) => void,
 *   cut: (layer: number, head: number, at: number) => void,
 *   back: (at: number) => void, answer: HTMLElement,
 * }} of
 */
export function headCard({ set, pick, cut, back, answer }) {
  /** @type {Book} */
  let book; // set by draw()
  /** @type {Hover | null} */
  let hover = null; // a word, or a cell of the matrix
  /** @type {Lines | null} */
  let lines = null; // where everything stands,
  /** @type {Matrix | null} */
  let matrix = null; // as one or the other
  /** @type {Strips | null} */
  let strips = null;
  let all = false; // strips
  /** @type {number | null} */
  let gone = null; // the word that an arc led to which has just been cut
  const about = h("p", { class: "eyebrow" });
  const title = h("h1", {});
  const hint = h("span", { class: "quiet small pin-line" });
  const caption = h("p", { class: "seen-here" });
  const shape = segmented({
    label: t("look.shape"),
    options: [
      ["lines", t("look.lines")], ["matrix", t("look.matrix")],
    ],
    value: "lines",
    onchange: (v) => set({ shape: v === "lines" ? null : v }),
  });
  const direction = segmented({
    label: t("look.direction"),
    options: [
      ["from", t("look.from")], ["to", t("look.to")],
    ],
    value: "from",
    onchange: (v) => set({ dir: v === "from" ? null : v }),
  });
  const switches = {
    log: toggle({
      label: t("look.log"),
      title: t("look.log.why"),
      value: false,
      onchange: (on) => set({ log: on, ...(on && { ratio: null }) }),
    }),
    nosink: toggle({
      label: t("look.nosink"),
      title: t("look.nosink.why"),
      value: false,
      onchange: (on) => set({ nosink: on }),
    }),
    ratio: toggle({
      label: t("look.ratio"),
      title: t("look.ratio.why"),
      value: false,
      onchange: (on) => set({ ratio: on, ...(on && { log: null }) }),
    }),
    tokens: toggle({
      label: t("look.tokens"),
      title: t("look.tokens.why"),
      value: false,
      onchange: (on) => set({ tokens: on, query: null, key: null, cut: null }),
    }),
  };
  const canvas = h("canvas", { "aria-hidden": "true" });
  const buttons = h("div", { class: "words-over" });
  const arcs = h("div", { class: "arcs-over" });
  const rows = h("div", {});
  const stage = h("div", { class: "stage" }, canvas, rows, arcs, buttons);
  const scroll = h("div", { class: "scroll" }, stage);
  const more = h("button", {
    type: "button", class: "plain more", onclick: () => ((all = !all), arrange(true)),
  });
  const said = spoken();
  const live = h("div", { class: "spoken", "aria-live": "polite" });
  const legend = h("div", { class: "legend" });
  const ways = h("details", { class: "ways" },
    h("summary", {}, t("look.ways")),
    h("div", { class: "row switches" }, shape, direction, Object.values(switches), legend),
  );
  const node = h(
    "section",
    { class: "card head-card" },
    about,
    title,
    h("div", { class: "first-view" }, h("div", { class: "picture" }, scroll, more), answer),
    said,
    live,
    caption,
    h("footer", {}, ways, hint, shareButton()),
  );
  const painter = new CanvasPainter(canvas);
  const watcher = new ResizeObserver(() => requestAnimationFrame(() => book && arrange()));
  watcher.observe(scroll);
  let width = 0;

  function arrange(force = false) {
    const now = Math.floor(scroll.clientWidth);
    if (!book || !now || (!force && now === width)) return;
    width = now;
    lines = matrix = strips = null;
    fill(rows);
    fill(arcs);
    if (book.shape === "lines") {
      lines = arranged(painter, book.rows, book.same ? null : book.cols, width, LABEL);
      const gloss = book.story?.gloss[language()] ? GLOSS : 0;
      strips = stripsUnder(book, lines, lines.bottom + gloss + 2, all);
      lines.height = strips ? strips.bottom + 4 : lines.bottom + gloss + 8;
      over(lines);
      if (strips)
        fill(rows, stripButtons(strips, book, { choose, cut: playable(book) ? cutToo : null }));
      if (playable(book)) fill(arcs, arcsOver(book, lines, { cut: sever, back }));
    } else {
      matrix = laid(painter, book.rows, book.cols, width);
      fill(buttons, grid);
    }
    const ranking = book.dir === "to" && book.same ? book.to : book.from;
    more.hidden = !strips || (ranking?.heads.length ?? 0) <= FEW;
    more.textContent = ranking && moreHeads(ranking, all);
    const place = lines ?? matrix;
    stage.style.width = `${place?.width}px`;
    stage.style.height = `${place?.height}px`;
    stage.classList.toggle("matrix", !lines);
    // No further than the pinned row asks for, so that the words above stay in sight.
    if (matrix && book.pin.row !== null)
      scroll.scrollTop = matrix.top + (book.pin.row + 2) * matrix.cell - scroll.clientHeight;
    paint();
  }

  /** @param {import("./look_choice.js").RankedHead} one */
  function choose(one) {
    set({ layer: one.layer, head: one.head });
  }

  /** Cuts in another head what was cut in this one.
   * @param {import("./look_choice.js").RankedHead} one
   */
  function cutToo(one) {
    if (strips) cut(one.layer, one.head, strips.target);
  }

  /** @param {number} at */
  function sever(at) {
    gone = at;
    paint();
    cut(book.layer.index, book.head, at);
  }

  /** Buttons over the painted words: for the keyboard, the screen reader and the pointer.
   * @param {Lines} place
   */
  function over(place) {
    /** @param {"row" | "col"} side @returns {(box: Box, i: number) => HTMLElement} */
    const one = (side) => (box, i) => {
      const word = (side === "row" ? book.rows : book.cols)[i];
      const enter = () => ((hover = { [side]: i }), paint());
      const leave = () => ((hover = null), paint());
      const pinned = book.pin[side] === i || (book.same && book.pin.row === i);
      return h("button", {
        type: "button",
        class: "word",
        tabindex: pinned ? 0 : -1,
        "aria-label": t("look.word", { word: word.text, n: i + 1 }),
        "aria-pressed": String(pinned),
        dataset: { side, word: word.text },
        style: { left: `${box.x}px`, top: `${box.y}px`, width: `${box.w}px`, height: `${box.h}px` },
        onclick: () => pick(side, i),
        onmouseenter: enter,
        onmouseleave: leave,
        /** @param {{target: Element}} event */
        onfocus: (event) => event.target.matches(":focus-visible") && enter(),
        onblur: leave,
      });
    };
    const focused = [...buttons.children].findIndex((each) => each === document.activeElement);
    const words = [
      ...place.boxes.rows.map(one("row")),
      ...(book.same ? [] : place.boxes.cols.map(one("col"))),
    ];
    fill(buttons, words);
    if (!words.some((one) => one.tabIndex === 0) && words[0]) words[0].tabIndex = 0;
    if (focused >= 0) words[focused]?.focus({ preventScroll: true });
  }

  // A sentence is one stop of the Tab key; arrows move along its words.
  buttons.addEventListener("keydown", (event) => {
    const words = /** @type {HTMLElement[]} */ ([...buttons.querySelectorAll(".word")]);
    const at = words.length ? along(event, words) : null; // a matrix has none
    if (at !== null) words.forEach((one, i) => (one.tabIndex = i === at ? 0 : -1));
  });
  rows.addEventListener("keydown", (event) => {
    const one = /** @type {HTMLElement[]} */ ([...rows.querySelectorAll(".strip")]);
    along(event, one);
  });

  const grid = h("div", {
    class: "cells-over", tabindex: 0, role: "application", "aria-label": t("look.matrix.label"),
  });
  grid.addEventListener("pointermove", (event) => {
    if (matrix) point(cellAt(matrix, book, event.offsetX, event.offsetY), event);
  });
  grid.addEventListener("pointerleave", () => point(null));
  grid.addEventListener("click", (event) => {
    if (!matrix) return;
    const { left, top, cell } = matrix;
    const at = cellAt(matrix, book, event.offsetX, event.offsetY);
    const row = Math.floor((event.offsetY - top) / cell);
    const col = Math.floor((event.offsetX - left) / cell);
    if (at) pick("row", at.r);
    else if (event.offsetX < left && book.rows[row]) pick("row", row);
    else if (event.offsetY < top && book.cols[col]) pick("col", col);
  });
  grid.addEventListener("blur", () => point(null));
  grid.addEventListener("keydown", (event) => {
    const step = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[
      event.key
    ];
    const at = hover?.cell ?? { r: book.pin.row ?? 0, c: book.pin.col ?? 0 };
    if (event.key === "Enter") pick("row", at.r);
    if (!step || !matrix) return;
    event.preventDefault();
    const r = Math.min(book.rows.length - 1, Math.max(0, at.r + step[0]));
    const c = Math.min(book.cols.length - 1, Math.max(0, at.c + step[1]));
    const corner = grid.getBoundingClientRect();
    const clientX = corner.left + matrix.left + (c + 1) * matrix.cell;
    const clientY = corner.top + matrix.top + (r + 1) * matrix.cell;
    point({ r, c }, { clientX, clientY });
    fill(live, told(r, c));
  });

  /** @param {{r: number, c: number} | null} cell @param {Spot} [spot] */
  function point(cell, spot) {
    hover = cell && { cell };
    if (cell && spot) tip.show(spot, told(cell.r, cell.c));
    else tip.hide();
    paint();
  }

  /** @param {number} r @param {number} c */
  function told(r, c) {
    const value = book.weights[r * book.cols.length + c];
    const names = { from: book.rows[r].text, to: book.cols[c].text };
    if (Number.isNaN(value)) return `${names.from} → ${names.to}: ${t("look.nothing")}`;
    return t(book.scale.kind === "ratio" ? "look.times" : "look.weight", {
      ...names, weight: three(value),
    });
  }

  /** @returns {Look} */
  function seen() {
    const { pin, same, dir } = book;
    let focus = { row: hover?.row ?? null, col: hover?.col ?? null };
    if (focus.row === null && focus.col === null)
      focus = { row: pin.row, col: pin.row === null ? pin.col : null };
    if (same && dir === "to" && focus.row !== null) focus = { row: null, col: focus.row };
    const pinned =
      same && dir === "to" && book.shape === "matrix" ? { row: null, col: pin.row } : pin;
    return { ...book, ...focus, pinned, cell: hover?.cell ?? null, gone };
  }

  function paint() {
    const place = lines ?? matrix;
    if (!place || !book) return;
    painter.size(place.width, place.height);
    paintOn(painter, seen(), 0, 0);
  }

  /** @param {Painter} on @param {Look} look @param {number} x @param {number} y */
  function paintOn(on, look, x, y) {
    if (matrix) paintMatrix(on, matrix, look, x, y);
    if (!lines) return;
    paintLines(on, lines, look, x, y);
    const gloss = book.story?.gloss[language()];
    if (gloss)
      on.text(x + lines.left, y + lines.bottom + 8, gloss, {
        size: 14, baseline: "middle", fill: colours().quiet, max: lines.width - lines.left,
      });
    if (strips) paintStrips(on, strips, book, x, y);
  }

  function describe() {
    const look = seen();
    const focus = look.row ?? look.col;
    about.textContent = aboutOf(book);
    fill(title, questionOf(book));
    fill(caption, captionOf(book));
    const pinned =
      book.pin.row !== null
        ? book.rows[book.pin.row]
        : book.pin.col !== null
          ? book.cols[book.pin.col]
          : null;
    const named = h("span", { class: "head-name" }, headName());
    fill(
      hint,
      pinned
        ? [
            named,
            " · ",
            h("span", { class: "pinned-name" }, t("look.pinned", { word: pinned.text })),
            " ",
            h(
              "button",
              { type: "button", class: "plain unpin", onclick: () => pick("none") },
              t("look.unpin"),
            ),
          ]
        : named,
    );
    if (focus === null) fill(said);
    else fill(said, spokenLooks(look, focus));
  }

  function headName() {
    const [part, number] = book.layer.name.split(".");
    return number === undefined
      ? t("look.head", { layer: part, head: book.head })
      : t("look.head.of", { part: t(`look.part.${part}`), layer: number, head: book.head });
  }

  return {
    node,
    /** @param {Book} next */
    draw(next) {
      book = next;
      hover = gone = null;
      tip.hide();
      if (book.shape === "matrix" || Object.values(book.switches).some(Boolean)) ways.open = true;
      shape.value = book.shape;
      direction.value = book.dir;
      direction.hidden = !book.same;
      for (const [name, node] of Object.entries(switches))
        node.value = Boolean(book.switches[name]);
      describe();
      drawLegend(legend, book.scale);
      arrange(true);
    },
    end: () => (watcher.disconnect(), tip.hide()),
    /** @param {Painter} on */
    card: (on) => ((hover = null), paintCard(on, book, seen(), title.textContent ?? "")),
    /** What is on this card, on any painter.
     * @param {Painter} on
     */
    picture(on) {
      const place = lines ?? matrix;
      if (!place) return null;
      hover = null;
      const look = seen();
      on.size(place.width + 48, place.height + 8, colours().panel);
      paintOn(on, look, 24, 4);
      const word =
        look.row !== null ? book.rows[look.row] : look.col !== null ? book.cols[look.col] : null;
      return {
        title: word
          ? t(look.row !== null ? "look.rank.from" : "look.rank.to", { word: word.text })
          : headName(),
        about: headName(),
      };
    },
  };
}

function shareButton() {
  const share = new CustomEvent("share", { bubbles: true }); // main.js makes the card
  return h("button", {
    type: "button", class: "plain share-button", title: t("look.share.why"),
    onclick: (/** @type {Event} */ { target }) => target?.dispatchEvent(share),
  }, t("look.share"));
}
