// Shapes that modules of the page share, for the types in their comments; nothing here is shipped.

// -- elements (dom.js) --

type Child = Node | string | number | false | null | undefined | readonly Child[];

/** What h(tag, props) knows: attributes, listeners ("onclick"), `class`, `style`, `dataset`. */
type Props = { [name: string]: any } | null;

/** An element that has a value as a field of a form has it. */
type Valued<T> = HTMLElement & { value: T };

/** Value and text of a choice; then why, of `segmented`, or whether it is disabled, of `select`. */
type Choice = [value: string | number, text: Child, why?: any];
type Choices = { label: string; options: Choice[] };

/** Where a pointer is. */
type Spot = { clientX: number; clientY: number };

/** A function that waits (`after`), and can be told not to. */
type Later = { (...args: any[]): void; cancel(): void };

/** What went wrong: an ApiError, or only its words. */
type Failure = { message: string; hint?: string; status?: number };

// -- pictures (paint.js) --

type FontStyle = { size?: number; weight?: number; mono?: boolean };
type RectStyle = {
  fill?: string; stroke?: string; width?: number; radius?: number; alpha?: number;
};
type LineStyle = { stroke?: string; width?: number; alpha?: number; dash?: number[] };
type TextStyle = FontStyle & {
  fill?: string;
  align?: "left" | "start" | "center" | "right" | "end";
  baseline?: "alphabetic" | "middle" | "top" | "bottom";
  rotate?: number;
  alpha?: number;
  max?: number;
};

/** Numbers row by row. */
type Numbers = ArrayLike<number> & Iterable<number>;

interface Painter {
  w: number;
  h: number;
  /** Pixels for each CSS pixel; drawings have none. */
  readonly density?: number;
  size(w: number, h: number, paper?: string | null): Painter;
  rect(x: number, y: number, w: number, h: number, style?: RectStyle): void;
  line(x1: number, y1: number, x2: number, y2: number, style?: LineStyle): void;
  curve(
    x1: number, y1: number, cx1: number, cy1: number,
    cx2: number, cy2: number, x2: number, y2: number, style?: LineStyle,
  ): void;
  text(x: number, y: number, text: string, style?: TextStyle): void;
  cells(
    x: number, y: number, cw: number, ch: number,
    values: Numbers, rows: number, cols: number, scale: Shading,
  ): void;
  image(
    x: number, y: number, w: number, h: number,
    canvas: HTMLCanvasElement, style?: { smooth?: boolean },
  ): void;
  measure(text: string, style?: FontStyle): number;
  clip(x: number, y: number, w: number, h: number, draw: () => void): void;
}

/** What a painter asks of a Scale (scale.js). */
interface Shading {
  colour(value: number): string;
  pixels(values: Numbers): Uint8ClampedArray<ArrayBuffer>;
}

type ScaleKind = "linear" | "log" | "ratio";
type Theme = "light" | "dark";
type Colours = {
  paper: string; panel: string; ink: string; quiet: string; line: string;
  accent: string; data: string;
};

// -- the address (state.js) --

type Where = { [key: string]: string | undefined };
type Patch = { [key: string]: string | number | boolean | null | undefined };

// -- the server's answers (api.js) --

type Entry = {
  id: string;
  name: string;
  kind: string;
  reason: string;
  n_layers: number | null;
  n_heads: number | null;
  max_len: number | null;
  vocab_size: number | null;
  reads: string | null;
  can: string[];
};
type Limits = { max_body?: number; max_text?: number; max_tokens?: number };
type Models = { models: Entry[]; version?: string; limits?: Limits };

/** A path to GET, or a path and a body to POST. */
type Ask = string | [path: string, body: unknown];
type Sent = {
  method?: string; body?: string; signal?: AbortSignal; headers?: Record<string, string>;
};
type Answer = { buffer: ArrayBuffer; headers: Record<string, string> };
type Packed = { headers: Record<string, string>; json?: unknown; base64?: string };

/** A layer of a recording, and the sizes of its maps: T queries, S keys. */
type AtlasLayer = {
  index: number;
  name: string;
  module: string;
  part: string | null;
  kind: string;
  heads: number;
  T: number;
  S: number;
  levels: number;
  exact: boolean;
  finest: number;
  causal: boolean;
};

/** A recording that is opened: /api/open, /api/atlas, /api/seen/…/map. */
type AtlasTold = {
  seen: string;
  model: string;
  name: string;
  page: number;
  layers: AtlasLayer[];
  statistics: Record<
    string,
    { explain: { en: string; zh: string }; values: (number[] | null)[] }
  >;
  tokens: number;
  texts: 0 | 1 | 2;
};

/** What stands around a token: before it, itself, behind it. */
type Around = [before: string, text: string, behind: string];

/** What a query looks at most: /api/seen/…/row. */
type AtlasRow = {
  query: number;
  text: Around;
  key: number | null;
  weight: number | null;
  keys: { key: number; weight: number; text: Around }[];
};

/** Part of a text: its first token, one past its last, its letters. */
type Piece = [start: number, stop: number, text: string];

/** A training and how far it is: /api/runs. */
type Run = {
  id: string;
  name: string;
  kind: string;
  reason: string;
  step: number | null;
  loss: number | null;
  val_loss: number | null;
  age: number | null;
  steps: number | null;
};
type Runs = { runs: Run[]; ladders: string[]; claims: string[] };

/** A value at a step, or at what else curves are drawn along. */
type Point = [x: number, value: number];

/** What a run wrote, as far as it was read: the points of each metric. */
type Curve = { cursor: string; points: Record<string, Point[]>; damaged: number };

/** What a rung of the ladder came to: /api/ladder. */
type Rung = {
  rung: number;
  adds: string;
  adds_zh: string;
  parameters: number;
  train: number | null;
  train_sd: number | null;
  val: number | null;
  val_sd: number | null;
  tokens_per_s: number | null;
  climbs: {
    seed: number;
    steps: number;
    curve: { step: number; train: number | null; val: number | null }[];
  }[];
};
type Ladder = {
  text: { name: string; characters: number; vocabulary: number };
  rungs: Rung[];
};

/** A claim and its verdict: /api/claims; one with a reason could not be read. */
type Claim = {
  number: number;
  reason: string;
  title: { en: string; zh: string };
  claim: { en: string; zh: string };
  finding: { verdict: string; words: { en: string; zh: string } };
  quick: boolean;
  seeds: number[];
};

/** The data embedded in a page that does not come from a server (embedded.js). */
type EmbeddedData = {
  kind: "saved" | "notebook" | "living";
  views: string[];
  state: Record<string, string>;
  kept?: any;
  answers: Record<string, Packed>;
  /** A model, as engine/host.js reads it, and how its parameters were rounded. */
  living?: any;
};

// -- charts: what is used of vendor/uPlot.js --

type UPlotTicks = (plot: UPlot, values: number[]) => (string | null)[];

interface UPlotSeries {
  label?: string; stroke?: string; width?: number; alpha?: number; dash?: number[];
  spanGaps?: boolean; points?: { show: boolean; size?: number; fill?: string };
}

interface UPlotOptions {
  width: number;
  height: number;
  padding?: number[];
  legend?: { show: boolean };
  cursor?: {
    show?: boolean; x?: boolean; y?: boolean; sync?: {
      key: string; filters?: { pub: (type: string) => boolean };
    };
    drag?: { x: boolean; y: boolean; setScale: boolean };
    bind?: { dblclick: (plot: UPlot, at: EventTarget, handle: unknown) => (() => void) };
  };
  scales: Record<string, {
    time?: boolean; distr?: number;
    range?: (plot: UPlot, low: number | null, high: number | null) => (number | null)[];
  }>;
  axes: {
    stroke: string; font: string; size?: number; gap?: number; space?: number; incrs?: number[];
    grid: { show?: boolean; stroke?: string; width?: number }; ticks: { show: boolean };
    splits?: (plot: UPlot, axis: number, low: number, high: number) => number[];
    values: UPlotTicks;
  }[];
  series: UPlotSeries[];
  hooks?: Record<string, ((plot: UPlot) => void)[]>;
}

interface UPlot {
  root: HTMLElement;
  over: HTMLElement;
  ctx: CanvasRenderingContext2D;
  bbox: { left: number; top: number; width: number; height: number };
  cursor: { left: number; top: number; event?: MouseEvent | null };
  select: { left: number; width: number };
  scales: Record<string, { min: number; max: number }>;
  batch(draw: () => void): void;
  posToVal(at: number, scale: string): number;
  valToPos(value: number, scale: string, canvas?: boolean): number;
  setCursor(at: { left: number; top: number }): void;
  setData(data: unknown): void;
  setSelect(at: { left: number; top: number; width: number; height: number }, fire: boolean): void;
  setSize(size: { width: number; height: number }): void;
  destroy(): void;
}
type UPlotLibrary = {
  new (options: UPlotOptions, data: unknown, root?: HTMLElement): UPlot;
  join(tables: unknown[]): (number | null | undefined)[][];
};

// -- views (main.js) --

type Context = {
  entry: Entry;
  entries: Entry[];
  limits: Limits;
  state: typeof import("./glasshead/page/web/state.js");
  api: typeof import("./glasshead/page/web/api.js");
  t: typeof import("./glasshead/page/web/words.js").t;
  /** What the view gave as `kept()` before. */
  kept: any;
};

interface View {
  id: string;
  title(): string;
  fits(entry: Entry): boolean;
  mount(root: HTMLElement, context: Context): Handle;
}

/** A view on the page. */
interface Handle {
  update?(now: Where): unknown;
  unmount?(): void;
  kept?(): unknown;
  wants?(): Ask[];
  picture?(painter: Painter): Told | null | void;
  /** What is shared as one picture of a fixed size. */
  card?(painter: Painter): void;
}

/** What stands above and below a saved picture. */
type Told = { title?: string; about?: string };
