// Look: a text, every head, and one head large.

import { fill, h, problem, styles } from "../dom.js";
import { Scale } from "../scale.js";
import { count, t } from "../words.js";
import { cutCard, cutsOf, says } from "./look_cut.js";
import { gridCard, partOf } from "./look_grid.js";
import { headCard } from "./look_head.js";
import { rankCard } from "./look_rank.js";
import { Answers, counted, lastPronoun, textBar } from "./look_text.js";
import "./look_words.js";

styles("views/look.css");

const MOST = 1500; // answers that a saved page has besides those it was given

export default {
  id: "look",
  title: () => t("look.title"),
  fits: (entry) => entry.can.includes("look"),
  mount,
};

function mount(root, { entry, state, api }) {
  let turn = 0;
  let leaving = null; // what ends the requests of the last turn
  let book = null;
  const answers = new Answers();

  const set = (patch) => state.set(patch);
  const head = headCard({ set, pick });
  const grid = gridCard({ set });
  const from = rankCard({ set, way: "from" });
  const to = rankCard({ set, way: "to" });
  const cut = cutCard({ set });

  const bar = textBar({ entry, state, api, again: () => show(state.get()) });
  const body = h("div", { class: "look-body" });
  root.append(...bar.nodes, body);
  const sheet = h("div", { class: "look-sheet" }, h("div", { class: "main-column" }, head.node, h("div", { class: "ranks" }, from.node, to.node)), h("div", { class: "side-column" }, grid.node, cut.node));

  function pick(side, i) {
    if (side === "none") return set({ query: "none", key: null });
    const { same, pin, rows, cols } = book;
    if (same) return set({ query: pin.row === i ? "none" : rows[i].start, key: null });
    if (side === "row") return set({ query: pin.row === i ? "none" : rows[i].start, key: null });
    set({ key: pin.col === i ? null : cols[i].start, query: "none" });
  }

  const kept = (name, ask) => answers.once(name, ask, leaving.signal);

  async function show(now, fresh = false) {
    const mine = ++turn;
    const past = () => mine !== turn;
    leaving?.abort();
    leaving = new AbortController();
    root.classList.add("busy");
    try {
      const text = await bar.text(now);
      if (!past()) await read(now, text, past);
    } catch (error) {
      if (past() || api.ended(error)) return;
      answers.forget();
      if (error.status === 404 && !fresh) return show(now, true); // the server has forgotten what it had read
      book = null;
      bar.tell("");
      fill(body, problem(error, t));
    } finally {
      if (!past()) root.classList.remove("busy");
    }
  }

  async function read(now, text, past) {
    if (!text.trim() && entry.kind !== "glass") return ((book = null), fill(body));
    const tokens = now.tokens === "1";
    const data = await kept(`look ${tokens} ${text}`, (signal) => api.post("/api/look", { model: entry.id, text, tokens }, { signal }));
    if (past()) return;
    bar.tell(t("look.read", { tokens: count(data.layers[0].T), layers: data.layers.length, heads: data.layers.reduce((n, layer) => n + layer.heads, 0) }));
    if (data.long) return ((book = null), fill(body, long()));

    const group = layersLike(data, now);
    const [rows, cols] = [data[group[0].rows], data[group[0].cols]];
    const same = group[0].rows === group[0].cols;
    const pin = pinned(now, rows, cols, same);
    if (!body.firstChild) fill(body, waiting(rows, same ? [] : cols, pin)); // the words are there before the weights
    const shown = { tokens, hide_sink: now.nosink === "1", ratio: now.ratio === "1" };
    const how = new URLSearchParams(shown).toString();
    const paths = pathsOf(data, group[0].index);
    const rank = (way, at) => kept(`${way} ${at} ${group[0].index} ${how} ${data.seen}`, (signal) => api.get(paths.rank(way, at, how), { signal }));
    const small = kept(`thumbs ${how} ${data.seen}`, (signal) => api.bytes(paths.thumbs(how), { signal }).then((found) => thumbsOf(found, data)));
    const [ranked, lookers] = await Promise.all([
      pin.row !== null ? rank("from", rows[pin.row].start) : null,
      same && pin.row !== null ? rank("to", rows[pin.row].start) : pin.col !== null ? rank("to", cols[pin.col].start) : null,
    ]);
    if (past()) return;
    const chosen = headOf(now, data, group, ranked ?? lookers, same ? cols : ranked ? cols : rows);
    const found = await kept(`weights ${chosen.layer.index} ${chosen.head} ${how} ${data.seen}`, (signal) => api.bytes(paths.weights(chosen.layer, chosen.head, how), { signal }));
    if (past()) return;
    const kind = shown.ratio ? "ratio" : now.log === "1" ? "log" : "linear";
    const weights = new Float32Array(found.buffer);
    const names = Object.keys(data.statistics);
    book = {
      data, ...chosen, layers: group, rows, cols, same, pin, weights, kind, scale: Scale.of(weights, cols.length, kind), thumbs: null,
      from: ranked, to: lookers, shape: now.shape === "matrix" ? "matrix" : "lines", dir: now.dir === "to" ? "to" : "from",
      switches: { log: now.log, nosink: now.nosink, ratio: now.ratio, tokens: now.tokens },
      stat: names.includes(now.stat) ? now.stat : names[1] ?? names[0], order: now.order === "value" ? "value" : "layer", cut: now.cut ?? "",
    };
    if (sheet.parentNode !== body) fill(body, sheet);
    for (const card of [head, from, to]) card.draw(book);
    const said = ask(now, text, past);
    book.thumbs = await small;
    if (past()) return;
    grid.draw(book);
    await said;
  }

  // What the model says, with and without what is cut.
  async function ask(now, text, past) {
    const { data, pin, rows, layer } = book;
    cut.node.hidden = data.kind === "glass"; // there is no model to ask
    cut.draw(book);
    if (!says(data.kind) || (data.kind === "reader" && pin.row === null)) return;
    const at = pin.row === null || partOf(layer) === "encoder" && data.kind === "translator" ? null : rows[pin.row].stop - 1;
    const wanted = { model: entry.id, text, ...cutsOf(now.cut), at };
    try {
      book.prediction = await kept(`ablate ${JSON.stringify(wanted)}`, (signal) => api.post("/api/ablate", wanted, { signal }));
    } catch (error) {
      if (api.ended(error)) return;
      book.predictionProblem = error;
    }
    if (!past()) cut.draw(book);
  }

  // Every head and every word of a text that is shown, and the ways to show them: what can be asked without the model.
  function wants() {
    if (!book) return [];
    const { data, layer, head, rows, cols, switches, layers } = book;
    const paths = pathsOf(data, layers[0].index);
    const of = (shown) => new URLSearchParams({ tokens: Boolean(switches.tokens), ...shown }).toString();
    const mine = of({ hide_sink: switches.nosink === "1", ratio: switches.ratio === "1" });
    const others = [false, true].flatMap((hide_sink) => [false, true].map((ratio) => of({ hide_sink, ratio }))).filter((how) => how !== mine);
    const heads = (how) => data.layers.flatMap((one) => Array.from({ length: one.heads }, (_, n) => paths.weights(one, n, how)));
    const ranks = (how) => [...rows.map((word) => paths.rank("from", word.start, how)), ...cols.map((word) => paths.rank("to", word.start, how))];
    return [paths.weights(layer, head, mine), ...[mine, ...others].flatMap((how) => [paths.thumbs(how), ...heads(how), ...ranks(how)])].slice(0, MOST);
  }

  function waiting(...texts) {
    const pin = texts.pop();
    return h("div", { class: "card waiting", "aria-hidden": "true" }, texts.map((words, n) => h("p", {}, words.map((word, i) => h("span", { class: (n ? pin.col : pin.row) === i ? "pinned" : "" }, word.text)))));
  }

  function long() {
    return h("div", { class: "empty" }, h("h1", {}, t("look.long")), h("p", { class: "quiet" }, t("look.long.hint")),
      h("p", {}, h("button", { type: "button", class: "primary", onclick: () => state.set({ view: "atlas" }, { push: true }) }, t("look.long.go"))));
  }

  show(state.get());
  return {
    update: (now) => show(now),
    unmount() {
      turn++;
      leaving?.abort();
      bar.end();
      head.end();
    },
    picture: (painter) => book && head.picture(painter),
    wants,
  };
}

function pathsOf(data, layer) {
  const seen = `/api/seen/${data.seen}`;
  return {
    rank: (way, at, how) => `${seen}/${way}?layer=${layer}&${way === "from" ? "query" : "key"}=${at}&${how}`,
    thumbs: (how) => `${seen}/thumbs?${how}`,
    weights: (one, head, how) => `${seen}/weights?layer=${one.index}&head=${head}&${how}`,
  };
}

// The layers that look from the same text at the same text as the chosen one; of a translator first cross-attention.
function layersLike(data, now) {
  const named = data.layers.find((layer) => String(layer.index) === now.layer);
  const first = named ?? data.layers.find((layer) => layer.kind === "cross") ?? data.layers[0];
  return data.layers.filter((layer) => layer.rows === first.rows && layer.cols === first.cols);
}

function pinned(now, rows, cols, same) {
  const place = (words, token) => {
    const i = words.findIndex((word) => word.start <= token && token < word.stop);
    return i < 0 ? null : i;
  };
  const col = !same && now.key !== undefined ? place(cols, Number(now.key)) : null;
  if (now.query === "none") return { row: null, col };
  if (now.query !== undefined) return { row: place(rows, Number(now.query)), col };
  const last = lastPronoun(rows.map((word) => word.text));
  return { row: last < 0 || col !== null ? null : last, col };
}

// The head that was asked for; else the first of the ranking that looks at a word and not at a sign; else the sharpest.
function headOf(now, data, group, ranked, others) {
  const layer = group.find((one) => String(one.index) === now.layer);
  const named = layer && counted(now.head, layer.heads);
  if (layer && named !== null) return { layer, head: named };
  const of = (one) => ({ layer: data.layers.find((each) => each.index === one.layer), head: one.head });
  const telling = ranked?.heads.find((one) => (!layer || one.layer === layer.index) && /[\p{L}\p{N}]/u.test(others[one.at].text) && one.at > 0);
  if (telling) return of(telling);
  const spread = data.statistics.relative_entropy?.values;
  let best = { layer: layer ?? group.at(-1), head: 0, value: Infinity };
  for (const one of layer ? [layer] : group)
    (spread?.[data.layers.indexOf(one)] ?? []).forEach((value, n) => value !== null && value < best.value && (best = { layer: one, head: n, value }));
  return { layer: best.layer, head: best.head };
}

function thumbsOf({ buffer, headers }, data) {
  const values = new Float32Array(buffer);
  const found = new Map();
  let at = 0;
  headers["x-shapes"].split(";").forEach((shape, n) => {
    const [heads, rows, cols] = shape.split(",").map(Number);
    for (let i = 0; i < heads; i++) {
      found.set(`${data.layers[n].index}:${i}`, { rows, cols, values: values.subarray(at, at + rows * cols) });
      at += rows * cols;
    }
  });
  return found;
}
