// In a notebook: questions go to the widget that holds this page, and from there to the kernel.

import { brought } from "./brought.js";

const waiting = new Map(); // number → what takes the answer
let last = 0;

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

if (brought?.kind === "notebook")
  addEventListener("message", ({ source, data }) => {
    if (source !== parent || !waiting.has(data?.glasshead)) return;
    const resolve = waiting.get(data.glasshead);
    waiting.delete(data.glasshead);
    resolve(new Response(data.body, { status: data.status, headers: data.headers }));
  });
