// All heads at a glance: a small map of each, by layer or sorted by a statistic.

import { fill, h, segmented, select, tip } from "../dom.js";
import { pen } from "../paint.js";
import { Scale } from "../scale.js";
import { language, percent, t, three } from "../words.js";
import { statisticName } from "./statistic_names.js";

/** @import { Book } from "./look.js" */
/** @import { Layer, Role } from "./look_text.js" */
/** @typedef {{layer: Layer, head: number, value: number | null}} Cell */

const SPREAD = new Set(["sharpest", "broadest"]); // roles by how widely a head looks

/** How much of its role a head has: its mean weight, or how widely it looks.
 * @param {Role} one
 * @param {boolean} [long] in a sentence
 */
function figureOf({ role, value, uniform }, long) {
  if (SPREAD.has(role))
    return long ? t("look.telling.spread", { value: three(value) }) : three(value);
  const share = percent(value);
  if (!long) return share;
  return uniform === null
    ? t("look.telling.mean", { value: share })
    : t("look.telling.chance", { value: share, uniform: percent(uniform) });
}

/** @param {{set: (patch: Patch) => void}} of */
export function gridCard({ set }) {
  /** @type {Book} */
  let book; // set by draw()
  const statistic = h("span", {});
  const order = segmented({
    label: t("look.order"),
    options: [
      ["layer", t("look.order.layer")], ["value", t("look.order.value")],
    ],
    value: "layer",
    onchange: (v) => set({ order: v === "layer" ? null : v }),
  });
  const parts = h("div", { class: "parts" });
  const explain = h("p", { class: "quiet small" });
  const grid = h("div", { class: "thumbs", role: "group", "aria-label": t("look.heads") });
  const telling = h("div", { class: "telling" });
  const node = h(
    "section",
    { class: "card grid-card" },
    h("header", {}, h("h2", {}, t("look.heads")), parts, order),
    h("div", { class: "row" }, statistic),
    explain,
    grid,
    telling,
  );

  grid.addEventListener("keydown", (event) => {
    const all = [...grid.querySelectorAll("button")];
    const at = all.findIndex((button) => button === document.activeElement);
    if (at < 0) return;
    const across = book.order === "value" ? columns(all) : book.layers[0].heads;
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across }[event.key];
    if (!step) return;
    event.preventDefault();
    all[Math.min(all.length - 1, Math.max(0, at + step))].focus();
  });

  /** @param {Element[]} all */
  function columns(all) {
    const top = all[0].getBoundingClientRect().top;
    return Math.max(1, all.filter((one) => one.getBoundingClientRect().top === top).length);
  }

  function cells() {
    /** @type {Cell[]} */
    const found = [];
    for (const layer of book.layers) {
      const values = book.data.statistics[book.stat]?.values[book.data.layers.indexOf(layer)];
      for (let head = 0; head < layer.heads; head++)
        found.push({ layer, head, value: values ? values[head] : null });
    }
    return found;
  }

  function draw() {
    const all = cells();
    const numbers = all.map((one) => one.value).filter((value) => value !== null);
    const high = Math.max(...numbers, 1e-9);
    const widest = Math.max(...book.layers.map((layer) => layer.heads));
    const sorted = book.order === "value";
    if (sorted) all.sort((a, b) => (b.value ?? -1) - (a.value ?? -1));
    const thumb = /** @type {HTMLElement | null | undefined} */ (
      document.activeElement?.closest?.(".thumb")
    );
    const focused = thumb?.dataset.head;
    /** @param {Cell} cell */
    const one = ({ layer, head, value }) => {
      const name = `${layer.name}:${head}`;
      const chosen = layer === book.layer && head === book.head;
      const label = t("look.thumb", {
        layer: layer.name, head, name: statisticName(book.stat), value: three(value),
      });
      return h(
        "button",
        {
          type: "button",
          class: "thumb",
          dataset: { head: name },
          "aria-label": label,
          "aria-pressed": String(chosen),
          tabindex: chosen ? 0 : -1,
          onclick: () => set({ layer: layer.index, head }),
          onmouseenter: /** @param {MouseEvent} event */ (event) =>
            tip.show(event, h("b", {}, name), ` ${statisticName(book.stat)} ${three(value)}`),
          onmouseleave: () => tip.hide(),
        },
        small(layer, head),
        h(
          "span",
          { class: "bar" },
          h("i", {
            style: { width: `${value === null ? 0 : Math.max(2, (100 * value) / high)}%` },
          }),
        ),
        sorted && h("span", { class: "name" }, name),
      );
    };
    grid.classList.toggle("sorted", sorted);
    grid.style.setProperty("--heads", String(widest));
    if (sorted) fill(grid, all.map(one));
    else {
      const lanes = book.layers.map((layer) => [
        h("span", { class: "lane", title: layer.module }, layer.name),
        all.filter((each) => each.layer === layer).map(one),
        Array.from({ length: widest - layer.heads }, () => h("span", {})),
      ]);
      fill(grid, lanes);
    }
    const buttons = [...grid.querySelectorAll("button")];
    if (!grid.querySelector('[tabindex="0"]')) buttons[0]?.setAttribute("tabindex", "0");
    if (focused)
      buttons.find((b) => b.dataset.head === focused)?.focus({ preventScroll: true });
  }

  /** @param {Layer} layer @param {number} head */
  function small(layer, head) {
    const found = book.thumbs?.get(`${layer.index}:${head}`);
    const canvas = h("canvas", { "aria-hidden": "true" });
    if (!found) return canvas;
    const { rows, cols, values } = found;
    canvas.width = cols;
    canvas.height = rows;
    const scale = Scale.of(values, cols, book.kind);
    pen(canvas).putImageData(new ImageData(scale.pixels(values), cols, rows), 0, 0);
    return canvas;
  }

  function drawTelling() {
    const stands = book.data.telling;
    fill(
      telling,
      h("h3", { class: "eyebrow" }, t("look.telling")),
      stands.every((one) => SPREAD.has(one.role)) &&
        h("p", { class: "quiet small" }, t("look.telling.none")),
      h(
        "div",
        { class: "row" },
        stands.map((one) => {
          const layer = book.data.layers.find((each) => each.index === one.layer);
          if (!layer) return null;
          return h(
            "button",
            {
              type: "button",
              class: "chip",
              title: figureOf(one, true),
              onclick: () =>
                set({
                  layer: one.layer,
                  head: one.head,
                  ...(layer.rows !== book.layer.rows && { query: null, key: null, cut: null }),
                }),
            },
            one.label[language()],
            h("b", { class: "number" }, `${layer.name}:${one.head}`),
            h("span", { class: "number" }, figureOf(one)),
          );
        }),
      ),
    );
  }

  return {
    node,
    /** @param {Book} next */
    draw(next) {
      book = next;
      order.value = book.order;
      const names = Object.keys(book.data.statistics);
      fill(
        statistic,
        select({
          label: t("look.statistic"),
          value: book.stat,
          visible: true,
          options: names.map((name) => [name, statisticName(name)]),
          onchange: (stat) => set({ stat }),
        }),
      );
      explain.textContent = book.data.statistics[book.stat]?.explain[language()] ?? "";
      const kinds = [...new Set(book.data.layers.map(partOf))];
      fill(
        parts,
        kinds.length > 1 &&
          segmented({
            label: t("look.part"),
            value: partOf(book.layer),
            options: kinds.map((kind) => [kind, t(`look.part.${kind}`)]),
            onchange: (kind) =>
              set({
                layer: book.data.layers.find((one) => partOf(one) === kind)?.index,
                head: 0,
                query: null,
                key: null,
                cut: null,
              }),
          }),
      );
      draw();
      drawTelling();
    },
  };
}

/** @param {Layer} layer */
export function partOf(layer) {
  return layer.kind === "cross" ? "cross" : (layer.part ?? "self");
}
