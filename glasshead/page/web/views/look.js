// Look: a text, every head, and one head large.

import { fill, h, styles } from "../dom.js";
import { Scale } from "../scale.js";
import { count, t } from "../words.js";
import { headOf, layersLike, pathsOf, pinned, thumbsOf } from "./look_choice.js";
import { answerPanel } from "./look_answer.js";
import { cutCard, cutsOf, edgeItem } from "./look_cut.js";
import { gridCard, partOf } from "./look_grid.js";
import { headCard } from "./look_head.js";
import { longCard, unreadableCard } from "./look_instead.js";
import { says } from "./look_prediction.js";
import { rankCard } from "./look_rank.js";
import { targetOf } from "./look_strips.js";
import { Answers, textBar } from "./look_text.js";
import "./look_words.js";

styles("views/look.css");

const FIRST = 120; // milliseconds that the picture waits for the answer, to appear with it
const AGAIN = 2000; // milliseconds, after which a server that did not answer is asked again
const MOST = 1500; // answers that a saved page has besides those it was given

/** @import { Pin, Ranking, Thumb, Way } from "./look_choice.js" */
/** @import { Layer, LookAnswer, Word } from "./look_text.js" */

/**
 * What is shown: every card draws a part of it.
 * @typedef {object} Book
 * @property {LookAnswer} data
 * @property {Layer} layer
 * @property {number} head
 * @property {Layer[]} layers those of the same texts as `layer`
 * @property {Word[]} rows
 * @property {Word[]} cols
 * @property {boolean} same whether rows and columns are one text
 * @property {Pin} pin
 * @property {Float32Array} weights (rows × cols)
 * @property {ScaleKind} kind
 * @property {Scale} scale
 * @property {Map<string, Thumb> | null} thumbs
 * @property {Ranking | null} from
 * @property {Ranking | null} before the same without the cut, where there is one
 * @property {import("./look_text.js").Example | null} story that is shown
 * @property {import("./look_text.js").Example[]} stories
 * @property {string} text
 * @property {Ranking | null} to
 * @property {"lines" | "matrix"} shape
 * @property {Way} dir
 * @property {Where} switches
 * @property {string} stat
 * @property {"value" | "layer"} order
 * @property {string} cut
 * @property {import("./look_prediction.js").Prediction} [prediction]
 * @property {Failure} [predictionProblem]
 */

/** @type {View} */
export default {
  id: "look",
  title: () => t("look.title"),
  fits: (entry) => Boolean(entry?.can.includes("look")),
  mount,
};

/** @param {HTMLElement} root @param {Context} context */
function mount(root, { entry, state, api }) {
  let turn = 0;
  let leaving = new AbortController(); // ends the requests of the last turn
  /** @type {Book | null} */
  let book = null;
  const answers = new Answers();

  /** @param {Patch} patch */
  const set = (patch) => state.set(patch);
  const answer = answerPanel({ set, everywhere, take: (text) => bar.take(text) });
  const head = headCard({ set, pick, cut: sever, back: mend, answer: answer.node });
  const grid = gridCard({ set });
  const to = rankCard({ set });
  const cut = cutCard({ set });

  const bar = textBar({ entry, state, api, again: () => show(state.get()) });
  const body = h("div", { class: "look-body" });
  const asking = h("div", { class: "asking-bar" }, bar.nodes);
  root.append(body, asking);
  const closer = h("div", { class: "look-sheet" }, grid.node, cut.node, to.node);

  /** Pins a word, or with "none" unpins it.
   * @param {"row" | "col" | "none"} side
   * @param {number} i
   */
  function pick(side, i = 0) {
    if (side === "none") return set({ query: "none", key: null });
    if (!book) return;
    const { same, pin, rows, cols } = book;
    if (same || side === "row")
      return set({ query: pin.row === i ? "none" : rows[i].start, key: null });
    set({ key: pin.col === i ? null : cols[i].start, query: "none" });
  }

  const cuts = () => (book?.cut ?? "").split("_").filter(Boolean);

  /** Cuts the look of the pinned word at another one in a head, or in all of a layer.
   * @param {number} layer
   * @param {number | "*"} head
   * @param {number} at
   */
  function edge(layer, head, at) {
    const { rows, cols, pin } = /** @type {Book} */ (book);
    return edgeItem(layer, head, rows[pin.row ?? 0], cols[at]);
  }

  /** @param {number} layer @param {number} head @param {number} at */
  function sever(layer, head, at) {
    set({ cut: [...new Set([...cuts(), edge(layer, head, at)])].join("_") });
  }

  /** Brings back what was cut of the chosen head.
   * @param {number} at
   */
  function mend(at) {
    if (!book) return;
    const mine = [edge(book.layer.index, book.head, at), edge(book.layer.index, "*", at)];
    set({ cut: cuts().filter((item) => !mine.includes(item)).join("_") });
  }

  /** Cuts what the chosen head looks at most in every head. */
  function everywhere() {
    if (!book) return;
    const target = targetOf(book);
    set({ cut: book.layers.map((layer) => edge(layer.index, "*", target)).join("_") });
  }

  /**
   * @template T
   * @param {string} name
   * @param {(signal: AbortSignal) => Promise<T>} ask
   */
  const kept = (name, ask) => answers.once(name, ask, leaving.signal);

  /** @param {Where} now @returns {Promise<void>} */
  async function show(now, fresh = false) {
    const mine = ++turn;
    const past = () => mine !== turn;
    leaving.abort();
    leaving = new AbortController();
    root.classList.add("busy");
    try {
      const text = await bar.text(now);
      if (!past()) await read(now, text, past);
    } catch (error) {
      if (past() || api.ended(error)) return;
      answers.forget();
      // 404: the server has evicted the trace. Send the text again, once.
      if (error.status === 404 && !fresh) return show(now, true);
      bar.tell("");
      clear(unreadableCard(error, { bar, now }));
      if (error.message === "unreachable") setTimeout(() => past() || show(now), AGAIN);
    } finally {
      if (!past()) root.classList.remove("busy");
    }
  }

  /** @param {Element[]} children */
  function clear(...children) {
    book = null;
    closer.remove();
    fill(body, children);
  }

  /** @param {Where} now @param {string} text @param {() => boolean} past */
  async function read(now, text, past) {
    if (!text.trim() && entry.kind !== "glass") return clear();
    const tokens = now.tokens === "1";
    /** @type {LookAnswer} */
    const data = await kept(`look ${tokens} ${text}`, (signal) =>
      api.post("/api/look", { model: entry.id, text, tokens }, { signal }),
    );
    if (past()) return;
    if (data.long) bar.tell("");
    else bar.tell(
      t("look.read", {
        tokens: count(data.layers[0].T),
        layers: data.layers.length,
        heads: data.layers.reduce((n, layer) => n + layer.heads, 0),
      }),
    );
    if (data.long) return clear(longCard(data, { state, take: bar.take }));

    const group = layersLike(data, now);
    const [rows, cols] = [data[group[0].rows], data[group[0].cols]];
    const same = group[0].rows === group[0].cols;
    const pin = pinned(now, data, group[0]);
    // Show the words while the weights are on their way.
    if (!body.firstChild) fill(body, waiting(pin, rows, same ? [] : cols));
    const said = predict(now, text, data, group[0], pin); // at once: it is what changes after a cut
    // The answer need not wait for the picture.
    if (book?.text === text && now.cut)
      said.then((found) => past() || !book || answer.say({ ...book, ...found }));
    // After a cut, what is shown is the model without it.
    const without = cutsOf(now.cut);
    const isCut =
      ["reader", "gpt"].includes(data.kind) && without.heads.length + without.edges.length > 0;
    /** @type {LookAnswer} */
    const then = !isCut
      ? data
      : await kept(`look ${tokens} ${now.cut} ${text}`, (signal) =>
          api.post("/api/look", { model: entry.id, text, tokens, ...without }, { signal }),
        );
    const shown = { tokens, hide_sink: now.nosink === "1", ratio: now.ratio === "1" };
    const how = api.query(shown);
    const paths = pathsOf(then, group[0].index);
    /** @param {Way} way @param {number} at @param {LookAnswer} of @returns {Promise<Ranking>} */
    const rank = (way, at, of) =>
      kept(`${way} ${at} ${group[0].index} ${how} ${of.seen}`, (signal) =>
        api.get(pathsOf(of, group[0].index).rank(way, at, how), { signal }),
      );
    const [ranked, lookers, before] = await Promise.all([
      pin.row !== null ? rank("from", rows[pin.row].start, then) : null,
      same && pin.row !== null
        ? rank("to", rows[pin.row].start, then)
        : pin.col !== null
          ? rank("to", cols[pin.col].start, then)
          : null,
      isCut && pin.row !== null ? rank("from", rows[pin.row].start, data) : null,
    ]);
    if (past()) return;
    // The head is chosen by the model as it was: a cut does not change what is shown.
    const first = before ?? ranked ?? lookers;
    const chosen = headOf(now, data, group, first, same ? cols : ranked ? cols : rows);
    const found = await kept(
      `weights ${chosen.layer.index} ${chosen.head} ${how} ${then.seen}`,
      (signal) => api.bytes(paths.weights(chosen.layer, chosen.head, how), { signal }),
    );
    if (past()) return;
    const kind = shown.ratio ? "ratio" : now.log === "1" ? "log" : "linear";
    const weights = new Float32Array(found.buffer);
    const names = Object.keys(data.statistics);
    const stories = bar.examples();
    /** @type {Book} */
    const mine = {
      data: { ...then, layers: data.layers }, ...chosen, layers: group, rows, cols, same, pin,
      weights, kind, before, text, stories,
      story: stories.find((one) => one.text === text && one.ending) ?? null,
      scale: Scale.of(weights, cols.length, kind),
      thumbs: null,
      from: ranked,
      to: lookers,
      shape: now.shape === "matrix" ? "matrix" : "lines",
      dir: now.dir === "to" ? "to" : "from",
      switches: { log: now.log, nosink: now.nosink, ratio: now.ratio, tokens: now.tokens },
      stat: names.find((name) => name === now.stat) ?? names[1] ?? names[0],
      order: now.order === "value" ? "value" : "layer",
      cut: now.cut ?? "",
    };
    book = mine;
    if (head.node.parentNode !== body) fill(body, head.node);
    if (closer.parentNode !== root) root.append(closer);
    cut.node.hidden = data.kind === "glass"; // there is no model to ask
    const settled = await Promise.race([said, soon(FIRST)]);
    if (past()) return;
    Object.assign(mine, settled ?? {});
    for (const card of [answer, head, to, cut]) card.draw(mine);
    Object.assign(mine, await said);
    if (past()) return;
    if (!settled) for (const card of [answer, cut]) card.draw(mine);
    mine.thumbs = await kept(`thumbs ${how} ${then.seen}`, (signal) =>
      api.bytes(paths.thumbs(how), { signal }).then((bytes) => thumbsOf(bytes, then)),
    );
    if (!past()) grid.draw(mine);
  }

  /** What the model says, with and without what is cut.
   * @param {Where} now
   * @param {string} text
   * @param {LookAnswer} data
   * @param {Layer} layer
   * @param {Pin} pin
   * @returns {Promise<Pick<Book, "prediction" | "predictionProblem">>}
   */
  async function predict(now, text, data, layer, pin) {
    if (!says(data.kind) || (data.kind === "reader" && pin.row === null)) return {};
    const at =
      pin.row === null || (partOf(layer) === "encoder" && data.kind === "translator")
        ? null
        : data[layer.rows][pin.row].stop - 1;
    const wanted = { model: entry.id, text, ...cutsOf(now.cut), at };
    try {
      return {
        prediction: await kept(`ablate ${JSON.stringify(wanted)}`, (signal) =>
          api.post("/api/ablate", wanted, { signal }),
        ),
      };
    } catch (error) {
      return api.ended(error) ? {} : { predictionProblem: error };
    }
  }

  // The requests of every head, every word and every switch: what a saved page answers without
  // the model.
  function wants() {
    if (!book) return [];
    const { data, layer, head, rows, cols, switches, layers } = book;
    const paths = pathsOf(data, layers[0].index);
    /** @param {{hide_sink: boolean, ratio: boolean}} shown */
    const of = (shown) => api.query({ tokens: Boolean(switches.tokens), ...shown });
    const mine = of({ hide_sink: switches.nosink === "1", ratio: switches.ratio === "1" });
    const others = [false, true]
      .flatMap((hide_sink) => [false, true].map((ratio) => of({ hide_sink, ratio })))
      .filter((how) => how !== mine);
    /** @param {string} how */
    const heads = (how) =>
      data.layers.flatMap((one) =>
        Array.from({ length: one.heads }, (_, n) => paths.weights(one, n, how)),
      );
    /** @param {string} how */
    const ranks = (how) => [
      ...rows.map((word) => paths.rank("from", word.start, how)),
      ...cols.map((word) => paths.rank("to", word.start, how)),
    ];
    return [
      paths.weights(layer, head, mine),
      ...[mine, ...others].flatMap((how) => [paths.thumbs(how), ...heads(how), ...ranks(how)]),
    ].slice(0, MOST);
  }

  /** @param {Pin} pin @param {Word[]} rows @param {Word[]} cols */
  function waiting(pin, rows, cols) {
    /** @param {Word[]} words @param {number | null} at */
    const line = (words, at) =>
      words.map((word, i) => h("span", { class: at === i ? "pinned" : "" }, word.text));
    return h(
      "div",
      { class: "card waiting", "aria-hidden": "true" },
      h("p", {}, line(rows, pin.row)),
      h("p", {}, line(cols, pin.col)),
    );
  }

  show(state.get());
  return {
    /** @param {Where} now */
    update: (now) => void show(now),
    unmount() {
      turn++;
      leaving.abort();
      bar.end();
      head.end();
    },
    /** @param {Painter} painter */
    picture: (painter) => book && head.picture(painter),
    /** @param {Painter} painter */
    card: (painter) => void (book && head.card(painter)),
    wants,
  };
}

/** @param {number} milliseconds @returns {Promise<null>} */
const soon = (milliseconds) =>
  new Promise((done) => setTimeout(() => done(null), milliseconds));
