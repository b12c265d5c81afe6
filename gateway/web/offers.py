"""The choices that a person has for one conversation of the web chat: the agent, its model, and how much that thinks.

It only tells. What is chosen is set by `/agent`, `/model` and `/think`, so that a person who may not write these commands is
offered nothing here, and everything that is set is a line of the conversation.
"""

import sys
from typing import Any

from agents.config import AgentConfig
from agents.turn import Settings, settings_json
from channels.message import Chat, MessageContext
from channels.web.archive import WebConversation
from channels.web.channel import WebChannel
from gateway.commands.catalog import COMMANDS
from gateway.commands.settings import model_in_force, thinking_levels
from gateway.state.runtime import Runtime
from gateway.store.sessions import is_open, message_in, session_key

_NEW = "c_new"
"""The id of a conversation that has yet to begin."""


class Offers:
    def __init__(self, runtime: Runtime, channel: WebChannel) -> None:
        self._runtime = runtime
        self._channel = channel

    def agents(self, person: str) -> list[AgentConfig]:
        """The agents with whom the person may begin a conversation; the first one if they may none, as it answers then."""
        setup, message = self._runtime.setup, self.message(person)
        agents = setup.config.agents.list
        return [it for it in agents if is_open(setup.config, setup.owners, it.id, message)] or [agents[0]]

    def in_new(self, agent: str, person: str) -> dict[str, Any]:
        """Tells what would be in force in a new conversation with the agent, and what may be chosen."""
        return self._choices(agent, self.message(person), Settings())

    async def in_chat(self, chat: WebConversation) -> dict[str, Any]:
        """Tells what is in force in a conversation, and what its owner may choose."""
        message = self.message(chat.owner, chat.id)
        agent = self._runtime.agent(message, chat.agent)
        return self._choices(agent, message, await self._settings(agent, message))

    def message(self, person: str, chat: str = _NEW) -> MessageContext:
        """A message as the person would write it there."""
        return message_in(self._channel.name, self._channel.account, Chat(id=chat, kind="direct"), person)

    async def _settings(self, agent: str, message: MessageContext) -> Settings:
        session = session_key(agent, message, self._runtime.setup.session_rules(agent).scope)
        work = await self._runtime.store.conversation(session, before=sys.maxsize, history_turns=1, waiting_max=1)
        return settings_json.validate_json(work.settings)

    def _choices(self, agent: str, message: MessageContext, settings: Settings) -> dict[str, Any]:
        setup = self._runtime.setup
        runner = setup.runners.get(agent)
        if runner is None:  # it is no longer configured
            nothing: dict[str, Any] = {"model": "", "own": "", "models": [], "thinking": None, "levels": []}
            return nothing | {"agent": agent, "reasoning": None, "notes": False}
        model, may = model_in_force(setup, runner, settings), COMMANDS
        return {
            "agent": agent,
            "model": model,
            "own": runner.config.model[0],
            "models": setup.config.choosable_models if may["model"].is_open(setup, message) else [model],
            "thinking": settings.thinking or runner.config.thinking,
            "levels": thinking_levels(runner, model) if may["think"].is_open(setup, message) else [],
            "reasoning": settings.reasoning if may["reasoning"].is_open(setup, message) else None,
            "notes": may["remember"].is_open(setup, message)
            and agent in {it.id for it in self.agents(message.sender.id)},
        }
