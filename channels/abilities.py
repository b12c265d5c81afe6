"""Optional abilities of a channel besides receiving and sending. Each is a port; `can` tests for it."""

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
    """Cached `isinstance`, per class of channel: a protocol check looks up every member."""
    key = type(channel), port
    if key not in _ABLE:
        _ABLE[key] = isinstance(channel, port)
    return _ABLE[key]


@dataclass(frozen=True, kw_only=True, slots=True)
class MenuEntry:
    """A command: `name` without the slash, and its description in both languages. A `hidden` one is in no menu; one that is
    `for_owners` is in menus of owners only, and one with `only` in that kind of chat."""

    name: str
    en: str
    zh: str
    hidden: bool = False
    for_owners: bool = False
    only: ChatKind | None = None

    def is_shown(self, kind: ChatKind, *, owner: bool) -> bool:
        """Return True if the menu of that kind of chat shows it, for an owner or for everybody."""
        return not self.hidden and (owner or not self.for_owners) and self.only in (None, kind)


@runtime_checkable
class Listens(Channel, Protocol):
    """A channel that connects to its platform: it fetches events, or registers its webhook."""

    async def connect(
        self, *, public_url: str | None, commands: Sequence[MenuEntry], owners: Sequence[str], deliver: Deliver
    ) -> None:
        """Run until cancelled. `owners` are the owners' ids on this platform."""


@runtime_checkable
class HasCondition(Channel, Protocol):
    """A channel that tracks the state of its connection to a remote platform."""

    condition: Condition


@runtime_checkable
class ChecksHeaders(Channel, Protocol):
    """A channel that can reject a forged delivery by its headers, before the body is read."""

    def check_headers(self, request: WebhookRequest, now: datetime) -> int | None:
        """Return the maximum size of the body, or None for the server's limit. `request` has no body yet. Raises
        Rejected."""


@runtime_checkable
class AnswersGet(Channel, Protocol):
    """A channel whose platform verifies the webhook's address by a GET."""

    def answer_get(self, request: WebhookRequest, now: datetime) -> AnsweredAtOnce:
        """Answer the GET, without side effects like `receive`; the body is empty. Raises Rejected."""


@runtime_checkable
class OwnPlatform(Channel, Protocol):
    """A channel that is its own platform: it authenticates the sender before the body is read, and stores a message before
    the gateway accepts it."""

    async def admit(self, headers: Sequence[tuple[str, str]]) -> str:
        """Return the sender's id. Raises Rejected, or the store's error if it is unavailable."""

    async def keep(self, context: MessageContext, agent: str, *, names: bool) -> MessageContext:
        """Store a message to `agent` and return it with its files' attributes. Idempotent.

        Of a button press only the conversation is checked. `names`: an untitled conversation takes its title from this
        message. Raises Rejected for an invalid message, or the store's error if it is unavailable."""


@runtime_checkable
class DownloadsFiles(Channel, Protocol):
    async def fetch(self, attachment: Attachment, *, bytes_max: int) -> File:
        """Download the attachment. Idempotent. Raises DeliveryError, `TooLarge` above `bytes_max`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolUse:
    """One tool call in a turn. `about` is its first argument, shortened; `arguments` and `result` are truncated; `said` is
    the text before the call. A call that waited for an approval keeps the state `waiting`."""

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
    """The state of the answer to `context`.

    `text` is the answer so far and may be retracted until the reply is sent. `note` says what the turn is waiting for, or
    is empty. `outcome` is None while the turn runs; `interrupted` may be followed by `stopped`, and only after that is
    there no further answer."""

    context: MessageContext
    text: str = ""
    tools: tuple[ToolUse, ...] = ()
    note: str = ""
    outcome: str | None = None
    resumed: bool = False
    """True if an earlier process started the turn."""


@runtime_checkable
class ShowsDrafts(Channel, Protocol):
    """A channel that shows an unfinished answer as a message that grows. The final answer, or an empty text to delete the
    message, is sent with the draft's handle in `Outbound.replaces`."""

    def draft_seconds(self, context: MessageContext) -> float | None:
        """Return the seconds between two updates of a draft; None if the chat gets only complete answers."""

    def draft_is_whole(self, context: MessageContext) -> bool:
        """Return True if a draft shows the turn's activity, and the answer only once it is complete."""

    async def open_draft(self, part: Outbound, key: str) -> str:
        """Return a draft's handle, which must be stored before any other step.

        An empty handle means that the draft expires by itself and must be updated until then. Raises DeliveryError."""

    async def update_draft(self, part: Outbound, key: str) -> str:
        """Show `part.text` in the draft `part.replaces`; send the draft if it was not sent yet.

        Return its handle, to be stored if it changed. Raises DeliveryError."""


@runtime_checkable
class ShowsProgress(Channel, Protocol):
    def show(self, progress: Progress) -> None:
        """Take the newest state, a few times a second at most. Never block or raise: the answer does not depend on it."""


@runtime_checkable
class ReadsBots(Channel, Protocol):
    """A channel whose events name another bot differently for each account, so that its messages must be looked up."""

    async def read_bot(self, context: MessageContext) -> tuple[str, bool]:
        """Return the id of the bot that sent a message, as `ChannelType.bot` has it, and whether it mentions this bot.
        Raises DeliveryError."""


@runtime_checkable
class AnswersPresses(Channel, Protocol):
    """A channel whose platform expects an acknowledgement of each button press."""

    def answer_press(self, context: MessageContext) -> None:
        """Acknowledge a press that was stored or refused. Never block or raise."""


@runtime_checkable
class SendsPolls(Channel, Protocol):
    """A channel with the action `poll`. It reports each vote as `Voted`, with the poll's id."""

    async def send_poll(self, part: Outbound, key: str) -> tuple[str, str]:
        """Send a part with `options`. Return the message id and the poll id, as `send` does and with its errors."""


@runtime_checkable
class ActsOnMessages(Channel, Protocol):
    """A channel that can delete messages and react to them. Both are idempotent."""

    async def delete(self, chat: str, message_id: str) -> None:
        """Delete a message of the bot; no error if it is gone. Raises DeliveryError."""

    async def react(self, chat: str, message_id: str, emoji: str) -> None:
        """React to a message. Raises DeliveryError."""


@runtime_checkable
class LeavesGroups(Channel, Protocol):
    """A channel on which the bot can leave a group."""

    async def leave(self, chat: str) -> None:
        """Leave the group. Idempotent. Raises DeliveryError."""


@runtime_checkable
class KnowsMembers(Channel, Protocol):
    """A channel that can look up who is in a group."""

    async def is_member(self, chat: str, person: str) -> bool:
        """Return whether the person is in the group now. Raises DeliveryError."""


@runtime_checkable
class MarksMessages(Channel, Protocol):
    """A channel that marks a message while it is being answered; the mark outlives the process."""

    async def unmark(self, context: MessageContext) -> None:
        """Remove the mark that a crashed process may have left on an answered message. Never raises."""
