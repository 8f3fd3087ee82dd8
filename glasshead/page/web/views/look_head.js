// The card of one head: lines or matrix, and how they are shown.

import { fill, h, segmented, spoken, tip, toggle } from "../dom.js";
import { CanvasPainter, pen } from "../paint.js";
import { colours, palette } from "../scale.js";
import { percent, t, three } from "../words.js";
import { arranged, paintLines } from "./look_lines.js";
import { cellAt, laid, paintMatrix } from "./look_matrix.js";

/** @import { Book } from "./look.js" */
/** @import { Box, Lines, Look } from "./look_lines.js" */
/** @import { Matrix } from "./look_matrix.js" */

/** @typedef {{row?: number, col?: number, cell?: {r: number, c: number}}} Hover */

/**
 * @param {{
 *   set: (patch: Patch) => void, pick: (side: "row" | "col" | "none", i?: number) => void,
 * }} of
 */
export function headCard({ set, pick }) {
  /** @type {Book} */
  let book; // set by draw()
  /** @type {Hover | null} */
  let hover = null; // a word, or a cell of the matrix
  /** @type {Lines | null} */
  let lines = null; // where everything stands,
  /** @type {Matrix | null} */
  let matrix = null; // as one or the other
  const title = h("h2", {});
  const hint = h("p", { class: "quiet small pin-line" });
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
  const stage = h("div", { class: "stage" }, canvas, buttons);
  const scroll = h("div", { class: "scroll" }, stage);
  const said = spoken();
  const live = h("div", { class: "spoken", "aria-live": "polite" });
  const legend = h("div", { class: "legend" });
  const node = h(
    "section",
    { class: "card head-card" },
    h("header", {}, h("div", { class: "titles" }, title, hint), direction, shape),
    scroll,
    said,
    live,
    h(
      "footer",
      { class: "row switches" },
      Object.values(switches),
      h("span", { class: "grow" }),
      legend,
    ),
  );
  const painter = new CanvasPainter(canvas);
  const watcher = new ResizeObserver(() => requestAnimationFrame(() => book && arrange()));
  watcher.observe(scroll);
  let width = 0;

  function arrange(force = false) {
    const now = Math.floor(scroll.clientWidth);
    if (!book || !now || (!force && now === width)) return;
    width = now;
    lines = matrix = null;
    if (book.shape === "lines") {
      lines = arranged(painter, book.rows, book.same ? null : book.cols, width);
      over(lines);
    } else {
      matrix = laid(painter, book.rows, book.cols, width);
      fill(buttons, grid);
    }
    const place = lines ?? matrix;
    stage.style.width = `${place?.width}px`;
    stage.style.height = `${place?.height}px`;
    stage.classList.toggle("matrix", !lines);
    paint();
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
      return h("button", {
        type: "button",
        class: "word",
        "aria-label": t("look.word", { word: word.text, n: i + 1 }),
        "aria-pressed": String(book.pin[side] === i || (book.same && book.pin.row === i)),
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
    const all = [
      ...place.boxes.rows.map(one("row")),
      ...(book.same ? [] : place.boxes.cols.map(one("col"))),
    ];
    fill(buttons, all);
    if (focused >= 0) all[focused]?.focus({ preventScroll: true });
  }

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
    live.textContent = told(r, c);
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
    return { ...book, ...focus, pinned, cell: hover?.cell ?? null };
  }

  function paint() {
    const place = lines ?? matrix;
    if (!place || !book) return;
    painter.size(place.width, place.height);
    paintOn(painter, seen(), 0, 0);
  }

  /** @param {Painter} on @param {Look} look @param {number} x @param {number} y */
  function paintOn(on, look, x, y) {
    if (lines) paintLines(on, lines, look, x, y);
    else if (matrix) paintMatrix(on, matrix, look, x, y);
  }

  function describe() {
    const look = seen();
    const focus = look.row ?? look.col;
    const [part, number] = book.layer.name.split(".");
    title.textContent =
      number === undefined
        ? t("look.head", { layer: part, head: book.head })
        : t("look.head.of", { part: t(`look.part.${part}`), layer: number, head: book.head });
    const pinned =
      book.pin.row !== null
        ? book.rows[book.pin.row]
        : book.pin.col !== null
          ? book.cols[book.pin.col]
          : null;
    fill(
      hint,
      pinned
        ? [
            h("span", { class: "pinned-name" }, t("look.pinned", { word: pinned.text })),
            " ",
            h(
              "button",
              { type: "button", class: "plain unpin", onclick: () => pick("none") },
              t("look.unpin"),
            ),
          ]
        : t("look.pin.hint"),
    );
    if (focus === null) return fill(said);
    const row = look.row !== null;
    const others = row ? book.cols : book.rows;
    /** @param {number} i */
    const value = (i) => {
      const [r, c] = row ? [focus, i] : [i, focus];
      return book.weights[r * book.cols.length + c];
    };
    const order = others
      .map((_, i) => i)
      .filter((i) => value(i) > 0)
      .sort((a, b) => value(b) - value(a))
      .slice(0, 8);
    const mine = (row ? book.rows : book.cols)[focus].text;
    /** @param {number} v */
    const write = (v) => (book.scale.kind === "ratio" ? `${three(v)}×` : percent(v));
    fill(
      said,
      h(
        "table",
        {},
        h("caption", {}, t(row ? "look.rank.from" : "look.rank.to", { word: mine })),
        h(
          "tbody",
          {},
          order.map((i) => h("tr", {}, h("td", {}, others[i].text), h("td", {}, write(value(i))))),
        ),
      ),
    );
  }

  function drawLegend() {
    const { kind, low, high } = book.scale;
    const bar = h("canvas", { width: 128, height: 1 });
    const context = pen(bar);
    const ramp = palette(kind);
    for (let i = 0; i < 128; i++) {
      context.fillStyle = `rgb(${ramp[6 * i]},${ramp[6 * i + 1]},${ramp[6 * i + 2]})`;
      context.fillRect(i, 0, 1, 1);
    }
    Object.assign(bar.style, { width: "112px", height: "9px" });
    const ends =
      kind === "ratio"
        ? [t("look.ends.low"), t("look.ends.high")]
        : [low ? `≤${three(low)}` : "0", three(high)];
    fill(
      legend,
      h("span", { class: "spoken" }, t("look.scale", { low: ends[0], high: ends[1] })),
      h("span", { "aria-hidden": "true" }, ends[0]),
      bar,
      h("span", { "aria-hidden": "true" }, ends[1]),
    );
  }

  return {
    node,
    /** @param {Book} next */
    draw(next) {
      book = next;
      hover = null;
      tip.hide();
      shape.value = book.shape;
      direction.value = book.dir;
      direction.hidden = !book.same;
      for (const [name, node] of Object.entries(switches))
        node.value = Boolean(book.switches[name]);
      describe();
      drawLegend();
      arrange(true);
    },
    end: () => (watcher.disconnect(), tip.hide()),
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
          : title.textContent,
        about: title.textContent,
      };
    },
  };
}
