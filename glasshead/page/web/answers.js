// The answers that the present view was given, so that it can be saved; and in a saved page, the
// answers in it.

import { embedded } from "./embedded.js";
import { t } from "./words.js";

export const ROOM = 20e6; // bytes of answers in a saved page
const KEPT = 2 * ROOM;
const LATER = 86400; // seconds: what a file does not hold, it will not hold soon

/** @type {Map<string, Answer>} the last ones at the end */
let kept = new Map();
let size = 0;

/** `body` is what is sent, as text.
 * @param {string} path
 * @param {string} [body]
 */
export function keyOf(path, body) {
  return body === undefined ? `GET ${path}` : `POST ${path} ${body}`;
}

/** @param {string} key @param {Answer} answer */
export function keep(key, answer) {
  drop(key);
  kept.set(key, answer);
  size += answer.buffer.byteLength;
  while (size > KEPT) drop(first());
}

/** @param {string} key */
export const known = (key) => kept.get(key) ?? null;

// What is told as JSON comes first, then what is newest.
export function all() {
  const newest = [...kept].reverse();
  return [...newest.filter(([, one]) => isJson(one)), ...newest.filter(([, one]) => !isJson(one))];
}

export function forget() {
  kept = new Map();
  size = 0;
}

/** @param {string} key */
function drop(key) {
  size -= kept.get(key)?.buffer.byteLength ?? 0;
  kept.delete(key);
}

// Pages of maps can be asked for again; what a view began with is small and stays.
function first() {
  for (const [key, one] of kept) if (!isJson(one)) return key;
  return [...kept.keys()][0];
}

/** @param {Pick<Answer, "headers">} answer */
const isJson = ({ headers }) => (headers["content-type"] ?? "").startsWith("application/json");

// -- in a file --

/** @param {Answer} answer */
export const cost = (answer) =>
  isJson(answer) ? answer.buffer.byteLength : Math.ceil((4 * answer.buffer.byteLength) / 3);

/** @param {Answer} answer @returns {Packed} */
export function packed({ buffer, headers }) {
  if (isJson({ headers })) return { headers, json: JSON.parse(new TextDecoder().decode(buffer)) };
  const bytes = new Uint8Array(buffer);
  let letters = "";
  for (let at = 0; at < bytes.length; at += 0x8000)
    letters += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return { headers, base64: btoa(letters) };
}

/** @param {string} path @param {Sent} sent */
export async function replay(path, { body } = {}) {
  const key = keyOf(path, body);
  const answers = embedded?.answers ?? {};
  if (!Object.hasOwn(answers, key)) {
    const error = { message: t("saved.missing"), hint: t("saved.missing.hint") };
    return new Response(JSON.stringify({ error }), {
      status: 503, headers: { "retry-after": String(LATER) },
    });
  }
  const { headers, json, base64 } = answers[key];
  const data =
    base64 === undefined
      ? JSON.stringify(json)
      : Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  return new Response(data, { headers });
}
