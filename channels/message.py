"""The chat message, as it is on every platform: the vocabulary the layers above speak.

A channel turns its platform's event into one `MessageContext` and sends one `Outbound` part at a time. Nothing here
knows a platform, a model or a database. Text in a `MessageContext` is what a person typed: data, never instructions.

A `Place` is one chat, or a topic inside it, with the account that writes there: `feishu:oc_team`, `telegram:family:-100#7`.
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
"""The acts that an agent may do in a chat on its own initiative."""
AttachmentKind: TypeAlias = Literal["image", "file", "audio", "video", "sticker", "other"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Chat:
    """The place in which it was said. `thread` is a topic inside the chat, never a quote reply."""

    id: str
    kind: ChatKind
    title: str | None = None
    thread: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Sender:
    """The sender. `id` never changes; `name` is shown, never compared; `language` is a tag such as `zh-hans`, if known."""

    id: str
    name: str | None = None
    is_bot: bool = False
    language: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Attachment:
    """`key` is all that the channel needs to fetch it; `type` is its media type if the platform says it with the message."""

    kind: AttachmentKind
    key: str
    name: str | None = None
    type: str | None = None


PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""The types of pictures that models see and browsers may show."""
UNKNOWN_TYPE = "application/octet-stream"
MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,60}/[a-z0-9][a-z0-9.+-]{0,60}")


def media_type(header: str) -> str:
    """The type that a Content-Type header says, without its parameters."""
    kind = header.partition(";")[0].strip().lower()
    return kind if MEDIA_TYPE.fullmatch(kind) else UNKNOWN_TYPE


@dataclass(frozen=True, kw_only=True, slots=True)
class File:
    """A file that was received or is to be sent. `type` is its media type, as far as known."""

    name: str
    type: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredFile:
    """A file that is kept under `id`: its record in messages. `size` is in bytes."""

    id: str
    name: str
    type: str
    size: int


def not_sent(*files: StoredFile) -> str:
    """The text in place of files that the platform does not take."""
    names = ", ".join(file.name for file in files)
    return f"文件未能发送：{names} / This file could not be sent: {names}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Quote:
    """The earlier message this one answers, with its text and its files if the platform gives them. `foreign`: neither
    the person who quotes it nor the bot wrote it."""

    message_id: str
    text: str | None = None
    sender: str | None = None
    attachments: tuple[Attachment, ...] = ()
    foreign: bool = False
    opens_thread: bool = False
    """It is the first message of the thread, which the platform names in every message there."""


OriginKind: TypeAlias = Literal["schedule", "task", "result", "process", "hook", "send"]
"""`task`: a piece of work for another run of an agent; `result`: the end of one; `process`: that of a background command."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """The cause of a turn that no person's message began. It happens on behalf of the message's sender, who asked for it
    earlier, or of the operator, whose config says it: `by_operator`, and the sender's id is then empty. `due` is the time
    at which it was to happen. `external`: the text holds external content, which its maker has fenced and made
    harmless."""

    kind: OriginKind
    id: str
    run: str = ""
    """Tells this time from the others of the same id."""
    title: str = ""
    due: float = 0.0
    late: bool = False
    """The gateway was not there at `due`."""
    by_operator: bool = False
    external: bool = False
    tainted: bool = False
    """The turn that asked for it had read external content."""

    @property
    def is_foreign(self) -> bool:
        """True if external content is in its text, or has led to it."""
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
    more: bool = False
    """More of the same is likely to follow at once: one of an album, or a paste that the platform cut."""
    mark: str = ""
    """The beginning of `text` if that is the gateway's own, such as `[forwarded from Bob]`; no person can write it."""
    press: "Press | None" = None
    """The press of a button, instead of words; `sender` pressed it, as the platform's event says."""
    language: Literal["en", "zh"] | None = None
    """The language in which the gateway answers: chosen on the page, else found when the message is accepted."""
    instead: str | None = None
    """The sender's own earlier message of which this is another version."""
    branch: Literal["begins", "goes on"] | None = None
    """Its conversation has branches, which a message of the web chat goes on with or begins; None if it has none."""
    origin: Origin | None = None
    """Set if no person's message begins the turn; `message_id` is then that of the message to reply to, empty for none,
    and the text is no command."""

    @property
    def is_foreign(self) -> bool:
        """True if what stays of it in the history is not its sender's own: it is forwarded, of an inline bot, from another
        system, asked for by a turn that had read external content, or it has a foreign quote's files."""
        marked = any(line.startswith((FORWARDED, BUNDLE, VIA)) for line in self.mark.splitlines())
        stays = (
            self.mark.startswith(BUTTON)
            or self.is_vote
            or (self.reply_to is not None and bool(self.reply_to.attachments))
        )
        quoted = stays and self.reply_to is not None and self.reply_to.foreign
        return marked or quoted or (self.origin is not None and self.origin.is_foreign)

    @property
    def is_vote(self) -> bool:
        return self.mark.startswith(VOTE)

    @property
    def wordless(self) -> "MessageContext":
        """The message without what was written: its place, its sender, their language and the button that they pressed."""
        return replace(self, text="", mark="", attachments=(), reply_to=None, more=False)


BUTTON_TOKEN = re.compile(r"[A-Za-z0-9_:-]{1,60}")
LABEL_CHARS_MAX = 40


@dataclass(frozen=True, kw_only=True, slots=True)
class Press:
    """A button that was pressed. `token` is what it was sent with; `message_id` is the message above it. Not `placed`:
    the event does not say in what kind of chat, so the context says a group, the stricter. `label` is what an agent
    wrote on it, once that is known; on the gateway's own buttons it is empty. A vote in an agent's poll is a press without
    a token, whose label is the vote."""

    token: str
    message_id: str
    placed: bool = True
    label: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Button:
    """A button under a part. `token` comes back with a press and carries no authority; at most 60 of A-Z a-z 0-9 _ - :"""

    label: str
    token: str
    style: Literal["default", "primary", "danger"] = "default"

    @property
    def shown(self) -> str:
        """The label on one line, no longer than people can read it on a phone."""
        line = " ".join(self.label.split()) or "…"
        if len(line) <= LABEL_CHARS_MAX:
            return line
        cut = LABEL_CHARS_MAX - 1
        while cut > 1 and joined(line, cut):
            cut -= 1
        return line[:cut].rstrip() + "…"


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """The place of a part: as a reply to `reply_to` if set, else plainly. A person's id as `chat` is their direct chat."""

    chat: str
    thread: str | None = None
    reply_to: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnFacts:
    """The cost of an answer: tokens in (cached too) and out, the price if known. `failed`: it says why there is no
    answer. `unfinished`: a limit stopped it, and the next message may have it go on."""

    failed: bool = False
    unfinished: bool = False
    model: str = ""
    input: int = 0
    output: int = 0
    cost: float | None = None
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Folded:
    """Markdown beneath a text that a reader unfolds by its title; a channel that cannot fold shows it as it is."""

    title: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Outbound:
    """One part of a reply, small enough for one call of the platform's API. `text` is Markdown. Each of the rest is
    only for a channel with the capability: `files`, and `voice`, which makes sound among them a voice message;
    `dropped`: the message gets no answer; `buttons`; `replaces`: the id of an earlier message of the bot, which this
    part takes the place of, buttons included; `options`: it is a poll with these answers; `turn`; `folded`."""

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
    """The place that is written. `accounts` has the accounts of each channel. Raises ValueError with what to write."""
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
