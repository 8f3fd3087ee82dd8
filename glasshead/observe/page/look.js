// Draws what the page's data says; computes no weight itself.

/** One that look.html has.
 * @param {string} selector
 */
const part = (selector) => /** @type {HTMLElement} */ (document.querySelector(selector));

/** What picture_html.py wrote, its maps unpacked below.
 * @typedef {"linear" | "log" | "ratio"} Kind
 * @typedef {{
 *   R: number, C: number, name: string, label: string, cell: number, ends: [string, string],
 *   rowNames: string[] | null, colNames: string[] | null,
 *   shades: Uint8Array, values: Float32Array | Uint8Array,
 * }} WeightMap
 * @typedef {{
 *   kind: "map" | "grid" | "bars" | "heat", title: string, notes: string[], unit: string,
 *   scale: Kind, text: {keys: string, queries: string}, maps: WeightMap[], statistics: WeightMap[],
 *   layers: [name: string, maps: number[]][], chosen?: number, statistic?: number,
 * }} Sheet
 */

const packed = JSON.parse(part("#data").textContent);
/** @type {Sheet} */
const data = packed;
const text = data.text;
const main = part("main");
const tip = part("#tip");

/** @param {string} base64 */
const bytes = (base64) => Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
for (const map of [...packed.maps, ...packed.statistics]) {
  map.shades = bytes(map.shades);
  map.values = new Float32Array(bytes(map.values).buffer);
  map.rowNames = map.rows === null ? null : packed.labels[map.rows];
  map.colNames = map.cols === null ? null : packed.labels[map.cols];
}
/** @type {Record<string, {light: Uint8Array, dark: Uint8Array}>} */
const palettes = {};
for (const kind in packed.palettes) {
  const { light, dark } = packed.palettes[kind];
  palettes[kind] = { light: bytes(light), dark: bytes(dark) };
}

const root = document.documentElement;
const system = matchMedia("(prefers-color-scheme: dark)");
/** @returns {"light" | "dark"} */
const theme = () =>
  /** @type {"light" | "dark" | undefined} */ (root.dataset.theme) ??
  (system.matches ? "dark" : "light");
/** @param {string} name */
const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
/** @param {number} shade @param {Kind} kind */
const rgb = (shade, kind = data.scale) => [
  ...palettes[kind][theme()].slice(3 * shade, 3 * shade + 3),
];
/** @param {number[]} colour */
const isDark = ([r, g, b]) => 0.3 * r + 0.6 * g + 0.1 * b < 140;
/** @param {number} value */
const exact = (value) => (Number.isNaN(value) ? "–" : String(Number(value.toPrecision(6))));

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {HTMLElement | null} parent
 * @returns {HTMLElementTagNameMap[K]}
 */
function make(tag, parent, content = "", className = "") {
  const element = document.createElement(tag);
  element.textContent = content;
  if (className) element.className = className;
  parent?.append(element);
  return element;
}

/** @param {MouseEvent} event @param {string} content */
function showTip(event, content) {
  tip.textContent = content;
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.min(event.clientX + 14, innerWidth - width - 8)}px`;
  tip.style.top = `${Math.max(8, event.clientY - height - 10)}px`;
}
const hideTip = () => { tip.hidden = true; };

/** What draws on a canvas.
 * @param {HTMLCanvasElement} canvas
 */
const pen = (canvas) => /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));

/** The cells of a map, a pixel each.
 * @param {HTMLCanvasElement} canvas
 * @param {Pick<WeightMap, "R" | "C" | "shades" | "values">} map
 */
function pixels(canvas, map) {
  canvas.width = map.C;
  canvas.height = map.R;
  const context = pen(canvas);
  const image = context.createImageData(map.C, map.R);
  map.shades.forEach((shade, n) => {
    image.data.set([...rgb(shade), Number.isNaN(map.values[n]) ? 0 : 255], 4 * n);
  });
  context.putImageData(image, 0, 0);
}

/** @param {HTMLCanvasElement} canvas @param {WeightMap} map */
function drawMap(canvas, map) {
  const most = Math.max(map.R, map.C);
  const cell = map.rowNames ? Math.max(7, Math.min(34, Math.floor(900 / most))) : 900 / most;
  const size = Math.min(14, Math.max(7, 0.68 * cell));
  const context = pen(canvas);
  const font = `${size}px ${getComputedStyle(document.body).fontFamily}`;
  context.font = font;
  /** @param {string[] | null} names */
  const width = (names) => Math.max(0, ...(names ?? []).map((n) => context.measureText(n).width));
  const upright = width(map.colNames) <= cell;
  const left = map.rowNames ? width(map.rowNames) + 10 : 0;
  const top = !map.colNames ? 0 : upright ? size + 10 : 0.75 * width(map.colNames) + 14;
  const wide = left + map.C * cell + (upright ? 4 : 0.75 * width(map.colNames));
  const high = top + map.R * cell;
  const sharp = devicePixelRatio || 1;
  canvas.width = wide * sharp;
  canvas.height = high * sharp;
  canvas.style.width = `${wide}px`;
  canvas.style.height = `${high}px`;
  context.scale(sharp, sharp);
  context.imageSmoothingEnabled = false;
  const small = document.createElement("canvas");
  pixels(small, map);
  context.drawImage(small, left, top, map.C * cell, map.R * cell);
  context.font = font;
  context.fillStyle = css("--ink");
  context.textBaseline = "middle";
  context.textAlign = "right";
  map.rowNames?.forEach((name, i) => context.fillText(name, left - 8, top + (i + 0.5) * cell));
  context.textAlign = upright ? "center" : "left";
  map.colNames?.forEach((name, j) => {
    context.save();
    context.translate(left + (j + 0.5) * cell, top - (upright ? size / 2 + 4 : 6));
    if (!upright) context.rotate(-Math.PI / 4);
    context.fillText(name, 0, 0);
    context.restore();
  });
  if (cell >= 12) {
    context.strokeStyle = css("--paper");
    context.beginPath();
    for (let i = 0; i <= map.R; i++) context.rect(left, top + i * cell, map.C * cell, 0);
    for (let j = 0; j <= map.C; j++) context.rect(left + j * cell, top, 0, map.R * cell);
    context.stroke();
  }
  /** @param {MouseEvent} event */
  return (event) => {
    const j = Math.floor((event.offsetX - left) / cell);
    const i = Math.floor((event.offsetY - top) / cell);
    return i >= 0 && j >= 0 && i < map.R && j < map.C ? [i, j] : null;
  };
}

/** @param {WeightMap} map @param {"row" | "col"} side @param {number} n */
function place(map, side, n) {
  const names = side === "row" ? map.rowNames : map.colNames;
  return names ? names[n] : `${n * map.cell}–${(n + 1) * map.cell - 1}`;
}

/** The text itself, its words shaded by what the word that is pointed at looks at.
 * @param {HTMLElement} parent
 * @param {WeightMap} map
 */
function drawWords(parent, map) {
  const [rowNames, colNames] = [map.rowNames ?? [], map.colNames ?? []];
  const keys = make("p", parent, "", "words");
  make("b", keys, text.keys);
  const spans = colNames.map((name) => make("span", keys, name));
  const queries = make("p", parent, "", "words");
  make("b", queries, text.queries);
  const askers = rowNames.map((name) => make("span", queries, name));
  /** @param {number} i */
  const shade = (i) => {
    askers.forEach((span, n) => span.classList.toggle("here", n === i));
    spans.forEach((span, j) => {
      const at = i * map.C + j;
      const shown = rgb(map.shades[at]);
      span.style.background = map.values[at] > 0 ? `rgb(${shown.join(" ")})` : "";
      span.style.color = map.values[at] > 0 ? (isDark(shown) ? "#fff" : "#111") : "";
      span.onmousemove = (event) =>
        showTip(event, `${rowNames[i]} → ${colNames[j]}: ${exact(map.values[at])}`);
      span.onmouseleave = hideTip;
    });
  };
  askers.forEach((span, i) => { span.onmouseenter = () => shade(i); });
  shade(map.R - 1);
  return shade;
}

/** @param {HTMLElement} stage @param {WeightMap} map */
function drawStage(stage, map) {
  stage.replaceChildren();
  make("h2", stage, data.kind === "grid" ? map.name : "");
  const shade = map.rowNames ? drawWords(stage, map) : () => {};
  const canvas = make("canvas", make("div", stage, "", "wide"));
  const at = drawMap(canvas, map);
  canvas.onmousemove = (event) => {
    const cell = at(event);
    if (!cell) return hideTip();
    const [i, j] = cell;
    shade(i);
    showTip(
      event,
      `${place(map, "row", i)} → ${place(map, "col", j)}: ${exact(map.values[i * map.C + j])}`,
    );
  };
  canvas.onmouseleave = hideTip;
  const legend = make("div", stage, "", "legend");
  make("span", legend, map.ends[0]);
  const strip = make("canvas", legend);
  const ramp = Uint8Array.from({ length: 256 }, (_, n) => n);
  pixels(strip, { R: 1, C: 256, shades: ramp, values: ramp });
  make("span", legend, `${map.ends[1]} ${data.unit}`);
}

/** @param {HTMLElement} section @param {HTMLElement} stage */
function drawGrid(section, stage) {
  const table = make("table", make("div", section, "", "wide"), "", "grid");
  const columns = Math.max(...data.layers.map(([, maps]) => maps.length));
  table.style.setProperty(
    "--side",
    `${Math.max(44, Math.min(132, Math.floor(1000 / columns) - 8))}px`,
  );
  const head = make("tr", make("thead", table));
  make("th", head);
  for (let n = 0; n < columns; n++) make("th", head, String(n));
  const body = make("tbody", table);
  /** @type {Map<number, HTMLButtonElement>} */
  const buttons = new Map();
  /** @param {number} n */
  const choose = (n) => {
    data.chosen = n;
    buttons.forEach((button, key) => button.setAttribute("aria-pressed", String(key === n)));
    drawStage(stage, data.maps[n]);
  };
  for (const [name, maps] of data.layers) {
    const row = make("tr", body);
    make("th", row, name);
    for (const n of maps) {
      const button = make("button", make("td", row));
      button.type = "button";
      button.title = data.maps[n].name;
      button.onclick = () => choose(n);
      buttons.set(n, button);
      pixels(make("canvas", button), data.maps[n]);
    }
  }
  choose(data.chosen ?? 0);
}

/** @param {HTMLElement} section @param {WeightMap} map */
function drawHeat(section, map) {
  const [rowNames, colNames] = [map.rowNames ?? [], map.colNames ?? []];
  const table = make("table", make("div", section, "", "wide"), "", "heat");
  const head = make("tr", make("thead", table));
  make("th", head);
  for (const name of colNames) make("th", head, name);
  const body = make("tbody", table);
  rowNames.forEach((name, i) => {
    const row = make("tr", body);
    make("th", row, name);
    for (let j = 0; j < map.C; j++) {
      const value = map.values[i * map.C + j];
      const cell = make(
        "td",
        row,
        Number.isNaN(value) ? "" : value.toFixed(Math.abs(value) < 10 ? 3 : 1),
      );
      if (Number.isNaN(value)) continue;
      const shown = rgb(map.shades[i * map.C + j], "linear");
      cell.style.background = `rgb(${shown.join(" ")})`;
      cell.style.color = isDark(shown) ? "#fff" : "#111";
      cell.onmousemove = (event) => showTip(event, `${name}:${colNames[j]} ${exact(value)}`);
      cell.onmouseleave = hideTip;
    }
  });
}

/** @param {HTMLElement} section */
function drawStatistics(section) {
  const select = make("select", make("h2", section));
  data.statistics.forEach((map, n) => {
    const option = make("option", select, map.label);
    option.value = String(n);
  });
  select.value = String(data.statistic ?? 0);
  const place = make("div", section);
  const draw = () => {
    data.statistic = Number(select.value);
    place.replaceChildren();
    drawHeat(place, data.statistics[data.statistic]);
  };
  select.onchange = draw;
  draw();
}

/** @param {HTMLElement} section @param {WeightMap} map */
function drawBars(section, map) {
  const bars = make("div", section, "", "bars");
  const order = [...map.values.keys()].filter((n) => map.values[n] > 0);
  order.sort((a, b) => map.values[b] - map.values[a] || a - b);
  // As full_bar of colours.py: a power of ten, so that pages can be compared.
  const full = order.length ? 10 ** Math.ceil(Math.log10(map.values[order[0]]) - 1e-4) : 1;
  for (const n of order.slice(0, 40)) {
    make("span", bars, map.colNames?.[n], "name");
    make("i", bars).style.width = `${(100 * map.values[n]) / full}%`;
    make("span", bars, exact(map.values[n]), "value");
  }
}

function draw() {
  part("h1").textContent = data.title;
  part("#notes").textContent = data.notes.join(" ");
  main.replaceChildren();
  hideTip();
  const section = make("section", main);
  if (data.kind === "bars") return drawBars(section, data.maps[0]);
  if (data.kind === "heat") return drawHeat(section, data.maps[0]);
  if (data.kind === "map") return drawStage(section, data.maps[0]);
  const stage = make("section", main);
  drawGrid(section, stage);
  if (data.statistics.length) drawStatistics(make("section", main));
}

part("#theme").onclick = () => {
  root.dataset.theme = theme() === "dark" ? "light" : "dark";
  draw();
};
system.addEventListener("change", draw);
draw();
