// What the Steps view says in words: what the switches changed, and the numbers as a table for
// screen readers.

import { fill, h } from "../dom.js";
import { percent, t, three } from "../words.js";
import { askedBy, entropy } from "./steps_table.js";

/** @param {HTMLElement} node @param {import("./steps_table.js").Shown} shown */
export function drawVerdict(node, { found, now, model, options, changed }) {
  /** @type {string[]} */
  const said = [];
  if (!changed) said.push(t("steps.is"));
  if (!options.scale) {
    const times = three(1 / found.scale).replace(/\.?0+$/, "");
    said.push(t("steps.off.scale", { d: found.d, times }));
  }
  if (options.mask !== "model")
    said.push(t(`steps.off.${options.mask}`, { word: askedBy(found) }));
  if (options.temperature !== 1) {
    const way = options.temperature > 1 ? "hot" : "cold";
    said.push(t(`steps.off.${way}`, { t: options.temperature.toFixed(2) }));
  }
  /** @param {string} key @param {number[]} weights */
  const strongest = (key, weights) => {
    const best = weights.indexOf(Math.max(...weights));
    return t(key, {
      word: found.keys[best], now: percent(weights[best]), entropy: three(entropy(weights)),
    });
  };
  fill(
    node,
    h("p", { class: changed ? "changed" : "" }, said.join(" ")),
    h(
      "p",
      { class: "quiet small number" },
      strongest("steps.most", now.weights),
      changed && h("span", { class: "was" }, strongest("steps.was", model.weights)),
    ),
  );
}

/** @param {HTMLElement} node @param {import("./steps_table.js").Shown} shown */
export function drawTable(node, { found, now }) {
  const columns = ["word", "products", "scaled", "masked", "weights"];
  const heads = columns.map((name) => h("th", {}, t(`steps.col.${name}`)));
  /** @param {number} value */
  const cell = (value) =>
    h("td", { "data-value": value }, Number.isFinite(value) ? three(value) : t("steps.hidden"));
  const rows = found.keys.map((key, i) => {
    const values = [found.products[i], now.scaled[i], now.masked[i], now.weights[i]];
    return h("tr", {}, h("th", {}, key), values.map(cell));
  });
  fill(
    node,
    h(
      "table",
      { class: "steps-table" },
      h("caption", {}, t("steps.table")),
      h("thead", {}, h("tr", {}, heads)),
      h("tbody", {}, rows),
    ),
  );
}
