"""The port every channel implements. The gateway calls it; a channel has never heard of the gateway.

`receive` is pure: bytes and headers in, a receipt out. It verifies, decrypts and parses, in that order, and touches
neither network nor clock. Everything that talks to the platform is async and raises one of four `DeliveryError`s.
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
    """One delivery: the raw body, the headers with names in lower case, and the parameters of the address, by which some
    platforms sign. `person`: whom an `OwnPlatform` admitted."""

    headers: Sequence[tuple[str, str]]
    body: bytes
    query: Sequence[tuple[str, str]] = ()
    person: str = ""

    def header(self, name: str) -> str | None:
        """The one value of a header; None if it is missing or was sent more than once."""
        values = [value for key, value in self.headers if key == name]
        return values[0] if len(values) == 1 else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Arrived:
    """A message to accept. `dedupe` names it: a delivery sharing any of these keys is the same message. The first key
    is the message's own (account-scoped by the gateway); a second one may recognise a re-push that carries another id."""

    context: MessageContext
    dedupe: tuple[str, ...]
    is_menu: bool = False
    """An entry of the platform's menu, by which a person gives a command in the direct chat with the bot; whichever that is.
    An entry that names no command does nothing."""
    agent: str | None = None
    """The agent that the person chose to talk to, if the channel lets them; None leaves it to the bindings."""
    answer: bytes = b"{}"
    """The platform's answer once it is stored: JSON."""
    event: Mapping[str, Any] | None = field(default=None, repr=False)
    """The platform's event as received and decrypted, to look at."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AnsweredAtOnce:
    """A delivery that wants an answer at once and leaves nothing behind, such as a URL check."""

    body: bytes
    type: str = "application/json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ignored:
    """A genuine delivery that starts no turn. `kind` is the platform's event name, `reason` is one of few words."""

    kind: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Recalled:
    """A person took a message back, or had the right to. `dedupe` is the key that it arrived with."""

    chat: str
    message_id: str
    dedupe: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Edited:
    """The author of a message changed it to `arrived`, whose second key names it; the first one names this very change."""

    arrived: Arrived
    number: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Reacted:
    """A person put 👍 or 👎 on a message; `chat` is empty if ids of messages are the platform's, not the chat's."""

    message_id: str
    sender: str
    emoji: str
    chat: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Voted:
    """A person voted in a poll of the platform's id `poll`, or revoked the vote: `options` are then empty, else the
    positions of the chosen options. The platform does not name the chat, so that of `arrived` is a group without an id."""

    arrived: Arrived
    poll: str
    options: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Membership:
    """The bot was added to a group, or removed from it. `context` says by whom, and no words."""

    context: MessageContext
    joined: bool
    dedupe: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Moved:
    """A group goes on under another id, with everything that was said in it."""

    before: str
    after: str


Receipt: TypeAlias = Arrived | AnsweredAtOnce | Ignored | Recalled | Edited | Reacted | Voted | Membership | Moved
Deliver: TypeAlias = Callable[[Receipt], Awaitable[None]]
"""Stores one receipt durably. If it raises, the update must be delivered again; NotStored: that is not its fault."""


def with_event(receipt: Receipt, event: Mapping[str, Any]) -> Receipt:
    """The receipt with the event that it was read from, if a turn may begin with it."""
    if isinstance(receipt, Edited | Voted):
        return replace(receipt, arrived=replace(receipt.arrived, event=event))
    return replace(receipt, event=event) if isinstance(receipt, Arrived) else receipt


class NotStored(Exception):
    """The database takes nothing at the moment."""


class Rejected(Exception):
    """The delivery is not genuine or not well formed: nothing is stored, the answer is a 4xx. `reason` is for the log
    and the metrics; the caller gets the status and `sentence`, which is mostly empty. `guess`: a secret was given and
    is wrong; the gateway limits how many an address may try. `cause` names the setting that is to blame if the platform
    itself has sent it, as the channel's `Condition` knows it. `code` is the sentence's, for a page with words of its
    own."""

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
    """The channel cannot judge this delivery yet, because it does not know its own bot id: answer 503, be resent."""


class DeliveryError(Exception):
    """A send that did not happen, or may not have. `code` is the platform's own, for the log."""

    def __init__(self, message: str, *, code: str = "", retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after_seconds = retry_after_seconds


class RateLimited(DeliveryError):
    """The platform asks us to wait: try again after `retry_after_seconds`, or our own backoff if it is None."""


class Unreachable(DeliveryError):
    """No answer, a broken one, or a passing fault: try again with the same key. `maybe_arrived` is False if the request
    surely did not reach the platform."""

    def __init__(self, message: str, *, code: str = "", maybe_arrived: bool = True) -> None:
        super().__init__(message, code=code)
        self.maybe_arrived = maybe_arrived


class Refused(DeliveryError):
    """The platform will never take this part, or this app's set-up forbids it: do not repeat, tell the operator."""


class NotHandedOut(Refused):
    """A file that cannot be had: its text says why, and the agent reads it."""


class TooLarge(NotHandedOut):
    def __init__(self, bytes_max: int) -> None:
        super().__init__(f"larger than {bytes_max:,} bytes")
        self.bytes_max = bytes_max


class Gone(DeliveryError):
    """The chat or the person is out of reach for good: drop the part."""


Directive: TypeAlias = Literal["media", "voice", "reply"]
"""`MEDIA:…` attaches a file, `[[audio_as_voice]]` makes it a voice message, `[[reply_to:…]]` picks what is answered."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileMessages:
    """Each file is its own message. A text up to `caption_chars` goes with the first; pictures up to `album` are one."""

    caption_chars: int = 0
    album: int = 1


Fetch: TypeAlias = Callable[[str], Awaitable[tuple[StoredFile, bytes] | None]]
"""The file that is kept under an id, for a part that is to be sent; None if it is gone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Capabilities:
    """The things that the channel can show, as the prompt's runtime line names it (`capabilities=markdown,threads`)."""

    names: tuple[str, ...]
    directives: tuple[Directive, ...] = ()
    """The lines of an answer that are acted upon; the prompt offers these and no others."""
    actions: tuple[Action, ...] = ("send",)
    """The actions of the `message` tool. `edit` and `buttons` need `buttons`, `delete` and `react` an `ActsOnMessages`."""
    file_messages: FileMessages | None = None
    """The way files are sent; None if a message brings them along."""
    quotes: Quotes = "all"
    """The parts of a reply that are shown as a reply to the question."""
    topics_by_reply: bool = False
    """Only a reply lands in a topic: there every part is one."""

    def quotes_in(self, context: MessageContext) -> Quotes:
        return "all" if context.chat.thread and self.topics_by_reply else self.quotes

    marks_dropped: bool = False
    """A dropped message is marked in its place, and an answer shows what it was made with."""
    buttons: bool = False
    """A message can have buttons, and a message can be replaced by a later one."""
    programs: bool = False
    """A program asks and waits: each message is its own turn and never late, no words are a command, no rate counts."""
    shows_new_drafts: bool = False
    """A draft is seen as soon as it is opened, and not with its first update only."""
    repeat_seconds: float = 0.0
    """The seconds for which the platform recognises a repeated send by its key and shows it once."""


class Channel(Protocol):
    """One account of one platform."""

    name: str
    """The platform, as in `channels.<name>` and in the webhook's path."""
    account: str
    access: AccessConfig
    capabilities: Capabilities
    queue: QueueConfig
    """The account's settings about messages that arrive during a turn."""
    resend_ambiguous: bool
    """True if a send that may have arrived is repeated even if the platform would not recognise it."""

    def receive(self, request: WebhookRequest, now: datetime) -> Receipt:
        """Judge one delivery. Raises `Rejected`, or `NotReady` until `learn_identity` has succeeded."""

    async def learn_identity(self, timeout_seconds: float) -> None:
        """Find out who the bot is, as far as the platform needs it. Raises `DeliveryError`; may be called again."""

    async def enrich(self, context: MessageContext) -> MessageContext:
        """Add what only the platform knows (names, titles, the quoted text), from a cache if there is one. Never raises
        for the platform's trouble: what cannot be learnt stays as it is."""

    def split(self, text: str) -> list[str]:
        """Cut a reply into parts that one call each can carry. Joined, they say what the text said."""

    async def send(self, part: Outbound, key: str) -> str:
        """Sends one part; its message id. `key` is the same for every attempt at this part. Raises DeliveryError."""

    async def close(self) -> None: ...


async def stored_file(stored: Fetch, attachment: Attachment, bytes_max: int) -> File:
    """A file that the gateway keeps itself, for a channel that is its own platform. Raises Gone and TooLarge."""
    if (found := await stored(attachment.key)) is None:
        raise Gone("the file is no longer there")
    kept, data = found
    if kept.size > bytes_max:
        raise TooLarge(bytes_max)
    return File(name=kept.name, type=kept.type, data=data)
