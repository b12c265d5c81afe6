/*
 * The list of chats as it is drawn: groups with a heading, and in each its chats, or the lines that a search found. One
 * Tab stop leads into all of it, and the arrow keys walk on from there. An item is a link to its chat, so that it opens
 * like any link. Items are kept while they are listed, so that focus and a half-written title stay where they are.
 */

import { element, icon, iconButton, part } from "./element.js";
import { word } from "./language.js";

export class ChatList {
  #root = part("conversations");
  /** Key of a group → {section, heading, list}. */
  #groups = new Map();
  /** Id of a chat → its item. */
  #items = new Map();

  /** `act` has `chosen(id)`, `options(id, button)`, `rename(id, title)`, `remove(id)`, `toggle(id)` and `fold(key)`. */
  constructor(act) {
    this.act = act;
    this.#root.addEventListener("keydown", (event) => this.#pressed(event));
    this.#root.addEventListener("focusin", (event) => event.target.matches(".stop") && this.#stopAt(event.target));
  }

  clear() {
    this.#groups.clear();
    this.#items.clear();
    this.#root.replaceChildren();
  }

  /**
   * `groups` ({key, title, folds, folded, entries: {chat, title, hits}}), where `title` and each hit's `line` are pieces of
   * which every second one was found; `shown` is the id of the chat on the screen, `chosen` the ids that are chosen, null
   * where nothing is to be.
   */
  show(groups, shown, chosen) {
    const entries = groups.flatMap((group) => group.entries);
    const ids = new Set(entries.map(({ chat }) => chat.id));
    for (const [id, item] of this.#items) if (!ids.has(id)) this.#drop(this.#items, id, item);
    const keys = new Set(groups.map(({ key }) => key));
    for (const [key, group] of this.#groups) if (!keys.has(key)) this.#drop(this.#groups, key, group.section);
    arrange(this.#root, groups.map((group) => this.#group(group, shown, chosen)));
    this.#oneStop();
  }

  #drop(kept, key, node) {
    node.remove();
    kept.delete(key);
  }

  #group(group, shown, chosen) {
    const { key, title, folds, folded, entries } = group;
    if (!this.#groups.has(key)) this.#groups.set(key, this.#newGroup(key, folds));
    const { section, name, toggle, list } = this.#groups.get(key);
    if (name.textContent !== title) name.textContent = title;
    name.parentElement.hidden = !title;
    toggle?.setAttribute("aria-expanded", String(!folded));
    list.hidden = folded;
    list.setAttribute("aria-label", title ? word("listOf", { title }) : word("conversations"));
    arrange(list, entries.map((entry) => this.#item(entry, entry.chat.id === shown, chosen)));
    return section;
  }

  #newGroup(key, folds) {
    const name = element("span", { dir: "auto" });
    const fold = { type: "button", class: "group-toggle stop", tabindex: -1, click: () => this.act.fold(key) };
    const toggle = folds ? element("button", fold, icon("turn"), name) : null;
    const list = element("ul", {});
    const section = element("section", { class: "chat-group" }, element("h2", {}, toggle ?? name), list);
    return { section, name: toggle ? toggle.lastChild : name, toggle, list };
  }

  #item({ chat, title, hits = [] }, current, chosen) {
    if (!this.#items.has(chat.id)) this.#items.set(chat.id, this.#newItem(chat.id));
    const item = this.#items.get(chat.id);
    const { id, title: name, running, unread } = chat;
    const drawn = JSON.stringify([name, running, unread, title, hits, current, chosen && chosen.has(id)]);
    if (drawn === item.drawn) return item;
    item.drawn = drawn;
    const link = item.querySelector(".chat-link");
    const named = chat.title || word("untitled");
    if (link.title !== named) link.title = named;
    pieces(link, title ?? [named]);
    if (current) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    item.dataset.title = chat.title;
    showState(item.querySelector(".dot"), chat);
    this.#showChoice(item, chat.id, named, chosen);
    this.#showHits(item, chat.id, hits);
    return item;
  }

  #newItem(id) {
    const stop = { class: "chat-link stop", href: addressOf(id), id: `link-${id}`, dir: "auto", tabindex: -1 };
    const link = element("a", { ...stop, click: (event) => this.#open(event, id) });
    link.addEventListener("dblclick", () => this.rename(id));
    const options = iconButton("more", word("options"), () => this.act.options(id, options), {
      class: "icon-button small options",
      title: null,
      tabindex: -1,
      "aria-haspopup": "menu",
      "aria-describedby": `link-${id}`,
    });
    const dot = element("span", { class: "dot", role: "img", hidden: true });
    const choice = element("input", { type: "checkbox", class: "pick stop", tabindex: -1, hidden: true });
    choice.addEventListener("change", () => this.act.toggle(id));
    const hits = element("div", { class: "hits", hidden: true });
    return element("li", { class: "chat-item" }, choice, link, dot, options, hits);
  }

  /** Where several are chosen, a click on a title chooses it. */
  #open(event, id) {
    const choice = this.#items.get(id).querySelector(".pick");
    if (choice.hidden) return this.act.chosen();
    event.preventDefault();
    choice.focus();
    return this.act.toggle(id);
  }

  #showChoice(item, id, title, chosen) {
    const choice = item.querySelector(".pick");
    choice.hidden = chosen === null;
    choice.checked = Boolean(chosen?.has(id));
    choice.setAttribute("aria-label", title);
    item.querySelector(".chat-link").classList.toggle("stop", chosen === null);
    item.querySelector(".options").hidden = chosen !== null;
  }

  #showHits(item, id, hits) {
    const holder = item.querySelector(".hits");
    const key = JSON.stringify(hits);
    if (holder.dataset.key === key) return;
    holder.dataset.key = key;
    holder.hidden = hits.length === 0;
    holder.replaceChildren(
      ...hits.map(({ message, line }) => {
        const link = { class: "hit stop", href: addressOf(`${id}/${message}`), dir: "auto", tabindex: -1 };
        return pieces(element("a", { ...link, click: () => this.act.chosen() }), line);
      }),
    );
  }

  // Keys

  #stops() {
    return [...this.#root.querySelectorAll(".stop")].filter((stop) => stop.checkVisibility());
  }

  /** One Tab stop: where the focus was last, else the chat on the screen, else the first. */
  #oneStop() {
    const stops = this.#stops();
    const last = stops.find((stop) => stop.tabIndex === 0);
    const current = stops.find((stop) => stop.hasAttribute("aria-current"));
    const stop = last ?? current ?? stops[0];
    if (stop) this.#stopAt(stop);
  }

  #stopAt(stop) {
    for (const other of this.#root.querySelectorAll('[tabindex="0"]')) if (other !== stop) other.tabIndex = -1;
    stop.tabIndex = 0;
  }

  #pressed(event) {
    if (event.target.matches(".rename") || event.ctrlKey || event.metaKey || event.altKey) return;
    const item = event.target.closest(".chat-item");
    const stops = this.#stops();
    const own = event.target.matches(".stop") ? event.target : stops.find((stop) => item?.contains(stop));
    const at = stops.indexOf(own);
    const aims = { ArrowDown: stops[at + 1], ArrowUp: stops[at - 1], Home: stops[0], End: stops.at(-1) };
    const aim = { ...aims, ArrowRight: item?.querySelector(".options:not([hidden])"), ArrowLeft: own }[event.key];
    const id = [...this.#items].find(([, known]) => known === item)?.[0];
    if (event.key === "F2" && id) this.rename(id);
    else if (event.key === "Delete" && id) this.act.remove(id);
    else if (aim) aim.focus();
    else return;
    event.preventDefault();
  }

  // A new title, written in the place of the old one

  rename(id) {
    const item = this.#items.get(id);
    if (!item || item.querySelector(".rename")) return;
    const { title } = item.dataset;
    const named = { type: "text", value: title, maxlength: 200, dir: "auto", "aria-label": word("titleField") };
    const field = element("input", { class: "rename", ...named });
    let finished = false;
    const finish = (accepted, refocus) => {
      if (finished) return;
      finished = true; // taking the field out blurs it, which would finish it again
      const written = field.value.trim();
      field.remove();
      item.classList.remove("renaming");
      if (refocus) item.querySelector(".chat-link").focus();
      if (accepted && written && written !== title) this.act.rename(id, written);
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

/** A place on this page that is none of its parts: only the way to a part begins with the `#` alone. */
const addressOf = (place) => `./${location.search}#${place}`;

/** Puts `nodes` into `parent` in this order; what stands there already in its place is not moved, and keeps the focus. */
function arrange(parent, nodes) {
  let place = parent.firstElementChild;
  for (const node of nodes) {
    if (node === place) place = place.nextElementSibling;
    else parent.insertBefore(node, place);
  }
}

/** Text in pieces, of which every second one was found. */
function pieces(holder, texts) {
  const key = JSON.stringify(texts);
  if (holder.dataset.pieces === key) return holder;
  holder.dataset.pieces = key;
  holder.replaceChildren(...texts.map((text, at) => (at % 2 ? element("mark", {}, text) : text)));
  return holder;
}

function showState(dot, chat) {
  const state = chat.running ? "answering" : chat.unread ? "unread" : "";
  dot.hidden = state === "";
  dot.className = `dot ${state}`;
  if (state) dot.setAttribute("aria-label", word(state));
}
