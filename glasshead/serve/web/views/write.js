// Write: a text goes on token by token; each choice can be seen, and changed.

import * as api from "../api.js";
import { after, fill, h, problem, segmented, styles } from "../dom.js";
import { CanvasPainter } from "../paint.js";
import { colours, Scale } from "../scale.js";
import * as state from "../state.js";
import { percent, t, three } from "../words.js";
import { bits, drawPaper, SURPRISE, tokenPaper } from "./write_paper.js";
import { sampling } from "./write_sampling.js";
import { alternatives, lookedAt, visible } from "./write_side.js";
import "./write_words.js";

const MOST = 64; // tokens whose looks a saved page holds

export default {
  id: "write",
  title: () => t("write.title"),
  fits: (entry) => Boolean(entry?.can.includes("write")),
  mount,
};

function mount(root, { entry, limits, kept }) {
  styles("views/write.css");
  let gone = false;
  let running = null; // AbortController of what is being written
  let reading = null;
  let looking = null;
  let next = []; // what may come after the last token
  let at = null; // the token that is looked into; null: what comes next
  let told = null; // what its heads looked at
  let seenFrom = 0;
  let ended = "";
  let began = 0;
  let written = 0;
  let addressed = state.get().text ?? ""; // the text that the address told last, whatever is being typed

  const text = h("textarea", { rows: 3, "aria-label": t("write.prompt"), placeholder: t("write.placeholder"), spellcheck: "false" });
  const go = h("button", { type: "submit", class: "primary" }, t("write.go"));
  const stop = h("button", { type: "button", class: "primary", hidden: true, onclick: () => running?.abort() }, t("write.stop"));
  const other = h("button", { type: "button", title: t("write.another.why"), onclick: () => (drawn.nextSeed(), begin()) }, t("write.another"));
  const one = h("button", { type: "button", onclick: () => write(1) }, t("write.one"));
  const on = h("button", { type: "button", onclick: () => write() }, t("write.on"));
  const drawn = sampling(limits?.max_tokens);
  const trouble = h("div", {});
  const form = h("form", { class: "card write-form", onsubmit: (event) => (event.preventDefault(), begin()) }, text, h("div", { class: "row" }, go, stop, other, drawn.beside), drawn.node, trouble);
  text.addEventListener("keydown", (event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && (event.preventDefault(), begin()));

  const paper = tokenPaper((place) => look(place));
  const by = segmented({ label: t("write.colour"), value: state.get().colour ?? "surprise", options: ["surprise", "look", "none"].map((name) => [name, t(`write.by.${name}`)]), onchange: (name) => state.set({ colour: name === "surprise" ? null : name }) });
  const legend = h("span", { class: "legend" });
  const status = h("p", { class: "quiet small number", role: "status" });
  const forgotten = h("p", { class: "quiet small" });
  const empty = h("p", { class: "quiet write-empty" }, t("write.empty"));
  const side = { next: h("div", { class: "card write-next", hidden: true }), look: h("div", { class: "card write-look", hidden: true }) };
  fill(
    root,
    h("div", { class: "write-grid" },
      h("div", { class: "write-main" }, form, h("div", { class: "card write-text" }, h("header", {}, h("h2", {}, t("write.text")), by, legend), forgotten, empty, paper.node, h("div", { class: "row write-foot" }, one, on, status))),
      h("div", { class: "write-side" }, side.next, side.look)),
  );
  const recolour = after(0, colour);
  const lookSoon = after(160, askLook);
  const same = kept?.text === addressed;
  text.value = same ? kept.typed : addressed;
  buttons();
  colour();
  if (same && kept.tokens.length) resume();
  else if (state.get().go) begin(addressed);
  else if (addressed) read({ text: addressed });

  // -- writing --

  async function begin(value = text.value) {
    addressed = value;
    state.set({ text: value, go: 1 });
    stopAll();
    fill(trouble);
    at = told = null;
    if (await read({ text: value })) await write();
  }

  // As it was before, in another language or in a file.
  function resume() {
    ({ next, at, seenFrom, ended, written } = kept);
    paper.set(kept.tokens);
    shown();
    if (kept.running) read({ ids: ids() }); // what may come next was not known yet
  }

  // What a text, or its ids, looks like to the model.
  async function read(what) {
    reading?.abort();
    const own = (reading = new AbortController());
    try {
      const found = await api.post("/api/write/read", { model: entry.id, ...what }, { signal: own.signal });
      if (own !== reading || gone) return false;
      seenFrom = found.from;
      next = found.next;
      if (what.text !== undefined) {
        written = 0;
        ended = "";
        paper.set(found.tokens.map((token) => ({ ...token, how: "given" })));
      } else
        found.tokens.forEach((token, n) => {
          // Those that were chosen by hand know nothing of themselves yet.
          const mine = paper.tokens[n];
          if (mine && !mine.alternatives?.length) Object.assign(mine, token), paper.refresh(n);
        });
      shown();
      return true;
    } catch (error) {
      if (own === reading && !api.ended(error) && !gone) fill(trouble, problem(error, t));
      return false;
    }
  }

  async function write(most = null) {
    if (running || !paper.tokens.length) return;
    const own = (running = new AbortController());
    at = null;
    written = 0;
    ended = "stopped";
    began = performance.now();
    fill(trouble);
    buttons();
    colour();
    showLook();
    const body = { ...drawn.body, model: entry.id, ids: ids() };
    if (most) body.max_tokens = most;
    // The first time as `glasshead generate` would; a text that goes on needs other numbers, or it repeats itself.
    if (paper.tokens.some((token) => token.how !== "given")) body.seed = body.seed * 65_537 + paper.tokens.length;
    try {
      await api.stream("/api/write", body, ({ event, data }) => {
        if (gone || own !== running) return;
        if (event === "token") {
          written++;
          next = data.alternatives;
          paper.add({ ...data, how: "written" });
          recolour();
        } else if (event === "end") ended = data.finish;
        else if (event === "error") fill(trouble, problem(data, t));
      }, own.signal);
    } catch (error) {
      if (!api.ended(error) && !gone) fill(trouble, problem(error, t));
    }
    if (gone || own !== running) return;
    running = null;
    buttons();
    await read({ ids: ids() });
  }

  // The text up to a place, another token there, and on.
  async function take(token, place) {
    stopAll();
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
    if (!gone) buttons(), colour();
  }

  function ids() {
    return paper.tokens.map((token) => token.id);
  }

  function buttons() {
    go.hidden = Boolean(running);
    stop.hidden = !running;
    one.disabled = on.disabled = other.disabled = Boolean(running) || !paper.tokens.length;
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
    const weights = how === "look" ? head() : null;
    const most = paper.colour(how === "look" ? (weights ?? "none") : how, seenFrom);
    paper.select(at ?? -1);
    const scale = how === "surprise" ? SURPRISE : weights ? new Scale("linear", 0, most) : null;
    fill(legend, scale && paper.tokens.length ? ramp(scale, how) : null);
    forgotten.textContent = seenFrom ? t("write.forgotten", { max: entry.max_len }) : "";
    showStatus();
    if (running) showNext();
  }

  function ramp(scale, how) {
    const canvas = h("canvas", { "aria-hidden": "true" });
    const painter = new CanvasPainter(canvas).size(90, 10);
    painter.cells(0, 0, 1, 10, Float32Array.from({ length: 90 }, (_, n) => (scale.high * n) / 89), 1, 90, scale);
    const high = how === "surprise" ? `≥${scale.high}` : three(scale.high);
    return ["0", canvas, `${high} ${t(`write.legend.${how}`, chosen() ?? {})}`];
  }

  function showStatus() {
    const own = paper.tokens.slice(paper.tokens.length - written).map(bits).filter((value) => value !== null);
    if (!written) return void (status.textContent = "");
    const mean = own.reduce((a, b) => a + b, 0) / Math.max(1, own.length);
    const parts = [t("write.told", { n: written, bits: mean.toFixed(2) })];
    if (running) parts.push(t("write.told.speed", { speed: Math.round((1000 * written) / Math.max(1, performance.now() - began)) }));
    else if (ended) parts.push(t(`write.ended.${ended}`));
    status.textContent = parts.join(" · ");
  }

  function showNext() {
    const token = at === null ? null : paper.tokens[at];
    const list = token ? (token.alternatives ?? []) : next;
    side.next.hidden = !paper.tokens.length;
    if (token && !token.alternatives?.length) {
      return fill(side.next, h("h2", {}, t("write.instead", { word: visible(paper.wordAt(at)) })), h("p", { class: "quiet small" }, t("write.first")));
    }
    const unit = token && paper.units.find((one) => at >= one.from && at < one.to);
    const parts = unit ? unit.to - unit.from : 1;
    alternatives(side.next, {
      title: token ? t("write.instead", { word: visible(paper.wordAt(at)) }) : t("write.next"),
      hint: t(token ? "write.instead.hint" : "write.next.hint"),
      bytes: parts > 1 ? bytes(unit) : null,
      list,
      taken: token ? { ...token, text: list.find((other) => other.id === token.id)?.text ?? token.text } : null,
      ontake: (other) => take(other, at ?? paper.tokens.length),
    });
  }

  // Of a character in several tokens, each can be looked into.
  function bytes(unit) {
    const all = unit.to - unit.from;
    return segmented({ label: t("write.text"), value: String(at), options: [...Array(all).keys()].map((n) => [String(unit.from + n), t("write.byte", { n: n + 1, all })]), onchange: (place) => look(Number(place)) });
  }

  // -- looking --

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
      const found = await api.post("/api/write/look", { model: entry.id, ids: ids(), at: place }, { signal: own.signal });
      if (own !== looking || gone || running) return;
      told = found;
      showLook();
      colour();
    } catch (error) {
      if (own === looking && !api.ended(error) && !gone) (side.look.hidden = false), fill(side.look, problem(error, t));
    }
  }

  function showLook() {
    side.look.hidden = !told || Boolean(running);
    if (!told) return;
    lookedAt(side.look, {
      told,
      next: at === null,
      word: paper.wordAt,
      chosen: state.get().colour === "look" ? chosen() : null,
      sink: Boolean(state.get().sink),
      onsink: (sink) => (state.set({ sink }), showLook()),
      onchoose: ({ layer, head }) => state.set({ layer, head, colour: "look" }),
    });
  }

  // The head in the address, else the one with the strongest look.
  function chosen() {
    if (!told) return null;
    const { layer, head } = state.get();
    const named = told.layers.find((one) => String(one.index) === layer);
    if (named && named.heads[Number(head)]) return { layer: named.index, head: Number(head) };
    const all = told.layers.flatMap((one) => one.heads.map((keys, n) => ({ layer: one.index, head: n, most: keys[0]?.[1] ?? 0 })));
    return all.reduce((a, b) => (b.most > a.most ? b : a));
  }

  function head() {
    const which = chosen();
    if (!which) return null;
    return new Map(told.layers.find((one) => one.index === which.layer).heads[which.head]);
  }

  return {
    update(now) {
      drawn.update();
      by.value = now.colour ?? "surprise";
      const news = (now.text ?? "") !== addressed;
      addressed = now.text ?? "";
      if (news && addressed) {
        text.value = addressed;
        return void begin();
      }
      colour();
      showNext();
      showLook();
    },
    unmount() {
      gone = true;
      stopAll();
      looking?.abort();
      recolour.cancel();
    },
    kept: () => ({ text: addressed, typed: text.value, tokens: paper.tokens, next, at, seenFrom, ended: running ? "stopped" : ended, written, running: Boolean(running) }),
    // What any token looked at, and what may come next where it is not known yet.
    wants() {
      const all = [null, ...paper.tokens].slice(0, MOST).map((_, n) => paper.tokens.length - n).filter((place) => place > 0);
      const looks = all.map((place) => ["/api/write/look", { model: entry.id, ids: ids(), at: place }]);
      return running ? [["/api/write/read", { model: entry.id, ids: ids() }], ...looks] : looks;
    },
    picture(painter) {
      if (!paper.tokens.length) return null;
      const how = state.get().colour ?? "surprise";
      const c = colours();
      const most = paper.colour(how === "look" ? (head() ?? "none") : how, seenFrom);
      const scale = how === "look" ? new Scale("linear", 0, most) : SURPRISE;
      const high = drawPaper(painter.size(940, 100), paper, { x: 24, y: 8, w: 620, scale, colours: c });
      const token = at === null ? null : paper.tokens[at];
      const list = (token ? token.alternatives : next) ?? [];
      painter.size(940, Math.max(high, 34 * list.length + 40) + 20, c.paper);
      drawPaper(painter, paper, { x: 24, y: 8, w: 620, scale, colours: c });
      painter.text(676, 26, token ? t("write.instead", { word: visible(paper.wordAt(at)) }) : t("write.next"), { size: 15, weight: 600, fill: c.ink, max: 240 });
      list.forEach((one, n) => {
        const y = 44 + 34 * n;
        painter.rect(676, y, 240 * Math.exp(one.logprob ?? -Infinity), 28, { fill: c.data, alpha: 0.18, radius: 4 });
        painter.text(684, y + 19, visible(one.text), { size: 15, fill: c.ink, max: 160 });
        painter.text(908, y + 19, percent(Math.exp(one.logprob ?? -Infinity)), { size: 13, fill: c.quiet, align: "right" });
      });
      return { about: how === "none" ? "" : `0 – ${how === "surprise" ? SURPRISE.high : three(most)} ${t(`write.legend.${how}`, chosen() ?? {})}` };
    },
  };
}
