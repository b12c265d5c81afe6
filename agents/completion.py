"""The model calls of one turn: history that fits, repaired for each model, with retries and fallbacks.

Each refusal that another form of the request may get past is handled here, once: less history, no earlier reasoning,
tools by prompt. Every attempt's usage is recorded, failed ones included.
"""

import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace

import structlog

from agents.compaction import Compactor, opening
from agents.config import AgentConfig
from agents.messages import AssistantMessage, Message, UserMessage
from agents.model import Model, Models
from agents.providers import retry
from agents.providers.models import nearest
from agents.providers.provider import Done, ModelRequest, OneTool, System, ToolChoice
from agents.providers.textcalls.answer import DONE_WELL
from agents.repair import IMAGES_MAX, repair
from agents.tokens import bound, bound_of, request_tokens, tokens
from agents.turn import Compaction, Emit, ModelCalled, ModelRetried, ModelStreamed
from tools.tool import ToolSpec

MAX_TOKENS_DEFAULT = 16_384
WINDOW_SHARE = 0.95
"""Of what the answer leaves of the window: estimates are estimates."""

TOOL_TOKENS_MAX = 2_000
"""What the description and the schema of one tool take, at most."""
HISTORY_SHARE = 0.2
"""Of the input: a smaller history is not what fills it, and is not worth a summary."""
LEARNING_SHARE = 0.25
"""Of the window: smaller requests are not measured against their usage, for there an estimate decides nothing."""

log = structlog.get_logger()


@dataclass(kw_only=True)
class ModelCalls:
    """`answers` has every answer of the turn that was good, or failed at a price, in order. `summarised` makes it durable
    that a summary stands for so many of the oldest turns of `history`; `compaction` says whether that happened."""

    models: Sequence[Model]
    shared: Models
    config: AgentConfig
    session: InitVar[str]
    history: Sequence[Sequence[Message]]
    summary: str
    compactor: Compactor
    summarised: Callable[[str, int], Awaitable[None]]
    system: System
    tools: tuple[ToolSpec, ...]
    turn_seconds: InitVar[float]
    emit: Emit
    answers: list[AssistantMessage] = field(default_factory=list)
    compaction: Compaction = "none"
    _shrunk: bool = False
    _own_payloads: bool = True

    def __post_init__(self, session: str, turn_seconds: float) -> None:
        self._conversation = conversation_of(session)
        kept = self.config.history_turns
        newest = self.history if kept is None else self.history[max(0, len(self.history) - kept) :]
        # The metadata blocks belong to the running turn alone.
        self._history = [
            [replace(it, metadata="") if isinstance(it, UserMessage) else it for it in turn] for turn in newest
        ]
        self._left_out = len(self.history) - len(newest)
        self._tried = False
        prompt_bound = bound_of(self.system.stable) + bound_of(self.system.volatile)
        self._fixed_bound = prompt_bound + TOOL_TOKENS_MAX * len(self.tools)
        self._deadline = time.monotonic() + turn_seconds

    async def complete(self, messages: Sequence[Message], number: int) -> AssistantMessage:
        """The model's answer in round `number`; where it refuses the request, the answer to another form of it."""
        if not self._tried and (room := self._scarce_room(messages)) is not None:
            await self._summarise(room)
        while True:
            requests = {model.reference: self._request(model, messages, number) for model in self.models}
            (provider, request), *fallbacks = [(it.provider, requests[it.reference]) for it in self.models]
            self.emit(ModelCalled(round=number, provider=provider.name, request=request))

            def watch(event: retry.Notice, requests: Mapping[str, ModelRequest] = requests) -> None:
                if isinstance(event, retry.Retrying):
                    self.emit(ModelRetried(round=number, error=event.error))
                    return
                if isinstance(event, Done):
                    self._count(event.message, requests)
                self.emit(ModelStreamed(round=number, event=event))

            answer = await retry.complete(
                provider,
                request,
                deadline=self._deadline,
                config=self.shared.retry,
                fallbacks=fallbacks,
                health=self.shared.health,
                emit=watch,
            )
            answer = self.shared.priced(answer, requests[answer.reference])
            if self._overflowed(answer) and await self._summarise(self._input_tokens(self.models[0]) // 4):
                continue
            if not self._adapted(answer, number):
                return answer

    def _scarce_room(self, running: Sequence[Message]) -> int | None:
        """What newest turns may take, in tokens, where the history fills the request so far that the others should become a
        summary; else None."""
        if not self._history:
            return None
        limit = int(self._input_tokens(self.models[0]) * self.compactor.config.at)
        past = [*opening(self.summary), *(message for turn in self._history for message in turn)]
        if self._fixed_bound + bound(past) + bound(running) <= limit:
            return None
        room = limit - request_tokens(self.system, self.tools, running)
        size = sum(map(tokens, past))
        scarce = size > max(room, limit * HISTORY_SHARE) and self.compactor.may_try(self._conversation, size)
        return max(0, room // 2) if scarce else None

    def _overflowed(self, answer: AssistantMessage) -> bool:
        return answer.error is not None and answer.error.kind == "too_large" and not self._tried

    async def _summarise(self, keep_tokens: int) -> bool:
        """Let a summary stand for the older turns, once a turn; False where there is none."""
        self._tried = True
        compacted = await self.compactor.compact(
            self._history,
            own_models=self.models,
            conversation=self._conversation,
            summary=self.summary,
            keep_tokens=keep_tokens,
            deadline=self._deadline,
        )
        if compacted is None:
            return False
        self.answers += compacted.answers
        self.compaction = "summarised" if compacted.turns else "failed"
        if not compacted.turns:
            return False
        self._left_out += compacted.turns
        await self.summarised(compacted.content, self._left_out)
        self._history, self.summary = self._history[compacted.turns :], compacted.content
        return True

    def _adapted(self, answer: AssistantMessage, number: int) -> bool:
        """Whether the next request takes a form that has not been tried yet."""
        match answer.error and answer.error.kind:
            case None:
                return self._ignored_tools(answer, number)
            case "too_large" if self._history and not self._shrunk:
                self._shrunk = True
                log.warning("history_shrunk", turns=len(self._history))
                self._history = self._history[(len(self._history) + 1) // 2 :]
                return True
            case "stale_thinking" if self._own_payloads:
                self._own_payloads = False
                log.warning("thinking_dropped", model=answer.model)
                return True
            case "no_tools" if self.tools:
                return self._model_of(answer).takes_no_tools("its server refused them")
            case _:
                return False

    def _ignored_tools(self, answer: AssistantMessage, number: int) -> bool:
        """Whether the model answered in words where a call was required, and can be offered its tools by prompt."""
        model = self._model_of(answer)
        if answer.calls:
            model.may_ignore_tools = False
        if not model.may_ignore_tools or not answer.text.strip() or answer.stop_reason not in DONE_WELL:
            return False
        required: list[ToolChoice] = ["required", *(OneTool(name=tool.name) for tool in self.tools)]
        return self._tool_choice(number) in required and model.takes_no_tools(
            "it answered in words although a call was required"
        )

    def _request(self, model: Model, messages: Sequence[Message], number: int) -> ModelRequest:
        facts = model.facts
        past = self._past(messages, self._input_tokens(model))
        repaired = repair(
            [*past, *messages],
            api=model.provider.api,
            family=model.family if self._own_payloads else "",
            images_max=IMAGES_MAX if facts.vision else 0,
        )
        return ModelRequest(
            model=model.name,
            facts=facts,
            system=self.system,
            messages=tuple(repaired),
            tools=self.tools,
            tool_choice=self._tool_choice(number),
            thinking=nearest(self.config.thinking, facts.thinking) if self.config.thinking else None,
            max_tokens=self._answer_tokens(model),
            conversation=self._conversation,
        )

    def _answer_tokens(self, model: Model) -> int:
        return min(self.config.max_tokens or MAX_TOKENS_DEFAULT, model.facts.max_output)

    def _input_tokens(self, model: Model) -> int:
        """What a request may take, by the estimates."""
        window = self.config.context_window or model.facts.window
        ratio = self.shared.calibration.ratio(model.name)
        return int((window - self._answer_tokens(model)) * WINDOW_SHARE / ratio)

    def _past(self, running: Sequence[Message], budget_tokens: int) -> list[Message]:
        """The history that fits beside the rest of the request; mostly all of it, and then nothing is estimated."""
        begin = opening(self.summary)
        history = [*begin, *(message for turn in self._history for message in turn)]
        if self._fixed_bound + bound(history) + bound(running) <= budget_tokens:
            return history
        fixed = request_tokens(self.system, self.tools, [*begin, *running])
        return [*begin, *fitting(self._history, budget_tokens - fixed)]

    def _tool_choice(self, number: int) -> ToolChoice:
        """The config's choice holds for the first round; then the model must be free to answer."""
        choice = self.config.tool_choice
        if choice in ("auto", "none"):
            return "none" if choice == "none" else "auto"
        if number > 1 or not self.tools:
            return "auto"
        return "required" if choice == "required" else OneTool(name=choice)

    def _count(self, answer: AssistantMessage, requests: Mapping[str, ModelRequest]) -> None:
        """Record what one attempt cost, and let the estimates learn from it."""
        answer = self.shared.priced(answer, requests[answer.reference])
        request = requests[answer.reference]
        if answer.error is None and bound(request.messages) > request.facts.window * LEARNING_SHARE:
            self.shared.calibration.learn(answer.model, _tokens(request), answer.usage)
        if answer.usage.is_reported:
            self.answers.append(answer)

    def _model_of(self, answer: AssistantMessage) -> Model:
        return next(model for model in self.models if model.reference == answer.reference)


def conversation_of(session: str) -> str:
    """Its name for providers."""
    return hashlib.sha256(session.encode(errors="replace")).hexdigest()


def fitting(turns: Sequence[Sequence[Message]], budget_tokens: int) -> list[Message]:
    """The newest of `turns` (oldest first) that fit into the budget together, as one list of messages. A turn is kept or
    left out as a whole, so calls and results are never cut apart."""
    kept: list[Sequence[Message]] = []
    for turn in reversed(turns):
        budget_tokens -= sum(tokens(message) for message in turn)
        if budget_tokens < 0:
            break
        kept.append(turn)
    return [message for turn in reversed(kept) for message in turn]


def _tokens(request: ModelRequest) -> int:
    return request_tokens(request.system, request.tools, request.messages)
