"""The messages of people, models and tools: one history for every provider.

Three roles, tagged parts, frozen. Order inside a message matters (thinking, text, call, text), so content is one
list. A provider's own payload travels whole in `wire` and goes back only to the api and model family that made it.
The system prompt and the tools are not messages.
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
    """A provider's own block, untouched: opaque to everyone else."""

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
    """A reasoning block. `text` is for people and may be empty; `wire` is what the provider wants back."""

    text: str
    wire: Wire | None = None
    type: Literal["thinking"] = "thinking"


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCall:
    """A call as the model made it. `arguments` is None if `arguments_raw` is not a JSON object."""

    id: str
    name: str
    arguments: dict[str, Any] | None
    arguments_raw: str
    wire: Wire | None = None
    type: Literal["toolCall"] = "toolCall"


@dataclass(frozen=True, kw_only=True, slots=True)
class Opaque:
    """A block only its provider understands, needed to continue a paused turn."""

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
        """True if the provider reported usage; an attempt that failed leaves zeros."""
        return bool(self.input or self.cache_read or self.cache_write or self.output)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelError:
    """The reason why a response failed. `summary` is for the log: status, type and ids, never the provider's prose.
    That is in `words`, cut, and for the operator alone: it may quote what a person wrote."""

    kind: ErrorKind
    summary: str
    retryable: bool
    retry_after_seconds: float | None = None
    words: str = ""


External: TypeAlias = Literal["", "metadata", "content"]
"""The part of a message that holds external content: `metadata` leaves the history with the message's turn."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UserMessage:
    """A person's message. `metadata` holds the inbound blocks; they are before the content while the message's
    turn runs and are dropped from every later request (`agents.context`). `external` says which of them holds words that are
    not the sender's own. `quoted`: the ids of the messages that it answers and whose files came with it."""

    content: tuple[UserPart, ...]
    metadata: str = ""
    external: External = ""
    quoted: tuple[str, ...] = ()
    timestamp: float = 0.0
    role: Literal["user"] = "user"

    @property
    def is_external(self) -> bool:
        """True if the content holds external content."""
        return self.external == "content" or any(FENCE in it for it in texts(self))

    @property
    def sent_parts(self) -> tuple[UserPart, ...]:
        """The content as a provider sends it, with the metadata before its first text, in the same text."""
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
    """The cost at the configured prices; None without them."""
    reach: tuple[int, int, int] | None = None
    """The reach of its request into what stood before it (`agents.context`); None if that was whole."""
    response_id: str | None = None
    timestamp: float = 0.0
    role: Literal["assistant"] = "assistant"

    @property
    def text(self) -> str:
        """The text of the answer, without thinking and calls."""
        return "".join(texts(self))

    @property
    def reference(self) -> str:
        """The model that made it, as `provider/model`."""
        return f"{self.provider}/{self.model}"

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(part for part in self.content if isinstance(part, ToolCall))


EXTERNAL = "external"
"""The member of a result's details that says that it holds external content: an excerpt of it may lack the fence."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolResultMessage:
    """The answer to one call, paired by `call_id`. `details` is for programs and is never sent to a model."""

    call_id: str
    tool: str
    content: tuple[UserPart, ...]
    is_error: bool = False
    details: dict[str, Any] | None = None
    timestamp: float = 0.0
    role: Literal["toolResult"] = "toolResult"

    @property
    def is_external(self) -> bool:
        """True if it holds external content."""
        return bool((self.details or {}).get(EXTERNAL)) or any(FENCE in it for it in texts(self))

    @property
    def sources(self) -> tuple[str, ...]:
        """The older texts that it repeats, as `tools.tool` names them."""
        return tuple((self.details or {}).get(SOURCES, ()))

    @property
    def withdrawn(self) -> "ToolResultMessage":
        """The result without its content, once something that it repeats was recalled or erased."""
        text = Text(text=f"{RESULT_GONE}: it repeated something that has been taken back or erased.)")
        kept = {name: it for name, it in (self.details or {}).items() if name in ("id", "state", EXTERNAL)}
        return replace(self, content=(text,), details=kept or None)


Message: TypeAlias = Annotated[UserMessage | AssistantMessage | ToolResultMessage, Field(discriminator="role")]


def holds_external(messages: "Iterable[Message]") -> bool:
    """Return whether later requests that hold these messages hold external content."""
    return any(not isinstance(it, AssistantMessage) and it.is_external for it in messages)


def begins_external(messages: "Iterable[Message]") -> bool:
    """Return whether the request of the messages' own turn holds external content, in their metadata too."""
    return any(
        it.is_external or (isinstance(it, UserMessage) and it.external != "")
        for it in messages
        if not isinstance(it, AssistantMessage)
    )


def texts(message: "UserMessage | AssistantMessage | ToolResultMessage") -> list[str]:
    return [part.text for part in message.content if isinstance(part, Text)]


M = TypeVar("M", bound="UserMessage | AssistantMessage | ToolResultMessage")


def same(parts: Sequence[object], others: Sequence[object]) -> bool:
    """True if they are the very same objects."""
    return len(parts) == len(others) and all(map(operator.is_, parts, others))


def with_parts(message: M, parts: Sequence[Any]) -> M:
    """The message with this content; the same object if that is its own."""
    content: Any = tuple(parts)
    return message if same(parts, message.content) else replace(message, content=content)


message_json: TypeAdapter[Message] = TypeAdapter(Message)
"""The form in which the journal writes and reads a message: `dump_json` and `validate_json`."""
