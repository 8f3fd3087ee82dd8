// Heads ranked by how much a word is looked at: a strip for each, the text from left to right.

import { fill, h, tip } from "../dom.js";
import { pen } from "../paint.js";
import { Scale } from "../scale.js";
import { percent, t, three } from "../words.js";
import { moreHeads } from "./look_strips.js";

/** @import { Book } from "./look.js" */
/** @import { RankedHead } from "./look_choice.js" */
/** @import { Word } from "./look_text.js" */

const FEW = 6;

/** @param {{set: (patch: Patch) => void}} of */
export function rankCard({ set }) {
  /** @type {Book} */
  let book; // set by draw()
  let all = false;
  const title = h("h2", {});
  const hint = h("p", { class: "quiet small" });
  const list = h("ol", { class: "ranking" });
  const more = h("button", {
    type: "button",
    class: "plain",
    onclick: () => ((all = !all), draw()),
  });
  const node = h(
    "section",
    { class: "card rank-card to" },
    h("header", {}, title),
    hint,
    list,
    more,
  );

  function draw() {
    const ranked = book.to;
    node.hidden = !ranked;
    if (!ranked) return;
    fill(title, t("look.rank.to", { word: book.cols[ranked.word].text }));
    // After the last word of a text that is read in order there is none that could.
    const nobody = !ranked.heads.some((one) => one.most > 0);
    hint.textContent = t(nobody ? "look.rank.to.nobody" : "look.rank.to.hint");
    list.hidden = more.hidden = nobody;
    if (nobody) return;
    const heads = all ? ranked.heads : ranked.heads.slice(0, FEW);
    const values = heads.map((one) => Float32Array.from(one.weights, (x) => x ?? Number.NaN));
    const high = Math.max(...values.flatMap((row) => Array.from(row, (x) => x || 0)), 1e-9);
    const scale =
      book.kind === "ratio"
        ? Scale.of([], 1, "ratio")
        : new Scale(book.kind, book.kind === "log" ? high * 1e-4 : 0, high);
    fill(
      list,
      heads.map((one, i) => row(one, values[i], book.rows, scale)),
    );
    more.hidden = ranked.heads.length <= FEW;
    more.textContent = moreHeads(ranked, all);
  }

  /**
   * @param {RankedHead} one
   * @param {Float32Array} values
   * @param {Word[]} others
   * @param {Scale} scale
   */
  function row(one, values, others, scale) {
    const layer = book.data.layers.find((each) => each.index === one.layer);
    const name = `${layer?.name}:${one.head}`;
    const weight = book.kind === "ratio" ? `${three(one.most)}×` : percent(one.most);
    const strip = h("canvas", { width: values.length, height: 1, "aria-hidden": "true" });
    const pixels = new ImageData(scale.pixels(values), values.length, 1);
    pen(strip).putImageData(pixels, 0, 0);
    const chosen = layer === book.layer && one.head === book.head;
    const button = h(
      "button",
      {
        type: "button",
        "aria-pressed": String(chosen),
        "aria-label": t("look.rank.row", { head: name, word: others[one.at].text, weight }),
        dataset: { head: name, word: others[one.at].text },
        onclick: () =>
          set({
            layer: one.layer, head: one.head, ...(book.same && { dir: "to" }),
          }),
      },
      h("span", { class: "name number" }, name),
      strip,
      h("span", { class: "most" }, others[one.at].text),
      h("span", { class: "weight number" }, weight),
    );
    strip.addEventListener("pointermove", (event) => {
      const at = Math.min(
        values.length - 1,
        Math.floor((event.offsetX / strip.clientWidth) * values.length),
      );
      if (at >= 0)
        tip.show(
          event,
          `${others[at].text} `,
          h("b", {}, Number.isNaN(values[at]) ? "–" : three(values[at])),
        );
    });
    strip.addEventListener("pointerleave", () => tip.hide());
    return h("li", {}, button);
  }

  return {
    node,
    /** @param {Book} next */
    draw(next) {
      book = next;
      draw();
    },
  };
}
