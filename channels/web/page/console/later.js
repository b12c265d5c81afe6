/*
 * What is to happen later, and what happens beside a conversation: schedules and reminders, which may be paused or stopped,
 * and tasks, which may be stopped.
 */

import { element } from "../element.js";
import { number, word } from "../language.js";
import { badge, button, empty, name, plain, seconds, section, table, titled, when, who } from "./draw.js";
import { asked, isSifted, pager, sieve } from "./sift.js";

const SCHEDULES = { active: "good", paused: "warn" };
const TASKS = { running: "warn", ended: "good", failed: "bad" };
const moment = (iso) => (iso ? when(Date.parse(iso) / 1000) : "–");

export const later = {
  name: "later",
  icon: "clock",
  every: 5_000,
  load: async ({ ask, argument }) => {
    const [schedules, tasks] = await Promise.all(["schedules", "tasks"].map((it) => ask("GET", `api/console/${it}?${asked(argument)}`)));
    return { schedules, tasks };
  },
  draw: ({ schedules, tasks }, context) => [
    (schedules.count + tasks.count > 0 || isSifted(context)) && sieve("later", context, ["words", "agent"]),
    section(
      word("schedules"),
      schedules.count ? planned(schedules.schedules, context) : empty(word(isSifted(context) ? "nothingFound" : "noSchedules"), "info"),
      pager("later", context, { ...schedules, shown: schedules.schedules.length }),
    ),
    section(
      word("tasks"),
      tasks.count ? running(tasks.tasks, context) : empty(word(isSifted(context) ? "nothingFound" : "noTasks"), "info"),
      pager("later", context, { ...tasks, shown: tasks.tasks.length, begin: "tasks" }),
    ),
  ],
};

function planned(found, context) {
  const columns = [["title", word("schedule"), "wide"], ["at", word("at")], ["to", word("to")], ["state", word("state")], ["due", word("due")], ["runs", word("runs"), "right"], ["act", word("change"), "end"]];
  return table(word("schedules"), columns, found.map((it) => ({
    title: element("span", {}, name(it.title || it.id, { class: "name clipped short" }), element("span", { class: "hint" }, name(it.ownerName || it.owner || word("ofConfig")), " · ", name(it.id))),
    at: name(it.at),
    to: titled(name(it.toName || it.to), it.toName ? it.to : ""),
    state: badge(SCHEDULES[it.state] ?? "plain", word(`schedule_${it.state}`)),
    due: moment(it.due),
    runs: element("span", {}, number(it.runs), it.skips ? element("span", { class: "hint" }, ` (${word("skipped", { count: number(it.skips) })})`) : ""),
    act: element("span", { class: "acts" }, ...changes(it, context)),
  })));
}

/** One of the config is removed there, so it may only be paused here. */
function changes(it, context) {
  const { id, state, owner } = it;
  const possible = { active: owner ? ["pause", "stop"] : ["pause"], paused: owner ? ["resume", "stop"] : ["resume"] }[state] ?? [];
  return possible.map((act) => changeButton(act, it, `schedules/${encodeURIComponent(id)}`, { act }, context));
}

function running(found, context) {
  const columns = [["title", word("task"), "wide"], ["agent", word("agent")], ["person", word("person")], ["state", word("state")], ["took", word("took"), "right"], ["act", word("change"), "end"]];
  return table(word("tasks"), columns, found.map((it) => ({
    title: element("span", {}, name(it.title || it.id, { class: "name clipped short" }), element("span", { class: "hint" }, name(it.id), " · ", when(it.started))),
    agent: name(it.agent),
    person: who(it.person, it.personName, { about: it.chatName || it.chat }),
    state: badge(TASKS[it.state] ?? "plain", word(`task_is_${it.state}`)),
    took: seconds(it.seconds),
    act: it.state === "running" ? changeButton("stop", it, `tasks/${encodeURIComponent(it.id)}`, {}, context) : "",
  })));
}

function changeButton(act, { id, title }, path, body, { act: does, ask, confirm }) {
  const press = async (pressed) => {
    if (act === "stop" && !(await confirm("stopIt", { name: plain(title || id) }))) return;
    does(pressed, () => ask("POST", `api/console/${path}`, body), word(`done_${act}`));
  };
  return button(word(`do_${act}`), press, { class: act === "stop" ? "act danger-act" : "act", "data-key": `${act === "stop" ? "stop" : "turn"}-${id}`, "aria-label": word(`do_${act}_name`, { name: plain(title || id) }) });
}
