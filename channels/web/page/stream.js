/*
 * The event stream. It is closed once the tab has been hidden for a minute, and reconnects after any failure. Before
 * each connection the list is requested: it tells whether we are signed in, which an EventSource cannot, and what
 * changed in the conversations meanwhile.
 */

const HIDDEN_MS = 60_000;
const SILENT_MS = 50_000;
const PAUSES_MS = [300, 1000, 2000, 4000, 8000];
const EVENTS = ["hello", "alive", "message", "chat", "turn", "draft", "rated", "fault", "owners", "reset"];

export class Stream {
  #source = null;
  #attempt = 0;
  #timer = null;
  #hiddenTimer = null;
  #failures = 0;
  #wanted = false;
  #alive = false;

  /**
   * `refresh` asks for the list and gives the position to go on from; `refused` asks why there are no events;
   * `heard(event, data, position)` gets what comes; `state` hears "open", "lost", "asleep", "signed-out", or "closed"
   * with the refusal that says why.
   */
  constructor({ refresh, refused, heard, state }) {
    Object.assign(this, { refresh, refused, heard, state });
    document.addEventListener("visibilitychange", () => (document.hidden ? this.#hide() : this.#wakeUp()));
    window.addEventListener("online", () => this.#wanted && this.open());
    window.addEventListener("pageshow", (event) => event.persisted && this.open());
    window.addEventListener("pagehide", () => this.#close());
    if (document.hidden) this.#hide();
  }

  async open() {
    this.#close();
    this.#wanted = true;
    const attempt = ++this.#attempt;
    try {
      const after = await this.refresh();
      if (attempt === this.#attempt) this.#connect(after);
    } catch (refusal) {
      if (attempt === this.#attempt) this.#failed(refusal);
    }
  }

  #close() {
    clearTimeout(this.#timer);
    this.#attempt += 1;
    this.#source?.close();
    this.#source = null;
  }

  #connect(after) {
    const source = new EventSource(`api/events?after=${after}`);
    this.#source = source;
    this.#alive = false;
    this.#watch();
    for (const name of EVENTS) source.addEventListener(name, (event) => this.#take(name, event));
    // The browser would try again alone, but only after some errors, and without asking for the list.
    source.onerror = () => source === this.#source && this.#broken(source.readyState === EventSource.CLOSED);
  }

  /** `refused`: the server answered, but with no events. */
  async #broken(refused) {
    const attempt = this.#attempt;
    const refusal = refused ? await this.refused() : null;
    if (attempt === this.#attempt) this.#failed(refusal);
  }

  #take(name, event) {
    if (name === "alive") this.#alive = true;
    if (name === "hello") {
      this.#failures = 0;
      this.state("open");
    }
    this.#watch(name);
    if (name !== "alive") this.heard(name, JSON.parse(event.data), Number(event.lastEventId) || 0);
  }

  /** Timeout of a silent connection, which may be dead without an error: before its hello, and between keep-alives. */
  #watch(name = "") {
    clearTimeout(this.#timer);
    if (name === "" || this.#alive) this.#timer = setTimeout(() => this.#failed(null), SILENT_MS);
  }

  #failed(refusal) {
    this.#close();
    if (refusal?.status === 401) {
      this.#wanted = false;
      this.state("signed-out");
      return;
    }
    const pause = PAUSES_MS[Math.min(this.#failures, PAUSES_MS.length - 1)];
    this.#failures += 1;
    if (refusal?.status === 403 || refusal?.code === "too-many-pages") this.state("closed", refusal);
    else if (this.#failures > 1) this.state("lost");
    this.#timer = setTimeout(() => this.open(), pause * (0.75 + Math.random() / 2));
  }

  #hide() {
    this.#hiddenTimer = setTimeout(() => {
      this.#close();
      this.state("asleep");
    }, HIDDEN_MS);
  }

  #wakeUp() {
    clearTimeout(this.#hiddenTimer);
    if (this.#wanted && this.#source === null) this.open();
  }

  /** Stops all requests until `open`, after a sign-out. */
  end() {
    this.#wanted = false;
    this.#close();
  }
}
