// Runs: how trainings go, over each other and live; their settings and samples; the ladder and the
// claims.

import * as api from "../api.js";
import { saved } from "../embedded.js";
import { after, fill, h, problem, styles, toast } from "../dom.js";
import * as state from "../state.js";
import { t } from "../words.js";
import { chartsCard } from "./runs_charts.js";
import { addLine, nothing } from "./runs_curves.js";
import { detail, path } from "./runs_detail.js";
import { lab } from "./runs_lab.js";
import { hue, isLive, item } from "./runs_list.js";
import "./runs_words.js";

const SOON = 1500; // milliseconds between two questions while one trains
const SELDOM = 4000;

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
  /** @type {Map<string, Curve>} */
  const curves = new Map(Object.entries(kept ?? {}));
  const trouble = h("div", {});
  /** @type {Map<string, Promise<void>>} what is being asked of a run */
  const growing = new Map();
  const list = h("ul", { class: "run-list", "aria-label": t("runs.list") });
  const about = h("div", { class: "run-detail" });
  const below = h("div", { class: "run-lab" });
  const charts = chartsCard();
  fill(
    root,
    h("div", { class: "runs-top" },
      h("div", { class: "card run-side" },
        h("header", {}, h("h2", {}, t("runs.list"))),
        trouble,
        list,
      ),
      charts.node,
    ),
    about,
    below,
  );
  const shown = detail(about);
  const inLab = lab(below);
  const later = after(0, () => draw());
  ask();

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
    addLine(curve, line);
    if ("returned_from" in line && !anew)
      toast(t("runs.returned", { name: id, step: line.step }));
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

  function draw() {
    if (gone || !heard) return;
    charts.draw(
      chosen().flatMap((id) => {
        const curve = curves.get(id);
        return curve ? [{ id, colour: hue(order(id)), curve }] : [];
      }),
    );
  }

  function showFocus() {
    const run = focus();
    const curve = run ? curves.get(run.id) : undefined;
    shown.show(run, curve, chosen().filter((id) => id !== run?.id));
  }

  return {
    update() {
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
      charts.end();
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
    picture: (painter) => (heard ? charts.picture(painter) : null),
  };
}
