/*
 * A notice of the system when an answer or a question for approval arrives and nobody looks at the page. Off until
 * somebody turns it on here; the browser asks them once more. It names the chat, and says nothing of what was written.
 */

import { drawn, part } from "./element.js";
import { word } from "./language.js";
import { recall, remember } from "./memory.js";

const KEY = "clawgate.notify";

export class Notices {
  #button = part("notify");
  /** The notices that are shown, by chat. */
  #shown = new Map();

  /** `open(chat)` shows a chat; `say(text)` tells why it stays off. */
  constructor({ open, say }) {
    Object.assign(this, { open, say });
    this.#button.hidden = !("Notification" in window);
    this.#button.addEventListener("click", () => this.#turn());
    document.addEventListener("visibilitychange", () => document.hidden || this.#clear());
    this.show();
  }

  get #on() {
    return recall(KEY) === "on" && globalThis.Notification?.permission === "granted";
  }

  show() {
    const text = word(this.#on ? "notifyOn" : "notifyOff");
    this.#button.setAttribute("aria-pressed", String(this.#on));
    this.#button.title = text;
    drawn(this.#button, this.#on ? "bell" : "bellOff");
  }

  async #turn() {
    if (this.#on) remember(KEY, null);
    else if ((await Notification.requestPermission()) === "granted") remember(KEY, "on");
    else this.say(word("notifyRefused"));
    this.show();
  }

  /** Something arrived in `chat`, whose title is `title`; `asks`: somebody is to decide. */
  tell(chat, title, { asks }) {
    if (!document.hidden || !this.#on) return;
    const notice = new Notification(word(asks ? "notifyAsks" : "notifyAnswer"), { body: title, tag: chat, icon: "web/icon.png" });
    this.#shown.set(chat, notice);
    notice.onclick = () => {
      window.focus();
      notice.close();
      this.open(chat);
    };
  }

  #clear() {
    for (const notice of this.#shown.values()) notice.close();
    this.#shown.clear();
  }
}
