// Earlier texts of a model: what was written before the text that is there now, to come back to.

import { fill, h } from "../dom.js";
import { recall, remember } from "../drafts.js";
import { t } from "../words.js";

const MOST = 20; // texts

/** @import { Token } from "./write_paper.js" */
/** @typedef {{prompt: string, tokens: Token[]}} Written */

/**
 * @param {string} name under which they are kept
 * @param {(text: Written) => void} onpick
 */
export function writeHistory(name, onpick) {
  /** @type {Written[]} the latest first */
  let texts = read();
  const list = h("ol", {});
  const summary = h("summary", {});
  const node = h("details", { class: "card write-history" }, summary, list);
  draw();

  /** @returns {Written[]} */
  function read() {
    try {
      return JSON.parse(recall(name) ?? "[]");
    } catch {
      return [];
    }
  }

  function draw() {
    node.hidden = !texts.length;
    summary.textContent = t("write.history", { n: texts.length });
    fill(list, texts.map((one) => {
      const written = one.tokens.filter((token) => token.how !== "given");
      return h("li", {},
        h("button", { type: "button", class: "plain", onclick: () => onpick(one) },
          h("span", { class: "quiet" }, one.prompt.slice(-60)),
          h("span", {}, written.map((token) => token.text).join("").slice(0, 120)),
        ),
      );
    }));
  }

  return {
    node,
    /** Keeps a text that makes room for another one; one that nothing was added to is its prompt.
     * @param {string} prompt
     * @param {Token[]} tokens
     */
    add(prompt, tokens) {
      if (tokens.every((token) => token.how === "given")) return;
      /** @param {Token[]} all */
      const ids = (all) => all.map((token) => token.id).join();
      // What else might have come is asked again.
      const bare = tokens.map(({ id, text, logprob, special, how }) =>
        ({ id, text, logprob, special, how }));
      texts = [{ prompt, tokens: bare }, ...texts.filter((one) => ids(one.tokens) !== ids(bare))];
      texts = texts.slice(0, MOST);
      remember(name, JSON.stringify(texts));
      draw();
    },
  };
}
