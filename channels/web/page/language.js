/*
 * Which language the page speaks, and how a text of it is found and filled in. The texts themselves are in
 * words.js.
 */

import { recall, remember } from "./memory.js";
import { WORDS } from "./words.js";

const KEY = "clawgate.language";
/** Each by its own name. */
export const LANGUAGES = [["en", "English"], ["zh", "中文"]];
const TAGS = { en: "en", zh: "zh-CN" };
const ATTRIBUTES = { wordLabel: "aria-label", wordPlaceholder: "placeholder", wordTitle: "title" };

let current = initial();

function initial() {
  const remembered = recall(KEY);
  if (remembered in WORDS) return remembered;
  return (navigator.languages?.[0] ?? navigator.language ?? "en").toLowerCase().startsWith("zh") ? "zh" : "en";
}

/** Texts of a page that has some of its own, in both languages. */
export function addWords(words) {
  for (const [language, texts] of Object.entries(words)) Object.assign(WORDS[language], texts);
}

/** The text named `key`; `{name}` in it becomes `values.name`. */
export function word(key, values = {}) {
  const text = WORDS[current][key] ?? WORDS.en[key] ?? key;
  const chosen = Array.isArray(text) ? text[values.count === 1 ? 0 : 1] : text;
  return chosen.replace(/\{(\w+)\}/g, (whole, name) => String(values[name] ?? whole));
}

/** Of a text that the server has in both languages. */
export function inLanguage(texts) {
  return texts[current];
}

/** Several names in one line. */
export const enumerated = (names) => names.join(inLanguage({ en: ", ", zh: "、" }));

/** What to say of a refusal: our own words for a known code, else the server's sentence. */
export function sentence(refusal) {
  const key = `error_${refusal.code}`;
  if (key in WORDS.en) return word(key);
  if (refusal.texts) return inLanguage(refusal.texts);
  return refusal.message || word("error_unknown");
}

/** Fills in every text that index.html names. */
export function fillWords(root = document) {
  document.documentElement.lang = TAGS[current];
  for (const holder of root.querySelectorAll("[data-word]")) holder.textContent = word(holder.dataset.word);
  for (const [name, attribute] of Object.entries(ATTRIBUTES)) {
    const selector = `[data-${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}]`;
    for (const holder of root.querySelectorAll(selector)) {
      holder.setAttribute(attribute, word(holder.dataset[name]));
      if (attribute === "aria-label" && holder.matches(".icon-button")) holder.title = word(holder.dataset[name]);
    }
  }
}

/** The language that the person chose by the button; undefined if the browser decides. */
export const chosenLanguage = () => (recall(KEY) in WORDS ? recall(KEY) : undefined);

export const currentLanguage = () => current;

export function speakLanguage(language) {
  current = language;
  remember(KEY, current);
}

export const otherLanguage = () => speakLanguage(current === "en" ? "zh" : "en");

const HOUR = { hour: "2-digit", minute: "2-digit" };

/** Of a moment in seconds: the hour today, the day as well before today, and the year as well if it is another one. */
export function moment(at, { long = false } = {}) {
  const [when, now] = [new Date(at * 1000), new Date()];
  const isToday = when.toDateString() === now.toDateString();
  const date = { year: when.getFullYear() === now.getFullYear() ? undefined : "numeric", month: "short", day: "numeric" };
  const shape = long ? { dateStyle: "full", timeStyle: "long" } : isToday ? HOUR : { ...date, ...HOUR };
  return new Intl.DateTimeFormat(TAGS[current], shape).format(when);
}

export const number = (value) => new Intl.NumberFormat(TAGS[current], { maximumSignificantDigits: 3 + 12 * (value >= 100) }).format(value);

let currency = "USD";

/** The currency of all costs, as the server names it. */
export const countIn = (named) => {
  currency = named ?? currency;
};

export function money(cost) {
  const format = { style: "currency", currency, currencyDisplay: "narrowSymbol", minimumFractionDigits: 2, maximumFractionDigits: cost < 1 ? 4 : 2 };
  const shown = (value) => new Intl.NumberFormat(TAGS[current], format).format(value);
  return cost > 0 && cost < 0.0001 ? `< ${shown(0.0001)}` : shown(cost);
}

/** The day of a moment as people call it. */
export function day(at) {
  const when = new Date(at * 1000);
  const days = Math.round((new Date().setHours(0, 0, 0, 0) - new Date(when).setHours(0, 0, 0, 0)) / 86_400_000);
  if (days <= 0) return word("today");
  if (days === 1) return word("yesterday");
  const shape = days < 7 ? { weekday: "long" } : { year: "numeric", month: "long", day: "numeric" };
  return new Intl.DateTimeFormat(TAGS[current], shape).format(when);
}

/** A limit, in the unit of the config's docs. */
export const limit = (bytes) => `${number(bytes / 1_048_576)} MiB`;

export function size(bytes) {
  if (bytes < 1000) return `${bytes} B`;
  if (bytes < 1_000_000) return `${Math.round(bytes / 1000)} KB`;
  return `${(bytes / 1_000_000).toFixed(1)} MB`;
}
