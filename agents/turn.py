"""A turn: the message to answer, the limits it has, what happens in it, and how it ends: replied, silent by choice,
refused by the model, or failed with a sentence. Never with nothing.

An event is never needed for the turn to go on; what must survive a crash goes through the journal instead.
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
    """The number of times that a model is asked to go on after its own output limit cut an answer."""
    tool_calls: Amount = 60
    """Tool calls in one turn; further ones are refused and the model must answer with what it has."""
    turn_seconds: Seconds = 600
    """The length of one turn, tools and waiting included."""
    identical_failures: Amount = 3
    """The number of failures of one call, with one set of arguments, that ends the turn."""
    message_chars: Amount = 20_000
    """The part of one message that the model sees; a note says what was cut."""
    document_seconds: Seconds = 20
    """Seconds that reading pages of one PDF, Office file or e-book may take; 256 MiB of memory in any case."""
    tool_argument_bytes: Amount = 65_536
    """The size of one call's arguments."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """A person's choices for a conversation, until it begins again. `model` is a `provider/model` that the config
    names; None and the empty text leave a thing to the config."""

    model: str = ""
    thinking: Level | None = None
    reasoning: bool = False
    verbose: bool = False


settings_json: TypeAdapter[Settings] = TypeAdapter(Settings)


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """`history` are the finished turns, oldest first; `so_far` is what is journaled of this one behind its user message.
    `summary` is the content of the one before `history`, empty without any. `capabilities` and
    `directives` are what the prompt says of the channel, `actions` what the `message` tool can do there. `layers` take
    tools away from it (`tools.policy`). `interrupted`: a process died while it worked on it. `with_owner`: it is a direct
    chat with an owner of the bot; `sees_private`: all who read along may read the workspace's private files."""

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
    """True if it sums up text of strangers."""
    again: tuple[str, ...] = ()
    """The marks that tell it from an earlier turn about the same message; nothing the first time."""
    summarised: tuple[AssistantMessage, ...] | None = None
    """The answers of the summary that it made before its process died; None without any."""
    tainted: bool = False
    """True if it continues a turn that had read text of strangers, or begins with some."""
    caller: str = ""
    """The system prompt that the asking program sends."""
    files_of: str = ""
    """The conversation whose files and background commands it has, if not its own."""
    reports_ends: bool = True
    """False if `process` refuses `notify`: in a task's turn, and where a program asks."""

    @property
    def key(self) -> str:
        """Names it for the idempotency keys of its tool calls: another turn about the same message has another."""
        context = self.context
        return ":".join((context.channel, context.account, context.chat.id, context.message_id, *self.again))


TurnLimit: TypeAlias = Literal["rounds", "turn-time", "repeating", "pauses", "empty", "cut"]
"""The limit of ours that ended the turn. `empty`: the model had nothing to say, twice. `cut`: its output limit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """`message` is the model's last, still to be journaled; None if `before` is the whole text. `before`: the text of
    answers that the output limit cut and that were continued. `cut`: the text is incomplete all the same."""

    message: AssistantMessage | None
    before: str = ""
    cut: bool = False

    @property
    def text(self) -> str:
        return self.before + (self.message.text if self.message else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Declined:
    """The model's safety system refused. The turn stays out of later requests, or they would be refused too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFailed:
    """`model` is the `provider/model` that failed, if one was called."""

    error: ModelError
    model: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class LimitReached:
    limit: TurnLimit


Payer: TypeAlias = Literal["agent", "chat", "sender"]
Period: TypeAlias = Literal["day", "month"]


@dataclass(frozen=True, kw_only=True, slots=True)
class OverBudget:
    """The payer's budget for the period is spent. `until` is when it starts again: a time, or the day for a month."""

    whose: Payer
    period: Period
    until: str


class Budget(Protocol):
    """The limit on what a turn may spend."""

    answers: list[AssistantMessage]
    """Answers of models that took tokens, good or failed, summaries included, in order: what is added here is counted."""

    async def exhausted(self) -> OverBudget | None:
        """Asked before each request. Raises what the journal raises."""


Outcome: TypeAlias = Answered | Declined | ModelFailed | LimitReached | OverBudget


Compaction: TypeAlias = Literal["none", "summarised", "failed"]
"""Says whether older turns became a summary on the way, or should have and could not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnResult:
    """`answers` are those of models, as far as they took tokens. `tainted`: the turn has read text of strangers."""

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
    """`held` counts the earlier turns in the request, `own` the turn's own messages so far; `summary`: one is before
    them."""

    round: int
    provider: str
    request: ModelRequest
    held: int = 0
    own: int = 0
    summary: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelStreamed:
    """A piece of the answer, as it comes. After a failed attempt the next `attempt` starts from nothing."""

    round: int
    event: ModelEvent


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelRetried:
    """The attempt failed with `error`; another one follows after a pause of `seconds`."""

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
    """`progress` is a line of the tool about how far it is."""

    call: ToolCall
    progress: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolReturned:
    """The call has run. Its result is journaled later if others run beside it."""

    call: ToolCall


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolFinished:
    """`chars` is the length of the whole result; `cut`: the model gets less of it."""

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
        """Makes one step durable. An exception ends the loop: the turn goes on elsewhere, or later."""

    async def steered(self) -> Sequence[UserMessage]:
        """Messages that people wrote since, to be answered by this turn, durable already; mostly none."""

    async def summarised(
        self, text: str, turns: int, answers: tuple[AssistantMessage, ...], *, external: bool = False
    ) -> None:
        """Replaces the `turns` oldest turns of the history that this turn began with by `text`. `answers`: what
        it took. `external`: text of strangers was in them."""
