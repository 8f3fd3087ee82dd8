// The curves of the chosen runs: the losses large, every other metric small below them, all with
// one cursor and one zoom.

import { fill, h, segmented, slider, spoken, tip, toggle } from "../dom.js";
import { colours, theme } from "../scale.js";
import * as state from "../state.js";
import { count, language, t, three } from "../words.js";
import {
  along, clock, lowest, metricsOf, pointsOf, smoothed, valueAt,
} from "./runs_curves.js";
import { joined, keys, plot, still, zoomed } from "./runs_plot.js";

/** @import { By, Series, Plotted } from "./runs_plot.js" */
/** @typedef {{id: string, colour: string, curve: Curve}} Shown a run whose curves are drawn */

const LOSS = "loss"; // the name of the large chart
const [HEIGHT, LOW] = [320, 150];
const FINE = 2; // of saved pictures
const MOST_SMOOTH = 0.99;
// Metrics with a name in words.
const KNOWN = ["lr", "grad_norm", "tokens_per_s", "skipped", "accuracy"];

const isLog = () => !state.get().linear;
const smooth = () => Math.min(MOST_SMOOTH, Math.max(0, Number(state.get().smooth) || 0));

/** @returns {By} */
function by() {
  const named = state.get().by;
  return named === "tokens" || named === "seconds" ? named : "step";
}

/** @returns {[number, number] | null} */
export function zoom() {
  const [from, to] = (state.get().zoom ?? "").split("_").map(Number);
  return Number.isFinite(from) && from < to ? [from, to] : null;
}

/** @param {[number, number] | null} range */
function setZoom(range) {
  const exact = by() === "step" ? 1 : 3;
  state.set({ zoom: range && range.map((x) => Number(x.toFixed(exact))).join("_") });
}

/** The name of a metric.
 * @param {string} name
 */
const named = (name) => (KNOWN.includes(name) ? t(`runs.metric.${name}`) : name);

/** The lines of a chart.
 * @param {Shown[]} runs
 * @param {string} metric
 * @returns {Series[]}
 */
export function seriesOf(runs, metric) {
  const wanted = metric === LOSS ? (state.get().loss ?? "both") : "";
  return runs.flatMap(({ id, colour, curve }) => {
    /** @param {string} name */
    const points = (name) =>
      by() === "step" ? pointsOf(curve, name) : along(pointsOf(curve, name), pointsOf(curve, by()));
    const val = metric === LOSS ? points("val_loss") : [];
    const thin = wanted === "both" && val.length > 0;
    /** @type {Series[]} */
    const lines = [];
    if (wanted !== "val") {
      const name = metric === LOSS ? t("runs.training") : named(metric);
      const raw = points(metric);
      // Rates are planned, evaluations are few: neither is noise.
      const rough = metric !== "lr" && raw.length > pointsOf(curve, "val_loss").length;
      const factor = rough ? smooth() : 0;
      const [width, alpha] = thin ? [1, 0.5] : [1.6, 0.9];
      if (factor)
        lines.push({ id, name, colour, points: raw, width: 1, alpha: 0.2, quiet: true });
      lines.push({ id, name, colour, points: smoothed(raw, factor), width, alpha });
    }
    if (metric === LOSS && wanted !== "loss")
      lines.push({ id, name: t("runs.validation"), colour, points: val, width: 2, dots: true });
    return lines;
  });
}

/** @param {number} x */
const place = (x) =>
  by() === "seconds"
    ? clock(x)
    : t(by() === "tokens" ? "runs.at.tokens" : "runs.at", {
        step: count(Math.round(x)), n: count(Math.round(x)),
      });

export function chartsCard() {
  /** @type {Shown[]} */
  let runs = [];
  let rest = ""; // the names of the small charts that are there
  const which = segmented({
    label: t("runs.which"),
    options: [
      ["val", t("runs.validation")],
      ["loss", t("runs.training")],
      ["both", t("runs.both")],
    ],
    value: state.get().loss ?? "both",
    onchange: (loss) => state.set({ loss: loss === "both" ? null : loss }),
  });
  const axis = segmented({
    label: t("runs.by"),
    options: ["step", "tokens", "seconds"].map((name) => [name, t(`runs.by.${name}`)]),
    value: by(),
    onchange: (name) => state.set({ by: name === "step" ? null : name, zoom: null }),
  });
  const log = toggle({
    label: t("runs.log"), value: isLog(), onchange: (on) => state.set({ linear: !on }),
  });
  const even = slider({
    label: t("runs.smooth"), min: 0, max: MOST_SMOOTH, step: 0.01, value: smooth(),
    onchange: (value) => state.set({ smooth: value || null }),
  });
  /** @param {boolean} nearer */
  const closer = (nearer) => large.plot && setZoom(zoomed(large.plot, nearer));
  /** @param {string} text @param {string} label @param {() => void} onclick */
  const button = (text, label, onclick) =>
    h("button", { type: "button", "aria-label": t(label), title: t(label), onclick }, text);
  const whole = button(t("runs.zoom.all"), "runs.zoom.all", () => setZoom(null));
  const zooms = h("span", { class: "row run-zoom" },
    button("+", "runs.zoom.in", () => closer(true)),
    button("−", "runs.zoom.out", () => closer(false)),
    whole,
  );
  const said = spoken();
  const large = chart(LOSS, HEIGHT);
  /** @type {ReturnType<typeof chart>[]} */
  let small = [];
  const metrics = h("div", { class: "run-metrics" });
  const legend = h("p", { class: "quiet small" });
  const node = h("div", { class: "card run-curves" },
    h("header", {}, h("h2", {}, t("runs.curves")), which, axis),
    h("div", { class: "row run-switches" }, log, even, zooms),
    h("div", { class: "run-chart" }, large.node, said),
    legend,
    metrics,
  );
  const watch = new ResizeObserver(() => redraw());
  watch.observe(node);

  /** @param {string} metric @param {number} high */
  function chart(metric, high) {
    let shape = "";
    const label = metric === LOSS ? t("runs.nats") : named(metric);
    const host = h("div", { class: "run-plot", tabindex: 0, role: "img", "aria-label": label });
    const node = h("figure", { class: "run-figure" },
      h("figcaption", { class: "quiet small" }, label), host);
    const one = {
      metric, node,
      /** @type {ReturnType<typeof plot> | null} */
      plot: null,
      draw() {
        const w = host.clientWidth;
        if (!w) return;
        const series = seriesOf(runs, metric);
        /** @type {Plotted} */
        const of = {
          w, h: high, series, by: by(), zoom, onzoom: setZoom, log: isLog() && metric === LOSS,
          onhover: (_, x, spot) => point(seriesOf(runs, metric), x, spot),
        };
        // The numbers alone may change while one points at them.
        const now = JSON.stringify([
          w, of.log, of.by, theme(), series.map(({ points, ...how }) => [how, points.length < 40]),
        ]);
        if (one.plot && now === shape) return one.plot.setData(joined(of));
        shape = now;
        one.end();
        one.plot = plot(host, of);
      },
      end() {
        one.plot?.destroy();
        one.plot = null;
      },
    };
    host.addEventListener("keydown", (event) => one.plot && keys(event, one.plot, setZoom));
    host.addEventListener("blur", () => tip.hide());
    return one;
  }

  /** @param {Series[]} series @param {number | null} x @param {Spot} spot */
  function point(series, x, spot) {
    if (x === null) return tip.hide();
    tip.show(
      spot,
      h("p", { class: "quiet" }, place(x)),
      series.filter((one) => !one.quiet).map((one) => {
        const found = valueAt(one.points, x);
        return found && h("p", { class: "run-tip" },
          h("i", { style: { background: one.colour } }),
          `${one.id} · ${one.name} ${three(found[1])}`,
        );
      }),
    );
  }

  function redraw() {
    for (const one of [large, ...small]) one.draw();
  }

  return {
    node,
    /** @param {Shown[]} shown */
    draw(shown) {
      runs = shown;
      which.value = state.get().loss ?? "both";
      axis.value = by();
      log.value = isLog();
      even.value = smooth();
      whole.hidden = !zoom();
      const names = metricsOf(runs.map((run) => run.curve));
      if (names.join("\n") !== rest) {
        rest = names.join("\n");
        for (const one of small) one.end();
        small = names.map((name) => chart(name, LOW));
        fill(metrics, small.map((one) => one.node));
      }
      const both = new Set(seriesOf(runs, LOSS).map((line) => line.name)).size > 1;
      legend.textContent = [both && t("runs.lines"), t("runs.zoom.how")].filter(Boolean)
        .join(language() === "zh" ? "" : " ");
      redraw();
      fill(said, h("ul", {}, runs.map(spokenRun)));
    },
    /** @param {Painter} painter */
    picture(painter) {
      const head = 22 * runs.length + 8;
      const high = 440;
      painter.size(1040, high + head + 22, colours().paper);
      runs.forEach(({ id, colour }, n) => {
        painter.rect(24, 5 + 22 * n, 14, 4, { fill: colour, radius: 2 });
        painter.text(46, 11 + 22 * n, id, { size: 13, fill: colours().ink, max: 900 });
      });
      const of = { w: 1008, h: high, series: seriesOf(runs, LOSS), log: isLog(), by: by(), zoom };
      painter.image(16, head, 1008, high, still(of, FINE));
      const label = { size: 12, fill: colours().quiet };
      painter.text(24, head + high + 14, t("runs.nats"), label);
      painter.text(1016, head + high + 14, t(`runs.by.${by()}`), { ...label, align: "right" });
      const lines = new Set(seriesOf(runs, LOSS).map((line) => line.name));
      return { title: t("runs.curves"), about: [...lines].join(" · ") };
    },
    end() {
      watch.disconnect();
      tip.hide();
      for (const one of [large, ...small]) one.end();
    },
  };
}

/** What a run came to, in words.
 * @param {Shown} run
 */
function spokenRun({ id, curve }) {
  const [loss, val] = [pointsOf(curve, "loss"), pointsOf(curve, "val_loss")];
  const step = Math.max(0, loss.at(-1)?.[0] ?? 0, val.at(-1)?.[0] ?? 0);
  const best = lowest(val)?.[1];
  return h("li", { dataset: { id } },
    t("runs.curve.said", {
      name: id, step, loss: three(loss.at(-1)?.[1]), val: three(val.at(-1)?.[1]),
      best: three(best),
    }),
  );
}
