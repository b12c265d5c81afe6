/*
 * The chats of all channels, the last active first, and one of them to read. Nothing can be done here.
 */

import { element } from "../element.js";
import { number, word } from "../language.js";
import { blocksOf, showBlocks } from "../prose.js";
import { card, chat, empty, facts, link, name, section, table, when } from "./draw.js";
import { asked, pager, sieve } from "./sift.js";

export const chats = {
  name: "chats",
  icon: "book",
  every: 30_000,
  load: ({ ask, argument }) => ask("GET", isId(argument) ? `api/sessions/${encodeURIComponent(argument)}` : `api/sessions?${asked(argument)}`),
  draw: (data, context) => (isId(context.argument) ? opened(data, context) : list(data, context)),
};

const isId = (argument) => argument !== "" && !argument.startsWith("?");

function list({ sessions, from, count }, context) {
  return [
    sieve("chats", context, ["words", "agent", "channel"]),
    sessions.length ? rows(sessions) : empty(word("noChats"), "info"),
    pager("chats", context, { from, count, shown: sessions.length }),
  ];
}

function rows(found) {
  const columns = [["name", word("conversation"), "wide"], ["agent", word("agent")], ["turns", word("turns"), "right"], ["tokens", word("tokensBoth"), "right"], ["last", word("lastActive")]];
  return table(word("room_chats"), columns, found.map((it) => ({
    name: element("span", {}, link(`#chats/${it.id}`, name(it.name || it.chat, { class: "name clipped short" })), element("span", { class: "hint" }, name(it.channel === "web" ? it.channel : `${it.channel}:${it.sender ?? it.chat}`))),
    agent: name(it.agent),
    turns: number(it.turns),
    tokens: number(it.tokens),
    last: when(Date.parse(it.last) / 1000),
  })));
}

function opened({ session, html, missing, masked }) {
  const text = element("div", { class: "prose" });
  showBlocks(text, blocksOf(html));
  return [
    element("p", { class: "hint" }, link("#chats", `← ${word("room_chats")}`)),
    card(
      element("h2", { class: "card-title" }, name(session.name || session.chat)),
      facts([
        [word("conversation"), chat({ ...session, title: "" })],
        [word("agent"), name(session.agent)],
        [word("lastActive"), when(Date.parse(session.last) / 1000)],
        [word("turns"), link(`#turns/?words=${encodeURIComponent(session.chat)}`, number(session.turns))],
      ]),
    ),
    section(word("message"), missing > 0 && element("p", { class: "hint" }, word("sessionCut", { count: number(missing), id: session.id })), masked > 0 && element("p", { class: "hint" }, word("masked", { count: masked })), text),
  ];
}
