// What the page says, in two languages. Each view adds its own words, under keys that begin with
// its id:
//
//   add({en: {"look.hint": "Click {word}."}, zh: {"look.hint": "点 {word}。"}})
//   t("look.hint", {word: "它"})

/** @type {{en: Record<string, string>, zh: Record<string, string>}} */
const table = { en: {}, zh: {} };
/** @type {"en" | "zh"} */
let current = "en";

/** @param {typeof table} words */
export function add(words) {
  Object.assign(table.en, words.en);
  Object.assign(table.zh, words.zh);
}

/** @param {string} key @param {Record<string, unknown>} values */
export function t(key, values = {}) {
  const text = table[current][key] ?? table.en[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (whole, name) =>
    name in values ? String(values[name]) : whole,
  );
}

export function language() {
  return current;
}

/** @param {string} wanted */
export function setLanguage(wanted) {
  current = wanted === "zh" ? "zh" : "en";
}

/** Three digits: 0.123, 12.3, 1.2e-4
 * @param {number | null | undefined} value
 */
export function three(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size && size < 1e-3) return value.toExponential(1);
  if (size < 10) return value.toFixed(3);
  return size < 100 ? value.toFixed(1) : count(Math.round(value));
}

/** @param {number} value */
export function percent(value) {
  if (!Number.isFinite(value)) return "–";
  const share = 100 * value;
  if (share > 0 && share < 0.1) return "<0.1%";
  return `${share < 9.95 ? share.toFixed(1) : share.toFixed(0)}%`;
}

/** @param {number} value */
export function count(value) {
  return new Intl.NumberFormat("en").format(value);
}
