/*
 * The conversation on the screen: it keeps one article for each entry of the timeline, changes only what differs,
 * and looks after the reader's place, which is the bottom as long as they are there.
 */

import { articleOf, marksOf, showEntry } from "./article.js";
import { part } from "./element.js";
import { word } from "./language.js";

const NEAR_BOTTOM = 60;
const NEAR_TOP = 240;

export class Conversation {
  #scroller = part("scroller");
  #log = part("messages");
  #newest = part("newest");
  /** Key of an entry → {article, marks}. */
  #articles = new Map();
  #chat = undefined;
  #sticks = true;
  #lastTop = 0;
  #height = 0;
  #unseen = false;
  /** The message that is to be shown, {number, words}, once it is here. */
  #sought = null;
  /** The version of a message that was turned to, {number, way}, until it is here. */
  #turned = null;

  constructor({ acts, loadOlder }) {
    this.acts = acts;
    this.loadOlder = loadOlder;
    this.#scroller.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.#newest.addEventListener("click", () => this.toBottom());
    const observer = new ResizeObserver(() => this.#settle());
    observer.observe(this.#scroller);
    observer.observe(this.#log);
  }

  /** Forgets the articles, as after a change of language. */
  clear() {
    this.#articles.clear();
    this.#log.replaceChildren();
  }

  show(chat, entries, { loading }) {
    const arrived = chat !== this.#chat;
    if (arrived) this.#arrive(chat);
    this.#log.setAttribute("aria-busy", String(arrived || loading));
    const kept = this.#keepPlace();
    const grew = this.#reconcile(entries);
    kept();
    if (grew && !this.#sticks) this.#unseen = true;
    this.#settle();
    this.#find();
    this.#stay();
  }

  /** Keeps the reader at the message whose other version they turned to, and the focus on what turned it. */
  turnedTo(number, way) {
    this.#turned = { number, way };
    this.#sticks = false;
  }

  #stay() {
    const article = this.#turned && this.#log.querySelector(`[data-number="${this.#turned.number}"]`);
    const buttons = article?.querySelectorAll(".versions button:enabled");
    if (!buttons?.length) return;
    const button = [...buttons].find((it) => it.classList.contains(this.#turned.way)) ?? buttons[0];
    this.#turned = null;
    article.scrollIntoView({ block: "nearest" });
    button.focus({ preventScroll: true });
  }

  /** Shows the message with this number, and marks the `words` in it. */
  reveal(number, words) {
    this.#sought = { number, words };
  }

  #find() {
    const article = this.#sought && this.#log.querySelector(`[data-number="${this.#sought.number}"]`);
    if (!article) return;
    const { words } = this.#sought;
    this.#sought = null;
    this.#sticks = false;
    for (const other of this.#log.querySelectorAll(".sought")) other.classList.remove("sought");
    article.classList.add("sought");
    article.tabIndex = -1;
    markWords(article, words);
    article.scrollIntoView({ block: "center" });
    article.focus({ preventScroll: true });
  }

  #arrive(chat) {
    this.clear();
    this.#chat = chat;
    this.#sticks = true;
    this.#unseen = false;
  }

  /** True when something came below. */
  #reconcile(entries) {
    const keys = new Set(entries.map((entry) => entry.key));
    this.#adoptDrafts(entries, keys);
    for (const [key, { article }] of this.#articles) {
      if (keys.has(key)) continue;
      article.remove();
      this.#articles.delete(key);
    }
    let grew = false;
    let place = this.#log.firstElementChild;
    for (const entry of entries) {
      const article = this.#articleFor(entry);
      if (article === place) place = place.nextElementSibling;
      else this.#log.insertBefore(article, place);
      grew ||= !article.dataset.seen && article.nextElementSibling === null;
      article.dataset.seen = "1";
    }
    return grew;
  }

  #articleFor(entry) {
    const marks = marksOf(entry);
    const known = this.#articles.get(entry.key);
    if (!known) {
      const article = articleOf(entry, this.acts);
      article.dataset.number = entry.row?.id ?? entry.row ?? "";
      this.#articles.set(entry.key, { article, marks });
      return article;
    }
    if (marks.some((mark, at) => mark !== known.marks[at])) {
      showEntry(known.article, entry, this.acts);
      known.marks = marks;
    }
    return known.article;
  }

  /**
   * A draft in which something is selected or focused becomes the answer in place. Otherwise the answer is an article
   * of its own, which a screen reader then reads.
   */
  #adoptDrafts(entries, keys) {
    for (const entry of entries) {
      const draft = `draft ${entry.message}`;
      const known = this.#articles.get(draft);
      if (entry.kind !== "answer" || this.#articles.has(entry.key) || !known || keys.has(draft)) continue;
      if (!holdsAttention(known.article)) continue;
      this.#articles.delete(draft);
      this.#articles.set(entry.key, { article: known.article, marks: [] });
    }
  }

  /** What is put in above must not push the reader's text away. */
  #keepPlace() {
    if (this.#sticks) return () => {};
    const middle = this.#scroller.getBoundingClientRect().top;
    const anchor = [...this.#log.children].find((child) => child.getBoundingClientRect().bottom > middle);
    const before = anchor?.getBoundingClientRect().top;
    return () => {
      if (anchor?.isConnected) this.#scroller.scrollTop += anchor.getBoundingClientRect().top - before;
    };
  }

  #scrolled() {
    const top = this.#scroller.scrollTop;
    const moved = top - this.#lastTop;
    const resized = this.#scroller.scrollHeight !== this.#height;
    this.#lastTop = top;
    if (moved < 0 && !resized) this.#sticks = this.#distance() < 2;
    else if (this.#distance() < NEAR_BOTTOM) this.#sticks = true;
    if (this.#sticks) this.#unseen = false;
    if (top < NEAR_TOP && !this.#sticks) this.loadOlder();
    this.#showNewest();
  }

  /** After any change of size: back to the bottom, where the reader was there. */
  #settle() {
    this.#height = this.#scroller.scrollHeight;
    if (this.#sticks) {
      this.#scroller.scrollTop = this.#chat === null ? 0 : this.#height;
      this.#lastTop = this.#scroller.scrollTop;
    }
    this.#showNewest();
  }

  #showNewest() {
    this.#newest.hidden = this.#sticks;
    this.#newest.classList.toggle("unseen", this.#unseen);
    this.#newest.setAttribute("aria-label", word(this.#unseen ? "newMessages" : "newest"));
    part("newest-word").textContent = this.#unseen ? word("newMessages") : "";
  }

  #distance() {
    return this.#scroller.scrollHeight - this.#scroller.clientHeight - this.#scroller.scrollTop;
  }

  toBottom() {
    this.#sticks = true;
    this.#unseen = false;
    this.#settle();
  }
}

/** Marks words without touching the text, where a browser can. */
function markWords(article, words) {
  if (!globalThis.Highlight) return;
  const ranges = [];
  const texts = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode;
    const lower = node.data.toLowerCase();
    if (lower.length !== node.data.length) continue; // its places would be others
    for (const word of words) {
      for (let at = lower.indexOf(word); at >= 0; at = lower.indexOf(word, at + word.length)) {
        const range = new Range();
        range.setStart(node, at);
        range.setEnd(node, at + word.length);
        ranges.push(range);
      }
    }
  }
  CSS.highlights.set("sought", new Highlight(...ranges));
}

function holdsAttention(article) {
  const selection = document.getSelection();
  const selected = !selection.isCollapsed && selection.containsNode(article, true);
  return selected || article.contains(document.activeElement);
}
