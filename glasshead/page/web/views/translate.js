// Translate: the best translations of a text, and what each head looked at for each word of them.

import * as api from "../api.js";
import { fill, h, offer, problem, segmented, select, styles } from "../dom.js";
import { keepDraft } from "../drafts.js";
import * as state from "../state.js";
import { language, t } from "../words.js";
import { attentionCard } from "./translate_attention.js";
import { index } from "./translate_heads.js";
import { meaning, pronoun, stories } from "./translate_stories.js";
import "./translate_words.js";

/** @type {Translation} */
const NOTHING = { parts: [], layers: 0, usual_layer: 0, alpha: 0 };
const USUAL = { beam: "4", n: "4", alpha: "0.6" };
const KEYS = /** @type {(keyof typeof USUAL)[]} */ (["beam", "n", "alpha"]);

/**
 * What /api/translate tells, and the `alpha` that was asked for.
 * @typedef {object} Candidate
 * @property {string} text
 * @property {number} score
 * @property {number} log_prob
 * @property {boolean} ended
 * @property {number[]} target
 *
 * @typedef {{source: number[], words: string[], candidates: Candidate[]}} Part
 * @typedef {{parts: Part[], layers: number, usual_layer: number, alpha: number}} Translation
 */

/** @import { LayerLook } from "./translate_heads.js" */
/** @import { KnownStory } from "./translate_stories.js" */

/** @type {View} */
export default {
  id: "translate",
  title: () => t("translate.title"),
  fits: (entry) => Boolean(entry?.can.includes("translate")),
  mount,
};

/** @param {HTMLElement} root @param {Context} context */
function mount(root, { entry, kept }) {
  styles("views/translate.css");
  /** @type {AbortController | null} */
  let asked = null; // ends the request on its way
  let found = NOTHING;
  /** @type {LayerLook[]} */
  let looks = []; // of the chosen candidate, by layer
  let looked = ""; // which candidate they are of
  let said = ""; // the text that was translated, whatever is being typed
  let addressed = state.get().text ?? ""; // the text that the address told last
  let gone = false;

  const text = h("textarea", {
    rows: 4, "aria-label": t("translate.source"), placeholder: t("translate.placeholder"),
    spellcheck: "false",
  });
  const go = h("button", { type: "submit", class: "primary" }, t("translate.go"));
  /** @param {keyof typeof USUAL} key @param {string[]} options */
  const number = (key, options) =>
    select({
      label: t(`translate.${key}`),
      visible: true,
      value: state.get()[key] ?? USUAL[key],
      options: options.map((n) => [n, n]),
      onchange: (to) => (state.set({ [key]: to === USUAL[key] ? null : to, best: null }), ask()),
    });
  const controls = {
    beam: number("beam", ["1", "2", "4", "8", "16"]),
    n: number("n", ["1", "2", "4", "8"]),
    alpha: number("alpha", ["0", "0.3", "0.6", "1"]),
  };
  const gloss = h("p", { class: "quiet small gloss", hidden: true });
  const form = h("form", {
    class: "card translate-source",
    /** @param {Event} event */
    onsubmit: (event) => (event.preventDefault(), send()),
  });
  const result = h("div", { class: "card translate-result", "aria-live": "polite" });
  const card = attentionCard();
  const examples = stories(entry, (story) => ((text.value = story.text), send()));
  fill(
    form,
    text,
    gloss,
    h("div", { class: "row" }, go, controls.beam, controls.n, controls.alpha),
    examples.node,
  );
  fill(root, h("div", { class: "translate-top" }, form, result), card.node);
  text.addEventListener(
    "keydown",
    (event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && send(),
  );

  begin();

  async function begin() {
    text.value = kept?.text === addressed ? kept.typed : addressed;
    if (keepDraft(text, `translate ${entry.id}`)) state.set({ text: (addressed = text.value) });
    fill(result, h("p", { class: "quiet" }, t("translate.empty")));
    const first = await examples.load();
    if (gone) return;
    if (!text.value && !addressed && first) {
      offer(text, first.text);
      addressed = text.value;
      state.set({ text: addressed });
    }
    ask();
  }

  function send() {
    const same = text.value === addressed;
    addressed = text.value;
    state.set({ text: addressed, best: null, part: null, pin: null }, { push: !same });
    ask();
  }

  async function ask() {
    const value = addressed;
    if (!value.trim()) return;
    asked?.abort();
    const own = (asked = new AbortController());
    result.classList.add("busy");
    const [beam, n, alpha] = KEYS.map((key) =>
      Number(controls[key].value || USUAL[key]),
    );
    const body = { model: entry.id, text: value, beam: Math.max(beam, n), n_best: n, alpha };
    try {
      const answer = await api.post("/api/translate", body, { signal: own.signal });
      if (own !== asked) return;
      found = { ...answer, alpha };
      looked = "";
      said = value;
      examples.mark(value);
      showGloss();
      showResult();
      if (found.parts.length) await see();
      else card.hide();
    } catch (error) {
      if (own !== asked || api.ended(error)) return;
      found = NOTHING;
      card.hide();
      fill(result, problem(error, t));
    } finally {
      if (own === asked) result.classList.remove("busy");
    }
  }

  const part = () => found.parts[index(state.get().part, found.parts.length) ?? 0];
  const candidate = () => part().candidates[index(state.get().best, part().candidates.length) ?? 0];

  /** The story in the reader's language. */
  function showGloss() {
    const told = examples.of(said)?.one.gloss[language()];
    gloss.hidden = !told;
    gloss.textContent = told ?? "";
  }

  function showResult() {
    if (!found.parts.length)
      return fill(result, h("p", { class: "quiet" }, t("translate.nothing")));
    const best = candidate();
    const story = examples.of(said);
    const focused = result.contains(document.activeElement);
    fill(
      result,
      found.parts.length > 1
        ? h(
            "p",
            { class: "quiet small" },
            t("translate.parts", { max: entry.max_len, n: found.parts.length }),
          )
        : null,
      found.parts.length > 1
        ? segmented({
            label: t("translate.part"),
            value: String(found.parts.indexOf(part())),
            options: found.parts.map((_, n) => [String(n), String(n + 1)]),
            onchange: (n) => state.set({ part: n, best: null, pin: null }),
          })
        : null,
      h("p", { class: "translation", lang: story?.langs[1] }, marked(best, story)),
      story ? verdict(best, story) : null,
      h("h3", {}, t("translate.best")),
      list(best),
    );
    const button = /** @type {HTMLButtonElement | null} */ (
      result.querySelector("tr.chosen button")
    );
    if (focused) button?.focus();
  }

  /** The translation, with the story's pronoun in it set off.
   * @param {Candidate} best
   * @param {KnownStory | null} story
   */
  function marked(best, story) {
    const at = story && looks[0] && looked === key() ? pronoun(looks[0].target, story) : null;
    if (at === null) return best.text || t("translate.nothing");
    const word = looks[0].target[at];
    let place = best.text.length;
    for (let n = looks[0].target.length - 1; n >= at; n--)
      place = best.text.lastIndexOf(looks[0].target[n], place - 1);
    return place < 0
      ? best.text
      : [best.text.slice(0, place), h("mark", {}, word), best.text.slice(place + word.length)];
  }

  /** @param {Candidate} best @param {KnownStory} story */
  function verdict(best, story) {
    const { one } = story;
    const at = looks[0] && looked === key() ? pronoun(looks[0].target, story) : null;
    const words = {
      pronoun: one.pronoun, word: meaning(one), wanted: one.wanted_pronoun,
      said: at === null ? "–" : looks[0].target[at],
    };
    const right = words.said === words.wanted;
    return h(
      "div",
      { class: "translate-verdict small" },
      at === null
        ? null
        : h(
            "p",
            { class: right ? "right" : "wrong" },
            t(right ? "translate.pronoun" : "translate.pronoun.wrong", words),
          ),
      best.text === one.wanted
        ? h("p", { class: "quiet" }, t("translate.exact"))
        : h("p", { class: "quiet" }, `${t("translate.other")} ${one.wanted}`),
    );
  }

  /** @param {Candidate} best */
  function list(best) {
    const rows = part().candidates.map((one, n) => {
      const on = one === best;
      const choose = () => state.set({ best: n || null, pin: null });
      return h(
        "tr",
        { class: on ? "chosen" : null, onclick: choose },
        h(
          "td",
          {},
          h(
            "button",
            { type: "button", class: "plain", "aria-pressed": on ? "true" : "false" },
            n ? otherwise(part().candidates[0].text, one.text) : one.text || "∅",
            one.ended ? null : h("span", { class: "quiet" }, ` (${t("translate.cut")})`),
          ),
        ),
        h("td", { class: "number" }, one.score.toFixed(3)),
        h("td", { class: "number" }, one.log_prob.toFixed(3)),
      );
    });
    const heads = h(
      "tr",
      {},
      h("th", { scope: "col" }),
      h(
        "th",
        { scope: "col", class: "number", title: t("translate.score.why", { alpha: found.alpha }) },
        t("translate.score"),
      ),
      h("th", { scope: "col", class: "number" }, t("translate.logprob")),
    );
    return h(
      "div",
      { class: "scroll" },
      h("table", { class: "translate-list" }, h("thead", {}, heads), h("tbody", {}, rows)),
    );
  }

  /** @param {Candidate} one @param {number} layer */
  const look = (one, layer) => ({
    model: entry.id, source: part().source, target: one.target, layer,
  });
  const key = () => `${found.parts.indexOf(part())} ${part().candidates.indexOf(candidate())}`;

  // What every layer looked at for the chosen candidate.
  async function see() {
    const best = candidate();
    const own = asked;
    const wanted = key();
    if (!best.target.length) return ((looked = ""), showResult(), card.hide());
    if (wanted !== looked) {
      /** @type {LayerLook[]} */
      const all = [];
      for (let layer = 0; layer < found.layers; layer++) {
        const answer = await api.post("/api/translate/look", look(best, layer), {
          signal: own?.signal,
        });
        const { shape, source, target, weights } = answer;
        all.push({ shape, source, target, weights: numbers(weights) });
      }
      if (own !== asked || wanted !== key()) return;
      looks = all;
      looked = wanted;
      showResult();
      card.show(looks, { usual: found.usual_layer, story: examples.of(said) });
    } else card.update();
  }

  return {
    /** @param {Where} now */
    update(now) {
      for (const key of KEYS) controls[key].value = now[key] ?? USUAL[key];
      const news = (now.text ?? "") !== addressed;
      addressed = now.text ?? "";
      if (news && addressed) {
        text.value = addressed;
        return void ask();
      }
      if (found.parts.length)
        see().catch((error) => api.ended(error) || fill(result, problem(error, t)));
    },
    unmount() {
      gone = true;
      asked?.abort();
      card.unmount();
    },
    kept: () => ({ text: addressed, typed: text.value }),
    /** @param {Painter} painter */
    picture: (painter) => card.picture(painter, found.parts.length ? candidate().text : ""),
    // What the other candidates looked at.
    wants() {
      /** @type {Ask[]} */
      const asks = [];
      for (const one of found.parts.length ? part().candidates : [])
        for (let layer = 0; one.target.length && layer < found.layers; layer++)
          asks.push(["/api/translate/look", look(one, layer)]);
      return asks;
    },
  };
}

/** A text with what is other than in the first: between the words that both begin and end with.
 * @param {string} first
 * @param {string} text
 * @returns {Child[]}
 */
function otherwise(first, text) {
  const [a, b] = [first, text].map((one) => one.split(/(?<=\s)|(?=[。，、])|(?<=[\u4e00-\u9fff])/));
  let start = 0;
  while (start < Math.min(a.length, b.length) && a[start] === b[start]) start++;
  let end = 0;
  while (
    end < Math.min(a.length, b.length) - start &&
    a[a.length - 1 - end] === b[b.length - 1 - end]
  )
    end++;
  const middle = b.slice(start, b.length - end).join("");
  return [
    b.slice(0, start).join(""),
    middle ? h("em", {}, middle) : h("em", { class: "less" }, "‸"),
    b.slice(b.length - end).join(""),
  ];
}

/** @param {string} text float32 in base64 */
function numbers(text) {
  return new Float32Array(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
}
