// Answers requests with the page's own engine: node engine_answers.mjs told.json parameters.bin
//
// Lines on stdin are [method, path, body, lang]; each gets a line {status, headers, body, events},
// where bytes are in base64. `["tokens", text]` gives ids, `["logits", ids]` the last row. --plain
// does without WebAssembly.

import { readFileSync } from "node:fs";
import process from "node:process";
import { createInterface } from "node:readline";
import { Buffer } from "node:buffer";
import { Host } from "../../glasshead/page/web/engine/host.js";
import { Engine } from "../../glasshead/page/web/engine/routes.js";
import { characters, visible, words } from "../../glasshead/page/web/engine/text_words.js";

const [told, parameters, plain] = process.argv.slice(2);
if (plain === "--plain") delete globalThis.WebAssembly; // as in a browser that has none
const bytes = new Uint8Array(readFileSync(parameters)).buffer;
const host = new Host(JSON.parse(readFileSync(told, "utf8")), bytes);
const engine = new Engine(host);

/** @param {[string, any, any, string | undefined]} ask */
async function answer([method, path, body, lang]) {
  if (method === "tokens") return attempt(() => host.tokenizer.encode(path));
  if (method === "decode") return host.tokenizer.decode(path);
  if (method === "words")
    return [words, characters].map((how) =>
      how(path.map((one) => (typeof one === "string" ? one : Uint8Array.from(one)))).map(
        ({ text, start, stop }) => [visible(text), start, stop],
      ),
    );
  if (method === "logits") {
    const x = host.model.features(path, body ?? {}), V = host.told.config.vocab_size;
    return [...host.model.logits(x, path.length).subarray(-V)];
  }
  const events = [];
  const emit = (event, data) => events.push([event, data]);
  const sent = body === null ? null : JSON.stringify(body);
  const reply = await engine.ask(method, path, sent, { pause: async () => {}, emit, lang });
  const text = typeof reply.body === "string";
  return {
    ...reply, events,
    body: text ? JSON.parse(reply.body) : Buffer.from(reply.body).toString("base64"),
  };
}

function attempt(make) {
  try {
    return make();
  } catch (error) {
    return { error: error.message };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const found = await answer(JSON.parse(line));
  process.stdout.write(`${JSON.stringify(found)}\n`);
}
