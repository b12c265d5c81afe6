"""Storage of the web chat, which is its own platform: conversations, messages and files.

A port, implemented by `gateway.store.archive`. The page creates the ids of conversations and of people's messages. Message
numbers grow over all conversations: a page that has seen number 17 requests those above it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from channels.abilities import ToolUse
from channels.message import PICTURES, Attachment, Button, ChoiceForm, Folded, StoredFile, TurnFacts
from channels.web.admission import OPERATOR

VERSIONS_MAX = 50
"""Default maximum of versions of one message."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WebConversation:
    """`at` is the time of its last message; `owner` is the person who sees it. A `pinned` one is listed first, an
    `archived` one separately. `branch` changes whenever another branch is shown; 0 means no branches."""

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
    """The text, files and tools of a message.

    `reply_to` is the message that an agent's message answers. `dropped`: it only says that there is no answer. `place` is
    the number of the message that it replaced. `instead` is the person's message of which it is a new version, on a new
    branch."""

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
    form: ChoiceForm | None = None
    instead: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class WebMessage:
    """One stored message. `key` deduplicates repeated sends."""

    number: int
    chat: str
    author: Literal["you", "agent"]
    key: str
    words: MessageBody
    at: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Sized:
    """A message that is not loaded: its number, and the size of its content."""

    number: int
    bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """The result of storing a person's message. `begins`: it starts a branch."""

    conversation: WebConversation
    begins: bool


Unkept: TypeAlias = Literal["not theirs", "gone", "too many"]
"""The reason not to store a message: another person's conversation, no message to be a version of, or too many versions."""


def attachment_of(file: StoredFile) -> Attachment:
    sounds: Literal["audio", "file"] = "audio" if file.type.startswith("audio/") else "file"
    return Attachment(kind="image" if file.type in PICTURES else sounds, key=file.id, name=file.name)


class ChatHistory(Protocol):
    """The archive, as the channel uses it. Each method is one commit and raises the store's errors."""

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
        """Store a person's message, unless its key is known.

        The first message creates the conversation, and the first that `names` it sets its title. Its files then belong to
        the conversation. The message follows the last one of the shown branch, or replaces a version."""

    async def answer(self, chat: str, key: str, words: MessageBody, at: float) -> bool:
        """Store an agent's message, unless its key is known. Return False if the conversation does not exist."""

    async def replace(self, chat: str, key: str, text: str, buttons: tuple[Button, ...]) -> bool:
        """Change an agent's message: a new number, in its old place. Return False if it does not exist."""

    async def conversation(self, chat: str) -> WebConversation | None: ...

    async def since(self, number: int, owner: str = OPERATOR, *, limit: int, bytes_max: int) -> Sequence[Sized]:
        """Return a person's messages above `number`, in order: those within `bytes_max`, and at most one more."""

    async def messages(self, numbers: Sequence[int]) -> Sequence[WebMessage]:
        """Return the messages that exist, in order."""

    async def last(self) -> int:
        """Return the number of the newest message, or 0."""


class Files(Protocol):
    """The stored files. A port, implemented by `gateway.store.files`."""

    async def load(self, key: str) -> tuple[StoredFile, bytes] | None:
        """Return the file with the id `key`, and its data."""

    async def find(self, keys: Sequence[str], owner: str = OPERATOR) -> Sequence[StoredFile]:
        """Return the existing files of a person's conversations and uploads, in order."""
