// Steps: one query's attention, number by number, with switches that show what each step is for.

import {
  fill, h, problem, segmented, select, slider, spoken, styles, tip, toggle,
} from "../dom.js";
import { CanvasPainter } from "../paint.js";
import { colours } from "../scale.js";
import { percent, t, three } from "../words.js";
import { Answers, counted, textBar } from "./look_text.js";
import { drawTable, drawVerdict } from "./steps_summary.js";
import { askedBy, computed, paintSteps, placed } from "./steps_table.js";
import "./steps_words.js";

styles("views/look.css");
styles("views/steps.css");

const MOST = 64; // words, and heads, that a saved page can be asked for besides

/** @import { Layer, LookAnswer, Word } from "./look_text.js" */
/** @import { Found, Shown } from "./steps_table.js" */

/** @typedef {Shown & {data: LookAnswer, layer: Layer, head: number, query: number}} Book */

/** @type {View} */
export default {
  id: "steps",
  title: () => t("steps.title"),
  fits: (entry) => Boolean(entry?.can.includes("steps")),
  mount,
};

/** @param {HTMLElement} root @param {Context} context */
function mount(root, { entry, state, api }) {
  let turn = 0;
  let leaving = new AbortController(); // ends the requests of the last turn
  /** @type {Book | null} */
  let book = null;
  /** @type {ReturnType<typeof placed> | null} */
  let place = null;
  /** @type {number | null} */
  let hover = null; // the key under the pointer
  const answers = new Answers();
  const bar = textBar({ entry, state, api, again: () => show(state.get()) });
  const body = h("div", {});
  root.append(...bar.nodes, body);

  const choices = h("div", { class: "row choices" });
  const words = h("div", {
    class: "query-words", role: "radiogroup", "aria-label": t("steps.query"),
  });
  const lead = h("p", { class: "lead" });
  const root_d = toggle({
    label: t("steps.scale"),
    value: true,
    onchange: (on) => state.set({ scale: on ? null : "off" }),
  });
  const mask = segmented({
    label: t("steps.mask"),
    value: "model",
    options: ["model", "causal", "none"].map((one) => [one, t(`steps.mask.${one}`)]),
    onchange: (one) => state.set({ mask: one === "model" ? null : one }),
  });
  const heat = slider({
    label: t("steps.temperature"),
    min: -2,
    max: 2,
    step: 0.1,
    value: 0,
    show: (x) => warmth(x).toFixed(2),
    onchange: (x) => state.set({ heat: x === 0 ? null : x }),
  });
  const reset = h(
    "button",
    {
      type: "button",
      class: "plain reset",
      onclick: () => state.set({ scale: null, mask: null, heat: null }),
    },
    t("steps.reset"),
  );
  const canvas = h("canvas", { "aria-hidden": "true" });
  const scroll = h(
    "div",
    { class: "scroll steps-scroll", tabindex: 0, "aria-label": t("steps.table") },
    canvas,
  );
  const said = spoken();
  const verdict = h("div", { class: "verdicts", "aria-live": "polite" });
  const sheet = h(
    "div",
    { class: "steps-sheet" },
    h("section", { class: "card" }, h("div", { class: "lead-row" }, lead, choices), words),
    h(
      "section",
      { class: "card" },
      h(
        "header",
        { class: "knobs" },
        root_d,
        h("span", { class: "field" }, h("span", {}, t("steps.mask")), mask),
        heat,
        reset,
      ),
      verdict,
      scroll,
      said,
    ),
  );
  const painter = new CanvasPainter(canvas);
  const sized = new ResizeObserver(() => requestAnimationFrame(draw));
  sized.observe(scroll);

  canvas.addEventListener("pointermove", (event) => {
    if (!place || !book) return;
    const i = Math.floor((event.offsetY - place.top) / place.row);
    const next = i >= 0 && i < book.found.keys.length ? i : null;
    if (next !== hover) {
      hover = next;
      paint();
    }
    if (next === null) return tip.hide();
    const { found, now } = book;
    tip.show(
      event,
      h("b", {}, found.keys[i]),
      h("br"),
      `q·k ${three(found.products[i])} → ${three(now.scaled[i])} → `,
      now.allowed[i] ? percent(now.weights[i]) : t("steps.hidden"),
    );
  });
  canvas.addEventListener("pointerleave", () => ((hover = null), tip.hide(), paint()));

  /** @param {Where} now @returns {Promise<void>} */
  async function show(now, fresh = false) {
    const mine = ++turn;
    const past = () => mine !== turn;
    leaving.abort();
    leaving = new AbortController();
    try {
      const text = await bar.text(now);
      if (past() || !text.trim()) return;
      await read(now, text, past);
    } catch (error) {
      if (past() || api.ended(error)) return;
      answers.forget();
      // 404: the server has evicted the trace. Send the text again, once.
      if (error.status === 404 && !fresh) return show(now, true);
      book = null;
      bar.tell("");
      fill(body, problem(error, t));
    }
  }

  /** @param {Where} now @param {string} text @param {() => boolean} past */
  async function read(now, text, past) {
    const { signal } = leaving;
    /** @type {LookAnswer} */
    const data = await answers.once(
      `look ${text}`,
      (signal) => api.post("/api/look", { model: entry.id, text, tokens: true }, { signal }),
      signal,
    );
    if (past()) return;
    bar.tell(
      t("look.read", {
        tokens: data.layers[0].T,
        layers: data.layers.length,
        heads: data.layers.reduce((n, one) => n + one.heads, 0),
      }),
    );
    if (data.long) {
      book = null;
      const why = h("p", { class: "quiet" }, t("steps.long.hint"));
      return void fill(body, h("div", { class: "empty" }, h("h1", {}, t("steps.long")), why));
    }
    const layer =
      data.layers.find((one) => String(one.index) === now.layer) ??
      data.layers.findLast((one) => one.kind === "cross") ??
      data.layers[data.layers.length - 1];
    const head = counted(now.head, layer.heads) ?? 0;
    const rows = data[layer.rows];
    const query = counted(now.query, rows.length) ?? data.pins[layer.rows] ?? rows.length - 1;
    /** @type {Found} */
    const found = await answers.once(
      `steps ${data.seen} ${layer.index} ${head} ${query}`,
      (signal) => api.get(path(data, layer, head, query), { signal }),
      signal,
    );
    if (past()) return;
    /** @type {Shown["options"]} */
    const options = {
      scale: now.scale !== "off",
      mask: now.mask === "causal" || now.mask === "none" ? now.mask : "model",
      temperature: warmth(Number(now.heat ?? 0) || 0),
    };
    const changed = !options.scale || options.mask !== "model" || options.temperature !== 1;
    book = {
      data, layer, head, query, found, options, changed, now: computed(found, options),
      model: computed(found),
    };
    choose(data, layer, head, query, rows);
    root_d.value = options.scale;
    mask.value = options.mask;
    heat.value = Number(now.heat ?? 0) || 0;
    reset.hidden = !changed;
    fill(lead, t("steps.lead", { word: askedBy(found) }));
    if (sheet.parentNode !== body) fill(body, sheet);
    drawVerdict(verdict, book);
    drawTable(said, book);
    draw();
  }

  /**
   * @param {LookAnswer} data
   * @param {Layer} layer
   * @param {number} head
   * @param {number} query
   * @param {Word[]} rows
   */
  function choose(data, layer, head, query, rows) {
    /** @param {Patch} patch */
    const other = (patch) => state.set({ layer: layer.index, head, query, ...patch });
    fill(
      choices,
      select({
        label: t("steps.layer"),
        visible: true,
        value: layer.index,
        options: data.layers.map((one) => [one.index, one.name]),
        onchange: (index) => {
          const next = data.layers.find((one) => String(one.index) === index);
          if (!next) return;
          other({
            layer: index, head: Math.min(head, next.heads - 1),
            query: next.rows === layer.rows ? query : null,
          });
        },
      }),
      select({
        label: t("steps.head"),
        visible: true,
        value: head,
        options: Array.from({ length: layer.heads }, (_, i) => [i, String(i)]),
        onchange: (one) => other({ head: one }),
      }),
    );
    const focused = words.contains(document.activeElement);
    const buttons = rows.map((word, i) =>
      h(
        "button",
        {
          type: "button",
          role: "radio",
          "aria-checked": String(i === query),
          tabindex: i === query ? 0 : -1,
          onclick: () => other({ query: i }),
        },
        word.text,
      ),
    );
    fill(words, buttons);
    const mine = buttons[query];
    if (focused) mine?.focus({ preventScroll: true });
    if (mine) requestAnimationFrame(() => words.scrollTo({ top: mine.offsetTop - 60 }));
  }
  words.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const all = [...words.querySelectorAll("button")];
    const next = all[all.findIndex((one) => one === document.activeElement) + (step ?? 0)];
    if (!step || !next) return;
    event.preventDefault();
    next.focus();
    next.click();
  });

  function draw() {
    const width = Math.floor(scroll.clientWidth);
    if (!book || !width) return;
    place = placed(book.found, width);
    paint();
  }

  function paint() {
    if (!place || !book) return;
    painter.size(place.width, place.height);
    paintSteps(painter, place, { ...book, hover });
  }

  show(state.get());
  return {
    /** @param {Where} now */
    update: (now) => void show(now),
    unmount() {
      turn++;
      leaving.abort();
      bar.end();
      sized.disconnect();
      tip.hide();
    },
    /** @param {Painter} on */
    picture(on) {
      if (!book || !place) return null;
      on.size(place.width + 48, place.height + 8, colours().panel);
      paintSteps(on, place, book, 24, 4);
      return {
        title: `${t("steps.title")} · ${askedBy(book.found)}`,
        about: [
          `${t("steps.layer")} ${book.layer.name}`,
          `${t("steps.head")} ${book.head}`,
          verdict.firstChild?.textContent,
        ].join(" · "),
      };
    },
    // The other words of this head, and the other heads of this word.
    wants() {
      if (!book) return [];
      const { data, layer, head, query } = book;
      const words = data[layer.rows].slice(0, MOST).map((_, n) => path(data, layer, head, n));
      const heads = data.layers
        .filter((one) => one.rows === layer.rows)
        .flatMap((one) => Array.from({ length: one.heads }, (_, n) => path(data, one, n, query)));
      return [...words, ...heads.slice(0, MOST)];
    },
  };
}

/** @param {LookAnswer} data @param {Layer} layer @param {number} head @param {number} query */
const path = (data, layer, head, query) =>
  `/api/seen/${data.seen}/steps?layer=${layer.index}&head=${head}&query=${query}`;

/** The slider is even in the logarithm: 0 is 1, -2 a quarter, 2 four.
 * @param {number} x
 */
const warmth = (x) => Number((2 ** x).toFixed(4));
