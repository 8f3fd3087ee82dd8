// Atlas: the whole map of a head as pages of cells, near or from afar, with the text beside it.

import { ended, query } from "../api.js";
import { keepDraft, recall, remember } from "../drafts.js";
import { fill, h, offer, problem, styles, tip } from "../dom.js";
import { count, t } from "../words.js";
import "./atlas_words.js";
import { Sheet } from "./atlas_sheet.js";

const IN_ADDRESS = 2000; // characters of a text that the address can carry

let last = ""; // what was shown last

/** @type {View} */
export default {
  id: "atlas",
  title: () => t("atlas.title"),
  fits: (entry) => entry.can.includes("atlas"),
  mount: (root, context) => new Atlas(root, context),
};

class Atlas {
  /** @param {HTMLElement} root @param {Context} context */
  constructor(root, context) {
    this.root = root;
    this.context = context;
    this.entry = context.entry;
    this.state = context.state;
    this.api = context.api;
    this.control = new AbortController();
    this.subject = this.#subject();
    /** @type {Sheet | null} */
    this.sheet = null;
    styles("views/atlas.css");
    // Where one stood in another text means nothing in this one.
    if (last && last !== this.subject) this.state.set({ at: null });
    this.#open();
  }

  #subject({ text, seen } = this.state.get()) {
    return [this.entry.id, this.entry.kind === "glass" ? "" : (text ?? seen ?? "")].join("\n");
  }

  async #open() {
    const { entry, state } = this;
    const { text, seen } = state.get();
    this.subject = this.#subject();
    if (entry.kind !== "glass" && !text && !seen) return this.#ask("");
    this.#wait(t(entry.kind === "glass" ? "atlas.opening" : "atlas.reading"));
    try {
      if (entry.kind === "glass")
        return this.#show(await this.#post("/api/open", { model: entry.id }));
      if (text) return this.#show(await this.#post("/api/atlas", { model: entry.id, text }));
      const told = await this.api.get(`/api/seen/${encodeURIComponent(seen ?? "")}/map`, {
        signal: this.control.signal,
      });
      if (told.model !== entry.id) return this.#ask("");
      this.#show(told);
    } catch (error) {
      if (ended(error)) return;
      const forgotten = error.status === 404 && !text && entry.kind !== "glass";
      if (forgotten) return this.#again(recall(`seen ${seen}`));
      if (entry.kind === "glass") fill(this.root, problem(error, t));
      else this.#ask(text ?? "", error);
    }
  }

  /** A text that the server has forgotten is read once more, and the place in it stays.
   * @param {string | null} text
   */
  async #again(text) {
    if (!text) return this.#ask("");
    try {
      const told = await this.#post("/api/atlas", { model: this.entry.id, text });
      remember(`seen ${told.seen}`, text);
      this.subject = last = this.#subject({ seen: told.seen });
      this.state.set({ seen: told.seen });
      this.#show(told);
    } catch (error) {
      if (!ended(error)) this.#ask(text, error);
    }
  }

  /** @param {string} path @param {unknown} body @returns {Promise<AtlasTold>} */
  #post(path, body) {
    return this.api.post(path, body, { signal: this.control.signal });
  }

  /** @param {string} words */
  #wait(words) {
    this.#close();
    fill(this.root, h("p", { class: "quiet busy waiting", role: "status" }, words));
  }

  /** A model needs a text first.
   * @param {string} text
   * @param {Failure | null} error
   */
  async #ask(text, error = null) {
    this.#close();
    const most = this.context.limits?.max_text ?? 100000;
    const field = h("textarea", {
      rows: 10, placeholder: t("atlas.placeholder"), "aria-label": t("atlas.text"), maxlength: most,
    });
    field.value = text;
    const form = h("form", { class: "card asking" },
      h("h1", {}, t("atlas.title")),
      h("p", { class: "quiet" }, t("atlas.lead")),
      field,
      h("div", { class: "row" },
        h("button", { type: "submit", class: "primary" }, t("atlas.read")),
        h("span", { class: "quiet small" }, t("atlas.most", { n: count(most) })),
      ),
      error && problem(error, t),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (field.value.trim()) this.#read(field.value);
    });
    fill(this.root, form);
    if (keepDraft(field, `atlas ${this.entry.id}`) || text) return;
    try {
      const { examples } = await this.api.get(
        `/api/look/examples?${query({ model: this.entry.id })}`,
        { signal: this.control.signal },
      );
      // One of them: the model may have no token for what would join two, and no room for both.
      if (examples.length) offer(field, examples[0].text);
    } catch {
      // then the field stays empty
    }
  }

  /** @param {string} text */
  async #read(text) {
    this.#wait(t("atlas.reading"));
    try {
      const told = await this.#post("/api/atlas", { model: this.entry.id, text });
      remember(`seen ${told.seen}`, text);
      const now = { text: text.length <= IN_ADDRESS ? text : undefined, seen: told.seen };
      this.subject = this.#subject(now); // what comes back from the address is no news
      this.state.set({ ...now, at: null, layer: null, head: null }, { push: true });
      this.#show(told);
    } catch (error) {
      if (!ended(error)) this.#ask(text, error);
    }
  }

  /** @param {AtlasTold} told */
  #show(told) {
    if (!told.layers.length) return fill(this.root, problem({ message: t("atlas.nothing") }, t));
    last = this.subject;
    this.sheet = new Sheet(this.root, this.context, told, {
      onask: () => this.#ask(this.state.get().text ?? recall(`seen ${told.seen}`) ?? ""),
      onforgotten: () => this.#open(),
    });
    this.sheet.update(this.state.get());
  }

  // What is shown, or on its way, makes room.
  #close() {
    this.control.abort();
    this.control = new AbortController();
    this.sheet?.close();
    this.sheet = null;
    tip.hide();
  }

  /** @param {Where} now */
  update(now) {
    if (this.#subject(now) !== this.subject) this.#open();
    else this.sheet?.update(now);
  }

  /** @param {Painter} painter */
  picture(painter) {
    return this.sheet?.picture(painter);
  }

  wants() {
    return this.sheet?.wants() ?? [];
  }

  unmount() {
    this.#close();
  }
}
