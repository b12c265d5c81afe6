/*
 * A notice of the system when an answer or a question for approval arrives and nobody looks at the page. Off until
 * somebody turns it on here; the browser asks them once more. It names the chat, and says nothing of what was written.
 */

import { word } from "./language.js";
import { recall, remember } from "./memory.js";

const KEY = "clawgate.notify";

export class Notices {
  /** The notices that are shown, by chat. */
  #shown = new Map();

  possible = "Notification" in window;

  /** `open(chat)` shows a chat. */
  constructor({ open }) {
    this.open = open;
    document.addEventListener("visibilitychange", () => document.hidden || this.#clear());
  }

  get on() {
    return recall(KEY) === "on" && globalThis.Notification?.permission === "granted";
  }

  /** Gives why they stay off, if they do. */
  async turn(on) {
    const allowed = on && (await Notification.requestPermission()) === "granted";
    remember(KEY, allowed ? "on" : null);
    return on && !allowed ? word("notifyRefused") : "";
  }

  /** Something arrived in `chat`, whose title is `title`; `asks`: somebody is to decide. */
  tell(chat, title, { asks }) {
    if (!document.hidden || !this.on) return;
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
