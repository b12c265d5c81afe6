"""Asking until there is an answer: the one retry policy, and the step to the next model.

At most four attempts with full jitter, a server's Retry-After obeyed up to a minute, never past the deadline. Every
attempt ends with a `Done` to `emit`; one whose message carries an error voids the deltas since the `Done` before it,
and the last one is the answer. The SDK's own retries are off: they would multiply ours and sleep unseen.
"""

import asyncio
import random as randomness
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog

from agents.messages import AssistantMessage, ErrorKind, ModelError
from agents.providers.health import Health
from agents.providers.provider import Done, ModelEvent, ModelRequest, Provider

ATTEMPTS_MAX = 4
BUSY_ATTEMPTS_MAX = 2
"""Where a fallback stands ready: so often an overloaded model is asked before it."""
BACKOFF_SECONDS = 1.0
BACKOFF_CAP_SECONDS = 30.0
RETRY_AFTER_MAX_SECONDS = 60.0

_BUSY: frozenset[ErrorKind] = frozenset({"overloaded", "server"})
_OUR_FAULT: frozenset[ErrorKind] = frozenset({"invalid", "too_large", "stale_thinking", "no_tools"})
"""Another model would get the same request: these are answered by changing it, not by asking elsewhere."""

log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Asking:
    """The circumstances of one `complete`."""

    deadline: float
    sleep: Callable[[float], Awaitable[None]]
    random: Callable[[], float]
    clock: Callable[[], float]
    emit: Callable[[ModelEvent], None]


async def complete(
    provider: Provider,
    request: ModelRequest,
    *,
    deadline: float,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    random: Callable[[], float] = randomness.random,
    clock: Callable[[], float] = time.monotonic,
    emit: Callable[[ModelEvent], None] | None = None,
    fallbacks: Sequence[tuple[Provider, ModelRequest]] = (),
    health: Health | None = None,
) -> AssistantMessage:
    """The final message, good or an error; raises nothing but CancelledError.

    `deadline` is a moment of `clock`, in seconds. `fallbacks` are asked in order once a model is busy twice, or cannot
    be used at all; each brings a request repaired for it. What rests by `health` is passed over while another is awake.
    """
    asking = _Asking(deadline=deadline, sleep=sleep, random=random, clock=clock, emit=emit or _unseen)
    health = health or Health(clock=clock)
    candidates = [(provider, request), *fallbacks]
    awake = [(it, its) for it, its in candidates if not health.rests(it.name, its.model)] or candidates
    for (asked, its_request), after in zip(awake, [*awake[1:], None], strict=True):
        patience = BUSY_ATTEMPTS_MAX if after else ATTEMPTS_MAX
        message = await _insist(asked, its_request, asking, busy_max=patience)
        error = message.error
        if error is None:
            health.answered(asked.name, its_request.model)
        if error is None or error.kind in _OUR_FAULT:
            return message
        health.failed(asked.name, its_request.model)
        if after is None or clock() >= deadline:
            return message
        log.warning("model_fallback", provider=after[0].name, model=after[1].model, instead_of=error.kind)
    raise AssertionError("the loop returns at the last candidate")


async def _insist(provider: Provider, request: ModelRequest, asking: _Asking, *, busy_max: int) -> AssistantMessage:
    """One model, asked until it answers or the error is one to give up on."""
    busy = 0
    for attempt in range(1, ATTEMPTS_MAX + 1):
        message = await _attempt(provider, request, asking)
        error = message.error
        if error is None or not error.retryable or attempt == ATTEMPTS_MAX:
            return message
        busy += error.kind in _BUSY
        seconds = _pause(error, attempt, asking.random)
        if busy == busy_max or seconds is None or asking.clock() + seconds >= asking.deadline:
            return message
        log.warning(
            "model_retry",
            provider=provider.name,
            model=request.model,
            attempt=attempt,
            kind=error.kind,
            summary=error.summary,
            wait_seconds=round(seconds, 3),
        )
        await asking.sleep(seconds)
    raise AssertionError("the loop returns on its last attempt")


def _pause(error: ModelError, attempt: int, random: Callable[[], float]) -> float | None:
    """Seconds until the next attempt; None where the server asks for more than a person would wait."""
    if error.retry_after_seconds is not None:
        return error.retry_after_seconds if error.retry_after_seconds <= RETRY_AFTER_MAX_SECONDS else None
    return float(random() * min(BACKOFF_CAP_SECONDS, BACKOFF_SECONDS * 2 ** (attempt - 1)))


async def _attempt(provider: Provider, request: ModelRequest, asking: _Asking) -> AssistantMessage:
    remaining = asking.deadline - asking.clock()
    message = await _ask_once(provider, request, asking, remaining) if remaining > 0 else None
    message = message or _failed(provider, request, "timeout", "the turn's deadline")
    asking.emit(Done(message=message))
    return message


async def _ask_once(
    provider: Provider, request: ModelRequest, asking: _Asking, seconds: float
) -> AssistantMessage | None:
    """The message of the stream's `Done`; None where time was up first."""
    message: AssistantMessage | None = None
    events = provider.stream(request)
    try:
        async with asyncio.timeout(seconds):
            async for event in events:
                if isinstance(event, Done):
                    message = event.message
                else:
                    asking.emit(event)
    except TimeoutError:
        return message
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()
    return message or _failed(provider, request, "incomplete", "the stream ended without Done")


def _failed(provider: Provider, request: ModelRequest, kind: ErrorKind, summary: str) -> AssistantMessage:
    return AssistantMessage(
        content=(),
        provider=provider.name,
        model=request.model,
        api=provider.api,
        stop_reason="error",
        error=ModelError(kind=kind, summary=summary, retryable=kind == "incomplete"),
    )


def _unseen(event: ModelEvent) -> None:
    """Nobody is watching."""
