"""The chat message in a platform-independent form.

A channel turns each event into one `MessageContext` and sends one `Outbound` part at a time. Nothing here depends on a
platform, a model or a database. Text in a `MessageContext` is untrusted data, never instructions.

A `Place` is a chat, or a topic in it, and the account that writes there: `feishu:oc_team`, `telegram:family:-100#7`.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal, TypeAlias

from channels.marks import BUNDLE, BUTTON, FORWARDED, VIA, VOTE
from channels.plain import joined

ChatKind: TypeAlias = Literal["direct", "group"]
Action: TypeAlias = Literal["send", "reply", "edit", "delete", "react", "buttons", "poll"]
"""Actions that an agent may take in a chat on its own initiative."""
AttachmentKind: TypeAlias = Literal["image", "file", "audio", "video", "sticker", "other"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Chat:
    """The chat of a message. `thread` is a topic in the chat, never a quote reply."""

    id: str
    kind: ChatKind
    title: str | None = None
    thread: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Sender:
    """`id` is immutable; `name` is for display, never compared; `language` is a tag such as `zh-hans`, if known. `is_peer`:
    it is another bot of this gateway."""

    id: str
    name: str | None = None
    is_bot: bool = False
    is_peer: bool = False
    language: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Attachment:
    """`key` is what the channel needs to fetch it; `type` is its media type if the event has it."""

    kind: AttachmentKind
    key: str
    name: str | None = None
    type: str | None = None


PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""Picture types that models accept and browsers may show inline."""
UNKNOWN_TYPE = "application/octet-stream"
MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,60}/[a-z0-9][a-z0-9.+-]{0,60}")


def media_type(header: str) -> str:
    """Return the media type of a Content-Type header, without parameters."""
    kind = header.partition(";")[0].strip().lower()
    return kind if MEDIA_TYPE.fullmatch(kind) else UNKNOWN_TYPE


@dataclass(frozen=True, kw_only=True, slots=True)
class File:
    """A file that was received or is to be sent. `type` is its media type, if known."""

    name: str
    type: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredFile:
    """Record of a stored file. `size` is in bytes."""

    id: str
    name: str
    type: str
    size: int


def not_sent(*files: StoredFile) -> str:
    """Return the text that replaces files which the platform does not accept."""
    names = ", ".join(file.name for file in files)
    return f"文件未能发送：{names} / This file could not be sent: {names}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Quote:
    """The quoted message, with text and files if the platform gives them. `foreign`: written neither by the person who
    quotes it nor by the bot."""

    message_id: str
    text: str | None = None
    sender: str | None = None
    attachments: tuple[Attachment, ...] = ()
    foreign: bool = False
    opens_thread: bool = False
    """True for the first message of the thread, which the platform quotes in every message there."""


LinkKind: TypeAlias = Literal["docx", "wiki", "sheet", "bitable"]


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentLink:
    """A link to a document of the platform. `part` is the sheet or the table that it shows, if it names one."""

    kind: LinkKind
    token: str
    part: str = ""
    quoted: bool = False
    """True if only the quoted message has it."""


OriginKind: TypeAlias = Literal["schedule", "task", "result", "process", "hook", "send", "login", "handover"]
"""`task`: a delegated task; `result`: its result; `process`: the end of a background command; `login`: a turn continues
after the login that it waited for; `handover`: a colleague's message, and what is relayed to the on-call chat."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """The cause of a turn that no message started.

    The turn acts for the message's sender, who asked for it earlier, or (`by_operator`, with an empty sender id) for the
    operator's config. `due` is its scheduled time. `external`: the text contains external content, already fenced."""

    kind: OriginKind
    id: str
    run: str = ""
    """Distinguishes runs of the same id."""
    title: str = ""
    due: float = 0.0
    late: bool = False
    """True if the gateway was not running at `due`."""
    by_operator: bool = False
    external: bool = False
    tainted: bool = False
    """True if the turn that requested it had read external content."""

    @property
    def is_foreign(self) -> bool:
        """True if the text contains external content, or was caused by it."""
        return self.external or self.tainted

    @property
    def key(self) -> str:
        return ":".join(filter(None, (self.kind, self.id, self.run)))


@dataclass(frozen=True, kw_only=True, slots=True)
class MessageContext:
    """One message of one person, normalised. `sent_at` is aware, in UTC."""

    channel: str
    account: str
    chat: Chat
    message_id: str
    sender: Sender
    text: str
    sent_at: datetime
    mentioned: bool = False
    attachments: tuple[Attachment, ...] = ()
    reply_to: Quote | None = None
    links: tuple[DocumentLink, ...] = ()
    """The links to documents of the platform in `text` and in the quoted one, as the channel found them."""
    more: bool = False
    """True if more is likely to follow: an album, or a paste that the platform split."""
    mark: str = ""
    """Prefix of `text` written by the gateway, such as `[forwarded from Bob]`; users cannot forge it."""
    press: "Press | None" = None
    """The button that `sender` pressed, instead of text."""
    language: Literal["en", "zh"] | None = None
    """The language of the gateway's texts: chosen on the page, else detected when the message is accepted."""
    instead: str | None = None
    """The sender's earlier message of which this is a new version."""
    branch: Literal["begins", "goes on"] | None = None
    """`begins`: a web chat message starts a branch; `goes on`: it continues one; None: there are no branches."""
    origin: Origin | None = None
    """Set if no message started the turn; `message_id` is then the message to reply to, or empty. The text is no command."""

    @property
    def is_foreign(self) -> bool:
        """True if its text in the history is not all by a person who sent it: from a bot, forwarded, from an inline bot
        or another system, requested by a tainted turn, or with a foreign quote's files."""
        marked = any(line.startswith((FORWARDED, BUNDLE, VIA)) for line in self.mark.splitlines())
        stays = (
            self.mark.startswith(BUTTON)
            or self.is_vote
            or (self.reply_to is not None and bool(self.reply_to.attachments))
        )
        quoted = stays and self.reply_to is not None and self.reply_to.foreign
        return marked or quoted or self.sender.is_bot or (self.origin is not None and self.origin.is_foreign)

    @property
    def is_vote(self) -> bool:
        return self.mark.startswith(VOTE)

    @property
    def wordless(self) -> "MessageContext":
        """Return the message without its content: chat, sender, language and the pressed button."""
        return replace(self, text="", mark="", attachments=(), reply_to=None, more=False)


BUTTON_TOKEN = re.compile(r"[A-Za-z0-9_:-]{1,60}")
LABEL_CHARS_MAX = 40


@dataclass(frozen=True, kw_only=True, slots=True)
class Press:
    """A button press. `token` identifies the button; `message_id` is the message above it.

    Not `placed`: the event lacks the kind of chat, so the context says group, the stricter one. `label` is set for buttons
    of an agent and empty for the gateway's. A vote in an agent's poll is a press without a token and with the vote as
    label."""

    token: str
    message_id: str
    placed: bool = True
    label: str = ""
    picked: tuple[int, ...] = ()
    """Positions of the options ticked in a `ChoiceForm`, from 1."""
    typed: str = ""
    """Text typed into the field of a `ChoiceForm`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Button:
    """A button under a part. `token` returns with a press and carries no authority; at most 60 of A-Z a-z 0-9 _ - :
    One with a `url` opens that page instead."""

    label: str
    token: str = ""
    url: str = ""
    style: Literal["default", "primary", "danger"] = "default"

    @property
    def shown(self) -> str:
        """The label on one line, truncated to what fits a phone."""
        line = " ".join(self.label.split()) or "…"
        if len(line) <= LABEL_CHARS_MAX:
            return line
        cut = LABEL_CHARS_MAX - 1
        while cut > 1 and joined(line, cut):
            cut -= 1
        return line[:cut].rstrip() + "…"


FORM_TEXT_CHARS_MAX = 1_000
FORM_OPTIONS_MAX = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class ChoiceForm:
    """Checkboxes and a text field under a part, for a channel with `forms`. `field` is the field's placeholder; without
    one there is no field. `submit` is the label of the button that sends both with `token`."""

    token: str
    submit: str
    options: tuple[str, ...] = ()
    field: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """The destination of a part: as a reply to `reply_to`, if set. A person's id as `chat` is their direct chat."""

    chat: str
    thread: str | None = None
    reply_to: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnFacts:
    """Usage of an answer: tokens in (including cached) and out, and the price if known. `failed`: the text says why there
    is no answer. `unfinished`: a limit stopped the turn, and the next message may continue it."""

    failed: bool = False
    unfinished: bool = False
    model: str = ""
    input: int = 0
    output: int = 0
    cost: float | None = None
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Folded:
    """Markdown in a collapsible section; a channel without them shows it as text."""

    title: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Outbound:
    """One part of a reply, small enough for one API call. `text` is Markdown. The other fields need the channel's
    capability:

    `voice` sends audio `files` as voice messages; `dropped`: the message gets no answer; `replaces` is the id of an earlier
    message of the bot to replace, with its buttons; `options` make it a poll."""

    target: Target
    text: str
    files: tuple[StoredFile, ...] = ()
    voice: bool = False
    dropped: bool = False
    buttons: tuple[Button, ...] = ()
    replaces: str | None = None
    options: tuple[str, ...] = ()
    turn: TurnFacts | None = None
    folded: Folded | None = None
    form: ChoiceForm | None = None

    @property
    def whole(self) -> str:
        """The text with its folded part, for places that cannot fold."""
        return f"{self.text}\n\n{self.folded.text}" if self.folded else self.text


DEFAULT = "default"
_FORM = re.compile(r"([^\s:#]{1,64}):(?:([^\s:#]{1,64}):)?([^\s:#]{1,200})(?:#([^\s:#]{1,200}))?")
EXPECTED = (
    "expected channel:chat or channel:account:chat, and #thread behind it for a topic, "
    "such as feishu:oc_team or telegram:family:-1001234567890#7"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    channel: str
    account: str
    chat: str
    thread: str | None = None

    def __str__(self) -> str:
        account = "" if self.account == DEFAULT else f"{self.account}:"
        thread = "" if self.thread is None else f"#{self.thread}"
        return f"{self.channel}:{account}{self.chat}{thread}"


def place_of(text: str, accounts: Mapping[str, Collection[str]]) -> Place:
    """Parse a place. `accounts` lists the accounts of each channel. Raises ValueError with the expected form."""
    match = _FORM.fullmatch(text)
    if match is None or not text.isprintable():
        raise ValueError(EXPECTED)
    channel, account, chat, thread = match.groups()
    known = accounts.get(channel, ())
    if not known:
        raise ValueError(f"no channel {channel!r} is configured; there is: {_listed(accounts) or 'none'}")
    if account is not None and account not in known:
        raise ValueError(f"{channel} has no account {account!r}; there is: {_listed({channel: known})}")
    if account is None:
        account = DEFAULT if DEFAULT in known or len(known) > 1 else next(iter(known))
    if account not in known:
        choices = " or ".join(str(Place(channel=channel, account=it, chat=chat, thread=thread)) for it in sorted(known))
        raise ValueError(f"{channel} has several accounts, so name one: {choices}")
    return Place(channel=channel, account=account, chat=chat, thread=thread)


def _listed(accounts: Mapping[str, Collection[str]]) -> str:
    names = ((channel, name) for channel, accounts_of in sorted(accounts.items()) for name in sorted(accounts_of))
    return ", ".join(channel if name == DEFAULT else f"{channel}:{name}" for channel, name in names)
