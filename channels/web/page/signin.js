/*
 * The dialog that asks for the gateway's token, or takes the link that it printed at its start. What is entered goes to
 * the server once and comes back as a cookie that no script can read; nothing of it is kept here.
 */

import { element, part } from "./element.js";
import { sentence } from "./language.js";

export class SignIn {
  #token = element("input", { type: "password", id: "token", name: "password", autocomplete: "current-password", spellcheck: "false", required: true });
  #error = element("p", { class: "alert", role: "alert" });
  #dialog;
  #busy = false;

  /**
   * `about` names the sentence above the field. `signIn(token)` asks the server; `done()` hears of success, `closed()` of the
   * person's leaving without.
   */
  constructor({ about = "signInAbout", signIn, done, closed }) {
    Object.assign(this, { signIn, done, closed });
    this.#dialog = this.#drawn(about);
    part("main").after(this.#dialog);
    this.#token.addEventListener("input", () => this.#say(""));
  }

  /** A hidden user name, since browsers store passwords by name. */
  #drawn(about) {
    const form = element(
      "form",
      { submit: (event) => this.#submit(event) },
      element("img", { src: document.querySelector('link[rel="icon"]').href, alt: "", width: 44, height: 44 }),
      element("h2", { id: "sign-in-title", "data-word": "signIn" }),
      element("p", { "data-word": about }),
      element("input", { type: "text", name: "username", autocomplete: "username", value: "clawgate", hidden: true }),
      element("label", { for: "token", "data-word": "token" }),
      this.#token,
      this.#error,
      element("button", { type: "submit", class: "primary", "data-word": "signIn" }),
    );
    return element("dialog", { class: "dialog", id: "sign-in", "aria-labelledby": "sign-in-title", close: () => this.closed() }, form);
  }

  get open() {
    return this.#dialog.open;
  }

  /** `refusal`: why the opened link does not sign in. */
  ask(refusal = null) {
    if (refusal || !this.#dialog.open) this.#say(refusal ? sentence(refusal) : "");
    if (this.#dialog.open) return;
    this.#dialog.showModal();
    this.#token.focus();
  }

  close() {
    this.#dialog.close();
  }

  async #submit(event) {
    event.preventDefault();
    if (this.#busy) return;
    this.#busy = true;
    this.#dialog.classList.add("busy");
    try {
      await this.signIn(this.#token.value.trim().replace(/^.*#sign-in=/, ""));
      this.#token.value = "";
      this.#dialog.close();
      this.done();
    } catch (refusal) {
      this.#say(sentence(refusal));
      this.#token.select();
    } finally {
      this.#busy = false;
      this.#dialog.classList.remove("busy");
    }
  }

  #say(text) {
    this.#error.textContent = text;
    this.#token.setAttribute("aria-invalid", String(text !== ""));
  }
}
