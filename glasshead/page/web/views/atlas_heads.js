// Which head: a row of squares for each layer, coloured by what was measured of it, and the numbers
// of the chosen one.

import { fill, h, select } from "../dom.js";
import { Scale } from "../scale.js";
import { language, t, three } from "../words.js";

export class Heads {
  /** @type {[layer: number, head: number] | null} */
  chosen = null;

  /**
   * @param {AtlasTold} told
   * @param {{
   *   statistic: string | undefined, onpick: (layer: AtlasLayer, head: number) => void,
   *   onstatistic: (name: string) => void,
   * }} on
   */
  constructor(told, { statistic, onpick, onstatistic }) {
    this.told = told;
    this.onstatistic = onstatistic;
    this.names = Object.keys(told.statistics);
    const known = [statistic, "entropy"].find((name) => name && this.names.includes(name));
    this.statistic = known ?? this.names[0];
    this.grid = h("div", { class: "heads", role: "grid", "aria-label": t("atlas.heads.label") });
    this.numbers = h("div", { class: "numbers" });
    /** @param {string} name */
    const about = (name) => told.statistics[name].explain[language()];
    const choice = this.names.length
      ? select({
          label: t("atlas.coloured"),
          value: this.statistic,
          options: this.names.map((name) => [name, about(name)]),
          onchange: (name) => this.colour(name),
        })
      : h("p", { class: "quiet small" }, t("atlas.unmeasured"));
    this.node = h("section", { class: "card picker" },
      choice,
      h("div", { class: "scroll" }, this.grid),
      this.numbers,
    );
    this.buttons = told.layers.map((layer, l) =>
      Array.from({ length: layer.heads }, (_, head) =>
        h("button", {
          type: "button", role: "gridcell", tabindex: -1, onclick: () => onpick(layer, head),
          onkeydown: (/** @type {KeyboardEvent} */ event) => this.#keys(event, l, head),
        }),
      ),
    );
    fill(
      this.grid,
      told.layers.map((layer, l) =>
        h("div", { class: "layer", role: "row" },
          h("span", { class: "quiet number", role: "rowheader", title: layer.module }, layer.name),
          this.buttons[l],
        ),
      ),
    );
    this.#paint();
  }

  /** @param {string} name */
  colour(name) {
    this.statistic = name;
    this.onstatistic(name);
    this.#paint();
    this.#tell();
  }

  /** Theme or choice have changed.
   * @param {AtlasLayer} layer
   * @param {number} head
   */
  show(layer, head) {
    this.chosen = [this.told.layers.indexOf(layer), head];
    this.#paint();
    this.#tell();
  }

  /** @param {string} name */
  #values(name) {
    return this.told.statistics[name]?.values ?? [];
  }

  #paint() {
    const values = this.#values(this.statistic);
    const all = values.flat().filter((value) => value !== null);
    // From the head that has least of it to the one with most.
    const low = Math.min(...all);
    const high = Math.max(...all);
    const scale = new Scale("linear", 0, high - low || 1);
    this.buttons.forEach((row, l) =>
      row.forEach((button, head) => {
        const value = values[l]?.[head] ?? null;
        const chosen = this.chosen?.[0] === l && this.chosen?.[1] === head;
        const name = t("atlas.head", { layer: this.told.layers[l].name, head });
        button.style.background = value === null ? "" : scale.colour(value - low);
        button.title = value === null ? name : `${name}: ${three(value)}`;
        button.setAttribute("aria-label", button.title);
        button.setAttribute("aria-selected", String(chosen));
        button.tabIndex = chosen ? 0 : -1;
      }),
    );
  }

  #tell() {
    if (!this.chosen) return;
    const [l, head] = this.chosen;
    const layer = this.told.layers[l];
    /** @param {string} name */
    const one = (name) =>
      h("tr", { class: name === this.statistic ? "chosen" : null },
        h("td", {}, this.told.statistics[name].explain[language()]),
        h("td", { class: "number" }, three(this.#values(name)[l]?.[head] ?? NaN)),
      );
    const open = this.numbers.querySelector("details")?.open;
    fill(
      this.numbers,
      h("div", { class: "row" },
        h("h2", {}, t("atlas.head", { layer: layer.name, head })),
        this.names.length
          ? h("span", { class: "number" }, three(this.#values(this.statistic)[l]?.[head] ?? NaN))
          : null,
      ),
      this.names.length
        ? h("details", { open },
            h("summary", {}, t("atlas.numbers")),
            h("table", {}, h("tbody", {}, this.names.map(one))),
          )
        : null,
      layer.exact ? null : h("p", { class: "quiet small" }, t("atlas.statistics only")),
    );
  }

  /** @param {KeyboardEvent} event @param {number} l @param {number} head */
  #keys(event, l, head) {
    const [dl, dh] = {
      ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0],
    }[event.key] ?? [0, 0];
    if (!dl && !dh) return;
    event.preventDefault();
    const row = this.buttons[Math.min(this.buttons.length - 1, Math.max(0, l + dl))];
    const next = row[Math.min(row.length - 1, Math.max(0, head + dh))];
    next.focus();
    next.click();
  }
}
