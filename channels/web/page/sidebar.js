/*
 * Which chats the sidebar lists: pinned ones first, then by day or by agent, a page at a time; those that were put aside;
 * or what a search found, with its lines. chatlist.js draws them.
 */

import { ChatList } from "./chatlist.js";
import { element, part } from "./element.js";
import { day, word } from "./language.js";
import { recall, recallJson, remember } from "./memory.js";
import { openMenu } from "./menu.js";

const SEARCH_PAUSE_MS = 200;
const PAGE_CHATS = 50;
const GROUPING = "clawgate.grouping";
const FOLDED = "clawgate.folded";

export class Sidebar {
  #field = part("search");
  #chats = [];
  #shown = null;
  #store = null;
  #timer = null;
  /** What is looked for, in lower case, and what the server found; null while it has not answered. */
  #words = "";
  #found = null;
  #foundMore = false;
  #limit = PAGE_CHATS;
  #inArchive = false;
  /** The ids that are chosen; null where nothing is to be. */
  #chosen = null;
  #folded = new Set(recallJson(FOLDED) ?? []);

  /**
   * `change(id, change)`, `changeAll(ids, change)`, `remove(chat)` and `removeAll(ids)` act; `search(words)` gives what was
   * found, `page({archived})` loads a further page of the list, or of what was put aside; `chosen()` hears of a click.
   */
  constructor(acts) {
    this.acts = acts;
    this.list = new ChatList({
      chosen: acts.chosen,
      options: (id, button) => this.#openOptions(id, button),
      rename: (id, title) => acts.change(id, { title }),
      remove: (id) => acts.remove(this.#chat(id)),
      toggle: (id) => this.#toggle(id),
      fold: (key) => this.#fold(key),
    });
    this.#field.addEventListener("input", () => this.#look());
    this.#field.addEventListener("keydown", (event) => this.#pressed(event));
    part("list-options").addEventListener("click", () => this.#openListOptions());
    part("more-chats").addEventListener("click", () => this.#showMore());
    const nearEnd = ([{ isIntersecting }]) => isIntersecting && !part("sidebar").contains(document.activeElement) && this.#showMore();
    new IntersectionObserver(nearEnd, { root: part("conversations").parentElement, rootMargin: "200px" }).observe(part("more-chats"));
    part("archive").addEventListener("click", () => this.#turnArchive());
    part("bulk-archive").addEventListener("click", () => this.#archiveChosen());
    part("bulk-delete").addEventListener("click", () => this.acts.removeAll([...this.#chosen]));
    part("bulk-done").addEventListener("click", () => this.#choose(null));
  }

  /** The search text, to be highlighted in the chat as well. */
  get words() {
    return this.#words.split(/\s+/).filter(Boolean);
  }

  focusSearch() {
    this.#field.focus();
    this.#field.select();
  }

  clear() {
    this.list.clear();
  }

  /** `chats` newest first, each with `running`, `unread`. */
  show(chats, shown, store) {
    this.#chats = chats;
    this.#shown = shown;
    this.#store = store;
    this.#draw();
  }

  #draw() {
    const groups = this.#groups();
    const listed = groups.reduce((count, group) => count + group.entries.length, 0);
    part("search-row").hidden = this.#chats.length + this.#store.archived === 0;
    this.list.show(groups, this.#shown, this.#chosen);
    part("no-conversations").textContent = this.#state(listed);
    part("no-conversations").hidden = part("no-conversations").textContent === "";
    const more = this.#found ? 0 : this.#next ? PAGE_CHATS : this.#matching().length - this.#limit;
    part("more-chats").hidden = more <= 0;
    part("more-chats").textContent = word("moreChats", { count: Math.min(more, PAGE_CHATS) });
    part("archive").hidden = (!this.#inArchive && this.#store.archived === 0) || this.#words !== "";
    part("archive").textContent = this.#inArchive ? word("allChats") : word("archivedChats", { count: this.#store.archived });
    part("bulk").hidden = this.#chosen === null;
    part("bulk-count").textContent = word("chosenChats", { count: this.#chosen?.size ?? 0 });
    part("bulk-archive").textContent = word(this.#inArchive ? "unarchive" : "archive");
    for (const name of ["bulk-archive", "bulk-delete"]) part(name).disabled = !this.#chosen?.size;
  }

  #state(listed) {
    if (this.#found && listed) return word(this.#foundMore ? "foundMore" : "foundChats", { count: listed });
    if (listed) return "";
    if (this.#words) return word("nothingFound");
    return word(this.#inArchive ? "noArchived" : "noConversations");
  }

  #matching() {
    const matches = (chat) => !this.#words || chat.title.toLocaleLowerCase().includes(this.#words);
    return this.#chats.filter((chat) => Boolean(chat.archived) === this.#inArchive && matches(chat));
  }

  #groups() {
    if (this.#found) return [{ key: "found", title: "", entries: this.#found.map((it) => this.#known(it)) }];
    const groups = new Map();
    const put = (key, title, chat, folds = false) => {
      const folded = folds && this.#folded.has(key);
      if (!groups.has(key)) groups.set(key, { key, title, folds, folded, entries: [] });
      groups.get(key).entries.push({ chat });
    };
    const listed = this.#matching();
    const pinned = listed.filter((chat) => chat.pinned);
    for (const chat of pinned) put("pinned", word("pinned"), chat);
    for (const chat of listed.filter((it) => !it.pinned).slice(0, Math.max(0, this.#limit - pinned.length))) {
      if (this.#byAgent()) put(`agent ${chat.agent}`, this.#store.agentName(chat.agent), chat, true);
      else put(`day ${day(chat.at)}`, day(chat.at), chat);
    }
    return groups.size ? [...groups.values()] : [{ key: "none", title: "", entries: [] }];
  }

  /** What the server found, as it stands now. */
  #known({ chat, title, hits }) {
    return { chat: this.#chat(chat.id) ?? chat, title, hits };
  }

  /** By agent where a person has several, unless they chose otherwise. */
  #byAgent() {
    const agents = new Set(this.#chats.map((chat) => chat.agent));
    return agents.size > 1 && recall(GROUPING) !== "day";
  }

  #chat(id) {
    return this.#chats.find((chat) => chat.id === id);
  }

  // What the person does

  #pressed(event) {
    if (event.key === "ArrowDown") {
      event.preventDefault();
      part("conversations").querySelector('[tabindex="0"]')?.focus();
    }
    if (event.key !== "Escape" || !this.#field.value) return;
    event.stopPropagation();
    this.#field.value = "";
    this.#look();
  }

  /** Titles at once, messages when the server has answered. */
  #look() {
    const words = this.#field.value.trim();
    this.#words = words.toLocaleLowerCase();
    this.#found = null;
    this.#limit = PAGE_CHATS;
    this.#draw();
    clearTimeout(this.#timer);
    if (!words) return;
    this.#timer = setTimeout(async () => {
      const { chats, more } = await this.acts.search(words);
      if (words !== this.#field.value.trim()) return;
      this.#found = chats;
      this.#foundMore = more;
      this.#draw();
    }, SEARCH_PAUSE_MS);
  }

  /** Where the list goes on that is shown. */
  get #next() {
    return this.#inArchive ? this.#store.archivedNext : this.#store.next;
  }

  /** Also when the list is scrolled to its end; then the focus stays where it is. */
  async #showMore() {
    const before = part("conversations").querySelectorAll(".chat-link").length;
    const byKeys = document.activeElement === part("more-chats");
    this.#limit += PAGE_CHATS;
    if (this.#next && this.#matching().length < this.#limit) await this.acts.page({ archived: this.#inArchive });
    this.#draw();
    if (byKeys) part("conversations").querySelectorAll(".chat-link")[before]?.focus();
  }

  async #turnArchive() {
    this.#inArchive = !this.#inArchive;
    this.#chosen = null;
    this.#limit = PAGE_CHATS;
    if (this.#inArchive) await this.acts.page({ archived: true });
    this.#draw();
    part("archive").focus();
  }

  #fold(key) {
    if (!this.#folded.delete(key)) this.#folded.add(key);
    remember(FOLDED, JSON.stringify([...this.#folded]));
    this.#draw();
  }

  #choose(chosen) {
    this.#chosen = chosen;
    this.#draw();
    (chosen ? part("conversations").querySelector(".pick") : part("list-options"))?.focus();
  }

  #toggle(id) {
    if (!this.#chosen.delete(id)) this.#chosen.add(id);
    this.#draw();
  }

  async #archiveChosen() {
    const ids = [...this.#chosen];
    this.#choose(null);
    await this.acts.changeAll(ids, { archived: !this.#inArchive });
  }

  /** Drops deleted chats from the selection and the results. */
  forget(ids) {
    for (const id of ids) this.#chosen?.delete(id);
    this.#found = this.#found?.filter(({ chat }) => !ids.includes(chat.id)) ?? null;
    if (this.#chosen?.size === 0) this.#choose(null);
  }

  #openListOptions() {
    const turn = () => {
      remember(GROUPING, this.#byAgent() ? "day" : "agent");
      this.#draw();
    };
    const several = new Set(this.#chats.map((chat) => chat.agent)).size > 1;
    openMenu(part("list-options"), [
      { text: word("choose"), act: () => this.#choose(new Set()) },
      ...(several ? [{ text: word(this.#byAgent() ? "groupByDay" : "groupByAgent"), act: turn }] : []),
    ]);
  }

  #openOptions(id, button) {
    const { pinned, archived } = this.#chat(id) ?? {};
    const change = (what) => () => this.acts.change(id, what);
    openMenu(button, [
      { text: word("rename"), act: () => this.list.rename(id) },
      { text: word(pinned ? "unpin" : "pin"), act: change({ pinned: !pinned }) },
      { text: word(archived ? "unarchive" : "archive"), act: change({ archived: !archived }) },
      { text: word("export"), act: () => save(`api/chats/${id}/export`) },
      { text: word("delete"), act: () => this.acts.remove(this.#chat(id)), danger: true, apart: true },
    ]);
  }
}

function save(address) {
  element("a", { href: address, download: "" }).click();
}
