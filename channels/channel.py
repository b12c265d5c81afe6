"""The port that every channel implements. A channel does not depend on the gateway.

`receive` is pure: bytes and headers in, a receipt out. It verifies, decrypts and parses, in that order, without network or
clock. Calls to the platform are async and raise one of four `DeliveryError`s.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, Protocol, TypeAlias

from channels.access import AccessConfig, Quotes
from channels.message import Action, Attachment, File, MessageContext, Outbound, StoredFile
from channels.section import QueueConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class WebhookRequest:
    """One delivery: the raw body, the headers with lower-case names, and the query parameters, with which some platforms
    sign. `person` is the sender that an `OwnPlatform` admitted."""

    headers: Sequence[tuple[str, str]]
    body: bytes
    query: Sequence[tuple[str, str]] = ()
    person: str = ""

    def header(self, name: str) -> str | None:
        """Return the value of a header; None if it is missing or repeated."""
        values = [value for key, value in self.headers if key == name]
        return values[0] if len(values) == 1 else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Arrived:
    """A message to accept. Deliveries that share any `dedupe` key are the same message.

    The first key is the message's own (the gateway scopes it by account); a second one can match a redelivery under another
    id."""

    context: MessageContext
    dedupe: tuple[str, ...]
    is_menu: bool = False
    """True for a menu entry: a command in the direct chat, which the event does not name. Unknown ones are ignored."""
    agent: str | None = None
    """The agent that the person chose, if the channel offers that; None leaves it to the bindings."""
    answer: bytes = b"{}"
    """The JSON response to the platform once the message is stored."""
    event: Mapping[str, Any] | None = field(default=None, repr=False)
    """The decrypted event, for inspection."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AnsweredAtOnce:
    """A delivery that needs only an immediate response, such as a URL check."""

    body: bytes
    type: str = "application/json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ignored:
    """A genuine delivery that starts no turn. `kind` is the platform's event name, `reason` a short label."""

    kind: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Recalled:
    """A message was recalled by its sender, or by someone with the right to. `dedupe` is the key that it arrived with."""

    chat: str
    message_id: str
    dedupe: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Edited:
    """A message was edited by its author to `arrived`, whose second key identifies the message and the first one this
    edit."""

    arrived: Arrived
    number: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Reacted:
    """A person reacted with 👍 or 👎, or took that back (`withdrawn`); `chat` is empty if message ids are unique on the
    platform."""

    message_id: str
    sender: str
    emoji: str
    chat: str = ""
    withdrawn: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Voted:
    """A person voted in the poll with the platform's id `poll`; empty `options` mean that the vote was revoked.

    `options` are positions. The platform does not name the chat, so that of `arrived` is a group without an id."""

    arrived: Arrived
    poll: str
    options: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Membership:
    """The bot was added to a group, or removed from it, by the sender of `context`, which has no text."""

    context: MessageContext
    joined: bool
    dedupe: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Moved:
    """A group has a new id and keeps its history."""

    before: str
    after: str


Receipt: TypeAlias = Arrived | AnsweredAtOnce | Ignored | Recalled | Edited | Reacted | Voted | Membership | Moved
Deliver: TypeAlias = Callable[[Receipt], Awaitable[None]]
"""Store one receipt durably. If it raises, the update must be redelivered; NotStored: the update is not at fault."""


def with_event(receipt: Receipt, event: Mapping[str, Any]) -> Receipt:
    """Return the receipt with its original event, if a turn may begin with it."""
    if isinstance(receipt, Edited | Voted):
        return replace(receipt, arrived=replace(receipt.arrived, event=event))
    return replace(receipt, event=event) if isinstance(receipt, Arrived) else receipt


class NotStored(Exception):
    """The database is unavailable at the moment."""


class Rejected(Exception):
    """The delivery is forged or malformed: nothing is stored, the response is a 4xx.

    `reason` is for log and metrics; the caller gets the status and `sentence`, which is usually empty. `guess`: a wrong
    secret was given; the gateway limits these per address. `cause` names the setting to blame if the platform itself sent
    the delivery, as in the channel's `Condition`. `code` identifies the sentence for pages with texts of their own."""

    def __init__(
        self,
        reason: str,
        *,
        status: int = 401,
        sentence: str = "",
        guess: bool = False,
        cause: str = "",
        code: str = "refused",
    ) -> None:
        super().__init__(reason)
        self.cause = cause
        self.code = code
        self.reason = reason
        self.status = status
        self.sentence = sentence
        self.guess = guess


class NotReady(Exception):
    """The channel cannot judge a delivery before it knows its own bot id. Respond with 503, so that it is redelivered."""


class DeliveryError(Exception):
    """A failed or ambiguous send. `code` is the platform's, for the log."""

    def __init__(self, message: str, *, code: str = "", retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after_seconds = retry_after_seconds


class RateLimited(DeliveryError):
    """The platform's rate limit: retry after `retry_after_seconds`, or with our own backoff if it is None."""


class Unreachable(DeliveryError):
    """No response, a broken one, or a transient fault: retry with the same key. `maybe_arrived` is False if the request
    cannot have reached the platform."""

    def __init__(self, message: str, *, code: str = "", maybe_arrived: bool = True) -> None:
        super().__init__(message, code=code)
        self.maybe_arrived = maybe_arrived


class Refused(DeliveryError):
    """A permanent refusal of this part, or a misconfigured app: do not retry, notify the operator."""


class NotHandedOut(Refused):
    """A file that cannot be downloaded; the agent reads the reason."""


class TooLarge(NotHandedOut):
    def __init__(self, bytes_max: int) -> None:
        super().__init__(f"larger than {bytes_max:,} bytes")
        self.bytes_max = bytes_max


class Gone(DeliveryError):
    """The chat or the person is permanently unreachable: drop the part."""


Directive: TypeAlias = Literal["media", "voice", "reply"]
"""`MEDIA:…` attaches a file, `[[audio_as_voice]]` makes it a voice message, `[[reply_to:…]]` picks the message to quote."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileMessages:
    """Each file is a separate message. A text up to `caption_chars` is the first one's caption; up to `album` pictures are
    grouped."""

    caption_chars: int = 0
    album: int = 1


Fetch: TypeAlias = Callable[[str], Awaitable[tuple[StoredFile, bytes] | None]]
"""Load a stored file by id, to send it; None if it is gone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Capabilities:
    """The features of a channel, as the prompt's runtime line lists them (`capabilities=markdown,threads`)."""

    names: tuple[str, ...]
    directives: tuple[Directive, ...] = ()
    """Directives that are executed in an answer; the prompt offers only these."""
    actions: tuple[Action, ...] = ("send",)
    """Actions of the `message` tool. `edit` and `buttons` need `buttons`, `delete` and `react` need `ActsOnMessages`."""
    file_messages: FileMessages | None = None
    """The way files are sent; None if they are part of a message."""
    quotes: Quotes = "all"
    """The parts of an answer that quote the question."""
    topics_by_reply: bool = False
    """True if only a reply is posted in a topic, so that every part there must be one."""

    def quotes_in(self, context: MessageContext) -> Quotes:
        return "all" if context.chat.thread and self.topics_by_reply else self.quotes

    marks_dropped: bool = False
    """True if a dropped message is marked, and an answer shows its tools and model."""
    buttons: bool = False
    """True if messages can have buttons and can be replaced."""
    forms: bool = False
    """True if messages can have a `ChoiceForm`."""
    programs: bool = False
    """True for programs that wait for an answer: one turn per message, never late, no commands, no rate limit."""
    shows_new_drafts: bool = False
    """True if a draft is visible once it is opened, not only after its first update."""
    repeat_seconds: float = 0.0
    """Seconds for which the platform deduplicates sends by their key."""


class Channel(Protocol):
    """One account of one platform."""

    name: str
    """The platform's name in `channels.<name>` and in the webhook's path."""
    account: str
    access: AccessConfig
    capabilities: Capabilities
    queue: QueueConfig
    """Settings for messages that arrive during a turn."""
    resend_ambiguous: bool
    """True if an ambiguous send is retried even though the platform would not deduplicate it."""

    def receive(self, request: WebhookRequest, now: datetime) -> Receipt:
        """Judge one delivery. Raises `Rejected`, or `NotReady` until `learn_identity` has succeeded."""

    async def learn_identity(self, timeout_seconds: float) -> None:
        """Fetch the bot's own id, if the platform needs it. May be called again. Raises `DeliveryError`."""

    async def enrich(self, context: MessageContext) -> MessageContext:
        """Add what only the platform knows (names, titles, the quoted text), from a cache if possible. Never raises:
        unknown values stay unset."""

    def split(self, text: str) -> list[str]:
        """Split a reply into parts that fit one call each, without losing text."""

    async def send(self, part: Outbound, key: str) -> str:
        """Send one part and return its message id. `key` is the same for every attempt. Raises DeliveryError."""

    async def close(self) -> None: ...


async def stored_file(stored: Fetch, attachment: Attachment, bytes_max: int) -> File:
    """Load a file that the gateway stores, for a channel that is its own platform. Raises Gone and TooLarge."""
    if (found := await stored(attachment.key)) is None:
        raise Gone("the file is no longer there")
    kept, data = found
    if kept.size > bytes_max:
        raise TooLarge(bytes_max)
    return File(name=kept.name, type=kept.type, data=data)
