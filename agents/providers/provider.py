"""The port of a model provider: one request in, a stream of events out that always ends with `Done`.

A provider never raises for model or network errors: the final message says `error` or `aborted` and has a
`ModelError`. It makes one attempt; `agents.providers.retry` retries. Cancelling the task closes the stream.
"""

from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import count
from operator import attrgetter
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from agents.messages import AssistantMessage, Message, ToolCall
from agents.providers.models import UNKNOWN, Level, ModelFacts
from tools.tool import ToolSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class System:
    """The system prompt, split at the cache boundary. `stable` has the same bytes from turn to turn. `sections` are
    the parts of both, in order; all but the first begin with their heading."""

    stable: str
    volatile: str
    sections: tuple[tuple[str, ...], tuple[str, ...]] = field(default=((), ()), compare=False, repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class OneTool:
    """Exactly this tool must be called."""

    name: str


ToolChoice: TypeAlias = Literal["auto", "none", "required"] | OneTool


FORMS_MAX = 4
T = TypeVar("T")


class SentTurn(tuple[Message, ...]):
    """A finished turn as all later requests hold it. A chat's first turn caches values computed from the chat's turns.
    It stores their serials instead of the turns, to avoid a reference cycle."""

    def __init__(self, messages: object = ()) -> None:
        self.serial = next(_serials)
        self.forms: dict[Hashable, tuple[Sequence[int], Any]] = {}


_serials = count()
_SERIAL: Callable[[SentTurn], int] = attrgetter("serial")


def grown(turns: Sequence[SentTurn], key: Hashable, start: T, add: Callable[[T, Sequence[SentTurn]], T]) -> T:
    """Fold the turns with `add`, from `start`, and cache the value, so that later calls add only new turns. `key`
    holds everything else that the value depends on. The value must not hold the turns."""
    if not turns:
        return start
    forms, serials = turns[0].forms, tuple(map(_SERIAL, turns))
    done: Sequence[int]
    value: T
    done, value = forms.get(key, ((), start))
    if serials[: len(done)] != done:
        done, value = (), start
    if len(done) < len(turns):
        if len(forms) >= FORMS_MAX:  # of fallbacks and former models
            forms.clear()
        value = add(value, turns[len(done) :])
        forms[key] = serials, value
    return value


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelRequest:
    """A request to a model. `messages` is repaired and ready; `model` has no provider prefix. The messages begin with
    the turns of `settled`, each of which begins with a user, ends with an answer, and shares no call id with the rest.
    `thinking` is a level that the model supports, or None for its default. `conversation` is a stable pseudonym of the
    chat for caches and key rings."""

    model: str
    facts: ModelFacts = UNKNOWN
    system: System
    messages: tuple[Message, ...]
    settled: tuple[SentTurn, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = "auto"
    thinking: Level | None = None
    max_tokens: int = 8192
    conversation: str = ""

    @property
    def unsettled(self) -> tuple[Message, ...]:
        """Return the messages after the settled turns."""
        return self.messages[sum(map(len, self.settled)) :]


@dataclass(frozen=True, kw_only=True, slots=True)
class TextDelta:
    index: int
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ThinkingDelta:
    index: int
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCallStart:
    index: int
    id: str
    name: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCallDelta:
    index: int
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCallEnd:
    index: int
    call: ToolCall


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """The end of every stream, on success or failure."""

    message: AssistantMessage


ModelEvent: TypeAlias = TextDelta | ThinkingDelta | ToolCallStart | ToolCallDelta | ToolCallEnd | Done


class Provider(Protocol):
    name: str
    """The key under `providers:` in the config."""
    api: str
    """The API it speaks, such as `anthropic-messages`."""

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Make one attempt. Raises only CancelledError; the last event is `Done`."""

    async def warm_up(self) -> None:
        """Import and build what the first request would wait for."""

    async def close(self) -> None: ...
