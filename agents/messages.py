"""Messages of users, models and tools: one history format for every provider.

Three roles, tagged parts, frozen. Part order matters (thinking, text, call, text), so content is one list. A
provider's own payload is kept whole in `wire` and sent back only to the API and model family that made it. The system
prompt and the tools are not messages.
"""

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import Field, TypeAdapter

from agents.prompt.fences import FENCE
from channels.marks import RESULT_GONE
from tools.tool import SOURCES, Image, NativeDocument

StopReason: TypeAlias = Literal[
    "end_turn",
    "tool_use",
    "stop_sequence",
    "max_tokens",
    "context_window",
    "refusal",
    "content_filter",
    "pause",
    "error",
    "aborted",
]

ErrorKind: TypeAlias = Literal[
    "auth",  # 401, 403: the operator's configuration
    "billing",  # 402, or a spent quota
    "invalid",  # 400 and kin: our request was refused
    "not_found",  # no such model
    "too_large",  # the conversation does not fit the model's window
    "message_too_long",  # what a person wrote does not fit by itself: nothing was sent
    "stale_thinking",  # earlier reasoning that was sent back was refused: try again without it
    "no_tools",  # the model takes no tools: they can be offered by prompt
    "rate_limited",  # 429
    "overloaded",  # 503, 529
    "server",  # 5xx
    "network",  # no connection, or it broke
    "timeout",
    "incomplete",  # the stream ended without its end event, or could not be read
    "unconfigured",  # no key, no such provider: nothing was sent
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Wire:
    """A provider's own block, unmodified and opaque to everyone else."""

    api: str
    family: str
    kind: str
    data: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Text:
    text: str
    wire: Wire | None = None
    type: Literal["text"] = "text"


@dataclass(frozen=True, kw_only=True, slots=True)
class Thinking:
    """A reasoning block. `text` is for display and may be empty; `wire` is what the provider expects back."""

    text: str
    wire: Wire | None = None
    type: Literal["thinking"] = "thinking"


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCall:
    """A tool call. `arguments` is None if `arguments_raw` is not a JSON object."""

    id: str
    name: str
    arguments: dict[str, Any] | None
    arguments_raw: str
    wire: Wire | None = None
    type: Literal["toolCall"] = "toolCall"


@dataclass(frozen=True, kw_only=True, slots=True)
class Opaque:
    """A provider-specific block, needed to continue a paused turn."""

    wire: Wire
    type: Literal["opaque"] = "opaque"


UserPart: TypeAlias = Annotated[Text | Image | NativeDocument, Field(discriminator="type")]
AssistantPart: TypeAlias = Annotated[Text | Thinking | ToolCall | Opaque, Field(discriminator="type")]


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Tokens. `input` excludes both caches; `output` includes reasoning."""

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0
    estimated: bool = False

    @property
    def is_reported(self) -> bool:
        """Return whether the provider reported usage; failed attempts leave zeros."""
        return bool(self.input or self.cache_read or self.cache_write or self.output)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelError:
    """The error of a response. `summary` is for the log: status, type and ids, never the provider's prose. `words` has
    that prose, cut; it is for the operator alone, since it may quote a user."""

    kind: ErrorKind
    summary: str
    retryable: bool
    retry_after_seconds: float | None = None
    words: str = ""


External: TypeAlias = Literal["", "metadata", "content"]
"""The part of a message that holds external content; `metadata` is dropped after the message's turn."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UserMessage:
    """A user's message. `metadata` holds the inbound blocks, sent before the content during the message's turn and
    dropped from later requests (`agents.context`). `external` says which of the two holds content by other authors.
    `quoted`: the ids of the quoted messages whose files it includes."""

    content: tuple[UserPart, ...]
    metadata: str = ""
    external: External = ""
    quoted: tuple[str, ...] = ()
    timestamp: float = 0.0
    role: Literal["user"] = "user"

    @property
    def is_external(self) -> bool:
        return self.external == "content" or any(FENCE in it for it in texts(self))

    @property
    def sent_parts(self) -> tuple[UserPart, ...]:
        """Return the content to send, with the metadata prepended to its first text."""
        if not self.metadata.strip():
            return self.content
        place = next((n for n, part in enumerate(self.content) if isinstance(part, Text)), None)
        if place is None:
            return (Text(text=self.metadata), *self.content)
        first = Text(text=f"{self.metadata}\n\n{self.content[place].text}")  # type: ignore[union-attr]
        return (*self.content[:place], first, *self.content[place + 1 :])


@dataclass(frozen=True, kw_only=True, slots=True)
class AssistantMessage:
    content: tuple[AssistantPart, ...]
    provider: str
    model: str
    api: str
    stop_reason: StopReason
    usage: Usage = Usage()
    error: ModelError | None = None
    cost: float | None = None
    """The cost at the configured prices, if there are any."""
    reach: tuple[int, int, int] | None = None
    """The truncation of its request (`agents.context`); None if the request was complete."""
    response_id: str | None = None
    timestamp: float = 0.0
    role: Literal["assistant"] = "assistant"

    @property
    def text(self) -> str:
        """Return the text without thinking and calls."""
        return "".join(texts(self))

    @property
    def reference(self) -> str:
        """Return the model as `provider/model`."""
        return f"{self.provider}/{self.model}"

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(part for part in self.content if isinstance(part, ToolCall))


EXTERNAL = "external"
"""A key of a result's details: the result holds external content, even if an excerpt of it lacks the fence."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolResultMessage:
    """The result of one call, paired by `call_id`. `details` is for programs and never sent to a model."""

    call_id: str
    tool: str
    content: tuple[UserPart, ...]
    is_error: bool = False
    details: dict[str, Any] | None = None
    timestamp: float = 0.0
    role: Literal["toolResult"] = "toolResult"

    @property
    def is_external(self) -> bool:
        return bool((self.details or {}).get(EXTERNAL)) or any(FENCE in it for it in texts(self))

    @property
    def sources(self) -> tuple[str, ...]:
        """Return the older texts that it repeats (see `tools.tool`)."""
        return tuple((self.details or {}).get(SOURCES, ()))

    @property
    def withdrawn(self) -> "ToolResultMessage":
        """Return the result without its content, for when a text that it repeats was recalled or erased."""
        text = Text(text=f"{RESULT_GONE}: it repeated something that has been taken back or erased.)")
        kept = {name: it for name, it in (self.details or {}).items() if name in ("id", "state", EXTERNAL)}
        return replace(self, content=(text,), details=kept or None)


Message: TypeAlias = Annotated[UserMessage | AssistantMessage | ToolResultMessage, Field(discriminator="role")]


def holds_external(messages: "Iterable[Message]") -> bool:
    """Return whether these messages put external content into later requests."""
    return any(not isinstance(it, AssistantMessage) and it.is_external for it in messages)


def begins_external(messages: "Iterable[Message]") -> bool:
    """Return whether these messages put external content into their own turn's request, metadata included."""
    return any(
        it.is_external or (isinstance(it, UserMessage) and it.external != "")
        for it in messages
        if not isinstance(it, AssistantMessage)
    )


def texts(message: "UserMessage | AssistantMessage | ToolResultMessage") -> list[str]:
    return [part.text for part in message.content if isinstance(part, Text)]


M = TypeVar("M", bound="UserMessage | AssistantMessage | ToolResultMessage")


def same(parts: Sequence[object], others: Sequence[object]) -> bool:
    """Return whether both hold identical objects (`is`)."""
    return len(parts) == len(others) and all(map(operator.is_, parts, others))


def with_parts(message: M, parts: Sequence[Any]) -> M:
    """Return the message with this content, or the message itself if nothing changed."""
    content: Any = tuple(parts)
    return message if same(parts, message.content) else replace(message, content=content)


message_json: TypeAdapter[Message] = TypeAdapter(Message)
"""The journal's format: `dump_json` and `validate_json`."""
