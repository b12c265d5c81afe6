/*
 * The sidebar on a narrow screen: a drawer over the conversation. While it is open the rest cannot be reached, and
 * while it is closed it cannot, neither with a finger nor with the Tab key.
 */

import { part } from "./element.js";

const NARROW = matchMedia("(max-width: 719px)");

export class Drawer {
  #open = false;

  constructor() {
    part("open-drawer").addEventListener("click", () => this.open());
    part("close-drawer").addEventListener("click", () => this.close());
    part("scrim").addEventListener("click", () => this.close());
    part("sidebar").addEventListener("keydown", (event) => event.key === "Escape" && this.close());
    NARROW.addEventListener("change", () => this.#show(false));
    this.#show(false);
  }

  open() {
    this.#show(true);
    part("close-drawer").focus();
  }

  /** Gives the focus back to where it came from, unless something else takes it. */
  close({ refocus = true } = {}) {
    if (!this.#open) return;
    this.#show(false);
    if (refocus) part("open-drawer").focus();
  }

  #show(open) {
    this.#open = open;
    document.body.classList.toggle("drawer-open", open);
    part("open-drawer").setAttribute("aria-expanded", String(open));
    part("sidebar").inert = NARROW.matches && !open;
    part("main").inert = NARROW.matches && open;
  }
}
