/*
 * Requests to the server. Each resolves to the JSON answer, or rejects with a `Refusal` that says whether a retry can
 * help. Nothing is retried here: only the caller knows whether that is safe.
 */

import { chosenLanguage } from "./language.js";

const PATIENCE_MS = 30_000;
/** The credentials are wrong; an existing session may still be valid. */
const NOT_ACCEPTED = ["wrong-token", "link-spent"];
/** The person whom a link signs in. */
const OPERATOR = "local";

/** The server refused, or did not answer (status 0). */
export class Refusal extends Error {
  /** `texts` has the reason of an outage in both languages, if the server gives one. */
  constructor(status, code, sentence, texts = null) {
    super(sentence);
    this.status = status;
    this.code = code;
    this.texts = texts;
  }

  /** Whether a retry may succeed. */
  get passing() {
    return this.status === 0 || this.status >= 500 || [401, 408, 429].includes(this.status);
  }
}

export class Api {
  /** Settles with the pending sign-in: until then, other requests would be refused. */
  #signingIn = null;
  /** Another person was signed in when this page was loaded. */
  #replaced = false;
  #early = document.querySelector('link[rel="preload"][href="api/chats"]') !== null;

  /** `onSignedOut` is called on every 401 except that of a sign-in. */
  constructor({ onSignedOut }) {
    this.onSignedOut = onSignedOut;
  }

  chats = () => this.#ask("GET", "api/chats", undefined, this.#firstList());
  /** The newest messages, or those before number `before`, back to number `until` where that is named. */
  conversation = (id, before, until) =>
    this.#ask("GET", `api/chats/${id}${before ? `?before=${before}` : ""}${until ? `&until=${until}` : ""}`);
  /** A page of the list, or of the archived chats. */
  listed = ({ archived, behind }) =>
    this.#ask("GET", `api/${archived ? "archived" : "chats"}${behind ? `?behind=${encodeURIComponent(behind)}` : ""}`);
  choices = ({ chat, agent }) => this.#ask("GET", `${chat ? `api/chats/${chat}` : `api/agents/${agent}`}/choices`);
  notes = (agent) => this.#ask("GET", notesOf(agent));
  takeNote = (agent, id, text) => this.#ask("POST", notesOf(agent), { id, text });
  changeNote = (agent, number, text) => this.#ask("PUT", `${notesOf(agent)}/${number}`, { text });
  removeNote = (agent, number) => this.#ask("DELETE", `${notesOf(agent)}/${number}`);
  search = (words) => this.#ask("GET", `api/search?words=${encodeURIComponent(words)}`);
  change = (id, change) => this.#ask("PATCH", `api/chats/${id}`, change);
  rate = (chat, message, rating) => this.#ask("PUT", `api/chats/${chat}/messages/${message}/rating`, { rating });
  remove = (id) => this.#ask("DELETE", `api/chats/${id}`);
  /** Deletes an unsent upload. */
  discard = (id) => this.#ask("DELETE", fileAddress(id));
  post = (message) => this.#ask("POST", "webhooks/web/default", { language: chosenLanguage(), ...message });
  setup = () => this.#ask("GET", "api/setup");
  beginScan = () => this.#ask("POST", "api/setup/feishu");
  scanState = () => this.#ask("GET", "api/setup/feishu");
  takeKey = (vendor, key) => this.#ask("POST", "api/setup/key", { vendor, key });
  signOut = () => this.#ask("DELETE", "api/session");

  signIn(token) {
    const answer = this.#send("POST", "api/session", { token });
    this.#signingIn = answer.catch(() => null);
    return answer;
  }

  /**
   * Signs in with the code of a link, after `agrees(person)` where somebody else is signed in. Gives "signed-in", "kept"
   * where they do not agree, or "replaced": then nothing that this page has yet to send goes out in another name.
   */
  signInByLink(code, agrees) {
    const outcome = this.#byLink(code, agrees);
    this.#signingIn = outcome.catch(() => null);
    return outcome;
  }

  async #byLink(code, agrees) {
    const { person } = await this.#send("GET", "api/session");
    const replaces = person !== null && person !== OPERATOR;
    if (replaces && !(await agrees(person))) return "kept";
    await this.#send("POST", "api/session", { token: code });
    this.#replaced = replaces;
    return this.#replaced ? "replaced" : "signed-in";
  }

  /** Requests of the console. */
  ask = (method, path, body) => this.#ask(method, path, body);

  /** Uses the list that the page's head preloaded, once. */
  #firstList() {
    const cache = this.#early ? "default" : "no-store";
    this.#early = false;
    return cache;
  }

  async #ask(method, path, body, cache = "no-store") {
    await this.#signingIn;
    if (this.#replaced) throw new Refusal(0, "network", "");
    return this.#send(method, path, body, cache);
  }

  async #send(method, path, body, cache = "no-store") {
    const headers = method === "GET" ? {} : { "x-clawgate": "1" };
    if (body !== undefined) headers["content-type"] = "application/json";
    let answer;
    try {
      answer = await fetch(path, {
        method,
        headers,
        body: body === undefined ? undefined : JSON.stringify(body),
        signal: AbortSignal.timeout(PATIENCE_MS),
        cache,
      });
      const text = await answer.text();
      if (answer.ok) return text ? JSON.parse(text) : {};
      throw refusal(answer.status, text);
    } catch (error) {
      throw this.#heard(error instanceof Refusal ? error : new Refusal(0, "network", String(error)));
    }
  }

  /** Why the event stream fails, which an EventSource does not expose; null if it works. */
  async refusedEvents() {
    const stop = new AbortController();
    try {
      const answer = await fetch("api/events", { signal: stop.signal, cache: "no-store" });
      return answer.ok ? null : refusal(answer.status, await answer.text());
    } catch {
      return null; // no connection: the list says so
    } finally {
      stop.abort();
    }
  }

  /** Uploads a file; `onProgress` gets a fraction of 1. Only XMLHttpRequest reports upload progress. */
  upload(file, onProgress) {
    const request = new XMLHttpRequest();
    const done = new Promise((resolve, reject) => {
      const refuse = (error) => reject(this.#heard(error));
      request.upload.onprogress = (event) => event.lengthComputable && onProgress(event.loaded / event.total);
      request.onerror = () => refuse(new Refusal(0, "network", ""));
      request.onabort = () => reject(new Refusal(0, "aborted", ""));
      request.onload = () => {
        if (request.status === 200 || request.status === 201) resolve(JSON.parse(request.responseText));
        else refuse(refusal(request.status, request.responseText));
      };
    });
    request.open("POST", `api/files?name=${encodeURIComponent(file.name)}`);
    request.setRequestHeader("x-clawgate", "1");
    request.setRequestHeader("content-type", file.type || "application/octet-stream");
    let aborted = false;
    Promise.resolve(this.#signingIn).then(() => !aborted && request.send(file));
    return {
      done,
      abort: () => {
        aborted = true;
        request.abort();
      },
    };
  }

  #heard(error) {
    if (error.status === 401 && !NOT_ACCEPTED.includes(error.code)) this.onSignedOut();
    return error;
  }
}

function refusal(status, text) {
  try {
    const { error, code, zh } = JSON.parse(text);
    return new Refusal(status, code ?? "", error ?? "", zh ? { en: error, zh } : null);
  } catch {
    return new Refusal(status, "", ""); // a proxy's page, not ours
  }
}

/** A random id; `crypto.randomUUID` is missing on plain http. */
export function newId(prefix) {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `${prefix}_${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

const notesOf = (agent) => `api/agents/${agent}/notes`;

export const fileAddress = (id) => `api/files/${encodeURIComponent(id)}`;
