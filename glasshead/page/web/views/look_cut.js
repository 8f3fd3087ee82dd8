// Take heads or looks away, and see what the model says then, beside what it says as it is.
//
// Cuts are kept in the address: "h1.0" silences head 0 of layer 1; "e1.0.26.27.2.3" keeps queries
// 26 to 27 of that head from seeing keys 2 to 3; "*" in the place of that head means all of the
// layer. What is none of these is left out.

import { fill, h, select } from "../dom.js";
import { t } from "../words.js";
import { drawPrediction, says } from "./look_prediction.js";

/** @import { Book } from "./look.js" */
/** @import { Layer, Word } from "./look_text.js" */

/**
 * @typedef {object} Edge
 * @property {number} layer
 * @property {number | null} head null: all of the layer
 * @property {number} query
 * @property {number} query_stop
 * @property {number} key
 * @property {number} key_stop
 */

/** @param {string | undefined} text */
export function cutsOf(text) {
  /** @type {[layer: number, head: number][]} */
  const heads = [];
  /** @type {Edge[]} */
  const edges = [];
  for (const one of (text ?? "").split("_").filter(Boolean)) {
    const parts = one.slice(1).split(".");
    const every = one[0] === "e" && parts[1] === "*";
    const numbers = parts.map((x, n) => (every && n === 1 ? 0 : Number(x)));
    if (!numbers.every(Number.isInteger)) continue;
    const [layer, head, query, query_stop, key, key_stop] = numbers;
    if (one[0] === "h" && numbers.length === 2) heads.push([layer, head]);
    else if (one[0] === "e" && numbers.length === 6)
      edges.push({ layer, head: every ? null : head, query, query_stop, key, key_stop });
  }
  return { heads, edges };
}

/** What stands in the address for a look that is cut.
 * @param {number} layer
 * @param {number | string} head "*" for all of the layer
 * @param {Word} from
 * @param {Word} to
 */
export const edgeItem = (layer, head, from, to) =>
  `e${layer}.${head}.${from.start}.${from.stop}.${to.start}.${to.stop}`;

/** @param {{set: (patch: Patch) => void}} of */
export function cutCard({ set }) {
  /** @type {Book} */
  let book; // set by draw()
  let scope = "head";
  /** @type {number | null} */
  let key = null;
  const hint = h("p", { class: "quiet small" }, t("look.cut.hint"));
  const tools = h("div", { class: "tools" });
  const chips = h("div", { class: "row chips" });
  const result = h("div", { class: "result", "aria-live": "polite" });
  const node = h(
    "section",
    { class: "card cut-card" },
    h("header", {}, h("h2", {}, t("look.cut"))),
    hint,
    result,
    tools,
    chips,
  );

  const items = () => (book.cut ?? "").split("_").filter(Boolean);
  /** @param {string[]} list */
  const keep = (list) => set({ cut: [...new Set(list)].join("_") });
  /** @param {number | undefined} index */
  const layerOf = (index) => book.data.layers.find((one) => one.index === index);

  function drawTools() {
    const { layer, head, pin, rows, cols } = book;
    const name = `${layer.name}:${head}`;
    const mine = `h${layer.index}.${head}`;
    const silent = items().includes(mine);
    const whole = headsOf(layer);
    fill(
      tools,
      h(
        "div",
        { class: "row" },
        h(
          "button",
          {
            type: "button",
            class: "silence",
            "aria-pressed": String(silent),
            onclick: () => keep(silent ? items().filter((x) => x !== mine) : [...items(), mine]),
          },
          t("look.cut.head", { head: name }),
        ),
        layer.heads > 1 &&
          h(
            "button",
            { type: "button", onclick: () => keep([...items(), ...whole]) },
            t("look.cut.heads", { n: layer.heads, layer: layer.name }),
          ),
      ),
      pin.row !== null && edgeTool(rows[pin.row], cols, strongestKey(pin.row)),
    );
  }

  /** @param {Word} from @param {Word[]} cols @param {number} best */
  function edgeTool(from, cols, best) {
    const chosen = key !== null && cols[key] ? key : best;
    const keys = select({
      label: t("look.cut.key"),
      value: chosen,
      options: cols.map((word, i) => [i, `${word.text}${repeated(cols, i)}`]),
      onchange: (v) => (key = Number(v)),
    });
    const scopes = select({
      label: t("look.cut.scope"),
      value: scope,
      options: ["head", "layer", "all"].map((one) => [one, t(`look.cut.scope.${one}`)]),
      onchange: (v) => (scope = v),
    });
    const cut = () => {
      const to = cols[Number(keys.value)];
      /** @type {[layer: number, head: number | string][]} */
      const where =
        scope === "all"
          ? book.layers.map((layer) => [layer.index, "*"])
          : [[book.layer.index, scope === "layer" ? "*" : book.head]];
      keep([...items(), ...where.map(([layer, head]) => edgeItem(layer, head, from, to))]);
    };
    return h(
      "div",
      { class: "row edge" },
      h(
        "span",
        { class: "edge-from", title: t("look.cut.from", { word: from.text }) },
        from.text,
        " ↛",
      ),
      keys,
      scopes,
      h("button", { type: "button", class: "cut-edge", onclick: cut }, t("look.cut.edge")),
    );
  }

  /** @param {Word[]} words @param {number} i */
  function repeated(words, i) {
    const before = words.slice(0, i).filter((word) => word.text === words[i].text).length;
    return before || words.slice(i + 1).some((word) => word.text === words[i].text)
      ? ` (${before + 1})`
      : "";
  }

  /** @param {number} row */
  function strongestKey(row) {
    const { weights, cols, same } = book;
    let best = 0;
    let most = -1;
    for (let c = 0; c < cols.length; c++) {
      const w = weights[row * cols.length + c];
      if (w > most && !(same && c === row)) [best, most] = [c, w];
    }
    return best;
  }

  /** @param {string} item */
  function told(item) {
    const { heads, edges } = cutsOf(item);
    if (heads.length)
      return t("look.cut.chip.head", { head: `${layerOf(heads[0][0])?.name}:${heads[0][1]}` });
    const [edge] = edges;
    const layer = layerOf(edge?.layer);
    if (!layer) return item;
    /** @param {Word[]} list @param {number} at */
    const word = (list, at) => list.find((one) => one.start <= at && at < one.stop)?.text ?? "?";
    const where =
      edge.head === null
        ? t("look.cut.chip.layer", { layer: layer.name })
        : `${layer.name}:${edge.head}`;
    return t("look.cut.chip.edge", {
      from: word(book.data[layer.rows], edge.query), to: word(book.data[layer.cols], edge.key),
      where,
    });
  }

  function drawChips() {
    const list = items();
    /** @type {[what: string, items: string[]][]} */
    const groups = [];
    for (const item of list) if (!wholeOf(item, list)) groups.push([told(item), [item]]);
    for (const layer of book.data.layers) {
      const all = headsOf(layer);
      if (all.every((item) => list.includes(item)))
        groups.push([t("look.cut.chip.whole", { layer: layer.name }), all]);
    }
    /** @param {string[]} gone */
    const back = (gone) => keep(list.filter((item) => !gone.includes(item)));
    fill(
      chips,
      groups.map(([what, gone]) =>
        h(
          "button",
          {
            type: "button",
            class: "chip chosen",
            "aria-label": t("look.cut.remove", { what }),
            onclick: () => back(gone),
          },
          what,
          h("span", { "aria-hidden": "true" }, "×"),
        ),
      ),
      groups.length > 1 &&
        h(
          "button",
          { type: "button", class: "plain", onclick: () => set({ cut: null }) },
          t("look.cut.clear"),
        ),
    );
  }

  /** @param {Layer} layer */
  const headsOf = (layer) => Array.from({ length: layer.heads }, (_, i) => `h${layer.index}.${i}`);

  /** Whether an item is one of a whole layer that is silent.
   * @param {string} item
   * @param {string[]} list
   */
  function wholeOf(item, list) {
    const layer = layerOf(cutsOf(item).heads[0]?.[0]);
    return layer !== undefined && headsOf(layer).every((one) => list.includes(one));
  }

  return {
    node,
    /** @param {Book} next */
    draw(next) {
      if (book && (book.pin.row !== next.pin.row || book.data !== next.data)) key = null;
      book = next;
      tools.hidden = chips.hidden = !says(book.data.kind);
      if (says(book.data.kind)) {
        drawTools();
        drawChips();
      }
      drawPrediction(result, book);
    },
  };
}
