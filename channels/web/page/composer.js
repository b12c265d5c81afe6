/*
 * Where the person writes. Enter sends, unless they chose otherwise or compose with an input method; the button is Send,
 * or Stop while an answer is under way and nothing is written. What is written is kept for each chat until it is
 * sent.
 */

import { Commands } from "./commands.js";
import { element, icon, part } from "./element.js";
import { word } from "./language.js";
import { recall, remember } from "./memory.js";
import { sends } from "./shortcuts.js";

const PREFIX = "clawgate.draft.";
const LINES_MAX = 8;
const STOP_PAUSE_MS = 4000;
/** Stop replaces Send: ignore the second click of a double click. */
const SENT_PAUSE_MS = 600;

export class Composer {
  #form = part("composer");
  #field = part("message");
  #button = part("send");
  #agents = part("agent");
  #hint = part("composer-hint");
  #key = null;
  #running = false;
  #stopAskedAt = 0;
  #sentAt = 0;

  /** `send(text, files, agent)` and `stop()` act; `attachments` holds the files; `limits()` and `commands()` are the
   * server's. */
  constructor({ send, stop, attachments, limits, commands, chosen }) {
    Object.assign(this, { send, stop, attachments, limits, chosen });
    this.commands = new Commands({ commands, taken: () => this.#written() });
    this.#form.addEventListener("submit", (event) => this.#submit(event));
    this.#form.addEventListener("click", (event) => event.target === this.#form && this.#field.focus());
    this.#field.addEventListener("input", () => this.#written());
    this.#field.addEventListener("keydown", (event) => this.#pressed(event));
    this.#field.addEventListener("paste", (event) => this.#pasted(event));
    part("attach").addEventListener("click", () => part("files").click());
    part("files").addEventListener("change", (event) => this.#picked(event.target));
    window.addEventListener("resize", () => this.resized());
    this.#agents.addEventListener("change", () => this.chosen());
    this.#agents.addEventListener("keydown", (event) => this.#chooseNext(event));
    takeDrops(part("main"), part("drop-area"), (files) => attachments.add(files));
  }

  /** Switches to a chat and restores its unsent text. */
  switchTo(key) {
    if (key === this.#key) return;
    this.#key = key;
    this.#field.value = recall(PREFIX + key, "sessionStorage") ?? "";
    this.attachments.switchTo(key);
    this.commands.hide();
    this.say("");
    this.resized();
    this.refresh();
  }

  show({ agents, isNew, running }) {
    this.#running = running;
    if (!running) this.#stopAskedAt = 0;
    this.#offer(agents);
    this.#agents.hidden = !isNew || agents.length < 2;
    this.commands.refresh();
    this.refresh();
  }

  #offer(agents) {
    const names = JSON.stringify(agents.map(({ id, name, description }) => [id, name, description]));
    if (names === this.#agents.dataset.names) return;
    const chosen = this.#agents.value;
    this.#agents.dataset.names = names;
    this.#agents.replaceChildren(...agents.map(optionOf));
    if (agents.some((agent) => agent.id === chosen)) this.#agents.value = chosen;
  }

  /** The arrow keys choose without opening, also where the page draws the choice. */
  #chooseNext(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || event.altKey || !CSS.supports("appearance", "base-select") || this.#agents.matches(":open")) return;
    event.preventDefault();
    const last = this.#agents.options.length - 1;
    this.#agents.selectedIndex = Math.min(last, Math.max(0, this.#agents.selectedIndex + step));
    this.chosen();
  }

  /** No focus on touch screens, where the keyboard would cover the text. */
  focus() {
    if (!matchMedia("(pointer: coarse)").matches) this.#field.focus();
  }

  say(text) {
    this.#hint.textContent = text;
  }

  /** Send or Stop, and whether it can be pressed. */
  refresh() {
    const stops = this.#running && this.#empty;
    const label = word(stops ? "stop" : "send");
    if (this.#button.getAttribute("aria-label") !== label) {
      this.#button.replaceChildren(icon(stops ? "stop" : "up"));
      this.#button.setAttribute("aria-label", label);
      this.#button.title = label;
    }
    this.#button.classList.toggle("stops", stops);
    const justSent = Date.now() - this.#sentAt < SENT_PAUSE_MS;
    const stopping = stops && (justSent || Date.now() - this.#stopAskedAt < STOP_PAUSE_MS);
    this.#button.disabled = stops ? stopping : this.#empty || this.attachments.uploading || this.#excess() > 0;
  }

  get agent() {
    return this.#agents.value;
  }

  /** The agent of the next new conversation. */
  choose(agent) {
    this.#agents.value = agent;
    this.chosen();
  }

  get #empty() {
    return this.#field.value.trim() === "" && this.attachments.ready.length === 0;
  }

  #excess() {
    const { value } = this.#field;
    const max = this.limits().message_chars;
    return value.length > max ? Math.max(0, Array.from(value.trim()).length - max) : 0;
  }

  #written() {
    remember(PREFIX + this.#key, this.#field.value || null, "sessionStorage");
    const excess = this.#excess();
    this.say(excess ? word("tooLong", { count: excess }) : "");
    this.commands.show();
    this.resized();
    this.refresh();
  }

  #pressed(event) {
    const composing = event.isComposing || event.keyCode === 229;
    if (!composing && this.commands.pressed(event)) return;
    if (event.key === "Escape" && this.#running && !composing) this.#stopNow();
    if (!sends(event)) return;
    event.preventDefault();
    if (!this.#empty) this.#form.requestSubmit();
  }

  #submit(event) {
    event.preventDefault();
    if (this.attachments.uploading) this.say(word("uploading"));
    else if (!this.#empty && this.#excess() === 0) this.#sendNow();
    else if (this.#running && this.#empty) this.#stopNow();
    this.#field.focus();
  }

  #sendNow() {
    const text = this.#field.value.trim();
    const files = this.attachments.ready;
    this.#field.value = "";
    this.attachments.clear();
    this.#sentAt = Date.now();
    setTimeout(() => this.refresh(), SENT_PAUSE_MS + 50);
    this.#written();
    this.send(text, files, this.#agents.value);
  }

  #stopNow() {
    this.#stopAskedAt = Date.now();
    this.stop();
    setTimeout(() => this.refresh(), STOP_PAUSE_MS + 50);
    this.refresh();
  }

  /** Fits the field's height to its text. */
  resized() {
    const field = this.#field;
    field.style.height = "auto";
    const line = parseFloat(getComputedStyle(field).lineHeight);
    const wanted = Math.min(field.scrollHeight, Math.round(line * LINES_MAX) + 8);
    field.style.height = `${wanted}px`;
    field.style.overflowY = field.scrollHeight > wanted ? "auto" : "hidden";
  }

  #pasted(event) {
    const files = [...event.clipboardData.files];
    if (!files.length) return;
    event.preventDefault();
    this.attachments.add(files);
  }

  #picked(input) {
    this.attachments.add([...input.files]);
    input.value = "";
    this.#field.focus();
  }
}

/** Where a browser cannot draw the description below the name, it shows the name alone. */
function optionOf({ id, name, description }) {
  return element("option", { value: id, title: description || null, "data-about": description || null }, name);
}

/** Accepts files dropped anywhere on `target`; `sign` is shown meanwhile. */
function takeDrops(target, sign, take) {
  const carries = (event) => event.dataTransfer?.types.includes("Files");
  const show = (shown) => sign.classList.toggle("shown", shown);
  target.addEventListener("dragover", (event) => {
    if (!carries(event)) return;
    event.preventDefault();
    show(true);
  });
  target.addEventListener("dragleave", (event) => target.contains(event.relatedTarget) || show(false));
  target.addEventListener("drop", (event) => {
    if (!carries(event)) return;
    event.preventDefault();
    show(false);
    take([...event.dataTransfer.files]);
  });
}
