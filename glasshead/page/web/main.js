// The page's shell: which model, which view, which language, by day or by night.

import * as api from "./api.js";
import { embedded, saved } from "./embedded.js";
import { along, fill, h, problem, select, sign, toast } from "./dom.js";
import { livingChip } from "./living.js";
import { save, saveMenu } from "./save.js";
import * as state from "./state.js";
import { language, setLanguage, t } from "./words.js";
import "./shell_words.js";
import atlas from "./views/atlas.js";
import look from "./views/look.js";
import runs from "./views/runs.js";
import steps from "./views/steps.js";
import { guide } from "./views/tour.js";
import translate from "./views/translate.js";
import write from "./views/write.js";

/** @type {View[]} */
const ALL = [look, atlas, steps, write, translate, runs];
const VIEWS = ALL.filter((one) => !embedded || embedded.views.includes(one.id));
const PREFERRED = ["reader", "translator", "gpt", "encoder", "transformers", "glass"];
const SUN =
  "M10 3V1M10 19v-2M3 10H1M19 10h-2M5 5 3.6 3.6M16.4 16.4 15 15M5 15l-1.4 1.4M16.4 3.6 15 5" +
  "M14 10a4 4 0 1 1-8 0 4 4 0 0 1 8 0";
const MOON = "M16.5 12.5A7 7 0 0 1 7.5 3.5a7 7 0 1 0 9 9";
const AUTO = "M10 2.5a7.5 7.5 0 1 0 0 15zM10 2.5a7.5 7.5 0 0 1 0 15";

const header = part("header");
const main = part("view");
const skip = part("skip");
const night = matchMedia("(prefers-color-scheme: dark)");
/** @type {Entry[]} */
let entries = [];
/** @type {Omit<Models, "models">} what else /api/models told */
let about = {};
/** @type {{key: string, view: View, entry: Entry | null, handle: Handle | null} | null} */
let mounted = null;
let tried = false; // a key that was typed
const tours = guide({ entries: () => entries, api });

skip.addEventListener("click", (event) => {
  event.preventDefault(); // the address says something else
  main.focus();
});
main.addEventListener("share", () => {
  if (!mounted) return;
  save("card", showing(mounted.entry), /** @type {HTMLButtonElement} */ (part("save")));
});
start();

/** One that is there: index.html has it, or it was drawn.
 * @param {string} id
 */
function part(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}

async function start() {
  dress();
  try {
    ({ models: entries, ...about } = await api.get("/api/models"));
  } catch (error) {
    return error.status === 401 ? askForKey(tried) : failed(error);
  }
  state.on(changed);
  night.addEventListener("change", () => changed(state.get(), new Set(["theme"])));
  draw();
  tours.follow();
}

// -- language and theme --

/** @param {string} name */
function remembered(name) {
  try {
    return localStorage.getItem(`glasshead.${name}`);
  } catch {
    return null; // a browser that keeps nothing
  }
}

/** @param {string} name @param {string | null} value */
function remember(name, value) {
  try {
    if (value) localStorage.setItem(`glasshead.${name}`, value);
    else localStorage.removeItem(`glasshead.${name}`);
  } catch {
    // then only the address knows
  }
}

function dress() {
  const { lang, theme } = state.get();
  setLanguage(lang ?? remembered("lang") ?? (navigator.language.startsWith("zh") ? "zh" : "en"));
  document.documentElement.lang = language() === "zh" ? "zh-Hans" : "en";
  const wanted = theme ?? remembered("theme");
  document.documentElement.dataset.theme =
    wanted === "dark" || wanted === "light" ? wanted : night.matches ? "dark" : "light";
  skip.textContent = t("shell.skip");
}

// -- what is shown --

function chosen(now = state.get()) {
  const whole = entries.filter((entry) => entry.kind !== "broken");
  const view =
    VIEWS.find((one) => one.id === now.view) ??
    VIEWS.find((one) => whole.some((e) => one.fits(e))) ??
    VIEWS[0];
  const named = entries.find((entry) => entry.id === now.model);
  if (named) return { view, entry: named };
  // Of models of a kind, one that reads the language of the page comes first.
  /** @param {Entry} one */
  const rank = (one) => 2 * PREFERRED.indexOf(one.kind) + Number(one.reads !== language());
  const order = [...whole].sort((a, b) => rank(a) - rank(b));
  return { view, entry: order.find((entry) => view.fits(entry)) ?? order[0] ?? null };
}

/** @param {Where} now @param {Set<string>} keys */
function changed(now, keys) {
  dress();
  tours.follow(now);
  if (["view", "model", "lang"].some((key) => keys.has(key))) return draw();
  if (keys.has("theme")) drawHeader();
  mounted?.handle?.update?.(now);
}

function draw() {
  const { view, entry } = chosen();
  const key = [view.id, entry?.id, language()].join("\n");
  if (mounted?.key === key) {
    drawHeader();
    return mounted.handle?.update?.(state.get());
  }
  // In another language, or out of a file, a view goes on from what it showed.
  const kept = !mounted
    ? embedded?.kept
    : mounted.view === view && mounted.entry === entry
      ? mounted.handle?.kept?.()
      : null;
  mounted?.handle?.unmount?.();
  api.forget();
  mounted = { key, view, entry, handle: null };
  drawHeader();
  const root = h("section", {
    class: `view ${view.id}`, role: "tabpanel", "aria-labelledby": `tab-${view.id}`,
  });
  fill(main, root);
  document.title = `${view.title()} · Glasshead`;
  if (!entry && view !== runs) return root.append(empty());
  if (entry?.kind === "broken") return root.append(broken(entry));
  if (entry && !view.fits(entry)) return root.append(misfit(view, entry));
  mounted.handle = view.mount(root, {
    entry: /** @type {Entry} */ (entry), // runs needs none
    entries, limits: about.limits ?? {}, state, api, t, kept: kept ?? null,
  });
}

function drawHeader() {
  const { view, entry } = chosen();
  const focused = document.activeElement?.id;
  const named = state.get().theme ?? remembered("theme");
  const wanted = named === "light" || named === "dark" ? named : "auto";
  const next = { auto: "light", light: "dark", dark: "auto" }[wanted];
  const other = language() === "zh" ? "en" : "zh";
  fill(
    header,
    h("a", { class: "brand", href: "#", "aria-label": "Glasshead", onclick: home },
      mark(),
      h("span", {}, "Glasshead"),
    ),
    tabs(view),
    h("div", { class: "settings" },
      saved && h("span", { class: "chip quiet", title: t("saved.page.why") }, t("saved.page")),
      livingChip(),
      embedded
        ? entry && h("span", { class: "named" }, entry.name)
        : entries.length
          ? picker(entry)
          : null,
      entries.length > 0 && tours.button(),
      h(
        "button",
        {
          id: "language", type: "button", class: "plain", lang: other === "zh" ? "zh-Hans" : "en",
          "aria-label": t("shell.language"), onclick: () => keep("lang", other),
        },
        other === "zh" ? "中文" : "EN",
      ),
      h(
        "button",
        {
          id: "theme", type: "button", class: "plain icon", title: t(`shell.theme.${wanted}`),
          "aria-label": t(`shell.theme.${wanted}`),
          onclick: () => keep("theme", next === "auto" ? null : next),
        },
        sign({ auto: AUTO, light: SUN, dark: MOON }[wanted]),
      ),
      h("span", { id: "actions" },
        mounted && saveMenu(() => showing(view === runs ? null : entry)),
      ),
    ),
  );
  // On a phone not all tabs fit: the chosen one is in sight.
  const tab = part(`tab-${view.id}`);
  const row = /** @type {HTMLElement} */ (tab.parentNode);
  row.scrollLeft = tab.offsetLeft - row.offsetLeft - (row.clientWidth - tab.offsetWidth) / 2;
  if (focused) document.getElementById(focused)?.focus();
}

/** @param {Entry | null} entry */
function showing(entry) {
  const { view, handle } = /** @type {NonNullable<typeof mounted>} */ (mounted);
  return { view, handle, entry, about };
}

/** @param {string} name @param {string | null} value */
function keep(name, value) {
  remember(name, value);
  state.set({ [name]: value });
  // The address may have said nothing before.
  if (name === "theme") changed(state.get(), new Set(["theme"]));
}

/** @param {Event} event */
function home(event) {
  event.preventDefault();
  state.set({ view: VIEWS[0].id }, { push: true });
}

function mark() {
  const svg = sign("M2.5 15C2.5 3 17.5 3 17.5 15M7 15c0-6 10.5-6 10.5 0", 26);
  svg.classList.add("mark");
  return svg;
}

/** @param {View} view */
function tabs(view) {
  const buttons = VIEWS.map((one) => {
    const possible =
      one === runs || entries.some((entry) => entry.kind !== "broken" && one.fits(entry));
    return h(
      "button",
      {
        id: `tab-${one.id}`, type: "button", role: "tab",
        "aria-selected": one === view ? "true" : "false", "aria-controls": "view",
        tabindex: one === view ? 0 : -1, class: possible ? null : "unfit",
        title: possible ? null : t("shell.nothing fits"), onclick: () => go(one),
      },
      one.title(),
    );
  });
  const named = { class: "tabs", role: "tablist", "aria-label": t("shell.views") };
  const list = h("div", named, buttons);
  list.addEventListener("keydown", (event) => along(event, buttons));
  return list;
}

/** A view for which this model is not made takes the first that fits.
 * @param {View} view
 */
function go(view) {
  const { entry } = chosen();
  const other = entries.find((one) => one.kind !== "broken" && view.fits(one));
  const fits = view === runs || (entry && entry.kind !== "broken" && view.fits(entry));
  if (fits || !other) return state.set({ view: view.id }, { push: true }); // or what it needs
  toast(t("shell.switched", { model: other.name, view: view.title() }));
  state.set(
    { view: view.id, model: other.id, text: null, layer: null, head: null, query: null },
    { push: true },
  );
}

/** @param {Entry | null} entry */
function picker(entry) {
  const kinds = [...PREFERRED, "broken"].filter((kind) => entries.some((one) => one.kind === kind));
  const others = entries.filter((one) => !kinds.includes(one.kind));
  /** @param {Entry[]} list @returns {Choice[]} */
  const of = (list) => list.map((one) => [one.id, one.name]);
  const groups = kinds.map((kind) => ({
    label: t(`kind.${kind}`), options: of(entries.filter((e) => e.kind === kind)),
  }));
  const node = select({
    label: t("shell.model"),
    value: entry?.id,
    options: [...groups, ...of(others)],
    onchange: (model) =>
      state.set({ model, layer: null, head: null, query: null, text: null }, { push: true }),
  });
  node.id = "model";
  return node;
}

// -- when there is nothing to show --

function empty() {
  return h(
    "div",
    { class: "empty" },
    h("h1", {}, t("shell.empty")),
    h("p", {}, t("shell.empty.hint")),
    h("pre", {}, "glasshead train --minutes 5 --out runs/first\nglasshead serve runs"),
  );
}

/** @param {Entry} entry */
function broken(entry) {
  return h(
    "div",
    { class: "empty" },
    h("h1", {}, t("shell.broken", { name: entry.name })),
    h("p", { class: "quiet" }, entry.reason ?? ""),
  );
}

/** @param {View} view @param {Entry} entry */
function misfit(view, entry) {
  const fitting = entries.filter((one) => one.kind !== "broken" && view.fits(one));
  /** @param {Entry} one */
  const go = (one) => () => state.set({ model: one.id }, { push: true });
  return h("div", { class: "empty" },
    h("h1", {}, t("shell.misfit", { view: view.title(), name: entry.name })),
    fitting.length
      ? h("p", { class: "row" },
          t("shell.misfit.hint"),
          fitting
            .slice(0, 6)
            .map((one) => h("button", { type: "button", onclick: go(one) }, one.name)),
        )
      : [h("p", { class: "quiet" }, t("shell.nothing fits")), howToTrain(view)],
  );
}

/** How to get a model for a view that none here is made for.
 * @param {View} view
 */
function howToTrain(view) {
  const what = { write: "book.txt", translate: "--pairs pairs.tsv" }[view.id];
  return what && [
    h("p", {}, t(`shell.train.${view.id}`)),
    h("pre", {}, `glasshead train ${what} --out runs/mine\nglasshead serve runs`),
  ];
}

/** @param {Failure} error */
function failed(error) {
  drawHeader();
  fill(
    main,
    problem(error, t),
    h("button", { type: "button", onclick: () => location.reload() }, t("shell.again")),
  );
}

/** @param {boolean} wrong */
function askForKey(wrong) {
  drawHeader();
  const field = h("input", { type: "password", autocomplete: "off", "aria-label": t("shell.key") });
  const form = h(
    "form",
    { class: "empty" },
    h("h1", {}, t("shell.key")),
    h("p", { class: "quiet" }, t("shell.key.hint")),
    wrong && h("p", { role: "alert" }, t("shell.key.wrong")),
    h("p", { class: "row" },
      field,
      h("button", { type: "submit", class: "primary" }, t("shell.key.go")),
    ),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    tried = true;
    const key = field.value.trim();
    // No header can carry anything else, and no server has it.
    if (!/^[!-~]+$/.test(key)) return askForKey(true);
    api.setKey(key);
    start();
  });
  fill(main, form);
  field.focus();
}
