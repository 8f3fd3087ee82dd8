// A painter that leaves room above and below for what another hand adds.

/** @implements {Painter} */
export class Framed {
  /** @param {Painter} painter @param {number} top @param {number} bottom */
  constructor(painter, top, bottom) {
    this.painter = painter;
    this.top = top;
    this.bottom = bottom;
    this.w = 0;
    this.h = 0;
  }

  get density() {
    return this.painter.density;
  }

  /** @type {Painter["size"]} */
  size(w, h, paper = null) {
    Object.assign(this, { w, h });
    this.painter.size(w, h + this.top + this.bottom, paper);
    return this;
  }

  /** @type {Painter["rect"]} */
  rect(x, y, ...rest) {
    this.painter.rect(x, y + this.top, ...rest);
  }

  /** @type {Painter["line"]} */
  line(x1, y1, x2, y2, style) {
    this.painter.line(x1, y1 + this.top, x2, y2 + this.top, style);
  }

  /** @type {Painter["curve"]} */
  curve(x1, y1, cx1, cy1, cx2, cy2, x2, y2, style) {
    const { top } = this;
    this.painter.curve(x1, y1 + top, cx1, cy1 + top, cx2, cy2 + top, x2, y2 + top, style);
  }

  /** @type {Painter["text"]} */
  text(x, y, ...rest) {
    this.painter.text(x, y + this.top, ...rest);
  }

  /** @type {Painter["cells"]} */
  cells(x, y, ...rest) {
    this.painter.cells(x, y + this.top, ...rest);
  }

  /** @type {Painter["image"]} */
  image(x, y, ...rest) {
    this.painter.image(x, y + this.top, ...rest);
  }

  /** @type {Painter["measure"]} */
  measure(text, style) {
    return this.painter.measure(text, style);
  }

  /** @type {Painter["clip"]} */
  clip(x, y, w, h, draw) {
    this.painter.clip(x, y + this.top, w, h, draw);
  }
}
