/*
 * The operator's console, put together: the address names a room, the room says what to ask for and how to draw it, and
 * this asks again while it is looked at. What is on the screen stays there while the connection is lost. Start reading here.
 */

import { Api, Refusal } from "../api.js";
import { Drawer } from "../drawer.js";
import { drawIcons, element, icon, part } from "../element.js";
import { addWords, countIn, fillWords, number, otherLanguage, sentence, word } from "../language.js";
import { SignIn } from "../signin.js";
import { Theme } from "../theme.js";
import { agents } from "./agents.js";
import { approvals } from "./approvals.js";
import { chats } from "./chats.js";
import { config } from "./config.js";
import { empty } from "./draw.js";
import { later } from "./later.js";
import { letters } from "./letters.js";
import { now } from "./now.js";
import { people } from "./people.js";
import { turns } from "./turns.js";
import { usage } from "./usage.js";
import { WORDS } from "./words.js";

addWords(WORDS);

/**
 * The rooms, in the order of the list. A room has a `name`, an `icon`, the milliseconds `every` so many it is asked for again,
 * `load(context)`, `draw(data, context)`, and where something may wait in it a `count(state)`.
 */
const ROOMS = [now, turns, chats, approvals, people, later, letters, usage, agents, config];

const TICK_MS = 5_000;
const LOST_MS = 2_000;
const SAID_MS = 6_000;
/** What stands behind a room's name names a list, and no single thing in it. */
const isFilter = (argument) => argument === "" || argument.startsWith("?");
/** Nothing came of it, but asking again may help. */
const isLost = (refusal) => refusal.status === 0 || [502, 504].includes(refusal.status);

class Console {
  #room = ROOMS[0];
  /** What stands behind the room's name in the address. */
  #argument = "";
  #data = null;
  #state = null;
  #drawn = "";
  #refusal = null;
  #asked = 0;
  #due = 0;
  #timer = 0;
  #quiet = 0;
  /** What a room remembers of its own while the page is open: filters, what is unfolded. */
  #memories = new Map(ROOMS.map((room) => [room.name, {}]));

  constructor() {
    this.api = new Api({ onSignedOut: () => this.signIn.ask() });
    this.signIn = new SignIn({ about: "consoleSignInAbout", signIn: (token) => this.api.signIn(token), done: () => this.#anew(), closed: () => {} });
    this.drawer = new Drawer();
    this.theme = new Theme(part("theme"));
    this.#listen();
  }

  #listen() {
    window.addEventListener("hashchange", () => this.#follow());
    window.addEventListener("online", () => this.#tick({ now: true }));
    document.addEventListener("visibilitychange", () => !document.hidden && this.#tick());
    part("refresh").addEventListener("click", () => this.#tick({ now: true }));
    part("skip").addEventListener("click", (event) => {
      event.preventDefault();
      part("view").focus();
    });
    part("sign-out").addEventListener("click", () => this.#signOut());
    part("language").addEventListener("click", () => {
      otherLanguage();
      this.#speak();
    });
  }

  begin() {
    this.#follow();
    this.#speak();
  }

  #speak() {
    fillWords();
    drawIcons();
    part("language").textContent = word("otherLanguage");
    part("language").setAttribute("aria-label", `${word("language")}: ${word("otherLanguage")}`);
    this.theme.show();
    this.#drawn = "";
    this.#show();
  }

  /** Goes to the room of the address. */
  #follow() {
    const [name, ...rest] = location.hash.slice(1).split("/");
    const room = ROOMS.find((it) => it.name === name) ?? ROOMS[0];
    const argument = rest.join("/");
    const filters = room === this.#room && isFilter(argument) && isFilter(this.#argument) && this.#data !== null;
    this.#room = room;
    this.#argument = argument;
    this.drawer.close({ refocus: false });
    if (filters) return this.#filtered();
    this.#anew();
    part("scroller").scrollTop = 0;
    part("view").focus({ preventScroll: true });
  }

  /** The same list, sifted otherwise: it stays until the other one is there, and so does the focus. */
  #filtered() {
    this.#show();
    part("scroller").scrollTop = 0;
    return this.#tick({ now: true });
  }

  #anew() {
    this.#data = this.#refusal = null;
    this.#drawn = "";
    this.#show();
    this.#tick({ now: true });
  }

  /** Asks for the state, and for the room's data where that is due; then again in a while. */
  async #tick({ now = false } = {}) {
    const asked = ++this.#asked;
    clearTimeout(this.#timer);
    if (document.hidden && !now) return;
    const isDue = now || this.#data === null || performance.now() >= this.#due;
    const results = await Promise.allSettled([this.api.ask("GET", "api/console/state"), isDue ? this.#room.load(this.#context()) : null]);
    if (asked !== this.#asked) return;
    this.#take(results, isDue);
    this.#timer = setTimeout(() => this.#tick(), this.#lost() ? LOST_MS : TICK_MS);
  }

  #take([state, data], isDue) {
    if (state.status === "fulfilled") this.#state = state.value;
    const failed = [data, state].find((it) => it.status === "rejected");
    this.#refusal = failed ? asRefusal(failed.reason) : null;
    if (isDue && data.status === "fulfilled") {
      this.#data = data.value;
      countIn(data.value?.currency);
      const { every } = this.#room;
      this.#due = performance.now() + (typeof every === "function" ? every(this.#data) : every);
    } else if (this.#refusal && !this.#lost()) this.#data = null;
    this.#show();
  }

  #lost() {
    return this.#refusal !== null && isLost(this.#refusal);
  }

  #context() {
    return {
      ask: this.api.ask,
      argument: this.#argument,
      state: this.#state,
      memory: this.#memories.get(this.#room.name),
      redraw: () => {
        this.#drawn = "";
        this.#show();
      },
      reload: () => this.#tick({ now: true }),
      act: (button, work, said) => this.#act(button, work, said),
      confirm: (key, values) => this.#confirm(key, values),
    };
  }

  /** Does what a button says, once, and says what came of it. */
  async #act(button, work, said) {
    if (button.getAttribute("aria-disabled") === "true") return;
    button.setAttribute("aria-disabled", "true");
    this.#say("alert", "");
    try {
      await work();
      this.#say("said", said);
    } catch (refusal) {
      this.#say("alert", sentence(asRefusal(refusal)));
    }
    button.removeAttribute("aria-disabled");
    await this.#tick({ now: true });
  }

  #say(where, text) {
    part(where).textContent = text;
    if (where !== "said") return;
    clearTimeout(this.#quiet);
    this.#quiet = setTimeout(() => this.#say("said", ""), SAID_MS);
  }

  #confirm(key, values) {
    const dialog = part("confirm");
    part("confirm-title").textContent = word(`${key}Title`, values);
    part("confirm-about").textContent = word(`${key}About`, values);
    part("confirm-yes").textContent = word(key);
    dialog.returnValue = "no";
    dialog.showModal();
    return new Promise((resolve) => {
      dialog.onclose = () => {
        if (dialog.open) return; // the event of an earlier question comes behind a quick second one
        keepFocus();
        resolve(dialog.returnValue === "yes");
      };
    });
  }

  async #signOut() {
    await this.api.signOut().catch(() => null);
    this.#state = null;
    this.#anew();
  }

  // What is seen

  #show() {
    const title = word(`room_${this.#room.name}`);
    part("title").textContent = title;
    document.title = `${title} · Clawgate`;
    part("sign-out").hidden = this.#state === null || !this.#state.signedIn;
    this.#showRooms();
    this.#showConnection();
    this.#showView();
  }

  #showRooms() {
    const counts = this.#state?.waiting ?? {};
    const shown = JSON.stringify([counts, this.#room.name, document.documentElement.lang, this.#state?.config.error]);
    if (part("rooms").dataset.shown === shown) return;
    const focused = document.activeElement?.closest("#rooms a")?.hash;
    part("rooms").dataset.shown = shown;
    part("rooms").replaceChildren(...ROOMS.map((room) => this.#entry(room, room.count?.(this.#state) ?? 0)));
    if (focused) part("rooms").querySelector(`a[href="${focused}"]`)?.focus();
  }

  #entry({ name, icon: shape }, count) {
    const current = name === this.#room.name ? "page" : null;
    const badge = count > 0 && element("span", { class: "count" }, element("span", { class: "out-of-sight" }, word("waits")), number(count));
    return element("li", {}, element("a", { class: "room", href: `#${name}`, "aria-current": current }, icon(shape), element("span", {}, word(`room_${name}`)), badge));
  }

  #showConnection() {
    const text = this.#lost() ? word(this.#data ? "lost" : "lostEarly") : "";
    if (part("connection").textContent !== text) part("connection").textContent = text;
  }

  /** Draws anew only what has changed, so that a selection, the focus and what is unfolded stay. */
  #showView() {
    const view = part("view");
    const drawn = JSON.stringify([this.#room.name, this.#argument, this.#data, this.#lost() ? null : this.#refusal?.code ?? null]);
    if (drawn === this.#drawn) return;
    const before = keep(view);
    this.#drawn = drawn;
    view.setAttribute("aria-busy", String(this.#data === null && this.#refusal === null));
    if (this.#data !== null) view.replaceChildren(...this.#room.draw(this.#data, this.#context()).filter(Boolean));
    else if (this.#refusal && !this.#lost()) view.replaceChildren(this.#refused());
    else view.replaceChildren(skeleton());
    restore(view, before);
  }

  #refused() {
    const { status, code } = this.#refusal;
    const asks = status === 401 || code === "operator-only";
    const press = () => (asks ? this.signIn.ask() : this.#tick({ now: true }));
    return empty(sentence(this.#refusal), "alert", element("button", { type: "button", class: "act", click: press }, word(asks ? "signIn" : "tryAgain")));
  }
}

/** What broke in our own code is shown as well. */
function asRefusal(error) {
  return error instanceof Refusal ? error : new Refusal(-1, "unknown", String(error));
}

const skeleton = () => element("div", { class: "skeleton", role: "status" }, element("span", { class: "out-of-sight" }, word("loading")), ...Array.from({ length: 4 }, () => element("i", {})));

/** The focused control and what is unfolded, by their keys. */
function keep(view) {
  const open = [...view.querySelectorAll("details[data-key]")].map((it) => [it.dataset.key, it.open]);
  const focused = view.contains(document.activeElement) ? document.activeElement : null;
  return { open: new Map(open), held: focused !== null, focus: focused?.dataset.key, typed: focused?.tagName === "INPUT" ? focused.value : null };
}

function restore(view, { open, held, focus, typed }) {
  for (const details of view.querySelectorAll("details[data-key]")) {
    if (open.has(details.dataset.key)) details.open = open.get(details.dataset.key);
  }
  const again = focus === undefined ? null : view.querySelector(`[data-key="${CSS.escape(focus)}"]`);
  again?.focus({ preventScroll: true });
  if (again && typed !== null) again.value = typed;
  if (held) keepFocus();
}

/** Whose control is gone goes on from the top of the room: a focus that is nowhere would begin at the page's top. */
function keepFocus() {
  if (document.activeElement === document.body) part("view").focus({ preventScroll: true });
}

new Console().begin();
