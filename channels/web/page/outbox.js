/*
 * What the person has sent and the server has not confirmed: kept in localStorage, one key a message, until a 200.
 * The same id is the same message, so anything that leaves doubt is simply sent again, also after a reload or by
 * another tab. They leave one at a time, in the order of writing; a refusal is kept for the person to decide.
 */

import { newId } from "./api.js";
import { keysOf, recall, recallJson, remember } from "./memory.js";

const PREFIX = "clawgate.outbox.";
const LOCK = "clawgate.outbox";
const PAUSES_MS = [1000, 2000, 4000, 8000, 15_000];

export class Outbox {
  /**
   * Entry by id: {id, chat, agent, text, files, instead, at, person, state: "sending"|"waiting"|"refused"|"sent",
   * refusal, kept}; `instead` is the message of which it is another version, `kept` is whether the browser has written it down, `person` is who wrote it, as far as was known.
   */
  #entries = new Map();
  #pumping = false;
  #failures = 0;
  #wake = () => {};

  /** `whose()` is who is signed in, null while that is not known. */
  constructor({ post, changed, whose }) {
    Object.assign(this, { post, changed, whose });
    for (const key of keysOf(PREFIX) ?? []) this.#read(key);
    window.addEventListener(
      "storage",
      (event) => event.key?.startsWith(PREFIX) && this.#heard(event.key, event.newValue),
    );
  }

  /** Takes a message and sets out to send it. */
  add({ chat, agent, text, files, person, instead }) {
    const state = this.#failures ? "waiting" : "sending";
    const entry = { id: newId("m"), chat, agent, text, files, instead, at: this.#later(), person, state, refusal: null };
    this.#put(entry);
    this.#wake();
    this.pump();
    return entry;
  }

  /** Those of a chat, in the order of writing. */
  of(chat) {
    return this.all().filter((entry) => entry.chat === chat);
  }

  /** Those of whoever is signed in; of another person in the same browser they wait, and are not shown. */
  all() {
    const person = this.whose();
    const own = [...this.#entries.values()].filter((entry) => !person || !entry.person || entry.person === person);
    return own.sort((one, other) => one.at - other.at);
  }

  /** The server has shown us the message itself. */
  delivered(id) {
    if (this.#entries.has(id)) this.#drop(id);
  }

  tryAgain(id) {
    const entry = this.#entries.get(id);
    if (entry) this.#put({ ...entry, state: "waiting", refusal: null });
    this.wake();
  }

  discard(id) {
    this.#drop(id);
  }

  dropChat(chat) {
    for (const entry of this.of(chat)) this.#drop(entry.id);
  }

  /** The connection is back, or somebody signed in: no reason to wait any longer. */
  wake() {
    this.#failures = 0;
    this.#wake();
    this.pump();
  }

  async pump() {
    if (this.#pumping) return;
    this.#pumping = true;
    try {
      for (let next = this.#next(); next; next = this.#next()) {
        const trouble = await exclusively(() => this.#attempt(next.id));
        if (trouble) await this.#pause(trouble);
      }
    } finally {
      this.#pumping = false;
    }
  }

  #next() {
    const person = this.whose();
    const mayGo = (entry) => !entry.person || entry.person === person;
    return this.all().find((entry) => mayGo(entry) && (entry.state === "sending" || entry.state === "waiting"));
  }

  /** Null when the message needs no further attempt, else the refusal that will pass. */
  async #attempt(id) {
    const entry = this.#entries.get(id);
    if (!entry || entry.state === "sent") return null;
    if (entry.kept && recall(PREFIX + id) === null) return this.#sent(id); // by another tab, a moment ago
    if (this.#failures === 0) this.#put({ ...entry, state: "sending", refusal: null });
    try {
      const { chat, agent, text, files, instead } = entry;
      await this.post({ id, chat, agent, text, files: files.map((file) => file.id), instead });
    } catch (refusal) {
      return this.#refused(id, refusal);
    }
    this.#failures = 0;
    return this.#sent(id);
  }

  #refused(id, refusal) {
    const entry = this.#entries.get(id);
    if (!entry) return null;
    if (refusal.passing) {
      this.#failures += 1;
      this.#put({ ...entry, state: "waiting", refusal: refusal.texts ? { texts: refusal.texts } : null });
      return refusal;
    }
    this.#put({ ...entry, state: "refused", refusal: { code: refusal.code, message: refusal.message } });
    return null;
  }

  /** Until it is worth another attempt; where somebody has to sign in first, until then. */
  #pause(refusal) {
    const pause = PAUSES_MS[Math.min(this.#failures, PAUSES_MS.length) - 1] ?? PAUSES_MS[0];
    return new Promise((resolve) => {
      const timer = refusal.status === 401 ? null : setTimeout(resolve, pause);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  /** Stored by the server; it stays in view until its row arrives. */
  #sent(id) {
    const entry = this.#entries.get(id);
    remember(PREFIX + id, null);
    if (entry) this.#entries.set(id, { ...entry, state: "sent" });
    this.changed();
    return null;
  }

  /** What is written does not tell "sending" from "waiting", nor why: that is each tab's own affair. */
  #put(entry) {
    const { state, kept, ...lasting } = entry;
    if (state !== "refused") lasting.refusal = null;
    const written = remember(PREFIX + entry.id, JSON.stringify(lasting));
    this.#entries.set(entry.id, { ...entry, kept: written });
    this.changed();
  }

  #drop(id) {
    remember(PREFIX + id, null);
    this.#entries.delete(id);
    this.changed();
  }

  #read(key) {
    const entry = recallJson(key);
    const whole = entry && typeof entry.id === "string" && typeof entry.chat === "string" && Array.isArray(entry.files);
    if (!whole) remember(key, null);
    else this.#entries.set(entry.id, { ...entry, state: entry.refusal ? "refused" : "waiting", kept: true });
  }

  /** Another tab wrote, sent or discarded one. */
  #heard(key, value) {
    const id = key.slice(PREFIX.length);
    const entry = this.#entries.get(id);
    if (value !== null && entry?.state !== "sending" && entry?.state !== "sent") this.#read(key);
    else if (value !== null) return;
    else if (entry?.state === "refused") this.#entries.delete(id);
    else if (entry) this.#entries.set(id, { ...entry, state: "sent" });
    this.changed();
    this.pump();
  }

  /** Two messages of one moment keep their order. */
  #later() {
    const last = this.all().at(-1)?.at ?? 0;
    return Math.max(Date.now() / 1000, last + 0.001);
  }
}

/** One tab at a time where the browser can promise that; elsewhere the ids make a second sending harmless. */
function exclusively(work) {
  return navigator.locks ? navigator.locks.request(LOCK, work) : work();
}
