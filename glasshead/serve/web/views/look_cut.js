// Take heads or looks away, and see what the model says then, beside what it says as it is.
//
// Cuts are kept in the address: "h1.0" silences head 0 of layer 1; "e1.0.26.27.2.3" keeps queries 26 to 27 of that
// head from seeing keys 2 to 3; "*" in the place of the head means all of the layer.

import { fill, h, problem, select } from "../dom.js";
import { percent, t } from "../words.js";

const SAYS = new Set(["gpt", "reader", "translator"]);

export function cutsOf(text) {
  const heads = [];
  const edges = [];
  for (const one of (text ?? "").split("_").filter(Boolean)) {
    const numbers = one.slice(1).split(".").map((x) => (x === "*" ? null : Number(x)));
    if (numbers.some((x) => x !== null && !Number.isInteger(x))) continue;
    if (one[0] === "h" && numbers.length === 2) heads.push(numbers);
    else if (one[0] === "e" && numbers.length === 6) {
      const [layer, head, query, query_stop, key, key_stop] = numbers;
      edges.push({ layer, head, query, query_stop, key, key_stop });
    }
  }
  return { heads, edges };
}

export const says = (kind) => SAYS.has(kind);

export function cutCard({ set }) {
  let book = null;
  let scope = "head";
  let key = null;
  const hint = h("p", { class: "quiet small" }, t("look.cut.hint"));
  const tools = h("div", { class: "tools" });
  const chips = h("div", { class: "row chips" });
  const result = h("div", { class: "result", "aria-live": "polite" });
  const node = h("section", { class: "card cut-card" }, h("header", {}, h("h2", {}, t("look.cut"))), hint, result, tools, chips);

  const items = () => (book.cut ?? "").split("_").filter(Boolean);
  const keep = (list) => set({ cut: [...new Set(list)].join("_") });
  const layerOf = (index) => book.data.layers.find((one) => one.index === index);

  function drawTools() {
    const { layer, head, pin, rows, cols } = book;
    const name = `${layer.name}:${head}`;
    const mine = `h${layer.index}.${head}`;
    const silent = items().includes(mine);
    const whole = headsOf(layer);
    fill(
      tools,
      h("div", { class: "row" },
        h("button", { type: "button", class: "silence", "aria-pressed": String(silent), onclick: () => keep(silent ? items().filter((x) => x !== mine) : [...items(), mine]) }, t("look.cut.head", { head: name })),
        layer.heads > 1 && h("button", { type: "button", onclick: () => keep([...items(), ...whole]) }, t("look.cut.heads", { n: layer.heads, layer: layer.name }))),
      pin.row !== null && edgeTool(rows[pin.row], cols),
    );
  }

  function edgeTool(from, cols) {
    const best = strongestKey();
    const chosen = key !== null && cols[key] ? key : best;
    const keys = select({ label: t("look.cut.key"), value: chosen, options: cols.map((word, i) => [i, `${word.text}${repeated(cols, i)}`]), onchange: (v) => (key = Number(v)) });
    const scopes = select({ label: t("look.cut.scope"), value: scope, options: ["head", "layer", "all"].map((one) => [one, t(`look.cut.scope.${one}`)]), onchange: (v) => (scope = v) });
    const cut = () => {
      const to = cols[Number(keys.value)];
      const where = scope === "all" ? book.layers.map((layer) => [layer.index, "*"]) : [[book.layer.index, scope === "layer" ? "*" : book.head]];
      keep([...items(), ...where.map(([layer, head]) => `e${layer}.${head}.${from.start}.${from.stop}.${to.start}.${to.stop}`)]);
    };
    return h("div", { class: "row edge" }, h("span", { class: "edge-from", title: t("look.cut.from", { word: from.text }) }, from.text, " ↛"), keys, scopes, h("button", { type: "button", class: "cut-edge", onclick: cut }, t("look.cut.edge")));
  }

  function repeated(words, i) {
    const before = words.slice(0, i).filter((word) => word.text === words[i].text).length;
    return before || words.slice(i + 1).some((word) => word.text === words[i].text) ? ` (${before + 1})` : "";
  }

  function strongestKey() {
    const { pin, weights, cols, same } = book;
    let best = 0;
    let most = -1;
    for (let c = 0; weights && c < cols.length; c++) {
      const w = weights[pin.row * cols.length + c];
      if (w > most && !(same && c === pin.row)) [best, most] = [c, w];
    }
    return best;
  }

  function told(item) {
    const { heads, edges } = cutsOf(item);
    if (heads.length) return t("look.cut.chip.head", { head: `${layerOf(heads[0][0])?.name}:${heads[0][1]}` });
    const [edge] = edges;
    const layer = layerOf(edge?.layer);
    if (!layer) return item;
    const word = (list, at) => list.find((one) => one.start <= at && at < one.stop)?.text ?? "?";
    const where = edge.head === null ? t("look.cut.chip.layer", { layer: layer.name }) : `${layer.name}:${edge.head}`;
    return t("look.cut.chip.edge", { from: word(book.data[layer.rows], edge.query), to: word(book.data[layer.cols], edge.key), where });
  }

  function drawChips() {
    const list = items();
    const groups = list.map((item) => [told(item), [item]]).filter(([, [item]]) => !wholeOf(item, list));
    for (const layer of book.data.layers) {
      const all = headsOf(layer);
      if (all.every((item) => list.includes(item))) groups.push([t("look.cut.chip.whole", { layer: layer.name }), all]);
    }
    const back = (gone) => keep(list.filter((item) => !gone.includes(item)));
    fill(chips, groups.map(([what, gone]) => h("button", { type: "button", class: "chip chosen", "aria-label": t("look.cut.remove", { what }), onclick: () => back(gone) }, what, h("span", { "aria-hidden": "true" }, "×"))),
      groups.length > 1 && h("button", { type: "button", class: "plain", onclick: () => set({ cut: null }) }, t("look.cut.clear")));
  }

  const headsOf = (layer) => Array.from({ length: layer.heads }, (_, i) => `h${layer.index}.${i}`);

  // Whether an item is one of a whole layer that is silent.
  function wholeOf(item, list) {
    const layer = layerOf(cutsOf(item).heads[0]?.[0]);
    return Boolean(layer) && headsOf(layer).every((one) => list.includes(one));
  }

  function question(found) {
    if (found.kind === "answer") return t("look.cut.answer", { word: wordAt(book.data.words, found.at) });
    if (found.kind === "next") return t("look.cut.next", { word: wordAt(book.data.words, found.at) });
    const before = found.prefix.split(/\s+/).at(-1);
    return before ? t("look.cut.word", { word: before }) : t("look.cut.first");
  }

  function drawResult() {
    if (!says(book.data.kind)) return fill(result, h("p", { class: "quiet" }, t("look.cut.none")));
    if (book.predictionProblem) return fill(result, problem(book.predictionProblem, t));
    const found = book.prediction;
    if (!found) return fill(result, h("p", { class: "quiet" }, t(book.data.kind === "reader" && book.pin.row === null ? "look.cut.pin" : "look.reading")));
    const after = found.words.some((word) => word.after !== null);
    const first = [...found.words].sort((a, b) => b.before - a.before)[0];
    const then = after && [...found.words].sort((a, b) => b.after - a.after)[0];
    const shown = [...found.words].sort((a, b) => Math.max(b.before, b.after ?? 0) - Math.max(a.before, a.after ?? 0)).filter((word, i) => i < 2 || Math.max(word.before, word.after ?? 0) >= 0.001).slice(0, 6);
    fill(
      result,
      h("h3", {}, question(found)),
      h("table", { class: after ? "both" : "" },
        h("thead", {}, h("tr", {}, h("th", { class: "spoken-head" }, ""), h("th", {}, t("look.cut.before")), after && h("th", {}, t("look.cut.after")))),
        h("tbody", {}, shown.map((word) => h("tr", {}, h("td", { class: "said" }, word.text), share(word.before, ""), after && share(word.after, word.after > word.before ? "up" : "down"))))),
      after && h("p", { class: `verdict ${first.id === then.id ? "" : "changed"}` }, first.id === then.id ? t("look.cut.same", { word: first.text }) : t("look.cut.changed", { before: first.text, after: then.text })),
      found.translation !== undefined && translations(found, after),
    );
  }

  function share(value, way) {
    return h("td", { class: `share ${way}` }, h("span", { class: "number" }, percent(value)), h("i", { style: { width: `${100 * value}%` } }));
  }

  function translations(found, after) {
    const marked = (text, other) => {
      const known = new Set(other.split(/\s+/));
      return text.split(/(\s+)/).map((word) => (word.trim() && !known.has(word) ? h("mark", {}, word) : word));
    };
    return h("div", { class: "translations" }, h("h3", {}, t("look.cut.translation")),
      h("p", {}, after && h("span", { class: "eyebrow" }, t("look.cut.before")), after && found.changed ? marked(found.translation, found.changed) : found.translation),
      after && h("p", {}, h("span", { class: "eyebrow" }, t("look.cut.after")), found.changed === null ? h("span", { class: "quiet" }, t("look.cut.unknown")) : marked(found.changed, found.translation)));
  }

  return {
    node,
    draw(next) {
      if (book && (book.pin.row !== next.pin.row || book.data !== next.data)) key = null;
      book = next;
      tools.hidden = chips.hidden = !says(book.data.kind);
      if (says(book.data.kind)) {
        drawTools();
        drawChips();
      }
      drawResult();
    },
  };
}

function wordAt(words, token) {
  return words.find((word) => word.start <= token && token < word.stop)?.text ?? "";
}
