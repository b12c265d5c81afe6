/*
 * All sessions of all channels, for whoever runs this bot: a list, and one of them to read. Nothing can be done here.
 */

import { element, part } from "./element.js";
import { moment, number, sentence, word } from "./language.js";
import { blocksOf, showBlocks } from "./prose.js";

export class Sessions {
  #dialog = part("sessions");
  #list = part("session-list");
  #text = part("session-text");
  #field = part("session-search");

  /** `list()` and `read(id)` ask the server. */
  constructor({ list, read }) {
    Object.assign(this, { list, read });
    part("all-sessions").addEventListener("click", () => this.#open());
    this.#field.addEventListener("input", () => this.#look());
    part("sessions-close").addEventListener("click", () => this.#dialog.close());
  }

  /** Names, channels, agents and ids: what an operator may have of a chat. */
  #look() {
    const words = this.#field.value.trim().toLocaleLowerCase().split(/\s+/);
    for (const entry of this.#list.children) {
      const text = entry.dataset.words;
      entry.hidden = !words.every((it) => text.includes(it));
    }
  }

  async #open() {
    this.#field.value = "";
    this.#list.replaceChildren();
    this.#say(word("loading"));
    this.#dialog.showModal();
    await this.#attempt(async () => {
      const { sessions } = await this.list();
      this.#list.replaceChildren(...sessions.map((session) => this.#entry(session)));
      this.#say(word(sessions.length ? "chooseSession" : "noSessions"));
    });
  }

  #entry(session) {
    const { agent, channel, chat, sender, last, turns, tokens, name } = session;
    const id = sender ? `${chat} · ${sender}` : chat;
    const button = element(
      "button",
      { type: "button", click: () => this.#show(session, button) },
      element("strong", { dir: "auto" }, name || id),
      element("span", {}, `${channel} · ${agent}`),
      element("span", {}, `${moment(Date.parse(last) / 1000)} · ${word("turnsAndTokens", { turns: number(turns), tokens: number(tokens) })}`),
    );
    button.title = id;
    return element("li", { "data-words": `${name} ${channel} ${agent} ${id}`.toLocaleLowerCase() }, button);
  }

  async #show({ id }, button) {
    for (const other of this.#list.querySelectorAll("button")) other.removeAttribute("aria-current");
    button.setAttribute("aria-current", "true");
    await this.#attempt(async () => {
      const { html } = await this.read(id);
      if (!button.hasAttribute("aria-current")) return;
      this.#text.replaceChildren();
      showBlocks(this.#text, blocksOf(html));
      this.#text.scrollTop = 0;
      this.#text.focus();
    });
  }

  async #attempt(work) {
    try {
      await work();
    } catch (refusal) {
      this.#say(sentence(refusal));
    }
  }

  #say(text) {
    this.#text.replaceChildren(element("p", { class: "note" }, text));
  }
}
