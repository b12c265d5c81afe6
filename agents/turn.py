"""A turn: the message to answer, its limits, its events and its outcome: replied, silent by choice, refused by the
model, or failed with a sentence. There is always an outcome.

Events are optional: a turn never depends on one. What must survive a crash goes through the journal.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol, TypeAlias

from pydantic import Field, TypeAdapter

from agents.messages import AssistantMessage, Message, ModelError, ToolCall, ToolResultMessage, UserMessage
from agents.providers.models import Level
from agents.providers.provider import ModelEvent, ModelRequest, System
from channels.message import MessageContext
from channels.section import Section, ToolLists

Amount = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]


class TurnLimits(Section):
    """Part of the config's `limits`."""

    rounds: Amount = 60
    """Model requests in one turn."""
    continuations: Annotated[int, Field(ge=0)] = 3
    """The number of times a model is asked to continue an answer that its output limit cut."""
    tool_calls: Amount = 60
    """Tool calls in one turn; further ones are refused, and the model must answer with what it has."""
    turn_seconds: Seconds = 600
    """The duration of one turn, including tools and waiting."""
    acp_idle_seconds: Seconds = 900
    """Idle seconds after which the program behind an agent with `runner.acp` is ended; the next message starts it again."""
    identical_failures: Amount = 3
    """Failures of one call with the same arguments that end the turn."""
    message_chars: Amount = 20_000
    """The characters of one message that the model sees; a note says what was cut."""
    document_seconds: Seconds = 20
    """Seconds that reading pages of one PDF, Office file or e-book may take; 256 MiB of memory in any case."""
    tool_argument_bytes: Amount = 65_536
    """The maximum size of one call's arguments."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """A user's choices for a conversation, until it is reset. `model` is a `provider/model` that the config names;
    None and the empty text mean the config's value."""

    model: str = ""
    thinking: Level | None = None
    reasoning: bool = False
    verbose: bool = False


settings_json: TypeAdapter[Settings] = TypeAdapter(Settings)


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """`history`: the finished turns, oldest first; `so_far`: this turn's journal after its user message; `summary`:
    what replaces the turns before `history`, if any. `capabilities` and `directives` describe the channel in the
    prompt; `actions` are what the `message` tool can do there. `layers` remove tools (`tools.policy`). `interrupted`:
    a process died during the turn. `with_owner`: a direct chat with an owner; `sees_private`: everyone in the chat may
    read the workspace's private files."""

    context: MessageContext
    session: str
    capabilities: tuple[str, ...]
    directives: tuple[str, ...]
    history: Sequence[Sequence[Message]]
    user: UserMessage
    actions: tuple[str, ...] = ()
    so_far: Sequence[Message] = ()
    interrupted: bool = False
    with_owner: bool = False
    sees_private: bool = False
    layers: tuple[ToolLists, ...] = ()
    settings: Settings = Settings()
    summary: str = ""
    summary_external: bool = False
    """True if the summarised turns hold external content."""
    again: tuple[str, ...] = ()
    """Distinguishes this turn from earlier ones about the same message; empty the first time."""
    summarised: tuple[AssistantMessage, ...] | None = None
    """The answers that an already journaled summary of this turn took; None if there is no summary."""
    tainted: bool = False
    """True if it begins with external content, or continues a turn that has read some."""
    several: bool = False
    """True if it answers several people."""
    caller: str = ""
    """The system prompt sent by the calling program."""
    groups: tuple[str, ...] = ()
    """The remembered groups whose messages it may read."""
    files_of: str = ""
    """The conversation that owns its files and background commands, if not this one."""
    reports_ends: bool = True
    """False if `process` refuses `notify`: in a task's turn, and where a program asks."""

    @property
    def key(self) -> str:
        """Identify the turn in its tool calls' idempotency keys; repeated turns about one message differ."""
        context = self.context
        return ":".join((context.channel, context.account, context.chat.id, context.message_id, *self.again))


TurnLimit: TypeAlias = Literal["rounds", "turn-time", "repeating", "pauses", "empty", "cut"]
"""The limit that ended the turn. `empty`: the model had nothing to say, twice. `cut`: its output limit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """`message` is the model's last, not yet journaled; None if `before` is the whole text. `before`: the text of
    truncated answers that were continued. `cut`: the text is still incomplete."""

    message: AssistantMessage | None
    before: str = ""
    cut: bool = False

    @property
    def text(self) -> str:
        return self.before + (self.message.text if self.message else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Declined:
    """The model's safety system refused. Later requests leave the turn out, or they would be refused too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFailed:
    """`model` is the `provider/model` that failed, if one was called."""

    error: ModelError
    model: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class LimitReached:
    limit: TurnLimit


@dataclass(frozen=True, kw_only=True, slots=True)
class RunnerFailed:
    """The program behind the agent did not answer; `reason` is for the operator, and may have its last line of errors."""

    reason: str


Payer: TypeAlias = Literal["agent", "chat", "sender"]
Period: TypeAlias = Literal["day", "month"]


@dataclass(frozen=True, kw_only=True, slots=True)
class OverBudget:
    """The payer's budget for the period is spent. `until`: when the next one starts, a time for a day and a day for a
    month."""

    whose: Payer
    period: Period
    until: str


class Budget(Protocol):
    """Limits what a turn may spend."""

    answers: list[AssistantMessage]
    """Answers that took tokens, in order, including failures and summaries. Append to it to count an answer."""

    async def exhausted(self) -> OverBudget | None:
        """Called before each request. Raises what the journal raises."""


Outcome: TypeAlias = Answered | Declined | ModelFailed | RunnerFailed | LimitReached | OverBudget


Compaction: TypeAlias = Literal["none", "summarised", "failed"]
"""Says whether older turns were summarised, or should have been and were not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnResult:
    """`answers`: those that took tokens. `tainted`: the turn has read external content."""

    outcome: Outcome
    answers: tuple[AssistantMessage, ...] = ()
    compaction: Compaction = "none"
    tainted: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnStarted:
    """The prompt and the user's message are ready; no model has been called yet."""

    agent: str
    turn: Turn
    system: System


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelCalled:
    """`held` counts the earlier turns in the request, `own` the turn's own messages; `summary`: the request has a
    summary."""

    round: int
    provider: str
    request: ModelRequest
    held: int = 0
    own: int = 0
    summary: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelStreamed:
    """A streamed piece of the answer. After a failed attempt the next `attempt` starts empty."""

    round: int
    event: ModelEvent


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelRetried:
    """The attempt failed with `error`; the next follows after `seconds`."""

    round: int
    error: ModelError
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelAnswered:
    round: int
    message: AssistantMessage


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolStarted:
    call: ToolCall


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolAdvanced:
    """`progress` is a line from the tool about its progress."""

    call: ToolCall
    progress: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolReturned:
    """The call has run. In a concurrent batch its result is journaled later."""

    call: ToolCall


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolFinished:
    """`chars` is the length of the full result; `cut`: the model gets less."""

    result: ToolResultMessage
    chars: int = 0
    cut: bool = False


TurnEvent: TypeAlias = (
    TurnStarted
    | ModelCalled
    | ModelStreamed
    | ModelRetried
    | ModelAnswered
    | ToolStarted
    | ToolAdvanced
    | ToolReturned
    | ToolFinished
)
Emit: TypeAlias = Callable[[TurnEvent], None]


def silent(event: TurnEvent) -> None:
    """Drops every event."""


class Journal(Protocol):
    async def append(self, message: AssistantMessage | ToolResultMessage) -> None:
        """Make one step durable. An exception ends the loop; the turn is resumed elsewhere or later."""

    async def steered(self) -> Sequence[UserMessage]:
        """Return messages that arrived since and that this turn is to answer. They are durable already."""

    async def summarised(
        self, text: str, turns: int, answers: tuple[AssistantMessage, ...], *, external: bool = False
    ) -> None:
        """Replace the `turns` oldest turns of the history with `text`. `answers`: what the summary took. `external`:
        those turns held external content."""
