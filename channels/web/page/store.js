/*
 * The page's state: conversations, their messages and the running turns. Responses and events may arrive in any order
 * and more than once, so every update is idempotent, by id. It renders and requests nothing; it calls `changed`, and the
 * views read from here.
 */

import { countIn } from "./language.js";
import { placeOf } from "./timeline.js";

/** The newest of those that had the same place; answers may come late. */
function put(rows, row) {
  const place = placeOf(row);
  if ((rows.get(place)?.id ?? 0) <= row.id) rows.set(place, row);
}

export class Store {
  agents = [];
  limits = { file_bytes: 20_971_520, files: 10, message_chars: 20_000 };
  guide = false;
  /** Vendors that the operator may enter a first key for: {vendor, title, made_at}. */
  keys = [];
  /** Whether the operator may create a Feishu app by a scan. */
  scan = false;
  /** The code to claim the bot; null if it has an owner. */
  claim = null;
  /** The owners' names; null if the person at this page is an owner. */
  guestOf = null;
  /** Slash commands: {name, hint, en, zh}. */
  commands = [];
  /** Whether the server can transcribe speech. */
  voice = false;
  signedIn = false;
  /** Whether all sessions may be read. */
  operator = false;
  /** The signed-in person; null if not yet known. */
  person = null;
  after = null;
  /** The id of the conversation that is shown; null is a new one. */
  shown = null;
  /** The id of a chat → Chat. */
  chats = new Map();
  /**
   * The id of a chat → {rows: the place of a message → Message, more, loaded, loading, branch, versions, ratings}: the
   * branch that is shown of it, the numbers of the versions of a message by its id, and how the person rated answers.
   */
  conversations = new Map();
  /** The id of a person's message → the turn that answers it. */
  turns = new Map();
  unread = new Set();
  /** Cursors of the chat list and of the archived chats; null at the end. */
  next = null;
  archivedNext = null;
  /** The number of archived chats; loaded ones are in `chats`. */
  archived = 0;

  constructor(changed) {
    this.changed = changed;
  }

  show(id) {
    this.shown = id;
    this.seen();
  }

  /** The person looks at the page. */
  seen() {
    if (!document.hidden) this.unread.delete(this.shown);
    this.changed();
  }

  takeOwnership({ claim, channels, here, owners, feishu }) {
    this.scan = feishu;
    this.claim = channels.length > 0 ? claim : null;
    this.guestOf = here ? null : owners;
    this.changed();
  }

  takeList(answer) {
    countIn(answer.currency);
    this.agents = answer.agents;
    this.limits = answer.limits;
    this.commands = answer.commands;
    this.guide = answer.guide;
    this.keys = answer.keys;
    this.voice = answer.voice;
    this.signedIn = answer.signed_in;
    this.operator = answer.operator;
    this.person = answer.person;
    const aside = [...this.chats.values()].filter((chat) => chat.archived);
    this.chats = new Map([...aside, ...answer.chats].map((chat) => [chat.id, chat]));
    this.archived = answer.archived;
    this.next = answer.next;
    if (this.after === null) this.#listenFrom(answer.after);
    this.changed();
  }

  /** Events are heard from here on: what the server had before of a conversation that began here is asked for. */
  #listenFrom(after) {
    this.after = after;
    for (const [id, begun] of this.conversations) {
      if (this.chats.has(id)) this.conversations.set(id, { ...begun, loaded: false });
    }
  }

  takeChat(chat) {
    const before = this.chats.get(chat.id);
    if (before) this.archived += Number(chat.archived) - Number(before.archived);
    this.chats.set(chat.id, chat);
    this.changed();
  }

  /** Adds chats that are not on the first page of the list. */
  takeChats(chats) {
    for (const chat of chats) if (!this.chats.has(chat.id)) this.chats.set(chat.id, chat);
    this.changed();
  }

  /** Adds a further page of the list, or of the archived chats. */
  takePage({ chats, next }, { archived }) {
    this[archived ? "archivedNext" : "next"] = next;
    this.takeChats(chats);
  }

  forget(id) {
    if (this.chats.get(id)?.archived) this.archived -= 1;
    this.chats.delete(id);
    this.conversations.delete(id);
    this.unread.delete(id);
    for (const turn of [...this.turns.values()]) if (turn.chat === id) this.turns.delete(turn.message);
    this.changed();
  }

  forgetEverything() {
    for (const id of [...this.chats.keys()]) this.forget(id);
    this.conversations.clear();
    this.turns.clear();
    this.after = null;
    this.archived = 0;
    this.next = this.archivedNext = null;
    this.keys = [];
    this.claim = this.guestOf = null;
    this.scan = false;
    this.signedIn = this.operator = false;
    this.person = null;
    this.changed();
  }

  /** Messages that come while we ask for the others have their place already. */
  awaitConversation(id) {
    const before = this.conversations.get(id) ?? { rows: new Map(), more: false, loaded: false };
    this.conversations.set(id, { ...before, loading: true });
    this.changed();
  }

  /** The newest page of a conversation, or with `older` one that goes before what is here. */
  takeConversation(answer, { older = false, anew = false } = {}) {
    const before = this.conversations.get(answer.chat.id);
    const kept = [...(before?.rows ?? [])].filter(([, row]) => !anew || row.id > answer.after);
    const rows = new Map(kept); // what came since the server looked is newer than its answer
    for (const row of answer.messages) put(rows, row);
    const more = before?.loaded && !older && !anew ? before.more : answer.more;
    const { versions, ratings, chat } = answer;
    this.conversations.set(chat.id, { rows, more, loaded: true, loading: false, branch: chat.branch, versions, ratings });
    this.takeChat(answer.chat);
    for (const row of answer.messages) this.#endOf(row);
    this.changed();
  }

  /** The person rated an answer, here or in another tab. */
  takeRatings({ chat, ratings }) {
    const known = this.conversations.get(chat);
    if (known) this.conversations.set(chat, { ...known, ratings });
    this.changed();
  }

  /** Loading the conversation failed; it may be retried. */
  missConversation(id) {
    const before = this.conversations.get(id);
    if (before?.loaded || before?.rows.size) this.conversations.set(id, { ...before, loading: false });
    else this.conversations.delete(id);
    this.changed();
  }

  /** A conversation that begins now: there is nothing to ask for, and its messages come as they are said. */
  begin(id) {
    const rows = this.conversations.get(id)?.rows ?? new Map();
    this.conversations.set(id, { rows, more: false, loaded: true, loading: false });
    this.changed();
  }

  takeMessage(row, position) {
    if (position) this.after = Math.max(this.after ?? 0, position);
    const known = this.conversations.get(row.chat);
    if (known) put(known.rows, row);
    if (row.author === "agent" && !row.dropped && row.place === null && (row.chat !== this.shown || document.hidden)) this.unread.add(row.chat);
    this.#endOf(row);
    this.changed();
  }

  /** Replaces the draft with its answer. If the turn continues, its next event restores the draft. */
  #endOf(row) {
    const turn = row.author === "agent" ? this.turns.get(row.reply_to) : undefined;
    if (!turn) return;
    if (turn.running) this.turns.set(turn.message, { ...turn, answered: true });
    else this.turns.delete(turn.message);
  }

  takeTurn(news) {
    const before = this.turns.get(news.message);
    const works = news.running && news.tools.some((tool) => tool.state === "running");
    const turn = { blocks: [], answered: false, ...before, ...news };
    if (works) turn.answered = false;
    const chat = this.chats.get(news.chat);
    if (chat) this.chats.set(chat.id, { ...chat, running: news.running || this.#others(news) });
    if (news.running || !this.#answerOf(turn)) this.turns.set(news.message, turn);
    else this.turns.delete(news.message);
    this.changed();
  }

  #others(news) {
    return [...this.turns.values()].some((it) => it.chat === news.chat && it.message !== news.message && it.running);
  }

  #answerOf(turn) {
    const rows = this.conversations.get(turn.chat)?.rows.values() ?? [];
    return turn.answered || [...rows].some((row) => row.reply_to === turn.message);
  }

  takeDraft({ chat, message, at, blocks }) {
    const unknown = { chat, message, running: true, outcome: null, tools: [], blocks: [], answered: false };
    const turn = this.turns.get(message) ?? unknown;
    if (!turn.running) return;
    const now = [...turn.blocks.slice(0, at), ...blocks];
    this.turns.set(message, { ...turn, blocks: now, answered: turn.answered && now.length === 0 });
    this.changed();
  }

  /** A connection begins: what runs is told anew, so what is not told has ended. */
  beginAnew() {
    for (const turn of [...this.turns.values()]) {
      if (turn.running || !["stopped", "silent"].includes(turn.outcome)) this.turns.delete(turn.message);
    }
    this.changed();
  }

  /** Discards all other conversations, which are reloaded when opened, and all turns. */
  reset() {
    for (const id of [...this.conversations.keys()]) if (id !== this.shown) this.conversations.delete(id);
    this.turns.clear();
    this.changed();
  }

  running(id) {
    return this.turnsOf(id).some((turn) => turn.running) || Boolean(this.chats.get(id)?.running);
  }

  turnsOf(id) {
    return [...this.turns.values()].filter((turn) => turn.chat === id);
  }

  agentName(id) {
    return this.agents.find((agent) => agent.id === id)?.name ?? id ?? this.agents[0]?.name ?? "";
  }
}
