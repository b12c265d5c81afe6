/*
 * The config in force without its secrets, and each mistake of the edit that is not, with its line.
 */

import { element } from "../element.js";
import { number, word } from "../language.js";
import { badge, card, choice, facts, name, section } from "./draw.js";

export const config = {
  name: "config",
  icon: "gear",
  every: 5_000,
  count: (state) => (state?.config.error ? 1 : 0),
  load: ({ ask }) => ask("GET", "api/console/config"),
  draw: (data, context) => [
    data.problems.length > 0 && section(word("configBroken"), element("div", { class: "cards" }, ...data.problems.map(problem))),
    data.restart.length > 0 && element("p", { class: "headline warn" }, word("wantsRestart", { keys: data.restart.join(", ") })),
    facts([
      [word("configVersion"), name(data.version)],
      [word("state"), badge(data.problems.length ? "bad" : "good", word(data.problems.length ? "editRefused" : "inForce"))],
    ]),
    section(word("inForce"), yaml(data, context)),
  ],
};

function problem(it) {
  return card(
    element("p", { class: "card-head" }, badge("bad", word("line", { line: number(it.line), column: number(it.column) })), name(it.file.split("/").at(-1)), it.path && element("code", {}, it.path)),
    element("p", { dir: "auto" }, it.message),
    it.fix && element("p", { class: "hint", dir: "auto" }, it.fix),
  );
}

function yaml(data, { memory, redraw }) {
  const kind = memory.kind ?? "written";
  const choose = (value) => {
    memory.kind = value;
    redraw();
  };
  const options = [["written", word("configWritten")], ["whole", word("configWhole")]];
  const region = element("pre", { class: "text mono", tabindex: "0", role: "region", "aria-label": word("inForce"), dir: "ltr" }, data[kind]);
  return element("div", {}, choice(word("configShown"), options, kind, choose), region, element("p", { class: "hint" }, word("configMasked")));
}
