// A text that is longer than the model reads at once: what to do with it.

import { strip } from "./text_words.js";

const MOST = 4096; // tokens that this page reads at all
const ENDS = [/[.!?](?=\s)|[。！？]|\n/gu, /\S(?=\s)|[\u3040-\u9fff]/gu]; // of sentences, of words

/** What the page is told of such a text; null if the model reads all of it.
 * @param {import("./host.js").Host} host
 * @param {string} text
 */
export function longerThanRead(host, text) {
  const tokens = host.tokenizer.prompt(text).length;
  const reads = Math.min(MOST, host.entry.max_len ?? MOST);
  if (tokens <= reads) return null;
  const far = host.told.config.positions === "learned" ? reads : MOST;
  return {
    seen: "", long: true, words: [], layers: [], tokens, reads, atlas: tokens <= far,
    beginning: beginning(host, text, reads),
  };
}

/** The first sentences that the model reads, or else words.
 * @param {import("./host.js").Host} host
 * @param {string} text
 * @param {number} most
 */
function beginning(host, text, most) {
  for (const ends of ENDS) {
    const places = [...text.matchAll(ends)].map((found) => found.index + found[0].length);
    let low = 0, high = places.length; // the first `low` fit
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      const n = host.tokenizer.prompt(strip(text.slice(0, places[middle - 1]))).length;
      if (n && n <= most) low = middle;
      else high = middle - 1;
    }
    if (low) return text.slice(0, places[low - 1]).trimEnd();
  }
  return "";
}
