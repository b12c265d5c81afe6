/*
 * A new conversation begins with what its agent is for, what one may write to it, and what a new bot lacks.
 */

import { element, part } from "./element.js";
import { word } from "./language.js";

const EXAMPLES = ["example1", "example2", "example3"];

export class Welcome {
  #greeted = "";

  constructor({ send }) {
    this.send = send;
  }

  /** The language has changed: the words are written anew. */
  clear() {
    this.#greeted = "";
  }

  /** agentId: the agent that is chosen for a new conversation. */
  show({ agents, shown, guide, keys, claim }, agentId) {
    this.#greet(agents.find((agent) => agent.id === agentId) ?? agents[0]);
    part("welcome").hidden = shown !== null;
    part("guide-note").hidden = !guide || keys.length > 0;
    part("claim-note").hidden = claim === null;
    part("claim-note").textContent = claim && word("claimNote", { code: claim });
  }

  #greet(agent) {
    const greeted = JSON.stringify(agent ?? null);
    if (greeted === this.#greeted) return;
    this.#greeted = greeted;
    const examples = agent?.examples.length ? agent.examples : EXAMPLES.map((key) => word(key));
    part("welcome-name").textContent = agent?.description ? agent.name : "Clawgate";
    part("welcome-sentence").textContent = agent?.description || word("welcome");
    part("examples").replaceChildren(...examples.map((text) => this.#example(text)));
  }

  #example(text) {
    return element(
      "button",
      { type: "button", class: "example", click: () => this.send(text, [], part("agent").value) },
      text,
    );
  }
}
