// The server's answers. Nothing else on the page calls fetch: a saved page replays answers from
// here.
//
//   await get("/api/models")                    JSON
//   await post("/api/look", {model, text})      JSON
//   await bytes("/api/seen/…/weights?…")        {buffer, shape: [rows, cols] | null, headers}
//   await stream("/api/write", body, ({event, data}) => …, signal)     server-sent events, parsed
//   query({layer: 1, head: 2})                  "layer=1&head=2"
//
//   await gather([path, [path, body], …])       all of these that a saved page has room for, and
//                                               what else the view was told
//
// What goes wrong is an ApiError: message and hint for people, status (0: the server was not
// reached).
// A request ended by its signal throws the browser's AbortError; `ended(error)` knows it.

import { embedded, saved } from "./embedded.js";
import { toKernel } from "./kernel.js";
import { toWorker } from "./living.js";
import * as answers from "./answers.js";
import { language } from "./words.js";

const KEY = "glasshead.key";
const AT_ONCE = 4; // requests while gathering
const carry = embedded
  ? { saved: answers.replay, notebook: toKernel, living: toWorker }[embedded.kind]
  : overHttp;

export class ApiError extends Error {
  /** @param {string} message */
  constructor(message, hint = "", status = 0, wait = 0) {
    super(message);
    this.name = "ApiError";
    this.hint = hint;
    this.status = status;
    this.wait = wait; // seconds, where the server says when to come back
  }
}

/** @param {any} error */
export const ended = (error) => error?.name === "AbortError";

/** @typedef {{signal?: AbortSignal, keep?: boolean}} How */

/** @param {string} path @param {How} how @returns {Promise<any>} */
export async function get(path, { signal, keep = true } = {}) {
  return parse(await whole(path, undefined, signal, keep));
}

/** @param {string} path @param {unknown} body @param {How} how @returns {Promise<any>} */
export async function post(path, body, { signal } = {}) {
  return parse(await whole(path, JSON.stringify(body), signal));
}

/** @param {string} path @param {How} how */
export async function bytes(path, { signal } = {}) {
  const { buffer, headers } = await whole(path, undefined, signal);
  return {
    buffer,
    shape: headers["x-shape"] ? headers["x-shape"].split(",").map(Number) : null,
    headers,
  };
}

/** @param {Record<string, string | number | boolean>} fields */
export const query = (fields) =>
  String(new URLSearchParams(Object.entries(fields).map(([name, one]) => [name, String(one)])));

/** @param {Answer} answer */
const parse = ({ buffer }) => JSON.parse(new TextDecoder().decode(buffer));

/**
 * @param {string} path
 * @param {string | undefined} body
 * @param {AbortSignal | undefined} signal
 * @returns {Promise<Answer>}
 */
async function whole(path, body, signal, keep = true) {
  const answer = await call(path, { signal, ...sending(body) });
  const told = [...answer.headers].filter(
    ([name]) => name === "content-type" || name.startsWith("x-shape"),
  );
  const found = { buffer: await answer.arrayBuffer(), headers: Object.fromEntries(told) };
  if (keep && !saved) answers.keep(answers.keyOf(path, body), found);
  return found;
}

// What was told so far belongs to a view that is gone.
export const forget = answers.forget;

/** @param {Ask[]} asks */
export async function gather(asks) {
  /** @type {Record<string, Packed>} */
  const found = {};
  const told = answers.all(); // of the view as it is now
  let size = 0;
  /** @param {string} key @param {Answer} answer */
  const add = (key, answer) => {
    if (key in found || size + answers.cost(answer) > answers.ROOM) return;
    size += answers.cost(answer);
    found[key] = answers.packed(answer);
  };
  /** @type {[path: string, body: string | undefined][]} */
  const left = asks.map((ask) =>
    Array.isArray(ask) ? [ask[0], JSON.stringify(ask[1])] : [ask, undefined],
  );
  const some = async () => {
    for (let ask; size < 0.98 * answers.ROOM && (ask = left.shift()); ) {
      const [path, body] = ask;
      const key = answers.keyOf(path, body);
      try {
        add(key, answers.known(key) ?? (await whole(path, body, undefined, false)));
      } catch {
        // then the saved page says that it has no answer
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, some));
  for (const [key, answer] of told) add(key, answer);
  return found;
}

/**
 * @param {string} path
 * @param {unknown} body
 * @param {(told: {event: string, data: any}) => void} onEvent
 * @param {AbortSignal} [signal]
 */
export async function stream(path, body, onEvent, signal) {
  const answer = await call(path, { signal, ...sending(JSON.stringify(body)) });
  const streamed = /** @type {ReadableStream<BufferSource>} */ (answer.body);
  const reader = streamed.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { done, value } = await reader.read();
    waiting += done ? "\n\n" : value.replaceAll("\r\n", "\n");
    const blocks = waiting.split("\n\n");
    waiting = blocks.pop() ?? "";
    for (const block of blocks) {
      const found = parsed(block);
      if (found) onEvent(found);
    }
    if (done) return;
  }
}

/** The key that the server asks for beyond this machine; kept for this tab only.
 * @param {string} key
 */
export function setKey(key) {
  sessionStorage.setItem(KEY, key);
}

/** @param {string | undefined} body @returns {Sent} */
function sending(body) {
  if (body === undefined) return {};
  return { method: "POST", body, headers: { "content-type": "application/json" } };
}

/** @param {string} path @param {Sent} options */
async function overHttp(path, options) {
  const key = sessionStorage.getItem(KEY);
  const headers = {
    "accept-language": language(), ...options.headers,
    ...(key ? { authorization: `Bearer ${key}` } : {}),
  };
  try {
    return await fetch(new URL(path.replace(/^\//, ""), document.baseURI), { ...options, headers });
  } catch (error) {
    if (ended(error)) throw error;
    throw new ApiError("unreachable");
  }
}

/** @param {string} path @param {Sent} options */
async function call(path, options) {
  const answer = await carry(path, options);
  if (answer.ok) return answer;
  /** @type {any} */
  let told = null;
  try {
    told = await answer.json();
  } catch {
    // no JSON: the status has to do
  }
  const error = told?.error ?? {};
  /** @type {string | {msg: string}[] | undefined} */
  const wrong = told?.detail;
  const detail = Array.isArray(wrong) ? wrong.map((one) => one.msg).join("; ") : wrong;
  const message = error.message ?? detail ?? `${answer.status} ${answer.statusText}`;
  throw new ApiError(
    message,
    error.hint ?? "",
    answer.status,
    Number(answer.headers.get("retry-after") ?? 0),
  );
}

/** @param {string} block */
function parsed(block) {
  let event = "message";
  const data = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) event = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
  }
  if (!data.length) return null;
  const text = data.join("\n");
  return text === "[DONE]" ? { event: "done", data: null } : { event, data: JSON.parse(text) };
}
