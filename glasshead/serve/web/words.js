// What the page says, in two languages. Each view adds its own words, under keys that begin with its id:
//
//   add({en: {"look.hint": "Click {word}."}, zh: {"look.hint": "点 {word}。"}})
//   t("look.hint", {word: "它"})

const table = { en: {}, zh: {} };
let current = "en";

export function add(words) {
  for (const language of Object.keys(words)) Object.assign(table[language], words[language]);
}

export function t(key, values = {}) {
  const text = table[current][key] ?? table.en[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

export function language() {
  return current;
}

export function setLanguage(wanted) {
  current = wanted === "zh" ? "zh" : "en";
}

// Three digits: 0.123, 12.3, 1.2e-4
export function three(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size && size < 1e-3) return value.toExponential(1);
  if (size < 10) return value.toFixed(3);
  return size < 100 ? value.toFixed(1) : count(Math.round(value));
}

export function percent(value) {
  if (!Number.isFinite(value)) return "–";
  const share = 100 * value;
  if (share > 0 && share < 0.1) return "<0.1%";
  return `${share < 9.95 ? share.toFixed(1) : share.toFixed(0)}%`;
}

export function count(value) {
  return new Intl.NumberFormat("en").format(value);
}
