"""Completion with retries: the one retry policy, and the step to the next model.

Pauses double, with jitter above a floor of half the pause; a server's Retry-After raises the floor. Attempts go on for
`retry.maxSeconds` from the first failure, never past the deadline. Every attempt ends with a `Done` to `emit`; one whose
message carries an error voids the deltas since the `Done` before it, and the last one is the answer. The SDK's own
retries are off: they would multiply ours and sleep unseen.
"""

import asyncio
import itertools
import random as randomness
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple, TypeAlias

import structlog
from pydantic import Field

from agents.messages import AssistantMessage, ErrorKind, ModelError
from agents.providers.draft import Draft
from agents.providers.provider import Done, ModelEvent, ModelRequest, Provider
from channels.section import Section

ATTEMPTS_BEFORE_FALLBACK = 2
"""Attempts before falling back, when a model fails and another one is ready."""
PAUSE_MAX_SECONDS = 30.0
QUICK_SHARE = 0.25
"""The share of the pause for network errors; they usually recover at once."""

_BUSY: frozenset[ErrorKind] = frozenset({"rate_limited", "overloaded", "server"})
_OUR_FAULT: frozenset[ErrorKind] = frozenset({"invalid", "too_large", "stale_thinking", "no_tools"})
"""Another model would get the same request: the remedy is another form of it, not another model."""

log = structlog.get_logger()


class RetryConfig(Section):
    """The retries if a model is overloaded, cannot be reached or breaks off."""

    max_seconds: Annotated[float, Field(ge=0)] = 30
    """The seconds for which one request is repeated, from its first failure on; a person still waits so long. A server
    that asks for a longer pause is not asked again; 0 repeats nothing."""
    pause_seconds: Annotated[float, Field(gt=0, le=30)] = 1
    """The first pause at most, if a server is overloaded; a quarter of it if a connection broke. Each further pause is
    twice as long, up to 30 seconds."""


RESTS_SECONDS = (30.0, 60.0, 300.0)
"""Seconds after the first failure, the second, and each one after it."""


class _Failures(NamedTuple):
    """The failures of a model in a row, the end of its rest, and the kind of the last one."""

    in_a_row: int
    until: float
    kind: ErrorKind


class Health:
    """The models that rest: a model that could not answer is passed over for a while, if another can be asked.
    Shared by all agents, as it is the model that is down. One that fails again at once rests longer, until it answers."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: dict[tuple[str, str], _Failures] = {}
        """The failures of each provider and model that has not answered since."""

    def rests(self, provider: str, model: str) -> bool:
        failure = self._failures.get((provider, model))
        return failure is not None and self._clock() < failure.until

    def failed(self, provider: str, model: str, kind: ErrorKind) -> None:
        count = failure.in_a_row if (failure := self._failures.get((provider, model))) else 0
        seconds = RESTS_SECONDS[min(count, len(RESTS_SECONDS) - 1)]
        self._failures[provider, model] = _Failures(count + 1, self._clock() + seconds, kind)

    def answered(self, provider: str, model: str) -> None:
        self._failures.pop((provider, model), None)

    @property
    def failing(self) -> dict[str, ErrorKind]:
        """The models whose last request failed, and why."""
        return {"/".join(key): it.kind for key, it in sorted(self._failures.items())}


@dataclass(frozen=True, kw_only=True, slots=True)
class Retrying:
    """A pause of `seconds` has begun; another attempt follows it."""

    error: ModelError
    seconds: float


RetryEvent: TypeAlias = ModelEvent | Retrying


@dataclass(kw_only=True, slots=True)
class _Policy:
    """The parameters of one `complete`, and the pauses they allow."""

    config: RetryConfig
    deadline: float
    sleep: Callable[[float], Awaitable[None]]
    random: Callable[[], float]
    clock: Callable[[], float]
    emit: Callable[[RetryEvent], None]
    until: float | None = None
    """The moment to give up; known from the first failure on."""

    def pause(self, error: ModelError, attempt: int) -> float | None:
        """Seconds until the next attempt; None if that is too long for a person."""
        now = self.clock()
        if self.until is None:
            self.until = now + self.config.max_seconds
        if error.retry_after_seconds == 0:  # there is another key
            seconds = 0.0
        else:
            first = self.config.pause_seconds * (1 if error.kind in _BUSY else QUICK_SHARE)
            half = min(PAUSE_MAX_SECONDS, first * 2 ** (attempt - 1)) / 2
            floor = max(half, error.retry_after_seconds or 0.0)
            seconds = max(floor, min(floor + self.random() * half, self.until - now))
        return seconds if now + seconds <= self.until and now + seconds < self.deadline else None


async def complete(
    provider: Provider,
    request: ModelRequest,
    *,
    deadline: float,
    config: RetryConfig = RetryConfig(),  # noqa: B008 - frozen
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    random: Callable[[], float] = randomness.random,
    clock: Callable[[], float] = time.monotonic,
    emit: Callable[[RetryEvent], None] | None = None,
    fallbacks: Sequence[tuple[Provider, ModelRequest]] = (),
    health: Health | None = None,
) -> AssistantMessage:
    """The final message, good or an error; raises nothing but CancelledError. `deadline` is a moment of `clock`, in
    seconds. `fallbacks` are tried in order once a model has failed twice, or cannot be used at all; each brings a
    request repaired for it. A model that rests by `health` is skipped while another is awake."""
    policy = _Policy(
        config=config, deadline=deadline, sleep=sleep, random=random, clock=clock, emit=emit or (lambda event: None)
    )
    health = health or Health(clock=clock)
    candidates = [(provider, request), *fallbacks]
    awake = [(it, its) for it, its in candidates if not health.rests(it.name, its.model)] or candidates
    for (provider, request), after in zip(awake, [*awake[1:], None], strict=True):
        attempts_max = ATTEMPTS_BEFORE_FALLBACK if after else None
        message = await _attempt_with_retries(provider, request, policy, attempts_max=attempts_max)
        error = message.error
        if error is None:
            health.answered(provider.name, request.model)
        if error is None or error.kind in _OUR_FAULT:
            return message
        health.failed(provider.name, request.model, error.kind)
        if after is None or clock() >= deadline:
            return message
        log.warning(
            "model_fallback", provider=after[0].name, model=after[1].model, instead_of=error.kind, words=error.words
        )
    raise AssertionError("the loop returns at the last candidate")


async def _attempt_with_retries(
    provider: Provider, request: ModelRequest, policy: _Policy, *, attempts_max: int | None
) -> AssistantMessage:
    for attempt in itertools.count(1):
        message = await _attempt(provider, request, policy)
        error = message.error
        if error is None or not error.retryable or attempt == attempts_max:
            return message
        seconds = policy.pause(error, attempt)
        if seconds is None:
            return message
        log.warning(
            "model_retry",
            provider=provider.name,
            model=request.model,
            attempt=attempt,
            kind=error.kind,
            summary=error.summary,
            words=error.words,
            wait_seconds=round(seconds, 3),
        )
        policy.emit(Retrying(error=error, seconds=seconds))
        await policy.sleep(seconds)
    raise AssertionError("the loop has no end")


async def _attempt(provider: Provider, request: ModelRequest, policy: _Policy) -> AssistantMessage:
    """The message of the stream's `Done`, or the error of a stream that ended or ran out of time without one."""
    message: AssistantMessage | None = None
    kind: ErrorKind = "timeout"
    if (seconds := policy.deadline - policy.clock()) > 0:
        events = provider.stream(request)
        try:
            async with asyncio.timeout(seconds):
                async for event in events:
                    if isinstance(event, Done):
                        message = event.message
                    else:
                        policy.emit(event)
            kind = "incomplete"
        except TimeoutError:
            pass
        finally:
            if isinstance(events, AsyncGenerator):
                await events.aclose()
    if message is None:
        summary = "the turn's deadline" if kind == "timeout" else "the stream ended without Done"
        draft = Draft(api=provider.api, provider=provider.name, model=request.model, timestamp=0.0)
        message = draft.failed(ModelError(kind=kind, summary=summary, retryable=kind == "incomplete"))
    policy.emit(Done(message=message))
    return message
