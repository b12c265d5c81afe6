"""`python -m gateway routes explain`: how a message would be handled, and why.

Each answer comes from the function that decides it for a real one; the reasons are written here. The database is only
read, for choices made in the chat and people who were let in.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from agents.config import AgentConfig
from agents.turn import settings_json
from channels.access import NOT_PAIRED, AccessConfig, refusal
from channels.message import Chat, ChatKind, MessageContext
from gateway.config.bindings import holding, route, specificity
from gateway.config.channels import Account, configured
from gateway.config.load import Loaded
from gateway.config.problems import quoted, suggestion
from gateway.config.root import BindingConfig, Config
from gateway.fault import OperatorError
from gateway.records.sessions import CHOICE, LOCAL_CHANNEL, is_owner, message_in, session_key
from gateway.state.choices import chat_key, listen_key, switch_of
from gateway.state.layers import ToolLayers
from gateway.store.inspect import contact_state, settings
from gateway.store.opening import connected
from gateway.store.owners import claimed
from tools.catalog import offered
from tools.policy import permitted

SOMEBODY = "somebody"
"""The id of a sender who is on no list."""
_REFUSED = {
    "dm-disabled": "dmPolicy is disabled",
    "dm-not-allowed": "dmPolicy is allowlist, and neither allowFrom nor owners has the sender",
    "group-disabled": "groupPolicy is disabled",
    "group-not-allowed": "groupPolicy is allowlist, and groupAllowFrom does not have the chat (or an owner sent /unlisten)",
    "sender-not-allowed": "neither groupSenders, the chat's senders nor owners has the sender",
}
_STANDINGS = {
    "paired": "the sender was let in (pairing)",
    "waiting": "the sender waits with a code: pairing list",
    "silent": "the sender waits with a code and was reminded, or was turned away: pairing list",
    "new": "dmPolicy is pairing: the sender would get a code",
    "crowded": "dmPolicy is pairing, and three wait already: the sender would get no answer",
}


class NoSuchPlace(OperatorError):
    """There is no such account, or the chat or the sender is missing."""


@dataclass(frozen=True, slots=True)
class Because:
    value: Any
    reason: str


def message_to(
    config: Config,
    channel: str,
    account: str,
    chat: str | None,
    kind: ChatKind | None,
    thread: str | None,
    sender: str | None,
) -> MessageContext:
    """A message that would arrive there, mentioning the bot. Raises NoSuchPlace."""
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
    """Returns each answer by its key in the JSON. Raises DatabaseUnusable."""
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
        agent = agents[chosen if chosen in agents else routed]
        session = _session(agent, context)
        owners = (*config.owners, *(claimed(database) if database else ()))
        return {
            "agent": _agent(config, context, agent.id, chosen),
            "session": session,
            "binding": _binding(config, context),
            "access": _access(account, owners, context, database, at),
            "model": _model(loaded, agent, session.value, database),
            "tools": _tools(config, owners, agent, context),
            "skills": _skills(loaded, agent),
        }


def as_json(found: Mapping[str, Because]) -> dict[str, Any]:
    return {name: {"value": it.value, "reason": it.reason} for name, it in found.items()}


def lines(found: Mapping[str, Because]) -> Iterator[str]:
    for name, it in found.items():
        value = " ".join(it.value) if isinstance(it.value, list) else it.value
        yield f"{name:<8} {value or 'none'} — {it.reason}"


def _agent(config: Config, context: MessageContext, agent: str, chosen: str) -> Because:
    if chosen == agent:
        return Because(agent, "it was chosen for this chat with /agent")
    gone = f"; {chosen} was chosen with /agent, but no longer exists" if chosen else ""
    if context.channel == LOCAL_CHANNEL:
        gone += "; a page of the web chat may name another one"
    if holding(config.routes, context):
        return Because(agent, f"the binding says so{gone}")
    return Because(agent, f"it is the first of agents.list, and no binding holds{gone}")


def _binding(config: Config, context: MessageContext) -> Because:
    found = holding(config.routes, context)
    if not found:
        return Because(None, f"none of {len(config.routes)} holds" if config.routes else "there are no bindings")
    best = max(found, key=lambda it: specificity(it.match))
    others = f", the most specific of {len(found)} that hold" if len(found) > 1 else ""
    keys = ", ".join(
        f"{name}: {value}" for name, value in best.match.model_dump(by_alias=True, exclude_none=True).items()
    )
    return Because(_name_of(config, best), f"it matches {keys or 'everything'}{others}")


def _name_of(config: Config, binding: BindingConfig) -> str:
    index = next((index for index, it in enumerate(config.bindings) if it is binding), None)
    if index is not None:
        return f"bindings[{index}]"
    return f"channels.{binding.match.channel}: chats.{binding.match.chat}.agent of {binding.match.account}"


def _session(agent: AgentConfig, context: MessageContext) -> Because:
    scope, direct = agent.session.scope, context.chat.kind == "direct"
    whose = "a direct chat is one" if direct else f"session.scope is {scope}"
    topic = ", and a topic has its own" if context.chat.thread else ""
    return Because(session_key(agent.id, context, scope), f"{whose}{topic}")


def _access(
    account: Account, owners: Collection[str], context: MessageContext, database: Connection | None, at: float
) -> Because:
    access, owner = account.config, is_owner(owners, context)
    if not isinstance(access, AccessConfig):
        return Because("allowed", "everybody who is signed in to the web chat may write")
    listening = CHOICE + listen_key(context.channel, context.account, context.chat.id)
    switch = switch_of(settings(database, listening)) if database else None
    refused = refusal(access, context, is_owner=owner, switch=switch)
    if refused == NOT_PAIRED:
        place = context.channel, context.account, context.sender.id
        known = contact_state(database, *place, at) if database else "new"
        return Because("allowed" if known == "paired" else refused, _STANDINGS[known])
    if refused is not None:
        return Because(refused, _REFUSED.get(refused, refused))
    if refusal(access, replace(context, mentioned=False), is_owner=owner, switch=switch) == "not-mentioned":
        return Because("allowed", "if the message mentions the bot (requireMention); otherwise it is not answered")
    if switch and context.chat.kind == "group":
        return Because("allowed", f"an owner switched the group on with /listen{' for owners' * (switch == 'owners')}")
    if owner:
        return Because("allowed", "the sender is one of owners")
    policy = access.dm_policy if context.chat.kind == "direct" else access.group_policy
    key = "dmPolicy" if context.chat.kind == "direct" else "groupPolicy"
    return Because("allowed", f"{key} is {policy}{', and the list has it' if policy != 'open' else ''}")


def _model(loaded: Loaded, agent: AgentConfig, session: str, database: Connection | None) -> Because:
    chosen = settings_json.validate_json(settings(database, session) or "{}").model if database else None
    if chosen in loaded.config.choosable_models:
        return Because(chosen, "it was chosen for this session with /model; it has no fallbacks")
    first, *others = agent.model
    why = f"auto: {loaded.auto.because}" if agent.id in loaded.auto.agents else f"model of agent {agent.id}"
    fallbacks = f"; if it fails, {', then '.join(others)}" if others else ""
    return Because(first, why + fallbacks)


def _tools(config: Config, owners: Collection[str], agent: AgentConfig, context: MessageContext) -> Because:
    has = offered(config.tools, agent.tools)
    layers = ToolLayers(config, owners).written(context)
    left = permitted(tuple(layers), has)
    lost = {key: [it for it in has if it not in permitted((lists,), has)] for lists, key in layers.items()}
    taken = "; ".join(f"{key} takes {', '.join(names)}" for key, names in lost.items() if names)
    return Because(list(left), f"those of agent {agent.id}{f', of which {taken}' if taken else ''}")


def _skills(loaded: Loaded, agent: AgentConfig) -> Because:
    hidden = ", ".join(f"{it.name} (it needs {' and '.join(it.missing)})" for it in loaded.hidden_skills[agent.id])
    reason = f"skills of agent {agent.id}{f'; hidden: {hidden}' if hidden else ''}"
    return Because([it.name for it in loaded.skills[agent.id]], reason)
