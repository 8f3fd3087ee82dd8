// What the model says at a word, as it is and after the cut.

import { fill, h, problem } from "../dom.js";
import { percent, t } from "../words.js";

/** @import { Book } from "./look.js" */
/** @import { Word } from "./look_text.js" */

/**
 * What /api/ablate tells: how likely each word is, as it is and after the cut (null without one).
 * @typedef {{id: number, text: string, before: number, after: number | null}} Likely
 *
 * @typedef {object} Prediction
 * @property {"next" | "answer" | "word"} kind
 * @property {number} at
 * @property {Likely[]} words
 * @property {string} [translation] of a translator, as are the following
 * @property {string | null} [changed] the translation after the cut; null if it is too short for it
 * @property {string} [prefix] what was written before the word
 */

const SAYS = new Set(["gpt", "reader", "translator"]);
const SHOWN = 6; // words

/** Whether models of this kind say anything that can change.
 * @param {string} kind
 */
export const says = (kind) => SAYS.has(kind);

/** @param {HTMLElement} node @param {Book} book */
export function drawPrediction(node, book) {
  const { data, pin, prediction: found, predictionProblem } = book;
  /** @param {string} text */
  const quiet = (text) => fill(node, h("p", { class: "quiet" }, text));
  if (!says(data.kind)) return quiet(t("look.cut.none"));
  if (predictionProblem) return fill(node, problem(predictionProblem, t));
  if (!found)
    return quiet(t(data.kind === "reader" && pin.row === null ? "look.cut.pin" : "look.reading"));
  const cut = found.words.some((word) => word.after !== null);
  return fill(
    node,
    h("h3", {}, question(found, data.words)),
    table(found.words, cut),
    cut && verdict(found.words),
    found.translation !== undefined &&
      translations(found.translation, found.changed ?? null, cut),
  );
}

/** @param {Prediction} found @param {Word[]} words */
function question(found, words) {
  if (found.kind === "answer") return t("look.cut.answer", { word: wordAt(words, found.at) });
  if (found.kind === "next") return t("look.cut.next", { word: wordAt(words, found.at) });
  const before = found.prefix?.split(/\s+/).at(-1);
  return before ? t("look.cut.word", { word: before }) : t("look.cut.first");
}

/** @param {Likely[]} words @param {boolean} cut */
function table(words, cut) {
  /** @param {Likely} word */
  const most = (word) => Math.max(word.before, word.after ?? 0);
  const shown = [...words]
    .sort((a, b) => most(b) - most(a))
    .filter((word, i) => i < 2 || most(word) >= 0.001)
    .slice(0, SHOWN);
  const heads = [
    h("th", { class: "spoken-head" }, ""),
    h("th", {}, t("look.cut.before")),
    cut && h("th", {}, t("look.cut.after")),
  ];
  const rows = shown.map(({ text, before, after }) =>
    h(
      "tr",
      {},
      h("td", { class: "said" }, text),
      share(before, ""),
      cut && share(after ?? 0, (after ?? 0) > before ? "up" : "down"),
    ),
  );
  return h(
    "table",
    { class: cut ? "both" : "" },
    h("thead", {}, h("tr", {}, heads)),
    h("tbody", {}, rows),
  );
}

/** @param {number} value @param {string} way */
function share(value, way) {
  return h(
    "td",
    { class: `share ${way}` },
    h("span", { class: "number" }, percent(value)),
    h("i", { style: { width: `${100 * value}%` } }),
  );
}

/** The likeliest word as the model is, and after the cut (null without one).
 * @param {Likely[]} words
 */
export function likeliest(words) {
  const first = [...words].sort((a, b) => b.before - a.before)[0];
  const then = [...words].sort((a, b) => (b.after ?? 0) - (a.after ?? 0))[0];
  return { first, then: then.after === null ? null : then };
}

/** Whether another word is the likeliest now.
 * @param {Likely[]} words
 */
function verdict(words) {
  const { first, then } = likeliest(words);
  if (!then || first.id === then.id)
    return h("p", { class: "verdict" }, t("look.cut.same", { word: first.text }));
  const what = t("look.cut.changed", { before: first.text, after: then.text });
  return h("p", { class: "verdict changed" }, what);
}

/** @param {string} before @param {string | null} changed @param {boolean} cut */
function translations(before, changed, cut) {
  /** The words that the other does not have are set off.
   * @param {string} text
   * @param {string} other
   */
  const marked = (text, other) => {
    const known = new Set(other.split(/\s+/));
    return text
      .split(/(\s+)/)
      .map((word) => (word.trim() && !known.has(word) ? h("mark", {}, word) : word));
  };
  return h(
    "div",
    { class: "translations" },
    h("h3", {}, t("look.cut.translation")),
    h(
      "p",
      {},
      cut && h("span", { class: "eyebrow" }, t("look.cut.before")),
      cut && changed ? marked(before, changed) : before,
    ),
    cut &&
      h(
        "p",
        {},
        h("span", { class: "eyebrow" }, t("look.cut.after")),
        changed === null
          ? h("span", { class: "quiet" }, t("look.cut.unknown"))
          : marked(changed, before),
      ),
  );
}

/** @param {Word[]} words @param {number} token */
function wordAt(words, token) {
  return words.find((word) => word.start <= token && token < word.stop)?.text ?? "";
}
