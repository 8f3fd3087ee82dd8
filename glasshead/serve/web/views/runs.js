// Runs: how trainings go, over each other and live; their settings and samples; the ladder and the claims.

import * as api from "../api.js";
import { saved } from "../brought.js";
import { after, fill, h, problem, segmented, spoken, styles, tip, toast, toggle } from "../dom.js";
import { CanvasPainter } from "../paint.js";
import { colours, theme } from "../scale.js";
import * as state from "../state.js";
import { count, t, three } from "../words.js";
import { chart, valueAt } from "./chart.js";
import { detail, path } from "./runs_detail.js";
import { lab } from "./runs_lab.js";
import "./runs_words.js";

const LIVE = 60; // seconds since a run wrote, after which it is no longer called training
const SOON = 1500; // milliseconds between two questions while one trains
const SELDOM = 4000;
const HEIGHT = 380;

// Runs apart from each other by day and by night; the accent stays for what is chosen.
const HUES = {
  light: ["#2f6fb3", "#2a8a7a", "#b07a1e", "#8a4f9e", "#bd4f74", "#5d8a3a", "#5b6675", "#8a5a3c"],
  dark: ["#6fa8e0", "#5fc2b0", "#dcb05c", "#c08fd4", "#e88fb0", "#9cc678", "#a3adbb", "#c99a7c"],
};

const hue = (n) => HUES[theme()][n % HUES[theme()].length];

export default {
  id: "runs",
  title: () => t("runs.title"),
  fits: () => true,
  mount,
};

function mount(root, { kept }) {
  styles("views/runs.css");
  let gone = false;
  let waiting = 0;
  let found = null; // what /api/runs said
  let lost = ""; // why it says no more
  let place = null; // of the chart
  const curves = new Map(Object.entries(kept ?? {})); // id → {cursor, loss: [[step, value]…], val, best, damaged}
  const canvas = h("canvas", { tabindex: 0, role: "img", "aria-label": t("runs.curves") });
  const said = spoken();
  const trouble = h("div", {});
  const growing = new Map(); // id → what is being asked of it
  const list = h("ul", { class: "run-list", "aria-label": t("runs.list") });
  const which = segmented({
    label: t("runs.which"),
    options: [["val", t("runs.validation")], ["loss", t("runs.training")], ["both", t("runs.both")]],
    value: state.get().loss ?? "both",
    onchange: (loss) => state.set({ loss: loss === "both" ? null : loss }),
  });
  const log = toggle({ label: t("runs.log"), value: isLog(), onchange: (on) => state.set({ linear: !on }) });
  const about = h("div", { class: "run-detail" });
  const below = h("div", { class: "run-lab" });
  const drawn = h("div", { class: "run-chart" }, canvas, said);
  const legend = h("p", { class: "quiet small", hidden: true }, t("runs.lines"));
  fill(
    root,
    h(
      "div",
      { class: "runs-top" },
      h("div", { class: "card run-side" }, h("header", {}, h("h2", {}, t("runs.list"))), trouble, list),
      h("div", { class: "card" }, h("header", {}, h("h2", {}, t("runs.curves")), which, log), drawn, legend),
    ),
    about,
    below,
  );
  const shown = detail(about);
  const inLab = lab(below);
  const watch = new ResizeObserver(() => draw());
  watch.observe(drawn);
  canvas.addEventListener("pointermove", hover);
  canvas.addEventListener("pointerleave", () => (tip.hide(), draw()));
  const later = after(0, () => draw());
  ask();

  function isLog() {
    return !state.get().linear;
  }

  // Those in the address; else the ones that write, else the first few.
  function chosen() {
    const ids = new Set((found?.runs ?? []).filter((run) => run.step !== null).map((run) => run.id));
    const { shown: told } = state.get();
    if (told !== undefined) return told.split("\n").filter((id) => ids.has(id));
    const whole = found.runs.filter((run) => ids.has(run.id) && run.kind !== "broken");
    const live = whole.filter(isLive);
    return (live.length ? live : whole.slice(0, 4)).map((run) => run.id);
  }

  function focus() {
    const { run } = state.get();
    return found.runs.find((one) => one.id === run) ?? found.runs.find((one) => chosen().includes(one.id)) ?? null;
  }

  async function ask() {
    clearTimeout(waiting);
    if (gone) return;
    let again = SELDOM;
    if (saved || !document.hidden) {
      try {
        found = await api.get("/api/runs");
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
        if (found) showList();
      }
    }
    if (!saved) waiting = setTimeout(ask, again);
  }

  // What is wrong is told once, and stands there until it is right again.
  function tell(error) {
    if ((error?.message ?? "") === lost) return;
    lost = error?.message ?? "";
    fill(trouble, error && problem(error, t));
  }

  // One question at a time: two would tell the same lines.
  function grow(id) {
    if (!growing.has(id)) growing.set(id, more(id).finally(() => growing.delete(id)));
    return growing.get(id);
  }

  // What a run wrote since the last time; all of it, however long.
  async function more(id) {
    if (saved && curves.has(id)) return;
    let curve = curves.get(id) ?? { cursor: "", loss: [], val: [], best: null, damaged: 0 };
    for (;;) {
      const told = await api.get(`/api/runs/${path(id)}/metrics?after=${encodeURIComponent(curve.cursor)}`);
      if (gone) return;
      if (told.anew) curve = { loss: [], val: [], best: null, damaged: 0 };
      for (const line of told.lines) read(curve, line, id, told.anew);
      curve.cursor = told.cursor;
      curve.damaged += told.damaged;
      curves.set(id, curve);
      if (!told.more) return;
      draw();
    }
  }

  function read(curve, line, id, anew) {
    if ("returned_from" in line) {
      // What came after the step that it went back to did not lead here.
      for (const name of ["loss", "val"]) curve[name] = curve[name].filter(([step]) => step <= line.step);
      if (!anew) toast(t("runs.returned", { name: id, step: line.step }));
    }
    if ("loss" in line) curve.loss.push([line.step, line.loss]);
    if ("val_loss" in line) {
      curve.val.push([line.step, line.val_loss]);
      if (curve.best === null || line.val_loss < curve.best[1]) curve.best = [line.step, line.val_loss];
    }
  }

  function showList() {
    const on = chosen();
    const current = focus()?.id;
    const focused = document.activeElement?.closest?.(".run-list li")?.dataset.id;
    const field = document.activeElement?.type;
    fill(list, found.runs.length ? found.runs.map((run) => item(run, on, run.id === current)) : h("li", { class: "quiet" }, t("runs.none")));
    if (focused !== undefined) {
      const row = [...list.children].find((one) => one.dataset.id === focused);
      row?.querySelector(field === "checkbox" ? "input" : "button")?.focus();
    }
  }

  function item(run, on, current) {
    const bare = run.kind === "broken" || run.step === null;
    const place = on.indexOf(run.id);
    const box = h("input", {
      type: "checkbox", checked: place >= 0, disabled: run.step === null, "aria-label": t("runs.show", { name: run.id }),
      onchange: () => show(run.id, box.checked),
    });
    box.style.accentColor = hue(order(run.id));
    const told = run.kind === "broken"
      ? h("span", { class: "run-why" }, run.reason)
      : h("span", { class: "quiet small number" }, run.step === null ? t("runs.no metrics") : summary(run));
    return h(
      "li",
      { dataset: { id: run.id }, class: `${current ? "current" : ""} ${run.kind === "broken" ? "bad" : ""}` },
      h("label", { class: "run-box" }, box),
      h(
        "button",
        { type: "button", class: "run-name", "aria-pressed": current ? "true" : "false", "aria-label": t("runs.more", { name: run.id }), onclick: () => state.set({ run: run.id }) },
        h("span", { class: "run-head" }, h("span", { class: "run-id" }, run.id), badge(run)),
        told,
        bare && run.step !== null ? h("span", { class: "quiet small number" }, summary(run)) : null,
      ),
    );
  }

  function badge(run) {
    if (run.kind === "broken") return h("span", { class: "badge bad" }, t("runs.broken"));
    if (lost || !isLive(run)) return null; // of a server that is away nobody knows
    return h("span", { class: "badge live", title: t("runs.live.ago", { seconds: Math.round(run.age) }) }, t("runs.live"));
  }

  function summary(run) {
    const loss = run.val_loss ?? run.loss;
    const words = { step: count(run.step), steps: count(run.steps ?? 0) };
    const at = t(run.steps > run.step ? "runs.at.of" : "runs.at", words);
    return `${at}${loss === null ? "" : ` · ${t("runs.loss")} ${three(loss)}`}`;
  }

  // A run keeps its colour whichever others are shown.
  function order(id) {
    return found.runs.filter((run) => run.step !== null).findIndex((run) => run.id === id);
  }

  function show(id, on) {
    const ids = on ? [...chosen(), id] : chosen().filter((one) => one !== id);
    state.set({ shown: ids.join("\n") || "\n" });
  }

  function series() {
    const wanted = state.get().loss ?? "both";
    return chosen().flatMap((id) => {
      const curve = curves.get(id);
      if (!curve) return [];
      const colour = hue(order(id));
      const both = wanted === "both" && curve.val.length;
      const lines = [];
      if (wanted !== "val") lines.push({ id, name: t("runs.training"), colour, points: curve.loss, width: both ? 1 : 1.6, alpha: both ? 0.45 : 0.9 });
      if (wanted !== "loss") lines.push({ id, name: t("runs.validation"), colour, points: curve.val, width: 2, dots: curve.val.length < 40 });
      return lines;
    });
  }

  function paint(painter, w, height) {
    painter.size(w, height, colours().panel);
    return chart(painter, { w, h: height, series: series(), log: isLog(), labels: { x: t("runs.step"), y: t("runs.nats") }, colours: colours() });
  }

  function draw() {
    if (gone || !found || !drawn.clientWidth) return;
    place = paint(new CanvasPainter(canvas), drawn.clientWidth, HEIGHT);
    legend.hidden = new Set(series().map((line) => line.name)).size < 2;
    fill(
      said,
      h("ul", {}, chosen().map((id) => {
        const curve = curves.get(id) ?? { loss: [], val: [], best: null };
        const last = (points) => points[points.length - 1]?.[1] ?? null;
        const step = Math.max(0, ...[curve.loss, curve.val].map((points) => points[points.length - 1]?.[0] ?? 0));
        return h("li", { dataset: { id } }, t("runs.curve.said", { name: id, step, loss: three(last(curve.loss)), val: three(last(curve.val)), best: three(curve.best?.[1] ?? null) }));
      })),
    );
  }

  function hover(event) {
    if (!place) return;
    const { inner } = place;
    const step = Math.round(place.step(Math.min(inner.x + inner.w, Math.max(inner.x, event.offsetX))));
    draw();
    const painter = new CanvasPainter(canvas);
    painter.context.setTransform(painter.density, 0, 0, painter.density, 0, 0);
    painter.line(place.at(step), inner.y, place.at(step), inner.y + inner.h, { stroke: colours().quiet, alpha: 0.6 });
    const rows = series().map((one) => [one, valueAt(one.points, step)]).filter(([, point]) => point);
    for (const [one, [s, value]] of rows) if (!isLog() || value > 0) painter.rect(place.at(s) - 3.5, place.y(value) - 3.5, 7, 7, { fill: one.colour, radius: 3.5 });
    tip.show(
      event,
      h("p", { class: "quiet" }, t("runs.at", { step: count(step) })),
      rows.map(([one, point]) => h("p", { class: "run-tip" }, h("i", { style: { background: one.colour } }), `${one.id} · ${one.name} ${three(point[1])}`)),
    );
  }

  function showFocus() {
    const run = focus();
    shown.show(run, run && curves.get(run.id), chosen().filter((id) => id !== run?.id));
  }

  return {
    update() {
      which.value = state.get().loss ?? "both";
      log.value = isLog();
      if (!found) return;
      showList();
      later();
      Promise.allSettled(chosen().filter((id) => !curves.has(id)).map(grow)).then(() => gone || (draw(), showFocus()));
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
      return [...runs.flatMap(({ id }) => ["config", "samples", "metrics?after="].map((what) => `/api/runs/${path(id)}/${what}`)), ...inLab.wants()];
    },
    picture(painter) {
      if (!found) return null;
      const on = chosen();
      const head = 22 * on.length + 8;
      painter.size(1040, 440 + head, colours().paper);
      on.forEach((id, n) => {
        painter.rect(24, 5 + 22 * n, 14, 4, { fill: hue(order(id)), radius: 2 });
        painter.text(46, 11 + 22 * n, id, { size: 13, fill: colours().ink, max: 900 });
      });
      chart(painter, { x: 16, y: head, w: 1008, h: 440, series: series(), log: isLog(), labels: { x: t("runs.step"), y: t("runs.nats") }, colours: colours() });
      return { title: t("runs.curves"), about: { val: t("runs.validation"), loss: t("runs.training") }[which.value] ?? `${t("runs.training")} · ${t("runs.validation")}` };
    },
  };
}

function isLive(run) {
  const done = run.steps !== null && run.step >= run.steps;
  return run.age !== null && run.age < LIVE && !done && run.kind !== "broken";
}
