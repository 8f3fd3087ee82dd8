// Beside the text: what a token could have been, and what every head looked at to write it.

import { fill, h, toggle } from "../dom.js";
import * as state from "../state.js";
import { percent, t } from "../words.js";

const MOST = 64; // tokens whose looks a saved page holds

/** @import { Alternative } from "./write_paper.js" */

/**
 * What /api/write/look tells: of each head the tokens that it looked at most, with their weights.
 * @typedef {[at: number, weight: number][]} Keys
 * @typedef {{from: number, layers: {index: number, name: string, heads: Keys[]}[]}} Looked
 * @typedef {{layer: number, head: number}} Head
 */

const SHOWN = 3; // words of a head's row
/** @type {Record<string, string>} */
const VISIBLE = { "\n": "↵", "\t": "⇥", " ": "␣" };

/** @param {string} text */
export const visible = (text) => text.replace(/[\n\t]|^ | $/g, (c) => VISIBLE[c] ?? c) || "∅";

/**
 * @param {HTMLElement} node
 * @param {{
 *   title: string, hint: string, bytes: Child, ontake: (one: Alternative) => void,
 *   list: Alternative[], taken: Alternative | null,
 * }} of `list` are the likeliest tokens; `taken` the one that stands there, or null for what comes
 *   next.
 */
export function alternatives(node, { title, hint, list, taken, ontake, bytes }) {
  const rows = [...list];
  if (taken && !rows.some((one) => one.id === taken.id)) rows.push(taken);
  fill(
    node,
    h("h2", {}, title),
    h("p", { class: "quiet small" }, bytes ?? hint),
    h(
      "ul",
      { class: "write-alternatives" },
      rows.map((one) => {
        const share = Math.exp(one.logprob ?? -Infinity);
        const own = taken?.id === one.id;
        const word = one.special ? `${one.text} · ${t("write.end")}` : visible(one.text);
        const bar = h("i", { style: { width: `${100 * share}%` } });
        return h(
          "li",
          {},
          h(
            "button",
            {
              type: "button",
              class: own ? "own" : null,
              disabled: own || Boolean(one.special),
              "aria-label": t("write.take", { word, share: percent(share) }),
              onclick: () => ontake(one),
            },
            bar,
            h("span", { class: "word" }, word),
            own ? h("span", { class: "quiet small" }, t("write.was")) : null,
            h("span", { class: "number" }, percent(share)),
          ),
        );
      }),
    ),
  );
}

/** The head in the address, else the one with the strongest look.
 * @param {Looked} told
 * @returns {Head}
 */
export function chosenHead(told) {
  const { layer, head } = state.get();
  const named = told.layers.find((one) => String(one.index) === layer);
  if (named && named.heads[Number(head)]) return { layer: named.index, head: Number(head) };
  const all = told.layers.flatMap((one) =>
    one.heads.map((keys, n) => ({ layer: one.index, head: n, most: keys[0]?.[1] ?? 0 })),
  );
  return all.reduce((a, b) => (b.most > a.most ? b : a));
}

/** @param {Looked} told @param {Head} which */
export function headOf(told, { layer, head }) {
  return told.layers.find((one) => one.index === layer)?.heads[head] ?? [];
}

/**
 * @param {HTMLElement} node
 * @param {{
 *   told: Looked, next: boolean, word: (at: number) => string, chosen: Head | null, sink: boolean,
 *   onsink: (on: boolean) => void, onchoose: (one: Head) => void,
 * }} of `word(at)` is the text of a token
 */
export function lookedAt(node, { told, next, word, chosen, sink, onsink, onchoose }) {
  /** @type {(Head & {list: Keys, most: number})[]} */
  const heads = [];
  for (const layer of told.layers)
    layer.heads.forEach((keys, head) => {
      const list = sink ? keys.filter(([at]) => at !== told.from) : keys;
      heads.push({ layer: layer.index, head, list, most: list[0]?.[1] ?? 0 });
    });
  heads.sort((a, b) => b.most - a.most);
  fill(
    node,
    h("header", {}, h("h2", {}, t(next ? "write.looked.next" : "write.looked"))),
    h("p", { class: "quiet small" }, t("write.looked.hint")),
    toggle({ label: t("write.sink"), title: t("write.sink.why"), value: sink, onchange: onsink }),
    h(
      "ul",
      { class: "write-heads" },
      heads.map((one) => {
        const on = chosen && one.layer === chosen.layer && one.head === chosen.head;
        return h(
          "li",
          {},
          h(
            "button",
            {
              type: "button",
              class: on ? "chosen" : null,
              "aria-pressed": on ? "true" : "false",
              onclick: () => onchoose(one),
            },
            h("span", { class: "quiet small" }, t("write.head.at", one)),
            h(
              "span",
              { class: "seen" },
              one.list
                .slice(0, SHOWN)
                .filter(([, weight]) => weight >= 0.01)
                .map(([at, weight]) =>
                  h("span", {}, h("b", {}, visible(word(at))), ` ${percent(weight)}`),
                ),
            ),
          ),
        );
      }),
    ),
  );
}

/** What a saved page asks of a text: what each of its last tokens looked at, and what may come next
 * where it is not known yet.
 * @param {string} model
 * @param {number[]} ids
 * @param {boolean} running
 */
export function asksOf(model, ids, running) {
  const all = [null, ...ids].slice(0, MOST).map((_, n) => ids.length - n);
  /** @type {Ask[]} */
  const looks = all.filter((at) => at > 0).map((at) => ["/api/write/look", { model, ids, at }]);
  if (running) looks.unshift(["/api/write/read", { model, ids }]);
  return looks;
}
