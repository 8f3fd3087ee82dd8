// Out of the page: what a view shows as PNG and SVG, and the view itself as one HTML file.
//
//   saveMenu(() => ({view, entry, handle, about}))    a button with a menu
//
// `about` is what /api/models told besides models. A view draws itself with
// handle.picture(painter), and tells {title, about} if it has something to say of it.
// handle.wants() are answers that the file should hold besides those the view was given, the most
// needed first; handle.kept() is what it shows that is not in the address: mount is given it as
// context.kept.

import * as api from "./api.js";
import { embedded, living, saved } from "./embedded.js";
import { along, h, sign, toast } from "./dom.js";
import { Framed } from "./framed.js";
import { CanvasPainter, SvgPainter } from "./paint.js";
import { copyLink, forPhone } from "./share.js";
import { colours, theme } from "./scale.js";
import * as state from "./state.js";
import { add, language, t } from "./words.js";

const ARROW = "M10 3v9M6 8.5l4 4 4-4M3.5 13.5V16a1 1 0 0 0 1 1h11a1 1 0 0 0 1-1v-2.5";
const [TOP, BOTTOM, SIDE] = [46, 42, 24];
const DENSITY = 2;
const SLOW = 900; // milliseconds, from which on one wonders what it does
const LONGEST = 16_000; // pixels a side, and of both 200 million: what browsers can hold
const MOST = 2e8;

add({
  en: {
    save: "Save",
    "save.menu": "Share or save this view",
    "save.card": "Card (PNG)",
    "save.card.why": "one picture with sentence, arc, answer and what they mean",
    "save.card.none": "Only Look has a card: open it there",
    "save.png": "Picture (PNG)",
    "save.svg": "Drawing (SVG)",
    "save.html": "Page (HTML)",
    "save.png.why": "twice as fine as on the screen",
    "save.svg.why": "lines and text, to any size",
    "save.html.why": "one file that works without the server",
    "save.done": "Saved as {name}",
    "save.nothing": "There is nothing to save yet",
    "save.failed": "Saving failed",
    "save.gathering": "Gathering what the page needs …",
    "saved.page": "Saved page",
    "saved.page.why":
      "This file works by itself. What was not on the screen when it was saved needs the server.",
    "saved.missing": "This is not in the saved page: it needs the server",
    "saved.missing.hint": "glasshead serve opens the model itself.",
  },
  zh: {
    save: "保存",
    "save.menu": "分享或保存当前视图",
    "save.card": "卡片（PNG）",
    "save.card.why": "一张图：句子、弧线、答案和一句说明",
    "save.card.none": "只有“看”有卡片：请到那里去",
    "save.png": "图片（PNG）",
    "save.svg": "矢量图（SVG）",
    "save.html": "网页（HTML）",
    "save.png.why": "清晰度是屏幕的两倍",
    "save.svg.why": "线条和文字，可任意放大",
    "save.html.why": "单个文件，没有服务器也能用",
    "save.done": "已保存为 {name}",
    "save.nothing": "还没有可保存的内容",
    "save.failed": "保存失败",
    "save.gathering": "正在收集网页需要的数据……",
    "saved.page": "已保存的网页",
    "saved.page.why": "这个文件可以单独使用；保存时没有显示的内容需要服务器。",
    "saved.missing": "保存的网页里没有这一项，需要服务器",
    "saved.missing.hint": "用 glasshead serve 可以打开模型本身。",
  },
});

/**
 * What is on the page.
 * @typedef {{
 *   view: View, entry: Entry | null, handle: Handle | null, about: Omit<Models, "models">,
 * }} Showing
 */

/** @type {Record<string, (shown: Showing) => Promise<Blob | null>>} */
const KINDS = {
  card: saveCard, png: savePng, svg: saveSvg, ...(saved || living ? {} : { html: saveHtml }),
};
/** @type {Record<string, () => unknown>} */
const LINKS = embedded ? {} : { link: copyLink, phone: forPhone };

/** @param {() => Showing} current */
export function saveMenu(current) {
  const items = [...Object.keys(KINDS), ...Object.keys(LINKS)].map((kind) =>
    h(
      "button",
      {
        type: "button", role: "menuitem", tabindex: -1, dataset: { kind },
        onclick: () => (shut(true), LINKS[kind] ? LINKS[kind]() : save(kind, current(), button)),
      },
      h("span", {}, t(`save.${kind}`)),
      h("span", { class: "quiet small" }, t(`save.${kind}.why`)),
    ),
  );
  const menu = h(
    "div",
    { id: "save-menu", class: "menu", role: "menu", "aria-label": t("save.menu"), hidden: true },
    items,
  );
  const button = h(
    "button",
    {
      id: "save", type: "button", class: "plain icon", title: t("save.menu"),
      "aria-label": t("save.menu"), "aria-haspopup": "menu", "aria-expanded": "false",
      "aria-controls": "save-menu", onclick: () => (menu.hidden ? open(0) : shut(true)),
    },
    sign(ARROW),
  );
  const node = h("span", { class: "save" }, button, menu);

  /** @param {0 | -1} at the first or the last */
  function open(at) {
    menu.hidden = false;
    button.setAttribute("aria-expanded", "true");
    items.at(at)?.focus();
  }

  function shut(back = false) {
    menu.hidden = true;
    button.setAttribute("aria-expanded", "false");
    if (back) button.focus();
  }

  button.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    event.preventDefault();
    open(event.key === "ArrowDown" ? 0 : -1);
  });
  menu.addEventListener("keydown", (event) => {
    if (event.key === "Escape") shut(true);
    else along(event, items);
  });
  node.addEventListener("focusout", ({ relatedTarget: to }) => {
    if (!(to instanceof Node && node.contains(to))) shut();
  });
  return node;
}

/** @param {string} kind @param {Showing} shown @param {HTMLButtonElement} button */
export async function save(kind, shown, button) {
  if (kind === "card" && !shown.handle?.card) return toast(t("save.card.none"));
  button.classList.add("busy");
  button.setAttribute("aria-busy", "true");
  try {
    const blob = await KINDS[kind](shown);
    if (!blob) return toast(t("save.nothing"));
    const parts = ["glasshead", shown.view.id, shown.entry?.name].filter(Boolean).join("-");
    const end = kind === "card" ? "-card.png" : `.${kind}`;
    const name = `${parts.replace(/[^\p{L}\p{N}._-]+/gu, "-").slice(0, 100)}${end}`;
    download(blob, name);
    toast(t("save.done", { name }));
  } catch (error) {
    toast(t("save.failed"), error.message, "bad");
  } finally {
    button.classList.remove("busy");
    button.removeAttribute("aria-busy");
  }
}

/** @param {Blob} blob @param {string} name */
function download(blob, name) {
  const link = h("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

// -- pictures --

/** What the view draws, with its title above and where it comes from below; false if it has
 * nothing to draw.
 * @param {Painter} painter
 * @param {Showing} shown
 */
function paint(painter, { view, entry, handle }) {
  const frame = new Framed(painter, TOP, BOTTOM);
  /** @type {Told} */
  const told = handle?.picture?.(frame) || {};
  if (!frame.w) return false;
  const ink = colours();
  const { w, h: high } = frame;
  painter.text(SIDE, 33, told.title || view.title(), {
    size: 17, weight: 600, fill: ink.ink, max: w - 2 * SIDE,
  });
  const foot = TOP + high + BOTTOM - 14;
  painter.line(SIDE, foot - 20, w - SIDE, foot - 20, { stroke: ink.line });
  painter.text(SIDE, foot, [entry?.name, told.about].filter(Boolean).join(" · "), {
    size: 12, fill: ink.quiet, max: w - 2 * SIDE - 80,
  });
  painter.text(w - SIDE, foot, "Glasshead", { size: 12, fill: ink.quiet, align: "right" });
  return true;
}

class FinePainter extends CanvasPainter {
  /** @type {Painter["size"]} */
  size(w, high, paper) {
    this.density = Math.min(DENSITY, LONGEST / w, LONGEST / high, Math.sqrt(MOST / (w * high)));
    return super.size(w, high, paper);
  }
}

/** @param {Showing} shown */
async function saveCard({ handle }) {
  const painter = new FinePainter();
  handle?.card?.(painter);
  return painter.w ? asPng(painter) : null;
}

/** @param {Showing} shown */
async function savePng(shown) {
  const painter = new FinePainter();
  return paint(painter, shown) ? asPng(painter) : null;
}

/** @param {CanvasPainter} painter */
async function asPng(painter) {
  /** @type {Blob | null} */
  const blob = await new Promise((done) => painter.canvas.toBlob(done, "image/png"));
  if (!blob) throw new Error(`${painter.canvas.width} × ${painter.canvas.height}`);
  return blob;
}

/** @param {Showing} shown */
async function saveSvg(shown) {
  const painter = new SvgPainter();
  if (!paint(painter, shown)) return null;
  return new Blob([painter.toString()], { type: "image/svg+xml" });
}

// -- the page --

/** @param {Showing} shown */
async function saveHtml({ view, entry, handle, about }) {
  const slow = setTimeout(() => toast(t("save.gathering")), SLOW);
  // As it is now: while the rest is gathered, one may go on, or elsewhere.
  const now = { ...state.get(), view: view.id, model: entry?.id, lang: language(), theme: theme() };
  const kept = structuredClone(handle?.kept?.() ?? null);
  const [answers, { before, after }] = await Promise.all([
    api.gather(handle?.wants?.() ?? []),
    api.get("/api/page", { keep: false }),
  ]).finally(() => clearTimeout(slow));
  answers["GET /api/models"] = {
    headers: { "content-type": "application/json" },
    json: { ...about, models: entry ? [entry] : [] },
  };
  const data = { kind: "saved", views: [view.id], state: now, kept, answers };
  // Inside of a script element only "<" could mean anything else.
  return new Blob([before, JSON.stringify(data).replaceAll("<", "\\u003c"), after], {
    type: "text/html",
  });
}
