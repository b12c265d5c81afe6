/*
 * All sessions of all channels, for whoever runs this bot: a list, and one of them to read. Nothing can be done here.
 */

import { element, part } from "./element.js";
import { number, sentence, word } from "./language.js";
import { blocksOf, showBlocks } from "./prose.js";

export class Sessions {
  #dialog = part("sessions");
  #list = part("session-list");
  #text = part("session-text");

  /** `list()` and `read(id)` ask the server. */
  constructor({ list, read }) {
    Object.assign(this, { list, read });
    part("all-sessions").addEventListener("click", () => this.#open());
    part("sessions-close").addEventListener("click", () => this.#dialog.close());
  }

  async #open() {
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
    const { agent, channel, chat, sender, last, turns, tokens } = session;
    const button = element(
      "button",
      { type: "button", click: () => this.#show(session, button) },
      element("strong", {}, `${channel} · ${agent}`),
      element("span", { dir: "auto" }, sender ? `${chat} · ${sender}` : chat),
      element("span", {}, `${last.slice(0, 16).replace("T", " ")} · ${word("turnsAndTokens", { turns: number(turns), tokens: number(tokens) })}`),
    );
    return element("li", {}, button);
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
