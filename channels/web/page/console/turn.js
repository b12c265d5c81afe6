/*
 * One turn, layer by layer: where the time went, the event, the context, the route with its reasons, the prompt, each request
 * and call, and what was sent. A layer is folded until somebody wants it; the timeline and the facts stand open.
 */

import { element } from "../element.js";
import { number, word } from "../language.js";
import { badge, card, empty, facts, folded, link, money, name, seconds, section, table, text, when } from "./draw.js";
import { span } from "./plot.js";

const KINDS = { replied: "good", silent: "good", failed: "bad", "over-budget": "bad", running: "warn", waiting: "warn" };
const STAGES = { waited: "other", prepared: "other", request: "model-call", retry: "failed-stage", call: "tool-call", reply: "sending" };
const CALLS = { done: "good", failed: "bad", waiting: "warn", running: "warn" };
const PARTS = { sent: "good", queued: "warn", failed: "bad" };
const REQUESTS = { answered: "good", failed: "bad", running: "warn" };
const STAGES_MAX = 200;

export function turn(data, context) {
  const { missing, events, contexts, route, prompt, tools, steps, requests, calls, reply, timeline } = data;
  return [
    element("p", { class: "hint" }, link("#turns", `← ${word("room_turns")}`)),
    head(data.turn),
    ...missing.map((it) => element("p", { class: "headline warn" }, word(`missing_${it}`))),
    timeline.length > 0 && section(word("timeline"), drawing(timeline)),
    section(
      word("layers"),
      element(
        "div",
        { class: "layers" },
        layer("event", events.length, () => events.map((it, at) => json(`event-${at}`, it.body))),
        layer("context", contexts.length, () => contexts.map((it, at) => json(`context-${at}`, it))),
        layer("route", Object.keys(route).length, () => [reasons(route)]),
        layer("prompt", prompt.length, () => sections(prompt)),
        layer("offered", tools.length, () => [toolList(tools)]),
        layer("steps", steps.length, () => steps.map((it) => step(it))),
        layer("requests", requests.length, () => requests.map((it, at) => request(it, at))),
        layer("calls", calls.length, () => calls.map((it, at) => call(it, at))),
        layer("reply", reply.length, () => reply.map((it) => part(it))),
      ),
    ),
  ];
}

function head(it) {
  const { input, cacheRead, cacheWrite, output, reasoning } = it.tokens;
  return card(
    element("p", { class: "card-head" }, outcomeBadge(it), when(Date.parse(it.at) / 1000), element("code", {}, String(it.id))),
    element("p", { class: "asked-text", dir: "auto" }, name(it.text || word("noWords"))),
    it.reason && element("p", { class: "hint" }, name(it.reason)),
    facts([
      [word("person"), element("span", {}, name(it.name || it.person || "–"), it.name ? element("span", { class: "hint" }, " ", name(it.person)) : "")],
      [word("conversation"), name([it.channel, it.account === "default" ? "" : it.account, it.chat].filter(Boolean).join(":") + (it.thread ? `#${it.thread}` : ""))],
      [word("agent"), name(it.agent)],
      [word("by_model"), it.model ? name(it.model) : "–"],
      [word("took"), it.seconds === null ? "–" : seconds(it.seconds)],
      [word("requestsAndCalls"), `${number(it.requests)} · ${number(it.calls)}`],
      [word("tokensBoth"), tokens({ input, output, cacheRead, cacheWrite, reasoning })],
      [word("cost"), it.requests ? money(it.cost) : "–"],
    ]),
  );
}

function tokens({ input, output, cacheRead, cacheWrite, reasoning }) {
  const cached = cacheRead || cacheWrite ? ` · ${word("cached", { read: number(cacheRead), write: number(cacheWrite) })}` : "";
  const thought = reasoning ? ` · ${word("reasoning", { count: number(reasoning) })}` : "";
  return word("tokens", { input: number(input), output: number(output) }) + cached + thought;
}

/** An outcome that this page does not know yet is shown as it is called. */
export function outcomeBadge({ outcome }) {
  const key = `outcome_${outcome}`;
  const known = word(key);
  return badge(KINDS[outcome] ?? "plain", known === key ? outcome : known);
}

/** Where the time went: a row for each stage, its bar where it lay in the whole. */
function drawing(stages) {
  const whole = Math.max(...stages.map((it) => it.begin + it.seconds), 0.001);
  const rows = stages.slice(0, STAGES_MAX).map((it) =>
    element(
      "li",
      { class: "stage" },
      element("span", { class: "stage-name" }, word(`stage_${it.kind}`), " ", it.label !== it.kind && name(it.label, { class: "name hint" })),
      element("span", { class: "stage-bar" }, span(it.begin / whole, (it.begin + it.seconds) / whole, it.failed ? "failed-stage" : STAGES[it.kind] ?? "other")),
      element("span", { class: "stage-time" }, it.failed ? `✗ ${seconds(it.seconds)}` : seconds(it.seconds)),
    ),
  );
  return element("ol", { class: "stages", "aria-label": word("timeline") }, ...rows);
}

/** What is beneath is made when it is unfolded: a long turn has thousands of rows. */
function layer(key, count, made) {
  const details = folded(`layer-${key}`, element("span", {}, word(`layer_${key}`), element("span", { class: "hint" }, ` ${number(count)}`)));
  if (!count) return element("p", { class: "layer none" }, word(`layer_${key}`), element("span", { class: "hint" }, ` ${word("notKept")}`));
  details.classList.add("layer");
  details.addEventListener("toggle", () => details.open && details.childElementCount === 1 && details.append(element("div", { class: "layer-body" }, ...made())));
  return details;
}

const json = (key, value) => text(typeof value === "string" ? value : (JSON.stringify(value, null, 2) ?? "null"), { code: true, key });

function reasons(route) {
  const columns = [["what", word("layer_route")], ["value", word("value")], ["why", word("why"), "wide"]];
  const shown = (value) => (Array.isArray(value) ? value.join(", ") : value !== null && typeof value === "object" ? JSON.stringify(value) : String(value ?? ""));
  return table(word("layer_route"), columns, Object.entries(route).map(([what, it]) => ({ what: word(`route_${what}`), value: name(shown(it.value) || "–"), why: element("span", { dir: "auto" }, it.reason) })));
}

function sections(prompt) {
  return prompt.map((it, at) => {
    const title = [it.heading || word("whoItIs"), word("chars", { count: number(it.chars) }), word(it.stable ? "cacheable" : "changing")].join(" · ");
    return it.text === null ? element("p", { class: "hint" }, `${title} · ${word("notKept")}`) : folded(`section-${at}`, title, text(it.text, { key: `section-text-${at}` }));
  });
}

function toolList(tools) {
  const columns = [["name", word("tool")], ["summary", word("summary"), "wide"]];
  return table(word("layer_offered"), columns, tools.map((it) => ({ name: element("code", {}, it.name), summary: name(it.summary) })));
}

function step(it) {
  return element(
    "div",
    { class: "part" },
    element("p", { class: "card-head" }, badge("plain", word(`role_${it.role}`)), element("code", {}, `#${it.row}`), word("chars", { count: number(it.chars) }), it.images ? word("images", { count: it.images }) : ""),
    it.metadata && text(it.metadata, { code: true, key: `metadata-${it.row}` }),
    it.text && text(it.text, { key: `step-${it.row}` }),
  );
}

function request(it, at) {
  const { response, history } = it;
  const held = history.turns ? word("heldTurns", { count: number(history.turns), first: history.first, last: history.last }) : "";
  return element(
    "div",
    { class: "part" },
    element("p", { class: "card-head" }, badge(REQUESTS[it.state] ?? "plain", word(`request_${it.state}`)), name(`${it.provider}/${it.model}`.replace(`${it.provider}/${it.provider}/`, `${it.provider}/`))),
    facts([
      [word("took"), it.seconds === null ? null : seconds(it.seconds)],
      [word("firstToken"), it.firstTokenSeconds === null ? null : seconds(it.firstTokenSeconds)],
      [word("holds"), [held, history.summary ? word("withSummary") : "", it.rows.length ? word("ownRows", { rows: it.rows.map((row) => `#${row}`).join(" ") }) : ""].filter(Boolean).join("; ")],
      [word("requestOptions"), name(Object.entries(it.options).map(([key, value]) => `${key}: ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", "))],
      [word("tools"), it.tools.length ? name(it.tools.join(", ")) : null],
      [word("stopReason"), response?.stopReason ? name(response.stopReason) : null],
      [word("tokensBoth"), response ? tokens(response.tokens) + (response.estimated ? ` · ${word("estimated")}` : "") : null],
      [word("cost"), response ? money(response.cost) : null],
    ]),
    ...it.retries.map((failed) => element("p", { class: "hint" }, badge("bad", failed.error), " ", name(failed.words))),
    response?.error && element("p", {}, badge("bad", response.error), " ", name(response.words)),
    response?.thinking && folded(`thinking-${at}`, word("thinking"), text(response.thinking, { key: `thinking-text-${at}` })),
    response?.text && text(response.text, { key: `response-${at}` }),
  );
}

function call(it, at) {
  return element(
    "div",
    { class: "part" },
    element("p", { class: "card-head" }, badge(CALLS[it.state] ?? "plain", word(`tool_${it.state}`)), element("code", {}, it.tool), it.seconds === null ? "" : seconds(it.seconds), it.external && badge("warn", word("external"))),
    it.approval && element("p", { class: "hint" }, word("approvalOf", { id: it.approval.id, state: it.approval.state }), " ", name(it.approval.by)),
    element("h3", {}, word("toolArguments")),
    json(`arguments-${at}`, it.arguments),
    element("h3", {}, word("toolResult"), element("span", { class: "hint" }, ` ${word("chars", { count: number(it.chars) })}${it.cut ? ` · ${word("cutForModel")}` : ""}`)),
    it.result ? text(it.result, { code: true, key: `result-${at}` }) : empty(word("noResult"), "info"),
  );
}

function part(it) {
  return element(
    "div",
    { class: "part" },
    element("p", { class: "card-head" }, badge(PARTS[it.state] ?? "plain", word(`part_${it.state}`)), it.tool && badge("plain", word("byTool")), it.platformId && name(it.platformId), it.attempts > 1 && word("attempts", { count: number(it.attempts) }), it.ambiguous ? badge("warn", word("ambiguous", { count: it.ambiguous })) : ""),
    it.reason && element("p", { class: "hint" }, name(it.reason)),
    it.text && text(it.text, { key: `part-${it.key}` }),
    it.files.length > 0 && element("p", { class: "hint" }, word("attachments"), " ", name(it.files.join(", "))),
    it.buttons.length > 0 && element("p", { class: "hint" }, word("choices"), " ", name(it.buttons.join(", "))),
  );
}
