/*
 * One entry of the conversation as an `article`. An own message is built once and only its foot changes; a draft
 * and the answer it becomes are the same kind of article, so that the one can turn into the other under the
 * reader's eyes.
 */

import { copyBy } from "./clipboard.js";
import { element, icon, iconButton } from "./element.js";
import { fileList } from "./files.js";
import { moment, money, number, sentence, word } from "./language.js";
import { long } from "./long.js";
import { blocksOf, showBlocks } from "./prose.js";
import { sends } from "./shortcuts.js";
import { STOP } from "./timeline.js";
import { disclosure, toolList } from "./tools.js";

/** The article of an entry; `show(article, entry)` brings it up to date later. */
export function articleOf(entry, acts) {
  if (entry.kind === "note") return element("p", { class: "note", dir: "auto" }, ...lineOf(entry));
  const article = entry.kind === "own" ? ownArticle(entry) : answerArticle();
  showEntry(article, entry, acts);
  return article;
}

export function showEntry(article, entry, acts) {
  if (entry.kind === "own") showOwn(article, entry, acts);
  else if (entry.kind === "note") article.replaceChildren(...lineOf(entry));
  else showAnswer(article, entry, acts);
}

function lineOf({ icon: shape, text, word: said }) {
  return [...(shape ? [icon(shape)] : []), text ?? word(said)];
}

/** What has to change before an entry needs to be shown again. */
export function marksOf(entry) {
  if (entry.kind === "own") return [entry.row, entry.state, entry.refusal, entry.text, entry.open, String(entry.versions)];
  return [entry.kind, entry.row, entry.turn, entry.own?.text, entry.last, entry.text, entry.rating];
}

function ownArticle(entry) {
  const stop = entry.text === STOP;
  const text = stop ? element("p", { class: "stop-asked" }, icon("stop"), word("stopAsked")) : ownText(entry.text);
  return element(
    "article",
    { "data-author": "you", class: stop ? "own command" : "own", "aria-label": word("you") },
    entry.files.length ? fileList(entry.files) : null,
    text,
    element("footer", { class: "foot" }),
  );
}

function ownText(text) {
  return text ? element("div", { class: "bubble", dir: "auto" }) : null;
}

function showOwn(article, entry, acts) {
  article.dataset.messageId = entry.message;
  article.dataset.state = entry.state;
  const bubble = article.querySelector(":scope > .bubble");
  if (bubble && bubble.written !== entry.text) bubble.replaceChildren(...long(entry.text));
  if (bubble) bubble.written = entry.text;
  const foot = article.querySelector(":scope > .foot");
  const copies = entry.text && entry.text !== STOP ? [copyButton(entry.text, word("copyMessage"))] : [];
  const edits = entry.open && bubble ? [iconButton("pen", word("edit"), () => beginEdit(article, entry, acts))] : [];
  foot.replaceChildren(...versionsOf(entry, acts), time(entry.at), ...copies, ...edits, ...ownFoot(entry, acts));
}

/** ‹ 2/3 ›: the versions of a message, each with what follows it. */
function versionsOf({ row, versions }, acts) {
  const at = versions?.indexOf(row) ?? -1;
  if (at < 0) return [];
  const values = { at: at + 1, count: versions.length };
  const turn = (name, to) => {
    const attributes = { class: `icon-button small ${name}`, disabled: versions[to] === undefined };
    return iconButton("turn", word(name), () => acts.turn(versions[to], name), attributes);
  };
  const shown = element("span", { "aria-hidden": "true" }, `${values.at}/${values.count}`);
  const named = { class: "versions", role: "group", "aria-label": word("version", values) };
  return [element("span", named, turn("previousVersion", at - 1), shown, turn("nextVersion", at + 1))];
}

function ownFoot(entry, acts) {
  switch (entry.state) {
    case "sending":
    case "waiting":
    case "queued": {
      const why = entry.refusal ? word("keptHere", { why: sentence(entry.refusal) }) : word(entry.state);
      return [element("span", { class: "state" }, why)];
    }
    case "dropped":
      return [
        element("span", { class: "state" }, word("dropped")),
        element("button", { type: "button", click: () => acts.send(entry.text, entry.files, null) }, word("sendAgain")),
      ];
    case "refused":
      return [
        element("span", { class: "state" }, `${word("refused")} ${sentence(entry.refusal)}`),
        element("button", { type: "button", click: () => acts.tryAgain(entry.key) }, word("tryAgain")),
        element("button", { type: "button", click: () => acts.discard(entry.key) }, word("discard")),
      ];
    default:
      return [];
  }
}

/** The message's words in a field, in the place of its bubble, until they are sent or left as they were. */
function beginEdit(article, entry, acts) {
  const bubble = article.querySelector(":scope > .bubble");
  const field = element("textarea", { class: "edit-field", dir: "auto", "aria-label": word("editField"), rows: 3 });
  const end = () => {
    form.replaceWith(bubble);
    article.classList.remove("editing");
  };
  const send = (event) => {
    event.preventDefault();
    const text = field.value.trim();
    end();
    if (text && text !== entry.text) acts.sendInstead(entry, text);
  };
  const form = element(
    "form",
    { class: "edit", submit: send },
    field,
    element("button", { type: "button", click: end }, word("cancel")),
    element("button", { type: "submit", class: "primary" }, word("send")),
  );
  field.value = entry.text;
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !event.isComposing) end();
    if (sends(event)) send(event);
  });
  bubble.replaceWith(form);
  article.classList.add("editing");
  field.focus();
}

function answerArticle() {
  return element(
    "article",
    { class: "answer" },
    element("header", { class: "author", dir: "auto" }),
    element("div", { class: "tools-place" }),
    element("div", { class: "prose" }),
    element("div", { class: "files-place" }),
    element("div", { class: "keys", role: "group" }),
    element("footer", { class: "foot" }),
  );
}

function showAnswer(article, entry, acts) {
  const draft = entry.kind === "draft";
  const [header, tools, prose, files, keys, foot] = article.children;
  const { name, blocks, used } = contentOf(entry, acts);
  const facts = draft ? null : entry.row.turn;
  article.classList.toggle("failed", Boolean(facts?.failed));
  article.dataset.author = draft ? "draft" : "agent";
  article.dataset.messageId = draft ? entry.message : String(entry.row.id);
  article.setAttribute("aria-label", name);
  attribute(article, "aria-busy", draft ? "true" : null);
  attribute(article, "aria-live", draft ? "off" : null);
  article.classList.toggle("streaming", entry.streaming);
  article.classList.toggle("thinking", entry.streaming && blocks.length === 0);
  header.replaceChildren(
    ...(facts?.failed ? [icon("alert")] : []),
    element("span", {}, name),
    ...(facts?.model ? [element("span", { class: "model" }, facts.model)] : []),
  );
  if (article.used !== used) tools.replaceChildren(...toolList(used, { open: draft, before: tools.firstElementChild }));
  article.used = used; // what the reader has opened stays open
  showBlocks(prose, blocks, { growing: draft });
  files.replaceChildren(...(draft || !entry.row.files.length ? [] : [fileList(entry.row.files)]));
  keys.replaceChildren(...(draft ? [] : entry.row.buttons.map((button) => key(entry.row, button, acts))));
  if (!draft && entry.row.form) keys.append(formOf(entry.row, acts));
  keys.setAttribute("aria-label", word("choices"));
  const rated = foot.contains(document.activeElement) ? document.activeElement.dataset.rating : null;
  foot.replaceChildren(...(draft ? noteOf(entry.turn) : answerFoot(entry, acts)));
  if (rated) foot.querySelector(`[data-rating="${rated}"]`)?.focus({ preventScroll: true });
}

function answerFoot({ row, own, last, rating }, acts) {
  const again = () => acts.sendInstead(own, own.text);
  const { failed, unfinished } = row.turn ?? {};
  const parts = [copyButton(row.text, word("copyAnswer"))];
  if (own && failed && !unfinished) parts.unshift(element("button", { type: "button", click: again }, word("tryAgain")));
  else if (own) parts.push(iconButton("retry", word("regenerate"), again));
  if (last && unfinished) parts.unshift(goOnButton(acts));
  if (row.turn && !failed && row.reply_to && acts.rates()) parts.push(...ratingsOf(row, rating, acts));
  if (row.turn?.model) parts.push(factsOf(row.turn));
  return [...parts, time(row.at)]; // hidden until one points there, it leaves no hole
}

/** 👍 and 👎: the pressed one is taken back by another press. */
function ratingsOf(row, rating, acts) {
  return ["good", "bad"].map((name) => {
    const pressed = name === rating;
    const rate = () => acts.rate(row, pressed ? null : name);
    return iconButton(name, word(`${name}Answer`), rate, { "aria-pressed": String(pressed), "data-rating": name });
  });
}

/** An answer that a limit stopped goes on by a message like any other; the second click of a double click says nothing. */
function goOnButton(acts) {
  const goOn = () => {
    button.disabled = true;
    acts.send(word("goOnWords"), [], null);
  };
  const button = element("button", { type: "button", click: goOn }, word("goOn"));
  return button;
}

/** Tokens, cost and time, for whoever asks. */
function factsOf({ input, output, cost, seconds }) {
  const label = word("facts");
  const said = [word("tokens", { input: number(input), output: number(output) }), word("seconds", { count: number(seconds) })];
  if (cost !== null) said.push(money(cost));
  const attributes = { class: "icon-button small", "aria-label": label, title: label };
  return disclosure(attributes, [icon("info")], () => element("span", { class: "facts" }, said.join(" · ")));
}

/** Checkboxes and a text field, sent together; what became of them, the message itself will say. */
function formOf(row, acts) {
  const { options, field, submit, token } = row.form;
  const boxes = options.map((label, at) => element("input", { type: "checkbox", value: String(at + 1), "aria-label": label }));
  const labels = boxes.map((box, at) => element("label", { dir: "auto" }, box, " ", options[at]));
  const text = field ? element("input", { type: "text", maxlength: "1000", placeholder: field, "aria-label": field, dir: "auto" }) : null;
  const form = element("form", { class: "choices" }, ...labels, ...(text ? [text] : []), element("button", { type: "submit", class: "key-primary" }, submit));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const controls = form.querySelectorAll("input, button");
    const picked = boxes.filter((box) => box.checked).map((box) => Number(box.value));
    for (const control of controls) control.disabled = true;
    await acts.press(row, token, { picked, text: text?.value ?? "" });
    for (const control of controls) control.disabled = false;
  });
  return form;
}

/** While one press is on its way, no other can be made; what became of it, the message itself will say. */
function key(row, button, acts) {
  const made = element("button", { type: "button", class: `key-${button.style}`, dir: "auto" }, button.label);
  made.addEventListener("click", async () => {
    const all = made.parentElement.children;
    for (const one of all) one.disabled = true;
    await acts.press(row, button.token);
    for (const one of all) one.disabled = false;
  });
  return made;
}

/** What keeps the answer waiting, such as a model that is asked again. */
function noteOf({ note }) {
  return note ? [element("span", { class: "state", role: "status" }, note)] : [];
}

function contentOf(entry, acts) {
  if (entry.kind === "draft") {
    const { chat, blocks, tools } = entry.turn;
    return { name: acts.agentOf(chat), blocks, used: tools };
  }
  const { agent, chat, html, text, tools } = entry.row;
  const name = agent ? acts.agentName(agent) : acts.agentOf(chat);
  return { name, blocks: html === null ? [plain(text)] : blocksOf(html), used: tools };
}

/** Text without HTML of the server's, made into HTML that says just that. */
function plain(text) {
  return element("p", { class: "plain" }, text).outerHTML;
}

function attribute(article, name, value) {
  if (value === null) article.removeAttribute(name);
  else article.setAttribute(name, value);
}

function time(at) {
  const iso = new Date(at * 1000).toISOString();
  return element("time", { datetime: iso, title: moment(at, { long: true }) }, moment(at));
}

function copyButton(text, label) {
  const button = iconButton("copy", label, () =>
    copyBy(button, text, (done) => {
      if (done) button.title = word("copiedAnswer");
      return [icon(done ? "check" : "copy")];
    }),
  );
  return button;
}
