/*
 * What the rooms are drawn with: sections, lists that are tables on a wide screen and cards on a phone, states, times, and
 * texts of strangers, which are cut where they are long and never markup.
 */

import { element, icon } from "../element.js";
import { money as amount, moment, number, word } from "../language.js";

/** The server cuts names already, and says so behind them. */
const NAME_CHARS_MAX = 400;
/** Characters that show nothing, or turn what stands around them. */
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;
/** Those of them that make a text read as another one, wherever its lines break. */
const TURNING = /[\u202a-\u202e\u2066-\u2069]/g;
const named = (text, characters) => text.replace(characters, (it) => `\\u${it.charCodeAt(0).toString(16).padStart(4, "0")}`);

export function section(title, ...children) {
  return element("section", { class: "section" }, element("h2", {}, title), ...children);
}

export function card(...children) {
  return element("article", { class: "card" }, ...children);
}

/** Nothing here, or nothing that can be shown. */
export function empty(text, shape = "check", ...more) {
  return element("div", { class: `empty ${shape === "alert" ? "wrong" : ""}` }, icon(shape), element("p", {}, text), ...more);
}

/** `kind`: good, bad, warn or plain. */
export function badge(kind, text) {
  return element("span", { class: `badge ${kind}` }, text);
}

export function button(text, click, attributes = {}) {
  return element("button", { type: "button", class: "act", click: (event) => click(event.currentTarget), ...attributes }, text);
}

export function link(href, ...children) {
  return element("a", { href }, ...children);
}

/** What somebody else wrote, in one line: cut, and with nothing hidden in it. */
export function plain(text) {
  const whole = String(text ?? "");
  return named(whole.length > NAME_CHARS_MAX ? `${whole.slice(0, NAME_CHARS_MAX)}…` : whole, HIDDEN);
}

/** The name of something, as somebody else gave it, apart from the text around it. */
export function name(text, attributes = {}) {
  return element("bdi", { class: "name", ...attributes }, plain(text));
}

/** A person by name, with the way to their turns; the id stands beneath, and where nobody has a name it stands alone. */
export function who(id, called, { about = id } = {}) {
  if (!id) return titled(called ? name(called, SHORT) : "–", about ?? "");
  return titled(link(`#turns/?person=${encodeURIComponent(id)}`, name(id === "web:local" ? word("thisPage") : called || id, SHORT)), called && id !== "web:local" ? about : "");
}

/** A chat by its title, its place beneath; the ids of the page's own chats say nothing to anybody. */
export function chat({ title, channel, account, chat: id, thread }) {
  const place = [channel, account === "default" ? "" : account, id].filter(Boolean).join(":") + (thread ? `#${thread}` : "");
  return titled(name(title || place, SHORT), title ? (channel === "web" ? channel : place) : "");
}

const SHORT = { class: "name clipped short" };

/** A name, and in small letters beneath it what tells it from another: the tooltip has a long id whole. */
export function titled(shown, about) {
  return element("span", { class: "named" }, shown, about ? element("span", { class: "hint" }, name(shortened(about), { ...SHORT, title: about })) : "");
}

const ID_CHARS = 8;

/** `feishu:ou_b055…000a` as `feishu:…000a`: the name above it is what people know. */
function shortened(about) {
  const [, place, id] = /^(.*:)?([^:]*)$/s.exec(about);
  return id.length > ID_CHARS ? `${place ?? ""}…${id.slice(-4)}` : about;
}

/**
 * A text. Of one that the server has cut the beginning, with a button for more of it and a link to the whole: `rest` is
 * {chars, href, load}, where `load(from, pressed)` gives the text behind a character.
 */
export function text(written, { key, code = false, rest = null } = {}) {
  const held = element("pre", { class: code ? "text mono" : "text", dir: "auto", tabindex: "0", role: "group", "aria-label": word("text") }, named(written, TURNING));
  if (!rest) return held;
  let shown = [...written].length;
  const label = () => word("showMore", { count: number(rest.chars - shown) });
  const more = button(label(), async (pressed) => {
    const piece = await rest.load(shown, pressed);
    held.append(named(piece, TURNING));
    shown += [...piece].length;
    if (shown >= rest.chars) pressed.remove();
    else pressed.textContent = label();
  }, { "data-key": key });
  return element("div", { class: "long" }, held, element("p", { class: "acts" }, more, element("a", { href: rest.href, download: "" }, word("downloadWhole"))));
}

/** A moment in seconds, with how long ago it is; the tooltip has it whole. */
export function when(at) {
  const iso = new Date(at * 1000).toISOString();
  const passed = ago(at);
  return element("time", { datetime: iso, title: moment(at, { long: true }) }, moment(at), passed && element("span", { class: "hint" }, ` · ${passed}`));
}

const STEPS = [
  [60, "second", 1],
  [3600, "minute", 60],
  [86_400, "hour", 3600],
];

function ago(at) {
  const passed = Date.now() / 1000 - at;
  const step = STEPS.find(([under]) => Math.abs(passed) < under);
  if (!step) return "";
  const relative = new Intl.RelativeTimeFormat(document.documentElement.lang, { numeric: "always", style: "short" });
  return relative.format(-Math.round(passed / step[2]), step[1]);
}

export function seconds(count) {
  if (count >= 100) return word("minutes", { count: number(Math.round(count / 60)) });
  if (count > 0 && count < 0.005) return word("seconds", { count: "< 0.01" });
  return word("seconds", { count: number(count < 10 ? Math.round(count * 100) / 100 : Math.round(count)) });
}

export const money = (cost) => (cost === null || cost === undefined ? word("noPrice") : amount(cost));

/** The columns whose title nobody needs to see. */
const PLAIN = ["end", "bar"];

/** `columns` are [key, title, kind]; a row is an object of nodes by key. On a phone a `compact` row has three lines and no titles. */
export function table(label, columns, rows, shape = "") {
  const head = columns.map(([, title, kind]) =>
    element("th", { role: "columnheader", scope: "col", class: kind }, PLAIN.includes(kind) ? element("span", { class: "out-of-sight" }, title) : title),
  );
  return element(
    "table",
    { class: `table-cards ${shape}`, role: "table", "aria-label": label },
    element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, ...head)),
    element("tbody", { role: "rowgroup" }, ...rows.map((row) => tableRow(columns, row))),
  );
}

function tableRow(columns, row) {
  const cells = columns.map(([key, title, kind = ""]) => {
    const value = row[key] ?? "";
    const blank = ["", "–"].includes(value) ? "blank" : "";
    return element("td", { role: "cell", class: `${kind} ${blank}`, "data-label": PLAIN.includes(kind) ? "" : title }, value);
  });
  return element("tr", { role: "row" }, ...cells);
}

/** Names and their values, in two columns. */
export function facts(entries) {
  const shown = entries.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return element("dl", { class: "facts" }, ...shown.map(([title, value]) => element("div", {}, element("dt", {}, title), element("dd", {}, value))));
}

/** A figure that is read at a glance. */
export function tile(title, value, { href = null, kind = "" } = {}) {
  const inner = [element("span", { class: "tile-value" }, value), element("span", { class: "tile-title" }, title)];
  return href ? element("a", { class: `tile ${kind}`, href }, ...inner) : element("div", { class: `tile ${kind}` }, ...inner);
}

export function folded(key, title, ...children) {
  return element("details", { class: "folded", "data-key": key }, element("summary", { "data-key": `${key}-summary` }, title), ...children);
}

/** The one that is pressed of a few buttons in a row. */
export function choice(label, options, chosen, choose) {
  const made = options.map(([value, title]) =>
    element("button", { type: "button", "aria-pressed": String(value === chosen), "data-key": `choice-${label}-${value}`, click: () => choose(value) }, title),
  );
  return element("div", { class: "choice", role: "group", "aria-label": label }, ...made);
}
