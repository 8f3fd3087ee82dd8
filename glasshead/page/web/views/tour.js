// Guided tours: a menu of them, and the panel that leads through one on the models that are there.
//
//   const tours = guide({entries: () => [...], api});
//   tours.button()       for the header
//   tours.follow()       shows the step that the address names: #tour=one&step=3, or /?tour=one

import { along, fill, h, sign, styles } from "../dom.js";
import { embedded } from "../embedded.js";
import * as state from "../state.js";
import { t } from "../words.js";
import { TOURS } from "./tour_list.js";
import "./tour_words.js";

/** @import { Step, Tour } from "./tour_list.js" */

const FLAG = "M5 18V3M5 4h10l-2.5 3.5L15 11H5";
const TRACKED = 120; // milliseconds between two looks at where a part of the page is
const RING = 6; // pixels around it
const ANSWERS = ".answer .said .large b"; // before a cut, and after it

/** The first element, and the box around all of them: null where nothing is to be seen.
 * @param {string} selector
 * @returns {[Element | null, DOMRect | null]}
 */
function around(selector) {
  const nodes = [...document.querySelectorAll(selector)];
  const boxes = nodes.map((one) => one.getBoundingClientRect()).filter((box) => box.width);
  if (!boxes.length) return [null, null];
  const [left, top] = [Math.min(...boxes.map((b) => b.left)), Math.min(...boxes.map((b) => b.top))];
  const right = Math.max(...boxes.map((b) => b.right));
  const bottom = Math.max(...boxes.map((b) => b.bottom));
  return [nodes[0], new DOMRect(left, top, right - left, bottom - top)];
}

/** @param {{entries: () => Entry[], api: typeof import("../api.js")}} of */
export function guide({ entries, api }) {
  styles("views/tour.css");
  const panel = h("section", { class: "tour", role: "dialog", "aria-live": "polite" });
  const ring = h("div", { class: "tour-ring" });
  let shown = ""; // tour, step and language on the panel
  let entered = ""; // the value of what the reader is asked to change, when they were asked
  let timer = 0;
  /** @type {Element | null} */
  let pointed = null;

  const whole = () => entries().filter((one) => one.kind !== "broken");

  /** The tour and step of an address; null for none that is possible here.
   * @param {Where} now
   */
  function current(now) {
    const tour = TOURS.find((one) => one.id === now.tour);
    if (!tour || embedded || !tour.model(whole())) return null;
    const n = Math.min(tour.steps.length, Math.max(1, Number(now.step) || 1));
    return { tour, n, step: tour.steps[n - 1] };
  }

  /** Goes to a step: the address says all that the steps before it set.
   * @param {Tour} tour
   * @param {number} n
   */
  async function go(tour, n) {
    const now = state.get();
    const began = now.tour === tour.id && now.step !== undefined;
    if (began && n > Number(now.step))
      return state.set({ step: n, ...tour.steps[n - 1].set }, { push: true });
    const entry = /** @type {Entry} */ (tour.model(whole()));
    const patch = Object.assign({}, tour.start, ...tour.steps.slice(0, n).map((one) => one.set));
    if (tour.text && entry.kind !== "glass") {
      const path = `/api/look/examples?${api.query({ model: entry.id })}`;
      const { examples } = await api.get(path);
      /** @type {{text: string}[]} */
      const texts = examples;
      patch.text = tour.text(texts.map((one) => one.text));
    }
    state.set({ ...patch, model: entry.id, tour: tour.id, step: n }, { push: true });
  }

  function end() {
    state.set({ tour: null, step: null });
  }

  /** Does what the reader was asked to do, if they have not, and goes on.
   * @param {Tour} tour
   * @param {number} n
   */
  function next(tour, n) {
    const { act, key } = tour.steps[n - 1];
    if (n === tour.steps.length) return end();
    const undone = act && key && (state.get()[key] ?? "") === entered;
    const target = undone ? document.querySelector(act) : null;
    if (!target) return void go(tour, n + 1);
    target.dispatchEvent(new MouseEvent("click", { bubbles: true })); // which goes on by itself
  }

  function follow(now = state.get()) {
    const found = current(now);
    if (!found) return close();
    const { tour, n, step } = found;
    if (now.step === undefined) return void go(tour, 1); // a link names the tour alone
    const name = [tour.id, n, document.documentElement.lang].join();
    if (name !== shown) {
      shown = name;
      entered = now[step.key ?? ""] ?? "";
      pointed = null;
      if (!panel.isConnected) document.body.append(ring, panel); // or it could not get the focus
      draw(tour, n);
      clearInterval(timer);
      timer = setInterval(() => track(tour, n), TRACKED);
      track(tour, n);
    } else if (step.key && (now[step.key] ?? "") !== entered) {
      const later = n + 1;
      // After the view has taken the change in.
      setTimeout(() => current(state.get())?.n === n && go(tour, later), 0);
    }
  }

  /** @param {Tour} tour @param {number} n */
  function draw(tour, n) {
    const last = n === tour.steps.length;
    const forward = h("button", {
      type: "button", class: "primary", onclick: () => next(tour, n),
    }, t(last ? "tour.done" : tour.steps[n - 1].act ? "tour.do" : "tour.next"));
    const others = last ? TOURS.filter((one) => one !== tour && one.model(whole())) : [];
    const following = others.find((one) => TOURS.indexOf(one) > TOURS.indexOf(tour)) ?? others[0];
    panel.setAttribute("aria-label", t(`tour.${tour.id}`));
    fill(panel,
      h("header", {},
        h("h2", {}, t(`tour.${tour.id}`)),
        h("span", { class: "quiet small number" }, `${n} / ${tour.steps.length}`),
        h("button", { type: "button", class: "plain leave", onclick: end }, t("tour.skip")),
      ),
      h("p", { class: "tour-text" }, text(tour, n)),
      h("footer", {},
        h("span", { class: "dots", "aria-hidden": "true" },
          tour.steps.map((_, i) =>
            h("i", { class: i + 1 === n ? "now" : i + 1 < n ? "past" : "" }),
          ),
        ),
        n > 1 && h("button", {
          type: "button", class: "plain", onclick: () => go(tour, n - 1),
        }, t("tour.back")),
        following && h("button", {
          type: "button", onclick: () => go(following, 1),
        }, t(`tour.${following.id}`)),
        forward,
      ),
    );
    forward.focus({ preventScroll: true });
  }

  /** What a step says, with what stands on the page.
   * @param {Tour} tour
   * @param {number} n
   */
  function text(tour, n) {
    const answers = [...document.querySelectorAll(ANSWERS)].map((one) => one.textContent);
    const heads = document.querySelectorAll(".strip[data-head]").length;
    return t(`tour.${tour.id}.${n}`, {
      before: answers[0] ?? "…", answer: answers.at(-1) ?? "…", heads: heads || "…",
    });
  }

  /** Keeps the ring around what is pointed at, wherever it moves, and the figures of the text true.
   * @param {Tour} tour
   * @param {number} n
   */
  function track(tour, n) {
    const words = text(tour, n);
    const said = panel.querySelector(".tour-text");
    if (said && said.textContent !== words) said.textContent = words;
    const [node, box] = around(tour.steps[n - 1].at);
    ring.hidden = !box;
    if (!box) return;
    if (node !== pointed) {
      pointed = node;
      const free = innerHeight - (innerWidth <= 560 ? panel.offsetHeight : 0);
      const top = box.top + scrollY - Math.max(110, (free - box.height) / 2);
      if (box.top < 70 || box.bottom > free - 10)
        scrollTo({ top, behavior: "instant" });
      return track(tour, n);
    }
    Object.assign(ring.style, {
      left: `${box.left - RING}px`, top: `${box.top - RING}px`,
      width: `${box.width + 2 * RING}px`, height: `${box.height + 2 * RING}px`,
    });
    const under = box.bottom > innerHeight - panel.offsetHeight - 30;
    panel.classList.toggle("left", under && box.left > panel.offsetWidth + 40);
  }

  function close() {
    if (!shown) return;
    shown = "";
    clearInterval(timer);
    panel.remove();
    ring.remove();
  }

  /** The menu of tours. */
  function button() {
    if (embedded) return null; // a tour needs the models
    const items = TOURS.map((tour) => {
      const possible = Boolean(tour.model(whole()));
      return h("button", {
        type: "button", role: "menuitem", tabindex: -1, dataset: { tour: tour.id },
        "aria-disabled": possible ? null : "true",
        onclick: () => possible && (shut(), go(tour, 1)),
      },
      h("span", {}, t(`tour.${tour.id}`)),
      h("span", { class: "quiet small" }, t(possible ? `tour.${tour.id}.why` : "tour.none")));
    });
    const menu = h("div", {
      id: "tour-menu", class: "menu", role: "menu", "aria-label": t("tour.menu"), hidden: true,
    }, items);
    const opener = h("button", {
      id: "tour", type: "button", class: "plain tour-button", title: t("tour.menu"),
      "aria-haspopup": "menu", "aria-expanded": "false", "aria-controls": "tour-menu",
      onclick: () => (menu.hidden ? open() : shut(true)),
    }, sign(FLAG), h("span", {}, t("tour.open")));
    const node = h("span", { class: "tours" }, opener, menu);
    function open() {
      menu.hidden = false;
      opener.setAttribute("aria-expanded", "true");
      items[0].focus();
    }
    function shut(back = false) {
      menu.hidden = true;
      opener.setAttribute("aria-expanded", "false");
      if (back) opener.focus();
    }
    menu.addEventListener("keydown", (event) => {
      if (event.key === "Escape") shut(true);
      else along(event, items);
    });
    node.addEventListener("focusout", ({ relatedTarget: to }) => {
      if (!(to instanceof Node && node.contains(to))) shut();
    });
    return node;
  }

  panel.addEventListener("keydown", (event) => event.key === "Escape" && end());
  const linked = new URLSearchParams(location.search).get("tour");
  if (linked && !embedded) {
    // From now on the address tells it as it tells the rest, and a reload begins no tour anew.
    history.replaceState(null, "", location.pathname + location.hash);
    if (!state.get().tour) state.set({ tour: linked });
  }
  return { button, follow };
}
