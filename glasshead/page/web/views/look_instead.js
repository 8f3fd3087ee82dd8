// What stands in the place of the picture where a text cannot be read, and what to do then.

import { h, problem } from "../dom.js";
import { count, language, t } from "../words.js";
import { stem } from "./look_text.js";

/** @import { LookAnswer } from "./look_text.js" */

const NAMED = 24; // words that the model knows
const OFFERED = 3; // texts

/** A text that is too long for this view, or for the model.
 * @param {LookAnswer} data
 * @param {{state: Context["state"], take: (text: string) => void}} of
 */
export function longCard(data, { state, take }) {
  const { reads, tokens, beginning, atlas = true } = data;
  /** @param {string} key @param {() => void} onclick @param {boolean} first */
  const button = (key, onclick, first) =>
    h("button", { type: "button", class: first ? "primary" : "", onclick }, t(key));
  const open = () => state.set({ view: "atlas" }, { push: true });
  return h(
    "div",
    { class: "empty" },
    h("h1", {}, reads ? t("look.over", { n: count(tokens ?? 0), reads: count(reads) })
      : t("look.long")),
    h("p", { class: "quiet" }, t(reads ? (atlas ? "look.over.hint" : "look.over.only")
      : "look.long.hint")),
    h("p", { class: "row" },
      atlas && button("look.long.go", open, true),
      beginning && button("look.over.go", () => take(beginning), !atlas),
    ),
  );
}

/** What went wrong; where the model does not know the words, which it knows, and sentences of them.
 * @param {Failure} error
 * @param {{bar: ReturnType<typeof import("./look_text.js").textBar>, now: Where}} of
 */
export function unreadableCard(error, { bar, now }) {
  const known = bar.known();
  const texts = bar.examples().filter(
    (one, n, all) => one.text !== now.text && all.findIndex((o) => stem(o) === stem(one)) === n,
  );
  if (error.status !== 400 || !known || !texts.length) return problem(error, t);
  // Words of the sentences that are offered say most about what it reads; then any others.
  const offered = texts.map((one) => one.text).join("\n");
  const inTexts = known.filter((word) => word.length > 1 && offered.includes(word));
  const names = [...new Set([...inTexts, ...known.filter((word) => /\p{L}/u.test(word))])];
  const characters = known.every((one) => [...one].length === 1);
  const list = names.slice(0, NAMED).join(language() === "zh" ? "、" : ", ");
  return h("div", { class: "unreadable" },
    problem(error, t),
    h("h2", {}, t(`look.knows.${characters ? "characters" : "words"}`, { n: count(known.length) })),
    h("p", { class: "quiet" }, list, names.length > NAMED ? " …" : ""),
    h("h2", {}, t("look.knows.try")),
    h("div", { class: "offers" }, texts.slice(0, OFFERED).map((one) =>
      h("button", { type: "button", class: "offer", onclick: () => bar.take(one.text) },
        one.text,
        one.gloss[language()] && h("span", { class: "quiet small" }, one.gloss[language()]),
      ),
    )),
  );
}
