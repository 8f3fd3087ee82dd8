// Write: a text goes on token by token; each choice can be seen, and changed.

import * as api from "../api.js";
import { after, fill, h, problem, segmented, styles } from "../dom.js";
import { keepDraft } from "../drafts.js";
import { Scale } from "../scale.js";
import * as state from "../state.js";
import { t, three } from "../words.js";
import { writeForm } from "./write_form.js";
import { writeHistory } from "./write_history.js";
import { statusOf, SURPRISE, tokenPaper } from "./write_paper.js";
import { paintWriting, ramp } from "./write_picture.js";
import { alternatives, asksOf, chosenHead, headOf, lookedAt, visible } from "./write_side.js";
import "./write_words.js";

/** @import { Alternative, Token, Unit } from "./write_paper.js" */

/** @type {View} */
export default {
  id: "write",
  title: () => t("write.title"),
  fits: (entry) => Boolean(entry?.can.includes("write")),
  mount,
};

/** @param {HTMLElement} root @param {Context} context */
function mount(root, { entry, limits, kept }) {
  styles("views/write.css");
  let gone = false;
  /** @type {AbortController | null} */
  let running = null; // ends what is being written
  /** @type {AbortController | null} */
  let reading = null;
  /** @type {AbortController | null} */
  let looking = null;
  /** @type {Alternative[]} */
  let next = []; // what may come after the last token
  /** @type {number | null} */
  let at = null; // the token that is looked into; null: what comes next
  /** @type {import("./write_side.js").Looked | null} */
  let told = null; // what its heads looked at
  let seenFrom = 0;
  let ended = "";
  let began = 0;
  let written = 0;
  let addressed = state.get().text ?? ""; // the last text in the address, whatever is being typed

  const form = writeForm({
    limit: limits?.max_tokens,
    begin: () => begin(),
    stop: () => running?.abort(),
  });
  const one = h("button", { type: "button", onclick: () => write(1) }, t("write.one"));
  const on = h("button", { type: "button", onclick: () => write() }, t("write.on"));

  const paper = tokenPaper((place) => look(place));
  const by = segmented({
    label: t("write.colour"),
    value: state.get().colour ?? "surprise",
    options: ["surprise", "look", "none"].map((name) => [name, t(`write.by.${name}`)]),
    onchange: (name) => state.set({ colour: name === "surprise" ? null : name }),
  });
  const legend = h("span", { class: "legend" });
  const status = h("p", { class: "quiet small number", role: "status" });
  const forgotten = h("p", { class: "quiet small" });
  const empty = h("p", { class: "quiet write-empty" }, t("write.empty"));
  const side = {
    next: h("div", { class: "card write-next", hidden: true }),
    look: h("div", { class: "card write-look", hidden: true }),
  };
  const header = h("header", {}, h("h2", {}, t("write.text")), by, legend);
  const foot = h("div", { class: "row write-foot" }, one, on, status);
  const card = h("div", { class: "card write-text" }, header, forgotten, empty, paper.node, foot);
  const past = writeHistory(`write history ${entry.id}`, back);
  const main = h("div", { class: "write-main" }, form.node, card, past.node);
  const beside = h("div", { class: "write-side" }, side.next, side.look);
  fill(root, h("div", { class: "write-grid" }, main, beside));
  const recolour = after(0, colour);
  const lookSoon = after(160, askLook);
  const same = kept?.text === addressed;
  form.text.value = same ? kept.typed : addressed;
  buttons();
  colour();
  if (same && kept.tokens.length) resume();
  else if (state.get().go) begin(addressed);
  else if (keepDraft(form.text, `write ${entry.id}`) || addressed) read({ text: form.text.value });
  else form.prompt(entry, (text) => gone || running || read({ text }));

  // -- writing --

  async function begin(value = form.text.value) {
    leave();
    addressed = value;
    state.set({ text: value, go: 1 }, { push: value !== (state.get().text ?? value) });
    fill(form.trouble);
    at = told = null;
    if (await read({ text: value })) await write();
  }

  // What makes room for another text can be come back to.
  function leave() {
    stopAll();
    past.add(addressed, paper.tokens);
  }

  /** @param {import("./write_history.js").Written} text */
  function back({ prompt, tokens }) {
    leave();
    form.text.value = addressed = prompt;
    state.set({ text: prompt, go: null });
    at = told = null;
    [written, ended] = [0, ""];
    paper.set(tokens);
    shown();
    read({ ids: ids() });
  }

  // As it was before, in another language or in a file.
  function resume() {
    ({ next, at, seenFrom, ended, written } = kept);
    paper.set(kept.tokens);
    shown();
    if (kept.running) read({ ids: ids() }); // what may come next was not known yet
  }

  /** What a text, or its ids, looks like to the model.
   * @param {{text?: string, ids?: number[]}} what
   */
  async function read(what) {
    reading?.abort();
    const own = (reading = new AbortController());
    try {
      const body = { model: entry.id, ...what };
      const found = await api.post("/api/write/read", body, { signal: own.signal });
      if (own !== reading || gone) return false;
      seenFrom = found.from;
      next = found.next;
      /** @type {Alternative[]} */
      const tokens = found.tokens;
      if (what.text !== undefined) {
        written = 0;
        ended = "";
        paper.set(tokens.map((token) => ({ ...token, how: "given" })));
      } else
        tokens.forEach((token, n) => {
          // Those that were chosen by hand know nothing of themselves yet.
          const mine = paper.tokens[n];
          if (mine && !mine.alternatives?.length) (Object.assign(mine, token), paper.refresh(n));
        });
      shown();
      return true;
    } catch (error) {
      if (own === reading && !api.ended(error) && !gone) fill(form.trouble, problem(error, t));
      return false;
    }
  }

  /** @param {number | null} most */
  async function write(most = null) {
    if (running || !paper.tokens.length) return;
    const own = (running = new AbortController());
    at = null;
    written = 0;
    ended = "stopped";
    began = performance.now();
    fill(form.trouble);
    buttons();
    colour();
    showLook();
    const body = { ...form.drawn.body, model: entry.id, ids: ids() };
    if (most) body.max_tokens = most;
    // The first time as `glasshead generate` would; a text that goes on needs another seed, or it
    // repeats itself.
    if (paper.tokens.some((token) => token.how !== "given"))
      body.seed = body.seed * 65_537 + paper.tokens.length;
    try {
      await api.stream(
        "/api/write",
        body,
        ({ event, data }) => {
          if (gone || own !== running) return;
          if (event === "token") {
            written++;
            next = data.alternatives;
            paper.add({ ...data, how: "written" });
            recolour();
          } else if (event === "end") ended = data.finish;
          else if (event === "error") fill(form.trouble, problem(data, t));
        },
        own.signal,
      );
    } catch (error) {
      if (!api.ended(error) && !gone) fill(form.trouble, problem(error, t));
    }
    if (gone || own !== running) return;
    running = null;
    buttons();
    await read({ ids: ids() });
  }

  /** The text up to a place, another token there, and on.
   * @param {Alternative} token
   * @param {number} place
   */
  async function take(token, place) {
    leave();
    const kept = paper.tokens.slice(0, place);
    paper.set([...kept, { ...token, how: "chosen" }]);
    at = told = null;
    shown();
    await write();
  }

  function stopAll() {
    running?.abort();
    running = null;
    reading?.abort();
    lookSoon.cancel();
    if (!gone) (buttons(), colour());
  }

  function ids() {
    return paper.tokens.map((token) => token.id);
  }

  function buttons() {
    const busy = Boolean(running);
    const ready = !busy && paper.tokens.length > 0;
    form.show(busy, ready);
    one.disabled = on.disabled = !ready;
  }

  // -- showing --

  function shown() {
    buttons();
    colour();
    showNext();
    if (!running) lookSoon();
  }

  function colour() {
    recolour.cancel();
    const how = state.get().colour ?? "surprise";
    empty.hidden = paper.tokens.length > 0;
    const weights = how === "look" ? weightsSeen() : null;
    const most = paper.colour(how === "look" ? (weights ?? "none") : how, seenFrom);
    paper.select(at ?? -1);
    const scale = how === "surprise" ? SURPRISE : weights ? new Scale("linear", 0, most) : null;
    fill(legend, scale && paper.tokens.length ? ramp(scale, how, meaning(how)) : null);
    forgotten.textContent = seenFrom ? t("write.forgotten", { max: entry.max_len }) : "";
    showStatus();
    if (running) showNext();
  }

  function showStatus() {
    const speed = running ? (1000 * written) / Math.max(1, performance.now() - began) : null;
    status.textContent = written ? statusOf(paper.tokens.slice(-written), speed, ended) : "";
  }

  function showNext() {
    const token = at === null ? null : paper.tokens[at];
    const list = token ? (token.alternatives ?? []) : next;
    const title = titleOfNext(token);
    side.next.hidden = !paper.tokens.length;
    if (token && !token.alternatives?.length) {
      const why = h("p", { class: "quiet small" }, t("write.first"));
      return void fill(side.next, h("h2", {}, title), why);
    }
    const unit = token && at !== null ? paper.unitAt(at) : null;
    alternatives(side.next, {
      title,
      hint: t(token ? "write.instead.hint" : "write.next.hint"),
      bytes: unit && unit.to - unit.from > 1 ? bytes(unit) : null,
      list,
      taken: token
        ? { ...token, text: list.find((other) => other.id === token.id)?.text ?? token.text }
        : null,
      ontake: (other) => take(other, at ?? paper.tokens.length),
    });
  }

  /** Of a character in several tokens, each can be looked into.
   * @param {Unit} unit
   */
  function bytes(unit) {
    const all = unit.to - unit.from;
    /** @param {number} n @returns {Choice} */
    const one = (n) => [String(unit.from + n), t("write.byte", { n: n + 1, all })];
    return segmented({
      label: t("write.text"),
      value: String(at),
      options: Array.from({ length: all }, (_, n) => one(n)),
      onchange: (place) => look(Number(place)),
    });
  }

  // -- looking --

  /** @param {number} place */
  function look(place) {
    at = at === place ? null : place;
    told = null;
    shown();
  }

  async function askLook() {
    looking?.abort();
    const own = (looking = new AbortController());
    const place = at ?? paper.tokens.length;
    if (!place || place <= 0 || !paper.tokens.length) return void (side.look.hidden = true);
    try {
      const body = { model: entry.id, ids: ids(), at: place };
      const found = await api.post("/api/write/look", body, { signal: own.signal });
      if (own !== looking || gone || running) return;
      told = found;
      showLook();
      colour();
    } catch (error) {
      if (own === looking && !api.ended(error) && !gone)
        fill(side.look, problem(error, t)).hidden = false;
    }
  }

  function showLook() {
    side.look.hidden = !told || Boolean(running);
    if (!told) return;
    lookedAt(side.look, {
      told,
      next: at === null,
      word: paper.wordAt,
      chosen: state.get().colour === "look" ? chosenHead(told) : null,
      sink: Boolean(state.get().sink),
      onsink: (sink) => (state.set({ sink }), showLook()),
      onchoose: ({ layer, head }) => state.set({ layer, head, colour: "look" }),
    });
  }

  /** What the colours of the text mean, in words.
   * @param {string} how
   */
  function meaning(how) {
    return t(`write.legend.${how}`, told ? chosenHead(told) : {});
  }

  // The weights of the chosen head, by token.
  function weightsSeen() {
    return told && new Map(headOf(told, chosenHead(told)));
  }

  /** @param {Token | null} token */
  function titleOfNext(token) {
    if (!token || at === null) return t("write.next");
    return t("write.instead", { word: visible(paper.wordAt(at)) });
  }

  return {
    /** @param {Where} now */
    update(now) {
      form.drawn.update();
      by.value = now.colour ?? "surprise";
      const news = (now.text ?? "") !== addressed;
      addressed = now.text ?? "";
      if (news && addressed) {
        form.text.value = addressed;
        return void begin();
      }
      colour();
      showNext();
      showLook();
    },
    unmount() {
      gone = true;
      leave();
      looking?.abort();
      recolour.cancel();
    },
    kept: () => ({
      text: addressed, typed: form.text.value, tokens: paper.tokens, next, at, seenFrom,
      ended: running ? "stopped" : ended, written, running: Boolean(running),
    }),
    // What any token looked at, and what may come next where it is not known yet.
    wants: () => asksOf(entry.id, ids(), Boolean(running)),
    /** @param {Painter} painter */
    picture(painter) {
      if (!paper.tokens.length) return;
      const how = state.get().colour ?? "surprise";
      const most = paper.colour(how === "look" ? (weightsSeen() ?? "none") : how, seenFrom);
      const scale = how === "look" ? new Scale("linear", 0, most) : SURPRISE;
      const token = at === null ? null : paper.tokens[at];
      const list = (token ? token.alternatives : next) ?? [];
      paintWriting(painter, paper, { scale, list, title: titleOfNext(token) });
      if (how === "none") return { about: "" };
      const end = how === "surprise" ? SURPRISE.high : three(most);
      return { about: `0 – ${end} ${meaning(how)}` };
    },
  };
}
