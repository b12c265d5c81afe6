/*
 * The files that will go with the next message of each chat. They are uploaded at once, while the person still
 * writes, and survive a reload; what failed can be tried again or taken out.
 */

import { fileAddress } from "./api.js";
import { element, icon, iconButton, part } from "./element.js";
import { isPicture } from "./files.js";
import { limit, sentence, size, word } from "./language.js";
import { recallJson, remember } from "./memory.js";

const PREFIX = "clawgate.files.";

export class Attachments {
  #list = part("attachments");
  /** Key of a chat → items: {file, name, type, size, state, share, id, abort, refusal}, uploading, ready, failed. */
  #chats = new Map();
  #chat = "";

  /** `limits()` are the server's; `say(text)` tells the person; `changed()` hears of every step. */
  constructor({ upload, discard, limits, say, changed }) {
    Object.assign(this, { upload, discard, limits, say, changed });
  }

  get #items() {
    if (!this.#chats.has(this.#chat)) this.#chats.set(this.#chat, remembered(this.#chat));
    return this.#chats.get(this.#chat);
  }

  get ready() {
    return readyOf(this.#items);
  }

  get uploading() {
    return this.#items.some((item) => item.state === "uploading");
  }

  switchTo(chat) {
    this.#chat = chat;
    this.show();
  }

  add(files) {
    const limits = this.limits();
    for (const file of files) {
      if (this.#items.length >= limits.files) {
        this.say(word("tooMany", { count: limits.files }));
        break;
      }
      if (file.size > limits.file_bytes) this.say(word("tooLarge", { name: file.name, size: limit(limits.file_bytes) }));
      else this.#begin({ file, name: file.name || "file", type: file.type, size: file.size });
    }
    this.#told();
  }

  #begin(item) {
    this.#items.push(item);
    this.#upload(item, this.#chat);
  }

  async #upload(item, chat) {
    Object.assign(item, { state: "uploading", share: 0, refusal: null });
    const { done, abort } = this.upload(item.file, (share) => this.#progressed(item, share));
    item.abort = abort;
    try {
      Object.assign(item, await done, { state: "ready" });
    } catch (refusal) {
      Object.assign(item, { state: "failed", refusal });
    }
    keep(chat, this.#chats.get(chat) ?? []);
    this.#told();
  }

  #progressed(item, share) {
    item.share = share;
    if (item.bar) item.bar.value = share;
  }

  #remove(item) {
    const at = this.#items.indexOf(item);
    if (at >= 0) this.#items.splice(at, 1);
    if (item.state === "uploading") item.abort();
    if (item.state === "ready") this.discard(item.id);
    keep(this.#chat, this.#items);
    this.#told();
  }

  /** They are on their way with a message. */
  clear() {
    const left = this.#items.filter((item) => item.state !== "ready");
    this.#chats.set(this.#chat, left);
    keep(this.#chat, []);
    this.#told();
  }

  forget() {
    for (const items of this.#chats.values()) for (const item of items) if (item.state === "uploading") item.abort();
    this.#chats.clear();
    this.show();
  }

  #told() {
    this.show();
    this.changed();
  }

  show() {
    this.#list.hidden = this.#items.length === 0;
    this.#list.replaceChildren(...this.#items.map((item) => this.#entry(item)));
  }

  #entry(item) {
    return element(
      "li",
      { class: "attachment", "data-state": item.state },
      preview(item),
      element("span", { class: "attachment-name", dir: "auto", title: item.name }, item.name),
      item.state === "uploading" ? progress(item) : element("span", { class: "attachment-about" }, about(item)),
      item.state === "failed" && item.file
        ? iconButton("retry", word("again", { name: item.name }), () => this.#again(item))
        : null,
      iconButton("close", word("remove", { name: item.name }), () => this.#remove(item)),
    );
  }

  #again(item) {
    this.#upload(item, this.#chat);
    this.#told();
  }
}

function about(item) {
  return item.state === "failed" ? sentence(item.refusal) : size(item.size);
}

function progress(item) {
  item.bar = element("progress", { max: 1, value: item.share, "aria-label": item.name });
  return item.bar;
}

function preview(item) {
  if (item.state !== "ready" || !isPicture(item.type)) return icon("file");
  return element("img", { src: fileAddress(item.id), alt: "" });
}

function remembered(chat) {
  const items = recallJson(PREFIX + chat, "sessionStorage");
  return Array.isArray(items) ? items.map((item) => ({ ...item, state: "ready" })) : [];
}

function readyOf(items) {
  const ready = items.filter((item) => item.state === "ready");
  return ready.map(({ id, name, type, size }) => ({ id, name, type, size }));
}

function keep(chat, items) {
  const ready = readyOf(items);
  remember(PREFIX + chat, ready.length ? JSON.stringify(ready) : null, "sessionStorage");
}
