/*
 * What the turns took, in tokens and money: day by day, and by agent, model, person and chat.
 */

import { element } from "../element.js";
import { number, word } from "../language.js";
import { choice, empty, folded, money, name, section, table, tile, titled, who } from "./draw.js";
import { dayBars, span } from "./plot.js";
import { address, asked, pager, sieve } from "./sift.js";

const DAYS = [7, 30, 90];
const KINDS = ["agent", "model", "person", "chat"];

export const usage = {
  name: "usage",
  icon: "chart",
  every: 60_000,
  load: ({ ask, argument }) => ask("GET", `api/console/usage?${asked(argument)}`),
  draw: (data, context) => [
    head(data, context),
    data.total.turns ? element("div", { class: "plots" }, tokens(data), costs(data)) : empty(word("noUsage"), "info"),
    ...(data.total.turns ? [daysTable(data), section(word("by"), by(data, context))] : []),
    data.prices.length > 0 && element("p", { class: "hint" }, word("pricesOf", { days: data.prices.join(", ") })),
  ],
};

function head({ total }, { argument }) {
  const choose = (days) => {
    location.hash = address("usage", argument, { days });
  };
  const options = DAYS.map((days) => [days, word("lastDays", { count: days })]);
  return element(
    "div",
    { class: "head" },
    element(
      "div",
      { class: "tiles" },
      tile(word("turns"), number(total.turns)),
      tile(word("tokensIn"), short(total.input)),
      tile(word("tokensOut"), short(total.output)),
      tile(word("cost"), money(total.cost)),
    ),
    choice(word("period"), options, Number(asked(argument).get("days") ?? 30), choose),
  );
}

const short = (value) => new Intl.NumberFormat(document.documentElement.lang, { notation: "compact", maximumFractionDigits: 1 }).format(value);
const label = (iso) => new Intl.DateTimeFormat(document.documentElement.lang, { month: "short", day: "numeric", timeZone: "UTC" }).format(new Date(`${iso}T00:00Z`));

function tokens({ days, total }) {
  const bars = days.map((it) => ({
    title: `${label(it.day)}: ${word("tokens", { input: number(it.input), output: number(it.output) })}`,
    parts: [{ value: it.input, kind: "tokens-in" }, { value: it.output, kind: "tokens-out" }],
  }));
  const told = word("tokens", { input: number(total.input), output: number(total.output) });
  const key = element("p", { class: "plot-key" }, element("span", { class: "tokens-in" }, word("tokensIn")), element("span", { class: "tokens-out" }, word("tokensOut")));
  return section(word("tokensByDay"), key, dayBars(`${word("tokensByDay")}: ${told}`, bars, { format: short, ...ends(days) }));
}

function costs({ days, total }) {
  const bars = days.map((it) => ({ title: `${label(it.day)}: ${money(it.cost)}`, parts: [{ value: it.cost ?? 0, kind: "costs" }] }));
  const key = element("p", { class: "plot-key" }, element("span", { class: "costs" }, word("cost")), total.unpriced ? word("unpriced", { count: number(total.unpriced) }) : "");
  return section(word("costByDay"), key, dayBars(`${word("costByDay")}: ${money(total.cost)}`, bars, { format: money, ...ends(days) }));
}

const ends = (days) => ({ first: label(days[0].day), last: label(days.at(-1).day) });

/** The same as a table, for whoever does not see the bars. */
function daysTable({ days }) {
  const columns = [["day", word("day")], ["turns", word("turns"), "right"], ["input", word("tokensIn"), "right"], ["output", word("tokensOut"), "right"], ["cost", word("cost"), "right"]];
  const rows = days.filter((it) => it.turns).map((it) => ({ day: label(it.day), turns: number(it.turns), input: number(it.input), output: number(it.output), cost: money(it.cost) }));
  return folded("by-day", word("asTable"), table(word("tokensByDay"), columns, rows));
}

function by({ rows, most, from, count }, context) {
  const kind = asked(context.argument).get("by") ?? "agent";
  const columns = [["name", word(`by_${kind}`), "wide"], ["share", word("share"), "bar"], ["turns", word("turns"), "right"], ["tokens", word("tokensBoth"), "right"], ["cost", word("cost"), "right"]];
  const shown = rows.map((it) => ({
    name: kind === "person" && it.name.includes(":") ? who(it.name, it.called) : titled(name(it.called || it.name), it.called ? it.name : ""),
    share: span(0, (it.input + it.output) / Math.max(most, 1), "tokens-in"),
    turns: number(it.turns),
    tokens: short(it.input + it.output),
    cost: money(it.cost),
  }));
  const choose = (value) => {
    location.hash = address("usage", context.argument, { by: value, words: "" });
  };
  const options = KINDS.map((it) => [it, word(`by_${it}`)]);
  return element(
    "div",
    {},
    sieve("usage", context, ["words"], choice(word("by"), options, kind, choose)),
    shown.length ? table(word("by"), columns, shown) : empty(word("nothingFound"), "info"),
    pager("usage", context, { from, count, shown: shown.length }) ?? "",
  );
}
