"""The model calls of one turn: fitted history, repaired for each model, with retries and fallbacks.

Each refusal that another form of the request may avoid is handled once here: less history, no earlier reasoning, tools
by prompt. Usage is recorded for every attempt, including failed ones.
"""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from functools import cached_property
from itertools import chain

import structlog

from agents.compaction import Compactor, Save, opening
from agents.config import AgentConfig
from agents.context import ContextFitter, Fit, PastTurn, WindowLimits, past, window_limits
from agents.messages import AssistantMessage, ErrorKind, Message, ModelError, UserMessage
from agents.model import Model, Models, conversation_of
from agents.providers.draft import Draft
from agents.providers.models import ModelFacts, nearest
from agents.providers.provider import Done, ModelRequest, OneTool, System, ToolChoice
from agents.providers.retry import RetryEvent, Retrying
from agents.providers.textcalls import DONE_WELL
from agents.repair import IMAGES_MAX, repair, reusable_prefix
from agents.tokens import below, request_tokens
from agents.turn import Compaction, Emit, ModelCalled, ModelRetried, ModelStreamed, Turn
from tools.tool import ToolSpec

HISTORY_SHARE = 0.2
"""Below this share of the input a history is not worth summarising."""
LEARNING_SHARE = 0.1
"""Below this share of the window estimates decide nothing, so usage is not learned from."""

log = structlog.get_logger()


@dataclass(kw_only=True)
class ModelCalls:
    """`answers`: the turn's answers that were good or cost tokens, in order. `summarised` journals a summary that
    replaces the oldest turns; `compaction` says whether that happened."""

    models: Sequence[Model]
    shared: Models
    config: AgentConfig
    turn: InitVar[Turn]
    compactor: Compactor
    summarised: Callable[..., Awaitable[None]]
    save: Save | None
    system: System
    tools: tuple[ToolSpec, ...]
    result_chars: int
    turn_seconds: InitVar[float]
    emit: Emit
    answers: list[AssistantMessage] = field(default_factory=list)
    compaction: Compaction = field(init=False)
    _refused: dict[str, int] = field(default_factory=dict)
    """Estimates of requests refused as too long, by model reference."""
    _summary_tried: bool = field(init=False)
    _own_payloads: bool = True

    def __post_init__(self, turn: Turn, turn_seconds: float) -> None:
        self._conversation = conversation_of(turn.session)
        self.summary, self.summary_external = turn.summary, turn.summary_external
        self.compaction = "none" if turn.summarised is None else "summarised"
        self._summary_tried = self.compaction != "none"
        kept, history = self.config.history_turns, turn.history
        newest = history if kept is None else history[max(0, len(history) - kept) :]
        self._left_out = len(history) - len(newest)
        self._past = self._behind_summary(past(newest))
        self._deadline = time.monotonic() + turn_seconds

    async def complete(self, messages: Sequence[Message], number: int) -> AssistantMessage:
        """Return the answer of round `number`, retrying in another form if the model refuses the request."""
        fits = self._fits(messages)
        if (room := self._scarce_room(messages, fits)) is not None:
            await self._summarise(room)
            fits = self._fits(messages)
        while True:
            models = [model for model in self.models if fits[model.reference].fits]
            if not models and not self._refused and (failed := self._unfit(messages)):
                return failed
            answer, fit = await self._answer(models or self.models, messages, fits, number)
            adapted = self._adapted(answer, number, fit, messages)
            if answer.error and answer.error.kind == "too_large" and not self._summary_tried:
                adapted = await self._summarise(self._room(self.models[0]) // 4) or adapted
            if not adapted:
                return answer
            fits = self._fits(messages)

    async def _answer(
        self, models: Sequence[Model], messages: Sequence[Message], fits: Mapping[str, Fit], number: int
    ) -> tuple[AssistantMessage, Fit]:
        """Return the first successful model's answer and what its request held. Every attempt is counted."""
        requests = {it.reference: self._request(it, fits[it.reference], number) for it in models}
        first, own, summary = models[0], len(messages), bool(self.summary)
        name, request, held = first.provider.name, requests[first.reference], fits[first.reference].held
        self.emit(ModelCalled(round=number, provider=name, request=request, held=held, own=own, summary=summary))
        priced: list[AssistantMessage] = []

        def watch(event: RetryEvent) -> None:
            if isinstance(event, Retrying):
                self.emit(ModelRetried(round=number, error=event.error, seconds=event.seconds))
                return
            if isinstance(event, Done):
                reference = event.message.reference
                priced.append(self._counted(event.message, requests[reference], fits[reference]))
            self.emit(ModelStreamed(round=number, event=event))

        await self.shared.complete(models, requests, deadline=self._deadline, emit=watch)
        answer = priced[-1]
        fit = fits[answer.reference]
        return (replace(answer, reach=fit.back) if fit.back else answer), fit

    def _fits(self, messages: Sequence[Message]) -> dict[str, Fit]:
        return {model.reference: self.fit(model, messages) for model in self.models}

    def _scarce_room(self, running: Sequence[Message], fits: Mapping[str, Fit]) -> int | None:
        """Return the tokens to keep of the newest turns if the history should be summarised; else None."""
        model, share = self.models[0], self.compactor.config.at
        if self._summary_tried or not self._past.turns:
            return None
        limit = int(self._room(model) * share)
        if self._estimated(fits[model.reference]) <= limit:
            return None
        room = limit - self._fixed_tokens - self._past.size(running)
        size = self._past.size(self._past.lead) + sum(turn.tokens for turn in self._past.turns)
        fills = size > limit * HISTORY_SHARE and room > 0
        return room // 2 if fills and self.compactor.may_try(self._conversation, size) else None

    async def _summarise(self, keep_tokens: int) -> bool:
        """Replace older turns by a summary, at most once a turn; return False without one."""
        self._summary_tried = True
        compacted = await self.compactor.compact(
            self._past.turns,
            own_models=self.models,
            input_tokens=self._room(self.models[0]),
            conversation=self._conversation,
            summary=self.summary,
            summary_external=self.summary_external,
            keep_tokens=keep_tokens,
            deadline=self._deadline,
            save=self.save,
        )
        if compacted is None:
            return False
        self.answers += compacted.answers
        self.compaction = "summarised" if compacted.turns else "failed"
        if not compacted.turns:
            return False
        self._left_out += compacted.turns
        self.summary_external = compacted.external
        await self.summarised(compacted.content, self._left_out, compacted.answers, external=compacted.external)
        self.summary = compacted.content
        self._past = self._behind_summary(self._past.turns[compacted.turns :])
        return True

    @property
    def holds_external(self) -> bool:
        """Return whether the turn's history or summary holds external content."""
        return self.summary_external or any(turn.is_external for turn in self._past.turns)

    def _behind_summary(self, turns: Sequence[PastTurn]) -> ContextFitter:
        return ContextFitter(turns=turns, result_chars=self.result_chars, lead=opening(self.summary))

    def _adapted(self, answer: AssistantMessage, number: int, fit: Fit, messages: Sequence[Message]) -> bool:
        """Return whether the next request takes a form not tried yet."""
        match answer.error and answer.error.kind:
            case None:
                return self._ignored_tools(answer, number)
            case "too_large":
                model, estimated = self._model_of(answer), self._estimated(fit)
                self._refused[model.reference] = estimated
                log.warning("context_overflow", model=model.reference, estimated_tokens=estimated)
                return self.fit(model, messages).back != fit.back  # less can be sent than was refused
            case "stale_thinking" if self._own_payloads:
                self._own_payloads = False
                log.warning("thinking_dropped", model=answer.model)
                return True
            case "no_tools" if self.tools:
                return self._model_of(answer).takes_no_tools("its server refused them")
            case _:
                return False

    def _unfit(self, messages: Sequence[Message]) -> AssistantMessage | None:
        """Return an error if the request cannot be made to fit. An oversized system prompt is sent anyway: the
        configured window or the estimate may be wrong."""
        room = max(map(self._room, self.models)) - self._fixed_tokens
        if room <= 0:
            return None
        users = [message for message in messages if isinstance(message, UserMessage)]
        kind: ErrorKind = "message_too_long" if self._past.size(users) > room else "too_large"
        model = self.models[0]
        log.warning("context_unfit", model=model.reference, kind=kind)
        draft = Draft(api=model.provider.api, provider=model.provider.name, model=model.name, timestamp=0.0)
        return draft.failed(ModelError(kind=kind, summary="not sent: it does not fit", retryable=False))

    def _ignored_tools(self, answer: AssistantMessage, number: int) -> bool:
        """Return whether the model ignored a required call and can be offered tools by prompt."""
        model = self._model_of(answer)
        if answer.calls:
            model.may_ignore_tools = False
        if not model.may_ignore_tools or not answer.text.strip() or answer.stop_reason not in DONE_WELL:
            return False
        required: list[ToolChoice] = ["required", *(OneTool(name=tool.name) for tool in self.tools)]
        return self._tool_choice(number) in required and model.takes_no_tools(
            "it answered in words although a call was required"
        )

    def _request(self, model: Model, fit: Fit, number: int) -> ModelRequest:
        facts, api = model.facts, model.provider.api
        family = model.family if self._own_payloads else ""
        past, ids = reusable_prefix(fit.turns, api=api, family=family)
        rest = fit.messages[sum(map(len, fit.turns[: len(past)])) :]
        images_max = IMAGES_MAX if facts.vision else 0
        documents = facts.documents == "native"
        repaired = repair(rest, api=api, family=family, images_max=images_max, documents=documents, taken=ids)
        return ModelRequest(
            model=model.name,
            facts=facts,
            system=self.system,
            messages=(*chain.from_iterable(past), *repaired),
            settled=past,
            tools=self.tools,
            tool_choice=self._tool_choice(number),
            thinking=nearest(self.config.thinking, facts.thinking) if self.config.thinking else None,
            max_tokens=self._limits(model).answer,
            conversation=self._conversation,
        )

    def fit(self, model: Model, messages: Sequence[Message]) -> Fit:
        """Return the part of the conversation for the next request; `messages` is the running turn."""
        return self._past.fit(
            messages,
            tokens_max=self._room(model) - self._fixed_tokens,
            chars_max=self._limits(model).results,
            binds_thinking=model.facts.thinking_style != "budget",
        )

    def _estimated(self, fit: Fit) -> int:
        return self._fixed_tokens + fit.tokens

    def _room(self, model: Model) -> int:
        room = self.shared.calibration.room(model.name, self._limits(model).input)
        refused = self._refused.get(model.reference)
        return room if refused is None else min(room, below(refused))

    @cached_property
    def _fixed_tokens(self) -> int:
        return request_tokens(self.system, self.tools, ())

    def _limits(self, model: Model) -> WindowLimits:
        window, longest = self._window(model.facts), self.config.max_tokens
        return window_limits(model.facts, window=window, answer_tokens=longest, result_chars=self.result_chars)

    def _window(self, facts: ModelFacts) -> int:
        return self.config.context_window or facts.window

    def _tool_choice(self, number: int) -> ToolChoice:
        """The configured choice applies to the first round only; afterwards the model must be free to answer."""
        choice = self.config.tool_choice
        if choice in ("auto", "none"):
            return "none" if choice == "none" else "auto"
        if number > 1 or not self.tools:
            return "auto"
        return "required" if choice == "required" else OneTool(name=choice)

    def _counted(self, answer: AssistantMessage, request: ModelRequest, fit: Fit) -> AssistantMessage:
        """Price and record the answer of one attempt; learn from its usage."""
        answer = self.shared.priced(answer, request)
        if answer.error is None and (refused := self._refused.get(answer.reference)):
            self.shared.calibration.overflowed(answer.model, refused)
        if answer.error is None and fit.tokens > self._window(request.facts) * LEARNING_SHARE:
            self.shared.calibration.learn(answer.model, self._estimated(fit), answer.usage)
        if answer.usage.is_reported:
            self.answers.append(answer)
        return answer

    def _model_of(self, answer: AssistantMessage) -> Model:
        return next(model for model in self.models if model.reference == answer.reference)
