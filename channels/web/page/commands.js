/*
 * Completion of slash commands. Tab or a click takes one; with the arrow keys
 * one is chosen first, and then Enter takes it. Without a choice Enter sends what stands there, as always.
 */

import { element, part } from "./element.js";
import { inLanguage } from "./language.js";

const BEGUN = /^[/／]([a-z]*)$/i;
const SHOWN_MAX = 8;

export class Commands {
  #field = part("message");
  #list = part("commands");
  #at = -1;
  /** The number of commands that were known when the list was last made. */
  #known = 0;

  /** `commands()` are the server's; `taken` is called where the text has changed. */
  constructor({ commands, taken }) {
    Object.assign(this, { commands, taken });
    this.#field.addEventListener("blur", () => this.hide());
  }

  /** After each change of what is written. */
  show() {
    this.#known = this.commands().length;
    const begun = BEGUN.exec(this.#field.value)?.[1].toLowerCase();
    const found = begun === undefined ? [] : this.commands().filter((it) => it.name.startsWith(begun));
    this.#list.replaceChildren(...found.slice(0, SHOWN_MAX).map((it, number) => this.#option(it, number)));
    this.#list.hidden = found.length === 0;
    this.#choose(-1);
  }

  /** Shows the list to a person who began to write before the server had sent the commands. */
  refresh() {
    if (this.commands().length !== this.#known && document.activeElement === this.#field) this.show();
  }

  hide() {
    this.#list.replaceChildren();
    this.#list.hidden = true;
    this.#choose(-1);
  }

  /** Returns whether the list handled the key. */
  pressed(event) {
    if (this.#list.hidden) return false;
    const { length } = this.#list.children;
    if (event.key === "ArrowDown") this.#choose((this.#at + 1) % length);
    else if (event.key === "ArrowUp") this.#choose((this.#at <= 0 ? length : this.#at) - 1);
    else if (event.key === "Tab" && !event.shiftKey) this.#take(Math.max(this.#at, 0));
    else if (event.key === "Enter" && this.#at >= 0) this.#take(this.#at);
    else if (event.key === "Escape") this.hide();
    else return false;
    event.preventDefault();
    return true;
  }

  #option(command, number) {
    const hint = command.hint ? ` ${command.hint}` : "";
    const option = element(
      "li",
      { role: "option", id: `command-${number}`, "data-name": command.name },
      element("code", {}, `/${command.name}${hint}`),
      element("span", {}, inLanguage(command)),
    );
    option.addEventListener("mousedown", (event) => {
      event.preventDefault(); // the field keeps the focus
      this.#take(number);
    });
    return option;
  }

  #choose(at) {
    this.#at = at;
    for (const [number, option] of [...this.#list.children].entries()) {
      option.setAttribute("aria-selected", String(number === at));
    }
    if (at >= 0) this.#field.setAttribute("aria-activedescendant", `command-${at}`);
    else this.#field.removeAttribute("aria-activedescendant");
  }

  #take(at) {
    this.#field.value = `/${this.#list.children[at].dataset.name} `;
    this.hide();
    this.taken();
  }
}
