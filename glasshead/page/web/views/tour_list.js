// The guided tours: for each its steps, and the models that it needs.
//
// A step shows a text beside a part of the page (`at`), after it has changed the address (`set`).
// Where `act` is given, the reader is asked to do something that changes `key` in the address; Next
// does it for them. Texts are "tour.NAME.N" in tour_words.js; {answer}, {before} and {heads} in
// them are read from the page.

import { language } from "../words.js";

const LOOK = { view: "look", text: null, layer: null, head: null, query: null, key: null,
  cut: null, shape: null, dir: null, log: null, nosink: null, ratio: null, tokens: null };
const ANSWER = ".answer .said .large";

/**
 * @typedef {object} Step
 * @property {string} at selector of the part that is pointed at
 * @property {Patch} [set] what the address says then
 * @property {string} [act] selector of what is to be clicked
 * @property {string} [key] of the address, which changes with that click
 *
 * @typedef {object} Tour
 * @property {string} id
 * @property {(entries: Entry[]) => Entry | undefined} model that it begins with
 * @property {Patch} start
 * @property {Step[]} steps
 * @property {(examples: string[]) => string} [text] to read, made of texts that the model can read
 */

/** @param {string} kind @returns {(entries: Entry[]) => Entry | undefined} */
const first = (kind) => (entries) => entries.find((one) => one.kind === kind);

/** A reader of the page's language, or else any.
 * @param {Entry[]} entries
 */
const reader = (entries) => {
  const all = entries.filter((one) => one.kind === "reader");
  return all.find((one) => one.reads === language()) ?? all[0];
};

/** @type {Tour[]} */
export const TOURS = [
  {
    id: "one",
    model: reader,
    start: LOOK,
    steps: [
      { at: ".head-card h1" },
      { at: ANSWER },
      { at: ".stage" },
      { at: ".endings", act: ".endings [aria-checked='false']", key: "text" },
      { at: ".first-view" },
      { at: ".stage", act: ".scissors:not(.again)", key: "cut" },
      { at: ".answer .said" },
    ],
  },
  {
    id: "many",
    model: reader,
    start: LOOK,
    steps: [
      { at: ".strip[data-head]" },
      { at: ".strip[data-head]", act: ".strip[aria-pressed='false']", key: "head" },
      { at: ".stage", set: { layer: null, head: null, cut: null },
        act: ".scissors:not(.again)", key: "cut" },
      { at: ".strip[data-head]" },
      { at: ".play", act: ".every", key: "cut" },
      { at: ".answer .said" },
      { at: ".cut-card" },
    ],
  },
  {
    id: "mask",
    model: (entries) => reader(entries) ?? first("gpt")(entries),
    start: { ...LOOK, view: "steps", scale: null, mask: null, heat: null },
    steps: [
      { at: ".query-words" },
      { at: ".steps-scroll" },
      { at: ".knobs", act: "[data-value='causal']", key: "mask" },
      { at: ".steps-scroll", set: { mask: "causal" } },
      { at: ".verdicts", set: { mask: "causal", query: "0" } },
      { at: ".knobs", set: { mask: null, query: null } },
    ],
  },
  {
    id: "translation",
    model: first("translator"),
    start: { ...LOOK, view: "translate", best: null, pin: null, how: null },
    steps: [
      { at: ".translate-source" },
      { at: ".translate-result" },
      { at: ".translate-attention" },
      { at: ".translate-told" },
      { at: ".translate-source", key: "text",
        act: ".translate-source .chip[aria-pressed='false']" },
      { at: ".translate-result" },
      { at: ".translate-attention p.quiet" },
    ],
  },
  {
    id: "long",
    model: (entries) =>
      first("glass")(entries) ?? first("gpt")(entries) ?? reader(entries) ??
      first("translator")(entries),
    start: { ...LOOK, view: "atlas", at: null },
    text: (examples) => {
      const all = Array.from({ length: 12 }, () => examples).flat();
      return all.join(/\p{Script=Han}/u.test(examples[0]) ? "" : " ");
    },
    steps: [
      { at: ".titles" },
      { at: ".sheet-box" },
      { at: ".zooms" },
      { at: ".texts" },
      { at: ".picker" },
      { at: ".note" },
    ],
  },
];

