/*
 * Entry point: server events update the store, the person's actions go to the server through the outbox, and page.js
 * renders the result. Start reading here.
 */

import { Api, newId } from "./api.js";
import { sentence } from "./language.js";
import { Outbox } from "./outbox.js";
import { Page } from "./page.js";
import { Listing, Reading } from "./reading.js";
import { Store } from "./store.js";
import { Stream } from "./stream.js";
import { STOP } from "./timeline.js";

const LINK = /^#sign-in=(.*)$/;
/** A one-time link, for the operator only: users must not sign others in with their tokens. */
const CODE = /^once-[\w-]{43}$/;

class App {
  /** Ids of ambiguous presses by button, so that another press is a retry. */
  #presses = new Map();
  /** Whether the signed-in person is known since the last sign-in or sign-out. */
  #knowsPerson = false;
  /** Why the link in the URL did not sign in. */
  linkRefusal = null;

  constructor() {
    this.store = new Store(() => this.page.soon());
    this.api = new Api({ onSignedOut: () => this.#signedOut() });
    this.outbox = new Outbox({
      post: (message) => this.#post(message),
      changed: () => this.page.soon(),
      whose: () => (this.#knowsPerson ? this.store.person : null),
    });
    this.page = new Page({ store: this.store, outbox: this.outbox, acts: this.#acts() });
    const { api, store, outbox, page } = this;
    const gone = (id) => this.#gone(id);
    this.reading = new Reading({ api, store, outbox, page, gone });
    this.listing = new Listing({ api, store, page, gone });
    this.stream = new Stream({
      refresh: () => this.#refresh(),
      refused: () => this.api.refusedEvents(),
      heard: (event, data, position) => this.#heard(event, data, position),
      state: (state, refusal) => this.#connected(state, refusal),
    });
  }

  #acts() {
    return {
      send: (text, files, agent) => this.#send(text, files, agent),
      sendInstead: (entry, text) => this.#sendInstead(entry, text),
      turn: (number, way) => this.reading.turn(number, way),
      stop: () => this.#stop(),
      upload: (file, onProgress) => this.api.upload(file, onProgress),
      discardUpload: (id) => this.api.discard(id).catch(() => null), // it goes by itself in a day
      tryAgain: (id) => this.outbox.tryAgain(id),
      discard: (id) => this.#discard(id),
      press: (row, token, filled) => this.#press(row, token, filled),
      rate: (row, rating) => this.#rate(row, rating),
      rates: () => this.store.commands.some(({ name }) => name === "good"),
      loadOlder: () => this.reading.loadOlder(),
      startNew: () => this.#startNew(),
      change: (id, change) => this.listing.change(id, change),
      remove: (id) => this.listing.remove(id),
      choices: (of) => this.api.choices(of),
      notes: {
        list: this.api.notes,
        take: this.api.takeNote,
        change: this.api.changeNote,
        remove: this.api.removeNote,
      },
      set: (command) => this.#send(command, [], this.page.composer.agent),
      startWith: (agent) => this.#startWith(agent),
      search: (words) => this.listing.search(words),
      page: (of) => this.listing.more(of),
      takeKey: (vendor, key) => this.#takeKey(vendor, key),
      beginScan: () => this.api.beginScan(),
      scanState: () => this.api.scanState(),
      scanned: () => this.#askOwnership(),
      signIn: (token) => this.api.signIn(token),
      signedIn: () => this.#signedIn(),
      signOut: () => this.#signOut(),
    };
  }

  begin() {
    window.addEventListener("hashchange", () => this.#arrive());
    document.addEventListener("visibilitychange", () => this.store.seen());
    if (!this.#arrive()) this.stream.open();
    this.page.composer.focus();
  }

  /** Text written before the agents were known goes to the first agent. */
  #post(message) {
    return this.api.post({ ...message, agent: message.agent ?? this.store.agents[0]?.id ?? null });
  }

  // Server events

  /** The list first, then the shown conversation if it is not here. Gives the position that events go on from. */
  async #refresh() {
    const answer = await this.api.chats();
    const { store } = this;
    if (store.person !== null && answer.person !== store.person) this.#forgetPerson();
    const otherDatabase = store.after !== null && answer.after < store.after;
    store.takeList(answer);
    this.#knowsPerson = true;
    this.outbox.pump();
    if (store.operator) this.#askOwnership();
    if (otherDatabase) {
      store.after = answer.after;
      this.reading.reload();
    } else if (store.conversations.get(store.shown)?.rows.size && !store.chats.has(store.shown)) {
      if (store.next) this.reading.load(store.shown, { anew: true }); // further back in the list, or deleted
      else this.reading.missing(store.shown); // deleted meanwhile
    }
    return store.after;
  }

  #connected(state, refusal = null) {
    this.page.connection.state = state;
    this.page.connection.closedBy = refusal;
    if (state === "open") {
      this.linkRefusal = null;
      this.outbox.wake();
      this.reading.load(this.store.shown);
      this.page.renewChoices();
    }
    this.page.soon();
  }

  #heard(event, data, position) {
    switch (event) {
      case "hello":
        this.page.connection.faults = { text: "", channels: [] };
        return this.store.beginAnew();
      case "fault":
        this.page.connection.faults = data;
        return this.page.soon();
      case "owners":
        return void this.#askOwnership();
      case "message":
        this.outbox.delivered(data.message);
        if (data.author === "agent" && !data.turn?.model && data.chat === this.store.shown) this.page.renewChoices();
        this.page.tell(data);
        this.store.takeMessage(data, position);
        return data.instead && this.reading.turned(data.chat, data.id);
      case "chat":
        if (data.deleted) return this.#gone(data.id);
        this.store.takeChat(data);
        return this.reading.turned(data.id, data.branch);
      case "turn":
        return this.store.takeTurn(data);
      case "draft":
        return this.store.takeDraft(data);
      case "rated":
        return this.store.takeRatings(data);
      default:
        return this.#reset();
    }
  }

  /** Shows the operator who owns the bot, or how to claim it. */
  async #askOwnership() {
    const answer = await this.api.setup().catch(() => null);
    if (answer) this.store.takeOwnership(answer);
  }

  async #reset() {
    this.reading.reload();
    const answer = await this.api.chats().catch(() => null);
    if (answer) this.store.takeList(answer);
  }

  #gone(id) {
    this.store.forget(id);
    this.outbox.dropChat(id);
    if (id === this.store.shown) this.#startNew();
  }

  // Actions

  /** The address names a conversation, or holds what signs in once: then true. */
  #arrive() {
    const given = LINK.exec(location.hash)?.[1] ?? null;
    if (given !== null) history.replaceState(null, "", location.pathname + location.search);
    const signsIn = given !== null && CODE.test(given);
    if (signsIn) this.#signInByLink(given);
    this.reading.follow();
    return signsIn;
  }

  #startNew() {
    if (location.hash) history.pushState(null, "", location.pathname + location.search);
    this.reading.follow();
    this.page.turnToWriting();
  }

  #startWith(agent) {
    this.#startNew();
    this.page.composer.choose(agent);
  }

  #send(text, files, chosen) {
    const { store, outbox } = this;
    const isNew = store.shown === null;
    const chat = store.shown ?? newId("c");
    const agent = isNew ? chosen || store.agents[0]?.id : this.#agentOf(chat);
    outbox.add({ chat, agent: agent ?? null, text, files, person: store.person });
    if (isNew) {
      store.begin(chat);
      history.pushState(null, "", `#${chat}`);
    }
    this.reading.follow();
  }

  /** Sends a new version of a message, with its files, and stops the running answer. */
  #sendInstead({ message, files }, text) {
    const { shown, person } = this.store;
    if (this.store.turnsOf(shown).some((turn) => turn.running)) this.#stop();
    this.outbox.add({ chat: shown, agent: this.#agentOf(shown) ?? null, text, files, person, instead: message });
    this.reading.follow();
  }

  #agentOf(chat) {
    return this.store.chats.get(chat)?.agent ?? this.outbox.of(chat)[0]?.agent;
  }

  #stop() {
    const { shown, person } = this.store;
    this.outbox.add({ chat: shown, agent: this.#agentOf(shown) ?? null, text: STOP, files: [], person });
  }

  async #press({ chat, agent, message }, token, filled = {}) {
    const button = `${message} ${token} ${JSON.stringify(filled)}`;
    const id = this.#presses.get(button) ?? newId("p");
    this.#presses.set(button, id);
    try {
      await this.#post({ id, chat, agent, press: { token, message, ...filled } });
      this.#presses.delete(button);
    } catch (refusal) {
      this.page.say(sentence(refusal));
    }
  }

  async #rate({ chat, id }, rating) {
    try {
      this.store.takeRatings(await this.api.rate(chat, id, rating));
    } catch (refusal) {
      this.page.say(sentence(refusal));
    }
  }

  #discard(id) {
    const files = this.outbox.all().find((entry) => entry.id === id)?.files ?? [];
    for (const file of files) this.page.acts.discardUpload(file.id);
    this.outbox.discard(id);
    const { shown } = this.store;
    if (shown && !this.store.chats.has(shown) && !this.outbox.of(shown).length) this.#startNew();
  }

  /** Stores the key; returns the model that now answers. */
  async #takeKey(vendor, key) {
    const { model } = await this.api.takeKey(vendor, key);
    const answer = await this.api.chats().catch(() => null);
    if (answer) this.store.takeList(answer);
    return model;
  }

  // Signing in and out

  /** Ignore an expired link if already signed in. */
  async #signInByLink(code) {
    this.stream.end();
    try {
      const outcome = await this.api.signInByLink(code, (person) => this.page.confirm("replace", { person }));
      if (outcome === "replaced") return location.reload();
      if (outcome === "signed-in") this.page.signIn.close();
    } catch (refusal) {
      this.linkRefusal = refusal;
    }
    return this.#signedIn();
  }

  #signedOut() {
    this.#knowsPerson = false;
    this.stream.end();
    this.#connected("signed-out");
    this.page.signIn.ask(this.linkRefusal);
    this.linkRefusal = null;
  }

  #signedIn() {
    this.#knowsPerson = false;
    this.page.connection.state = "connecting";
    this.stream.open();
    this.outbox.wake();
    this.page.composer.focus();
  }

  async #signOut() {
    try {
      await this.api.signOut();
    } catch (refusal) {
      return this.page.say(sentence(refusal));
    }
    this.#forgetPerson();
    return this.#signedOut();
  }

  /** Clears everything of the previous person. */
  #forgetPerson() {
    this.page.attachments.forget();
    this.store.forgetEverything();
    this.#startNew();
  }
}

new App().begin();
