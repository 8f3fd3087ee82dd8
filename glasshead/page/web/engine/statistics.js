// The statistics of every head of a layer, as glasshead/observe/statistics.py defines them; and the
// heads that stand out.
//
//   const measure = new Measure(call, ids);
//   measure.head(h, map)              of one head, from its map (T, S)
//   measure.means                     {entropy: [a number for each head], …}

const NEAR = 8; // positions: what `diagonality` calls near
const STRONGEST = 64; // `vertical` and `slash` look at the strongest 1/64 of columns and of lags
const COPIES = 16; // earlier copies of a token that are looked up, the latest ones
const PROBES = 256; // rows, at most, on which the weight of every single lag is summed
const WORTH_NAMING = 0.15; // of the attention

// Others depend on the query's own position, which cross-attention does not have.
export const OF_CROSS = [
  "entropy", "relative_entropy", "effective_keys", "first_weight", "vertical",
];
const PER_ROW = ["previous_weight", "self_weight", "first_weight"]; // of one key
const OTHERS = ["duplicate", "induction"];

/** @typedef {import("./attention.js").Call} Call */

/** How many keys a row of one head may see.
 * @param {Call} call
 * @param {number} row
 * @param {number} head
 */
export function countVisible(call, row, head) {
  const { window, edges } = call.rules, place = row + call.S - call.T;
  const stop = Math.min(call.reach(row), window ? place + window : Infinity);
  const start = window ? Math.max(0, place - window + 1) : 0;
  const cut = edges.filter(
    (edge) =>
      (edge.head === null || edge.head === head) && row >= edge.query && row < edge.query_stop,
  );
  if (!cut.length) return Math.max(0, Math.min(stop, call.S) - start);
  let n = 0;
  for (let j = start; j < Math.min(stop, call.S); j++)
    n += cut.some((edge) => j >= edge.key && j < edge.key_stop) ? 0 : 1;
  return n;
}

export class Measure {
  /** @param {Call} call @param {number[] | null} ids at the keys' positions */
  constructor(call, ids) {
    this.call = call;
    this.copies = ids && earlierCopies(ids);
    /** @type {Record<string, number[]>} */
    this.means = {};
    /** @type {number[]} of each head, the mean of 1 / keys that a row may see */
    this.uniform = [];
  }

  /** @param {number} h @param {Float32Array} map (T, S) */
  head(h, map) {
    const { T, S } = this.call, step = Math.ceil(T / PROBES) || 1;
    const received = new Float64Array(S), lags = new Float64Array(T + S - 1);
    /** @type {Record<string, number>} */
    const sums = {};
    for (const name of ["entropy", "relative_entropy", "effective_keys", "mean_distance",
      "self_weight", "previous_weight", "first_weight", "diagonality", "duplicate", "induction"])
      sums[name] = 0;
    let seeing = 0, repeating = 0, uniform = 0;
    for (let i = 0; i < T; i++) {
      const size = countVisible(this.call, i, h), place = i + S - T, at = i * S;
      uniform += 1 / Math.max(1, size);
      if (!size) continue;
      seeing++;
      const probe = (T - 1 - i) % step === 0;
      let entropy = 0, square = 0, distance = 0, near = 0;
      for (let j = 0, end = this.call.reach(i); j < end; j++) {
        const w = map[at + j];
        if (!w) continue;
        const lag = place - j, far = lag < 0 ? -lag : lag;
        entropy -= w * Math.log(w);
        square += w * w;
        distance += w * far;
        if (far <= NEAR) near += w;
        received[j] += w;
        if (probe) lags[lag + T - 1] += w;
      }
      sums.entropy += entropy;
      sums.relative_entropy += entropy / Math.log(Math.max(2, size));
      sums.effective_keys += square ? 1 / square : 0;
      sums.mean_distance += distance;
      sums.diagonality += near;
      sums.self_weight += place >= 0 && place < S ? map[at + place] : 0;
      sums.previous_weight += place >= 1 && place <= S ? map[at + place - 1] : 0;
      sums.first_weight += map[at];
      const copies = this.copies?.[place];
      if (!copies?.length) continue;
      repeating++;
      for (const key of copies) {
        sums.duplicate += map[at + key];
        sums.induction += key + 1 < S ? map[at + key + 1] : 0;
      }
    }
    for (const name of Object.keys(sums)) {
      const rows = OTHERS.includes(name) ? repeating : seeing;
      if (!OTHERS.includes(name) || this.copies) this.#put(name, h, sums[name] / Math.max(1, rows));
    }
    this.#put("vertical", h, topShare(received, S));
    this.#put("slash", h, topShare(lags, S));
    this.uniform[h] = uniform / T;
  }

  /** @param {string} name @param {number} head @param {number} value */
  #put(name, head, value) {
    (this.means[name] ??= [])[head] = value;
  }
}

// In the order in which they are told.
export const NAMES = [
  "entropy", "relative_entropy", "effective_keys", "mean_distance", "self_weight",
  "previous_weight", "first_weight", "diagonality", "vertical", "slash", "duplicate", "induction",
];

/** The share of all mass that the strongest S / 64 hold.
 * @param {Float64Array} masses
 * @param {number} S
 */
function topShare(masses, S) {
  const total = masses.reduce((sum, x) => sum + x, 0);
  const most = Math.min(Math.max(1, Math.floor(S / STRONGEST)), masses.length);
  const strongest = masses.slice().sort().subarray(masses.length - most);
  return total ? strongest.reduce((sum, x) => sum + x, 0) / total : 0;
}

/** Where each token stood before, latest first.
 * @param {number[]} ids
 */
function earlierCopies(ids) {
  /** @type {Map<number, number[]>} */
  const places = new Map();
  return ids.map((id, n) => {
    const found = places.get(id) ?? [];
    const copies = found.slice(-COPIES);
    places.set(id, [...found.slice(-COPIES), n]);
    return copies;
  });
}

/** A layer that was measured: its statistics that are meaningful there.
 * @typedef {{
 *   index: number, kind: string, means: Record<string, number[]>, all: Record<string, number[]>,
 *   uniform: number[],
 * }} Measured
 */

/** The head that stands out most in each role, if its value is large.
 * @param {Measured[]} layers
 */
export function standoutHeads(layers) {
  const found = [];
  for (const role of [...PER_ROW, ...OTHERS]) {
    const best = bestHead(layers, role);
    if (!best) continue;
    const { uniform } = /** @type {Measured} */ (layers.find((one) => one.index === best.layer));
    const mean = uniform.reduce((sum, x) => sum + x, 0) / uniform.length;
    found.push({ role, ...best, uniform: PER_ROW.includes(role) ? mean : null });
  }
  for (const role of ["sharpest", "broadest"]) {
    const sign = role === "sharpest" ? -1 : 1;
    const best = bestHead(layers, "relative_entropy", sign);
    if (best) found.push({ role, ...best, uniform: null });
  }
  return found.filter(
    ({ role, value, uniform }) =>
      role === "sharpest" || role === "broadest" ||
      value >= Math.max(WORTH_NAMING, 2 * (uniform ?? 0)),
  );
}

/** @param {Measured[]} layers @param {string} name @param {number} [sign] */
function bestHead(layers, name, sign = 1) {
  /** @type {{layer: number, head: number, value: number} | null} */
  let best = null;
  for (const { index, means } of layers)
    (means[name] ?? []).forEach((value, head) => {
      if (!best || sign * value > sign * best.value) best = { layer: index, head, value };
    });
  const found = /** @type {{layer: number, head: number, value: number} | null} */ (best);
  return found && (found.value > 0 || sign < 0) ? found : null;
}
