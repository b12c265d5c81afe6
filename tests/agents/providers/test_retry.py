"""The retry policy, and which keys and models rest, on a clock that only moves when someone sleeps."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

import pytest

from agents.messages import AssistantMessage, ErrorKind, ModelError, StopReason, Text
from agents.providers.network import KeyRing
from agents.providers.provider import Done, ModelEvent, ModelRequest, TextDelta
from agents.providers.refusals import RETRYABLE
from agents.providers.retry import Health, RetryConfig, RetryEvent, Retrying, complete
from tests.agents.providers.requests import asking, assistant


@dataclass
class Scripted:
    """A provider that fails as scripted, then answers."""

    script: Sequence[ModelError]
    name: str = "0"
    api: str = "scripted"
    attempts: int = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        error = self.script[self.attempts] if self.attempts < len(self.script) else None
        self.attempts += 1
        yield TextDelta(index=0, text=f"try {self.attempts}")
        answer = assistant(*() if error else (Text(text=f"{self.name}: {self.attempts}"),))
        stop: StopReason = "error" if error else "end_turn"
        yield Done(message=replace(answer, provider=self.name, model=request.model, stop_reason=stop, error=error))

    async def warm_up(self) -> None: ...

    async def close(self) -> None: ...


@dataclass
class Clock:
    """Time that passes only in sleep; chance that always says the most."""

    now: float = 100.0
    slept: list[float] = field(default_factory=list)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    async def ask(
        self,
        provider: Scripted,
        *fallbacks: Scripted,
        seconds: float = 600,
        chance: float = 1.0,
        seen: list[RetryEvent] | None = None,
        config: dict[str, float] | None = None,
    ) -> AssistantMessage:
        return await complete(
            provider,
            asking(),
            deadline=self.now + seconds,
            config=RetryConfig.model_validate(config or {}),
            sleep=self.sleep,
            random=lambda: chance,
            clock=lambda: self.now,
            emit=None if seen is None else seen.append,
            fallbacks=[(other, asking()) for other in fallbacks],
        )


def error(kind: ErrorKind, after: float | None = None) -> ModelError:
    return ModelError(kind=kind, summary=kind, retryable=kind in RETRYABLE or after == 0, retry_after_seconds=after)


BUSY, BROKEN = error("overloaded"), error("server")
Case: TypeAlias = tuple[list[list[ModelError]], dict[str, Any], str, list[float], list[int]]
"""How each model fails, the parameters, the answer or the error's kind, the pauses, and how often each was asked."""
CASES: dict[str, Case] = {
    "trouble that passes": ([[BUSY, BROKEN, error("rate_limited"), BUSY]], {}, "0: 5", [1, 2, 4, 8], [5]),
    "a broken connection, tried again sooner": (
        [[error("network"), error("incomplete"), error("timeout")]],
        {},
        "0: 4",
        [0.25, 0.5, 1],
        [4],
    ),
    "the shortest pauses": ([[BROKEN] * 4], {"chance": 0.0}, "0: 5", [0.5, 1, 2, 4], [5]),
    "another key, at once": ([[error("auth", 0.0)]], {"config": {"maxSeconds": 0.0}}, "0: 2", [0], [2]),
    "a deadline before the pause is over": ([[error("rate_limited", 30.0)]], {"seconds": 30}, "rate_limited", [], [1]),
    "a deadline that has passed": ([[]], {"seconds": -1}, "timeout", [], [0]),
    "models in line share the time": ([[error("overloaded", 30.0)] * 9, [BUSY] * 9], {}, "overloaded", [30], [2, 1]),
    "the last one has the rest of it": ([[BUSY] * 9, [BUSY] * 9, [BUSY] * 3], {}, "2: 4", [1, 1, 1, 2, 4], [2, 2, 4]),
}
_AFTER: list[tuple[float, list[float]]] = [(0.25, [1]), (7.0, [7.5]), (30.0, [30]), (30.1, [])]
_LASTING: list[ErrorKind] = ["auth", "billing", "not_found", "unconfigured"]
_AT_FAULT: list[ErrorKind] = ["invalid", "too_large", "stale_thinking", "no_tools"]
_PASSING: list[tuple[ErrorKind, float]] = [("overloaded", 1), ("server", 1), ("rate_limited", 1), ("network", 0.25)]
CASES |= {
    **{
        f"wait {s}": ([[error("rate_limited", s)]], {}, "0: 2" if p else "rate_limited", p, [1 + len(p)])
        for s, p in _AFTER
    },
    **{f"{kind} alone": ([[error(kind)]], {}, kind, [], [1]) for kind in (*_LASTING, *_AT_FAULT)},
    **{f"{kind}, then the next": ([[error(kind)], []], {}, "1: 1", [], [1, 1]) for kind in _LASTING},
    **{f"{kind}, and nobody else": ([[error(kind)], []], {}, kind, [], [1, 0]) for kind in _AT_FAULT},
    **{f"{kind} twice, then the next": ([[error(kind)] * 9, []], {}, "1: 1", [s], [2, 1]) for kind, s in _PASSING},
}


@pytest.mark.parametrize("name", CASES)
async def test_retry_attempts_fallbacks_and_backoff(name: str) -> None:
    scripts, parameters, expected, pauses, attempts = CASES[name]
    clock, models = Clock(), [Scripted(script, name=str(number)) for number, script in enumerate(scripts)]
    message = await clock.ask(*models, **parameters)
    assert (message.error.kind if message.error else message.text) == expected
    assert (clock.slept, [model.attempts for model in models]) == (pauses, attempts)


@pytest.mark.parametrize("chance", [0.0, 0.5, 1.0])
async def test_retry_of_a_busy_model_lasts_the_whole_time(chance: float) -> None:
    clock, provider = Clock(), Scripted([BUSY] * 99)
    assert (await clock.ask(provider, chance=chance)).error == BUSY
    assert (provider.attempts >= 6, 15 <= sum(clock.slept) <= 30) == (True, True)
    await clock.ask(Scripted([BROKEN] * 99), config={"maxSeconds": 1e6})
    assert (max(clock.slept), 560 < sum(clock.slept) < 630) == (30, True)


async def test_retry_time_counts_from_the_first_failure() -> None:
    class Slow(Scripted):
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            clock.now += 40
            async for event in Scripted.stream(self, request):
                yield event

    clock, provider = Clock(), Slow([error("incomplete")] * 9)
    await clock.ask(provider)
    assert provider.attempts == 2


async def test_retry_voids_the_deltas_of_the_failed_attempt() -> None:
    seen: list[RetryEvent] = []
    clock = Clock()
    message = await clock.ask(Scripted([BROKEN]), seen=seen)
    kinds = [type(event).__name__ for event in seen]
    assert kinds == ["TextDelta", "Done", "Retrying", "TextDelta", "Done"]
    (pause,) = clock.slept
    assert seen[2:] == [Retrying(error=BROKEN, seconds=pause), TextDelta(index=0, text="try 2"), Done(message=message)]


async def test_stream_timeout_ends_a_hanging_stream() -> None:
    class Hanging(Scripted):
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            yield TextDelta(index=0, text="a")
            await asyncio.Event().wait()

    seen: list[RetryEvent] = []
    now = asyncio.get_running_loop().time()
    message = await complete(
        Hanging([]), asking(), deadline=now + 0.05, clock=asyncio.get_running_loop().time, emit=seen.append
    )
    assert message.error is not None
    assert message.error.kind == "timeout"
    assert seen[-1] == Done(message=message)


async def test_cooldown_of_a_failed_model_ends_with_an_answer() -> None:
    health = Health()
    health.failed("first", "m", "overloaded")
    first, second = Scripted([], name="first"), Scripted([], name="second")
    request = replace(asking(), model="m")
    ask = partial(complete, first, request, deadline=1e12, fallbacks=[(second, request)], health=health)
    assert (await ask()).text == "second: 1"
    assert (await complete(first, request, deadline=1e12, health=health)).text == "first: 1"
    assert not health.rests("first", "m")
    assert (await ask()).text == "first: 2"


def test_api_keys_are_spread_over_chats_and_sticky() -> None:
    assert KeyRing([]).pick("chat") is None
    ring = KeyRing(["a", "b", "c"])
    picked = {chat: ring.pick(chat) for chat in map(str, range(60))}
    assert set(picked.values()) == {"a", "b", "c"}
    assert all(ring.pick(chat) == key for chat, key in picked.items())


def test_cooldown_of_a_rate_limited_key_lets_another_work() -> None:
    clock = Clock()
    ring = KeyRing(["a", "b"], clock=lambda: clock.now)
    first = ring.pick("chat") or ""
    assert not ring.refused(first, error("overloaded"))  # this is not about the key
    assert ring.pick("chat") == first
    assert ring.refused(first, error("rate_limited", 7))
    other = ring.pick("chat") or ""
    assert {first, other} == {"a", "b"}
    assert not ring.refused(other, error("auth"))
    assert ring.pick("chat") == first  # which wakes first
    clock.now += 7.0
    assert ring.refused(other, error("auth"))


def test_cooldown_grows_each_time_until_an_answer() -> None:
    clock = Clock()
    health = Health(clock=lambda: clock.now)
    assert not health.rests("p", "m")
    for rest in (30.0, 60.0, 300.0, 300.0):
        health.failed("p", "m", "overloaded")
        clock.now += rest - 0.1
        assert health.rests("p", "m")
        clock.now += 0.2
        assert not health.rests("p", "m")
    health.answered("p", "m")
    health.failed("p", "m", "overloaded")
    clock.now += 31
    assert not health.rests("p", "m")
    assert not health.rests("p", "other")
