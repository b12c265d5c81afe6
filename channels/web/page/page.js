/*
 * Everything that is seen: it holds the views and shows them what the store and the outbox know, all at once, at
 * most once a frame. What the person does is handed on to `acts`, which app.js provides; nothing is decided here.
 */

import { Attachments } from "./attachments.js";
import { Choices } from "./choices.js";
import { Composer } from "./composer.js";
import { Connection } from "./connection.js";
import { Conversation } from "./conversation.js";
import { Drawer } from "./drawer.js";
import { drawIcons, part } from "./element.js";
import { prepareViewer } from "./files.js";
import { AppScan } from "./appscan.js";
import { FirstKey } from "./firstkey.js";
import { currentLanguage, enumerated, fillWords, speakLanguage, word } from "./language.js";
import { Notices } from "./notify.js";
import { Palette } from "./palette.js";
import { Settings } from "./settings.js";
import { Shortcuts } from "./shortcuts.js";
import { Sidebar } from "./sidebar.js";
import { SignIn } from "./signin.js";
import { Theme } from "./theme.js";
import { timeline } from "./timeline.js";
import { Voice } from "./voice.js";
import { Welcome } from "./welcome.js";

const TITLE_CHARS = 60;

export class Page {
  #frame = 0;
  constructor({ store, outbox, acts }) {
    Object.assign(this, { store, outbox, acts });
    const changed = () => this.soon();
    const limits = () => store.limits;
    this.attachments = new Attachments({
      upload: acts.upload,
      discard: acts.discardUpload,
      limits,
      say: (text) => this.say(text),
      changed,
    });
    const commands = () => store.commands;
    const { attachments } = this;
    this.composer = new Composer({ send: acts.send, stop: acts.stop, attachments, limits, commands, chosen: changed });
    this.voice = new Voice({ take: (file) => attachments.add([file]), say: (text) => this.say(text) });
    this.conversation = new Conversation({ acts: { ...acts, ...this.#names() }, loadOlder: acts.loadOlder });
    this.sidebar = new Sidebar({
      change: acts.change,
      changeAll: (ids, change) => Promise.all(ids.map((id) => acts.change(id, change))),
      remove: (chat) => this.#confirmRemoval(chat),
      removeAll: (ids) => this.#confirmRemovals(ids),
      search: acts.search,
      page: acts.page,
      chosen: () => this.turnToWriting(),
    });
    this.choices = new Choices({ ask: acts.choices, set: acts.set, begin: acts.startWith, renewed: changed });
    this.signIn = new SignIn({ signIn: acts.signIn, done: acts.signedIn, closed: changed });
    this.firstKey = new FirstKey({ take: acts.takeKey });
    this.appScan = new AppScan({ begin: acts.beginScan, state: acts.scanState, done: acts.scanned });
    this.connection = new Connection({ signIn: this.signIn });
    this.welcome = new Welcome({ send: acts.send });
    this.drawer = new Drawer();
    this.theme = new Theme(part("theme"));
    this.palette = new Palette({ entries: () => this.#entries(), search: (words) => store.next && acts.search(words) });
    this.shortcuts = new Shortcuts({
      palette: () => this.palette.toggle(),
      newChat: acts.startNew,
      settings: () => this.settings.show(),
      search: () => this.#turnToSearch(),
    });
    this.notices = new Notices({ open: (chat) => (location.hash = chat) });
    this.settings = this.#settings();
    this.#listen();
    this.#speak();
  }

  #settings() {
    const { theme, notices, choices, acts } = this;
    return new Settings({
      theme,
      notices,
      choices,
      speak: (language) => this.#turnLanguage(language),
      resized: () => this.composer.resized(),
      signOut: acts.signOut,
      notes: { ...acts.notes, agrees: (text) => this.confirm("deleteNote", { text }) },
      state: () => this.#settingsState(),
    });
  }

  #settingsState() {
    const { shown, chats, person, operator, signedIn } = this.store;
    const agent = this.choices.offer?.agent ?? null;
    const title = shown === null ? word("newChat") : chats.get(shown)?.title || word("untitled");
    return { title, agent, agentName: this.store.agentName(agent), person: operator ? word("operator") : person, signedIn };
  }

  #names() {
    const agentName = (id) => this.store.agentName(id);
    return { agentName, agentOf: (chat) => agentName(this.#agentIdOf(chat)) };
  }

  #agentIdOf(chat) {
    return this.store.chats.get(chat)?.agent ?? this.outbox.of(chat)[0]?.agent;
  }

  #listen() {
    prepareViewer();
    part("new-chat").addEventListener("click", this.acts.startNew);
    part("sign-out").addEventListener("click", this.acts.signOut);
    part("language").addEventListener("click", () => this.#turnLanguage());
    part("skip").addEventListener("click", (event) => {
      event.preventDefault();
      part("scroller").focus();
    });
  }

  #turnLanguage(language = currentLanguage() === "en" ? "zh" : "en") {
    speakLanguage(language);
    this.#speak();
  }

  #turnToSearch() {
    this.drawer.reveal();
    this.sidebar.focusSearch();
  }

  /** What the quick switch offers: commands, and every chat. */
  #entries() {
    const { agents, operator } = this.store;
    const open = (id) => () => {
      location.hash = id;
      this.turnToWriting();
    };
    const named = agents.length > 1 ? agents : [];
    return [
      { text: word("newChat"), icon: "pen", act: this.acts.startNew },
      ...named.map(({ id, name }) => ({ text: word("newChatWith", { name }), icon: "bot", act: () => this.acts.startWith(id) })),
      { text: word("search"), icon: "lines", about: "/", act: () => this.#turnToSearch() },
      { text: word("theme"), icon: "sun", about: part("theme").title, act: () => this.theme.next() },
      { text: word("language"), icon: "globe", about: word("otherLanguage"), act: () => this.#turnLanguage() },
      ...(operator ? [{ text: word("toConsole"), icon: "pulse", act: () => (location.href = "console") }] : []),
      { text: word("settings"), icon: "gear", act: () => this.settings.show() },
      { text: word("shortcuts"), icon: "keys", about: "?", act: () => this.shortcuts.show() },
      ...this.#listed().map(({ id, title, agent }) => ({
        text: title || word("untitled"),
        icon: "chat",
        about: named.length ? this.store.agentName(agent) : "",
        chat: id,
        act: open(id),
      })),
    ];
  }

  /** A message arrived, perhaps while nobody looks. */
  tell({ author, chat, dropped, place, buttons }) {
    if (author !== "agent" || dropped || place !== null) return;
    const title = this.store.chats.get(chat)?.title || word("untitled");
    this.notices.tell(chat, title, { asks: buttons.length > 0 });
  }

  /** Shows a message of the conversation, with the words that were looked for. */
  reveal(number) {
    this.conversation.reveal(number, this.sidebar.words);
    this.soon();
  }

  /** Asks before anything is gone for good. */
  async #confirmRemoval(chat) {
    if (await this.confirm("delete", { title: chat.title || word("untitled") })) this.acts.remove(chat.id);
  }

  async #confirmRemovals(ids) {
    if (!(await this.confirm("deleteMany", { count: ids.length }))) return;
    for (const id of ids) await this.acts.remove(id); // one after the other: each stops what runs there
    this.sidebar.forget(ids);
  }

  /** A question whose words are `{key}Title`, `{key}About` and, on the button, `{key}`. Gives whether the answer is yes. */
  confirm(key, values) {
    const dialog = part("confirm");
    for (const [name, chosen] of Object.entries({ "confirm-title": `${key}Title`, "confirm-yes": key })) {
      part(name).dataset.word = chosen;
      part(name).textContent = word(chosen);
    }
    part("confirm-about").textContent = word(`${key}About`, values);
    dialog.returnValue = "no";
    dialog.showModal();
    return new Promise((resolve) => {
      dialog.onclose = () => dialog.open || resolve(dialog.returnValue === "yes"); // open: an earlier question's event
    });
  }

  /** A word to the person, beside what they write. */
  say(text) {
    this.composer.say(text);
  }

  turnTo(chat) {
    this.voice.cancel();
    this.composer.switchTo(chat ?? "new");
    this.conversation.toBottom();
  }

  turnToWriting() {
    this.drawer.close({ refocus: false });
    this.composer.focus();
  }

  #speak() {
    fillWords();
    drawIcons();
    part("language").textContent = word("otherLanguage");
    part("language").setAttribute("aria-label", `${word("language")}: ${word("otherLanguage")}`);
    this.welcome.clear();
    this.theme.show();
    this.attachments.show();
    this.voice.cancel();
    this.sidebar.clear();
    this.choices.clear();
    this.conversation.clear();
    this.#show();
  }

  /** Shows what has changed, in the next frame; a hidden tab has no frames. */
  soon() {
    if (this.#frame) return;
    const show = () => {
      this.#frame = 0;
      this.#show();
    };
    this.#frame = document.hidden ? setTimeout(show, 50) : requestAnimationFrame(show);
  }

  #show() {
    const { store, outbox } = this;
    const { shown } = store;
    const listed = this.#listed();
    const conversation = store.conversations.get(shown);
    const entries = timeline(conversation, shown ? outbox.of(shown) : [], store.turnsOf(shown));
    this.sidebar.show(listed, shown, store);
    this.conversation.show(shown, entries, { loading: Boolean(conversation?.loading) });
    this.composer.show({
      agents: store.agents,
      isNew: shown === null,
      running: shown !== null && store.running(shown),
    });
    if (store.after !== null) this.choices.show(this.#choosing());
    this.settings.refresh();
    this.#showHead(listed.find((chat) => chat.id === shown));
    this.connection.show();
    part("guest-note").hidden = store.guestOf === null;
    part("guest-note").textContent = store.guestOf && word("guestNote", { names: enumerated(store.guestOf) });
    this.welcome.show(store, this.composer.agent);
    this.firstKey.show(store.keys);
    this.appScan.show(store.scan);
    this.voice.show(store.voice);
    part("signed-in").hidden = !store.signedIn;
    part("person").textContent = part("person").title = store.operator ? word("operator") : (store.person ?? "");
    part("all-sessions").hidden = part("to-console").hidden = !store.operator;
  }

  /** A conversation whose first message is still on its way has its place in the list as well. */
  #listed() {
    const { store, outbox } = this;
    const listed = new Map();
    for (const chat of store.chats.values()) {
      listed.set(chat.id, { ...chat, running: store.running(chat.id), unread: store.unread.has(chat.id) });
    }
    for (const { chat, text, files, agent, at } of outbox.all()) {
      if (listed.has(chat)) continue;
      const title = (text || files[0]?.name || "").trim().split("\n")[0].slice(0, TITLE_CHARS);
      listed.set(chat, { id: chat, title, agent, at, running: false, unread: false });
    }
    return [...listed.values()].sort((one, other) => other.at - one.at);
  }

  #choosing() {
    const { shown, agents, chats } = this.store;
    const agent = shown === null ? this.composer.agent : this.#agentIdOf(shown);
    return { chat: shown, agent, agents, known: shown === null || chats.has(shown) };
  }

  renewChoices() {
    const choosing = this.#choosing();
    if (this.store.after !== null && choosing.known) this.choices.renew(choosing);
  }

  #showHead(chat) {
    const title = chat ? chat.title || word("untitled") : "";
    part("title").textContent = title || word("newChat");
    document.title = `${this.store.unread.size ? "● " : ""}${title ? `${title} · ` : ""}Clawgate`;
  }
}
