// The card below a translation: where each word looked, head by head, as lines and as a matrix.
//
//   const card = attentionCard();  card.show(looks, {usual, story});  card.update() after a change of the address
// `looks` are the layers of one candidate: {source, target, shape: [H, T, S], weights}.

import { fill, h, segmented, spoken, tip } from "../dom.js";
import { CanvasPainter } from "../paint.js";
import { colours, Scale, theme } from "../scale.js";
import * as state from "../state.js";
import { percent, t, three } from "../words.js";
import { drawLines, drawMatrix, linesSize, matrixSize, ranked, shown } from "./translate_draw.js";
import { pronoun } from "./translate_stories.js";

const WIDE = 860; // pixels, from which lines and matrix fit side by side
const THUMB = 84;

export function attentionCard() {
  const node = h("div", { class: "card translate-attention", hidden: true });
  let looks = [];
  let about = { usual: 0, story: null };
  let boxes = { lines: [], matrix: [] };
  let over = null; // the word under the pointer
  let built = null; // the looks that the card is of
  let drawnIn = theme();
  const chosen = {}; // its controls

  const lines = h("canvas", { tabindex: 0, role: "img", "aria-label": t("translate.lines") });
  const matrix = h("canvas", { tabindex: 0, role: "img", "aria-label": t("translate.matrix") });
  const drawn = h("div", { class: "translate-drawn" });
  const caption = h("p", { class: "quiet small" });
  const thumbs = h("div", { class: "translate-heads", role: "group", "aria-label": t("translate.heads") });
  const said = spoken();
  const told = h("p", { class: "translate-told", role: "status" });
  for (const [canvas, name] of [[lines, "lines"], [matrix, "matrix"]]) {
    canvas.addEventListener("pointermove", (event) => point(event, name));
    canvas.addEventListener("pointerleave", () => (tip.hide(), (over = null), draw()));
    canvas.addEventListener("click", (event) => pick(event, name));
    canvas.addEventListener("keydown", step);
  }
  const watch = new ResizeObserver(() => draw());
  watch.observe(drawn);

  // What the address says, if there is such a one.
  const named = () => ({ layer: index(state.get().layer, looks.length), head: state.get().head === "mean" ? "mean" : index(state.get().head, looks[0].shape[0]) });
  const layer = () => named().layer ?? telling()?.layer ?? about.usual;
  const head = () => named().head ?? (named().layer === null ? telling()?.head : null) ?? focused(looks[layer()]);

  // Of a story: the head in which the pronoun looks most at what it stands for.
  function telling() {
    const story = about.story;
    const row = story ? pronoun(looks[0].target, story) : null;
    if (row === null || looks[0].source[story.one.referent] !== story.one.stands_for) return null;
    const [H, T, S] = looks[0].shape;
    const all = looks.flatMap(({ weights }, l) => [...Array(H).keys()].map((n) => ({ layer: l, head: n, weight: weights[(n * T + row) * S + story.one.referent] })));
    return { ...all.reduce((a, b) => (b.weight > a.weight ? b : a)), word: looks[0].target[row], referent: story.one.stands_for };
  }

  function map(l = layer(), which = head()) {
    const { shape: [H, T, S], source, target, weights } = looks[l];
    if (which !== "mean") return { source, target, weights: weights.subarray(which * T * S, (which + 1) * T * S) };
    const mean = new Float32Array(T * S);
    for (let i = 0; i < H * T * S; i++) mean[i % (T * S)] += weights[i] / H;
    return { source, target, weights: mean };
  }

  function pin() {
    const [side, at] = (state.get().pin ?? "").split("-");
    const place = ["source", "target"].includes(side) ? index(at, looks[0][side].length) : null;
    if (place !== null) return { side, at: place };
    if (state.get().pin === "none") return null;
    const story = about.story;
    const own = story ? pronoun(looks[0].target, story) : null;
    return own === null ? null : { side: "target", at: own };
  }

  function marks() {
    const story = about.story;
    const { source, target } = looks[0];
    return story && source[story.one.index] === story.one.pronoun ? { source: story.one.index, target: pronoun(target, story) } : null;
  }

  function captioned() {
    const which = head();
    if (which === "mean") return t("translate.caption.mean", { layer: layer(), n: looks[0].shape[0] });
    const asked = named();
    const words = { layer: layer(), head: which, ...(asked.layer === null && asked.head === null ? telling() : {}) };
    return t(words.word ? "translate.caption.telling" : asked.head === null ? "translate.caption.focused" : "translate.caption", words);
  }

  // Once for each candidate; what is chosen in it changes in place, so that the focus stays where it is.
  function update() {
    if (!looks.length) return;
    if (drawnIn !== theme()) (drawnIn = theme()), (built = null);
    if (built !== looks) build();
    const { how = "both" } = state.get();
    chosen.layer.value = String(layer());
    chosen.head.value = String(head());
    chosen.how.value = how;
    lines.hidden = how === "matrix";
    matrix.hidden = how === "lines";
    for (const button of thumbs.querySelectorAll("button")) {
      const on = button.dataset.at === `${layer()} ${head()}`;
      button.classList.toggle("chosen", on);
      button.setAttribute("aria-pressed", on ? "true" : "false");
    }
    draw();
  }

  function build() {
    built = looks;
    node.hidden = false;
    const [H] = looks[0].shape;
    const count = (n) => [...Array(n).keys()].map((one) => [String(one), String(one)]);
    const at = (patch) => state.set({ layer: layer(), head: head(), ...patch });
    chosen.layer = segmented({ label: t("translate.layer"), options: count(looks.length), onchange: (n) => at({ layer: n }) });
    chosen.head = segmented({ label: t("translate.head"), options: [...count(H), ["mean", t("translate.mean")]], onchange: (n) => at({ head: n }) });
    chosen.how = segmented({ label: t("translate.how"), options: ["lines", "matrix", "both"].map((name) => [name, t(`translate.${name}`)]), onchange: (n) => state.set({ how: n === "both" ? null : n }) });
    const titled = (key) => h("span", { class: "field" }, h("span", {}, t(`translate.${key}`)), chosen[key]);
    fill(drawn, lines, h("div", { class: "translate-right" }, matrix, h("h3", {}, t("translate.heads")), thumbs));
    fill(node, h("header", {}, h("h2", {}, t("translate.attention")), titled("layer"), titled("head"), chosen.how), caption, told, drawn, said, h("p", { class: "quiet small" }, t("translate.pin")));
    fill(thumbs, looks.map((_, l) => h("div", { class: "row" }, h("span", { class: "quiet small number" }, l), count(H).map(([n]) => {
      const name = t("translate.head.at", { layer: l, head: n });
      return h("button", { type: "button", "aria-label": name, title: name, dataset: { at: `${l} ${n}` }, onclick: () => state.set({ layer: l, head: n }) }, thumb(map(l, Number(n))));
    }))));
  }

  function thumb({ source, target, weights }) {
    const wide = Math.max(2, Math.min(8, Math.floor(THUMB / Math.max(source.length, target.length))));
    const canvas = h("canvas", { "aria-hidden": "true" });
    const painter = new CanvasPainter(canvas).size(wide * source.length, wide * target.length);
    painter.cells(0, 0, wide, wide, weights, target.length, source.length, Scale.of(weights, source.length, "linear"));
    return canvas;
  }

  function draw() {
    if (!looks.length || node.hidden || !drawn.clientWidth) return;
    const one = map();
    const how = state.get().how ?? "both";
    const room = drawn.clientWidth;
    const side = room >= WIDE;
    const options = { pin: over ?? pin(), marked: marks(), colours: colours() };
    if (how !== "matrix") {
      const painter = new CanvasPainter(lines);
      const size = linesSize(one, side ? room * 0.46 : room);
      painter.size(size.w, size.h, colours().panel);
      boxes.lines = drawLines(painter, one, { ...options, w: size.w }).boxes;
    }
    if (how !== "lines") {
      const painter = new CanvasPainter(matrix);
      const w = side ? room * 0.5 : room;
      const size = matrixSize(one, w, painter);
      painter.size(size.w, size.h, colours().panel);
      boxes.matrix = drawMatrix(painter, one, { ...options, w }).boxes;
    }
    caption.textContent = captioned();
    const at = over ?? pin();
    told.textContent = at ? sentence(one, at) : "\u00a0";
    fill(said, h("ul", {}, one.target.map((_, row) => h("li", {}, sentence(one, { side: "target", at: row })))));
  }

  function sentence(one, at) {
    const words = { word: shown(one[at.side][at.at]), list: ranked(one, at).map(({ word, weight }) => `${word} ${percent(weight)}`).join(", ") || "–" };
    return t(at.side === "target" ? "translate.looked" : "translate.seen", words);
  }

  function hit(event, name) {
    return boxes[name].find((box) => event.offsetX >= box.x && event.offsetX < box.x + box.w && event.offsetY >= box.y && event.offsetY < box.y + box.h);
  }

  function point(event, name) {
    if (event.pointerType === "touch") return;
    const box = hit(event, name);
    const next = box?.side ? { side: box.side, at: box.at } : null;
    if (box && !box.side) {
      const one = map();
      tip.show(event, `${shown(one.target[box.row])} → ${shown(one.source[box.col])}  ${three(one.weights[box.row * one.source.length + box.col])}`);
    } else tip.hide();
    event.target.style.cursor = box ? "pointer" : "";
    if (next?.side === over?.side && next?.at === over?.at) return;
    over = next;
    draw();
  }

  function pick(event, name) {
    const box = hit(event, name);
    if (!box) return state.set({ pin: "none" });
    const next = box.side ? `${box.side}-${box.at}` : `target-${box.row}`;
    state.set({ pin: state.get().pin === next ? "none" : next });
  }

  function step(event) {
    const now = pin() ?? { side: "target", at: -1 };
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const side = { ArrowLeft: "source", ArrowRight: "target" }[event.key];
    if (event.key === "Escape") return state.set({ pin: "none" });
    if (!by && !side) return;
    event.preventDefault();
    over = null;
    const words = looks[0][side ?? now.side];
    const at = Math.max(0, Math.min(words.length - 1, now.at + (by ?? 0)));
    state.set({ pin: `${side ?? now.side}-${at}` });
  }

  return {
    node,
    update,
    show(next, told) {
      looks = next;
      about = told;
      over = null;
      update();
    },
    hide() {
      node.hidden = true;
      looks = [];
      built = null;
    },
    unmount() {
      watch.disconnect();
      tip.hide();
    },
    picture(painter, title) {
      if (!looks.length) return null;
      const one = map();
      const options = { pin: pin(), marked: marks(), colours: colours() };
      const [a, b] = [linesSize(one, 560), matrixSize(one, 640, painter)];
      painter.size(a.w + b.w + 72, Math.max(a.h, b.h) + 16, colours().paper);
      drawLines(painter, one, { ...options, x: 24, y: 8, w: a.w });
      drawMatrix(painter, one, { ...options, x: a.w + 48, y: 8, w: 640 });
      return { title, about: captioned() };
    },
  };
}

// A place among n, or null.
export function index(value, n) {
  const number = Number(value ?? NaN);
  return Number.isInteger(number) && number >= 0 && number < n ? number : null;
}

// The head whose words look at one word most of all, on average.
function focused({ shape: [H, T, S], weights }) {
  const focus = [...Array(H).keys()].map((n) => {
    let sum = 0;
    for (let row = 0; row < T; row++) sum += weights.subarray((n * T + row) * S, (n * T + row + 1) * S).reduce((a, b) => Math.max(a, b), 0);
    return sum;
  });
  return focus.indexOf(Math.max(...focus));
}
