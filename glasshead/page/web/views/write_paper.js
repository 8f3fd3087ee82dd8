// The text as tokens. Some tokens are only a part of a character: they are shown together once it
// is whole.
//
//   const paper = tokenPaper(onselect);  paper.set(tokens);  paper.add(token);  paper.select(at)
// `units` hold the tokens from `from` (included) to `to` (not included).

import { along, fill, h, showDirections } from "../dom.js";
import { Scale } from "../scale.js";
import { t } from "../words.js";

export const SURPRISE = new Scale("linear", 0, 12); // bits; what is more is as dark as that

/**
 * A token, as the server tells it. One without `logprob` was given, or is not known yet.
 * @typedef {{id: number, text: string, logprob?: number | null, special?: boolean}} Alternative
 *
 * @typedef {{how: "given" | "written" | "chosen", alternatives?: Alternative[]}} Origin
 * @typedef {Alternative & Origin} Token
 *
 * @typedef {object} Unit
 * @property {number} from
 * @property {number} to
 * @property {string} text
 * @property {HTMLElement} node
 * @property {number | null} [value] what its colour shows
 *
 * @typedef {ReturnType<typeof tokenPaper>} Paper
 */

/** @param {Alternative} token */
export function bits({ logprob }) {
  return Number.isFinite(logprob ?? Number.NaN) ? -Number(logprob) / Math.LN2 : null;
}

/** How much was written, and how surprising it was.
 * @param {Token[]} tokens those that were written
 * @param {number | null} speed tokens a second, while it is written
 * @param {string} ended why it ended
 */
export function statusOf(tokens, speed, ended) {
  const own = tokens.map(bits).filter((value) => value !== null);
  const mean = own.reduce((a, b) => a + b, 0) / Math.max(1, own.length);
  const parts = [t("write.told", { n: tokens.length, bits: mean.toFixed(2) })];
  if (speed !== null) parts.push(t("write.told.speed", { speed: Math.round(speed) }));
  else if (ended) parts.push(t(`write.ended.${ended}`));
  return parts.join(" · ");
}

/** @param {(at: number) => void} onselect */
export function tokenPaper(onselect) {
  const node = h("div", {
    class: "write-paper", role: "listbox", "aria-label": t("write.text"),
    "aria-orientation": "horizontal",
  });
  /** @type {Token[]} */
  let tokens = [];
  /** @type {Unit[]} */
  let units = [];
  /** @type {Unit | null} */
  let selected = null;
  node.addEventListener("click", (event) => {
    const pointed = /** @type {HTMLElement} */ (event.target).closest(".token");
    const at = units.findIndex((unit) => unit.node === pointed);
    if (at >= 0) onselect(units[at].from);
  });
  node.addEventListener("keydown", (event) => {
    const at = along(
      event,
      units.map((unit) => unit.node),
      units.findIndex((unit) => unit.node === document.activeElement),
    );
    if (at !== null) onselect(units[at].from);
  });

  /** @param {Token} token */
  function add(token) {
    const last = units[units.length - 1];
    const n = tokens.length;
    tokens.push(token);
    if (last && !last.text && !token.special) {
      last.to = n + 1;
      last.text = token.text;
      draw(last);
    } else {
      const unit = {
        from: n,
        to: n + 1,
        text: token.text,
        node: h("span", { class: "token", role: "option", "aria-selected": "false" }),
      };
      unit.node.tabIndex = units.length ? -1 : 0;
      units.push(unit);
      draw(unit);
      node.append(unit.node);
    }
  }

  /** @param {Unit} unit */
  function draw(unit) {
    const first = tokens[unit.from];
    const word = showDirections(unit.text);
    unit.node.textContent = word ? word.replaceAll("\n", "↵\n") : "·";
    unit.node.classList.toggle("given", first.how === "given");
    unit.node.classList.toggle("chosen-by-hand", first.how === "chosen");
    unit.node.classList.toggle("special", Boolean(first.special));
    unit.node.classList.toggle("part", !unit.text);
    const told = surprise(unit);
    unit.node.setAttribute(
      "aria-label",
      t("write.token.said", { word, bits: told === null ? "–" : told.toFixed(1) }),
    );
    unit.node.title = told === null ? "" : t("write.bits", { bits: told.toFixed(1) });
  }

  /** Of all its tokens together.
   * @param {Unit} unit
   */
  function surprise(unit) {
    let sum = 0;
    for (const token of tokens.slice(unit.from, unit.to)) {
      const own = bits(token);
      if (own === null) return null;
      sum += own;
    }
    return sum;
  }

  /** Gives the value of the strongest colour.
   * @param {string | Map<number, number>} by "surprise", "none", or weights by token
   */
  function colour(by, seenFrom = 0) {
    const most = by instanceof Map ? Math.max(1e-9, ...by.values()) : 1;
    const scale = by instanceof Map ? new Scale("linear", 0, most) : SURPRISE;
    for (const unit of units) {
      /** @type {number | null} */
      let value = null;
      if (by === "surprise") value = surprise(unit);
      else if (by instanceof Map) {
        value = 0;
        for (let at = unit.from; at < unit.to; at++) value += by.get(at) ?? 0;
      }
      unit.value = value;
      unit.node.style.backgroundColor =
        value === null || (by instanceof Map && !value) ? "" : scale.colour(value);
      unit.node.style.color =
        value === null || (by instanceof Map && !value) ? "" : scale.ink(value);
      unit.node.classList.toggle("unseen", unit.to <= seenFrom);
    }
    return most;
  }

  /** @param {number} at */
  const unitAt = (at) => units.find((unit) => at >= unit.from && at < unit.to) ?? null;

  /** @param {number} at */
  function select(at) {
    const found = unitAt(at);
    for (const unit of [selected, found]) {
      unit?.node.classList.toggle("selected", unit === found);
      unit?.node.setAttribute("aria-selected", unit === found ? "true" : "false");
    }
    if (found) for (const unit of units) unit.node.tabIndex = unit === found ? 0 : -1;
    selected = found;
    return found;
  }

  return {
    node,
    add,
    select,
    colour,
    unitAt,
    /** @param {Token[]} next */
    set(next) {
      fill(node);
      tokens = [];
      units = [];
      selected = null;
      for (const token of next) add(token);
    },
    get tokens() {
      return tokens;
    },
    get units() {
      return units;
    },
    /** @param {number} at */
    refresh: (at) => units.filter((unit) => at >= unit.from && at < unit.to).forEach(draw),
    /** @param {number} at */
    wordAt: (at) => unitAt(at)?.text ?? "",
  };
}

/** The text with its colours, for any painter; gives the height.
 * @param {Painter} painter
 * @param {{units: Unit[]}} paper
 * @param {{x: number, y: number, w: number, scale: Scale, colours: Colours}} of
 */
export function drawPaper(painter, paper, { x, y, w, scale, colours }) {
  const size = 18;
  const row = 32;
  let [left, top] = [x, y];
  for (const unit of paper.units) {
    for (const [n, piece] of unit.text.split("\n").entries()) {
      if (n) [left, top] = [x, top + row];
      for (const letters of cut(painter, piece, w, size)) {
        const wide = painter.measure(letters, { size });
        if (left + wide > x + w && left > x) [left, top] = [x, top + row];
        const { value = null } = unit;
        if (value !== null)
          painter.rect(left, top, wide, row - 5, { fill: scale.colour(value), radius: 3 });
        const fill = value === null ? colours.ink : scale.ink(value);
        painter.text(left, top + 20, letters, { size, fill });
        left += wide + 1;
      }
    }
  }
  return top + row - y;
}

/** A piece that is wider than the line is drawn in parts.
 * @param {Painter} painter
 * @param {string} text
 * @param {number} w
 * @param {number} size
 * @returns {string[]}
 */
function cut(painter, text, w, size) {
  if (!text || painter.measure(text, { size }) <= w) return text ? [text] : [];
  const all = Array.from(text);
  const half = all.length >> 1;
  return half
    ? [
        ...cut(painter, all.slice(0, half).join(""), w, size),
        ...cut(painter, all.slice(half).join(""), w, size),
      ]
    : [text];
}
