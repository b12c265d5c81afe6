/*
 * Connects Feishu by a scan, for the operator: shows the QR code, and asks the server until the new app is in force.
 * The app's secret never reaches the page.
 */

import { part } from "./element.js";
import { sentence, word } from "./language.js";

const ASK_MS = 2000;
const FAILED = new Set(["denied", "expired", "refused", "unwritten", "late"]);

export class AppScan {
  #form = part("app-scan");
  #code = part("app-scan-code");
  #said = part("app-scan-said");
  #busy = false;

  /** `begin()` gives { link, picture, minutes }, `state()` gives { state, app }; `done()` once the app is in force. */
  constructor({ begin, state, done }) {
    this.begin = begin;
    this.state = state;
    this.done = done;
    part("app-scan-begin").addEventListener("click", () => this.#scan());
  }

  /** Keeps the form while a scan is pending or has just ended. */
  show(offered) {
    this.#form.hidden = !offered && !this.#busy && this.#said.textContent === "";
  }

  async #scan() {
    if (this.#busy) return;
    this.#busy = true;
    part("app-scan-begin").hidden = true;
    try {
      const { link, picture, minutes } = await this.begin();
      part("app-scan-picture").src = picture;
      part("app-scan-picture").alt = word("appScanPicture");
      part("app-scan-link").href = link;
      this.#code.hidden = false;
      this.#say(word("appScanWaiting", { minutes }));
      this.#form.scrollIntoView({ block: "center" });
      await this.#ended();
    } catch (refusal) {
      this.#say(sentence(refusal), true);
      part("app-scan-begin").hidden = false;
    } finally {
      this.#busy = false;
      this.#code.hidden = true;
    }
  }

  async #ended() {
    for (;;) {
      await new Promise((resolve) => setTimeout(resolve, ASK_MS));
      const { state, app } = (await this.state().catch(() => null)) ?? {}; // the page may be without a connection
      if (state === "done") {
        this.#say(word("appScanDone", { app }));
        return this.done();
      }
      if (FAILED.has(state)) {
        part("app-scan-begin").hidden = false;
        return this.#say(word(`appScan_${state}`), true);
      }
    }
  }

  #say(text, wrong = false) {
    this.#said.textContent = text;
    this.#said.classList.toggle("wrong", wrong);
  }
}
