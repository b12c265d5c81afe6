/*
 * One turn, layer by layer: where the time went, the event, the context, the route with its reasons, the prompt, each request
 * and call, and what was sent. A layer is folded until somebody wants it; the timeline and the facts stand open.
 */

import { element } from "../element.js";
import { number, word } from "../language.js";
import { badge, card, chat, empty, facts, folded, link, money, name, plain, seconds, section, table, text, when, who } from "./draw.js";
import { span } from "./plot.js";

const KINDS = { replied: "good", silent: "good", failed: "bad", "over-budget": "bad", running: "warn", waiting: "warn" };
const STAGES = { waited: "other", prepared: "other", request: "model-call", retry: "failed-stage", call: "tool-call", reply: "sending" };
const CALLS = { done: "good", failed: "bad", waiting: "warn", running: "warn" };
const PARTS = { sent: "good", queued: "warn", failed: "bad" };
const REQUESTS = { answered: "good", failed: "bad", running: "warn" };
const STAGES_MAX = 200;

export function turn(data, context) {
  const { missing, masked, events, contexts, route, prompt, tools, steps, requests, calls, reply, timeline } = data;
  const shown = texts(data, context);
  const layer = layers(data);
  return [
    element("p", { class: "hint" }, link("#turns", `← ${word("room_turns")}`)),
    head(data.turn),
    ...missing.map((it) => element("p", { class: "headline warn" }, word(`missing_${it}`))),
    masked > 0 && element("p", { class: "headline warn" }, word("masked", { count: masked })),
    timeline.length > 0 && section(word("timeline"), ...drawing(timeline)),
    section(
      word("layers"),
      element(
        "div",
        { class: "layers" },
        layer("event", "events", () => events.map((it, at) => shown(`/events/${at}/body`, it.body, { code: true }))),
        layer("context", "contexts", () => contexts.map((it, at) => shown(`/contexts/${at}`, it, { code: true }))),
        layer("route", "route", () => [reasons(route)]),
        layer("prompt", "prompt", () => sections(prompt, shown)),
        layer("offered", "tools", () => [toolList(tools)]),
        layer("steps", "steps", () => steps.map((it, at) => step(it, `/steps/${at}`, shown))),
        layer("requests", "requests", () => requests.map((it, at) => request(it, `/requests/${at}`, shown))),
        layer("calls", "calls", () => calls.map((it, at) => call(it, `/calls/${at}`, shown))),
        layer("reply", "reply", () => reply.map((it, at) => part(it, `/reply/${at}`, shown))),
      ),
    ),
  ];
}

/** Shows the text at a place of the answer, an object as JSON; of one that was cut the rest is asked for. */
function texts({ turn: { id }, clipped }, { ask, act }) {
  const path = (at) => `api/turns/${id}/text?at=${encodeURIComponent(at)}`;
  const load = async (at, from, pressed) => {
    let piece = "";
    await act(pressed, async () => ({ text: piece } = await ask("GET", `${path(at)}&from=${from}`)), "");
    return piece;
  };
  return (at, value, { code = false } = {}) => {
    const written = typeof value === "string" ? value : (JSON.stringify(value, null, 2) ?? "null");
    const rest = at in clipped ? { chars: clipped[at], href: path(at), load: (from, pressed) => load(at, from, pressed) } : null;
    return text(written, { code, key: at, rest });
  };
}

function head(it) {
  const { input, cacheRead, cacheWrite, output, reasoning } = it.tokens;
  return card(
    element("p", { class: "card-head" }, outcomeBadge(it), when(Date.parse(it.at) / 1000), element("code", {}, String(it.id))),
    element("p", { class: "asked-text", dir: "auto" }, name(it.text || word("noWords"))),
    it.reason && element("p", { class: "hint" }, name(it.reason)),
    facts([
      [word("person"), who(it.person, it.name)],
      [word("conversation"), chat(it)],
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
  const left = stages.length - rows.length;
  return [element("ol", { class: "stages", "aria-label": word("timeline") }, ...rows), left > 0 && element("p", { class: "hint" }, word("andMore", { count: number(left) }))].filter(Boolean);
}

/** Draws a layer, folded. What is beneath is made when it is unfolded: a long turn has thousands of rows. */
function layers(data) {
  return (key, field, made) => {
    const held = Object.keys(data[field]).length;
    const count = data.clipped[`/${field}`] ?? held;
    const title = word(`layer_${key}`);
    if (!count) return element("p", { class: "layer none" }, title, element("span", { class: "hint" }, ` ${word("notKept")}`));
    const details = folded(`layer-${key}`, element("span", {}, title, element("span", { class: "hint" }, ` ${number(count)}`)));
    const left = () => count > held && element("p", { class: "hint" }, word("restByCommand", { count: number(count - held), id: data.turn.id }));
    details.classList.add("layer");
    details.addEventListener("toggle", () => details.open && details.childElementCount === 1 && details.append(element("div", { class: "layer-body" }, ...made(), left())));
    return details;
  };
}

function reasons(route) {
  const columns = [["what", word("layer_route")], ["value", word("value")], ["why", word("why"), "wide"]];
  const shown = (value) => (Array.isArray(value) ? value.join(", ") : value !== null && typeof value === "object" ? JSON.stringify(value) : String(value ?? ""));
  return table(word("layer_route"), columns, Object.entries(route).map(([what, it]) => ({ what: word(`route_${what}`), value: name(shown(it.value) || "–"), why: element("span", { dir: "auto" }, it.reason) })));
}

function sections(prompt, shown) {
  return prompt.map((it, at) => {
    const title = [plain(it.heading) || word("whoItIs"), word("chars", { count: number(it.chars) }), word(it.stable ? "cacheable" : "changing")].join(" · ");
    return it.text === null ? element("p", { class: "hint" }, `${title} · ${word("notKept")}`) : folded(`section-${at}`, title, shown(`/prompt/${at}/text`, it.text));
  });
}

function toolList(tools) {
  const columns = [["name", word("tool")], ["summary", word("summary"), "wide"]];
  return table(word("layer_offered"), columns, tools.map((it) => ({ name: element("code", {}, it.name), summary: name(it.summary) })));
}

function step(it, at, shown) {
  return element(
    "div",
    { class: "part" },
    element("p", { class: "card-head" }, badge("plain", word(`role_${it.role}`)), element("code", {}, `#${it.row}`), word("chars", { count: number(it.chars) }), it.images ? word("images", { count: it.images }) : ""),
    it.metadata && shown(`${at}/metadata`, it.metadata, { code: true }),
    it.text && shown(`${at}/text`, it.text),
  );
}

function request(it, at, shown) {
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
    response?.thinking && folded(`thinking-${at}`, word("thinking"), shown(`${at}/response/thinking`, response.thinking)),
    response?.text && shown(`${at}/response/text`, response.text),
  );
}

function call(it, at, shown) {
  return element(
    "div",
    { class: "part" },
    element("p", { class: "card-head" }, badge(CALLS[it.state] ?? "plain", word(`tool_${it.state}`)), element("code", {}, it.tool), it.seconds === null ? "" : seconds(it.seconds), it.external && badge("warn", word("external"))),
    it.approval && element("p", { class: "hint" }, word("approvalOf", { id: it.approval.id, state: it.approval.state }), " ", name(it.approval.by)),
    element("h3", {}, word("toolArguments")),
    shown(`${at}/arguments`, it.arguments, { code: true }),
    element("h3", {}, word("toolResult"), element("span", { class: "hint" }, ` ${word("chars", { count: number(it.chars) })}${it.cut ? ` · ${word("cutForModel")}` : ""}`)),
    it.result ? shown(`${at}/result`, it.result, { code: true }) : empty(word("noResult"), "info"),
  );
}

function part(it, at, shown) {
  return element(
    "div",
    { class: "part" },
    element("p", { class: "card-head" }, badge(PARTS[it.state] ?? "plain", word(`part_${it.state}`)), it.tool && badge("plain", word("byTool")), it.platformId && name(it.platformId), it.attempts > 1 && word("attempts", { count: number(it.attempts) }), it.ambiguous ? badge("warn", word("ambiguous", { count: it.ambiguous })) : ""),
    it.reason && element("p", { class: "hint" }, name(it.reason)),
    it.text && shown(`${at}/text`, it.text),
    it.files.length > 0 && element("p", { class: "hint" }, word("attachments"), " ", name(it.files.join(", "))),
    it.buttons.length > 0 && element("p", { class: "hint" }, word("choices"), " ", name(it.buttons.join(", "))),
  );
}
