// The list of runs: which are shown, which one is looked at, how far each is.

import { SERIES } from "../colours.js";
import { h } from "../dom.js";
import { theme } from "../scale.js";
import * as state from "../state.js";
import { count, t, three } from "../words.js";

const LIVE = 60; // seconds since a run wrote, after which it is no longer called training

/** @param {number} n */
export const hue = (n) => SERIES[theme()][n % SERIES[theme()].length];

/** @param {Run} run */
export function isLive(run) {
  const done = run.steps !== null && (run.step ?? 0) >= run.steps;
  return run.age !== null && run.age < LIVE && !done && run.kind !== "broken";
}

/** A run of the list.
 * @param {Run} run
 * @param {{
 *   shown: boolean, current: boolean, colour: string, away: boolean,
 *   onshow: (on: boolean) => void,
 * }} how `away`: the server does not answer
 */
export function item(run, { shown, current, colour, away, onshow }) {
  const bare = run.kind === "broken" || run.step === null;
  const box = h("input", {
    type: "checkbox", checked: shown, disabled: run.step === null,
    "aria-label": t("runs.show", { name: run.id }), onchange: () => onshow(box.checked),
  });
  box.style.accentColor = colour;
  const told =
    run.kind === "broken"
      ? h("span", { class: "run-why" }, run.reason)
      : h("span", { class: "quiet small number" },
          run.step === null ? t("runs.no metrics") : summary(run),
        );
  const classes = `${current ? "current" : ""} ${run.kind === "broken" ? "bad" : ""}`;
  const button = {
    type: "button", class: "run-name", "aria-pressed": current ? "true" : "false",
    "aria-label": t("runs.more", { name: run.id }), onclick: () => state.set({ run: run.id }),
  };
  return h("li", { dataset: { id: run.id }, class: classes },
    h("label", { class: "run-box" }, box),
    h("button", button,
      h("span", { class: "run-head" }, h("span", { class: "run-id" }, run.id), badge(run, away)),
      told,
      bare && run.step !== null ? h("span", { class: "quiet small number" }, summary(run)) : null,
    ),
  );
}

/** @param {Run} run @param {boolean} away */
function badge(run, away) {
  if (run.kind === "broken") return h("span", { class: "badge bad" }, t("runs.broken"));
  if (away || !isLive(run)) return null; // of a server that is away nobody knows
  const ago = t("runs.live.ago", { seconds: Math.round(run.age ?? 0) });
  return h("span", { class: "badge live", title: ago }, t("runs.live"));
}

/** @param {Run} run */
function summary(run) {
  const loss = run.val_loss ?? run.loss;
  const [step, steps] = [run.step ?? 0, run.steps ?? 0];
  const words = { step: count(step), steps: count(steps) };
  const at = t(steps > step ? "runs.at.of" : "runs.at", words);
  return `${at}${loss === null ? "" : ` · ${t("runs.loss")} ${three(loss)}`}`;
}
