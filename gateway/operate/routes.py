"""`python -m gateway routes explain`: how a message would be handled, and why.

Each answer comes from the function that decides for real messages; the reasons are in `gateway.state.reasons`. The database
is only read, for choices made in chats and for approved contacts.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from agents.config import AgentConfig
from agents.turn import settings_json
from channels.message import Chat, ChatKind, MessageContext
from gateway.config.channels import Account, configured
from gateway.config.load import Loaded
from gateway.config.problems import quoted, suggestion
from gateway.config.root import Config, route
from gateway.operate.mcp import seen_tools
from gateway.program import OperatorError
from gateway.state.choices import chat_key, listen_key, switch_of
from gateway.state.reasons import (
    Because,
    access_reason,
    agent_reason,
    binding_reason,
    model_reason,
    session_reason,
    tools_reason,
)
from gateway.store.opening import connected, contact_state, settings
from gateway.store.owners import claimed
from gateway.store.sessions import CHOICE, LOCAL_CHANNEL, is_open, message_in

SOMEBODY = "somebody"
"""The id of a sender who is on no list."""


class NoSuchPlace(OperatorError):
    """No such account exists, or the chat or the sender is missing."""


def message_to(
    config: Config,
    channel: str,
    account: str,
    chat: str | None,
    kind: ChatKind | None,
    thread: str | None,
    sender: str | None,
) -> MessageContext:
    """Build a message to that chat, mentioning the bot. Raise NoSuchPlace."""
    accounts = {f"{it.kind.name}:{it.name}" for it in configured(config.channels)}
    if (name := f"{channel}:{account}") not in accounts:
        near = sorted(it for it in accounts if it.startswith(f"{channel}:"))
        hint = suggestion(name, near) if near else f" — configured here: {', '.join(sorted(accounts)) or 'none'}"
        raise NoSuchPlace(f"no configured account {quoted(name)}{hint}")
    if channel == LOCAL_CHANNEL:
        sender = sender or "local"
    if chat is None and (sender is None or kind == "group"):
        raise NoSuchPlace("say where: --chat, or --sender for a direct chat")
    if kind is None:
        kind = "direct" if channel == LOCAL_CHANNEL or chat in (None, sender) else "group"
    there = Chat(id=chat or sender or "", kind=kind, thread=thread)
    return message_in(channel, account, there, sender or (there.id if kind == "direct" else SOMEBODY))


def explained(loaded: Loaded, context: MessageContext, at: float) -> dict[str, Because]:
    """Return each answer by its key in the JSON. Raise DatabaseUnusable."""
    config = loaded.config
    account = next(
        it for it in configured(config.channels) if (it.kind.name, it.name) == (context.channel, context.account)
    )
    with ExitStack() as leaving:
        exists = config.database.path is None or Path(config.database.path).is_file()
        database = leaving.enter_context(connected(config.database)) if exists else None
        chosen = settings(database, CHOICE + chat_key(context)) if database else ""
        agents = {agent.id: agent for agent in config.agents.list}
        routed = route(config.routes, config.agents, context)
        owners = (*config.owners, *(claimed(database) if database else ()))
        is_chosen = chosen in agents and is_open(config, owners, chosen, context, chosen=chosen)
        agent = agents[chosen if is_chosen else routed]
        session = session_reason(agent, context)
        return {
            "agent": agent_reason(config, context, agent.id, chosen),
            "session": session,
            "binding": binding_reason(config, context),
            "access": _access(account, owners, context, database, at),
            "model": _model(loaded, agent, session.value, database),
            "tools": tools_reason(config, owners, agent, context, seen_tools(config, database)),
            "skills": _skills(loaded, agent),
        }


def as_json(reasons: Mapping[str, Because]) -> dict[str, Any]:
    return {name: {"value": it.value, "reason": it.reason} for name, it in reasons.items()}


def lines(reasons: Mapping[str, Because]) -> Iterator[str]:
    for name, it in reasons.items():
        value = " ".join(it.value) if isinstance(it.value, list) else it.value
        yield f"{name:<8} {value or 'none'} — {it.reason}"


def _access(
    account: Account, owners: Collection[str], context: MessageContext, database: Connection | None, at: float
) -> Because:
    listening = CHOICE + listen_key(context.channel, context.account, context.chat.id)
    switch = switch_of(settings(database, listening)) if database else None

    def pairing_state() -> str:
        place = context.channel, context.account, context.sender.id
        return contact_state(database, *place, at) if database else "new"

    return access_reason(account.config, owners, context, switch=switch, pairing_state=pairing_state)


def _model(loaded: Loaded, agent: AgentConfig, session: str, database: Connection | None) -> Because:
    chosen = settings_json.validate_json(settings(database, session) or "{}").model if database else None
    why = f"auto: {loaded.auto.because}" if agent.id in loaded.auto.agents else ""
    return model_reason(agent, chosen if chosen in loaded.config.choosable_models else None, why)


def _skills(loaded: Loaded, agent: AgentConfig) -> Because:
    hidden = ", ".join(f"{it.name} (it needs {' and '.join(it.missing)})" for it in loaded.hidden_skills[agent.id])
    reason = f"skills of agent {agent.id}{f'; hidden: {hidden}' if hidden else ''}"
    return Because([it.name for it in loaded.skills[agent.id]], reason)
