// The question that the first view asks, what the model says, and what becomes of it after a cut.

import { fill, h, problem, segmented } from "../dom.js";
import { saved } from "../embedded.js";
import { language, percent, t } from "../words.js";
import { likeliest, says } from "./look_prediction.js";
import { carriers, deserves, nameOf, sameHead, targetOf } from "./look_strips.js";
import { stem } from "./look_text.js";

/** @import { Book } from "./look.js" */
/** @import { Likely } from "./look_prediction.js" */

const NAMED = 3; // heads in a sentence

/** Whether the looks of this model can be cut in the picture.
 * @param {Book} book
 */
export const playable = ({ data, pin }) =>
  !saved && ["reader", "gpt"].includes(data.kind) && pin.row !== null;

/** What this is.
 * @param {Book} book
 */
export function aboutOf({ data }) {
  const heads = data.layers.reduce((n, layer) => n + layer.heads, 0);
  return t(says(data.kind) ? `look.about.${data.kind}` : "look.about", { heads });
}

/** The question, in which the word that is asked about is set off.
 * @param {Book} book
 */
export function questionOf(book) {
  const { key, word } = asked(book);
  const [before, after] = t(key, { word: "\n" }).split("\n");
  return after === undefined ? before : [before, h("em", {}, word), after];
}

/** @param {Book} book @returns {{key: string, word: string}} */
function asked({ data, pin, rows, cols, layer, same, dir }) {
  if (pin.row === null)
    return pin.col === null
      ? { key: "look.ask.none", word: "" }
      : { key: "look.ask.to", word: cols[pin.col].text };
  const word = rows[pin.row].text;
  if (dir === "to" && same) return { key: "look.ask.to", word };
  if (data.kind === "reader") return { key: "look.ask.reader", word };
  if (data.kind === "gpt")
    return { key: pin.row === rows.length - 1 ? "look.ask.next" : "look.ask.after", word };
  return { key: layer.kind === "cross" ? "look.ask.cross" : "look.ask.from", word };
}

/** A word of the model in a sentence.
 * @param {string} text
 */
const named = (text) => (text === "␣" ? t("look.answer.space") : text.trim() || text);

/** @param {(string | null)[]} said */
export const sentences = (said) => said.filter(Boolean).join(language() === "zh" ? "" : " ");

/** One sentence on what is seen: with figures, and only where they deserve it.
 * @param {Book} book
 */
export function captionOf(book) {
  const { pin, rows, cols, from, dir, same, kind, shape } = book;
  if (kind === "ratio") return t("look.see.ratio");
  if (pin.row === null || !from) return t("look.pin.hint");
  const word = rows[pin.row].text;
  /** @param {string} key how to read the strips, where there are any */
  const how = (key) => t(shape === "matrix" ? "look.see.matrix" : key, { word });
  if (dir === "to" && same) return how("look.see.to");
  const name = `${book.layer.name}:${book.head}`;
  const one = sameHead(from, { layer: book.layer.index, head: book.head });
  if (!one) return how("look.see.strips");
  const looked = { word, head: name, to: cols[one.at].text, weight: percent(one.most) };
  if (book.before && targetOf(book) >= 0 && targetOf(book) !== one.at)
    return sentences([t("look.see.cut", looked), how("look.see.lanes")]);
  if (deserves(one.most, cols.length))
    return sentences([t("look.see", looked), how("look.see.strips")]);
  const best = [...from.heads].sort((a, b) => b.most - a.most)[0];
  if (deserves(best.most, cols.length))
    return sentences([t("look.see.weak", looked), how("look.see.strips")]);
  return t(from.besides_first ? "look.see.nothing.besides" : "look.see.nothing", {
    word, head: nameOf(book, best), to: cols[best.at].text, weight: percent(best.most),
  });
}

/**
 * @param {{
 *   set: (patch: Patch) => void, take: (text: string) => void, everywhere: () => void,
 * }} of
 */
export function answerPanel({ set, take, everywhere }) {
  const said = h("div", { class: "said", "aria-live": "polite" });
  const play = h("div", { class: "play" });
  const endings = h("div", { class: "endings" });
  const node = h("aside", { class: "answer" }, said, play, endings);

  /** @param {Book} book @param {Likely} word @param {number} value @param {string} label */
  function large(book, word, value, label, kind = "") {
    const text = word.text.trim() || word.text;
    const gloss = text === "␣" ? t("look.answer.space") : book.story?.names[text]?.[language()];
    return h("div", { class: `large ${kind}` },
      h("span", { class: "eyebrow" }, label),
      h("b", { class: text.length > 12 ? "long" : text.length > 7 ? "longish" : "" }, text),
      gloss && h("span", { class: "gloss" }, gloss),
      h("span", { class: "share" },
        h("i", { style: { width: `${100 * value}%` } }),
        h("span", { class: "number" }, percent(value)),
      ),
    );
  }

  /** @param {Book} book */
  function drawSaid(book) {
    const { data, prediction, predictionProblem, pin } = book;
    if (predictionProblem) return fill(said, problem(predictionProblem, t));
    if (!says(data.kind) || (data.kind === "reader" && pin.row === null)) {
      const strongest = book.from?.heads[0];
      if (!strongest || !deserves(strongest.most, book.cols.length)) return fill(said);
      const word = { id: 0, text: book.cols[strongest.at].text, before: 0, after: null };
      return fill(said, large(book, word, strongest.most,
        t(book.from?.besides_first ? "look.answer.most.besides" : "look.answer.most",
          { head: nameOf(book, strongest) })));
    }
    if (!prediction) return fill(said, h("p", { class: "quiet" }, t("look.reading")));
    const { first, then } = likeliest(prediction.words);
    if (then === null) {
      const answer = large(book, first, first.before, t("look.answer"));
      return fill(said, answer, runnerUp(prediction.words));
    }
    const changed = then.id !== first.id;
    return fill(said, h("div", { class: "both" },
      large(book, first, first.before, t("look.cut.before"), "was"),
      large(book, then, then.after ?? 0, t("look.cut.after"), changed ? "changed" : ""),
    ));
  }

  /** @param {Likely[]} words */
  function runnerUp(words) {
    const second = [...words].sort((a, b) => b.before - a.before)[1];
    const told = { word: named(second?.text ?? ""), weight: percent(second?.before ?? 0) };
    return second && h("p", { class: "quiet small" }, t("look.answer.second", told));
  }

  /** @param {Book} book */
  function drawPlay(book) {
    if (!playable(book) || book.dir === "to") return fill(play);
    const target = targetOf(book);
    const { prediction } = book;
    const start = h("button", {
      type: "button", class: "plain", onclick: () => set({ cut: null }),
    }, t("look.play.start"));
    const all = h("button", { type: "button", class: "every", onclick: everywhere },
      t("look.play.every"));
    if (!book.cut) {
      if (target < 0) return fill(play);
      const said = sentences([t("look.play"), book.shape === "lines" ? t("look.play.how") : null]);
      return fill(play, h("p", { class: "dare" }, said), all);
    }
    if (!prediction) return fill(play, start);
    const { first, then } = likeliest(prediction.words);
    const answer = named(first.text);
    if (then && then.id !== first.id)
      return fill(play,
        h("p", { class: "dare changed" },
          t("look.play.changed", { before: answer, after: named(then.text) })),
        start,
      );
    const still = carriers(book);
    const names = still
      .slice(0, NAMED)
      .map((one) => `${nameOf(book, one)} (${percent(one.weights[target] ?? 0)})`)
      .join(language() === "zh" ? "、" : ", ");
    const word = target >= 0 ? book.cols[target].text : "";
    return fill(play,
      h("p", { class: "dare" }, t(still.length ? "look.play.still" : "look.play.none",
        { answer, word, heads: names })),
      still.length > 0 && all,
      start,
    );
  }

  /** @param {Book} book */
  function drawEndings({ story, stories, text }) {
    const both = story ? stories.filter((one) => stem(one) === stem(story)) : [];
    if (both.length < 2) return fill(endings);
    fill(endings,
      h("span", { class: "eyebrow" }, t("look.endings")),
      segmented({
        label: t("look.endings"), value: text,
        options: both.map((one) => [one.text, `…${one.ending}`, one.gloss[language()]]),
        onchange: take,
      }),
    );
  }

  return {
    node,
    /** What the model says, before anything else is known.
     * @param {Book} book
     */
    say: (book) => void drawSaid(book),
    /** @param {Book} book */
    draw(book) {
      drawSaid(book);
      drawPlay(book);
      drawEndings(book);
      node.hidden = ![said, play, endings].some((one) => one.firstChild);
    },
  };
}
