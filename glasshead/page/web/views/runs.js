// Runs: how trainings go, over each other and live; their settings and samples; the ladder and the
// claims.

import * as api from "../api.js";
import { saved } from "../embedded.js";
import { after, fill, h, problem, segmented, spoken, styles, tip, toast, toggle } from "../dom.js";
import { CanvasPainter } from "../paint.js";
import { colours } from "../scale.js";
import * as state from "../state.js";
import { count, t, three } from "../words.js";
import { chart, valueAt } from "./chart.js";
import { detail, path } from "./runs_detail.js";
import { lab } from "./runs_lab.js";
import { hue, isLive, item } from "./runs_list.js";
import "./runs_words.js";

const SOON = 1500; // milliseconds between two questions while one trains
const SELDOM = 4000;
const HEIGHT = 380;

/** @type {Record<string, () => string>} */
const ABOUT = { val: () => t("runs.validation"), loss: () => t("runs.training") };

/** @type {View} */
export default {
  id: "runs",
  title: () => t("runs.title"),
  fits: () => true,
  mount,
};

/** @param {HTMLElement} root @param {Context} context */
function mount(root, { kept }) {
  styles("views/runs.css");
  let gone = false;
  let waiting = 0;
  let heard = false;
  /** @type {Runs} what /api/runs said */
  let found = { runs: [], ladders: [], claims: [] };
  let lost = ""; // why it says no more
  /** @type {ReturnType<typeof chart> | null} */
  let place = null;
  /** @type {Map<string, Curve>} */
  const curves = new Map(Object.entries(kept ?? {}));
  const canvas = h("canvas", { tabindex: 0, role: "img", "aria-label": t("runs.curves") });
  const said = spoken();
  const trouble = h("div", {});
  /** @type {Map<string, Promise<void>>} what is being asked of a run */
  const growing = new Map();
  const list = h("ul", { class: "run-list", "aria-label": t("runs.list") });
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
  const log = toggle({
    label: t("runs.log"), value: isLog(), onchange: (on) => state.set({ linear: !on }),
  });
  const about = h("div", { class: "run-detail" });
  const below = h("div", { class: "run-lab" });
  const drawn = h("div", { class: "run-chart" }, canvas, said);
  const legend = h("p", { class: "quiet small", hidden: true }, t("runs.lines"));
  fill(
    root,
    h("div", { class: "runs-top" },
      h("div", { class: "card run-side" },
        h("header", {}, h("h2", {}, t("runs.list"))),
        trouble,
        list,
      ),
      h("div", { class: "card" },
        h("header", {}, h("h2", {}, t("runs.curves")), which, log),
        drawn,
        legend,
      ),
    ),
    about,
    below,
  );
  const shown = detail(about);
  const inLab = lab(below);
  const watch = new ResizeObserver(() => draw());
  watch.observe(drawn);
  canvas.addEventListener("pointermove", hover);
  canvas.addEventListener("pointerleave", () => {
    tip.hide();
    draw();
  });
  const later = after(0, () => draw());
  ask();

  function isLog() {
    return !state.get().linear;
  }

  // Those in the address; else the ones that write, else the first few.
  function chosen() {
    const ids = new Set(found.runs.filter((run) => run.step !== null).map((run) => run.id));
    const { shown: told } = state.get();
    if (told !== undefined) return told.split("\n").filter((id) => ids.has(id));
    const whole = found.runs.filter((run) => ids.has(run.id) && run.kind !== "broken");
    const live = whole.filter(isLive);
    return (live.length ? live : whole.slice(0, 4)).map((run) => run.id);
  }

  function focus() {
    const { run } = state.get();
    return (
      found.runs.find((one) => one.id === run) ??
      found.runs.find((one) => chosen().includes(one.id)) ??
      null
    );
  }

  async function ask() {
    clearTimeout(waiting);
    if (gone) return;
    let again = SELDOM;
    if (saved || !document.hidden) {
      try {
        found = await api.get("/api/runs");
        heard = true;
        if (gone) return;
        tell(null);
        showList();
        await Promise.allSettled(chosen().map(grow));
        if (gone) return;
        draw();
        showFocus();
        inLab.show(found);
        if (found.runs.some(isLive)) again = SOON;
      } catch (error) {
        if (gone) return;
        tell(error);
        if (heard) showList();
      }
    }
    if (!saved) waiting = setTimeout(ask, again);
  }

  /** What is wrong is told once, and stands there until it is right again.
   * @param {Failure | null} error
   */
  function tell(error) {
    if ((error?.message ?? "") === lost) return;
    lost = error?.message ?? "";
    fill(trouble, error && problem(error, t));
  }

  /** One question at a time: two would tell the same lines.
   * @param {string} id
   */
  function grow(id) {
    const asked = growing.get(id) ?? more(id).finally(() => growing.delete(id));
    growing.set(id, asked);
    return asked;
  }

  /** What a run wrote since the last time; all of it, however long.
   * @param {string} id
   */
  async function more(id) {
    if (saved && curves.has(id)) return;
    let curve = curves.get(id) ?? nothing();
    for (;;) {
      const told = await api.get(
        `/api/runs/${path(id)}/metrics?after=${encodeURIComponent(curve.cursor)}`,
      );
      if (gone) return;
      if (told.anew) curve = nothing();
      for (const line of told.lines) read(curve, line, id, told.anew);
      curve.cursor = told.cursor;
      curve.damaged += told.damaged;
      curves.set(id, curve);
      if (!told.more) return;
      draw();
    }
  }

  /**
   * @param {Curve} curve
   * @param {any} line of metrics.jsonl
   * @param {string} id
   * @param {boolean} anew
   */
  function read(curve, line, id, anew) {
    if ("returned_from" in line) {
      // What came after the step that it went back to did not lead here.
      curve.loss = curve.loss.filter(([step]) => step <= line.step);
      curve.val = curve.val.filter(([step]) => step <= line.step);
      if (!anew) toast(t("runs.returned", { name: id, step: line.step }));
    }
    if ("loss" in line) curve.loss.push([line.step, line.loss]);
    if ("val_loss" in line) {
      curve.val.push([line.step, line.val_loss]);
      if (curve.best === null || line.val_loss < curve.best[1])
        curve.best = [line.step, line.val_loss];
    }
  }

  function showList() {
    const on = chosen();
    const current = focus()?.id;
    const active = document.activeElement;
    const focused = rows().find((row) => row.contains(active))?.dataset.id;
    const field = active instanceof HTMLInputElement ? "input" : "button";
    fill(
      list,
      found.runs.length
        ? found.runs.map((run) =>
            item(run, {
              shown: on.includes(run.id), current: run.id === current, colour: hue(order(run.id)),
              away: Boolean(lost), onshow: (yes) => show(run.id, yes),
            }),
          )
        : h("li", { class: "quiet" }, t("runs.none")),
    );
    if (focused === undefined) return;
    const row = rows().find((one) => one.dataset.id === focused);
    row?.querySelector(field)?.focus();
  }

  function rows() {
    return [.../** @type {HTMLCollectionOf<HTMLElement>} */ (list.children)];
  }

  /** A run keeps its colour whichever others are shown.
   * @param {string} id
   */
  function order(id) {
    return found.runs.filter((run) => run.step !== null).findIndex((run) => run.id === id);
  }

  /** @param {string} id @param {boolean} on */
  function show(id, on) {
    const ids = on ? [...chosen(), id] : chosen().filter((one) => one !== id);
    state.set({ shown: ids.join("\n") || "\n" });
  }

  /** @returns {(import("./chart.js").Series & {id: string})[]} */
  function series() {
    const wanted = state.get().loss ?? "both";
    return chosen().flatMap((id) => {
      const curve = curves.get(id);
      if (!curve) return [];
      const colour = hue(order(id));
      const both = wanted === "both" && curve.val.length;
      const lines = [];
      if (wanted !== "val")
        lines.push({
          id, name: t("runs.training"), colour, points: curve.loss, width: both ? 1 : 1.6,
          alpha: both ? 0.45 : 0.9,
        });
      if (wanted !== "loss")
        lines.push({
          id, name: t("runs.validation"), colour, points: curve.val, width: 2,
          dots: curve.val.length < 40,
        });
      return lines;
    });
  }

  /** @param {Painter} painter @param {number} w @param {number} height */
  function paint(painter, w, height) {
    painter.size(w, height, colours().panel);
    return chart(painter, {
      w, h: height, series: series(), log: isLog(),
      labels: { x: t("runs.step"), y: t("runs.nats") }, colours: colours(),
    });
  }

  function draw() {
    if (gone || !heard || !drawn.clientWidth) return;
    place = paint(new CanvasPainter(canvas), drawn.clientWidth, HEIGHT);
    legend.hidden = new Set(series().map((line) => line.name)).size < 2;
    fill(
      said,
      h("ul", {},
        chosen().map((id) => {
          const { loss, val, best } = curves.get(id) ?? nothing();
          const step = Math.max(0, loss.at(-1)?.[0] ?? 0, val.at(-1)?.[0] ?? 0);
          return h("li", { dataset: { id } },
            t("runs.curve.said", {
              name: id, step, loss: three(loss.at(-1)?.[1]), val: three(val.at(-1)?.[1]),
              best: three(best?.[1]),
            }),
          );
        }),
      ),
    );
  }

  /** @param {PointerEvent} event */
  function hover(event) {
    if (!place) return;
    const { inner } = place;
    const step = Math.round(
      place.step(Math.min(inner.x + inner.w, Math.max(inner.x, event.offsetX))),
    );
    draw();
    const painter = new CanvasPainter(canvas);
    painter.context.setTransform(painter.density, 0, 0, painter.density, 0, 0);
    painter.line(place.at(step), inner.y, place.at(step), inner.y + inner.h, {
      stroke: colours().quiet, alpha: 0.6,
    });
    const there = series().flatMap((one) => {
      const point = valueAt(one.points, step);
      return point ? [{ one, point }] : [];
    });
    for (const { one, point: [s, value] } of there)
      if (!isLog() || value > 0)
        painter.rect(place.at(s) - 3.5, place.y(value) - 3.5, 7, 7, {
          fill: one.colour, radius: 3.5,
        });
    tip.show(
      event,
      h("p", { class: "quiet" }, t("runs.at", { step: count(step) })),
      there.map(({ one, point }) =>
        h("p", { class: "run-tip" },
          h("i", { style: { background: one.colour } }),
          `${one.id} · ${one.name} ${three(point[1])}`,
        ),
      ),
    );
  }

  function showFocus() {
    const run = focus();
    const curve = run ? curves.get(run.id) : undefined;
    shown.show(run, curve, chosen().filter((id) => id !== run?.id));
  }

  return {
    update() {
      which.value = state.get().loss ?? "both";
      log.value = isLog();
      if (!heard) return;
      showList();
      later();
      const unknown = chosen().filter((id) => !curves.has(id));
      Promise.allSettled(unknown.map(grow)).then(() => {
        if (gone) return;
        draw();
        showFocus();
      });
      showFocus();
      inLab.draw();
    },
    unmount() {
      gone = true;
      clearTimeout(waiting);
      later.cancel();
      watch.disconnect();
      tip.hide();
      inLab.unmount();
    },
    kept: () => Object.fromEntries(curves),
    // The other runs, as far as one answer tells of them, and the lab's pictures.
    wants() {
      const runs = (found?.runs ?? []).filter((run) => run.step !== null);
      return [
        ...runs.flatMap(({ id }) =>
          ["config", "samples", "metrics?after="].map((what) => `/api/runs/${path(id)}/${what}`),
        ),
        ...inLab.wants(),
      ];
    },
    /** @param {Painter} painter */
    picture(painter) {
      if (!found) return null;
      const on = chosen();
      const head = 22 * on.length + 8;
      painter.size(1040, 440 + head, colours().paper);
      on.forEach((id, n) => {
        painter.rect(24, 5 + 22 * n, 14, 4, { fill: hue(order(id)), radius: 2 });
        painter.text(46, 11 + 22 * n, id, { size: 13, fill: colours().ink, max: 900 });
      });
      chart(painter, {
        x: 16, y: head, w: 1008, h: 440, series: series(), log: isLog(),
        labels: { x: t("runs.step"), y: t("runs.nats") }, colours: colours(),
      });
      return {
        title: t("runs.curves"),
        about: ABOUT[which.value]?.() ?? `${t("runs.training")} · ${t("runs.validation")}`,
      };
    },
  };
}

/** @returns {Curve} */
function nothing() {
  return { cursor: "", loss: [], val: [], best: null, damaged: 0 };
}
