/*
 * The agents in force: the models that each asks, its skills, and each tool with the reason why it has it or not.
 */

import { element } from "../element.js";
import { enumerated, inLanguage, word } from "../language.js";
import { badge, card, empty, facts, folded, name, table } from "./draw.js";

const KINDS = { on: "good", some: "warn", ask: "warn", off: "plain" };

export const agents = {
  name: "agents",
  icon: "bot",
  every: 30_000,
  load: ({ ask }) => ask("GET", "api/console/agents"),
  draw: ({ agents: found }) => [found.length ? element("div", { class: "cards wide-cards" }, ...found.map(agent)) : empty(word("noAgents"), "info")],
};

function agent(it) {
  const has = it.tools.filter((tool) => tool.state !== "off");
  return card(
    element("h2", { class: "card-title" }, name(it.name || it.id), it.name && it.name !== it.id ? element("code", {}, it.id) : ""),
    it.description && element("p", { class: "hint" }, name(it.description)),
    facts([
      [word("models"), name(it.models.join(" → "))],
      [word("commandsRun"), word(`exec_${it.exec}`)],
      [word("approvers"), it.approvers.length ? element("span", { title: it.approvers.join(", ") }, name(enumerated(it.approverNames.map((one, at) => (it.approvers[at] === "web:local" ? word("thisPage") : one))))) : word("nobodyNamed")],
      [word("sessionScope"), word(`scope_${it.scope}`)],
      [word("workspace"), name(it.workspace)],
      [word("skills"), it.skills.length ? name(it.skills.join(", ")) : "–"],
    ]),
    element("p", { class: "chips", "aria-label": word("tools"), role: "group" }, ...has.map((tool) => badge(KINDS[tool.state], tool.name))),
    folded(`tools-${it.id}`, word("toolsAndReasons", { count: it.tools.length }), tools(it.tools)),
    it.hidden.length > 0 && folded(`skills-${it.id}`, word("hiddenSkills", { count: it.hidden.length }), hidden(it.hidden)),
  );
}

function tools(found) {
  const columns = [["name", word("tool")], ["state", word("state")], ["why", word("why"), "wide"]];
  return table(word("tools"), columns, found.map((it) => ({
    name: element("code", {}, it.name),
    state: badge(KINDS[it.state], word(`tool_is_${it.state}`)),
    why: element("span", { dir: "auto" }, it.reasons.map(inLanguage).join("; ") || word("nothingAgainst")),
  })));
}

function hidden(found) {
  const columns = [["name", word("skill")], ["needs", word("needs"), "wide"]];
  return table(word("skills"), columns, found.map((it) => ({ name: name(it.name), needs: name(it.needs.join(", ")) })));
}
