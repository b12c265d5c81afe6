"""Session keys and access rules. Pure functions of config and message."""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from agents.config import SessionScope
from channels.access import AccessConfig
from channels.api.channel import ApiChannel
from channels.message import Chat, MessageContext, Sender
from channels.web.admission import OPERATOR
from gateway.config.root import Config, holding

CONTROL = "aside:"
"""The prefix of control sessions, which hold commands and notes and never wait for a turn."""
_SAY = "say:"
SAYING = CONTROL + _SAY
"""The prefix of saying sessions, for messages that programs, schedules and the gateway itself send, which no user
waits for."""
CHOICE = "choice:"
"""The prefix of ids that store users' choices; no conversation has it."""
LOCAL_CHANNEL = "web"
LOCAL_PERSON = f"{LOCAL_CHANNEL}:{OPERATOR}"


def message_in(channel: str, account: str, chat: Chat, sender: str) -> MessageContext:
    """Build a message without a real sender or text that mentions the bot, to check how one would be routed."""
    return MessageContext(
        channel=channel,
        account=account,
        chat=chat,
        message_id="",
        sender=Sender(id=sender),
        text="",
        sent_at=datetime.fromtimestamp(0, UTC),
        mentioned=True,
    )


def person_of(message: MessageContext) -> str:
    """Return the sender as the config names users: `channel:id`, at any account."""
    return f"{message.channel}:{message.sender.id}"


def sender_of(message: MessageContext) -> str:
    """Return the sender as the database names users: `channel:account:id`."""
    return f"{message.channel}:{message.account}:{message.sender.id}"


def sender_behind(context: MessageContext) -> str | None:
    """Return the sender as the database names users; None for the operator's own turns, which have no sender."""
    return sender_of(context) if context.sender.id else None


def chat_of(message: MessageContext) -> str:
    """Return the chat with all its topics: `channel:account:id`."""
    return f"{message.channel}:{message.account}:{message.chat.id}"


def is_of_person(name: str, channel: str, person: str) -> bool:
    """Return whether `channel:id` or `channel:account:id` names that user."""
    return name == f"{channel}:{person}" or (name.startswith(f"{channel}:") and name.endswith(f":{person}"))


def session_key(agent: str, context: MessageContext, scope: SessionScope) -> str:
    """Return the key of the conversation: `agent:coder:feishu:default:oc_1`, with `:thread:…` for a topic and
    `:sender:…` if each member of a group has a separate session. Different conversations never share a key."""
    chat = context.chat
    thread = () if chat.thread is None else ("thread", chat.thread)
    sender = ("sender", context.sender.id) if scope == "sender" and chat.kind == "group" else ()
    return chat_session(agent, context.channel, context.account, chat.id, *thread, *sender)


def chat_session(agent: str, *place: str) -> str:
    """Return a session key from channel, account and chat, followed by pairs."""
    parts = ["agent", agent, *place]
    return ":".join(part.replace("%", "%25").replace(":", "%3A") for part in parts)


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionParts:
    """The parts of a conversation's key. `sender` is set if it belongs to one member of a group; `task` and `by` for
    a task: its id, and the agent that asked."""

    agent: str
    channel: str
    account: str
    chat: str
    thread: str | None = None
    sender: str | None = None
    task: str | None = None
    by: str | None = None

    @property
    def place(self) -> str:
        """The chat with all its topics, in the form of `chat_of`."""
        return f"{self.channel}:{self.account}:{self.chat}"


def session_parts(session: str) -> SessionParts:
    """Parse a conversation's key. Raises ValueError for any other text."""
    parts = [part.replace("%3A", ":").replace("%25", "%") for part in session.split(":")]
    _, agent, channel, account, chat, *more = parts
    return SessionParts(
        agent=agent, channel=channel, account=account, chat=chat, **dict(zip(more[::2], more[1::2], strict=True))
    )


def chat_named(session: str) -> str:
    """Return the chat, with all its topics, that a session sends to."""
    with suppress(ValueError):
        return session_parts(conversation(session)).place
    return conversation(session)


def task_session(agent: str, parent: str, task: str) -> str:
    """Return the key of a task's own conversation."""
    _, by, place = parent.split(":", 2)
    return f"agent:{agent}:{place}:task:{task}:by:{by}"


def task_of(session: str) -> str | None:
    """Return the id of the task that this conversation belongs to, or None."""
    return session_parts(session).task if ":task:" in session and not is_control(session) else None


def parent_of(session: str) -> str:
    """Return the conversation that started a task; any other conversation is its own parent."""
    if task_of(session) is None:
        return session
    place, _, by = session.rpartition(":by:")
    return f"agent:{by}:{place.rpartition(':task:')[0].split(':', 2)[2]}"


def agent_of(session: str) -> str:
    return conversation(session).split(":", 2)[1]


def is_owner(owners: Collection[str], context: MessageContext) -> bool:
    """Return whether an owner wrote it, which a bot never is. Without owners that is the operator, in the web
    chat. The operator's own turns have an owner's rights unless they contain untrusted text."""
    if context.origin and context.origin.by_operator:
        return not context.origin.external
    if context.sender.is_bot:
        return False
    return person_of(context) in owners if owners else person_of(context) == LOCAL_PERSON


def is_open(config: Config, owners: Collection[str], agent: str, context: MessageContext, *, chosen: str = "") -> bool:
    """Return whether the sender may talk to the agent. Owners may talk to all agents; other users to none that
    bindings reserve for others. `chosen` is the agent that `/agent` set for the chat: in a group only owners may set
    it, and it applies to everyone."""
    bound = [it for it in config.routes if it.agent == agent]
    is_free = not bound or agent == config.agents.list[0].id or bool(holding(bound, context))
    is_by_owner = chosen == agent and context.chat.kind == "group" and config.commands.get("agent", "owner") == "owner"
    return is_free or is_by_owner or is_owner(owners, context)


def is_with_owner(owners: Collection[str], context: MessageContext) -> bool:
    """Return whether it is a direct chat with an owner. The operator's own turn is not one, whatever its chat."""
    is_by_operator = context.origin is not None and context.origin.by_operator
    return not is_by_operator and is_owner(owners, context) and context.chat.kind == "direct"


def is_among_others(context: MessageContext) -> bool:
    """Return whether its conversation may hold text of other users: in a group, and where the operator's own turn
    runs."""
    return context.chat.kind == "group" or not context.sender.id


def reader_of(context: MessageContext) -> str:
    """Return the id of the user who reads a direct chat: its sender, or the recipient of the operator's own turn."""
    return context.sender.id or context.chat.id


def sees_private(
    owners: Collection[str], context: MessageContext, access: AccessConfig | None, *, is_paired: bool
) -> bool:
    """Return whether a turn may see USER.md and the memory files. It may in a direct chat whose reader is an owner,
    is listed in `allowFrom`, or was approved by pairing: `dmPolicy: open` and `*` only admit users to the chat. All
    users of the web chat have a token from the operator. An API client must be an owner. A turn that external
    content has triggered sees nothing private."""
    origin = context.origin
    if context.chat.kind != "direct" or (origin is not None and origin.is_foreign):
        return False
    if context.channel == ApiChannel.name:
        return is_owner(owners, context)
    reader = reader_of(context)
    is_known = context.channel == LOCAL_CHANNEL or f"{context.channel}:{reader}" in owners
    return is_known or is_paired or (access is not None and reader in access.allow_from)


def is_operator(config: Config, context: MessageContext) -> bool:
    """Return whether the reader of the answer is the operator: in the web chat of a server that only this machine
    reaches."""
    return person_of(context) == LOCAL_PERSON and config.server.is_open_here


def control_session(session: str) -> str:
    """Return the session next to a conversation for commands and notes, which never wait for a turn."""
    return CONTROL + session


def saying_session(session: str) -> str:
    """Return the session next to a conversation for unrequested messages: those of programs, reminders and notices."""
    return SAYING + conversation(session)


def is_control(session: str) -> bool:
    """Return whether the session is next to a conversation."""
    return session.startswith(CONTROL)


def is_saying(session: str) -> bool:
    return session.startswith(SAYING)


def all_beside(session: str) -> tuple[str, str]:
    """Return the control and saying sessions of a conversation."""
    return control_session(session), saying_session(session)


def conversation(session: str) -> str:
    """Return the conversation that a session belongs to."""
    return session.removeprefix(CONTROL).removeprefix(_SAY) if is_control(session) else session
