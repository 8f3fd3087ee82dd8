// What statistics of heads are called. What they measure is explained by the server.

import { language } from "../words.js";

/** @type {Record<"en" | "zh", Record<string, string>>} */
const SHORT = {
  en: {
    entropy: "Entropy",
    relative_entropy: "Relative entropy",
    effective_keys: "Effective keys",
    mean_distance: "Mean distance",
    self_weight: "On itself",
    previous_weight: "On the word before",
    first_weight: "On the sink",
    diagonality: "Nearby",
    vertical: "Columns",
    slash: "Diagonals",
    duplicate: "On copies",
    induction: "Induction",
  },
  zh: {
    entropy: "熵",
    relative_entropy: "相对熵",
    effective_keys: "有效键数",
    mean_distance: "平均距离",
    self_weight: "看自己",
    previous_weight: "看前一个",
    first_weight: "看汇点",
    diagonality: "看附近",
    vertical: "竖条",
    slash: "斜线",
    duplicate: "看相同的词",
    induction: "归纳",
  },
};

/** The name of a statistic, in a word or two.
 * @param {string} name
 */
export function statisticName(name) {
  return SHORT[language()][name] ?? name;
}
