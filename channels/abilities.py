"""What a channel may be able to do besides receiving and sending: each a port of its own, asked for by `isinstance`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from channels.channel import Channel, Deliver
from channels.message import Attachment, File, MessageContext, Outbound


@dataclass(frozen=True, kw_only=True, slots=True)
class MenuEntry:
    """What a platform's menu offers: `name` without the slash."""

    name: str
    description: str


@runtime_checkable
class Listens(Channel, Protocol):
    """A channel with a connection of its own: it fetches its events, or tells its platform where to post them."""

    async def connect(self, *, public_url: str | None, commands: Sequence[MenuEntry], deliver: Deliver) -> None:
        """Runs as long as the gateway does."""


@runtime_checkable
class Guarded(Channel, Protocol):
    """A channel that authenticates the sender before the body is read."""

    async def admit(self, headers: Sequence[tuple[str, str]]) -> str:
        """The id of whoever sends. Raises Rejected, or what the store raises where it is unavailable."""


@runtime_checkable
class StoresInbound(Channel, Protocol):
    """A channel that is its own platform: it stores a message before the gateway accepts it."""

    async def keep(self, context: MessageContext, agent: str) -> MessageContext:
        """Stores a message to `agent`; idempotent; of a press only its place is judged. Returns it with the
        facts of its files.

        Raises Rejected for an invalid message, or what the store raises where it is unavailable."""


@runtime_checkable
class DownloadsFiles(Channel, Protocol):
    """A channel whose attachments can be downloaded."""

    async def fetch(self, attachment: Attachment, *, bytes_max: int) -> File:
        """Downloads the attachment; idempotent. Raises DeliveryError, `TooLarge` above `bytes_max`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolUse:
    """One call of a tool in a turn. `about` is its first argument, shortened, such as a path; `arguments` and `result` are
    the beginning of what it was given and of what it gave. One that waits for an approval is `waiting`, also later."""

    id: str
    name: str
    about: str
    state: Literal["running", "done", "failed", "waiting"]
    arguments: str = ""
    result: str = ""
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far the answer to `context` is. `text` is what it says so far; it may still be taken back, until the reply is
    sent. `note` is a sentence on what keeps the turn waiting, empty while it goes on. `outcome` is None while the turn
    runs; it may say `interrupted` first and `stopped` then: only then there will be no other answer."""

    context: MessageContext
    text: str = ""
    tools: tuple[ToolUse, ...] = ()
    note: str = ""
    outcome: str | None = None
    resumed: bool = False
    """An earlier process had begun the turn."""


@runtime_checkable
class ShowsDrafts(Channel, Protocol):
    """A channel on which an unfinished answer is a message that grows. The answer, or an empty text that takes the message
    away, is sent with the draft's handle in `Outbound.replaces`."""

    def draft_seconds(self, context: MessageContext) -> float | None:
        """How often a draft may change; None where the chat sees whole answers only."""

    def draft_is_whole(self, context: MessageContext) -> bool:
        """Whether it shows what a turn does, and of the answer nothing before it is whole."""

    async def open_draft(self, part: Outbound, key: str) -> str:
        """A draft's handle, to be stored before anything else is done with it; empty for one that vanishes by itself, soon
        or when the answer comes, and that must be shown anew until then. Raises DeliveryError."""

    async def update_draft(self, part: Outbound, key: str) -> None:
        """Shows `part.text` in the draft `part.replaces`. Raises DeliveryError."""


@runtime_checkable
class ShowsProgress(Channel, Protocol):
    """A channel that can show an unfinished answer."""

    def show(self, progress: Progress) -> None:
        """The newest state, a few times a second at most. Never blocks and never raises: the answer does not need it."""


@runtime_checkable
class AnswersPresses(Channel, Protocol):
    """A channel whose platform waits for a word on each press of a button."""

    def answer_press(self, context: MessageContext) -> None:
        """The press was stored, or refused. Never blocks and never raises."""


@runtime_checkable
class ActsOnMessages(Channel, Protocol):
    """A channel on which a message can be taken back, and have a reaction. Both the same however often."""

    async def delete(self, chat: str, message_id: str) -> None:
        """Take back a message of the bot. Raises DeliveryError, but not where it is gone."""

    async def react(self, chat: str, message_id: str, emoji: str) -> None:
        """Raises DeliveryError."""


@runtime_checkable
class MarksMessages(Channel, Protocol):
    """A channel on which a message that is being answered has a mark, which outlives the process."""

    async def unmark(self, context: MessageContext) -> None:
        """The message was answered, and a process that has died may have left its mark. Never raises."""
