"""Which agent answers a message, and which conversation it belongs to. Pure: config and message in, names out."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from agents.config import SessionScope
from channels.message import MessageContext
from channels.web.admission import OPERATOR
from gateway.config.root import AgentsConfig, BindingConfig, Config, MatchConfig
from gateway.store.records import CONTROL

LOCAL_CHANNEL = "web"
LOCAL_PERSON = f"{LOCAL_CHANNEL}:{OPERATOR}"
_STRONGEST_FIRST = ("sender", "thread", "chat", "chat_type", "account", "channel")


def route(bindings: Sequence[BindingConfig], agents: AgentsConfig, context: MessageContext) -> str:
    """The id of the agent that answers: the one of the most specific binding that holds, else the first agent.

    A key outweighs all weaker ones together, so adding a key to a binding that holds never makes it lose. Of equally
    specific bindings the first in the file wins.
    """
    found = holding(bindings, context)
    return max(found, key=lambda binding: specificity(binding.match)).agent if found else agents.list[0].id


def holding(bindings: Sequence[BindingConfig], context: MessageContext) -> Sequence[BindingConfig]:
    """The bindings that a message fulfils, in their order."""
    facts = {
        "sender": context.sender.id,
        "thread": context.chat.thread,
        "chat": context.chat.id,
        "chat_type": context.chat.kind,
        "account": context.account,
        "channel": context.channel,
    }
    return [
        binding
        for binding in bindings
        if all(wanted in (None, facts[key]) for key in _STRONGEST_FIRST for wanted in [getattr(binding.match, key)])
    ]


def specificity(match: MatchConfig) -> int:
    """A bit for each key that is given, the strongest in front."""
    return sum(1 << place for place, key in enumerate(reversed(_STRONGEST_FIRST)) if getattr(match, key) is not None)


def session_key(agent: str, context: MessageContext, scope: SessionScope) -> str:
    """The name of the conversation: `agent:coder:feishu:default:oc_1`, `:thread:…` for a topic inside the chat, and
    `:sender:…` where each person in a group has his own.

    Different conversations never share a key, whatever their ids hold.
    """
    chat = context.chat
    thread = () if chat.thread is None else ("thread", chat.thread)
    sender = ("sender", context.sender.id) if scope == "sender" and chat.kind == "group" else ()
    return chat_session(agent, context.channel, context.account, chat.id, *thread, *sender)


def chat_session(agent: str, *place: str) -> str:
    """The same by channel, account and chat, and what follows in pairs."""
    parts = ["agent", agent, *place]
    return ":".join(part.replace("%", "%25").replace(":", "%3A") for part in parts)


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """What the key of a conversation says: `sender` where it is one person's in a group."""

    agent: str
    channel: str
    account: str
    chat: str
    thread: str | None = None
    sender: str | None = None


def place_of(session: str) -> Place:
    """Raises ValueError where that is no conversation's key."""
    parts = [part.replace("%3A", ":").replace("%25", "%") for part in session.split(":")]
    _, agent, channel, account, chat, *more = parts
    return Place(
        agent=agent, channel=channel, account=account, chat=chat, **dict(zip(more[::2], more[1::2], strict=True))
    )


def agent_of(session: str) -> str:
    """The agent of a conversation."""
    return conversation(session).split(":", 2)[1]


def is_owner(owners: Collection[str], context: MessageContext) -> bool:
    """Whether one of them wrote it. Without any, whoever sits at this machine is the owner, in the web chat; or who has
    the admin token there."""
    person = f"{context.channel}:{context.sender.id}"
    return person in owners if owners else person == LOCAL_PERSON


def is_with_owner(owners: Collection[str], context: MessageContext) -> bool:
    """Whether it is a direct chat with one of them."""
    return is_owner(owners, context) and context.chat.kind == "direct"


def is_operator(config: Config, context: MessageContext) -> bool:
    """Whether whoever reads the answer is who runs this: in the web chat of a server that only this machine reaches."""
    return f"{context.channel}:{context.sender.id}" == LOCAL_PERSON and config.server.is_open_here


def control_session(session: str) -> str:
    """The session beside a conversation: commands and notes, which never wait behind a turn."""
    return CONTROL + session


def is_control(session: str) -> bool:
    return session.startswith(CONTROL)


def conversation(session: str) -> str:
    """The conversation that a control session belongs to."""
    return session.removeprefix(CONTROL)
