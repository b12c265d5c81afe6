"""The memory of the web chat, which is its own platform: conversations, what was said in them, and files.

A port, implemented by `gateway.store.archive`. Ids of conversations and of people's messages are made by the page. A
message's number grows with each one kept, over all conversations: who has seen number 17 asks for those above.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from channels.abilities import ToolUse
from channels.message import PICTURES, Attachment, Button, Folded, StoredFile, TurnFacts
from channels.web.admission import OPERATOR

VERSIONS_MAX = 50
"""The versions of one message that there may be if the config does not say."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WebConversation:
    """`at` is when something was last said in it; `owner` is the person who sees it. A `pinned` one is above the
    others; an `archived` one is not listed with them. `branch` is another number as soon as another branch of it is shown;
    0: it has none."""

    id: str
    title: str
    agent: str
    at: float
    owner: str
    pinned: bool = False
    archived: bool = False
    branch: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class MessageBody:
    """The text, files and tools of a message. `reply_to` is the person's message that an agent's one answers. `dropped`: it
    says nothing but that that message gets no answer. `place` is the number of the message that it took the place of.
    `instead` is the person's message of which a person's is another version: it begins a branch of the conversation."""

    text: str
    agent: str
    reply_to: str | None = None
    files: tuple[StoredFile, ...] = ()
    tools: tuple[ToolUse, ...] = ()
    dropped: bool = False
    buttons: tuple[Button, ...] = ()
    place: int | None = None
    turn: TurnFacts | None = None
    folded: Folded | None = None
    instead: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class WebMessage:
    """One message as it is kept. `key` is what makes it the same message however often it is sent."""

    number: int
    chat: str
    author: Literal["you", "agent"]
    key: str
    words: MessageBody
    at: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Sized:
    """A message that is not loaded: its number, and the size of its words."""

    number: int
    bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """A person's message was kept in this conversation. `begins`: it begins a branch there."""

    conversation: WebConversation
    begins: bool


Unkept: TypeAlias = Literal["not theirs", "gone", "too many"]
"""Reasons not to keep a message: the conversation is another person's; there is no message of which it could be another
version, or there are as many versions as may be."""


def attachment_of(file: StoredFile) -> Attachment:
    sounds: Literal["audio", "file"] = "audio" if file.type.startswith("audio/") else "file"
    return Attachment(kind="image" if file.type in PICTURES else sounds, key=file.id, name=file.name)


class ChatHistory(Protocol):
    """The archive, as the channel asks it. Every method is one commit, and raises what the store raises if that fails."""

    async def keep(
        self,
        chat: str,
        key: str,
        words: MessageBody,
        at: float,
        *,
        owner: str = OPERATOR,
        names: bool = True,
        versions_max: int = VERSIONS_MAX,
    ) -> Kept | Unkept:
        """Keeps what a person said, unless its key is known; its conversation is made with the first message and called
        by the first that `names` it, and its files belong to that from now on. It follows the last message of the branch
        that is shown, or takes a place."""

    async def answer(self, chat: str, key: str, words: MessageBody, at: float) -> bool:
        """Keeps what an agent said, unless its key is known; False if there is no such conversation."""

    async def replace(self, chat: str, key: str, text: str, buttons: tuple[Button, ...]) -> bool:
        """Lets an agent's message say something else, under a new number in its old place. False if it is not there."""

    async def conversation(self, chat: str) -> WebConversation | None: ...

    async def since(self, number: int, owner: str = OPERATOR, *, limit: int, bytes_max: int) -> Sequence[Sized]:
        """All of a person's messages above `number`, in order. Those within `bytes_max` are followed by one more at most."""

    async def messages(self, numbers: Sequence[int]) -> Sequence[WebMessage]:
        """The messages that there are, in order."""

    async def last(self) -> int:
        """The number of the newest message, or 0."""


class Files(Protocol):
    """The files that the gateway keeps. A port, implemented by `gateway.store.files`."""

    async def load(self, key: str) -> tuple[StoredFile, bytes] | None:
        """The file whose id is `key`."""

    async def find(self, keys: Sequence[str], owner: str = OPERATOR) -> Sequence[StoredFile]:
        """The files that there are in a person's conversations and uploads, in their order."""
