// One run: its settings, what is other than in the runs beside it, and what it wrote on the way.

import * as api from "../api.js";
import { fill, h, problem } from "../dom.js";
import { saved } from "../embedded.js";
import { t } from "../words.js";
import { pointsOf } from "./runs_curves.js";
import { film } from "./runs_film.js";

const PARTS = /** @type {const} */ (["model", "train", "data"]);

/** @typedef {{model: object, train: object, data: object, error?: Failure}} Settings */

/** @param {string} id */
export function path(id) {
  return id.split("/").map(encodeURIComponent).join("/");
}

/** @param {HTMLElement} root */
export function detail(root) {
  /** @type {Map<string, Settings>} */
  const settings = new Map();
  let now = "";
  let samplesAt = "";

  /** @param {Run | null} run @param {Curve | undefined} curve @param {string[]} others */
  async function show(run, curve, others) {
    const key = run ? [run.id, ...others].join("\n") : "";
    if (key !== now) {
      now = key;
      samplesAt = "";
      if (!run) return fill(root);
      fill(root, h("div", { class: "card run-settings" }), h("div", { class: "card run-samples" }));
      await Promise.all([run.id, ...others].map(known));
      if (key !== now) return;
      drawSettings(root.children[0], run, curve, others);
      if (!saved && flat(of(run.id).train).some(([name]) => name === "watch_heads"))
        film(path(run.id), curve).then((card) => key === now && card && root.append(card));
    }
    if (!run) return;
    // Samples come with evaluations.
    const step = `${run.id} ${pointsOf(curve, "val_loss").length || run.step}`;
    if (step === samplesAt || root.children.length < 2) return;
    samplesAt = step;
    try {
      const { samples } = await api.get(`/api/runs/${path(run.id)}/samples`);
      if (key === now) drawSamples(root.children[1], run, samples);
    } catch (error) {
      if (key === now) fill(root.children[1], problem(error, t));
    }
  }

  /** @param {string} id */
  async function known(id) {
    if (settings.has(id)) return;
    try {
      settings.set(id, await api.get(`/api/runs/${path(id)}/config`));
    } catch (error) {
      settings.set(id, { model: {}, train: {}, data: {}, error });
    }
  }

  /** @param {string} id */
  const of = (id) => /** @type {Settings} */ (settings.get(id));

  /**
   * @param {Element} card
   * @param {Run} run
   * @param {Curve | undefined} curve
   * @param {string[]} others
   */
  function drawSettings(card, run, curve, others) {
    const own = of(run.id);
    const beside = others.filter((id) => !of(id).error);
    const rows = own.error ? [] : PARTS.flatMap((part) => compared(part, own, beside.map(of)));
    const unlike = rows.filter((row) => row.differs);
    const alike = rows.filter((row) => !row.differs && row.values[0] !== null);
    fill(
      card,
      h("header", {},
        h("h2", {}, t("runs.settings")),
        h("span", { class: "quiet small run-of" }, t("runs.of", { name: run.id })),
      ),
      curve?.damaged
        ? h("p", { class: "problem small" }, t("runs.damaged", { n: curve.damaged }))
        : null,
      own.error && problem(own.error, t),
      unlike.length > 0 && differences(unlike, [run.id, ...beside]),
      alike.length > 0 && h("details", { class: "run-alike", open: !unlike.length },
        h("summary", {}, t("runs.alike", { n: alike.length, name: run.id })),
        h("div", { class: "run-parts" }, PARTS.map((part) => table(part, alike))),
      ),
    );
  }

  return { show };
}

/**
 * A setting of each run; null where a run has none.
 * @typedef {{part: string, name: string, values: (string | null)[], differs: boolean}} Setting
 */

/** @param {(typeof PARTS)[number]} part @param {Settings} own @param {Settings[]} beside */
function compared(part, own, beside) {
  const all = [own, ...beside].map((one) => new Map(flat(one[part])));
  const names = new Set(all.flatMap((one) => [...one.keys()]));
  return [...names].map((name) => {
    const values = all.map((one) => one.get(name) ?? null);
    return { part, name, values, differs: new Set(values).size > 1 };
  });
}

/** What differs, with a column for each run.
 * @param {Setting[]} settings
 * @param {string[]} ids
 */
function differences(settings, ids) {
  return h("div", { class: "scroll" },
    h("table", { class: "run-differ" },
      h("caption", {}, t("runs.differ")),
      h("thead", {},
        h("tr", {},
          h("th", { scope: "col" }, t("runs.setting")),
          ids.map((id) => h("th", { scope: "col" }, id)),
        ),
      ),
      h("tbody", {}, settings.map(({ name, values }) =>
        h("tr", { class: "differs" },
          h("th", { scope: "row" }, name),
          values.map((value) => h("td", {}, value ?? "–")),
        ),
      )),
    ),
  );
}

/** @param {(typeof PARTS)[number]} part @param {Setting[]} settings */
function table(part, settings) {
  const rows = settings.filter((one) => one.part === part);
  if (!rows.length) return null;
  return h("table", {},
    h("caption", {}, t(`runs.${part}`)),
    h("tbody", {}, rows.map(({ name, values }) =>
      h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, values[0])),
    )),
  );
}

/** {text: {tokenizer: "char"}, sources: ["a.txt"]} → [["text.tokenizer", "char"], ["sources",
 * "a.txt"]]; what is not set is left out.
 * @param {object} value
 * @returns {[name: string, value: string][]}
 */
function flat(value, before = "") {
  return Object.entries(value ?? {}).flatMap(([name, one]) => {
    if (one === null || one === "" || name === "fingerprint") return [];
    if (Array.isArray(one)) return [[before + name, one.join(", ")]];
    return typeof one === "object"
      ? flat(one, `${before}${name}.`)
      : [[before + name, String(one)]];
  });
}

/** @param {Element} card @param {Run} run @param {{step: number, text: string}[]} samples */
function drawSamples(card, run, samples) {
  fill(
    card,
    h("header", {},
      h("h2", {}, t("runs.samples")),
      h("span", { class: "quiet small run-of" }, t("runs.of", { name: run.id })),
    ),
    samples.length
      ? h("ol", {},
          [...samples].reverse().map(({ step, text }) =>
            h("li", {},
              h("p", { class: "eyebrow" }, t("runs.sample.at", { step })),
              h("p", { class: "sample" }, text),
            ),
          ),
        )
      : h("p", { class: "quiet" }, t("runs.samples.none")),
  );
}
