// The worker of a page that runs its model: one message brings the model, the others ask.
//
//   {told, parameters}                     parameters in base64
//   {number, method, path, body, lang}     a request; {number, leave: true} ends it
//
// Back come {number, status, headers, body}; of a stream first that without a body, then
// {number, chunk} for each event, and {number, done: true}.

import { InputError } from "./errors.js";
import { Host } from "./host.js";
import { Engine, problem } from "./routes.js";

const TURN = 12; // milliseconds after which others may have theirs

/** @type {Engine | null} */
let engine = null;
let fault = "the model did not arrive"; // why there is none
/** @type {Set<number>} requests that somebody waits for */
const wanted = new Set();
const post = (/** @type {object} */ message) => globalThis.postMessage(message);

const { port1, port2 } = new MessageChannel();
/** @type {(() => void)[]} */
const turns = [];
port1.onmessage = () => turns.shift()?.();

/** @param {number} number */
function pauses(number) {
  let began = performance.now();
  return async () => {
    if (performance.now() - began < TURN) return;
    await new Promise((/** @type {(value: void) => void} */ done) => {
      turns.push(done);
      port2.postMessage(null);
    });
    began = performance.now();
    if (!wanted.has(number)) throw new DOMException("no longer wanted", "AbortError");
  };
}

addEventListener("message", async ({ data }) => {
  if (data.told) {
    try {
      engine = new Engine(new Host(data.told, fromBase64(data.parameters)));
    } catch (error) {
      fault = String(error.message ?? error); // as of a model that memory does not hold
    }
    return;
  }
  const { number, method, path, body: asked, leave, lang } = data;
  if (leave) return wanted.delete(number);
  if (!engine) {
    const hint = "try another browser, or glasshead serve";
    const error = new InputError(`this browser cannot run the model: ${fault}`, { hint });
    return post({ number, ...problem(error, lang) });
  }
  wanted.add(number);
  let streams = false;
  /** @param {string} event @param {unknown} told */
  const emit = (event, told) => {
    if (!streams) post({ number, status: 200, headers: { "content-type": "text/event-stream" } });
    streams = true;
    post({ number, chunk: `event: ${event}\ndata: ${JSON.stringify(told)}\n\n` });
  };
  try {
    const reply = await engine.ask(method, path, asked, { pause: pauses(number), emit, lang });
    post(streams ? { number, done: true } : { number, ...reply });
  } catch (error) {
    if (error.name !== "AbortError") {
      const told = { error: { message: String(error.message ?? error), hint: "" } };
      if (streams) emit("error", told.error);
      const body = JSON.stringify(told);
      post(streams ? { number, done: true } : { number, status: 500, headers: {}, body });
    }
  } finally {
    wanted.delete(number);
  }
});

/** @param {string} text */
function fromBase64(text) {
  const letters = atob(text), bytes = new Uint8Array(letters.length);
  for (let n = 0; n < letters.length; n++) bytes[n] = letters.charCodeAt(n);
  return bytes.buffer;
}
