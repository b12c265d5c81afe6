"""Abilities that a channel may have besides receiving and sending: each its own port, asked for by `can`."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol, TypeGuard, TypeVar, runtime_checkable

from channels.channel import AnsweredAtOnce, Channel, Deliver, WebhookRequest
from channels.condition import Condition
from channels.message import Attachment, ChatKind, File, MessageContext, Outbound

T = TypeVar("T")
_ABLE: dict[tuple[type, type], bool] = {}


def can(channel: object, port: type[T]) -> TypeGuard[T]:
    """`isinstance`, asked once for each class of channel: it looks for every member of the port."""
    key = type(channel), port
    if key not in _ABLE:
        _ABLE[key] = isinstance(channel, port)
    return _ABLE[key]


@dataclass(frozen=True, kw_only=True, slots=True)
class MenuEntry:
    """A command: `name` without the slash, and what it does, in both languages. No menu shows a `hidden` one, which is an
    alias or would do nothing. Only owners see one that is `for_owners`, and one with `only` is for that kind of chat."""

    name: str
    en: str
    zh: str
    hidden: bool = False
    for_owners: bool = False
    only: ChatKind | None = None

    def is_shown(self, kind: ChatKind, *, owner: bool) -> bool:
        """Return True if the menu of a chat of that kind shows it, an owner's or everybody's."""
        return not self.hidden and (owner or not self.for_owners) and self.only in (None, kind)


@runtime_checkable
class Listens(Channel, Protocol):
    """A channel with its own connection: it fetches its events, or tells its platform where to post them."""

    async def connect(
        self, *, public_url: str | None, commands: Sequence[MenuEntry], owners: Sequence[str], deliver: Deliver
    ) -> None:
        """Runs as long as the gateway does. `owners` are the ids of those who use this platform."""


@runtime_checkable
class HasCondition(Channel, Protocol):
    """A channel that depends on a platform elsewhere, and knows its state there."""

    condition: Condition


@runtime_checkable
class ChecksHeaders(Channel, Protocol):
    """A channel that can tell by the headers alone that a delivery is not genuine, before the body is read."""

    def check_headers(self, request: WebhookRequest, now: datetime) -> int | None:
        """The most bytes that the body may have; None for the server's limit. `request` has no body yet. Raises Rejected."""


@runtime_checkable
class AnswersGet(Channel, Protocol):
    """A channel whose platform checks its webhook's address by a GET."""

    def answer_get(self, request: WebhookRequest, now: datetime) -> AnsweredAtOnce:
        """Pure, as `receive` is; the body of `request` is empty. Raises Rejected."""


@runtime_checkable
class OwnPlatform(Channel, Protocol):
    """A channel that is its own platform: it authenticates the sender before the body is read, and stores a message before
    the gateway accepts it."""

    async def admit(self, headers: Sequence[tuple[str, str]]) -> str:
        """The sender's id. Raises Rejected, or what the store raises if it is unavailable."""

    async def keep(self, context: MessageContext, agent: str, *, names: bool) -> MessageContext:
        """Stores a message to `agent`; idempotent; of a press only its place is judged. `names`: a conversation without a
        name is called by it. Returns it with the facts of its files. Raises Rejected for an invalid message, or what the
        store raises if it is unavailable."""


@runtime_checkable
class DownloadsFiles(Channel, Protocol):
    async def fetch(self, attachment: Attachment, *, bytes_max: int) -> File:
        """Downloads the attachment; idempotent. Raises DeliveryError, `TooLarge` above `bytes_max`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolUse:
    """One call of a tool in a turn. `about` is its first argument, shortened, such as a path; `arguments` and `result` are
    the beginning of what it was given and of what it gave, `said` the words before it. One that waits for an approval is
    `waiting`, also later."""

    id: str
    name: str
    about: str
    state: Literal["running", "done", "failed", "waiting"]
    arguments: str = ""
    result: str = ""
    seconds: float | None = None
    said: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """The state of the answer to `context`. `text` is what it says so far; it may still be taken back, until the reply is
    sent. `note` is a sentence on what keeps the turn waiting, empty if nothing does. `outcome` is None while the turn
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
        """The seconds between two changes of a draft; None if the chat sees whole answers only."""

    def draft_is_whole(self, context: MessageContext) -> bool:
        """True if it shows what a turn does, and of the answer nothing before it is whole."""

    async def open_draft(self, part: Outbound, key: str) -> str:
        """A draft's handle, to be stored before anything else is done with it; empty for one that vanishes by itself,
        soon or when the answer comes, and that must be shown again until then. Raises DeliveryError."""

    async def update_draft(self, part: Outbound, key: str) -> str:
        """Shows `part.text` in the draft `part.replaces`, or a draft that was not sent yet. Its handle from then on, to
        be stored if it is another one. Raises DeliveryError."""


@runtime_checkable
class ShowsProgress(Channel, Protocol):
    def show(self, progress: Progress) -> None:
        """The newest state, a few times a second at most. Never blocks and never raises: the answer does not need it."""


@runtime_checkable
class AnswersPresses(Channel, Protocol):
    """A channel whose platform waits for a word on each press of a button."""

    def answer_press(self, context: MessageContext) -> None:
        """The press was stored, or refused. Never blocks and never raises."""


@runtime_checkable
class SendsPolls(Channel, Protocol):
    """A channel with the action `poll`. It reports each vote as `Voted`, with the poll's id."""

    async def send_poll(self, part: Outbound, key: str) -> tuple[str, str]:
        """Send a part with `options`. Return the message id and the poll id, as `send` does and with its errors."""


@runtime_checkable
class ActsOnMessages(Channel, Protocol):
    """A channel on which a message can be taken back, and have a reaction. Both the same however often."""

    async def delete(self, chat: str, message_id: str) -> None:
        """Take back a message of the bot. Raises DeliveryError, but not if it is gone."""

    async def react(self, chat: str, message_id: str, emoji: str) -> None:
        """Raises DeliveryError."""


@runtime_checkable
class LeavesGroups(Channel, Protocol):
    """A channel on which the bot can leave a group by itself."""

    async def leave(self, chat: str) -> None:
        """Leaves it; a second time changes nothing. Raises DeliveryError."""


@runtime_checkable
class MarksMessages(Channel, Protocol):
    """A channel on which a message that is being answered has a mark, which outlives the process."""

    async def unmark(self, context: MessageContext) -> None:
        """The message was answered, and a process that has died may have left its mark. Never raises."""
