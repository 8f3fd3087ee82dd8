// The text that is looked at: a field, and examples to begin with. Look and Steps share it.

import { after, fill, h, offer } from "../dom.js";
import { t } from "../words.js";
import "./look_words.js";

/**
 * A word, and its tokens from `start` (included) to `stop` (not included).
 * @typedef {{text: string, start: number, stop: number}} Word
 *
 * @typedef {"words" | "source_words" | "written_words"} TextName
 *
 * @typedef {object} Layer
 * @property {number} index
 * @property {string} name
 * @property {string} module
 * @property {string | null} part "encoder" or "decoder" of a translator
 * @property {string} kind "self" or "cross"
 * @property {number} heads
 * @property {number} T queries, in tokens
 * @property {number} S keys, in tokens
 * @property {TextName} rows
 * @property {TextName} cols
 *
 * @typedef {object} Statistic
 * @property {Record<"en" | "zh", string>} explain
 * @property {((number | null)[] | null)[]} values of each head, by layer
 *
 * @typedef {object} Role a head that stands out
 * @property {string} role
 * @property {Record<"en" | "zh", string>} label
 * @property {number} layer
 * @property {number} head
 * @property {number} value
 * @property {number | null} uniform what the value would be if the head looked at all alike
 *
 * What /api/look tells. A text that is too long has neither words nor statistics.
 * @typedef {object} LookFields
 * @property {string} seen
 * @property {string} kind
 * @property {Layer[]} layers
 * @property {boolean} long
 * @property {Record<TextName, number | null>} pins the word of each text to look at first
 * @property {Record<string, Statistic>} statistics
 * @property {Role[]} telling
 * @property {number} [reads] of a text longer than that: the tokens that the model reads at once,
 * @property {number} [tokens] those of the text,
 * @property {boolean} [atlas] whether the Atlas can show it,
 * @property {string} [beginning] and as much of it as the model reads
 *
 * @typedef {LookFields & Record<TextName, Word[]>} LookAnswer
 */

/**
 * A text to begin with. Of a story: the word that is asked about, what decides it, the story and
 * its nouns in other languages.
 * @typedef {object} Example
 * @property {string} text
 * @property {string | null} pin
 * @property {string | null} ending
 * @property {Record<string, string>} gloss
 * @property {Record<string, Record<string, string>>} names
 */

/** What the endings of a story have in common.
 * @param {Example} story
 */
export const stem = ({ text, ending }) => (ending ? text.slice(0, text.lastIndexOf(ending)) : text);

const FRESH = { query: null, key: null, cut: null }; // what belongs to a text goes with it

/**
 * @param {Pick<Context, "entry" | "state" | "api"> & {again: () => void}} of
 *   `again` is called when the text that is shown is sent once more, so that a failed request can
 *   be repeated.
 */
export function textBar({ entry, state, api, again }) {
  /** @type {Example[] | null} */
  let examples = null; // once they have been told
  /** @type {string[] | null} */
  let known = null; // words, if the model can read no others
  /** @type {Promise<unknown> | null} */
  let asked = null;
  let last = ""; // what the field was given: anything else in it is being typed
  const field = h("textarea", {
    rows: 1, "aria-label": t("look.text"), spellcheck: "false", autocomplete: "off",
  });
  /** @type {string | null} */
  let draft = null; // what was read in a pause of typing: the next text takes its place
  const typed = after(500, () => submit(true));
  field.addEventListener("input", (event) => {
    grow();
    if (!(/** @type {InputEvent} */ (event).isComposing)) typed();
  });
  field.addEventListener("compositionstart", () => typed.cancel()); // half a word is no text yet
  field.addEventListener("compositionend", () => typed());
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    submit();
  });
  const tries = h("div", { class: "row tries" });
  const about = h("p", { class: "quiet small number", "aria-live": "polite" });
  const form = h(
    "form",
    {
      class: "asking",
      /** @param {Event} event */
      onsubmit: (event) => (event.preventDefault(), submit()),
    },
    field,
    h("button", { type: "submit", class: "primary" }, t("look.go")),
  );

  function grow() {
    field.style.height = "auto";
    field.style.height = `${Math.min(220, field.scrollHeight + 2)}px`;
  }
  const sized = new ResizeObserver(grow); // also when the style sheet arrives
  sized.observe(form);

  function submit(pause = false) {
    typed.cancel();
    const text = field.value;
    if (!text.trim()) return;
    const now = shown(state.get());
    const push = draft === null || draft !== now;
    draft = pause ? text : null;
    if (text === now) again();
    else state.set({ text, ...FRESH }, { push });
  }

  /** @param {Where} now */
  const shown = (now) => now.text ?? examples?.[0]?.text ?? "";

  /** @param {string} text */
  function draw(text) {
    if (field.value && field.value === last) field.value = text;
    else offer(field, text);
    last = text;
    grow();
    if (!examples) return;
    // The endings of a story stand beside it.
    const others = examples.filter(
      (one, i) => !examples?.slice(0, i).some((each) => stem(each) === stem(one)),
    );
    const mine = examples.find((one) => one.text === text);
    fill(
      tries,
      others.length > 1 && h("span", { class: "quiet small" }, t("look.try")),
      others
        .slice(0, 4)
        .map((one) =>
          h(
            "button",
            {
              type: "button",
              class: `chip ${mine && stem(mine) === stem(one) ? "chosen" : ""}`,
              title: one.text,
              onclick: () => take(one.text),
            },
            h("span", {}, one.text),
          ),
        ),
    );
  }

  /** @param {string} text */
  function take(text) {
    typed.cancel();
    field.value = text;
    const before = state.address();
    state.set({ text, ...FRESH, layer: null, head: null }, { push: true });
    if (state.address() === before) again();
  }

  const fixed = entry.kind === "glass"; // what was recorded is the text
  return {
    nodes: fixed ? [about] : [form, h("div", { class: "row under" }, tries, about)],
    /** The text of this state, once it is known; shown in the field.
     * @param {Where} now
     */
    async text(now) {
      if (fixed) return "";
      asked ??= api
        .get(`/api/look/examples?model=${encodeURIComponent(entry.id)}`)
        .then((found) => ({ examples, knows: known = null } = found))
        .finally(() => examples || (asked = null)); // what failed is asked again
      if (now.text === undefined) await asked;
      else
        asked.then(
          () => draw(shown(state.get())),
          () => {},
        );
      draw(shown(now));
      return shown(now);
    },
    take,
    examples: () => examples ?? [],
    known: () => known,
    /** @param {string} what */
    tell: (what) => (about.textContent = what),
    end: () => (typed.cancel(), sized.disconnect()),
  };
}

/** A number in the address that counts from 0, or null.
 * @param {string | undefined} text
 * @param {number} below
 */
export function counted(text, below) {
  return /^\d+$/.test(text ?? "") && Number(text) < below ? Number(text) : null;
}

// Answers to questions that have been asked; the last few are kept.
export class Answers {
  constructor(most = 80) {
    this.most = most;
    /** @type {Map<string, Promise<any>>} */
    this.known = new Map();
  }

  forget() {
    this.known.clear();
  }

  /** The answer to a question, asked once. A question that is given up can be asked again at once.
   * @template T
   * @param {string} name
   * @param {(signal: AbortSignal) => Promise<T>} ask
   * @param {AbortSignal} signal
   * @returns {Promise<T>}
   */
  once(name, ask, signal) {
    if (!this.known.has(name)) {
      const answer = ask(signal);
      const drop = () => this.known.get(name) === answer && this.known.delete(name);
      this.known.set(name, answer);
      signal.addEventListener("abort", drop);
      answer.then(() => signal.removeEventListener("abort", drop), drop);
      const [oldest] = this.known.keys();
      if (this.known.size > this.most) this.known.delete(oldest);
    }
    return /** @type {Promise<T>} */ (this.known.get(name));
  }
}
