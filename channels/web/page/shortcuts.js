/*
 * The keys that work everywhere on the page, and the list of them. A single key is a letter where somebody writes, so it
 * is a shortcut nowhere else than outside every field; one with Ctrl or Cmd writes nothing, and works in a field as well.
 */

import { element, part } from "./element.js";
import { word } from "./language.js";
import { recall } from "./memory.js";

const MAC = /mac|iphone|ipad/i.test(navigator.platform);
const COMMAND = MAC ? "⌘" : "Ctrl";
/** What the list says, in this order; a group of keys is an array. */
const LIST = [
  [[COMMAND, "K"], "keyPalette"],
  [[COMMAND, "⇧", "O"], "newChat"],
  [[COMMAND, ","], "settings"],
  [["/"], "search"],
  [["?"], "shortcuts"],
  [["Esc"], "keyEscape"],
  [["↑", "↓"], "keyArrows"],
  [["→"], "keyOptions"],
  [["F2"], "rename"],
  [["Del"], "delete"],
];
const WRITES = "input:not([type=checkbox]), textarea, select, [contenteditable]";

/** "line" where Enter begins a line, and sends with Ctrl or Cmd. */
export const ENTER = "clawgate.enter";

/** Whether this key sends what is being written. */
export function sends(event) {
  const composing = event.isComposing || event.keyCode === 229; // 229: Safari ends the composition before its Enter
  if (event.key !== "Enter" || event.shiftKey || composing) return false;
  return event.ctrlKey || event.metaKey || recall(ENTER) !== "line";
}

export class Shortcuts {
  #dialog = part("shortcuts");

  /** What the keys do: `palette`, `newChat`, `settings` and `search`. */
  constructor(acts) {
    this.acts = acts;
    document.addEventListener("keydown", (event) => this.#pressed(event));
    part("shortcuts-close").addEventListener("click", () => this.#dialog.close());
  }

  show() {
    const keys = (names) => names.flatMap((name, at) => [at ? " " : "", element("kbd", {}, name)]);
    const rows = LIST.map(([names, key]) => [element("dt", {}, ...keys(names)), element("dd", {}, word(key))]);
    part("shortcuts-list").replaceChildren(...rows.map((row) => element("div", {}, ...row)));
    this.#dialog.showModal();
  }

  #pressed(event) {
    if (event.isComposing || event.keyCode === 229 || event.altKey) return;
    const act = this.#actOf(event);
    if (!act) return;
    event.preventDefault();
    act();
  }

  #actOf(event) {
    const dialog = document.querySelector("dialog[open]");
    const chord = MAC ? event.metaKey : event.ctrlKey;
    const key = event.key.toLowerCase();
    if (chord && key === "k" && !event.shiftKey) return dialog && dialog.id !== "palette" ? null : this.acts.palette;
    if (dialog) return null;
    if (chord && event.shiftKey && key === "o") return this.acts.newChat;
    if (chord && key === ",") return this.acts.settings;
    if (event.ctrlKey || event.metaKey || event.target.closest?.(WRITES)) return null;
    return { "/": this.acts.search, "?": () => this.show() }[event.key] ?? null;
  }
}
