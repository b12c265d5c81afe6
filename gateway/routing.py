"""Which agent answers a message, and which conversation it belongs to. Pure: config and message in, names out."""

from collections.abc import Collection, Sequence

from channels.message import MessageContext
from gateway.config.root import AgentsConfig, BindingConfig, MatchConfig
from gateway.store.store import CONTROL

_STRONGEST_FIRST = ("sender", "thread", "chat", "chat_type", "account", "channel")


def route(bindings: Sequence[BindingConfig], agents: AgentsConfig, context: MessageContext) -> str:
    """The id of the agent that answers: the one of the most specific binding that holds, else the first agent.

    A key outweighs all weaker ones together, so adding a key to a binding that holds never makes it lose. Of equally
    specific bindings the first in the file wins.
    """
    facts = {
        "sender": context.sender.id,
        "thread": context.chat.thread,
        "chat": context.chat.id,
        "chat_type": context.chat.kind,
        "account": context.account,
        "channel": context.channel,
    }
    holding = [
        binding
        for binding in bindings
        if all(wanted in (None, facts[key]) for key in _STRONGEST_FIRST for wanted in [getattr(binding.match, key)])
    ]
    if not holding:
        return agents.list[0].id
    return max(holding, key=lambda binding: specificity(binding.match)).agent


def specificity(match: MatchConfig) -> int:
    """A bit for each key that is given, the strongest in front."""
    return sum(1 << place for place, key in enumerate(reversed(_STRONGEST_FIRST)) if getattr(match, key) is not None)


def session_key(agent: str, context: MessageContext) -> str:
    """The name of the conversation: `agent:coder:feishu:default:oc_1`, and `:thread:…` for a topic inside the chat.

    Different conversations never share a key, whatever their ids hold.
    """
    thread = () if context.chat.thread is None else ("thread", context.chat.thread)
    return chat_session(agent, context.channel, context.account, context.chat.id, *thread)


def chat_session(agent: str, *place: str) -> str:
    """The same by channel, account and chat, and `thread` and its id where there is one."""
    parts = ["agent", agent, *place]
    return ":".join(part.replace("%", "%25").replace(":", "%3A") for part in parts)


def agent_of(session: str) -> str:
    """The agent of a conversation."""
    return conversation(session).split(":", 2)[1]


def is_with_owner(owners: Collection[str], context: MessageContext) -> bool:
    """Whether it is a direct chat with one of them. Without any, the web chat is: whoever sits at this machine."""
    owned = f"{context.channel}:{context.sender.id}" in owners if owners else context.channel == "web"
    return owned and context.chat.kind == "direct"


def control_session(session: str) -> str:
    """The session beside a conversation: commands and notes, which never wait behind a turn."""
    return CONTROL + session


def is_control(session: str) -> bool:
    return session.startswith(CONTROL)


def conversation(session: str) -> str:
    """The conversation that a control session belongs to."""
    return session.removeprefix(CONTROL)
