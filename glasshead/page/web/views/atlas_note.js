// What Atlas says of a weight, of a row, and of its colours.

import { h } from "../dom.js";
import { pen } from "../paint.js";
import { Scale, palette } from "../scale.js";
import { count, t, three } from "../words.js";

/** A weight that is pointed at.
 * @param {{row: number, col: number}} at
 * @param {{mean: number, max: number, side: number} | null} cell that holds it
 * @param {{weight: number | null} | null} known if it is
 * @param {boolean} hidden by causality
 */
export function tipOf(at, cell, known, hidden) {
  const exact = known ? known.weight : cell?.side === 1 ? cell.max : null;
  const told = exact !== null ? `${t("atlas.exact")} ${three(exact)}` : `${t("atlas.exact")} …`;
  const where = `${t("atlas.row", { n: count(at.row) })} → ${t("atlas.col", { n: count(at.col) })}`;
  return [
    h("div", {}, h("strong", { class: "number" }, hidden ? t("atlas.hidden") : told)),
    h("div", { class: "quiet number" }, where),
    cell && cell.side > 1 && !hidden
      ? h("div", { class: "quiet number" },
          t("atlas.of cell", { n: cell.side, mean: three(cell.mean), max: three(cell.max) }),
        )
      : null,
  ];
}

/** What a query looks at most.
 * @param {AtlasRow} found
 * @param {(key: number) => void} onpick
 */
export function note(found, onpick) {
  const most = found.keys[0]?.weight || 1;
  const scale = new Scale("linear", 0, most);
  return [
    h("div", { class: "row" },
      words(found.text),
      h("span", { class: "quiet small number" }, t("atlas.row", { n: count(found.query) })),
    ),
    h("p", { class: "small quiet" }, t("atlas.looks")),
    h("ol", {},
      found.keys.map(({ key, weight, text }) => {
        const bar = {
          width: `${Math.max(2, 56 * (weight / most))}px`, background: scale.colour(weight),
        };
        return h("li", {},
          h("button", { type: "button", class: "plain", onclick: () => onpick(key) },
            h("span", { class: "bar", style: bar }),
            h("span", { class: "number" }, three(weight)),
            words(text),
            h("span", { class: "quiet small number" }, count(key)),
          ),
        );
      }),
    ),
  ];
}

/** @param {Around} around */
function words([before, text, behind]) {
  const n = /[\u2e80-\uffff]/.test(before + behind) ? 4 : 9; // wide letters, or narrow ones
  return h("span", { class: "context" },
    h("span", { class: "quiet" }, before.slice(-n)),
    h("b", {}, text),
    h("span", { class: "quiet" }, behind.slice(0, n)),
  );
}

/** @param {ScaleKind} kind @param {number} low @param {number} high */
export function legend(kind, low, high) {
  const bar = h("canvas", { width: 96, height: 1, "aria-hidden": "true" });
  const pixels = new ImageData(96, 1);
  const bytes = palette(kind);
  for (let i = 0; i < 96; i++) {
    const at = 3 * Math.round((i * 255) / 95);
    pixels.data.set([...bytes.subarray(at, at + 3), 255], 4 * i);
  }
  pen(bar).putImageData(pixels, 0, 0);
  return [low ? `≤${three(low)}` : "0", bar, `≥${three(high)}`];
}
