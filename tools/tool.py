"""The port of a tool, and what passes through it: arguments in, a result out.

A tool is one object per turn. Its `spec` says what it is called, what it takes and what a crash in the middle of it would
mean; `parse` checks a call's arguments, by a pydantic model or by a foreign schema. `Toolbox` runs it and turns every
mistake into a result the model can act on. Approval and policy are not here.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from channels.message import MessageContext

Effect: TypeAlias = Literal["safe", "keyed", "once"]
"""What a second run would do. `safe`: only reads. `keyed`: repeats harmlessly under the same idempotency key.
`once`: may have happened, so after a crash it is never run again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """A picture for the model. `data` is base64; `media_type` is what the bytes are, not what the name says."""

    media_type: str
    data: str
    name: str | None = None
    type: Literal["image"] = "image"


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolResult:
    """What a call gave: `content` for the model, `details` for programs (never sent to a model)."""

    content: tuple[str | Image, ...]
    details: Mapping[str, Any] = field(default_factory=dict)
    is_error: bool = False


class ToolError(Exception):
    """A call that failed in a way the model can act on.

    `code` stands literally in the result (`INVALID_ARGUMENT`, `NOT_FOUND`, `EXEC_DENIED`, …); `message` says what to
    do about it and shows nothing from outside the workspace.
    """

    def __init__(self, code: str, message: str, *, retryable: bool = False, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retryable = retryable
        self.details = details

    @property
    def body(self) -> str:
        """As a model reads it: `error` for models that know OpenAI's form, the other members for all."""
        sentence = f"{self.code.replace('_', ' ').capitalize()}: {self.message}"
        body = {"ok": False, "error": sentence, "error_code": self.code, "message": self.message}
        return json.dumps(body | {"retryable": self.retryable}, ensure_ascii=False)


def failed(error: ToolError) -> ToolResult:
    return ToolResult(content=(error.body,), details=error.details, is_error=True)


class Messenger(Protocol):
    """How a tool sends to a chat; the gateway supplies it."""

    async def send(
        self, *, channel: str, account: str, chat: str, thread: str | None, text: str, key: str, begun_at: float | None
    ) -> str:
        """Send `text` at once, split as the channel needs, and return the platform's id of the first part.

        Raises `ToolError` where the channel is unknown or the platform did not take it. The same `key` never makes
        a second message where the platform dedupes; elsewhere a send that an earlier run may have done, at `begun_at`,
        is not repeated.
        """


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """The circumstances of one call. `key` is the same however often the call is repeated."""

    id: str
    key: str
    message: MessageContext
    """The message that the running turn answers."""
    begun_at: float | None = None
    """When an earlier run of this call began, which a restart cut short; None where this is the first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolSpec:
    """A tool as models and prompts see it. `input_schema` is in the house form: closed object, no `$ref`, no unions, no
    defaults, optional members simply not in `required`. Of an `effect` that nobody declares the worst is assumed."""

    name: str
    summary: str
    """One line for the prompt's list."""
    description: str
    """For the model, in the request's tool list: what it does, limits, what it answers."""
    input_schema: Mapping[str, Any] = field(hash=False)
    effect: Effect = "once"


class Tool(Protocol):
    """One thing an agent can do."""

    @property
    def spec(self) -> ToolSpec: ...

    def parse(self, raw: Mapping[str, Any]) -> Any:
        """The arguments of a call, checked, in the form that `run` takes. Raises `ToolError`."""

    async def run(self, arguments: Any, call: Call) -> ToolResult:
        """Do it. `arguments` is what `parse` returned. Raises `ToolError`."""
