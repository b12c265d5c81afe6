"""One message to answer, with everything the runner needs to know of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from agents.messages import Message, UserMessage
from channels.message import MessageContext


@dataclass(frozen=True, kw_only=True, slots=True)
class Surface:
    """What the prompt says of the channel."""

    channel: str
    capabilities: tuple[str, ...]
    directives: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """`history` are the finished turns, oldest first; `so_far` is what is journaled of this one behind its user message.
    `interrupted`: a process died while it worked on it."""

    context: MessageContext
    session: str
    surface: Surface
    history: Sequence[Sequence[Message]]
    user: UserMessage
    so_far: Sequence[Message] = ()
    interrupted: bool = False
