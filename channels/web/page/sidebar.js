/*
 * The list of conversations. An item is a link to the conversation, so that it opens like any link; its menu
 * renames and deletes. Items are kept while they are in the list, so that focus and a half-written title stay where
 * they are.
 */

import { element, icon, part } from "./element.js";
import { word } from "./language.js";
import { openMenu } from "./menu.js";

export class Sidebar {
  #list = part("conversations");
  #items = new Map();
  #lastChats = [];

  /** `rename(id, title)` and `remove(chat)` act; `chosen(id)` hears of a click. */
  constructor({ rename, remove, chosen }) {
    Object.assign(this, { rename, remove, chosen });
  }

  clear() {
    this.#items.clear();
    this.#list.replaceChildren();
  }

  /** `chats` newest first, each with `running`, `unread`. */
  show(chats, shown) {
    this.#lastChats = chats;
    part("no-conversations").hidden = chats.length > 0;
    const ids = new Set(chats.map((chat) => chat.id));
    for (const [id, item] of this.#items) {
      if (ids.has(id)) continue;
      item.remove();
      this.#items.delete(id);
    }
    let place = this.#list.firstElementChild;
    for (const chat of chats) {
      const item = this.#itemOf(chat.id);
      update(item, chat, chat.id === shown);
      if (item === place) place = place.nextElementSibling;
      else this.#list.insertBefore(item, place);
    }
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
    const options = element(
      "button",
      {
        type: "button",
        class: "icon-button small options",
        "aria-haspopup": "menu",
        "aria-label": word("options"),
        "aria-describedby": `link-${id}`,
      },
      icon("more"),
    );
    options.addEventListener("click", () => this.#openOptions(id, options));
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
