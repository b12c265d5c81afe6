/*
 * The quick switch: a field, and below it the chats and commands that match what is written in it. The focus stays in the
 * field; the arrow keys choose, and a screen reader hears what is chosen.
 */

import { element, icon, part } from "./element.js";
import { word } from "./language.js";

const LISTED_MAX = 12;
const SEARCH_PAUSE_MS = 200;

export class Palette {
  #dialog = part("palette");
  #field = part("palette-field");
  #list = part("palette-list");
  #entries = [];
  #at = 0;

  #timer = null;

  /** `entries()` gives what there is: {text, icon, about, act}, commands last; `search(words)` lets more chats be there. */
  constructor({ entries, search }) {
    Object.assign(this, { entries, search });
    this.#field.addEventListener("input", () => this.#written());
    this.#field.addEventListener("keydown", (event) => this.#pressed(event));
    this.#dialog.addEventListener("click", (event) => event.target === this.#dialog && this.#dialog.close());
  }

  toggle() {
    if (this.#dialog.open) return this.#dialog.close();
    this.#field.value = "";
    this.#dialog.showModal();
    this.#field.focus();
    return this.#look();
  }

  /** Of the chats that are here at once, of older ones when the server has answered. */
  #written() {
    const words = this.#field.value.trim();
    this.#look();
    clearTimeout(this.#timer);
    if (!words) return;
    this.#timer = setTimeout(async () => {
      await this.search(words);
      if (this.#dialog.open && this.#at === 0 && words === this.#field.value.trim()) this.#look();
    }, SEARCH_PAUSE_MS);
  }

  #look() {
    const words = this.#field.value.trim().toLocaleLowerCase().split(/\s+/);
    const matches = ({ text, about = "" }) => words.every((it) => `${text} ${about}`.toLocaleLowerCase().includes(it));
    const found = this.entries().filter(matches);
    const commands = found.filter((entry) => !entry.chat);
    const chats = found.filter((entry) => entry.chat).slice(0, Math.max(4, LISTED_MAX - commands.length));
    this.#entries = this.#field.value.trim() ? [...chats, ...commands] : [...commands, ...chats];
    this.#list.replaceChildren(...this.#entries.map((entry, at) => this.#option(entry, at)));
    part("palette-state").textContent = word(found.length ? "paletteFound" : "nothingFound", { count: found.length });
    this.#choose(0);
  }

  #option({ text, about, icon: name }, at) {
    const option = { role: "option", id: `palette-${at}`, mousemove: () => at !== this.#at && this.#choose(at) };
    const words = element("span", { class: "palette-text", dir: "auto" }, text);
    const hint = about && element("span", { class: "palette-about", dir: "auto" }, about);
    return element("li", { ...option, click: () => this.#take(at) }, icon(name), words, hint);
  }

  #choose(at) {
    const options = [...this.#list.children];
    this.#at = at;
    options.forEach((option, place) => option.setAttribute("aria-selected", String(place === at)));
    options[at]?.scrollIntoView({ block: "nearest" });
    if (options[at]) this.#field.setAttribute("aria-activedescendant", options[at].id);
    else this.#field.removeAttribute("aria-activedescendant");
  }

  #take(at) {
    const entry = this.#entries[at];
    this.#dialog.close();
    entry?.act();
  }

  #pressed(event) {
    if (event.isComposing || event.keyCode === 229) return;
    const count = this.#entries.length;
    const next = { ArrowDown: (this.#at + 1) % count, ArrowUp: (this.#at + count - 1) % count }[event.key];
    if (event.key === "Enter" && count) this.#take(this.#at);
    else if (next >= 0) this.#choose(next);
    else return;
    event.preventDefault();
  }
}
