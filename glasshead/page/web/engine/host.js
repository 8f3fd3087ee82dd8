// A model with its tokenizer and what the page is told of it: what all answers are made from.

import { makeModel } from "./models.js";
import { Parameters } from "./parameters.js";
import { makeTokenizer } from "./tokenizers.js";

/**
 * What `glasshead export` writes into the page besides the parameters (page/living.py).
 * @typedef {{
 *   kind: string,
 *   config: import("./layers.js").Config,
 *   tokenizer: import("./tokenizers.js").TokenizerTold,
 *   tensors: Record<string, import("./parameters.js").Stored>,
 *   entry: Entry, version: string,
 *   examples: unknown[],
 *   knows: string[] | null,
 *   stories: {langs: string[] | null, pairs: unknown[]},
 *   end_ids: number[], start_ids: number[],
 *   wording: {
 *     statistics: Record<string, Record<string, string>>,
 *     roles: Record<string, Record<string, string>>, pronouns: string[],
 *   },
 * }} LivingTold
 */

export class Host {
  /** @param {LivingTold} told @param {ArrayBuffer} bytes of the parameters */
  constructor(told, bytes) {
    this.told = told;
    this.entry = told.entry;
    this.tokenizer = makeTokenizer(told.tokenizer);
    this.model = makeModel(told.kind, told.config, new Parameters(told.tensors, bytes));
  }

  /** The ids that begin and end a translation, and those that it must not contain. */
  get specials() {
    const { specials, size } = this.tokenizer;
    const [bos, eos] = [specials["<bos>"], specials["<eos>"]];
    const never = new Set(Object.values(specials).filter((id) => id !== eos));
    for (let id = size; id < this.told.config.vocab_size; id++) never.add(id);
    return { bos, eos, never };
  }

  /** Ids that the tokenizer knows and the model predicts. */
  get known() {
    return Math.min(this.tokenizer.size, this.told.config.vocab_size);
  }
}
