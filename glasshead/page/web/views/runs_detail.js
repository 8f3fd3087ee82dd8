// One run: its settings, what is other than in the runs beside it, and what it wrote on the way.

import * as api from "../api.js";
import { fill, h, problem } from "../dom.js";
import { t } from "../words.js";

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
    }
    if (!run) return;
    // Samples come with evaluations.
    const step = `${run.id} ${curve?.val.length ?? run.step}`;
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
    const beside = others.map(of).filter((one) => !one.error);
    const parts = own.error ? [] : PARTS.map((part) => table(part, own, beside));
    fill(
      card,
      h("header", {},
        h("h2", {}, t("runs.settings")),
        h("span", { class: "quiet small run-of" }, t("runs.of", { name: run.id })),
      ),
      curve?.damaged
        ? h("p", { class: "problem small" }, t("runs.damaged", { n: curve.damaged }))
        : null,
      parts.some((one) => one?.querySelector(".differs"))
        ? h("p", { class: "small run-differ" }, t("runs.differ"))
        : null,
      own.error ? problem(own.error, t) : h("div", { class: "run-parts" }, parts),
    );
  }

  /** @param {(typeof PARTS)[number]} part @param {Settings} own @param {Settings[]} beside */
  function table(part, own, beside) {
    const rows = flat(own[part]);
    if (!rows.length) return null;
    const theirs = beside.map((one) => new Map(flat(one[part])));
    return h("table", {},
      h("caption", {}, t(`runs.${part}`)),
      h("tbody", {}, rows.map(([name, value]) => {
        const other = theirs.some((one) => one.has(name) && one.get(name) !== value);
        return h("tr", { class: other ? "differs" : null, title: other ? t("runs.differs") : null },
          h("th", { scope: "row" }, name),
          h("td", {}, value),
        );
      })),
    );
  }

  return { show };
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
