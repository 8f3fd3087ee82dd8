// Search for translations, as glasshead/generation/beam.py does: beams of unfinished translations,
// each with keys and values of its own.
//
//   const [best] = search(host, source, {beam: 4, alpha: 0.6, n: 1});
//   best.ids, best.log_prob, best.score, best.ended

import { Translator } from "./models.js";

const LONGER = 50; // a translation has at most so many ids more than its source

/** @typedef {{ids: number[], log_prob: number, score: number, ended: boolean}} Hypothesis */
/** @typedef {{log_prob: number, ids: number[], caches: Caches}} Unfinished */
/** @typedef {import("./models.js").LayerCaches[] | null} Caches */

/** @param {number} n @param {number} alpha */
const penalty = (n, alpha) => ((5 + n) / 6) ** alpha;

/**
 * With a cut that has edges, all is computed again at each step: an edge names positions.
 * @param {import("./host.js").Host} host
 * @param {number[]} source
 * @param {{beam?: number, alpha?: number, n?: number, cut?: import("./attention.js").Cut | null}}
 *   [how]
 * @returns {Hypothesis[]}
 */
export function search(host, source, { beam = 4, alpha = 0.6, n = 1, cut = null } = {}) {
  const model = host.model;
  if (!(model instanceof Translator)) throw new Error("only a translator translates");
  const { bos, eos, never } = host.specials;
  const beside = cut ? { cut } : undefined, cached = !cut?.edges.length;
  const { memory, S } = model.encode(source, beside);
  let limit = source.filter((id) => id !== model.config.pad).length + LONGER;
  if (model.config.positions === "learned") limit = Math.min(limit, model.config.max_len);

  /** @type {Unfinished[]} */
  let live = [{ log_prob: 0, ids: [], caches: cached ? model.newCaches() : null }];
  /** @type {Hypothesis[]} */
  const best = [];
  /** @param {number[]} ids @param {number} log_prob @param {boolean} ended */
  const finish = (ids, log_prob, ended) => {
    const score = log_prob / penalty(ids.length + Number(ended), alpha);
    best.push({ ids, log_prob, score, ended });
  };
  while (live.length) {
    /** @type {{log_prob: number, parent: Unfinished, id: number}[]} */
    const extended = [];
    for (const parent of live) {
      const all = [bos, ...parent.ids], ids = cached ? all.slice(-1) : all;
      const x = model.features(ids, { memory, S, caches: parent.caches, beside });
      const C = model.config.d_model, row = x.subarray(x.length - C);
      for (const [id, log_prob] of likeliest(model.logits(row, 1), never, beam))
        extended.push({ log_prob: parent.log_prob + log_prob, parent, id });
    }
    extended.sort((a, b) => b.log_prob - a.log_prob);
    const length = live[0].ids.length + 1;
    /** @type {Unfinished[]} */
    const next = [];
    for (const { log_prob, parent, id } of extended.slice(0, beam)) {
      if (id === eos) finish(parent.ids, log_prob, true);
      else if (length === limit) finish([...parent.ids, id], log_prob, false);
      else next.push({ log_prob, ids: [...parent.ids, id], caches: parent.caches });
    }
    best.sort((a, b) => Number(b.ended) - Number(a.ended) || b.score - a.score);
    best.length = Math.min(best.length, n);
    const most = penalty(limit, alpha), worst = best[n - 1]?.score ?? -Infinity;
    live = next.filter((one) => one.log_prob / most > worst);
    share(live);
  }
  return best;
}

/** Give each translation caches of its own: several may go on from the same.
 * @param {Unfinished[]} live
 */
function share(live) {
  const taken = new Set();
  for (const one of live) {
    if (one.caches && taken.has(one.caches))
      one.caches = one.caches.map(({ own, cross }) => ({ own: own.copy(), cross: cross.copy() }));
    taken.add(one.caches);
  }
}

/** The k most probable ids, with their log-probabilities.
 * @param {Float32Array} logits
 * @param {Set<number>} never
 * @param {number} k
 * @returns {[number, number][]}
 */
function likeliest(logits, never, k) {
  const lse = logSumExp(logits);
  const allowed = Array.from(logits, (_, id) => id).filter((id) => !never.has(id));
  allowed.sort((a, b) => logits[b] - logits[a]);
  return allowed.slice(0, k).map((id) => [id, logits[id] - lse]);
}

/** @param {ArrayLike<number> & Iterable<number>} x */
export function logSumExp(x) {
  let top = -Infinity, sum = 0;
  for (const one of x) if (one > top) top = one;
  for (const one of x) sum += Math.exp(one - top);
  return top + Math.log(sum);
}
