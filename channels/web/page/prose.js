/*
 * The server's HTML in the page: the only place that takes any. An answer is a row of blocks, and a block that has
 * not changed keeps its nodes, so that a selection, a scrolled table and the reader's place survive the next words.
 * Code gets a head with its language and a Copy button, a wide table a frame to scroll in.
 *
 * Math is drawn by KaTeX, which is loaded with the first formula. Until then, and where it cannot read one, the formula
 * stands there as it was written. KaTeX is handed text and makes elements: no HTML of anybody's.
 */

import { copyBy } from "./clipboard.js";
import { element, icon, iconButton } from "./element.js";
import { long, PIECE_CHARS } from "./long.js";
import { paint } from "./paint.js";
import { word } from "./language.js";

/** A cell with more than this many characters has several lines, and a width to read them in. */
const LINE_CHARS = 24;

const BRACKETS = /^(?:\$\$|\\\[)([^]*)(?:\$\$|\\\])$|^(?:\$|\\\()([^]*)(?:\$|\\\))$/;
/** KaTeX, once a formula was met. */
let loading = null;

/** The HTML each block was made from. */
const sources = new WeakMap();

/** Makes `container` show these blocks, with as little change as can be. */
export function showBlocks(container, blocks, { growing = false } = {}) {
  blocks.forEach((html, at) => {
    const block = container.children[at];
    const last = growing && at === blocks.length - 1;
    if (!block) container.append(made(html, last));
    else if (sources.get(block).html !== html || sources.get(block).last !== last) renew(block, html, last);
  });
  while (container.children.length > blocks.length) container.lastElementChild.remove();
}

/** The HTML of a whole answer as blocks, one for each element at its top. */
export function blocksOf(html) {
  return [...parsed(html).children].map((child) => child.outerHTML);
}

function parsed(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content;
}

function made(html, last) {
  const block = element("div", { class: "block", dir: "auto" });
  fill(block, parsed(html), html, last);
  return block;
}

function renew(block, html, last) {
  const fresh = parsed(html);
  const canonical = canonicalOf(fresh);
  const same = sources.get(block).canonical === canonical;
  if (same || grown(block, fresh)) sources.set(block, { html, canonical, last });
  else fill(block, fresh, html, last);
}

function fill(block, content, html, last) {
  sources.set(block, { html, canonical: canonicalOf(content), last });
  dress(content);
  if (!last) shorten(content);
  block.replaceChildren(content);
}

/** The same HTML however the server wrote it: with or without a line end, `&quot;` or a plain quotation mark. */
function canonicalOf(content) {
  return [...content.children].map((child) => child.outerHTML).join("");
}

/** A code block that only got longer gets the rest of its text: it stays where it was scrolled to. */
function grown(block, fresh) {
  const now = block.querySelector(":scope > .code > pre > code");
  const next = fresh.children.length === 1 ? fresh.querySelector(":scope > pre > code") : null;
  if (!now || !next || now.className !== next.className) return false;
  if (!next.textContent.startsWith(now.textContent)) return false;
  paint(now, next.textContent);
  return true;
}

function dress(content) {
  for (const code of content.querySelectorAll("code.language-math")) drawMath(code);
  for (const item of content.querySelectorAll("li")) drawTask(item);
  for (const pre of content.querySelectorAll("pre")) {
    const code = pre.querySelector("code");
    if (code) paint(code);
    const frame = element("div", { class: "code", dir: "ltr" });
    pre.replaceWith(frame);
    frame.append(codeHead(code ?? pre, frame), pre);
  }
  for (const table of content.querySelectorAll("table")) {
    const frame = element("div", { class: "table", tabindex: 0, role: "group", "aria-label": word("table") });
    table.replaceWith(frame);
    frame.append(table);
    for (const cell of table.querySelectorAll("th, td")) {
      const chars = cell.textContent.length;
      if (chars > LINE_CHARS) cell.classList.add(chars > 3 * LINE_CHARS ? "text" : "line");
    }
  }
  for (const link of content.querySelectorAll("a.remote")) {
    link.title = link.getAttribute("href");
    if (link.textContent === link.title) link.replaceChildren(word("notLoaded"));
    else link.append(element("small", {}, ` (${word("notLoaded")})`));
  }
}

/** Code does not wrap, so that its length costs little, and it is copied as it stands. */
function shorten(content) {
  const texts = document.createTreeWalker(content, NodeFilter.SHOW_TEXT);
  const found = [];
  while (texts.nextNode()) if (texts.currentNode.length > PIECE_CHARS) found.push(texts.currentNode);
  for (const text of found) if (!text.parentElement.closest("pre")) text.replaceWith(...long(text.data));
}

/** An item that begins with `[ ]` or `[x]` has a box. */
function drawTask(item) {
  const holder = item.firstElementChild?.tagName === "P" && !item.firstChild.data?.trim() ? item.firstElementChild : item;
  const words = holder.firstChild;
  const found = words?.nodeType === Node.TEXT_NODE ? /^\[([ xX])\]\s/.exec(words.data) : null;
  if (!found) return;
  words.data = words.data.slice(found[0].length);
  const done = found[1] !== " ";
  const label = word(done ? "taskDone" : "taskOpen");
  words.before(element("input", { type: "checkbox", disabled: true, checked: done, "aria-label": label }));
  item.classList.add("task");
}

function codeHead(code, frame) {
  const language = /(?:^|\s)language-(\S+)/.exec(code.className)?.[1] ?? "";
  const drawn = (done) => [icon(done ? "check" : "copy"), element("span", {}, word(done ? "copied" : "copy"))];
  const button = element("button", { type: "button", class: "copy" }, ...drawn(false));
  button.addEventListener("click", () => copyBy(button, code.textContent, drawn));
  const turn = () => wrap.setAttribute("aria-pressed", String(frame.classList.toggle("wrapped")));
  const wrap = iconButton("wrap", word("wrap"), turn, { class: "icon-button small wrap", "aria-pressed": "false" });
  return element("div", { class: "code-head" }, element("span", { class: "code-language" }, language), wrap, button);
}

/** Puts a formula in the place of its `code`, which is a block where it stands in a `pre`. */
function drawMath(code) {
  const source = code.textContent;
  const block = code.closest("pre");
  const node = element(block ? "div" : "span", { class: "math" }, source);
  (block ?? code).replaceWith(node);
  const [, display, inline] = BRACKETS.exec(source.trim()) ?? ["", block ? source : undefined, source];
  const displayMode = display !== undefined;
  const draw = () => {
    const drawn = document.createElement("span");
    const options = { displayMode, trust: false, strict: "ignore", maxSize: 40, maxExpand: 500 };
    globalThis.katex.render(display ?? inline, drawn, options);
    node.replaceChildren(drawn);
  };
  loading ??= load();
  if (globalThis.katex) attempt(draw);
  else loading.then(() => attempt(draw));
}

function attempt(draw) {
  try {
    draw();
  } catch {
    // It stays as it was written.
  }
}

async function load() {
  document.head.append(element("link", { rel: "stylesheet", href: "web/katex/katex.min.css" }));
  try {
    await import(new URL("web/katex/katex.min.js", document.baseURI)); // as the style sheet above, wherever this module stands
  } catch {
    loading = null; // the next formula tries again
  }
}
