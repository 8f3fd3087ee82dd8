// In a notebook: questions go to the widget that holds this page, and from there to the kernel.

import { embedded } from "./embedded.js";

/** @type {Map<number, (answer: Response) => void>} number → what takes the answer */
const waiting = new Map();
let last = 0;

/** @param {string} path @param {Sent} sent @returns {Promise<Response>} */
export function toKernel(path, { method = "GET", body, signal } = {}) {
  return new Promise((resolve, reject) => {
    const number = ++last;
    const leave = () => {
      waiting.delete(number);
      reject(new DOMException("no longer wanted", "AbortError"));
    };
    if (signal?.aborted) return leave();
    signal?.addEventListener("abort", leave, { once: true });
    waiting.set(number, resolve);
    // The page has no origin of its own; the widget knows it by its window.
    parent.postMessage({ glasshead: number, method, path, body: body ?? null }, "*");
  });
}

if (embedded?.kind === "notebook")
  addEventListener("message", ({ source, data }) => {
    const resolve = source === parent && waiting.get(data?.glasshead);
    if (!resolve) return;
    waiting.delete(data.glasshead);
    resolve(new Response(data.body, { status: data.status, headers: data.headers }));
  });
