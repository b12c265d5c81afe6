/*
 * Dead letters: messages that were given up, and parts of answers that could not be delivered. Each may be replayed.
 */

import { element } from "../element.js";
import { number, word } from "../language.js";
import { badge, button, empty, name, table, when } from "./draw.js";

const AT_ONCE = 100;
const SHOWN_MAX = 200;

export const letters = {
  name: "letters",
  icon: "letter",
  every: 10_000,
  count: (state) => state?.waiting.deadLetters ?? 0,
  load: ({ ask }) => ask("GET", "api/console/dead-letters"),
  draw: ({ letters: found }, context) => {
    if (!found.length) return [empty(word("noLetters"))];
    const shown = found.slice(0, SHOWN_MAX);
    return [head(found, context), list(shown, context), found.length > shown.length && element("p", { class: "hint" }, word("andMore", { count: number(found.length - shown.length) }))];
  },
};

async function replay(ask, names) {
  for (let at = 0; at < names.length; at += AT_ONCE) await ask("POST", "api/console/dead-letters", { names: names.slice(at, at + AT_ONCE) });
}

function head(found, { act, ask, confirm }) {
  const count = found.length;
  const all = button(word("replayAll", { count: number(count) }), async (pressed) => {
    if (await confirm("replayEvery", { count: number(count) })) act(pressed, () => replay(ask, found.map((it) => it.name)), word("replayed", { count: number(count) }));
  }, { "data-key": "all" });
  return element("div", { class: "head" }, element("p", { class: "hint" }, word("lettersAbout")), all);
}

function list(found, { act, ask }) {
  const columns = [["what", word("letter")], ["where", word("conversation")], ["at", word("since")], ["reason", word("reason"), "wide"], ["act", word("replay"), "end"]];
  return table(word("room_letters"), columns, found.map((it) => ({
    what: element("span", {}, badge("bad", word(`letter_${it.kind}`)), " ", element("code", {}, it.name)),
    where: element("span", {}, name(`${it.channel}:${it.chat}`), " · ", name(it.agent)),
    at: when(it.at),
    reason: element("span", { class: "clipped" }, name(it.reason || word("noReason")), it.ambiguous ? ` (${word("ambiguous", { count: it.ambiguous })})` : ""),
    act: button(word("replay"), (pressed) => act(pressed, () => replay(ask, [it.name]), word("replayed", { count: 1 })), { "data-key": it.name, "aria-label": word("replayName", { name: it.name }) }),
  })));
}
