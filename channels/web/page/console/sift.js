/*
 * A list is found by words and by fields, and read a page at a time. What is asked for stands in the address, so that a list
 * can be passed on as a link.
 */

import { element } from "../element.js";
import { number, word } from "../language.js";

/** What stands behind a room's name, as parameters; none where it names one thing. */
export const asked = (argument) => new URLSearchParams(argument.startsWith("?") ? argument : "");

/** The address of a room's list with these changes, from its beginning. */
export function address(room, argument, changes) {
  const parameters = asked(argument);
  for (const begin of ["from", "before", "tasks"]) parameters.delete(begin);
  for (const [key, value] of Object.entries(changes)) value ? parameters.set(key, value) : parameters.delete(key);
  return `#${room}${[...parameters].length ? `/?${parameters}` : ""}`;
}

/** The fields of a list, and behind them what else chooses. */
export function sieve(room, { argument }, fields, ...more) {
  const parameters = asked(argument);
  const made = fields.map((key) =>
    element("input", { type: "search", class: "field", name: key, value: parameters.get(key) ?? "", "aria-label": word(`by_${key}`), placeholder: word(`by_${key}`), "data-key": `filter-${key}`, autocomplete: "off", spellcheck: "false" }),
  );
  const submit = (event) => {
    event.preventDefault();
    location.hash = address(room, argument, Object.fromEntries(made.map((it) => [it.name, it.value.trim()])));
  };
  const apply = element("button", { type: "submit", class: "act" }, word("filter"));
  return element("div", { class: "head" }, element("form", { class: "filters", role: "search", "aria-label": word(`room_${room}`), submit }, ...made, apply), ...more);
}

export const isSifted = ({ argument }) => ["words", "agent", "channel"].some((key) => asked(argument).get(key));

/** Which rows are shown of how many, with the ways to those before and behind; null where all are shown. */
export function pager(room, { argument }, { from, count, shown, begin = "from" }) {
  if (!from && count <= shown) return null;
  const to = (first) => address(room, argument, { [begin]: first > 0 ? String(first) : "" });
  const size = Math.max(shown, 50);
  return ways(
    from > 0 && [to(from - size), "earlierPage", `${begin}-back`],
    element("span", { class: "hint" }, word("rowsShown", { first: number(Math.min(from + 1, count)), last: number(from + shown), all: number(count) })),
    from + shown < count && [to(from + shown), "nextPage", `${begin}-on`],
  );
}

/** Links to other pages of a list: each [href, word, key], or something to stand between them. */
export function ways(...found) {
  const made = found.map((it) => (Array.isArray(it) ? element("a", { class: "act", href: it[0], "data-key": it[2] }, word(it[1])) : it));
  return element("nav", { class: "pager", "aria-label": word("pages") }, ...made);
}
