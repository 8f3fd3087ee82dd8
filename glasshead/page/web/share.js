// The page's address, for others and for a phone.

import * as api from "./api.js";
import { fill, h, problem, toast } from "./dom.js";
import { pen } from "./paint.js";
import { add, t } from "./words.js";

const MODULE = 6; // pixels of a module of the QR code
const QUIET = 4; // modules around it

add({
  en: {
    "save.link": "Link",
    "save.link.why": "the address that shows this view",
    "save.phone": "On a phone",
    "save.phone.why": "a QR code, for a phone in the same network",
    "share.copied": "Link copied",
    "share.copied.hint": "It works where this server can be reached.",
    "share.copy": "Copy this address:",
    "share.scan": "Scan this with a phone in the same network.",
    "share.key": "The address has this server's key in it: whoever has it can use the models.",
    "share.part": "The text is too long for the code: it opens the page alone.",
    "share.closed": "This server answers this machine alone",
    "share.closed.hint": "Start it so that your network can reach it. It makes a key by itself:",
    "share.close": "Close",
    "share.code": "QR code of the address",
  },
  zh: {
    "save.link": "链接",
    "save.link.why": "打开就是现在这个画面",
    "save.phone": "在手机上看",
    "save.phone.why": "二维码，手机须在同一个网络里",
    "share.copied": "链接已复制",
    "share.copied.hint": "在能连上这台服务器的地方有效。",
    "share.copy": "复制这个地址：",
    "share.scan": "用同一个网络里的手机扫一扫。",
    "share.key": "地址里有这台服务器的密钥：谁拿到它，谁就能用这些模型。",
    "share.part": "文字太长，二维码里放不下：扫了只打开首页。",
    "share.closed": "这台服务器只对本机开放",
    "share.closed.hint": "换成网络里都能连的方式启动，它会自己生成密钥：",
    "share.close": "关闭",
    "share.code": "地址的二维码",
  },
});

export async function copyLink() {
  try {
    await navigator.clipboard.writeText(location.href);
    toast(t("share.copied"), t("share.copied.hint"));
  } catch {
    // Without https, or another window in front, the clipboard is closed.
    const field = h("input", { value: location.href, readonly: true });
    show(h("p", {}, t("share.copy")), field);
    field.select();
  }
}

export async function forPhone() {
  try {
    const path = `/api/phone?${api.query({ hash: location.hash.slice(0, 4000) })}`;
    const { url, rows, whole, command } = await api.get(path, { keep: false });
    if (!url)
      return show(
        h("h2", {}, t("share.closed")),
        h("p", {}, t("share.closed.hint")),
        h("pre", {}, command),
      );
    show(
      h("p", {}, t("share.scan")),
      qrCode(rows),
      h("p", { class: "small address" }, url),
      !whole && h("p", { class: "quiet small" }, t("share.part")),
      url.includes("?key=") && h("p", { class: "quiet small" }, t("share.key")),
    );
  } catch (error) {
    show(problem(error, t));
  }
}

/** Dark on white, whatever the theme: cameras know it so.
 * @param {string[]} rows of 0 and 1
 */
function qrCode(rows) {
  const size = (rows.length + 2 * QUIET) * MODULE;
  const canvas = h("canvas", {
    width: size, height: size, role: "img", "aria-label": t("share.code"),
  });
  const on = pen(canvas);
  on.fillStyle = "#fff";
  on.fillRect(0, 0, size, size);
  on.fillStyle = "#000";
  rows.forEach((row, y) =>
    [...row].forEach((one, x) => {
      if (one === "1") on.fillRect((x + QUIET) * MODULE, (y + QUIET) * MODULE, MODULE, MODULE);
    }),
  );
  return canvas;
}

/** @param {Child[]} children */
function show(...children) {
  const dialog = h("dialog", { class: "card sharing", onclose: () => dialog.remove() });
  const close = h("button", { type: "button", onclick: () => dialog.close() }, t("share.close"));
  document.body.append(fill(dialog, children, h("p", {}, close)));
  dialog.showModal();
}
