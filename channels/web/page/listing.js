/*
 * The list of chats as the server keeps it: its further pages, what a search finds, and each change of a chat.
 */

import { sentence } from "./language.js";

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
