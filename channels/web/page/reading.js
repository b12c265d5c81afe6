/*
 * The conversation that the address names: fetched, continued backwards, opened at a message, turned to another branch. And
 * the list of chats as the server keeps it: its further pages, what a search finds, and each change of a chat.
 */

import { sentence } from "./language.js";

/** A conversation, and perhaps the number of one of its messages. */
const CHAT = /^#(c_[\w-]{1,80})(?:\/(\d{1,15}))?$/;

export class Reading {
  #loadingOlder = false;
  /** The message that the address names, {id of its chat, number}, as long as it is looked for. */
  #sought = null;
  /** The number of the last request for a conversation: only its answer counts. */
  #asked = 0;

  /** gone(id): what becomes of a conversation that is not there any more. */
  constructor({ api, store, outbox, page, gone }) {
    Object.assign(this, { api, store, outbox, page, gone });
  }

  /** Shows what the address names. */
  follow() {
    const [, id = null, number] = CHAT.exec(location.hash) ?? [];
    this.#sought = number ? { id, number: Number(number) } : null;
    this.store.show(id);
    this.page.turnTo(id);
    if (this.store.after !== null) this.load(id);
    this.#seek();
  }

  /** Asks for everything anew: what is here may lack something. */
  reload() {
    this.store.reset();
    return this.load(this.store.shown, { anew: true });
  }

  async load(id, { anew = false } = {}) {
    const known = this.store.conversations.get(id);
    if (id === null || (!anew && (known?.loaded || known?.loading))) return;
    this.store.awaitConversation(id);
    const asked = ++this.#asked;
    try {
      const answer = await this.api.conversation(id);
      if (!anew || asked === this.#asked) this.#take(answer, { anew });
    } catch (refusal) {
      this.store.missConversation(id);
      if (refusal.status === 404) this.missing(id);
    }
  }

  #take(answer, how) {
    for (const row of answer.messages) this.outbox.delivered(row.message);
    this.store.takeConversation(answer, how);
    this.#seek();
  }

  /** Shows the message that the address names, after asking for what lies between; one that is gone is let be. */
  async #seek() {
    const { id, number, turned } = this.#sought ?? {};
    const conversation = this.store.conversations.get(id);
    if (id !== this.store.shown || !conversation?.loaded || this.#loadingOlder) return;
    const rows = [...conversation.rows.values()];
    if (rows.some((row) => row.id === number)) this.page.reveal(number);
    else if (conversation.more && Math.min(...rows.map((row) => row.id)) > number) return void this.loadOlder(number);
    this.#sought = null;
    if (conversation.branch && !turned && !rows.some((row) => row.id === number)) this.#turnToSought(id, number);
  }

  /** What was found may be on another branch. */
  async #turnToSought(id, number) {
    const chat = await this.api.change(id, { branch: number }).catch(() => null);
    if (!chat || id !== this.store.shown) return;
    this.#sought = { id, number, turned: true };
    this.store.takeChat(chat);
    this.turned(id, chat.branch);
  }

  /** It was not there: it has yet to be sent, it began while we asked, or it is gone. */
  missing(id) {
    const known = this.store.conversations.get(id);
    const began = known && !known.loaded && known.rows.size > 0;
    if (began || this.outbox.of(id).length) this.store.begin(id);
    else this.gone(id);
  }

  async loadOlder(until = null) {
    const id = this.store.shown;
    const conversation = this.store.conversations.get(id);
    if (this.#loadingOlder || !conversation?.loaded || !conversation.more) return;
    this.#loadingOlder = true;
    try {
      const oldest = Math.min(...[...conversation.rows.values()].map((row) => row.id));
      const answer = await this.api.conversation(id, oldest, until);
      this.#loadingOlder = false;
      this.#take(answer, { older: true });
    } catch {
      // The next scroll asks again.
    } finally {
      this.#loadingOlder = false;
    }
  }

  /** Another branch of a conversation is shown: what is here of it is another one. */
  turned(id, branch) {
    const known = this.store.conversations.get(id);
    if (!known?.loaded || known.branch === branch || (!known.branch && !branch)) return null;
    if (id === this.store.shown) return this.load(id, { anew: true });
    return this.store.conversations.delete(id);
  }

  /** Turns to another version of a message. */
  async turn(number, way) {
    const id = this.store.shown;
    try {
      const chat = await this.api.change(id, { branch: number });
      this.page.conversation.turnedTo(number, way);
      this.store.takeChat(chat);
      this.turned(id, chat.branch);
    } catch (refusal) {
      this.page.say(sentence(refusal));
    }
  }
}

export class Listing {
  #listing = false;

  /** gone(id): what becomes of a conversation that was deleted. */
  constructor({ api, store, page, gone }) {
    Object.assign(this, { api, store, page, gone });
  }

  async search(words) {
    const answer = await this.api.search(words).catch(() => ({ chats: [], more: false }));
    this.store.takeChats(answer.chats.map(({ chat }) => chat));
    return answer;
  }

  /** The page of the list behind those that are here, or of the chats that were put aside. */
  async more({ archived }) {
    const behind = archived ? this.store.archivedNext : this.store.next;
    if (this.#listing || (!archived && !behind)) return;
    this.#listing = true;
    try {
      this.store.takePage(await this.api.listed({ archived, behind }), { archived });
    } catch (refusal) {
      this.page.say(sentence(refusal));
    } finally {
      this.#listing = false;
    }
  }

  /** Renames a chat, pins it or puts it aside: here at once, and back if the server does not. */
  async change(id, change) {
    const before = this.store.chats.get(id);
    if (!before) return;
    this.store.takeChat({ ...before, ...change });
    try {
      this.store.takeChat(await this.api.change(id, change));
    } catch (refusal) {
      this.store.takeChat(before);
      this.page.say(sentence(refusal));
    }
  }

  async remove(id) {
    try {
      if (this.store.chats.has(id)) await this.api.remove(id);
    } catch (refusal) {
      if (refusal.status !== 404) return this.page.say(sentence(refusal));
    }
    return this.gone(id);
  }
}
