/*
 * The page's workings, put together: what the server tells goes into the store, what the person does goes to the
 * server by way of the outbox, and page.js shows what came of it. Start reading here.
 */

import { Api, newId } from "./api.js";
import { sentence } from "./language.js";
import { Outbox } from "./outbox.js";
import { Page } from "./page.js";
import { Store } from "./store.js";
import { Stream } from "./stream.js";
import { STOP } from "./timeline.js";

/** A conversation, and perhaps the number of one of its messages. */
const CHAT = /^#(c_[\w-]{1,80})(?:\/(\d{1,15}))?$/;
const LINK = /^#sign-in=(.*)$/;
/** Good once, and the operator's alone: whoever has a token of their own must not sign others in with it. */
const CODE = /^once-[\w-]{43}$/;

class App {
  #loadingOlder = false;
  #listing = false;
  /** The message that the address names, {id of its chat, number}, as long as it is looked for. */
  #sought = null;
  /** The ids of presses that may have arrived, by button: pressed again, it is the same press. */
  #presses = new Map();
  /** Whether the server has said who is signed in since somebody last signed in or out. */
  #knowsPerson = false;
  /** The number of the last request for a conversation: only its answer counts. */
  #asked = 0;
  /** Why the link in the address did not sign in. */
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
      turn: (number, way) => this.#turn(number, way),
      stop: () => this.#stop(),
      upload: (file, onProgress) => this.api.upload(file, onProgress),
      discardUpload: (id) => this.api.discard(id).catch(() => null), // it goes by itself in a day
      tryAgain: (id) => this.outbox.tryAgain(id),
      discard: (id) => this.#discard(id),
      press: (row, token) => this.#press(row, token),
      loadOlder: () => this.#loadOlder(),
      startNew: () => this.#startNew(),
      change: (id, change) => this.#change(id, change),
      remove: (id) => this.#remove(id),
      choices: (of) => this.api.choices(of),
      notes: {
        list: this.api.notes,
        take: this.api.takeNote,
        change: this.api.changeNote,
        remove: this.api.removeNote,
      },
      set: (command) => this.#send(command, [], this.page.composer.agent),
      startWith: (agent) => this.#startWith(agent),
      search: (words) => this.#search(words),
      page: (of) => this.#listed(of),
      takeKey: (vendor, key) => this.#takeKey(vendor, key),
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

  /** What was written before the agents were known goes to the first of them. */
  #post(message) {
    return this.api.post({ ...message, agent: message.agent ?? this.store.agents[0]?.id ?? null });
  }

  // What the server tells

  /** The list first, then the shown conversation if it is not here. Gives the position that events go on from. */
  async #refresh() {
    const answer = await this.api.chats();
    const { store } = this;
    if (store.person !== null && answer.person !== store.person) this.#forgetPerson();
    const otherDatabase = store.after !== null && answer.after < store.after;
    store.takeList(answer);
    this.#knowsPerson = true;
    this.outbox.pump();
    if (store.operator) this.#offerClaim();
    if (otherDatabase) {
      store.after = answer.after;
      this.#reload();
    } else if (store.conversations.get(store.shown)?.rows.size && !store.chats.has(store.shown)) {
      if (store.next) this.#load(store.shown, { anew: true }); // further back in the list, or deleted
      else this.#missing(store.shown); // deleted meanwhile
    }
    return store.after;
  }

  #connected(state, refusal = null) {
    this.page.connection = state;
    this.page.closedBy = refusal;
    if (state === "open") {
      this.linkRefusal = null;
      this.outbox.wake();
      this.#load(this.store.shown);
      this.page.renewChoices();
    }
    this.page.soon();
  }

  #heard(event, data, position) {
    switch (event) {
      case "hello":
        this.page.faults = { text: "", channels: [] };
        return this.store.beginAnew();
      case "fault":
        this.page.faults = data;
        return this.page.soon();
      case "message":
        this.outbox.delivered(data.message);
        if (data.author === "agent" && !data.turn?.model && data.chat === this.store.shown) this.page.renewChoices();
        this.page.tell(data);
        this.store.takeMessage(data, position);
        return data.instead && this.#turned(data.chat, data.id);
      case "chat":
        if (data.deleted) return this.#gone(data.id);
        this.store.takeChat(data);
        return this.#turned(data.id, data.branch);
      case "turn":
        return this.store.takeTurn(data);
      case "draft":
        return this.store.takeDraft(data);
      default:
        return this.#reset();
    }
  }

  /** Tells the operator how the bot gets its owner. */
  async #offerClaim() {
    const answer = await this.api.setup().catch(() => null);
    if (answer) this.store.takeClaim(answer);
  }

  async #reset() {
    this.#reload();
    const answer = await this.api.chats().catch(() => null);
    if (answer) this.store.takeList(answer);
  }

  #reload() {
    this.store.reset();
    return this.#load(this.store.shown, { anew: true });
  }

  /** Another branch of a conversation is shown: what is here of it is another one. */
  #turned(id, branch) {
    const known = this.store.conversations.get(id);
    if (!known?.loaded || known.branch === branch || (!known.branch && !branch)) return null;
    if (id === this.store.shown) return this.#load(id, { anew: true });
    return this.store.conversations.delete(id);
  }

  async #load(id, { anew = false } = {}) {
    const known = this.store.conversations.get(id);
    if (id === null || (!anew && (known?.loaded || known?.loading))) return;
    this.store.awaitConversation(id);
    const asked = ++this.#asked;
    try {
      const answer = await this.api.conversation(id);
      if (!anew || asked === this.#asked) this.#take(answer, { anew });
    } catch (refusal) {
      this.store.missConversation(id);
      if (refusal.status === 404) this.#missing(id);
    }
  }

  #take(answer, how) {
    for (const row of answer.messages) this.outbox.delivered(row.message);
    this.store.takeConversation(answer, how);
    this.#seek();
  }

  /** Shows the message that the address names, after asking for what lies between; one that is gone is let be. */
  async #seek() {
    const { id, number, turned } = this.#sought ?? {};
    const conversation = this.store.conversations.get(id);
    if (id !== this.store.shown || !conversation?.loaded || this.#loadingOlder) return;
    const rows = [...conversation.rows.values()];
    if (rows.some((row) => row.id === number)) this.page.reveal(number);
    else if (conversation.more && Math.min(...rows.map((row) => row.id)) > number) return void this.#loadOlder(number);
    this.#sought = null;
    if (conversation.branch && !turned && !rows.some((row) => row.id === number)) this.#turnToSought(id, number);
  }

  /** What was found may be on another branch. */
  async #turnToSought(id, number) {
    const chat = await this.api.change(id, { branch: number }).catch(() => null);
    if (!chat || id !== this.store.shown) return;
    this.#sought = { id, number, turned: true };
    this.store.takeChat(chat);
    this.#turned(id, chat.branch);
  }

  /** It was not there: it has yet to be sent, it began while we asked, or it is gone. */
  #missing(id) {
    const known = this.store.conversations.get(id);
    const began = known && !known.loaded && known.rows.size > 0;
    if (began || this.outbox.of(id).length) this.store.begin(id);
    else this.#gone(id);
  }

  #gone(id) {
    this.store.forget(id);
    this.outbox.dropChat(id);
    if (id === this.store.shown) this.#startNew();
  }

  async #loadOlder(until = null) {
    const id = this.store.shown;
    const conversation = this.store.conversations.get(id);
    if (this.#loadingOlder || !conversation?.loaded || !conversation.more) return;
    this.#loadingOlder = true;
    try {
      const oldest = Math.min(...[...conversation.rows.values()].map((row) => row.id));
      const answer = await this.api.conversation(id, oldest, until);
      this.#loadingOlder = false;
      this.#take(answer, { older: true });
    } catch {
      // The next scroll asks again.
    } finally {
      this.#loadingOlder = false;
    }
  }

  // What the person does

  /** The address names a conversation, or holds what signs in once: then true. */
  #arrive() {
    const given = LINK.exec(location.hash)?.[1] ?? null;
    if (given !== null) history.replaceState(null, "", location.pathname + location.search);
    const signsIn = given !== null && CODE.test(given);
    if (signsIn) this.#signInByLink(given);
    this.#follow();
    return signsIn;
  }

  #follow() {
    const [, id = null, number] = CHAT.exec(location.hash) ?? [];
    this.#sought = number ? { id, number: Number(number) } : null;
    this.store.show(id);
    this.page.turnTo(id);
    if (this.store.after !== null) this.#load(id);
    this.#seek();
  }

  #startNew() {
    if (location.hash) history.pushState(null, "", location.pathname + location.search);
    this.#follow();
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
    this.#follow();
  }

  /** Sends another version of a message, with its files; the answer that is under way is not wanted any more. */
  #sendInstead({ message, files }, text) {
    const { shown, person } = this.store;
    if (this.store.turnsOf(shown).some((turn) => turn.running)) this.#stop();
    this.outbox.add({ chat: shown, agent: this.#agentOf(shown) ?? null, text, files, person, instead: message });
    this.#follow();
  }

  /** Turns to another version of a message. */
  async #turn(number, way) {
    const id = this.store.shown;
    try {
      const chat = await this.api.change(id, { branch: number });
      this.page.conversation.turnedTo(number, way);
      this.store.takeChat(chat);
      this.#turned(id, chat.branch);
    } catch (refusal) {
      this.page.say(sentence(refusal));
    }
  }

  #agentOf(chat) {
    return this.store.chats.get(chat)?.agent ?? this.outbox.of(chat)[0]?.agent;
  }

  #stop() {
    const { shown, person } = this.store;
    this.outbox.add({ chat: shown, agent: this.#agentOf(shown) ?? null, text: STOP, files: [], person });
  }

  async #press({ chat, agent, message }, token) {
    const button = `${message} ${token}`;
    const id = this.#presses.get(button) ?? newId("p");
    this.#presses.set(button, id);
    try {
      await this.#post({ id, chat, agent, press: { token, message } });
      this.#presses.delete(button);
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

  async #search(words) {
    const answer = await this.api.search(words).catch(() => ({ chats: [], more: false }));
    this.store.takeChats(answer.chats.map(({ chat }) => chat));
    return answer;
  }

  /** The page of the list behind those that are here, or of the chats that were put aside. */
  async #listed({ archived }) {
    const behind = archived ? this.store.archivedNext : this.store.next;
    if (this.#listing || (!archived && !behind)) return;
    this.#listing = true;
    try {
      this.store.takePage(await this.api.listed({ archived, behind }), { archived });
    } catch (refusal) {
      this.page.say(sentence(refusal));
    } finally {
      this.#listing = false;
    }
  }

  /** Renames a chat, pins it or puts it aside: here at once, and back if the server does not. */
  async #change(id, change) {
    const before = this.store.chats.get(id);
    if (!before) return;
    this.store.takeChat({ ...before, ...change });
    try {
      this.store.takeChat(await this.api.change(id, change));
    } catch (refusal) {
      this.store.takeChat(before);
      this.page.say(sentence(refusal));
    }
  }

  async #remove(id) {
    try {
      if (this.store.chats.has(id)) await this.api.remove(id);
    } catch (refusal) {
      if (refusal.status !== 404) return this.page.say(sentence(refusal));
    }
    return this.#gone(id);
  }

  /** Gives the model that answers from now on. */
  async #takeKey(vendor, key) {
    const { model } = await this.api.takeKey(vendor, key);
    const answer = await this.api.chats().catch(() => null);
    if (answer) this.store.takeList(answer);
    return model;
  }

  // Signing in and out

  /** A link that is no longer good is nothing to whoever is signed in already. */
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
    this.page.connection = "connecting";
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

  /** Whoever comes next sees nothing of the person before. */
  #forgetPerson() {
    this.page.attachments.forget();
    this.store.forgetEverything();
    this.#startNew();
  }
}

new App().begin();
