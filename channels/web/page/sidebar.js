/*
 * The list of conversations. An item is a link to the conversation, so that it opens like any link; its menu
 * renames and deletes. Items are kept while they are in the list, so that focus and a half-written title stay where
 * they are.
 */

import { element, iconButton, part } from "./element.js";
import { day, word } from "./language.js";
import { openMenu } from "./menu.js";

const SEARCH_PAUSE_MS = 200;

export class Sidebar {
  #list = part("conversations");
  #field = part("search");
  #items = new Map();
  #lastChats = [];
  #shown = null;
  #timer = null;
  /** What is looked for, in lower case, and the conversations in whose messages the server found it. */
  #words = "";
  #found = new Set();

  /** `rename(id, title)` and `remove(chat)` act; `search(words)` gives ids; `chosen(id)` hears of a click. */
  constructor({ rename, remove, search, chosen }) {
    Object.assign(this, { rename, remove, search, chosen });
    this.#field.addEventListener("input", () => this.#look());
    this.#field.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !this.#field.value) return;
      event.stopPropagation();
      this.#field.value = "";
      this.#look();
    });
  }

  /** Titles at once, messages when the server has answered. */
  #look() {
    const words = this.#field.value.trim();
    this.#words = words.toLocaleLowerCase();
    this.#found = new Set();
    this.show(this.#lastChats, this.#shown);
    clearTimeout(this.#timer);
    if (!words) return;
    this.#timer = setTimeout(async () => {
      const found = await this.search(words);
      if (words !== this.#field.value.trim()) return;
      this.#found = new Set(found);
      this.show(this.#lastChats, this.#shown);
    }, SEARCH_PAUSE_MS);
  }

  #matches(chat) {
    return !this.#words || chat.title.toLocaleLowerCase().includes(this.#words) || this.#found.has(chat.id);
  }

  clear() {
    this.#items.clear();
    this.#list.replaceChildren();
  }

  /** `chats` newest first, each with `running`, `unread`. */
  show(chats, shown) {
    this.#lastChats = chats;
    this.#shown = shown;
    this.#field.hidden = chats.length === 0;
    const listed = chats.filter((chat) => this.#matches(chat));
    part("no-conversations").hidden = listed.length > 0;
    part("no-conversations").textContent = word(chats.length ? "nothingFound" : "noConversations");
    const days = listed.map((chat) => day(chat.at));
    const ids = new Set([...listed.map((chat) => chat.id), ...days]);
    for (const [id, item] of this.#items) {
      if (ids.has(id)) continue;
      item.remove();
      this.#items.delete(id);
    }
    let place = this.#list.firstElementChild;
    const put = (item) => {
      if (item === place) place = place.nextElementSibling;
      else this.#list.insertBefore(item, place);
    };
    listed.forEach((chat, at) => {
      if (days[at] !== days[at - 1]) put(this.#dayOf(days[at]));
      const item = this.#itemOf(chat.id);
      update(item, chat, chat.id === shown);
      put(item);
    });
  }

  #dayOf(name) {
    if (!this.#items.has(name)) {
      this.#items.set(name, element("li", { class: "day", role: "presentation" }, element("h2", {}, name)));
    }
    return this.#items.get(name);
  }

  #itemOf(id) {
    if (!this.#items.has(id)) this.#items.set(id, this.#made(id));
    return this.#items.get(id);
  }

  #made(id) {
    const link = element("a", {
      class: "chat-link",
      href: `#${id}`,
      id: `link-${id}`,
      dir: "auto",
      click: () => this.chosen(id),
    });
    const options = iconButton("more", word("options"), () => this.#openOptions(id, options), {
      class: "icon-button small options",
      title: null,
      "aria-haspopup": "menu",
      "aria-describedby": `link-${id}`,
    });
    link.addEventListener("dblclick", () => this.#beginRename(id));
    return element(
      "li",
      { class: "chat-item" },
      link,
      element("span", { class: "dot", role: "img", hidden: true }),
      options,
    );
  }

  #openOptions(id, button) {
    openMenu(button, [
      { text: word("rename"), act: () => this.#beginRename(id) },
      { text: word("delete"), act: () => this.remove(this.#chat(id)), danger: true },
      { text: word("export"), act: () => save(`api/chats/${id}/export`) },
    ]);
  }

  #chat(id) {
    return this.#lastChats.find((chat) => chat.id === id);
  }

  #beginRename(id) {
    const item = this.#items.get(id);
    if (!item || item.querySelector("input")) return;
    const title = this.#chat(id).title;
    const field = element("input", {
      class: "rename",
      type: "text",
      value: title,
      maxlength: 200,
      dir: "auto",
      "aria-label": word("titleField"),
    });
    let finished = false;
    const finish = (accepted, refocus) => {
      if (finished) return;
      finished = true; // taking the field out blurs it, which would finish it again
      const written = field.value.trim();
      field.remove();
      item.classList.remove("renaming");
      if (refocus) item.querySelector(".chat-link").focus();
      if (accepted && written && written !== title) this.rename(id, written);
    };
    field.addEventListener("keydown", (event) => {
      if (event.isComposing || event.keyCode === 229) return;
      if (event.key === "Enter") finish(true, true);
      if (event.key === "Escape") finish(false, true);
      if (event.key === "Enter" || event.key === "Escape") event.stopPropagation();
    });
    field.addEventListener("blur", () => finish(true, false));
    item.classList.add("renaming");
    item.prepend(field);
    field.focus();
    field.select();
  }
}

function save(address) {
  element("a", { href: address, download: "" }).click();
}

function update(item, chat, current) {
  const link = item.querySelector(".chat-link");
  const dot = item.querySelector(".dot");
  const title = chat.title || word("untitled");
  if (link.textContent !== title) link.textContent = link.title = title;
  if (current) link.setAttribute("aria-current", "page");
  else link.removeAttribute("aria-current");
  const state = chat.running ? "answering" : chat.unread ? "unread" : "";
  dot.hidden = state === "";
  dot.className = `dot ${state}`;
  if (state) dot.setAttribute("aria-label", word(state));
}
