/*
 * The turns, the newest first, and one of them layer by layer (turn.js). The filters stand in the address, so that a list can
 * be passed on as a link.
 */

import { element } from "../element.js";
import { number, word } from "../language.js";
import { button, choice, empty, link, money, name, seconds, table, when } from "./draw.js";
import { outcomeBadge, turn } from "./turn.js";

const FIELDS = ["agent", "channel", "person"];
const OUTCOMES = ["", "replied", "failed", "stopped", "running"];
const RUNNING = ["waiting", "running"];
const PAGES_MAX = 20;

export const turns = {
  name: "turns",
  icon: "layers",
  /** A turn that has ended changes no more. */
  every: (data) => (data.turn && !RUNNING.includes(data.turn.outcome) ? 60_000 : 5_000),
  load: (context) => (isId(context.argument) ? context.ask("GET", `api/turns/${context.argument}`) : list(context)),
  draw: (data, context) => (isId(context.argument) ? turn(data, context) : [filters(context), ...drawn(data, context)]),
};

const isId = (argument) => /^\d+$/.test(argument);
const asked = (argument) => new URLSearchParams(argument.startsWith("?") ? argument : "");

/** As many pages as were asked for, in one list. */
async function list({ ask, argument, memory }) {
  if (memory.argument !== argument) Object.assign(memory, { argument, pages: 1 });
  const parameters = asked(argument);
  let found = { turns: [], before: null, keepDays: 0 };
  for (let page = 0; page < memory.pages; page += 1) {
    if (page > 0) parameters.set("before", found.before);
    const next = await ask("GET", `api/turns?${parameters}`);
    found = { ...next, turns: [...found.turns, ...next.turns] };
    if (next.before === null) break;
  }
  return found;
}

function filters({ argument }) {
  const parameters = asked(argument);
  const go = (changes) => {
    for (const [key, value] of Object.entries(changes)) value ? parameters.set(key, value) : parameters.delete(key);
    location.hash = `turns${[...parameters].length ? `/?${parameters}` : ""}`;
  };
  const fields = FIELDS.map((key) =>
    element("input", { type: "search", class: "field", name: key, value: parameters.get(key) ?? "", "aria-label": word(`by_${key}`), placeholder: word(`by_${key}`), "data-key": `filter-${key}`, autocomplete: "off", spellcheck: "false" }),
  );
  const submit = (event) => {
    event.preventDefault();
    go(Object.fromEntries(fields.map((it) => [it.name, it.value.trim()])));
  };
  const apply = element("button", { type: "submit", class: "act" }, word("filter"));
  const outcomes = OUTCOMES.map((it) => [it, word(it ? `outcome_${it}` : "allTurns")]);
  return element(
    "div",
    { class: "head" },
    element("form", { class: "filters", role: "search", submit }, ...fields, apply),
    choice(word("outcome"), outcomes, parameters.get("outcome") ?? "", (value) => go({ outcome: value })),
  );
}

function drawn({ turns: found, before, keepDays }, { memory, reload }) {
  if (!found.length) return [empty(word("noTurns"), "info")];
  const more = () => {
    memory.pages += 1;
    reload();
  };
  return [
    rows(found),
    before !== null && memory.pages < PAGES_MAX && button(word("olderTurns"), more, { "data-key": "older" }),
    element("p", { class: "hint" }, keepDays ? word("layersKept", { count: number(keepDays) }) : word("layersNotKept")),
  ];
}

function rows(found) {
  const columns = [["text", word("message"), "wide"], ["who", word("person")], ["agent", word("agent")], ["outcome", word("outcome")], ["took", word("took"), "right"], ["cost", word("cost"), "right"], ["at", word("since")]];
  return table(word("room_turns"), columns, found.map((it) => ({
    text: link(`#turns/${it.id}`, name(it.text || word("noWords"), { class: "name clipped short" })),
    who: element("span", {}, name(it.name || it.person || "–"), element("span", { class: "hint" }, " ", name(it.channel))),
    agent: name(it.agent),
    outcome: outcomeBadge(it),
    took: it.seconds === null ? "–" : seconds(it.seconds),
    cost: it.requests ? money(it.cost) : "–",
    at: when(Date.parse(it.at) / 1000),
  })));
}
