// Heads while they form: a run that was trained with --watch-heads, step by step, its loss beside.

import * as api from "../api.js";
import { fill, h, problem, select, slider } from "../dom.js";
import { t } from "../words.js";
import { pointsOf } from "./runs_curves.js";

const SVG = "http://www.w3.org/2000/svg";
const [WIDE, HIGH] = [320, 72]; // of the loss
const CELL = 26; // of a head

/**
 * What /api/runs/{id}/heads says: of each number a frame a step, layers of heads.
 * @typedef {{steps: number[], numbers: Record<string, (number | null)[][][]>}} Film
 */

/** A card with the film of a run; null if its heads were not watched.
 * @param {string} place of the run in addresses
 * @param {Curve | undefined} curve
 * @returns {Promise<HTMLElement | null>}
 */
export async function film(place, curve) {
  /** @type {Film} */
  let found;
  try {
    found = await api.get(`/api/runs/${place}/heads`);
  } catch (error) {
    return h("div", { class: "card run-film" }, problem(error, t));
  }
  const names = Object.keys(found.numbers);
  if (!found.steps.length || !names.length) return null;
  let name = names.includes("induction") ? "induction" : names[0];
  let n = found.steps.length - 1;
  const grid = h("div", { class: "film-heads" });
  const loss = h("div", { class: "film-loss" });

  function draw() {
    fill(grid, heads(found, name, n));
    fill(loss, curveOf(curve, found.steps, n));
  }
  draw();
  return h("div", { class: "card run-film" },
    h("header", {}, h("h2", {}, t("film.title"))),
    h("p", { class: "quiet small" }, t("film.about")),
    h("div", { class: "film-bar" },
      select({
        label: t("film.number"),
        options: names.map((one) => /** @type {Choice} */ ([one, t(`film.${one}`)])),
        value: name,
        visible: true,
        onchange: (/** @type {string} */ value) => {
          name = value;
          draw();
        },
      }),
      slider({
        label: t("runs.step"), min: 0, max: found.steps.length - 1, step: 1, value: n,
        show: (/** @type {number} */ i) => String(found.steps[i]),
        onchange: (/** @type {number} */ i) => {
          n = i;
          draw();
        },
      }),
    ),
    h("div", { class: "film-both" }, grid, loss),
  );
}

/** Every head as a square, darker for more; each says its number.
 * @param {Film} found @param {string} name @param {number} n
 */
function heads(found, name, n) {
  const frames = found.numbers[name];
  const every = frames.flat(2).filter((x) => x !== null);
  const most = Math.max(1e-9, ...every.map(Math.abs), name in SHARES ? 1 : 0);
  return h("table", { class: "film-table" },
    h("caption", { class: "small" },
      t("film.at", { step: found.steps[n], name: t(`film.${name}`) }),
    ),
    h("tbody", {}, frames[n].map((row, layer) =>
      h("tr", {},
        h("th", { scope: "row", class: "small quiet" }, String(layer)),
        row.map((x, head) => {
          const shown = x === null ? "–" : x.toFixed(2);
          return h("td", {
            title: t("film.head", { layer, head, x: shown }),
            "aria-label": t("film.head", { layer, head, x: shown }),
            "data-head": `${layer}:${head}`,
            style: { width: `${CELL}px`, height: `${CELL}px`, background: shade(x, most) },
          });
        }),
      ),
    )),
  );
}

/** @param {number | null} x @param {number} most */
function shade(x, most) {
  const share = Math.round((100 * Math.abs(x ?? 0)) / most);
  return `color-mix(in srgb, var(--accent) ${share}%, var(--sunk))`;
}

/** Scores that are shares: full colour is 1 in every frame. */
const SHARES = Object.fromEntries(
  ["sink", "previous", "self", "local", "lag", "broad", "duplicate", "induction"].map((name) => [
    name, true,
  ]),
);

/** The loss, with a line at the frame's step.
 * @param {Curve | undefined} curve @param {number[]} steps @param {number} n
 */
function curveOf(curve, steps, n) {
  const points = pointsOf(curve, "loss").concat();
  if (points.length < 2) return null;
  const last = Math.max(points[points.length - 1][0], steps[steps.length - 1]);
  const values = points.map(([, value]) => value);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  /** @param {number} step */
  const x = (step) => (step / (last || 1)) * WIDE;
  /** @param {number} value */
  const y = (value) => HIGH - 4 - ((value - low) / (high - low || 1)) * (HIGH - 8);
  const node = document.createElementNS(SVG, "svg");
  node.setAttribute("viewBox", `0 0 ${WIDE} ${HIGH}`);
  node.setAttribute("role", "img");
  const before = points.filter(([step]) => step <= steps[n]);
  const now = before.length ? before[before.length - 1][1] : points[0][1];
  node.setAttribute("aria-label", t("film.loss", { x: now.toFixed(3) }));
  const line = document.createElementNS(SVG, "polyline");
  line.setAttribute("points", points.map(([s, v]) => `${x(s)},${y(v)}`).join(" "));
  line.setAttribute("class", "film-line");
  const mark = document.createElementNS(SVG, "line");
  for (const [key, value] of Object.entries({ x1: x(steps[n]), x2: x(steps[n]), y1: 0, y2: HIGH }))
    mark.setAttribute(key, String(value));
  mark.setAttribute("class", "film-mark");
  node.append(line, mark);
  return h("figure", {}, node, h("figcaption", { class: "small quiet" },
    t("film.loss", { x: now.toFixed(3) })));
}
