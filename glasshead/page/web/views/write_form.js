// The form of the Write view: the beginning of the text, how tokens are drawn, and its buttons.

import * as api from "../api.js";
import { h, offer } from "../dom.js";
import { t } from "../words.js";
import { sampling } from "./write_sampling.js";

/**
 * @param {{limit: number | undefined, begin: () => void, stop: () => void}} of
 *   `limit` is the most tokens that the server writes at once.
 */
export function writeForm({ limit, begin, stop: onstop }) {
  const text = h("textarea", {
    rows: 3, "aria-label": t("write.prompt"), placeholder: t("write.placeholder"),
    spellcheck: "false",
  });
  const go = h("button", { type: "submit", class: "primary" }, t("write.go"));
  const stop = h(
    "button",
    { type: "button", class: "primary", hidden: true, onclick: onstop },
    t("write.stop"),
  );
  const other = h(
    "button",
    { type: "button", title: t("write.another.why"), onclick: () => (drawn.nextSeed(), begin()) },
    t("write.another"),
  );
  const drawn = sampling(limit);
  const trouble = h("div", {});
  const node = h(
    "form",
    {
      class: "card write-form",
      /** @param {Event} event */
      onsubmit: (event) => (event.preventDefault(), begin()),
    },
    text,
    h("div", { class: "row" }, go, stop, other, drawn.beside),
    drawn.node,
    trouble,
  );
  text.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    begin();
  });

  return {
    node,
    text,
    drawn,
    trouble, // where errors are shown
    /** Begins an empty field with a text of those that the model was trained on.
     * @param {Entry} entry
     * @param {(text: string) => void} offered
     */
    async prompt(entry, offered) {
      const asked = api.get(`/api/look/examples?${api.query({ model: entry.id })}`);
      const { examples } = await asked.catch(() => ({ examples: [] })); // then it stays empty
      if (text.value || !examples[0]) return;
      offer(text, examples[0].text);
      offered(examples[0].text);
    },
    /**
     * @param {boolean} busy while tokens are written
     * @param {boolean} ready while they are not, and there are some
     */
    show(busy, ready) {
      go.hidden = busy;
      stop.hidden = !busy;
      other.disabled = !ready;
    },
  };
}
