// The card below a translation: where each word looked, head by head, as lines and as a matrix.
//
//   const card = attentionCard();
//   card.show(looks, {usual, story});
//   card.update();    after a change of the address
// `looks` are the layers of one candidate: {source, target, shape: [H, T, S], weights}.

import { fill, h, segmented, spoken, tip } from "../dom.js";
import { CanvasPainter } from "../paint.js";
import { colours, theme } from "../scale.js";
import * as state from "../state.js";
import { percent, t, three } from "../words.js";
import {
  drawLines, drawMatrix, linesSize, matrixSize, ranked, shown, thumbnail,
} from "./translate_draw.js";
import { focusedHead, index, mapOf, tellingHead } from "./translate_heads.js";
import { pronoun } from "./translate_stories.js";

const WIDE = 860; // pixels, from which lines and matrix fit side by side

/** @import { Box, Pin, WeightMap } from "./translate_draw.js" */
/** @import { LayerLook } from "./translate_heads.js" */
/** @typedef {{usual: number, story: import("./translate_stories.js").KnownStory | null}} About */

export function attentionCard() {
  const node = h("div", { class: "card translate-attention", hidden: true });
  /** @type {LayerLook[]} */
  let looks = [];
  /** @type {About} */
  let about = { usual: 0, story: null };
  /** @type {{lines: Box[], matrix: Box[]}} */
  const boxes = { lines: [], matrix: [] };
  /** @type {Pin | null} */
  let over = null; // the word under the pointer
  /** @type {LayerLook[] | null} */
  let built = null; // the looks that the card is of
  let drawnIn = theme();
  /** @type {Record<string, Valued<any>>} */
  const chosen = {}; // its controls

  const lines = h("canvas", { tabindex: 0, role: "img", "aria-label": t("translate.lines") });
  const matrix = h("canvas", { tabindex: 0, role: "img", "aria-label": t("translate.matrix") });
  const drawn = h("div", { class: "translate-drawn" });
  const caption = h("p", { class: "quiet small" });
  const thumbs = h("div", {
    class: "translate-heads", role: "group", "aria-label": t("translate.heads"),
  });
  const said = spoken();
  const told = h("p", { class: "translate-told", role: "status" });
  for (const [name, canvas] of /** @type {const} */ ([["lines", lines], ["matrix", matrix]])) {
    canvas.addEventListener("pointermove", (event) => point(event, name));
    canvas.addEventListener("pointerleave", () => (tip.hide(), (over = null), draw()));
    canvas.addEventListener("click", (event) => pick(event, name));
    canvas.addEventListener("keydown", step);
  }
  const watch = new ResizeObserver(() => draw());
  watch.observe(drawn);

  const best = () => tellingHead(looks, about.story);
  const telling = () => {
    const found = best();
    return found?.shows ? found : null;
  };

  /** What the address says, if there is such a one.
   * @returns {{layer: number | null, head: number | "mean" | null}}
   */
  function named() {
    const now = state.get();
    return {
      layer: index(now.layer, looks.length),
      head: now.head === "mean" ? "mean" : index(now.head, looks[0].shape[0]),
    };
  }

  const layer = () => named().layer ?? telling()?.layer ?? about.usual;

  function head() {
    const asked = named();
    const story = asked.layer === null ? telling()?.head : null;
    return asked.head ?? story ?? focusedHead(looks[layer()]);
  }

  const map = (l = layer(), which = head()) => mapOf(looks[l], which);

  /** @returns {Pin | null} */
  function pin() {
    const [side, at] = (state.get().pin ?? "").split("-");
    if (side === "source" || side === "target") {
      const place = index(at, looks[0][side].length);
      if (place !== null) return { side, at: place };
    }
    if (state.get().pin === "none") return null;
    const story = about.story;
    const own = story ? pronoun(looks[0].target, story) : null;
    return own === null ? null : { side: "target", at: own };
  }

  function marks() {
    const story = about.story;
    const { source, target } = looks[0];
    return story && source[story.one.index] === story.one.pronoun
      ? { source: story.one.index, target: pronoun(target, story) }
      : null;
  }

  function captioned() {
    const which = head();
    if (which === "mean")
      return t("translate.caption.mean", { layer: layer(), n: looks[0].shape[0] });
    const asked = named();
    const shown = { layer: layer(), head: which };
    const found = asked.layer === null && asked.head === null ? best() : null;
    const share = found && { ...found, weight: percent(found.weight) };
    if (found?.shows) return t("translate.caption.telling", { ...share });
    const usual = t(asked.head === null ? "translate.caption.focused" : "translate.caption", shown);
    return found ? `${usual} ${t("translate.caption.nothing", { ...share })}` : usual;
  }

  // Once for each candidate. What is chosen in it changes in place, so that the focus stays where
  // it is.
  function update() {
    if (!looks.length) return;
    if (drawnIn !== theme()) ((drawnIn = theme()), (built = null));
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
    /** @param {number} n @returns {Choice[]} */
    const count = (n) => Array.from({ length: n }, (_, one) => [String(one), String(one)]);
    /** @param {Patch} patch */
    const at = (patch) => state.set({ layer: layer(), head: head(), ...patch });
    chosen.layer = segmented({
      label: t("translate.layer"),
      options: count(looks.length),
      onchange: (n) => at({ layer: n }),
    });
    chosen.head = segmented({
      label: t("translate.head"),
      options: [...count(H), ["mean", t("translate.mean")]],
      onchange: (n) => at({ head: n }),
    });
    chosen.how = segmented({
      label: t("translate.how"),
      options: ["lines", "matrix", "both"].map((name) => [name, t(`translate.${name}`)]),
      onchange: (n) => state.set({ how: n === "both" ? null : n }),
    });
    /** @param {"layer" | "head"} key */
    const titled = (key) =>
      h("span", { class: "field" }, h("span", {}, t(`translate.${key}`)), chosen[key]);
    fill(
      drawn,
      lines,
      h("div", { class: "translate-right" }, matrix, h("h3", {}, t("translate.heads")), thumbs),
    );
    fill(
      node,
      h(
        "header",
        {},
        h("h2", {}, t("translate.attention")),
        titled("layer"),
        titled("head"),
        chosen.how,
      ),
      caption,
      told,
      drawn,
      said,
      h("p", { class: "quiet small" }, t("translate.pin")),
    );
    fill(
      thumbs,
      looks.map((_, l) =>
        h(
          "div",
          { class: "row" },
          h("span", { class: "quiet small number" }, l),
          count(H).map(([n]) => {
            const name = t("translate.head.at", { layer: l, head: n });
            return h(
              "button",
              {
                type: "button",
                "aria-label": name,
                title: name,
                dataset: { at: `${l} ${n}` },
                onclick: () => state.set({ layer: l, head: n }),
              },
              thumbnail(map(l, Number(n))),
            );
          }),
        ),
      ),
    );
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
    fill(caption, captioned());
    const at = over ?? pin();
    fill(told, at ? sentence(one, at) : "\u00a0");
    fill(
      said,
      h(
        "ul",
        {},
        one.target.map((_, row) => h("li", {}, sentence(one, { side: "target", at: row }))),
      ),
    );
  }

  /** @param {WeightMap} one @param {Pin} at */
  function sentence(one, at) {
    const words = {
      word: shown(one[at.side][at.at]),
      list:
        ranked(one, at)
          .map(({ word, weight }) => `${word} ${percent(weight)}`)
          .join(", ") || "–",
    };
    return t(at.side === "target" ? "translate.looked" : "translate.seen", words);
  }

  /** @param {MouseEvent} event @param {"lines" | "matrix"} name */
  function hit(event, name) {
    return boxes[name].find(
      (box) =>
        event.offsetX >= box.x &&
        event.offsetX < box.x + box.w &&
        event.offsetY >= box.y &&
        event.offsetY < box.y + box.h,
    );
  }

  /** @param {PointerEvent} event @param {"lines" | "matrix"} name */
  function point(event, name) {
    if (event.pointerType === "touch") return;
    const box = hit(event, name);
    const next = box?.side ? { side: box.side, at: box.at } : null;
    if (box && !box.side) {
      const one = map();
      tip.show(
        event,
        `${shown(one.target[box.row])} → ${shown(one.source[box.col])}  `,
        three(one.weights[box.row * one.source.length + box.col]),
      );
    } else tip.hide();
    (name === "lines" ? lines : matrix).style.cursor = box ? "pointer" : "";
    if (next?.side === over?.side && next?.at === over?.at) return;
    over = next;
    draw();
  }

  /** @param {MouseEvent} event @param {"lines" | "matrix"} name */
  function pick(event, name) {
    const box = hit(event, name);
    if (!box) return state.set({ pin: "none" });
    const next = box.side ? `${box.side}-${box.at}` : `target-${box.row}`;
    state.set({ pin: state.get().pin === next ? "none" : next });
  }

  /** @param {KeyboardEvent} event */
  function step(event) {
    const now = pin() ?? { side: "target", at: -1 };
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    /** @type {Record<string, "source" | "target">} */
    const sides = { ArrowLeft: "source", ArrowRight: "target" };
    const side = sides[event.key];
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
    /** @param {LayerLook[]} next @param {About} told */
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
    /** @param {Painter} painter @param {string} title */
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
