/*
 * Light, dark, or what the system says: one attribute on <html>, which style.css reads, and one remembered word.
 */

import { icon } from "./element.js";
import { word } from "./language.js";
import { recall, remember } from "./memory.js";

const KEY = "clawgate.theme";
export const THEMES = ["auto", "light", "dark"];
const ICONS = { auto: "auto", light: "sun", dark: "moon" };

export class Theme {
  #button;
  #theme;

  constructor(button) {
    this.#button = button;
    this.#theme = THEMES.includes(recall(KEY)) ? recall(KEY) : "auto";
    button.addEventListener("click", () => this.next());
    window.addEventListener("storage", (event) => event.key === KEY && this.#adopt(event.newValue));
    this.show();
  }

  get chosen() {
    return this.#theme;
  }

  next() {
    this.choose(THEMES[(THEMES.indexOf(this.#theme) + 1) % THEMES.length]);
  }

  choose(theme) {
    remember(KEY, theme);
    this.#adopt(theme);
  }

  #adopt(theme) {
    this.#theme = THEMES.includes(theme) ? theme : "auto";
    this.show();
  }

  /** Also after a change of language: the button says what is chosen. */
  show() {
    document.documentElement.dataset.theme = this.#theme;
    this.#button.replaceChildren(icon(ICONS[this.#theme]));
    this.#button.title = word(`theme_${this.#theme}`);
  }
}
