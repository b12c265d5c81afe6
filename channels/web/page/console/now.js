/*
 * How the gateway is right now, for somebody who was woken up: what is broken stands first, with the next step; then what
 * waits for a person, the channels, and the queue.
 */

import { element, icon } from "../element.js";
import { inLanguage, number, word } from "../language.js";
import { badge, empty, facts, link, name, section, seconds, table, tile, when } from "./draw.js";

const KINDS = { ok: "good", starting: "plain", silent: "warn" };

export const now = {
  name: "now",
  icon: "pulse",
  every: 5_000,
  load: ({ ask }) => ask("GET", "api/console/state"),
  count: (state) => (state ? faultsOf(state).length : 0),
  draw: (state) => [
    headline(faultsOf(state)),
    state.waiting && section(word("waitsForYou"), waiting(state.waiting)),
    section(word("channels"), channels(state.channels)),
    Object.keys(state.watch).length > 0 && section(word("selfWatch"), watched(state.watch)),
    section(word("gateway"), gateway(state)),
  ],
};

/** What is wrong, as [text, link]. */
function faultsOf(state) {
  const failing = Object.keys(state.failing).map((check) => [word("takesNoWork", { why: said(state.outages[check]) }), null]);
  const config = state.config.error ? [[word("configBroken"), "#config"]] : [];
  const restart = state.config.restart.length ? [[word("wantsRestart", { keys: state.config.restart.join(", ") }), "#config"]] : [];
  const channels = Object.entries(state.channels)
    .filter(([, { state: link }]) => !["ok", "starting"].includes(link))
    .map(([label, { state: link }]) => [word("channelDown", { name: label, state: word(`channel_${link}`) }), null]);
  const models = Object.keys(state.failingModels).map((model) => [word("modelFails", { model, why: said(state.outages[model]) }), null]);
  const watched = Object.entries(state.watch)
    .filter(([label, { misses }]) => misses > 1 && (state.channels[label]?.state ?? "ok") === "ok" && !(label in state.failingModels))
    .map(([label, it]) => [word("watchMissed", { name: label, why: said(it) }), null]);
  return [...failing, ...config, ...restart, ...channels, ...models, ...watched];
}

/** Why something is not well, and the next step, in the page's language. */
function said(it) {
  const { reason, fix } = inLanguage({ en: it, zh: it.zh });
  return fix ? `${reason} — ${fix}` : reason;
}

function headline(faults) {
  if (!faults.length) return element("div", { class: "headline good" }, icon("check"), element("p", {}, word("allIsWell")));
  const lines = faults.map(([text, href]) => element("li", {}, href ? link(href, text) : element("bdi", {}, text)));
  return element("div", { class: "headline bad" }, icon("alert"), element("ul", {}, ...lines));
}

function waiting({ approvals, people, deadLetters }) {
  return element(
    "div",
    { class: "tiles" },
    tile(word("room_approvals"), number(approvals), { href: "#approvals", kind: approvals ? "calls" : "" }),
    tile(word("room_people"), number(people), { href: "#people", kind: people ? "calls" : "" }),
    tile(word("room_letters"), number(deadLetters), { href: "#letters", kind: deadLetters ? "calls" : "" }),
  );
}

function channels(found) {
  const entries = Object.entries(found);
  if (!entries.length) return empty(word("noChannels"), "info");
  const columns = [["name", word("channel")], ["state", word("state")], ["since", word("since")], ["reason", word("reasonAndFix"), "wide"]];
  return table(word("channels"), columns, entries.map(([label, it]) => ({
    name: name(label),
    state: badge(KINDS[it.state] ?? "bad", word(`link_${it.state}`)),
    since: when(Date.parse(it.since) / 1000),
    reason: it.reason ? element("span", { dir: "auto" }, said(it)) : "",
  })));
}

function watched(found) {
  const columns = [["name", word("watched")], ["missed", word("missed")], ["since", word("since")], ["reason", word("reasonAndFix"), "wide"]];
  return table(word("selfWatch"), columns, Object.entries(found).map(([label, it]) => ({
    name: name(label),
    missed: badge(it.misses > 1 ? "bad" : it.misses ? "warn" : "good", number(it.misses)),
    since: it.since ? when(Date.parse(it.since) / 1000) : "",
    reason: it.misses ? element("span", { dir: "auto" }, said(it)) : "",
  })));
}

function gateway({ version, ready, queue, answers, config, sandbox, failingModels }) {
  return facts([
    [word("version"), name(version)],
    [word("ready"), badge(ready ? "good" : "bad", word(ready ? "yes" : "no"))],
    [word("toAnswer"), number(queue.messages)],
    [word("toSend"), number(queue.parts)],
    [word("oldestWaits"), queue.oldestSeconds ? seconds(queue.oldestSeconds) : "–"],
    [word("answerTime"), answers.p50 === undefined ? "–" : `${seconds(answers.p50)} · ${seconds(answers.p95)}`],
    [word("lostMessages"), number(answers.lost)],
    [word("configVersion"), name(config.version)],
    [word("sandbox"), sandbox ? name(sandbox) : null],
    [word("failingModels"), Object.keys(failingModels).length ? name(Object.keys(failingModels).join(", ")) : null],
  ]);
}
