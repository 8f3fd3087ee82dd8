// The routes that the page asks, answered here instead of by a server.
//
//   const engine = new Engine(host);
//   await engine.ask("POST", "/api/look", body, {pause, emit})     {status, headers, body}
//
// Requests may overlap: each waits in `pause`, which also raises when nobody wants its answer any
// more. `emit` gets the events of a stream.

import { Cut } from "./attention.js";
import { cells, describeAtlas, exactRow, tokenPieces } from "./atlas_answers.js";
import { InputError } from "./errors.js";
import { inChinese } from "./messages_zh.js";
import { describeLook, rankHeads, thumbnails, wordMap } from "./look_answers.js";
import { longerThanRead } from "./long_text.js";
import { predict } from "./predictions.js";
import { Recording } from "./recording.js";
import { describeSteps } from "./steps_answers.js";
import { align, examples, translate } from "./translate_answers.js";
import { lookAtToken, read, write } from "./write_answers.js";

const KEPT = 4; // recordings

/**
 * @typedef {{status: number, headers: Record<string, string>, body: string | ArrayBuffer}} Reply
 * @typedef {{
 *   pause: () => Promise<void>, emit: (event: string, data: unknown) => void, lang?: string,
 * }} Asking
 */

export class Engine {
  /** @param {import("./host.js").Host} host */
  constructor(host) {
    this.host = host;
    /** @type {Map<string, string>} what was read -> its id */
    this.names = new Map();
    /** @type {Map<string, Promise<Recording>>} by id, the latest last */
    this.recordings = new Map();
  }

  /** @param {string} method @param {string} path @param {string | null} body @param {Asking} asking
   * @returns {Promise<Reply>}
   */
  async ask(method, path, body, asking) {
    try {
      const url = new URL(path, "http://page.invalid");
      const found = await this.#answer(`${method} ${url.pathname}`, url.searchParams, body, asking);
      return found instanceof Raw
        ? { status: 200, headers: found.headers, body: found.data.slice().buffer }
        : json(200, found);
    } catch (error) {
      if (!(error instanceof InputError)) throw error;
      return problem(error, asking.lang);
    }
  }

  /** @param {string} route @param {URLSearchParams} fields @param {string | null} body
   * @param {Asking} asking
   */
  async #answer(route, fields, body, asking) {
    const { host } = this, { told } = host, { pause, emit } = asking;
    const sent = () => JSON.parse(body ?? "null");
    if (route.startsWith("GET /api/seen/")) return this.#seen(route, fields, pause);
    switch (route) {
      case "GET /api/models":
        return {
          models: [told.entry], version: told.version,
          limits: { max_text: 100_000, max_tokens: 4096 },
        };
      case "GET /api/look/examples":
        return { examples: told.examples, knows: told.knows };
      case "POST /api/look": {
        const { text, tokens = false, heads = [], edges = [], model } = sent();
        const long = longerThanRead(host, text);
        if (long) return { model, kind: told.entry.kind, text, ...long };
        const cut = new Cut(heads, edges.map(withHead));
        const { seen, recording } = await this.#record(text, cut, false, pause);
        const about = { seen, model, kind: told.entry.kind, text };
        return { ...about, ...describeLook(recording, tokens) };
      }
      case "POST /api/ablate": {
        const { text, heads = [], edges = [], at = null } = sent();
        return predict(host, text, new Cut(heads, edges.map(withHead)), at);
      }
      case "POST /api/atlas": {
        const { text, model } = sent();
        const { seen, recording } = await this.#record(text, new Cut(), true, pause);
        return { seen, model, ...describeAtlas(recording) };
      }
      case "POST /api/write":
        await write(host, sent(), pause, emit);
        return null;
      case "POST /api/write/read":
        return read(host, sent(), pause);
      case "POST /api/write/look":
        return lookAtToken(host, sent());
      case "POST /api/translate":
        return translate(host, sent(), pause);
      case "POST /api/translate/look":
        return align(host, sent());
      case "GET /api/translate/examples":
        return examples(host, Number(fields.get("start") ?? 0), Number(fields.get("n") ?? 3));
    }
    throw new InputError(`this page has no ${route}`, {
      hint: "glasshead serve answers it", status: 404,
    });
  }

  /** @param {string} text @param {Cut} cut @param {boolean} beyond
   * @param {() => Promise<void>} pause
   */
  async #record(text, cut, beyond, pause) {
    const key = JSON.stringify([text, [...cut.heads], cut.edges, beyond]);
    const seen = this.names.get(key) ?? `t${this.names.size + 1}`;
    this.names.set(key, seen);
    for (;;) {
      const known = this.recordings.get(seen);
      const made = known ?? Recording.read(this.host, text, cut, beyond, pause);
      this.recordings.delete(seen);
      this.recordings.set(seen, made);
      for (const old of [...this.recordings.keys()].slice(0, -KEPT)) this.recordings.delete(old);
      try {
        return { seen, recording: await made };
      } catch (error) {
        if (this.recordings.get(seen) === made) this.recordings.delete(seen);
        // Whoever asked first may have left: then it is read for this request.
        if (!known || error.name !== "AbortError") throw error;
        await pause();
      }
    }
  }

  /** @param {string} route @param {URLSearchParams} fields @param {() => Promise<void>} pause */
  async #seen(route, fields, pause) {
    const [seen, what] = route.split("/").slice(3);
    const recording = await this.recordings.get(seen);
    if (!recording)
      throw new InputError(`there is no recorded text '${seen}', or no longer`, {
        hint: "read the text again", status: 404,
      });
    const number = (/** @type {string} */ name) => Number(fields.get(name) ?? 0);
    const maybe = (/** @type {string} */ name) => (fields.has(name) ? number(name) : null);
    const on = (/** @type {string} */ name) => fields.get(name) === "true";
    const shown = { tokens: on("tokens"), hideSink: on("hide_sink"), ratio: on("ratio") };
    const [layer, head, query] = [number("layer"), number("head"), number("query")];
    switch (what) {
      case "weights": {
        const { values, rows, cols } = wordMap(recording, layer, head, shown);
        return new Raw(values, { "x-shape": `${rows},${cols}` });
      }
      case "thumbs": {
        const { data, shapes } = await thumbnails(recording, shown, pause);
        return new Raw(data, { "x-shapes": shapes });
      }
      case "from":
        return rankHeads(recording, layer, query, "from", shown);
      case "to":
        return rankHeads(recording, layer, number("key"), "to", shown);
      case "steps":
        return describeSteps(recording, layer, head, query);
      case "map":
        return { seen, model: this.host.entry.id, ...describeAtlas(recording) };
      case "cells": {
        const where = {
          layer, head, level: number("level"), row: number("row"), col: number("col"),
        };
        const { data, shape } = cells(recording, where, shown.hideSink);
        return new Raw(data, { "x-shape": shape });
      }
      case "row": {
        const top = maybe("top") ?? 8;
        return exactRow(recording, { layer, head, query, key: maybe("key"), top });
      }
      case "tokens": {
        const side = fields.get("side") === "cols" ? "cols" : "rows";
        const [start, stop] = [number("start"), number("stop")];
        return tokenPieces(recording, maybe("layer"), side, start, stop);
      }
    }
    throw new InputError(`this page has no ${what}`, { status: 404 });
  }
}

/** Numbers that are sent as they are: little-endian float32, and what says their shape. */
class Raw {
  /** @param {Float32Array} data @param {Record<string, string>} headers */
  constructor(data, headers) {
    this.data = data;
    this.headers = { "content-type": "application/octet-stream", ...headers };
  }
}

/** @param {Partial<import("./attention.js").Edge>} edge */
const withHead = (edge) => /** @type {import("./attention.js").Edge} */ ({ head: null, ...edge });

/** @param {InputError} error @param {string} [lang] */
export function problem({ message, hint, status }, lang = "en") {
  const say = lang === "zh" ? inChinese : String;
  return json(status, { error: { message: say(message), hint: say(hint) } });
}

/** @param {number} status @param {unknown} value @returns {Reply} */
const json = (status, value) => ({
  status, headers: { "content-type": "application/json" }, body: JSON.stringify(value),
});
