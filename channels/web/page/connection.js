/*
 * The line above a conversation: whether the server is heard, and what whoever runs this bot is to mend.
 */

import { element, part } from "./element.js";
import { inLanguage, sentence, word } from "./language.js";

export class Connection {
  /** "connecting", "open", "lost", "asleep", "signed-out" or "closed". */
  state = "connecting";
  /** What whoever runs this bot is to mend. */
  faults = { text: "", database: null, channels: [] };
  /** Why it is closed. */
  closedBy = null;

  constructor({ signIn }) {
    this.signIn = signIn;
  }

  /** What whoever runs this bot is to mend, in the page's language. */
  #faults() {
    const { text, database, channels } = this.faults;
    const lines = channels.map(({ name, state, reason, fix }) =>
      word("channelFault", { name, state: word(`channel_${state}`), reason: inLanguage(reason), fix: inLanguage(fix) }),
    );
    const stored = database ? [word("databaseFault", { reason: inLanguage(database.reason), fix: inLanguage(database.fix) })] : [];
    return [...(text ? [`${word("fault")} ${text}`] : []), ...stored, ...lines].join("\n");
  }

  show() {
    const bar = part("connection");
    part("examples").hidden = this.state === "closed";
    const state = this.state === "signed-out" && this.signIn.open ? "signing-in" : this.state;
    const closed = this.closedBy ? sentence(this.closedBy) : "";
    const open = this.#faults();
    const shown = { lost: word("lost"), "signed-out": word("signedOut"), closed, open }[state] ?? "";
    if (bar.firstChild?.textContent === shown || (!shown && !bar.firstChild)) return;
    bar.replaceChildren(...(shown ? [element("span", {}, shown)] : []));
    if (state === "signed-out")
      bar.append(element("button", { type: "button", click: () => this.signIn.ask() }, word("signIn")));
  }
}
