// The text that is looked at: a field, and examples to begin with. Look and Steps share it.

import { after, fill, h, offer } from "../dom.js";
import { t } from "../words.js";
import "./look_words.js";

const FRESH = { query: null, key: null, cut: null }; // what belongs to a text goes with it

// `again` is called when the text that is shown is sent once more: what went wrong may not go wrong again.
export function textBar({ entry, state, api, again }) {
  let examples = null; // once they have been told
  let asked = null;
  let last = ""; // what the field was given: anything else in it is being typed
  const field = h("textarea", { rows: 1, "aria-label": t("look.text"), spellcheck: "false", autocomplete: "off" });
  const typed = after(500, submit);
  field.addEventListener("input", (event) => (grow(), event.isComposing || typed()));
  field.addEventListener("compositionstart", () => typed.cancel()); // half a word is no text yet
  field.addEventListener("compositionend", () => typed());
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    submit();
  });
  const tries = h("div", { class: "row tries" });
  const about = h("p", { class: "quiet small number", "aria-live": "polite" });
  const form = h("form", { class: "asking", onsubmit: (event) => (event.preventDefault(), submit()) }, field, h("button", { type: "submit", class: "primary" }, t("look.go")));

  function grow() {
    field.style.height = "auto";
    field.style.height = `${Math.min(220, field.scrollHeight + 2)}px`;
  }
  const sized = new ResizeObserver(grow); // also when the style sheet arrives
  sized.observe(form);

  function submit() {
    typed.cancel();
    const text = field.value;
    if (!text.trim()) return;
    if (text === shown(state.get())) again();
    else state.set({ text, ...FRESH }, { push: true });
  }

  const shown = (now) => now.text ?? examples?.[0]?.text ?? "";

  function draw(text) {
    if (field.value && field.value === last) field.value = text;
    else offer(field, text);
    last = text;
    grow();
    if (!examples) return;
    fill(tries, examples.length > 1 && h("span", { class: "quiet small" }, t("look.try")), examples.slice(0, 4).map((one) =>
      h("button", { type: "button", class: `chip ${one.text === text ? "chosen" : ""}`, title: one.text, onclick: () => take(one.text) }, h("span", {}, brief(one.text)))));
  }

  function take(text) {
    typed.cancel();
    field.value = text;
    const before = state.address();
    state.set({ text, ...FRESH, layer: null, head: null }, { push: true });
    if (state.address() === before) again();
  }

  // Texts that begin alike are told apart by how they end.
  function brief(text) {
    const alike = examples.some((one) => one.text !== text && one.text.slice(0, 8) === text.slice(0, 8));
    return alike && text.length > 20 ? `…${text.slice(-13)}` : text;
  }

  const fixed = entry.kind === "glass"; // what was recorded is the text
  return {
    nodes: fixed ? [about] : [form, h("div", { class: "row under" }, tries, about)],
    // The text of this state, once it is known; shown in the field.
    async text(now) {
      if (fixed) return "";
      asked ??= api.get(`/api/look/examples?model=${encodeURIComponent(entry.id)}`)
        .then((found) => (examples = found.examples))
        .finally(() => examples || (asked = null)); // what failed is asked again
      if (now.text === undefined) await asked;
      else asked.then(() => draw(shown(state.get())), () => {});
      draw(shown(now));
      return shown(now);
    },
    tell: (what) => (about.textContent = what),
    end: () => (typed.cancel(), sized.disconnect()),
  };
}

export const PRONOUNS = new Set("它 他 她 它们 他们 她们 it he she they him her them er sie es ihn ihm ihr".split(" "));

// Where the last pronoun stands among words, or -1.
export function lastPronoun(texts) {
  return texts.findLastIndex((text) => PRONOUNS.has(text.trim().toLowerCase()));
}

// A number in the address that counts from 0, or null.
export function counted(text, below) {
  return /^\d+$/.test(text ?? "") && Number(text) < below ? Number(text) : null;
}

// Answers to questions that have been asked; the last few are kept.
export class Answers {
  constructor(most = 80) {
    this.most = most;
    this.known = new Map();
  }

  forget() {
    this.known.clear();
  }

  // A question that is given up can be asked again at once, before its end has got about.
  once(name, ask, signal) {
    if (!this.known.has(name)) {
      const answer = ask(signal);
      const drop = () => this.known.get(name) === answer && this.known.delete(name);
      this.known.set(name, answer);
      signal.addEventListener("abort", drop);
      answer.then(() => signal.removeEventListener("abort", drop), drop);
      if (this.known.size > this.most) this.known.delete(this.known.keys().next().value);
    }
    return this.known.get(name);
  }
}
