// What the colours mean, and what those hear who do not see the picture.

import { fill, h } from "../dom.js";
import { pen } from "../paint.js";
import { palette } from "../scale.js";
import { percent, t, three } from "../words.js";

/** @import { Look } from "./look_lines.js" */

/** @param {HTMLElement} node @param {import("../scale.js").Scale} scale */
export function drawLegend(node, { kind, low, high }) {
  const bar = h("canvas", { width: 128, height: 1 });
  const context = pen(bar);
  const ramp = palette(kind);
  for (let i = 0; i < 128; i++) {
    context.fillStyle = `rgb(${ramp[6 * i]},${ramp[6 * i + 1]},${ramp[6 * i + 2]})`;
    context.fillRect(i, 0, 1, 1);
  }
  Object.assign(bar.style, { width: "112px", height: "9px" });
  const ends =
    kind === "ratio"
      ? [t("look.ends.low"), t("look.ends.high")]
      : [low ? `≤${three(low)}` : "0", three(high)];
  fill(
    node,
    h("span", { class: "spoken" }, t("look.scale", { low: ends[0], high: ends[1] })),
    h("span", { "aria-hidden": "true" }, ends[0]),
    bar,
    h("span", { "aria-hidden": "true" }, ends[1]),
  );
}

/** The strongest looks of the word in focus, as a table.
 * @param {Look} look
 * @param {number} focus
 */
export function spokenLooks(look, focus) {
  const row = look.row !== null;
  const others = row ? look.cols : look.rows;
  /** @param {number} i */
  const value = (i) => {
    const [r, c] = row ? [focus, i] : [i, focus];
    return look.weights[r * look.cols.length + c];
  };
  const order = others
    .map((_, i) => i)
    .filter((i) => value(i) > 0)
    .sort((a, b) => value(b) - value(a))
    .slice(0, 8);
  const word = (row ? look.rows : look.cols)[focus].text;
  /** @param {number} v */
  const write = (v) => (look.scale.kind === "ratio" ? `${three(v)}×` : percent(v));
  return h("table", {},
    h("caption", {}, t(row ? "look.rank.from" : "look.rank.to", { word })),
    h("tbody", {},
      order.map((i) => h("tr", {}, h("td", {}, others[i].text), h("td", {}, write(value(i))))),
    ),
  );
}
