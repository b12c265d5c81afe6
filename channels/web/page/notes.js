/*
 * A person's notes with an agent: read, taken, changed and deleted. They are those of `/remember`, so another page or
 * another channel may have changed them: what the server answers is shown.
 */

import { newId } from "./api.js";
import { element, iconButton } from "./element.js";
import { day, word } from "./language.js";

export class NoteList {
  #root = element("div", { class: "notes" });
  #agent = null;
  #chars = 2_000;

  /** `list(agent)`, `take(agent, id, text)`, `change(agent, number, text)` and `remove(agent, number)` give what there is
   * then; `agrees(text)` asks before one is deleted; `failed(refusal)` hears why something was not done. */
  constructor(acts) {
    this.acts = acts;
  }

  /** The notes with an agent, asked for now. */
  of(agent) {
    this.#agent = agent;
    this.#root.replaceChildren(element("p", { class: "state", role: "status" }, word("loading")));
    this.#ask(this.acts.list(agent));
    return this.#root;
  }

  /** True when it was done. */
  async #ask(request) {
    const agent = this.#agent;
    try {
      const answer = await request;
      if (agent === this.#agent) this.#show(answer);
      return true;
    } catch (refusal) {
      this.acts.failed(refusal);
      return false;
    }
  }

  #show({ notes, chars_max: chars }) {
    this.#chars = chars;
    const items = notes.map((note) => this.#item(note));
    const list = items.length ? element("ul", { "aria-label": word("notes") }, ...items) : element("p", { class: "state" }, word("noNotes"));
    this.#root.replaceChildren(list, this.#newNote());
  }

  #item(note) {
    const item = element("li", {});
    const words = element("div", {}, element("p", { class: "note-text", dir: "auto" }, note.text), element("small", {}, day(note.at)));
    const edit = iconButton("pen", word("edit"), () => item.replaceChildren(this.#form(note, back)));
    const remove = iconButton("cross", word("delete"), async () => {
      if (await this.acts.agrees(note.text)) this.#ask(this.acts.remove(this.#agent, note.number));
    });
    const back = () => {
      item.replaceChildren(words, edit, remove);
      edit.focus();
    };
    item.append(words, edit, remove);
    return item;
  }

  #form(note, back) {
    const save = (text) => this.#ask(this.acts.change(this.#agent, note.number, text));
    const cancel = element("button", { type: "button", click: back }, word("cancel"));
    return this.#field(note.text, word("save"), save, cancel);
  }

  /** Sent again after a failure, it is the same note. */
  #newNote() {
    const id = newId("n");
    return this.#field("", word("addNote"), (text) => this.#ask(this.acts.take(this.#agent, id, text)), null);
  }

  #field(text, label, save, cancel) {
    const field = element("textarea", { rows: 2, maxlength: this.#chars, dir: "auto", "aria-label": word("noteField"), placeholder: word("noteField"), required: true });
    const button = element("button", { type: "submit", class: "primary" }, label);
    const submit = async (event) => {
      event.preventDefault();
      if (!field.value.trim()) return;
      button.disabled = true;
      if (await save(field.value.trim())) this.#root.querySelector("form:last-child textarea").focus();
      button.disabled = false;
    };
    field.value = text;
    if (cancel) queueMicrotask(() => field.focus());
    return element("form", { submit }, field, element("div", { class: "note-row" }, cancel, button));
  }
}
