/*
 * The settings: what this browser remembers of how the page looks and behaves, what holds in the chat on the screen, the
 * person's notes with its agent, and who is signed in. What holds in a chat is set by commands, as its head does it.
 */

import { element, part } from "./element.js";
import { LANGUAGES, currentLanguage, sentence, word } from "./language.js";
import { recall, remember } from "./memory.js";
import { NoteList } from "./notes.js";
import { ENTER } from "./shortcuts.js";
import { THEMES } from "./theme.js";

const SIZE = "clawgate.size";
const SIZES = ["small", "normal", "large", "larger"];

export class Settings {
  #dialog = part("settings");
  #body = part("settings-body");
  /** The error of the last request. */
  #alert = element("p", { class: "alert", role: "alert" });
  /** What is shown, as JSON: drawn again when it changes. */
  #drawn = "";
  #notes;
  /** The section of the notes, and of whose they are: a note that is being written outlives a change above it. */
  #noted = { key: "", section: null };

  /**
   * `theme`, `notices` and `choices` are the views of those; `speak(language)` changes the language, `resized()` hears of
   * another text size, `signOut()` signs out; `notes` has the requests of `NoteList`; `state()` gives what the page knows:
   * {title, agent, agentName, person, signedIn}.
   */
  constructor({ theme, notices, choices, speak, resized, signOut, notes, state }) {
    Object.assign(this, { theme, notices, choices, speak, resized, signOut, state });
    this.#notes = new NoteList({ ...notes, failed: (refusal) => this.#say(sentence(refusal)) });
    part("open-settings").addEventListener("click", () => this.show());
    part("settings-close").addEventListener("click", () => this.#dialog.close());
    this.#dialog.addEventListener("click", (event) => event.target === this.#dialog && this.#dialog.close());
    document.documentElement.dataset.size = SIZES.includes(recall(SIZE)) ? recall(SIZE) : "normal";
  }

  show() {
    this.#drawn = this.#noted.key = "";
    this.refresh({ open: true });
    this.#dialog.showModal();
  }

  /** Something may have changed: a choice of the chat, the language, who is signed in. */
  refresh({ open = this.#dialog.open } = {}) {
    const state = this.state();
    const drawn = JSON.stringify([currentLanguage(), state, this.choices.offer]);
    if (!open || drawn === this.#drawn) return;
    this.#drawn = drawn;
    const focused = document.activeElement;
    this.#say("");
    this.#body.replaceChildren(this.#alert, this.#page(), ...this.#chat(state), ...this.#notesOf(state), ...this.#account(state));
    const again = this.#body.contains(focused) ? focused : part(focused.id);
    if (this.#body.contains(again)) again.focus();
  }

  #say(text) {
    this.#alert.textContent = text;
  }

  // How this browser shows it

  #page() {
    const language = LANGUAGES.map(([id, text]) => ({ text, checked: id === currentLanguage(), act: () => this.speak(id) }));
    const theme = THEMES.map((id) => ({ text: word(`look_${id}`), checked: id === this.theme.chosen, act: () => this.theme.choose(id) }));
    const size = SIZES.map((id) => ({ text: word(`size_${id}`), checked: id === document.documentElement.dataset.size, act: () => this.#resize(id) }));
    const { notices } = this;
    return section(
      word("thisBrowser"),
      select("set-language", word("language"), language),
      select("set-theme", word("theme"), theme),
      select("set-size", word("textSize"), size),
      toggle("set-enter", word("enterSends"), recall(ENTER) !== "line", (on) => remember(ENTER, on ? null : "line"), word("enterAbout")),
      notices.possible ? toggle("set-notify", word("notify"), notices.on, (on) => this.#notify(on), word("notifyAbout")) : null,
    );
  }

  #resize(size) {
    remember(SIZE, size);
    document.documentElement.dataset.size = size;
    this.resized();
  }

  async #notify(on) {
    const refused = await this.notices.turn(on);
    this.#say(refused);
    part("set-notify").checked = this.notices.on;
  }

  // What holds in the chat

  #chat({ title }) {
    const { models, levels, reasoning } = this.choices;
    const rows = [
      models.length ? select("set-model", word("model"), models) : null,
      levels.length ? select("set-thinking", word("thinkingChoice"), levels.map(bare)) : null,
      reasoning ? toggle("set-reasoning", word("showReasoning"), reasoning.on, reasoning.turn, word("showReasoningAbout")) : null,
    ].filter((row) => row !== null);
    return rows.length ? [section(word("thisChat", { title }), ...rows)] : [];
  }

  #notesOf({ agent, agentName }) {
    if (!this.choices.offer?.notes) return [];
    const key = JSON.stringify([currentLanguage(), agent, agentName]);
    if (key !== this.#noted.key) {
      const about = element("p", {}, word("notesAbout"));
      this.#noted = { key, section: section(word("notesWith", { name: agentName }), about, this.#notes.of(agent)) };
    }
    return [this.#noted.section];
  }

  #account({ person, signedIn }) {
    const out = element("button", { type: "button", click: () => this.#leave() }, word("signOut"));
    const who = element("span", { class: "person", dir: "auto" }, `${word("signedInAs")} ${person}`);
    return signedIn ? [section(word("account"), element("div", { class: "setting" }, who, out))] : [];
  }

  #leave() {
    this.#dialog.close();
    this.signOut();
  }
}

function section(title, ...rows) {
  return element("section", {}, element("h3", { dir: "auto" }, title), ...rows);
}

/** The item without the name of the setting, which is next to it. */
const bare = (item) => ({ ...item, text: item.text.split(/[:：]\s*/).at(-1) });

/** A choice of one of the `items` ({text, checked, act}). */
function select(id, label, items) {
  const options = items.map(({ text, checked }, at) => element("option", { value: at, selected: checked }, text));
  const field = element("select", { id, dir: "auto" }, ...options);
  field.disabled = items.length < 2;
  field.addEventListener("change", () => items[field.value].act());
  return element("div", { class: "setting" }, element("label", { for: id }, label), field);
}

/** A switch; `turn(on)` hears of it. */
function toggle(id, label, on, turn, about) {
  const field = element("input", { type: "checkbox", role: "switch", id, checked: on, "aria-describedby": `${id}-about` });
  field.addEventListener("change", () => turn(field.checked));
  const words = element("div", {}, element("label", { for: id }, label), element("p", { id: `${id}-about` }, about));
  return element("div", { class: "setting" }, words, field);
}
