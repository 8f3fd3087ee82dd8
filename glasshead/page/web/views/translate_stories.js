// Stories in two endings for a model of the embedded world: one click to the other meaning of 它.

import * as api from "../api.js";
import { fill, h, problem } from "../dom.js";
import { language, t } from "../words.js";

/**
 * @typedef {object} Story
 * @property {string} text
 * @property {string} pronoun
 * @property {number} index where the pronoun stands among the words
 * @property {number} referent where the word stands that it means
 * @property {string} stands_for
 * @property {string} wanted the right translation
 * @property {string} wanted_pronoun
 * @property {Record<string, string>} gloss the text in other languages of the page
 * @property {Record<string, Record<string, string>>} names its nouns in them
 *
 * @typedef {{one: Story, both: Story[], langs: [source: string, target: string]}} KnownStory
 */

/** Where a translation of one of two stories has the pronoun that tells them apart.
 * @param {string[]} target
 * @param {KnownStory} story
 */
export function pronoun(target, { both }) {
  const known = new Set(both.map((one) => one.wanted_pronoun));
  const at = target.findLastIndex((word) => known.has(word));
  return at < 0 ? null : at;
}

/** What the pronoun stands for, also in the reader's language.
 * @param {Story} one
 */
export function meaning({ stands_for, names }) {
  const gloss = names[stands_for]?.[language()];
  return gloss ? t("translate.gloss", { word: stands_for, gloss }) : stands_for;
}

/** @param {Entry} entry @param {(story: Story) => void} onpick */
export function stories(entry, onpick) {
  const node = h("div", { class: "translate-stories", hidden: true });
  /** @type {Map<string, KnownStory>} */
  const known = new Map(); // by text
  /** @type {Story[][]} */
  let pairs = [];
  let next = 0;
  let now = "";

  async function load(start = 0) {
    const model = encodeURIComponent(entry.id);
    try {
      const told = await api.get(
        `/api/translate/examples?model=${model}&start=${start}&n=${start ? 1 : 2}`,
      );
      const { langs } = told;
      next = told.next;
      pairs = start ? [pairs[0], told.pairs[0]] : told.pairs;
      for (const both of pairs) for (const one of both) known.set(one.text, { one, both, langs });
      draw();
      return pairs[start ? 1 : 0]?.[0] ?? null;
    } catch (error) {
      node.hidden = false;
      fill(node, problem(error, t));
      return null;
    }
  }

  function draw() {
    node.hidden = !pairs.length;
    if (node.hidden) return;
    const buttons = [...node.querySelectorAll("button")];
    const focused = buttons.findIndex((button) => button === document.activeElement);
    fill(
      node,
      h("h3", {}, t("translate.stories")),
      h(
        "p",
        { class: "quiet small" },
        t("translate.stories.hint", { pronoun: pairs[0][0].pronoun }),
      ),
      pairs.map((both) =>
        h(
          "div",
          { class: "row" },
          both.map((one) =>
            h(
              "button",
              {
                type: "button",
                class: `chip ${one.text === now ? "chosen" : ""}`,
                "aria-pressed": one.text === now ? "true" : "false",
                title: one.text,
                onclick: () => onpick(one),
              },
              t("translate.variant", { pronoun: one.pronoun, word: meaning(one) }),
            ),
          ),
        ),
      ),
      h("button", { type: "button", class: "plain", onclick: another }, t("translate.another")),
    );
    if (focused >= 0) node.querySelectorAll("button")[focused]?.focus();
  }

  async function another() {
    const one = await load(next);
    if (one) onpick(one);
  }

  return {
    node,
    load,
    /** @param {string} text */
    of: (text) => known.get(text.trim()) ?? null,
    /** @param {string} text */
    mark(text) {
      now = text.trim();
      draw();
    },
  };
}
