/*
 * Who answers in the shown conversation, with which model, and how much that thinks. Each is a button where the person
 * may choose another, and text where not. What is chosen is sent as the command that sets it, so the server decides and
 * the conversation says what holds.
 */

import { element, icon, part } from "./element.js";
import { word } from "./language.js";
import { openMenu } from "./menu.js";

const DEFAULT = "default";

export class Choices {
  #place = part("choices");
  /** Of what the offer is: a conversation, or the agent of a new one. */
  #of = null;
  #offer = null;
  #agents = [];
  #drawn = "";

  /** What the server offers; null as long as that is not known. */
  get offer() {
    return this.#offer;
  }

  /** `ask({chat, agent})` gives the server's offer; `set(command)` sends one; `begin(agent)` opens a new conversation;
   * `renewed()` hears of another offer. */
  constructor({ ask, set, begin, renewed }) {
    Object.assign(this, { ask, set, begin, renewed });
  }

  /** `chat` is null in a new conversation with `agent`; `agents` are those that are open to the person. Of a conversation
   * that is on its way (not `known`) nothing can be asked yet. */
  show({ chat, agent, agents, known }) {
    const of = JSON.stringify([chat, chat === null ? agent : null]);
    this.#agents = agents;
    if (of !== this.#of && known) {
      this.#of = of;
      if (chat === null) this.#offer = null;
      this.renew({ chat, agent });
    }
    this.#draw(chat, agent);
  }

  /** Asks again: a command has changed something, or the connection is back. */
  async renew({ chat, agent }) {
    const of = this.#of;
    if (chat === null && !agent) return;
    const offer = await this.ask({ chat, agent }).catch(() => null);
    if (of !== this.#of || !offer) return;
    this.#offer = offer;
    this.#draw(chat, agent);
    this.renewed();
  }

  /** In another language, or for another person. */
  clear() {
    this.#of = null;
    this.#drawn = "";
  }

  #draw(chat, agent) {
    const who = this.#offer?.agent || agent;
    const drawn = JSON.stringify([chat === null, who, this.#agents.map(({ id, name }) => [id, name]), this.#offer]);
    if (drawn === this.#drawn) return;
    this.#drawn = drawn;
    const parts = [chat === null ? null : this.#agentPart(who), this.#offer?.model ? this.#modelPart() : null, this.#thinkingPart()];
    this.#place.replaceChildren(...parts.filter((it) => it !== null));
  }

  #agentPart(id) {
    const name = this.#agents.find((it) => it.id === id)?.name ?? id ?? "";
    const items = this.#agents.map((it) => ({ text: word("newChatWith", { name: it.name }), act: () => this.begin(it.id) }));
    return choice("agent-name", word("agent"), name, this.#agents.length > 1 ? items : []);
  }

  #modelPart() {
    const { model, models } = this.#offer;
    return choice("model-name", word("model"), shortOf(model, models), models.length > 1 ? this.models : []);
  }

  #thinkingPart() {
    const { thinking } = this.#offer ?? {};
    const items = this.levels;
    return items.length ? choice("thinking-level", "", thinking ? levelName(thinking) : word("thinkingChoice"), items) : null;
  }

  /** The models to choose from, as entries of a menu. */
  get models() {
    const { model, models, own } = this.#offer ?? { models: [] };
    return models.map((name) => ({
      text: name === own ? `${name} · ${word("ownModel")}` : name,
      checked: name === model,
      act: () => name === model || this.set(`/model ${name === own ? DEFAULT : name}`),
    }));
  }

  get levels() {
    const { thinking, levels } = this.#offer ?? { levels: [] };
    return (levels.length ? [null, ...levels] : []).map((level) => ({
      text: levelName(level),
      checked: level === thinking,
      act: () => level === thinking || this.set(`/think ${level ?? DEFAULT}`),
    }));
  }

  /** Whether the model's reasoning is shown, and what changes that; null where that is not open to the person. */
  get reasoning() {
    const on = this.#offer?.reasoning ?? null;
    return on === null ? null : { on, turn: (wanted) => this.set(`/reasoning ${wanted ? "on" : "off"}`) };
  }
}

/** The name without its provider, unless two models would then have the same. */
function shortOf(model, models) {
  const bare = (name) => name.slice(name.indexOf("/") + 1);
  return models.filter((name) => bare(name) === bare(model)).length > 1 ? model : bare(model);
}

const levelName = (level) => word(`think_${level ?? DEFAULT}`);

/** A button that opens the `items`; text if there are none. */
function choice(id, label, value, items) {
  const whole = label ? `${label}: ${value}` : value;
  const named = { id, class: "choice", dir: "auto", title: whole };
  const shown = element("span", {}, value);
  if (!items.length) return element("span", named, shown);
  const open = () => openMenu(button, items);
  const attributes = { type: "button", "aria-haspopup": "menu", "aria-label": whole, click: open };
  const button = element("button", { ...named, ...attributes }, shown, icon("open"));
  return button;
}
