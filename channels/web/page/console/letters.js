/*
 * Dead letters: messages that were given up, and parts of answers that could not be delivered. Each may be replayed.
 */

import { element } from "../element.js";
import { number, word } from "../language.js";
import { badge, button, chat, empty, name, table, when } from "./draw.js";
import { asked, isSifted, pager, sieve } from "./sift.js";

const AT_ONCE = 100;

export const letters = {
  name: "letters",
  icon: "letter",
  every: 10_000,
  count: (state) => state?.waiting?.deadLetters ?? 0,
  load: ({ ask, argument }) => ask("GET", `api/console/dead-letters?${asked(argument)}`),
  draw: ({ letters: found, names, from, count }, context) => {
    const sifted = isSifted(context);
    if (!count && !sifted) return [empty(word("noLetters"))];
    return [
      head(names, context),
      sieve("letters", context, ["words", "agent", "channel"]),
      found.length ? list(found, context) : empty(word("nothingFound"), "info"),
      pager("letters", context, { from, count, shown: found.length }),
    ];
  },
};

async function replay(ask, names) {
  for (let at = 0; at < names.length; at += AT_ONCE) await ask("POST", "api/console/dead-letters", { names: names.slice(at, at + AT_ONCE) });
}

function head(names, { act, ask, confirm }) {
  const count = number(names.length);
  const all = button(word("replayAll", { count }), async (pressed) => {
    if (await confirm("replayEvery", { count })) act(pressed, () => replay(ask, names), word("replayed", { count }));
  }, { "data-key": "all" });
  return element("div", { class: "head" }, element("p", { class: "hint" }, word("lettersAbout")), names.length > 0 && all);
}

function list(found, { act, ask }) {
  const columns = [["what", word("letter")], ["where", word("conversation")], ["agent", word("agent")], ["at", word("when")], ["reason", word("reason"), "wide"], ["act", word("replay"), "end"]];
  return table(word("room_letters"), columns, found.map((it) => ({
    what: element("span", {}, badge("bad", word(`letter_${it.kind}`)), " ", element("code", {}, it.name)),
    where: chat(it),
    agent: name(it.agent),
    at: when(it.at),
    reason: element("span", { class: "clipped" }, name(it.reason || word("noReason")), it.ambiguous ? ` (${word("ambiguous", { count: it.ambiguous })})` : ""),
    act: button(word("replay"), (pressed) => act(pressed, () => replay(ask, [it.name]), word("replayed", { count: 1 })), { "data-key": it.name, "aria-label": word("replayName", { name: it.name }) }),
  })));
}
