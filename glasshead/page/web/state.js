// Where the page stands: one flat object of strings, kept in the address so that a view can be
// shared.
//
//   get()                         {view: "look", model: "reader", query: "5"}
//   set({layer: 1, head: null})   numbers become strings; null, undefined, "" and false remove
//   set({view: "atlas"}, {push: true})    a step that the Back button undoes
//   on(fn)                        fn(state, changed) after each change, `changed` a Set of keys;
//                                 returns what ends it

import { embedded } from "./embedded.js";

let state = read();
/** @type {Set<(now: Where, changed: Set<string>) => void>} */
const listeners = new Set();
let later = 0;
let written = 0; // when: browsers limit how often the address may change

/** @returns {Where} */
export function get() {
  return { ...state };
}

/** @param {Patch} patch */
export function set(patch, { push = false } = {}) {
  const before = state;
  const next = { ...state };
  for (const [key, value] of Object.entries(patch)) {
    if (value === null || value === undefined || value === "" || value === false) delete next[key];
    else next[key] = value === true ? "1" : String(value);
  }
  const changed = difference(before, next);
  if (!changed.size) return;
  if (push) write(before, "replaceState"); // what waits to be written belongs to the step before
  state = next;
  clearTimeout(later);
  if (push) write(state, "pushState");
  else later = setTimeout(() => write(state, "replaceState"), Date.now() - written > 600 ? 0 : 150);
  tell(changed);
}

/** @param {(now: Where, changed: Set<string>) => void} fn */
export function on(fn) {
  listeners.add(fn);
  return () => listeners.delete(fn);
}

/** The address that shows this state, for links.
 * @param {Patch} patch
 */
export function address(patch = {}) {
  const kept = { ...state };
  for (const [key, value] of Object.entries(patch)) {
    if (value === null || value === "") delete kept[key];
    else kept[key] = String(value);
  }
  return "#" + new URLSearchParams(kept);
}

/** A page that was saved, or stands in a notebook, says itself where to begin.
 * @returns {Record<string, string>}
 */
function read() {
  if (embedded && location.hash.length < 2) return { ...embedded.state };
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

/** @param {Record<string, string>} what @param {"pushState" | "replaceState"} how */
function write(what, how) {
  clearTimeout(later);
  written = Date.now();
  const hash = "#" + new URLSearchParams(what);
  try {
    if (hash !== location.hash) history[how](null, "", hash);
  } catch {
    // a page inside of another has no address of its own
  }
}

/** @param {Set<string>} changed */
function tell(changed) {
  for (const fn of [...listeners]) fn(get(), changed);
}

/** @param {Where} a @param {Where} b */
function difference(a, b) {
  const keys = new Set([...Object.keys(a), ...Object.keys(b)]);
  return new Set([...keys].filter((key) => a[key] !== b[key]));
}

function reread() {
  clearTimeout(later);
  const next = read();
  const changed = difference(state, next);
  state = next;
  if (changed.size) tell(changed);
}

addEventListener("popstate", reread);
addEventListener("hashchange", reread);
