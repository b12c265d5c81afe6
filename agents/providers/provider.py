"""The port of a model provider: one request in, a stream of events out that always ends with `Done`.

A provider never raises for the model's or the network's trouble: the final message says `error` or `aborted` and
carries a `ModelError`. It makes one attempt; repeating is the business of `agents.providers.retry`. Cancelling the
task closes the stream.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from agents.messages import AssistantMessage, Message, ToolCall
from agents.providers.models import UNKNOWN, Level, ModelFacts
from tools.tool import ToolSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class System:
    """The system prompt, cut at the cache boundary. `stable` is equal from turn to turn, byte for byte."""

    stable: str
    volatile: str


@dataclass(frozen=True, kw_only=True, slots=True)
class OneTool:
    """Exactly this tool must be called."""

    name: str


ToolChoice: TypeAlias = Literal["auto", "none", "required"] | OneTool


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelRequest:
    """What a model is asked. `messages` is repaired and ready; `model` is the name without its provider.

    `thinking` is one of the levels the model takes, or None to leave it to the model. `conversation` names the chat to
    caches and key rings: the same from turn to turn, and nothing that tells who it is.
    """

    model: str
    facts: ModelFacts = UNKNOWN
    system: System
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = "auto"
    thinking: Level | None = None
    max_tokens: int = 8192
    conversation: str = ""


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
