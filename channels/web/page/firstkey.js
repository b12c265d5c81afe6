/*
 * The form that takes a model's first key, in an empty conversation and for the operator alone. What is pasted goes to the
 * server once, which tries it; nothing of it is kept here.
 */

import { element, part } from "./element.js";
import { sentence, word } from "./language.js";

export class FirstKey {
  #form = part("first-key");
  #vendor = part("first-key-vendor");
  #key = part("first-key-key");
  #said = part("first-key-said");
  #vendors = [];
  #busy = false;
  /** The model that answers since a key was taken. */
  #model = "";

  /** `take(vendor, key)` asks the server, and gives the model. */
  constructor({ take }) {
    this.take = take;
    this.#form.addEventListener("submit", (event) => this.#submit(event));
    this.#vendor.addEventListener("change", () => this.#showVendor());
    this.#key.addEventListener("input", () => this.#refuse(""));
  }

  /** Shows the vendors of whom a key is wanted; nothing where there are none. */
  show(vendors) {
    this.#form.hidden = vendors.length === 0;
    this.#said.hidden = this.#model === "";
    this.#said.textContent = this.#model && word("firstKeyTaken", { model: this.#model });
    if (JSON.stringify(vendors) === JSON.stringify(this.#vendors)) return;
    this.#vendors = vendors;
    this.#vendor.replaceChildren(...vendors.map((it) => element("option", { value: it.vendor }, it.title || it.vendor)));
    this.#showVendor();
  }

  #showVendor() {
    const chosen = this.#vendors.find((it) => it.vendor === this.#vendor.value);
    part("first-key-made-at").hidden = !chosen?.made_at;
    part("first-key-made-at").href = chosen?.made_at || "#";
    this.#refuse("");
  }

  async #submit(event) {
    event.preventDefault();
    if (this.#busy) return;
    this.#busy = true;
    this.#form.classList.add("busy");
    this.#refuse(word("firstKeyTrying"), { wrong: false });
    try {
      this.#model = await this.take(this.#vendor.value, this.#key.value.trim());
      this.#key.value = "";
      this.#refuse("");
    } catch (refusal) {
      this.#refuse(sentence(refusal));
      this.#key.select();
    } finally {
      this.#busy = false;
      this.#form.classList.remove("busy");
    }
  }

  #refuse(text, { wrong = text !== "" } = {}) {
    part("first-key-error").textContent = text;
    part("first-key-error").classList.toggle("wrong", wrong);
    this.#key.setAttribute("aria-invalid", String(wrong));
  }
}
