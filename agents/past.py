"""The past of a chat: its finished turns as later requests hold them, and what each takes.

Most of a long chat is the same in every request: such a turn is made once, and what is reckoned of it is reckoned once.
Pure.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from agents.messages import AssistantMessage, Message, Text, ToolResultMessage, UserMessage, holds_external, with_parts
from agents.providers.provider import SentTurn
from agents.tokens import texts_of, tokens
from agents.truncate import shortened
from channels.marks import NOTE
from tools.tool import Image, NativeDocument

MESSAGE_BYTES = 800
"""The memory that a message takes besides its text, as an object and as JSON, measured."""
IMAGE_TURNS = 3
"""A picture is shown in its own turn and in the two behind it."""


class PastTurn(SentTurn):
    """A finished turn without metadata and old pictures. `is_final_form`: all later requests hold it so."""

    is_final_form = False

    @cached_property
    def size(self) -> int:
        """The bytes in memory, roughly: as messages and as a request has them."""
        chars = sum(len(text) for message in self for text in texts_of(message))
        return 2 * chars + MESSAGE_BYTES * len(self)

    @cached_property
    def sizes(self) -> list[int]:
        return [tokens(message) for message in self]

    @cached_property
    def tokens(self) -> int:
        return sum(self.sizes)

    @cached_property
    def result_chars(self) -> int:
        return chars_of_results(self)

    @cached_property
    def is_external(self) -> bool:
        """True if it holds external content."""
        return holds_external(self)

    @cached_property
    def units(self) -> int:
        """The number of its units, as a `Truncation` counts them (`agents.context`)."""
        return 1 + sum(isinstance(message, AssistantMessage) for message in self)

    @cached_property
    def reaches(self) -> bool:
        """True if an answer carries the reach of its request."""
        return any(isinstance(message, AssistantMessage) and message.reach is not None for message in self)


def past(turns: Sequence[Sequence[Message]]) -> list[PastTurn]:
    """Finished turns as later requests hold them: without metadata and documents, and after some turns without pictures."""
    if {PastTurn}.issuperset(map(type, turns)):  # at the speed of C: that is all of a long chat, as a rule
        return list(turns)  # type: ignore[arg-type]
    old = len(turns) + 1 - IMAGE_TURNS
    return [it if isinstance(it, PastTurn) else _past_turn(it, is_old=at < old) for at, it in enumerate(turns)]


def _past_turn(turn: Sequence[Message], *, is_old: bool) -> PastTurn:
    bare = (bared(it) if isinstance(it, UserMessage) and it.metadata else it for it in turn)
    shown = PastTurn(excerpt(message, None) if is_old else _without_documents(message) for message in bare)
    shown.is_final_form = is_old or not any(isinstance(part, Image) for message in shown for part in message.content)
    return shown


def bared(message: UserMessage) -> UserMessage:
    """The message without its metadata, and without the mark of external content that left with it."""
    return replace(message, metadata="", external="" if message.external == "metadata" else message.external)


def _without_documents(message: Message) -> Message:
    """A document is shown in its own turn alone: each page costs as much as a page of the conversation, or two."""
    if not isinstance(message, UserMessage):
        return message
    parts = (Text(text=it.text) if isinstance(it, NativeDocument) else it for it in message.content)
    return with_parts(message, [*parts])


def excerpt(message: Message, chars: int | None) -> Message:
    """A user's message or a result without its pictures and documents, and with no more of each text than `chars`."""
    if isinstance(message, AssistantMessage):
        return message
    parts: list[Text | Image] = []
    for part in message.content:
        if isinstance(part, NativeDocument):
            part = Text(text=part.text)
        elif isinstance(part, Image):
            part = Text(text=f"[image: {part.name or 'not shown'}]")
        elif chars is not None and len(part.text) > chars:
            left = f"{NOTE} leaves out {len(part.text) - chars:,} more characters of this message here.)"
            is_result = isinstance(message, ToolResultMessage)
            part = Text(text=shortened(part.text, chars) if is_result else f"{part.text[:chars]}\n\n{left}")
        parts.append(part)
    return with_parts(message, parts)


def chars_of_results(messages: Sequence[Message]) -> int:
    results = (message for message in messages if isinstance(message, ToolResultMessage))
    return sum(len(part.text) for result in results for part in result.content if isinstance(part, Text))
