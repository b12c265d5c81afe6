/*
 * The order of a conversation: each message of the person, below it what answers it, below that the draft of the
 * answer. It is made anew from what is known, every time, so that a message cannot stand there twice: what waits in
 * the outbox is left out as soon as its row is there. Pure; article.js draws the entries.
 */

export const STOP = "/stop";
/** A setting stands in the conversation as a line that says what holds from there on. */
const SETTING = /^\/(?:model|think|reasoning) \S+$/;
const AGAIN = /^\/(?:retry|重试|(?:edit|修改)\s+(?<text>[^]+))$/;

/** Where a message stands: one that took the place of another has a later number, and stays there. */
export const placeOf = (row) => row.place ?? row.id;

/** The entries of a conversation, from the top. `waiting` is what the outbox has of it. */
export function timeline(conversation, waiting, turns) {
  const all = [...(conversation?.rows.values() ?? [])].sort((one, other) => placeOf(one) - placeOf(other));
  const { beside, branched } = besideOf(all, waiting, conversation?.branch);
  const rows = all.filter((row) => !beside.has(row.author === "you" ? row.message : row.reply_to));
  const own = rows.filter((row) => row.author === "you");
  const stored = new Set(own.map((row) => row.message));
  const unstored = waiting.filter((entry) => !stored.has(entry.id));
  const known = new Set([...stored, ...unstored.map((entry) => entry.id)]);
  const isElsewhere = (message) => branched && message !== null && !known.has(message);
  const answers = byReplyTo(rows.filter((row) => !row.dropped));
  const dropped = new Set(rows.filter((row) => row.dropped).map((row) => row.reply_to));
  const current = runningRow(own, turns);
  const isLoose = (row) => row.author === "agent" && !row.dropped && !known.has(row.reply_to) && !isElsewhere(row.reply_to);
  const { anew, acts } = answeredAnew(own, unstored, rows, answers, turns);
  const stopped = own.some((row) => row.text === STOP);

  /** The answer to `/stop` takes the place of the command. */
  const isStopped = (message, text) => text === STOP && answers.has(message);
  const loose = looseOf(rows, acts, isLoose);
  const entries = [];
  const follow = (message, text) => {
    const after = anew.get(message)?.after ?? 0;
    const below = (answers.get(message) ?? []).filter((row) => row.author === "agent" && placeOf(row) > after);
    const shown = [...below, ...(loose.get(message) ?? [])].sort((one, other) => placeOf(one) - placeOf(other));
    const isDone = (row) => text === STOP && row.reply_to === message && isLine(row);
    entries.push(...shown.map((row) => (isDone(row) ? ofStop(row) : ofAnswer(row))));
    const turn = turns.find((it) => it.message === message);
    if (turn && text !== STOP) entries.push(...ofTurn(turn, stopped));
  };
  for (const row of rows) {
    if (acts.has(row.message) && row.author === "you") continue;
    if (row.author === "you" && isSetting(row.text, answers.get(row.message))) {
      entries.push(ofSetting(row.message, answers.get(row.message)), ...(loose.get(row.message) ?? []).map(ofAnswer));
    } else if (row.author === "you") {
      const queued = current !== null && row.id > current && !answers.has(row.message) && row.text !== STOP;
      const state = answers.has(row.message) || !dropped.has(row.message) ? "stored" : "dropped";
      const again = anew.get(row.message);
      const shown = again?.text ? { ...row, text: again.text } : row;
      if (!isStopped(row.message, row.text)) entries.push(ofOwnRow(shown, again?.state ?? (queued && state === "stored" ? "queued" : state)));
      follow(row.message, row.text);
    } else if (loose.get(null)?.includes(row)) entries.push(ofAnswer(row));
  }
  for (const entry of unstored) {
    if (acts.has(entry.id)) continue;
    if (entry.state !== "refused" && isSetting(entry.text, answers.get(entry.id))) {
      entries.push(ofSetting(entry.id, answers.get(entry.id)));
      continue;
    }
    if (!isStopped(entry.id, entry.text)) entries.push(ofUnstored(entry));
    follow(entry.id, entry.text);
  }
  for (const turn of turns) {
    if (!known.has(turn.message) && !isElsewhere(turn.message)) entries.push(...ofTurn(turn, stopped));
  }
  for (const entry of entries) if (entry.kind === "answer") entry.rating = conversation?.ratings?.[placeOf(entry.row)] ?? null;
  offerVersions(entries, conversation?.versions ?? {}, current === null && unstored.length === 0);
  return entries;
}

/**
 * What answers no message of the person, such as an approval that is asked for or a reminder: it stands where it came, among
 * the answers of the message before it. `null` has what came before them all.
 */
function looseOf(rows, acts, isLoose) {
  const loose = new Map();
  let message = null;
  for (const row of rows) {
    if (row.author === "you" && !acts.has(row.message)) message = row.message;
    else if (isLoose(row)) loose.set(message, [...(loose.get(message) ?? []), row]);
  }
  return loose;
}

/**
 * The messages that are on another branch than what is shown, as soon as one takes the place of another here; the server
 * leaves out those that it knows of. `branched`: what belongs to an unknown message is on another branch, too.
 */
function besideOf(rows, waiting, branch) {
  const own = rows.filter((row) => row.author === "you");
  const stored = new Set(own.map((row) => row.message));
  const sent = waiting.filter((entry) => !stored.has(entry.id) && entry.state !== "refused");
  const beside = new Set();
  let path = [];
  for (const { message, id, instead } of [...own, ...sent]) {
    const at = instead ? path.indexOf(instead) : -1;
    for (const left of at < 0 ? [] : path.slice(at)) beside.add(left);
    path = [...(at < 0 ? path : path.slice(0, at)), message ?? id];
  }
  return { beside, branched: Boolean(branch) || beside.size > 0 };
}

/** A longer answer, such as a list of models, is shown in full. */
const isSetting = (text, [answer] = []) => SETTING.test(text) && (!answer || isLine(answer));
const isLine = (answer) => !answer.text.includes("\n");

function ofSetting(message, [answer] = []) {
  return { kind: "note", key: message, word: "setting", text: answer?.text.replaceAll("`", "") };
}

function ofStop(row) {
  return { kind: "note", key: `stop ${row.id}`, row, icon: "stop", text: row.text };
}

const isCommand = (text) => /^[/／][a-z\u4e00-\u9fff]/i.test(text);

/**
 * Which messages are answered anew, by `/retry` or in other words by `/edit`: what was answered before is not shown, and
 * neither is the command. One that was refused has an answer of its own, and is shown like any message.
 */
function answeredAnew(own, unstored, rows, answers, turns) {
  const anew = new Map();
  const acts = new Set();
  const spoken = new Map(own.filter((row) => !isCommand(row.text)).map((row) => [row.message, row.id]));
  const waiting = unstored.map(({ id, text, state }) => ({ message: id, text, state, id: Infinity }));
  for (const act of [...own, ...waiting]) {
    const found = AGAIN.exec(act.text.trim());
    if (!found || answers.has(act.message) || act.state === "refused") continue;
    const before = (message) => spoken.get(message) < act.id;
    const answer = rows.find((row) => row.author === "agent" && placeOf(row) > act.id && before(row.reply_to));
    const turn = turns.find((it) => it.running && before(it.message));
    const message = answer?.reply_to ?? turn?.message ?? [...spoken.keys()].filter(before).at(-1);
    if (message === undefined) continue;
    acts.add(act.message);
    const state = act.id === Infinity && act.state !== "sent" ? act.state : "stored";
    anew.set(message, { after: act.id, text: found.groups.text ?? anew.get(message)?.text, state });
  }
  return { anew, acts };
}

/**
 * Every message can be edited, and its answer made anew; where there are several versions, one can turn to each. The last
 * answer can be gone on with, while nothing is under way.
 */
function offerVersions(entries, versions, idle) {
  const answers = new Map();
  for (const entry of entries) if (entry.kind === "answer") answers.set(entry.message, entry);
  for (const entry of entries) {
    if (entry.kind !== "own" || entry.state !== "stored" || entry.row === null || isCommand(entry.text)) continue;
    entry.open = true;
    entry.versions = versions[entry.message] ?? null;
    const answer = answers.get(entry.message);
    if (answer) answer.own = entry;
  }
  const last = entries.at(-1);
  if (last?.own && idle) last.last = true;
}

function byReplyTo(rows) {
  const groups = new Map();
  for (const row of rows) groups.set(row.reply_to, [...(groups.get(row.reply_to) ?? []), row]);
  return groups;
}

/** The row of the message that is being answered: later ones wait for it. */
function runningRow(own, turns) {
  const running = new Set(turns.filter((turn) => turn.running).map((turn) => turn.message));
  const rows = own.filter((row) => running.has(row.message) && row.text !== STOP).map((row) => row.id);
  return rows.length ? Math.max(...rows) : null;
}

function ofOwnRow({ id, message, text, files, at }, state) {
  return { kind: "own", key: message, message, row: id, text, files, at, state, refusal: null };
}

function ofUnstored({ id, text, files, at, state, refusal }) {
  return { kind: "own", key: id, message: id, row: null, text, files, at, state, refusal: refusal ?? null };
}

function ofAnswer(row) {
  return { kind: "answer", key: `row ${placeOf(row)}`, message: row.reply_to, row, streaming: false };
}

/** A turn is its draft while it runs and until its answer is here; what ended without one leaves a note. */
function ofTurn(turn, stopWasAsked) {
  if (!turn.running && (turn.outcome === "silent" || (turn.outcome === "stopped" && !stopWasAsked))) {
    return [{ kind: "note", key: `note ${turn.message}`, word: turn.outcome }];
  }
  const waited = turn.running || turn.outcome === "replied" || turn.outcome === "failed";
  const empty = turn.blocks.length === 0 && turn.tools.length === 0;
  if (turn.answered || !waited || (!turn.running && empty)) return [];
  return [{ kind: "draft", key: `draft ${turn.message}`, message: turn.message, turn, streaming: turn.running }];
}
