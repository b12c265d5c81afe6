/*
 * The calls that wait for a decision, each whole as an approver reads it in a chat, and what was allowed for good.
 */

import { element } from "../element.js";
import { enumerated, inLanguage, moment, number, word } from "../language.js";
import { blocksOf, showBlocks } from "../prose.js";
import { badge, button, card, empty, folded, name, section, table, when, who } from "./draw.js";
import { asked, pager } from "./sift.js";

const KINDS = { "allow-once": "act primary-act", "allow-always": "act", deny: "act danger-act" };

export const approvals = {
  name: "approvals",
  icon: "shield",
  every: 5_000,
  count: (state) => state?.waiting?.approvals ?? 0,
  load: ({ ask, argument }) => ask("GET", `api/console/approvals?${asked(argument)}`),
  draw: ({ waiting, from, count, grants, ownership }, context) => [
    ownership.here ? null : guest(ownership),
    waiting.length ? element("div", { class: "cards" }, ...waiting.map((it) => request(it, context))) : empty(word("noApprovals")),
    pager("approvals", context, { from, count, shown: waiting.length }),
    grants.length > 0 && section(word("grants"), granted(grants)),
  ],
};

/** The page is no owner: who is, since when, and how to change that. */
function guest({ owners, since }) {
  const names = enumerated(owners);
  const sentences = since === null ? [word("guestByConfig", { names }), word("guestConfigHow")] : [word("guestHere", { names, at: moment(since) }), word("guestHow")];
  return card(element("p", {}, sentences.join(inLanguage({ en: " ", zh: "" }))));
}

function request(it, context) {
  const { question, details } = inLanguage(it.texts);
  return card(
    element("p", { class: "card-head" }, badge("warn", word("expires")), when(it.expires), it.tainted && badge("bad", word("tainted"))),
    element("p", { class: "hint" }, ...it.names.flatMap((one) => [name(one), " · "]), when(it.created)),
    prose(question),
    folded(`details-${it.id}`, word("details"), prose(details)),
    it.mine ? answers(it, context) : element("p", { class: "hint" }, word("othersDecide", { names: enumerated(it.approverNames) || word("nobody") })),
  );
}

function answers(it, { act, ask }) {
  const made = it.answers.map((decision) =>
    button(
      word(`decide_${decision}`),
      (pressed) => act(pressed, () => ask("POST", `api/console/approvals/${it.id}`, { decision }), word(`decided_${decision}`)),
      { class: KINDS[decision], "data-key": `${decision}-${it.id}` },
    ),
  );
  return element("div", { class: "acts" }, ...made);
}

function prose(html) {
  const made = element("div", { class: "prose" });
  showBlocks(made, blocksOf(html));
  return made;
}

function granted(grants) {
  const columns = [["id", word("number")], ["agent", word("agent")], ["by", word("allowedBy")], ["since", word("since")], ["uses", word("uses"), "right"]];
  return table(word("grants"), columns, grants.map((it) => ({
    id: element("code", {}, it.id),
    agent: name(it.agent),
    by: who(it.by, it.byName),
    since: when(it.since),
    uses: number(it.uses),
  })));
}
