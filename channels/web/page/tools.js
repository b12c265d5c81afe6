/*
 * What the agent does while it works: a line for each tool, with its state. Under a finished answer they fold into
 * "3 tools used".
 */

import { element, icon } from "./element.js";
import { number, word } from "./language.js";
import { long } from "./long.js";

const ICONS = { done: "check", failed: "cross", waiting: "info" };

/** The nodes for these tools; `open` while the turn is at work. Keeps what the reader has unfolded `before`. */
export function toolList(tools, { open, before }) {
  if (!tools.length) return [];
  const list = element("ul", { class: "tools" }, ...tools.flatMap((tool) => [wordsBefore(tool), toolLine(tool)]));
  if (open) return [list];
  const unfolded = before?.tagName === "DETAILS" && before.open;
  const failed = tools.filter((tool) => tool.state === "failed").length;
  const counts = [word("toolsUsed", { count: tools.length }), failed ? word("toolsFailed", { failed }) : ""];
  const summary = element("summary", {}, summaryIcon(tools, failed), counts.filter(Boolean).join(" · "));
  return [element("details", { class: "tools-used", open: unfolded }, summary, list)];
}

/** What was said before this call, in its place. */
function wordsBefore({ said }) {
  return said ? element("li", { class: "tool-words", dir: "auto" }, ...long(said)) : "";
}

/** A miss on the way to an answer is no failure of the whole. */
function summaryIcon(tools, failed) {
  const waits = tools.some((tool) => tool.state === "waiting");
  const state = waits ? "waiting" : failed === tools.length ? "failed" : "done";
  return element("span", { class: "tool-state", "data-state": state }, sign(state));
}

function toolLine(tool) {
  const state = word(`tool_${tool.state}`);
  const head = [
    element(
      "span",
      { class: "tool-state", role: "img", "aria-label": state, title: state, "data-state": tool.state },
      sign(tool.state),
    ),
    element("span", { class: "tool-name" }, tool.name),
    tool.about ? element("span", { class: "tool-about", dir: "auto", title: tool.about }, tool.about) : null,
    typeof tool.seconds === "number"
      ? element("span", { class: "tool-seconds" }, word("seconds", { count: number(tool.seconds) }))
      : null,
  ];
  const open = tool.arguments || tool.result;
  return element(
    "li",
    { "data-tool": tool.name, "data-state": tool.state },
    ...(open ? [disclosure({ class: "tool-head" }, head, () => details(tool))] : head),
  );
}

/** A button that shows what `made` makes behind it, and takes it away again. */
export function disclosure(attributes, content, made) {
  const turn = () => {
    const opens = button.getAttribute("aria-expanded") !== "true";
    button.setAttribute("aria-expanded", String(opens));
    if (opens) button.after(made());
    else button.nextElementSibling.remove();
  };
  const button = element("button", { type: "button", "aria-expanded": "false", ...attributes, click: turn }, ...content);
  return button;
}

function details(tool) {
  const problem = tool.state === "failed" ? problemOf(tool.result) : null;
  const texts = { toolArguments: readable(tool.arguments), [problem ? "toolProblem" : "toolResult"]: problem ?? tool.result };
  const parts = Object.entries(texts).flatMap(([name, text]) =>
    text ? [element("p", { class: "tool-part" }, word(name)), element("pre", { tabindex: 0, "aria-label": word(name) }, ...long(text))] : [],
  );
  return element("div", { class: "tool-details" }, ...parts);
}

/** The sentence of a failure; null if it is in no known form. */
function problemOf(text) {
  try {
    const { error, message } = JSON.parse(text);
    return [message, error].find((it) => typeof it === "string" && it) ?? null;
  } catch {
    return null;
  }
}

/** JSON over several lines; whatever is none, as it is. */
function readable(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function sign(state) {
  return state in ICONS ? icon(ICONS[state]) : element("span", { class: "spinner" });
}
