// Beside the text: what a token could have been, and what every head looked at to write it.

import { fill, h, toggle } from "../dom.js";
import { percent, t } from "../words.js";

const SHOWN = 3; // words of a head's row
const VISIBLE = { "\n": "↵", "\t": "⇥", " ": "␣" };

export const visible = (text) => text.replace(/[\n\t]|^ | $/g, (c) => VISIBLE[c] ?? c) || "∅";

// `list` are the likeliest tokens; `taken` the one that stands there, or null for what comes next.
export function alternatives(node, { title, hint, list, taken, ontake, bytes }) {
  const rows = [...list];
  if (taken && !rows.some((one) => one.id === taken.id)) rows.push(taken);
  fill(
    node,
    h("h2", {}, title),
    h("p", { class: "quiet small" }, bytes ?? hint),
    h("ul", { class: "write-alternatives" }, rows.map((one) => {
      const share = Math.exp(one.logprob ?? -Infinity);
      const own = taken?.id === one.id;
      const word = one.special ? `${one.text} · ${t("write.end")}` : visible(one.text);
      const bar = h("i", { style: { width: `${100 * share}%` } });
      return h("li", {}, h(
        "button",
        { type: "button", class: own ? "own" : null, disabled: own || Boolean(one.special), "aria-label": t("write.take", { word, share: percent(share) }), onclick: () => ontake(one) },
        bar,
        h("span", { class: "word" }, word),
        own ? h("span", { class: "quiet small" }, t("write.was")) : null,
        h("span", { class: "number" }, percent(share)),
      ));
    })),
  );
}

// told: what /api/write/look gave; word(at): the text of a token.
export function lookedAt(node, { told, next, word, chosen, sink, onsink, onchoose }) {
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
    h("ul", { class: "write-heads" }, heads.map((one) => {
      const on = chosen && one.layer === chosen.layer && one.head === chosen.head;
      return h("li", {}, h(
        "button",
        { type: "button", class: on ? "chosen" : null, "aria-pressed": on ? "true" : "false", onclick: () => onchoose(one) },
        h("span", { class: "quiet small" }, t("write.head.at", one)),
        h("span", { class: "seen" }, one.list.slice(0, SHOWN).filter(([, weight]) => weight >= 0.01).map(([at, weight]) => h("span", {}, h("b", {}, visible(word(at))), ` ${percent(weight)}`))),
      ));
    })),
  );
}
