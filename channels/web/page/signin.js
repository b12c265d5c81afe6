/*
 * The dialog that asks for the gateway's token, or takes the link that it printed at its start. What is entered goes to
 * the server once and comes back as a cookie that no script can read; nothing of it is kept here.
 */

import { part } from "./element.js";
import { sentence } from "./language.js";

export class SignIn {
  #dialog = part("sign-in");
  #token = part("token");
  #error = part("sign-in-error");
  #busy = false;

  /** `signIn(token)` asks the server; `done()` hears of success, `closed()` of the person's leaving without. */
  constructor({ signIn, done, closed }) {
    Object.assign(this, { signIn, done, closed });
    part("sign-in-form").addEventListener("submit", (event) => this.#submit(event));
    this.#token.addEventListener("input", () => this.#say(""));
    this.#dialog.addEventListener("close", () => this.closed());
  }

  get open() {
    return this.#dialog.open;
  }

  /** `refusal`: why the link that was opened does not sign in. */
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
