"""Completion with retries and fallbacks: the only retry policy.

Exponential backoff with jitter above half the pause; a server's Retry-After raises the minimum. Attempts continue for
`retry.maxSeconds` from the first failure, never past the deadline. Every attempt ends with a `Done` to `emit`. A
`Done` with an error voids the deltas since the previous one; the last `Done` is the answer. The SDKs' retries are off:
they would multiply ours and wait invisibly.
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
"""Network errors use this share of the pause; they usually recover quickly."""

_BUSY: frozenset[ErrorKind] = frozenset({"rate_limited", "overloaded", "server"})
_OUR_FAULT: frozenset[ErrorKind] = frozenset({"invalid", "too_large", "stale_thinking", "no_tools"})
"""Errors of the request: they need another form of it, not another model."""

log = structlog.get_logger()


class RetryConfig(Section):
    """Retries when a model is overloaded, unreachable or breaks off."""

    max_seconds: Annotated[float, Field(ge=0)] = 30
    """The seconds for which one request is retried after its first failure, while the user waits. A longer Retry-After
    ends the retries; 0 disables them."""
    pause_seconds: Annotated[float, Field(gt=0, le=30)] = 1
    """The maximum first pause if a server is overloaded; a quarter of it if a connection broke. Each further pause
    doubles, up to 30 seconds."""


RESTS_SECONDS = (30.0, 60.0, 300.0)
"""The cooldowns after the first failure, the second, and each later one."""


class _Failures(NamedTuple):
    """A model's consecutive failures, the end of its cooldown, and the last error kind."""

    in_a_row: int
    until: float
    kind: ErrorKind


class Health:
    """Cooldowns of failing models: they are skipped while another is available. Shared by all agents. Repeated
    failures lengthen the cooldown until an answer resets it."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: dict[tuple[str, str], _Failures] = {}
        """Failures by provider and model since their last answer."""

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
        """Return the models whose last request failed, and the error kind."""
        return {"/".join(key): it.kind for key, it in sorted(self._failures.items())}


@dataclass(frozen=True, kw_only=True, slots=True)
class Retrying:
    """A pause of `seconds` before the next attempt."""

    error: ModelError
    seconds: float


RetryEvent: TypeAlias = ModelEvent | Retrying


@dataclass(kw_only=True, slots=True)
class _Policy:
    """The parameters of one `complete`, and its pauses."""

    config: RetryConfig
    deadline: float
    sleep: Callable[[float], Awaitable[None]]
    random: Callable[[], float]
    clock: Callable[[], float]
    emit: Callable[[RetryEvent], None]
    until: float | None = None
    """The moment to give up; set at the first failure."""

    def pause(self, error: ModelError, attempt: int) -> float | None:
        """Return the seconds until the next attempt; None if that is too long."""
        now = self.clock()
        if self.until is None:
            self.until = now + self.config.max_seconds
        if error.retry_after_seconds == 0:  # another key is available
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
    """Return the final message, which may be an error. Raises only CancelledError. `deadline` is in seconds of
    `clock`. `fallbacks` are tried in order once a model has failed twice or cannot be used; each has a request
    repaired for it. Models in cooldown are skipped while another is available."""
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
    """Return the stream's final message, or an error if it ended or timed out without one."""
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
