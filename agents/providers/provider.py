"""The port of a model provider: one request in, a stream of events out that always ends with `Done`.

A provider never raises for the model's or the network's trouble: the final message says `error` or `aborted` and
carries a `ModelError`. It makes one attempt; `agents.providers.retry` repeats. Cancelling the task closes the stream.
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
    """The system prompt, cut at the cache boundary. `stable` is equal from turn to turn, byte for byte. `sections` are the
    parts that both are made of, in order; all but the first begin with their heading."""

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
    """A finished turn as all later requests hold it. The first of a chat keeps what was made of it and those behind it, and
    names them by their serials: if it held them, it would hold itself, and memory would wait for the collector."""

    def __init__(self, messages: object = ()) -> None:
        self.serial = next(_serials)
        self.forms: dict[Hashable, tuple[Sequence[int], Any]] = {}


_serials = count()
_SERIAL: Callable[[SentTurn], int] = attrgetter("serial")


def grown(turns: Sequence[SentTurn], key: Hashable, start: T, add: Callable[[T, Sequence[SentTurn]], T]) -> T:
    """The value that `add` makes of the turns, beginning with `start`. While the chat is kept, it is asked about new turns
    alone; `key` says all else that the result depends on. The result holds none of these turns."""
    if not turns:
        return start
    forms, serials = turns[0].forms, tuple(map(_SERIAL, turns))
    done: Sequence[int]
    value: T
    done, value = forms.get(key, ((), start))
    if serials[: len(done)] != done:
        done, value = (), start
    if len(done) < len(turns):
        if len(forms) >= FORMS_MAX:  # a fallback's, a model's of before
            forms.clear()
        value = add(value, turns[len(done) :])
        forms[key] = serials, value
    return value


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelRequest:
    """A question to a model. `messages` is repaired and ready; `model` is the name without its provider. It begins with
    the turns of `settled`: each of them begins with a person, ends with an answer, and shares no call's id with the
    rest. `thinking` is one of the levels the model takes, or None to leave it to the model. `conversation` names the
    chat to caches and key rings: the same from turn to turn, and nothing that tells who it is."""

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
        """The messages behind the settled turns."""
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
    """The end of every stream, good or bad."""

    message: AssistantMessage


ModelEvent: TypeAlias = TextDelta | ThinkingDelta | ToolCallStart | ToolCallDelta | ToolCallEnd | Done


class Provider(Protocol):
    name: str
    """The key under `providers:` in the config."""
    api: str
    """The wire it speaks, such as `anthropic-messages`."""

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """One attempt. Raises nothing but CancelledError; the last event is `Done`."""

    async def warm_up(self) -> None:
        """Import and build what the first request needs, so that it need not wait."""

    async def close(self) -> None: ...
