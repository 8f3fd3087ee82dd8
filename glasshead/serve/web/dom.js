// Elements from data. Text goes in as text, never as HTML.
//
//   h("p", {class: "quiet", onclick: fn, style: {width: "3px"}, dataset: {head: 2}, "aria-label": "…"}, "text", child)

const SVG = "http://www.w3.org/2000/svg";

export function h(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") node.className = value;
    else if (name === "style" || name === "dataset") Object.assign(node[name], value);
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled" || name === "hidden") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

// One of the few signs of the page, drawn from a path on a 20 × 20 field.
export function sign(path, size = 18) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 20 20");
  svg.setAttribute("width", size);
  svg.setAttribute("height", size);
  svg.setAttribute("aria-hidden", "true");
  svg.classList.add("sign");
  const line = document.createElementNS(SVG, "path");
  line.setAttribute("d", path);
  svg.append(line);
  return svg;
}

export function fill(node, ...children) {
  node.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

// An example for an empty field. Whoever is about to type there finds it selected: what they type takes its place.
export function offer(field, text) {
  if (field.value) return;
  field.value = text;
  if (document.activeElement === field) field.select();
}

// A view's own style sheet, once: styles("views/atlas.css").
export function styles(path) {
  if (document.head.querySelector("style")) return; // a saved page has all of them
  const href = new URL(path, import.meta.url).href;
  if (![...document.querySelectorAll("link[rel=stylesheet]")].some((link) => link.href === href))
    document.head.append(h("link", { rel: "stylesheet", href }));
}

// One of a few: options are [value, text] or [value, text, why]. The element has .value; arrows move along it.
export function segmented({ label, options, value, onchange }) {
  const buttons = options.map(([name, text, why]) =>
    h("button", { type: "button", role: "radio", title: why, dataset: { value: name }, onclick: () => pick(name) }, text),
  );
  const group = h("div", { class: "segmented", role: "radiogroup", "aria-label": label }, buttons);
  const show = () => {
    for (const button of buttons) {
      const chosen = button.dataset.value === String(value);
      button.setAttribute("aria-checked", chosen);
      button.tabIndex = chosen ? 0 : -1;
    }
    if (!buttons.some((button) => button.tabIndex === 0) && buttons.length) buttons[0].tabIndex = 0;
  };
  function pick(name) {
    if (name === value) return;
    value = name;
    show();
    onchange?.(name);
  }
  group.addEventListener("keydown", (event) => {
    const at = along(event, buttons, buttons.indexOf(document.activeElement));
    if (at !== null) pick(buttons[at].dataset.value);
  });
  Object.defineProperty(group, "value", { get: () => value, set: (next) => ((value = next), show()) });
  show();
  return group;
}

// Arrow keys, Home and End in a row of elements: moves the focus, and gives the new place or null.
export function along(event, nodes, at) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  let next = null;
  if (step) next = (at + step + nodes.length) % nodes.length;
  else if (event.key === "Home") next = 0;
  else if (event.key === "End") next = nodes.length - 1;
  if (next === null || event.ctrlKey || event.metaKey || event.altKey) return null;
  event.preventDefault();
  nodes[next].focus();
  return next;
}

// options are [value, text], or {label, options} for a group. The element has .value.
export function select({ label, options, value, onchange, visible = false }) {
  const one = ([name, text, disabled]) => h("option", { value: name, disabled: Boolean(disabled) }, text);
  const node = h(
    "select",
    { "aria-label": label, onchange: () => onchange?.(node.value) },
    options.map((each) =>
      Array.isArray(each) ? one(each) : h("optgroup", { label: each.label }, each.options.map(one)),
    ),
  );
  if (value !== undefined && value !== null) node.value = value;
  if (!visible) return node;
  const whole = h("label", { class: "field" }, h("span", {}, label), node);
  Object.defineProperty(whole, "value", { get: () => node.value, set: (next) => (node.value = next) });
  return whole;
}

// A number on a line, with what it is beside it.
export function slider({ label, min, max, step, value, onchange, show = String }) {
  const told = h("output", {}, show(value));
  const input = h("input", { type: "range", min, max, step, "aria-label": label });
  input.value = value;
  input.addEventListener("input", () => {
    told.textContent = show(Number(input.value));
    onchange?.(Number(input.value));
  });
  const whole = h("label", { class: "field slider" }, h("span", {}, label), input, told);
  Object.defineProperty(whole, "value", {
    get: () => Number(input.value),
    set: (next) => ((input.value = next), (told.textContent = show(Number(next)))),
  });
  return whole;
}

// On or off.
export function toggle({ label, title, value, onchange }) {
  const input = h("input", { type: "checkbox", role: "switch", checked: value, onchange: () => onchange?.(input.checked) });
  const whole = h("label", { class: "toggle", title }, input, h("span", {}, label));
  Object.defineProperty(whole, "value", { get: () => input.checked, set: (next) => (input.checked = next) });
  return whole;
}

let toasts = null;

// A few seconds at the foot of the page: what went wrong, or was done.
export function toast(message, hint = "", kind = "note") {
  toasts ??= document.body.appendChild(h("div", { class: "toasts", role: "status", "aria-live": "polite" }));
  const one = h("div", { class: `toast ${kind}` }, h("p", {}, message), hint && h("p", { class: "quiet" }, hint));
  toasts.append(one);
  setTimeout(() => one.remove(), 6000);
}

// The one tip of the page: tip.show(event or {clientX, clientY}, ...children), tip.hide().
export const tip = {
  node: null,
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

// Words for those who do not see the picture.
export function spoken(...children) {
  return h("div", { class: "spoken" }, children);
}

// `fn` once it has been quiet for a while.
export function after(milliseconds, fn) {
  let waiting = 0;
  const call = (...args) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => fn(...args), milliseconds);
  };
  call.cancel = () => clearTimeout(waiting);
  return call;
}

// What went wrong, where the result would stand.
export function problem(error, t) {
  const unreachable = error.message === "unreachable" && error.status === 0;
  return h(
    "div",
    { class: "problem", role: "alert" },
    h("p", {}, unreachable ? t("shell.unreachable") : error.message),
    (unreachable || error.hint) && h("p", { class: "quiet" }, unreachable ? t("shell.unreachable.hint") : error.hint),
  );
}
