// How tokens are drawn: the controls, kept in the address where they are not as usual.

import { h, select, slider } from "../dom.js";
import * as state from "../state.js";
import { t } from "../words.js";

/** Name in the address, usual value, name in the request, range.
 * @typedef {{min: number, max: number, step?: number}} Range
 * @type {[string, number, string, Range & {step: number}][]}
 */
const SLIDERS = [
  ["temperature", 0.8, "temperature", { min: 0, max: 2, step: 0.05 }],
  ["topp", 1, "top_p", { min: 0.05, max: 1, step: 0.05 }],
  ["minp", 0, "min_p", { min: 0, max: 0.5, step: 0.01 }],
  ["penalty", 1, "repetition_penalty", { min: 1, max: 2, step: 0.05 }],
];

/** @param {number | undefined} limit */
export function sampling(limit) {
  /** @param {string} name @param {string | number} value @param {number} usual */
  const keep = (name, value, usual) =>
    state.set({ [name]: String(value) === String(usual) ? null : value });
  /** An address may hold anything: what is not a number becomes the default, what is out of range
   * is clamped.
   * @param {string} name
   * @param {number} usual
   * @param {Range} range
   */
  const read = (name, usual, { min, max } = { min: 0, max: 2 ** 31 }) => {
    const said = Number(state.get()[name] ?? usual);
    return Number.isNaN(said) ? usual : Math.min(max, Math.max(min, said));
  };
  const sliders = SLIDERS.map(([name, usual, , range]) => {
    const node = slider({
      label: t(`write.${name}`),
      ...range,
      value: read(name, usual, range),
      show: (x) => x.toFixed(2),
      onchange: (value) => keep(name, value, usual),
    });
    node.title = t(`write.${name}.why`);
    return node;
  });
  /** @param {number} n @returns {Choice} */
  const choice = (n) => [n, String(n)];
  const topk = select({
    label: t("write.topk"),
    visible: true,
    value: state.get().topk ?? "",
    options: [["", t("write.all")], ...[1, 5, 10, 20, 50, 100].map(choice)],
    onchange: (n) => state.set({ topk: n || null }),
  });
  topk.title = t("write.topk.why");
  const counts = [16, 32, 64, 128, 256, 512, 1024].filter((n) => n <= (limit ?? 1024));
  const max = select({
    label: t("write.max"),
    visible: true,
    value: state.get().max ?? "64",
    options: counts.map(choice),
    onchange: (n) => keep("max", n, 64),
  });
  const number = h("input", {
    type: "number", min: 0, max: 2 ** 31, step: 1, inputmode: "numeric",
  });
  number.value = String(read("seed", 0));
  number.addEventListener("change", () =>
    keep("seed", Math.max(0, Math.floor(Number(number.value) || 0)), 0),
  );
  const seed = h("label", { class: "field" }, h("span", {}, t("write.seed")), number);

  return {
    node: h(
      "details",
      { class: "write-sampling" },
      h("summary", {}, t("write.sampling")),
      h("div", {}, sliders, topk),
    ),
    beside: [max, seed],
    get body() {
      const numbers = Object.fromEntries(
        SLIDERS.map(([name, usual, key, range]) => [key, read(name, usual, range)]),
      );
      const [k, n, seed] = [
        read("topk", 0),
        read("max", 64, { min: 1, max: counts.at(-1) ?? 1 }),
        read("seed", 0),
      ].map(Math.floor);
      return { ...numbers, top_k: k || null, max_tokens: n, seed };
    },
    nextSeed: () => keep("seed", read("seed", 0) + 1, 0),
    update() {
      SLIDERS.forEach(([name, usual, , range], n) => (sliders[n].value = read(name, usual, range)));
      topk.value = state.get().topk ?? "";
      max.value = state.get().max ?? "64";
      if (document.activeElement !== number) number.value = String(read("seed", 0));
    },
  };
}
