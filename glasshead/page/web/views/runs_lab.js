// What the lab left in the folder: the ladder's rungs and the claims' verdicts.

import * as api from "../api.js";
import { fill, h, problem } from "../dom.js";
import { SANS } from "../paint.js";
import { palette } from "../scale.js";
import { count, language, t, three } from "../words.js";
import { plot } from "./runs_plot.js";

const HEIGHT = 360;
/** @type {Record<string, string>} */
const VERDICTS = {
  holds: "good", "holds only when": "partly", "does not hold": "bad", "cannot tell": "open",
};

/** @param {HTMLElement} root */
export function lab(root) {
  let now = "";
  let gone = false;
  /** @type {(() => void)[]} what follows the theme */
  const redraw = [];
  /** @type {(() => void)[]} what ends links to pictures */
  const links = [];
  /** @type {string[]} paths of pictures */
  const figures = [];

  /** @param {Runs} found */
  async function show(found) {
    const key = JSON.stringify([found.ladders, found.claims]);
    if (key === now) return;
    now = key;
    forget();
    const cards = await Promise.all([
      ...found.ladders.map(ladderCard),
      ...found.claims.map(claimsCard),
    ]);
    if (gone || key !== now) return;
    fill(root, cards);
    draw();
  }

  /** @param {string} title @param {string} id */
  const headed = (title, id) =>
    h("header", {}, h("h2", {}, title), h("span", { class: "quiet small" }, id));

  /** @param {string} id */
  async function ladderCard(id) {
    const card = h("section", { class: "card ladder" });
    const head = headed(t("runs.ladder"), id);
    try {
      /** @type {Ladder} */
      const told = await api.get(`/api/ladder?id=${encodeURIComponent(id)}`);
      const drawn = h("div", { class: "run-plot", role: "img", "aria-label": t("runs.ladder") });
      const again = () => drawLadder(drawn, told);
      redraw.push(again);
      const watch = new ResizeObserver(again);
      watch.observe(drawn);
      links.push(() => watch.disconnect());
      const { text } = told;
      const about = {
        name: text.name, characters: count(text.characters), vocabulary: count(text.vocabulary),
      };
      fill(
        card,
        head,
        h("p", { class: "quiet small" }, t("runs.ladder.about", about)),
        h("div", { class: "ladder-both" }, drawn, rungs(told)),
      );
    } catch (error) {
      fill(card, head, problem(error, t));
    }
    return card;
  }

  /** @param {string} id */
  async function claimsCard(id) {
    const card = h("section", { class: "card claims" });
    const head = headed(t("runs.claims"), id);
    try {
      /** @type {{claims: Claim[]}} */
      const { claims } = await api.get(`/api/claims?id=${encodeURIComponent(id)}`);
      fill(
        card,
        head,
        h("ol", { class: "claim-list" },
          claims.map((claim) => h("li", {}, claimed(id, claim))),
        ),
      );
    } catch (error) {
      fill(card, head, problem(error, t));
    }
    return card;
  }

  /** @param {string} id @param {Claim} claim */
  function claimed(id, claim) {
    const number = h("span", { class: "claim-number" }, claim.number);
    if (claim.reason)
      return h("div", { class: "claim" },
        number,
        h("p", { class: "quiet" }, t("runs.claim.unread", { reason: claim.reason })),
      );
    const lang = language();
    const { finding } = claim;
    const verdict = finding.verdict in VERDICTS ? t(`verdict.${finding.verdict}`) : finding.verdict;
    const title = claim.title[lang];
    const held = h("div", { class: "claim-figure" });
    figures.push(...["en", "zh"].map((one) => figure(id, claim.number, one)));
    const notes = [
      claim.quick && t("runs.claim.quick"),
      claim.seeds.length && t("runs.claim.seeds", { n: claim.seeds.length }),
    ].filter(Boolean);
    const ontoggle = () => details.open && picture(held, id, claim.number);
    const details = h("details", { class: "claim", ontoggle },
      h("summary", {},
        number,
        h("span", { class: "claim-title" }, title || finding.words[lang]),
        h("span", { class: `badge ${VERDICTS[finding.verdict] ?? "open"}` }, verdict),
      ),
      claim.claim[lang] ? h("p", { class: "claim-says" }, claim.claim[lang]) : null,
      title ? h("p", {}, finding.words[lang]) : null,
      notes.length ? h("p", { class: "quiet small" }, notes.join(" · ")) : null,
      held,
    );
    return details;
  }

  /** @param {HTMLElement} held @param {string} id @param {number} number */
  async function picture(held, id, number) {
    if (held.childNodes.length) return;
    try {
      const { buffer } = await api.bytes(figure(id, number, language()));
      const link = URL.createObjectURL(new Blob([buffer], { type: "image/png" }));
      links.push(() => URL.revokeObjectURL(link));
      fill(held, h("img", { src: link, alt: t("runs.claim.figure", { number }) }));
    } catch (error) {
      if (error.status !== 404) fill(held, problem(error, t)); // a claim need not have a picture
    }
  }

  function draw() {
    for (const one of redraw) one();
  }

  function forget() {
    for (const one of links.splice(0)) one();
    redraw.length = figures.length = 0;
  }

  return {
    show,
    draw,
    wants: () => figures,
    unmount() {
      gone = true;
      forget();
    },
  };
}

/** @param {string} id @param {number} number @param {string} lang */
const figure = (id, number, lang) =>
  `/api/claims/figure?id=${encodeURIComponent(id)}&number=${number}&lang=${lang}`;

/** From dark to light as the ladder goes up, the same ink as all other pictures.
 * @param {number} n
 * @param {number} many
 */
function shade(n, many) {
  const ramp = palette("linear");
  const at = 3 * Math.round(90 + (150 * n) / Math.max(1, many - 1));
  return `rgb(${ramp[at]},${ramp[at + 1]},${ramp[at + 2]})`;
}

/** @param {HTMLElement} root @param {Ladder} ladder */
function drawLadder(root, { rungs }) {
  const w = root.clientWidth;
  if (!w) return;
  const series = rungs.map((rung, n) => ({
    name: String(rung.rung), colour: shade(n, rungs.length), width: 2, points: mean(rung.climbs),
  }));
  const ends = rungs.map((rung) => rung.val).filter(isNumber);
  const starts = series.map((one) => one.points[0]?.[1]).filter(isNumber);
  // The first points lie far above what is to be compared.
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  const top = Math.min(Math.max(...starts), high + 0.5 * Math.max(0.4, high - low));
  fill(root);
  plot(root, {
    w, h: HEIGHT, series, still: true, right: 34, within: ends.length ? [low, top] : undefined,
    ondraw: (drawn) => names(drawn, series),
  });
}

/** The name of each curve at its end.
 * @param {ReturnType<typeof plot>} drawn
 * @param {import("./runs_plot.js").Series[]} series
 */
function names(drawn, series) {
  const { ctx, bbox } = drawn;
  const fine = devicePixelRatio || 1;
  ctx.save();
  ctx.font = `600 ${12 * fine}px ${SANS}`;
  ctx.textAlign = "right";
  ctx.textBaseline = "middle";
  let last = -Infinity;
  const ends = series
    .filter((one) => one.points.length)
    .map((one) => ({ one, y: drawn.valToPos(one.points[one.points.length - 1][1], "y", true) }));
  for (const { one, y } of ends.sort((a, b) => a.y - b.y)) {
    last = Math.max(y, last + 13 * fine);
    ctx.fillStyle = one.colour;
    ctx.fillText(one.name, bbox.left + bbox.width + 26 * fine, last);
  }
  ctx.restore();
}

/** @param {number | null | undefined} value @returns {value is number} */
const isNumber = (value) => Number.isFinite(value);

/** Over seeds, where they have the same steps.
 * @param {Rung["climbs"]} climbs
 * @returns {Point[]}
 */
function mean(climbs) {
  const [first] = climbs;
  return (first?.curve ?? []).map((point, n) => {
    const values = climbs.map((one) => one.curve[n]?.val).filter(isNumber);
    return [point.step, values.reduce((a, b) => a + b, 0) / values.length];
  });
}

/** @param {Ladder} ladder */
function rungs({ rungs }) {
  const best = Math.min(...rungs.map((rung) => rung.val).filter(isNumber));
  /** @param {number | null} value @param {number | null} sd */
  const loss = (value, sd) =>
    Number.isFinite(sd) ? `${three(value)} ±${three(sd)}` : three(value);
  const zh = language() === "zh";
  const heads = ["rung", "adds", "parameters", "training", "validation", "speed"];
  return h("div", { class: "scroll" },
    h("table", {},
      h("thead", {},
        h("tr", {},
          heads.map((key) =>
            h("th", { scope: "col", class: key === "adds" ? null : "number" }, t(`runs.${key}`)),
          ),
        ),
      ),
      h("tbody", {},
        rungs.map((rung, n) =>
          h("tr", { class: rung.val === best ? "best" : null },
            h("td", { class: "number" },
              h("i", { class: "swatch", style: { background: shade(n, rungs.length) } }),
              rung.rung,
            ),
            h("td", {}, (zh && rung.adds_zh) || rung.adds),
            h("td", { class: "number" }, count(rung.parameters)),
            h("td", { class: "number" }, loss(rung.train, rung.train_sd)),
            h("td", { class: "number" }, loss(rung.val, rung.val_sd)),
            h("td", { class: "number" },
              rung.tokens_per_s === null ? "–" : count(Math.round(rung.tokens_per_s)),
            ),
          ),
        ),
      ),
    ),
  );
}
