/*
 * The sidebar on a narrow screen: a drawer over the conversation. While it is open the rest cannot be reached, and
 * while it is closed it cannot, neither with a finger nor with the Tab key. On a wide one it stands beside the
 * conversation until somebody folds it away, which is remembered.
 */

import { part } from "./element.js";
import { recall, remember } from "./memory.js";

const NARROW = matchMedia("(max-width: 719px)");
/** Here a sidebar would take a third of the page, as where it is shown at twice its size. */
const TIGHT = matchMedia("(max-width: 899px)");
const KEY = "clawgate.sidebar";

export class Drawer {
  #open = false;
  #folded = false;
  /** The button that folds it away; a page may have none. */
  #fold = part("fold");

  constructor() {
    if (this.#fold) this.#folded = (recall(KEY) ?? (TIGHT.matches ? "folded" : "open")) === "folded";
    this.#fold?.addEventListener("click", () => this.#turn(true));
    part("open-drawer").addEventListener("click", () => this.open());
    part("close-drawer").addEventListener("click", () => this.close());
    part("scrim").addEventListener("click", () => this.close());
    part("sidebar").addEventListener("keydown", (event) => event.key === "Escape" && this.close());
    NARROW.addEventListener("change", () => this.#show(false));
    this.#show(false);
  }

  open() {
    if (!NARROW.matches) return this.#turn(false);
    this.#show(true);
    return part("close-drawer").focus();
  }

  /** The sidebar can be seen, so that something in it can have the focus. */
  reveal() {
    if (NARROW.matches ? !this.#open : this.#folded) this.open();
  }

  #turn(folded) {
    this.#folded = folded;
    remember(KEY, folded ? "folded" : "open");
    this.#show(false);
    (folded ? part("open-drawer") : this.#fold).focus();
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
    const folded = this.#folded && !NARROW.matches;
    document.body.classList.toggle("folded", folded);
    part("sidebar").inert = folded || (NARROW.matches && !open);
    part("main").inert = NARROW.matches && open;
  }
}
