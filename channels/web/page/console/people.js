/*
 * Who waits to be let in, and who was.
 */

import { element } from "../element.js";
import { number, word } from "../language.js";
import { badge, button, card, empty, name, plain, section, table, when, who } from "./draw.js";
import { asked, isSifted, pager, sieve } from "./sift.js";

export const people = {
  name: "people",
  icon: "person",
  every: 10_000,
  count: (state) => state?.waiting?.people ?? 0,
  load: ({ ask, argument }) => ask("GET", `api/console/people?${asked(argument)}`),
  draw: ({ waiting, known, from, count }, context) => [
    waiting.length ? element("div", { class: "cards" }, ...waiting.map((it) => stranger(it, context))) : empty(word("nobodyWaits")),
    (count > 0 || isSifted(context)) &&
      section(
        word("letInAlready", { count: number(count) }),
        sieve("people", context, ["words", "channel"]),
        known.length ? list(known) : empty(word("nothingFound"), "info"),
        pager("people", context, { from, count, shown: known.length }),
      ),
  ],
};

function stranger(it, { act, ask }) {
  const called = plain(it.displayName || it.id);
  const letIn = button(word("letIn"), (pressed) => act(pressed, () => ask("POST", "api/console/people", { request: it.request }), word("mayWrite", { name: called })), {
    class: "act primary-act",
    "data-key": `in-${it.request}`,
    "aria-label": word("letInName", { name: called }),
  });
  return card(
    element("p", { class: "card-title" }, name(called)),
    element("p", { class: "hint" }, name(it.name), " · ", word("asked"), " ", when(Date.parse(it.at) / 1000)),
    element("div", { class: "acts" }, letIn),
  );
}

function list(known) {
  const columns = [["who", word("person"), "wide"], ["by", word("letInBy")], ["at", word("since")]];
  return table(word("room_people"), columns, known.map((it) => ({
    who: element("span", {}, who(`${it.channel}:${it.id}`, it.displayName, { about: it.name }), it.owner ? badge("plain", word("owner")) : ""),
    by: it.approvedBy.includes(":") ? who(it.approvedBy, it.byName) : name(word(`by_${it.approvedBy}`)),
    at: when(Date.parse(it.at) / 1000),
  })));
}
