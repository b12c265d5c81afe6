/*
 * Who waits to be let in, and who was.
 */

import { element } from "../element.js";
import { number, word } from "../language.js";
import { badge, button, card, empty, name, plain, section, table, when } from "./draw.js";

export const people = {
  name: "people",
  icon: "person",
  every: 10_000,
  count: (state) => state?.waiting.people ?? 0,
  load: ({ ask }) => ask("GET", "api/console/people"),
  draw: ({ waiting, known, count }, context) => [
    waiting.length ? element("div", { class: "cards" }, ...waiting.map((it) => stranger(it, context))) : empty(word("nobodyWaits")),
    known.length > 0 && section(word("letInAlready", { count: number(count) }), list(known)),
  ],
};

function stranger(it, { act, ask }) {
  const who = plain(it.displayName || it.id);
  const letIn = button(word("letIn"), (pressed) => act(pressed, () => ask("POST", "api/console/people", { request: it.request }), word("mayWrite", { name: who })), {
    class: "act primary-act",
    "data-key": `in-${it.request}`,
    "aria-label": word("letInName", { name: who }),
  });
  return card(
    element("p", { class: "card-title" }, name(who)),
    element("p", { class: "hint" }, name(it.name), " · ", word("asked"), " ", when(Date.parse(it.at) / 1000)),
    element("div", { class: "acts" }, letIn),
  );
}

function list(known) {
  const columns = [["who", word("person")], ["id", word("number")], ["by", word("letInBy")], ["at", word("since")]];
  return table(word("room_people"), columns, known.map((it) => ({
    who: element("span", {}, name(it.displayName || it.id), it.owner ? badge("plain", word("owner")) : ""),
    id: name(it.name),
    by: name(it.approvedBy),
    at: when(Date.parse(it.at) / 1000),
  })));
}
