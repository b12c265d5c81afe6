/*
 * The turns, the newest first, and one of them layer by layer (turn.js).
 */

import { element } from "../element.js";
import { number, word } from "../language.js";
import { choice, empty, link, money, name, seconds, table, when, who } from "./draw.js";
import { address, asked, sieve, ways } from "./sift.js";
import { outcomeBadge, turn } from "./turn.js";

const OUTCOMES = ["", "replied", "failed", "stopped", "running"];
const RUNNING = ["waiting", "running"];

export const turns = {
  name: "turns",
  icon: "layers",
  /** A turn that has ended changes no more. */
  every: (data) => (data.turn && !RUNNING.includes(data.turn.outcome) ? 60_000 : 5_000),
  load: ({ ask, argument }) => ask("GET", isId(argument) ? `api/turns/${argument}` : `api/turns?${asked(argument)}`),
  draw: (data, context) => (isId(context.argument) ? turn(data, context) : [filters(context), ...drawn(data, context)]),
};

const isId = (argument) => /^\d+$/.test(argument);

function filters(context) {
  const choices = [["outcome", OUTCOMES, "outcome", "outcome"], ["rating", ["", "good", "bad"], "rating", "feedback"]].map(([title, values, prefix, key]) => {
    const choose = (value) => {
      location.hash = address("turns", context.argument, { [key]: value });
    };
    return choice(word(title), values.map((it) => [it, word(it ? `${prefix}_${it}` : "allTurns")]), asked(context.argument).get(key) ?? "", choose);
  });
  return sieve("turns", context, ["words", "person", "agent", "channel"], ...choices);
}

function drawn({ turns: found, before, searched, keepDays }, context) {
  return [
    found.length ? rows(found) : empty(word("noTurns"), "info"),
    searched > 0 && element("p", { class: "hint" }, word("turnsSearched", { count: number(searched) })),
    pages(before, context),
    found.length > 0 && element("p", { class: "hint" }, keepDays ? word("layersKept", { count: number(keepDays) }) : word("layersNotKept")),
  ];
}

function pages(before, { argument, memory }) {
  const current = asked(argument).get("before") ?? "";
  const newer = trail(memory, address("turns", argument, {}), current).at(-2);
  if (before === null && !current) return null;
  const to = (number) => address("turns", argument, { before: number });
  return ways(current && [to(newer), "newerTurns", "newer"], before !== null && [to(before), "olderTurns", "older"]);
}

/** The pages of a list that led to this one: only they are known above it. */
function trail(memory, list, current) {
  if (memory.list !== list) Object.assign(memory, { list, trail: [""] });
  const known = memory.trail.indexOf(current);
  if (known >= 0) memory.trail.length = known + 1;
  else memory.trail.push(current);
  return memory.trail;
}

function rows(found) {
  const columns = [["text", word("message"), "wide"], ["who", word("person")], ["agent", word("agent")], ["outcome", word("outcome")], ["took", word("took"), "right"], ["cost", word("cost"), "right"], ["at", word("when")]];
  return table(word("room_turns"), columns, found.map((it) => ({
    text: link(`#turns/${it.id}`, name(it.text || word("noWords"), { class: "name clipped short" })),
    who: who(it.person, it.name, { about: it.title ? `${it.channel} · ${it.title}` : it.person || it.channel }),
    agent: name(it.agent),
    outcome: outcomeBadge(it),
    took: it.seconds === null ? "–" : seconds(it.seconds),
    cost: it.requests ? money(it.cost) : "–",
    at: when(Date.parse(it.at) / 1000),
  })), "compact");
}
