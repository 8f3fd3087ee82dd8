// In a page that runs its model: questions go to a worker (engine/worker.js). Its script and the
// model's parameters stand in the page.

import { h } from "./dom.js";
import { embedded, living } from "./embedded.js";
import { add, language, t } from "./words.js";

add({
  en: {
    "living.page": "Runs here",
    "living.page.why": "The model is in this file and runs in your browser; nothing is sent.",
    "living.exact": "Its parameters are exact (float32).",
    "living.rounded":
      "Its parameters are rounded to {precision}, which changes each prediction by {cost} nats.",
  },
  zh: {
    "living.page": "本页运行",
    "living.page.why": "模型就在这个文件里，由浏览器运行，不发送任何数据。",
    "living.exact": "参数未经舍入（float32）。",
    "living.rounded": "参数舍入为 {precision}，每次预测平均改变 {cost} nat。",
  },
});

/**
 * @typedef {{
 *   resolve: (answer: Response) => void, reject: (error: Error) => void,
 *   stream: ReadableStreamDefaultController | null,
 * }} Waiting
 */

/** @type {Map<number, Waiting>} */
const waiting = new Map();
const UTF8 = new TextEncoder();
let last = 0;
/** @type {Worker | null} */
let worker = null;
/** @type {Error | null} why it cannot answer, once it has ended */
let broken = null;

/** Where the model runs, and what rounding its parameters costs. */
export function livingChip() {
  if (!living) return null;
  const { precision, cost } = embedded?.living.rounding ?? {};
  const rounding = { precision, cost: typeof cost === "number" ? cost.toPrecision(2) : "–" };
  const told = t(precision === "float32" ? "living.exact" : "living.rounded", rounding);
  const title = `${t("living.page.why")} ${told}`;
  return h("span", { class: "chip quiet", title }, t("living.page"));
}

/** What stands in an element of the page, which gives it up.
 * @param {string} id
 */
function taken(id) {
  const node = document.getElementById(id), text = node?.textContent ?? "";
  node?.remove();
  return text;
}

function start() {
  const script = new Blob([taken("engine")], { type: "text/javascript" });
  const made = new Worker(URL.createObjectURL(script));
  made.onmessage = ({ data }) => heard(data);
  made.onerror = (event) => {
    broken = new Error(event.message || "the worker has ended");
    for (const { reject, stream } of waiting.values()) {
      stream?.error(broken);
      reject(broken);
    }
    waiting.clear();
  };
  made.postMessage({ told: embedded?.living, parameters: taken("parameters") });
  return made;
}

/** @param {any} told */
function heard({ number, status, headers, body, chunk, done }) {
  const one = waiting.get(number);
  if (!one) return;
  if (chunk !== undefined) return one.stream?.enqueue(UTF8.encode(chunk));
  if (done) {
    waiting.delete(number);
    return one.stream?.close();
  }
  if (body !== undefined) {
    waiting.delete(number);
    return one.resolve(new Response(body, { status, headers }));
  }
  const streamed = new ReadableStream({ start: (stream) => void (one.stream = stream) });
  one.resolve(new Response(streamed, { status, headers }));
}

/** @param {string} path @param {Sent} sent @returns {Promise<Response>} */
export function toWorker(path, { method = "GET", body, signal } = {}) {
  const asked = (worker ??= start());
  if (broken) return Promise.reject(broken);
  return new Promise((resolve, reject) => {
    const number = ++last;
    const leave = () => {
      const error = new DOMException("no longer wanted", "AbortError");
      waiting.get(number)?.stream?.error(error);
      waiting.delete(number);
      asked.postMessage({ number, leave: true });
      reject(error);
    };
    if (signal?.aborted) return leave();
    signal?.addEventListener("abort", leave, { once: true });
    waiting.set(number, { resolve, reject, stream: null });
    asked.postMessage({ number, method, path, body: body ?? null, lang: language() });
  });
}
