// What was typed, kept by this tab: neither a reload nor a server that starts anew loses it.
//
//   remember("atlas reader", text)    recall("atlas reader")    the text, or null
//   keepDraft(field, "atlas reader")  remembers what is typed there; true if something was

import { after } from "./dom.js";

const PLACE = "glasshead.typed";
const MOST = 24; // texts

/** @type {[name: string, text: string][]} the latest first */
let all = read();

/** @returns {[name: string, text: string][]} */
function read() {
  try {
    const found = JSON.parse(sessionStorage.getItem(PLACE) ?? "[]");
    return Array.isArray(found) ? found.map(([name, text]) => [String(name), String(text)]) : [];
  } catch {
    return []; // a browser that keeps nothing
  }
}

/** @param {string} name */
export function recall(name) {
  return all.find(([one]) => one === name)?.[1] ?? null;
}

/** @param {string} name @param {string} text nothing is remembered of an empty one */
export function remember(name, text) {
  all = all.filter(([one]) => one !== name);
  if (text) all.unshift([name, text]);
  all.length = Math.min(all.length, MOST);
  try {
    sessionStorage.setItem(PLACE, JSON.stringify(all));
  } catch {
    // no room: then until the page is loaded again
  }
}

/** Fills a field that is empty with what was typed there before, and remembers what will be.
 * @param {HTMLTextAreaElement} field
 * @param {string} name
 */
export function keepDraft(field, name) {
  const soon = after(200, () => remember(name, field.value));
  field.addEventListener("input", () => soon());
  field.addEventListener("change", () => remember(name, field.value)); // it loses the focus
  const draft = field.value ? null : recall(name);
  if (draft) field.value = draft;
  return draft !== null;
}
