"""The memory of the web chat, which is its own platform: conversations, what was said in them, and files.

A port; what stands behind it is `gateway.store.archive`. Ids of conversations and of people's messages are made by the
page. A message's number grows with each one kept, over all conversations: who has seen number 17 asks for those above.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from channels.abilities import ToolUse
from channels.message import Button, File, StoredFile, TurnFacts
from channels.web.admission import OPERATOR


@dataclass(frozen=True, kw_only=True, slots=True)
class Conversation:
    """`at` is when something was last said in it; `owner` is the person who sees it."""

    id: str
    title: str
    agent: str
    at: float
    owner: str


@dataclass(frozen=True, kw_only=True, slots=True)
class MessageBody:
    """The text, files and tools of a message. `reply_to` is the person's message that an agent's one answers. `dropped`: it
    says nothing but that that message gets no answer. `place` is the number of the message that it took the place of."""

    text: str
    agent: str
    reply_to: str | None = None
    files: tuple[StoredFile, ...] = ()
    tools: tuple[ToolUse, ...] = ()
    dropped: bool = False
    buttons: tuple[Button, ...] = ()
    place: int | None = None
    turn: TurnFacts | None = None


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


class ChatHistory(Protocol):
    """Every method is one commit and raises what the store raises where the database does not take it."""

    async def keep(
        self, chat: str, key: str, words: MessageBody, at: float, *, owner: str = OPERATOR
    ) -> Conversation | None:
        """What a person said, unless its key is known; its conversation is made with the first message, and its files
        belong to that from now on. None where the conversation is somebody else's."""

    async def answer(self, chat: str, key: str, words: MessageBody, at: float) -> bool:
        """What an agent said, unless its key is known; False where there is no such conversation."""

    async def replace(self, chat: str, key: str, text: str, buttons: tuple[Button, ...]) -> bool:
        """Lets an agent's message say something else, under a new number and in its old place; nothing where it says that
        already. False where it is not there."""

    async def conversations(self, owner: str = OPERATOR) -> Sequence[Conversation]:
        """A person's; where something was said last comes first, a page's worth."""

    async def says(self, chat: str, words: str) -> bool:
        """Whether the words, which are casefolded, stand in a message of the conversation."""

    async def conversation(self, chat: str) -> Conversation | None: ...

    async def rename(self, chat: str, title: str) -> Conversation | None: ...

    async def agents(self, chat: str) -> Sequence[str]:
        """Everybody who was talked to in a conversation, whether configured still or not."""

    async def newest_turn(self, session: str) -> int:
        """The number of the newest message that was accepted in a session, 0 without any."""

    async def erase(self, chat: str, sessions: Sequence[str]) -> bool:
        """Forget a conversation: messages, files, and of its `sessions` the transcripts, the replies and the messages that
        wait for nothing any more. False where there is none."""

    async def page(self, chat: str, *, before: int | None, limit: int, bytes_max: int) -> Sequence[Sized]:
        """The newest messages of a conversation, below number `before`; newest first. Those that pass `bytes_max` together
        are followed by one more at most."""

    async def since(self, number: int, owner: str = OPERATOR, *, limit: int, bytes_max: int) -> Sequence[Sized]:
        """Messages of all conversations of a person above `number`, in order. Those that pass `bytes_max` together are
        followed by one more at most."""

    async def messages(self, numbers: Sequence[int]) -> Sequence[WebMessage]:
        """Those of the messages that there are, in order."""

    async def last(self) -> int:
        """The number of the newest message, 0 where there is none."""

    async def put(self, file: File, at: float) -> StoredFile:
        """Keep a file of an agent's. One that comes into no conversation within a day is thrown away."""

    async def upload(self, file: File, at: float, *, bytes_max: int, owner: str = OPERATOR) -> StoredFile | None:
        """Keep a person's file until it is sent, for a day. None where all his that wait would be more than `bytes_max`."""

    async def waiting_bytes(self, owner: str = OPERATOR) -> int:
        """Of a person's uploads that are not sent."""

    async def discard(self, key: str, owner: str = OPERATOR) -> bool:
        """Forget a person's upload. False where it is not there, or sent."""

    async def prune(self, at: float) -> None:
        """Deletes files that no conversation has used within a day."""

    async def file(self, key: str) -> tuple[StoredFile, bytes] | None:
        """The file whose id is `key`."""

    async def piece(self, key: str, at: int, size: int) -> bytes:
        """At most `size` bytes of it, from byte `at` on; nothing where it is gone."""

    async def files(self, keys: Sequence[str], owner: str = OPERATOR) -> Sequence[StoredFile]:
        """Those of the files that there are in a person's conversations and uploads, in their order."""
