// Elements from data. Text goes in as text, never as HTML.
//
//   h("p", {class: "quiet", onclick: fn, style: {width: "3px"}, dataset: {head: 2}}, "text", child)

const SVG = "http://www.w3.org/2000/svg";

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Props} props
 * @param {Child[]} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function h(tag, props = {}, ...children) {
  const node = /** @type {any} */ (document.createElement(tag));
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") node.className = value;
    else if (name === "style" || name === "dataset") Object.assign(node[name], value);
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled" || name === "hidden")
      node[name] = value;
    else if (name === "title" || name === "aria-label")
      node.setAttribute(name, showDirections(String(value)));
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...there(children));
  return node;
}

/** @param {Child[]} children */
function there(children) {
  const all = /** @type {any[]} */ (children).flat(Infinity);
  return all
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (typeof child === "string" ? showDirections(child) : child));
}

/** A text in which the characters that would change the direction of what is around them are shown
 * by their codes instead.
 * @param {string} text
 */
export function showDirections(text) {
  return text.replace(/[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu, (one) => {
    const code = (one.codePointAt(0) ?? 0).toString(16).toUpperCase();
    return `⟨U+${code.padStart(4, "0")}⟩`;
  });
}

/** One of the few signs of the page, drawn from a path on a 20 × 20 field.
 * @param {string} path
 */
export function sign(path, size = 18) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 20 20");
  svg.setAttribute("width", String(size));
  svg.setAttribute("height", String(size));
  svg.setAttribute("aria-hidden", "true");
  svg.classList.add("sign");
  const line = document.createElementNS(SVG, "path");
  line.setAttribute("d", path);
  svg.append(line);
  return svg;
}

/**
 * @template {Element} T
 * @param {T} node
 * @param {Child[]} children
 */
export function fill(node, ...children) {
  node.replaceChildren(...there(children));
  return node;
}

/** An example for an empty field. Whoever is about to type there finds it selected: what they type
 * takes its place.
 * @param {HTMLInputElement | HTMLTextAreaElement} field
 * @param {string} text
 */
export function offer(field, text) {
  if (field.value) return;
  field.value = text;
  if (document.activeElement === field) field.select();
}

/** A view's own style sheet, once: styles("views/atlas.css").
 * @param {string} path
 */
export function styles(path) {
  if (document.head.querySelector("style")) return; // a saved page has all of them
  const href = new URL(path, import.meta.url).href;
  const links = /** @type {NodeListOf<HTMLLinkElement>} */ (
    document.querySelectorAll("link[rel=stylesheet]")
  );
  if (![...links].some((link) => link.href === href))
    document.head.append(h("link", { rel: "stylesheet", href }));
}

/** One of a few: options are [value, text] or [value, text, why]. The element has .value; arrows
 * move along it.
 * @param {{label: Child, options: Choice[], value?: any, onchange?: (value: any) => void}} of
 * @returns {Valued<any>}
 */
export function segmented({ label, options, value, onchange }) {
  const buttons = options.map(([name, text, why]) =>
    h("button", {
      type: "button", role: "radio", title: why, dataset: { value: name },
      onclick: () => pick(name),
    }, text),
  );
  const group = h("div", { class: "segmented", role: "radiogroup", "aria-label": label }, buttons);
  const show = () => {
    for (const button of buttons) {
      const chosen = button.dataset.value === String(value);
      button.setAttribute("aria-checked", String(chosen));
      button.tabIndex = chosen ? 0 : -1;
    }
    if (!buttons.some((button) => button.tabIndex === 0) && buttons.length) buttons[0].tabIndex = 0;
  };
  /** @param {any} name */
  function pick(name) {
    if (name === value) return;
    value = name;
    show();
    onchange?.(name);
  }
  group.addEventListener("keydown", (event) => {
    const at = along(event, buttons);
    if (at !== null) pick(buttons[at].dataset.value);
  });
  show();
  return valued(group, () => value, (next) => {
    value = next;
    show();
  });
}

/** An element that has a value as a field has it.
 * @template T
 * @param {HTMLElement} node
 * @param {() => T} get
 * @param {(value: T) => void} set
 * @returns {Valued<T>}
 */
function valued(node, get, set) {
  Object.defineProperty(node, "value", { get, set });
  return /** @type {Valued<T>} */ (node);
}

/** Arrow keys, Home and End in a row of elements: moves the focus, and gives the new place or null.
 * @param {KeyboardEvent} event
 * @param {HTMLElement[]} nodes
 * @param {number} at the one that has the focus, unless told
 */
export function along(event, nodes, at = nodes.findIndex((one) => one === document.activeElement)) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  /** @type {number | null} */
  let next = null;
  if (step) next = (at + step + nodes.length) % nodes.length;
  else if (event.key === "Home") next = 0;
  else if (event.key === "End") next = nodes.length - 1;
  if (next === null || event.ctrlKey || event.metaKey || event.altKey) return null;
  event.preventDefault();
  nodes[next].focus();
  return next;
}

/** One of many: options are [value, text, disabled], or {label, options} for a group.
 * @param {{
 *   label: string, options: (Choice | Choices)[], value?: string | number | null,
 *   onchange?: (value: string) => void, visible?: boolean,
 * }} of
 * @returns {Valued<string>}
 */
export function select({ label, options, value, onchange, visible = false }) {
  /** @param {Choice} choice */
  const one = ([name, text, disabled]) =>
    h("option", { value: name, disabled: Boolean(disabled) }, text);
  const node = h("select", { "aria-label": label, onchange: () => onchange?.(node.value) },
    options.map((each) =>
      Array.isArray(each)
        ? one(each)
        : h("optgroup", { label: each.label }, each.options.map(one)),
    ),
  );
  if (value !== undefined && value !== null) node.value = String(value);
  if (!visible) return node;
  const whole = h("label", { class: "field" }, h("span", {}, label), node);
  return valued(whole, () => node.value, (next) => {
    node.value = next;
  });
}

/** A number on a line, with what it is beside it.
 * @param {{
 *   label: string, min: number, max: number, step: number, value: number,
 *   onchange?: (value: number) => void, show?: (value: number) => string,
 * }} of
 */
export function slider({ label, min, max, step, value, onchange, show = String }) {
  const told = h("output", {}, show(value));
  const input = h("input", { type: "range", min, max, step, "aria-label": label });
  input.value = String(value);
  input.addEventListener("input", () => {
    told.textContent = show(Number(input.value));
    onchange?.(Number(input.value));
  });
  const whole = h("label", { class: "field slider" }, h("span", {}, label), input, told);
  return valued(whole, () => Number(input.value), (next) => {
    input.value = String(next);
    told.textContent = show(Number(next));
  });
}

/** On or off.
 * @param {{
 *   label: string, title?: string, value: boolean, onchange?: (on: boolean) => void,
 * }} of
 */
export function toggle({ label, title, value, onchange }) {
  const input = h("input", {
    type: "checkbox", role: "switch", checked: value, onchange: () => onchange?.(input.checked),
  });
  const whole = h("label", { class: "toggle", title }, input, h("span", {}, label));
  return valued(whole, () => input.checked, (next) => {
    input.checked = next;
  });
}

/** @type {HTMLElement | null} */
let toasts = null;

/** A few seconds at the foot of the page: what went wrong, or was done.
 * @param {string} message
 * @param {string} hint
 */
export function toast(message, hint = "", kind = "note") {
  toasts ??= document.body.appendChild(
    h("div", { class: "toasts", role: "status", "aria-live": "polite" }),
  );
  const one = h("div", { class: `toast ${kind}` },
    h("p", {}, message),
    hint && h("p", { class: "quiet" }, hint),
  );
  toasts.append(one);
  setTimeout(() => one.remove(), 6000);
}

// The one tip of the page: tip.show(event or {clientX, clientY}, ...children), tip.hide().
export const tip = {
  node: /** @type {HTMLElement | null} */ (null),
  /** @param {Spot} at @param {Child[]} children */
  show({ clientX, clientY }, ...children) {
    this.node ??= document.body.appendChild(h("div", { class: "tip", "aria-hidden": "true" }));
    fill(this.node, ...children);
    this.node.hidden = false;
    const { offsetWidth: w, offsetHeight: hi } = this.node;
    const x = clientX + 14 + w > innerWidth ? clientX - 14 - w : clientX + 14;
    const y = clientY + 16 + hi > innerHeight ? clientY - 12 - hi : clientY + 16;
    this.node.style.transform = `translate(${Math.max(4, x)}px, ${Math.max(4, y)}px)`;
  },
  hide() {
    if (this.node) this.node.hidden = true;
  },
};

/** Words for those who do not see the picture.
 * @param {Child[]} children
 */
export function spoken(...children) {
  return h("div", { class: "spoken" }, children);
}

/** `fn` once it has been quiet for a while.
 * @param {number} milliseconds
 * @param {(...args: any[]) => void} fn
 * @returns {Later}
 */
export function after(milliseconds, fn) {
  let waiting = 0;
  /** @param {any[]} args */
  const call = (...args) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => fn(...args), milliseconds);
  };
  call.cancel = () => clearTimeout(waiting);
  return call;
}

/** What went wrong, where the result would stand.
 * @param {Failure} error
 * @param {(key: string) => string} t
 */
export function problem(error, t) {
  const unreachable = error.message === "unreachable" && error.status === 0;
  const hint = unreachable ? t("shell.unreachable.hint") : error.hint;
  return h("div", { class: "problem", role: "alert" },
    h("p", {}, unreachable ? t("shell.unreachable") : error.message),
    hint && h("p", { class: "quiet" }, hint),
  );
}
