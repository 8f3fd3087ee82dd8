// Two painters with one interface, so that what is on the screen can be saved as PNG and as SVG by
// the same code.
//
//   painter.size(w, h, paper)     begins a picture of so many CSS pixels, on that colour if given
//   painter.rect(x, y, w, h, {fill, stroke, width, radius, alpha})
//   painter.line(x1, y1, x2, y2, {stroke, width, alpha, dash})
//   painter.curve(x1, y1, cx1, cy1, cx2, cy2, x2, y2, {stroke, width, alpha})
//   painter.text(x, y, text, {size, fill, align, baseline, weight, mono, rotate, alpha, max})
//   painter.cells(x, y, cw, ch, values, rows, cols, scale)       a matrix, row by row
//   painter.image(x, y, w, h, canvas, {smooth})
//   painter.measure(text, {size, weight, mono})                  its width
//   painter.clip(x, y, w, h, draw)                               draw() inside a frame

import { showDirections } from "./dom.js";

export const SANS =
  'system-ui, -apple-system, "Segoe UI", "Noto Sans", "PingFang SC", "Hiragino Sans GB", ' +
  '"Microsoft YaHei", "Noto Sans CJK SC", sans-serif';
export const MONO =
  'ui-monospace, "SF Mono", Menlo, Consolas, "Noto Sans Mono", "Noto Sans Mono CJK SC", monospace';

/** @type {CanvasRenderingContext2D | null} */
let ruler = null;

/** What draws on a canvas.
 * @param {HTMLCanvasElement} canvas
 */
export function pen(canvas) {
  return /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
}

/** @param {FontStyle} style */
function font({ size = 13, weight = 400, mono = false }) {
  return `${weight} ${size}px ${mono ? MONO : SANS}`;
}

/** @param {string} text @param {FontStyle} style */
function measured(text, style) {
  ruler ??= pen(document.createElement("canvas"));
  ruler.font = font(style);
  return ruler.measureText(text).width;
}

/** Text that is too wide ends in an ellipsis.
 * @param {string} text
 * @param {number | undefined} max
 * @param {FontStyle} style
 */
export function shortened(text, max, style = {}) {
  if (!max || measured(text, style) <= max) return text;
  const all = Array.from(text);
  let n = all.length;
  while (n > 1 && measured(all.slice(0, n).join("") + "…", style) > max) n--;
  return all.slice(0, n).join("") + "…";
}

/** @param {Numbers} values @param {number} rows @param {number} cols @param {Shading} scale */
function matrix(values, rows, cols, scale) {
  const canvas = document.createElement("canvas");
  canvas.width = cols;
  canvas.height = rows;
  if (rows && cols)
    pen(canvas).putImageData(new ImageData(scale.pixels(values), cols, rows), 0, 0);
  return canvas;
}

/** @implements {Painter} */
export class CanvasPainter {
  constructor(
    canvas = document.createElement("canvas"),
    density = Math.max(1, devicePixelRatio || 1),
  ) {
    this.canvas = canvas;
    this.density = density;
    this.context = pen(canvas);
    this.w = 0;
    this.h = 0;
  }

  /** @type {Painter["size"]} */
  size(w, h, paper = null) {
    const { canvas, context, density } = this;
    this.w = w;
    this.h = h;
    canvas.width = Math.round(w * density);
    canvas.height = Math.round(h * density);
    canvas.style.width = `${w}px`;
    canvas.style.height = `${h}px`;
    context.setTransform(density, 0, 0, density, 0, 0);
    if (paper) this.rect(0, 0, w, h, { fill: paper });
    return this;
  }

  /** @type {Painter["rect"]} */
  rect(x, y, w, h, { fill, stroke, width = 1, radius = 0, alpha = 1 } = {}) {
    const c = this.context;
    c.globalAlpha = alpha;
    c.beginPath();
    if (radius) c.roundRect(x, y, w, h, radius);
    else c.rect(x, y, w, h);
    if (fill) {
      c.fillStyle = fill;
      c.fill();
    }
    if (stroke) {
      c.strokeStyle = stroke;
      c.lineWidth = width;
      c.stroke();
    }
    c.globalAlpha = 1;
  }

  /** @type {Painter["line"]} */
  line(x1, y1, x2, y2, style = {}) {
    this.context.beginPath();
    this.context.moveTo(x1, y1);
    this.context.lineTo(x2, y2);
    this.#stroke(style);
  }

  /** @type {Painter["curve"]} */
  curve(x1, y1, cx1, cy1, cx2, cy2, x2, y2, style = {}) {
    this.context.beginPath();
    this.context.moveTo(x1, y1);
    this.context.bezierCurveTo(cx1, cy1, cx2, cy2, x2, y2);
    this.#stroke(style);
  }

  /** @param {LineStyle} style */
  #stroke({ stroke = "#000", width = 1, alpha = 1, dash = [] }) {
    const c = this.context;
    c.globalAlpha = alpha;
    c.strokeStyle = stroke;
    c.lineWidth = width;
    c.lineCap = dash.length ? "butt" : "round";
    c.setLineDash(dash);
    c.stroke();
    c.setLineDash([]);
    c.globalAlpha = 1;
  }

  /** @type {Painter["text"]} */
  text(x, y, text, style = {}) {
    const {
      fill = "#000",
      align = "left",
      baseline = "alphabetic",
      rotate = 0,
      alpha = 1,
      max = 0,
    } = style;
    const c = this.context;
    c.save();
    c.globalAlpha = alpha;
    c.font = font(style);
    c.fillStyle = fill;
    c.textAlign = align;
    c.textBaseline = baseline;
    c.translate(x, y);
    if (rotate) c.rotate(rotate);
    c.fillText(shortened(showDirections(text), max, style), 0, 0);
    c.restore();
  }

  /** @type {Painter["cells"]} */
  cells(x, y, cw, ch, values, rows, cols, scale) {
    this.image(x, y, cw * cols, ch * rows, matrix(values, rows, cols, scale), { smooth: false });
  }

  /** @type {Painter["image"]} */
  image(x, y, w, h, canvas, { smooth = true } = {}) {
    this.context.imageSmoothingEnabled = smooth;
    if (canvas.width && canvas.height) this.context.drawImage(canvas, x, y, w, h);
  }

  /** @type {Painter["measure"]} */
  measure(text, style = {}) {
    return measured(text, style);
  }

  /** @type {Painter["clip"]} */
  clip(x, y, w, h, draw) {
    this.context.save();
    this.context.beginPath();
    this.context.rect(x, y, w, h);
    this.context.clip();
    draw();
    this.context.restore();
  }
}

const AS_CELLS = 4096; // a matrix with more cells becomes an image inside the SVG

/** @implements {Painter} */
export class SvgPainter {
  constructor() {
    /** @type {string[]} */
    this.parts = [];
    this.clips = 0;
    this.w = 0;
    this.h = 0;
  }

  /** @type {Painter["size"]} */
  size(w, h, paper = null) {
    this.parts = [];
    this.w = w;
    this.h = h;
    if (paper) this.rect(0, 0, w, h, { fill: paper });
    return this;
  }

  /** @type {Painter["rect"]} */
  rect(x, y, w, h, { fill, stroke, width = 1, radius = 0, alpha = 1 } = {}) {
    this.#add("rect", {
      x, y, width: w, height: h, fill: fill ?? "none", stroke, "stroke-width": stroke && width,
      rx: radius || null, opacity: alpha === 1 ? null : alpha,
    });
  }

  /** @type {Painter["line"]} */
  line(x1, y1, x2, y2, style = {}) {
    this.#add("path", { d: `M${n(x1)} ${n(y1)}L${n(x2)} ${n(y2)}`, ...stroked(style) });
  }

  /** @type {Painter["curve"]} */
  curve(x1, y1, cx1, cy1, cx2, cy2, x2, y2, style = {}) {
    const d = `M${n(x1)} ${n(y1)}C${[cx1, cy1, cx2, cy2, x2, y2].map(n).join(" ")}`;
    this.#add("path", { d, ...stroked(style) });
  }

  /** @type {Painter["text"]} */
  text(x, y, text, style = {}) {
    const {
      size = 13,
      fill = "#000",
      align = "left",
      baseline = "alphabetic",
      weight,
      rotate = 0,
      alpha = 1,
    } = style;
    this.#add(
      "text",
      {
        x,
        y,
        fill,
        "font-size": size,
        "font-weight": weight,
        "font-family": style.mono ? MONO : null,
        "text-anchor": { left: null, start: null, center: "middle", right: "end", end: "end" }[
          align
        ],
        dy: {
          middle: n(0.36 * size), top: n(0.8 * size), alphabetic: null, bottom: n(-0.2 * size),
        }[baseline],
        opacity: alpha === 1 ? null : alpha,
        transform: rotate ? `rotate(${n((180 / Math.PI) * rotate)} ${n(x)} ${n(y)})` : null,
      },
      shortened(showDirections(text), style.max, style),
    );
  }

  /** @type {Painter["cells"]} */
  cells(x, y, cw, ch, values, rows, cols, scale) {
    if (rows * cols > AS_CELLS) {
      this.image(x, y, cw * cols, ch * rows, matrix(values, rows, cols, scale), { smooth: false });
      return;
    }
    for (let r = 0; r < rows; r++)
      for (let c = 0; c < cols; c++)
        this.#add("rect", {
          x: x + c * cw, y: y + r * ch, width: cw, height: ch,
          fill: scale.colour(values[r * cols + c]),
        });
  }

  /** @type {Painter["image"]} */
  image(x, y, w, h, canvas, { smooth = true } = {}) {
    this.#add("image", {
      x, y, width: w, height: h, preserveAspectRatio: "none", href: canvas.toDataURL("image/png"),
      style: smooth ? null : "image-rendering:pixelated",
    });
  }

  /** @type {Painter["measure"]} */
  measure(text, style = {}) {
    return measured(text, style);
  }

  /** @type {Painter["clip"]} */
  clip(x, y, w, h, draw) {
    const id = `clip${this.clips++}`;
    const frame = `<rect x="${n(x)}" y="${n(y)}" width="${n(w)}" height="${n(h)}"/>`;
    this.parts.push(`<clipPath id="${id}">${frame}</clipPath>`);
    this.parts.push(`<g clip-path="url(#${id})">`);
    draw();
    this.parts.push("</g>");
  }

  toString() {
    const [w, h] = [n(this.w), n(this.h)];
    return (
      `<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve" viewBox="0 0 ${w} ${h}" ` +
      `width="${w}" height="${h}" font-family="${escaped(SANS)}">${this.parts.join("\n")}</svg>\n`
    );
  }

  /**
   * @param {string} tag
   * @param {Record<string, string | number | null | undefined>} attributes
   * @param {string | null} text
   */
  #add(tag, attributes, text = null) {
    const written = Object.entries(attributes)
      .filter(([, value]) => value !== null && value !== undefined)
      .map(
        ([name, value]) =>
          ` ${name}="${typeof value === "number" ? n(value) : escaped(String(value))}"`,
      )
      .join("");
    this.parts.push(
      text === null ? `<${tag}${written}/>` : `<${tag}${written}>${escaped(text)}</${tag}>`,
    );
  }
}

/** @param {LineStyle} style */
function stroked({ stroke = "#000", width = 1, alpha = 1, dash = [] }) {
  return {
    fill: "none", stroke, "stroke-width": width, "stroke-linecap": dash.length ? null : "round",
    "stroke-dasharray": dash.length ? dash.join(" ") : null, opacity: alpha === 1 ? null : alpha,
  };
}

/** @param {number} value */
function n(value) {
  return Number(value.toFixed(2));
}

/** @param {string} text */
function escaped(text) {
  /** @type {Record<string, string>} */
  const signs = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
  // Characters that XML forbids are left out: most of the controls, and two more.
  const forbidden = /[^\P{Cc}\t\n\r\u007f-\u009f]|[\ufffe\uffff]/gu;
  return text.replace(/[&<>"]/g, (c) => signs[c]).replace(forbidden, "");
}
