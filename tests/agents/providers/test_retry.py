"""The retry policy, on a clock that only moves when someone sleeps; and once for real, against the emulator."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pytest

from agents.messages import AssistantMessage, ErrorKind, ModelError, Text
from agents.providers.catalog import build_provider
from agents.providers.config import ProviderConfig
from agents.providers.provider import Done, ModelEvent, ModelRequest, TextDelta
from agents.providers.retry import Health, Notice, RetryConfig, Retrying, complete
from tests.agents.providers.requests import asking
from tests.emulators.models.anthropic.emulator import AnthropicEmulator
from tests.emulators.models.script import HTML_200, Fault, says
from tests.loopback import serve_on_loopback


@dataclass
class Scripted:
    """A provider that fails as told, then answers; None is an answer."""

    script: Sequence[ModelError | None]
    name: str = "scripted"
    api: str = "scripted"
    attempts: int = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        error = self.script[self.attempts] if self.attempts < len(self.script) else None
        self.attempts += 1
        yield TextDelta(index=0, text=f"try {self.attempts}")
        yield Done(
            message=AssistantMessage(
                content=() if error else (Text(text=f"{self.name} {self.attempts}"),),
                provider=self.name,
                model=request.model,
                api=self.api,
                stop_reason="error" if error else "end_turn",
                error=error,
            )
        )

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
        seen: list[Notice] | None = None,
        config: RetryConfig = RetryConfig(),  # noqa: B008 - frozen
    ) -> AssistantMessage:
        return await complete(
            provider,
            asking(),
            deadline=self.now + seconds,
            config=config,
            sleep=self.sleep,
            random=lambda: chance,
            clock=lambda: self.now,
            emit=None if seen is None else seen.append,
            fallbacks=[(other, asking()) for other in fallbacks],
        )


def error(kind: ErrorKind, retryable: bool = True, after: float | None = None) -> ModelError:
    return ModelError(kind=kind, summary=kind, retryable=retryable, retry_after_seconds=after)


async def test_trouble_that_passes_is_not_noticed() -> None:
    clock, provider = Clock(), Scripted([error("overloaded"), error("server"), error("rate_limited")])
    message = await clock.ask(provider)
    assert message.text == "scripted 4"
    assert clock.slept == [1, 2, 4]


async def test_a_broken_connection_is_tried_again_sooner() -> None:
    clock = Clock()
    await clock.ask(Scripted([error("network"), error("incomplete"), error("timeout")]))
    assert clock.slept == [0.25, 0.5, 1]


@pytest.mark.parametrize("chance", [0.0, 0.5, 1.0])
async def test_a_model_that_stays_busy_is_asked_for_the_whole_time_and_not_longer(chance: float) -> None:
    clock, provider = Clock(), Scripted([error("overloaded")] * 99)
    message = await clock.ask(provider, chance=chance)
    assert message.error == error("overloaded")
    assert provider.attempts >= 6
    assert 15 <= sum(clock.slept) <= 30


async def test_each_pause_is_drawn_above_the_longest_of_the_one_before() -> None:
    least, most = Clock(), Clock()
    await least.ask(Scripted([error("server")] * 4), chance=0.0)
    await most.ask(Scripted([error("server")] * 4), chance=1.0)
    assert (least.slept, most.slept) == ([0.5, 1, 2, 4], [1, 2, 4, 8])


async def test_no_pause_is_longer_than_half_a_minute() -> None:
    clock = Clock()
    await clock.ask(Scripted([error("server")] * 99), config=RetryConfig.model_validate({"maxSeconds": 1e6}))
    assert max(clock.slept) == 30
    assert 560 < sum(clock.slept) < 600


async def test_the_time_counts_from_the_first_failure() -> None:
    class Slow(Scripted):
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            clock.now += 40
            async for event in Scripted.stream(self, request):
                yield event

    clock, provider = Clock(), Slow([error("incomplete")] * 9)
    await clock.ask(provider)
    assert provider.attempts == 2


async def test_models_in_line_share_the_time_and_each_is_asked() -> None:
    clock = Clock()
    first, second = Scripted([error("overloaded", after=30.0)] * 9), Scripted([error("overloaded")] * 9)
    await clock.ask(first, second)
    assert (first.attempts, second.attempts, clock.slept) == (2, 1, [30])


async def test_another_key_is_tried_at_once_even_where_nothing_is_repeated() -> None:
    clock, provider = Clock(), Scripted([error("auth", after=0.0)])
    message = await clock.ask(provider, config=RetryConfig.model_validate({"maxSeconds": 0.0}))
    assert (message.text, clock.slept) == ("scripted 2", [0])


async def test_whoever_watches_is_told_of_every_pause() -> None:
    seen: list[Notice] = []
    await Clock().ask(Scripted([error("server"), error("network")]), seen=seen)
    assert [event.error.kind for event in seen if isinstance(event, Retrying)] == ["server", "network"]


@pytest.mark.parametrize("kind", ["auth", "billing", "invalid", "not_found", "too_large", "unconfigured"])
async def test_what_will_not_pass_is_not_repeated(kind: ErrorKind) -> None:
    clock, provider = Clock(), Scripted([error(kind, retryable=False)])
    assert (await clock.ask(provider)).error == error(kind, retryable=False)
    assert (provider.attempts, clock.slept) == (1, [])


@pytest.mark.parametrize(("after", "slept"), [(0.25, [1]), (7.0, [7.5]), (30.0, [30]), (30.1, []), (3600.0, [])])
async def test_retry_after_is_a_floor_and_no_longer_than_a_person_waits(after: float, slept: list[float]) -> None:
    clock, provider = Clock(), Scripted([error("rate_limited", after=after)])
    message = await clock.ask(provider)
    assert clock.slept == slept
    assert (message.error is None) == bool(slept)


async def test_no_pause_reaches_past_the_deadline() -> None:
    clock, provider = Clock(), Scripted([error("rate_limited", after=30.0)])
    message = await clock.ask(provider, seconds=30)
    assert message.error is not None
    assert message.error.kind == "rate_limited"
    assert clock.slept == []


async def test_a_deadline_that_has_passed_asks_nobody() -> None:
    clock, provider = Clock(), Scripted([])
    message = await clock.ask(provider, seconds=-1)
    assert message.error is not None
    assert message.error.kind == "timeout"


async def test_the_deltas_of_a_failed_attempt_are_voided_by_its_done() -> None:
    seen: list[Notice] = []
    message = await Clock().ask(Scripted([error("server")]), seen=seen)
    kinds = [type(event).__name__ for event in seen]
    assert kinds == ["TextDelta", "Done", "Retrying", "TextDelta", "Done"]
    failed, last = seen[1], seen[4]
    assert isinstance(failed, Done)
    assert isinstance(last, Done)
    assert failed.message.error is not None
    assert last.message is message


@pytest.mark.parametrize("kind", ["overloaded", "server", "rate_limited", "network"])
async def test_a_model_in_trouble_is_asked_twice_then_the_fallback(kind: ErrorKind) -> None:
    first, second = Scripted([error(kind)] * 9), Scripted([], name="second")
    message = await Clock().ask(first, second)
    assert (message.text, first.attempts) == ("second 1", 2)


@pytest.mark.parametrize("kind", ["auth", "billing", "not_found", "unconfigured"])
async def test_a_model_that_cannot_be_used_gives_way_at_once(kind: ErrorKind) -> None:
    first, second = Scripted([error(kind, retryable=False)]), Scripted([], name="second")
    message = await Clock().ask(first, second)
    assert (message.text, first.attempts) == ("second 1", 1)


@pytest.mark.parametrize("kind", ["invalid", "too_large"])
async def test_a_request_that_is_at_fault_is_not_asked_elsewhere(kind: ErrorKind) -> None:
    first, second = Scripted([error(kind, retryable=False)]), Scripted([], name="second")
    message = await Clock().ask(first, second)
    assert (message.error, second.attempts) == (error(kind, retryable=False), 0)


async def test_the_last_fallback_is_given_the_rest_of_the_time() -> None:
    busy = [error("overloaded")] * 9
    first, second, third = Scripted(busy), Scripted(busy), Scripted(busy[:3], name="third")
    message = await Clock().ask(first, second, third)
    assert (message.text, first.attempts, second.attempts) == ("third 4", 2, 2)


async def test_a_server_that_asks_for_an_hour_gives_way_to_the_fallback() -> None:
    first, second = Scripted([error("rate_limited", after=3600.0)]), Scripted([], name="second")
    assert (await Clock().ask(first, second)).text == "second 1"


async def test_cancelling_reaches_the_pause() -> None:
    waiting = asyncio.Event()

    async def sleep(seconds: float) -> None:
        waiting.set()
        await asyncio.Event().wait()

    provider = Scripted([error("server")])
    task = asyncio.create_task(complete(provider, asking(), deadline=1e12, sleep=sleep))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert provider.attempts == 1


async def test_a_stream_that_hangs_ends_at_the_deadline() -> None:
    class Hanging(Scripted):
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            yield TextDelta(index=0, text="a")
            await asyncio.Event().wait()

    seen: list[Notice] = []
    now = asyncio.get_running_loop().time()
    message = await complete(
        Hanging([]), asking(), deadline=now + 0.05, clock=asyncio.get_running_loop().time, emit=seen.append
    )
    assert message.error is not None
    assert message.error.kind == "timeout"
    assert seen[-1] == Done(message=message)


async def test_a_bad_quarter_of_an_hour_at_anthropic() -> None:
    script = [Fault(status=529, type="overloaded_error"), HTML_200, Fault(status=429, headers={"retry-after": "2"})]
    emulator = AnthropicEmulator([*script, says("at last")])
    clock = Clock()
    async with serve_on_loopback(emulator.app) as url:
        config = ProviderConfig.model_validate({"apiKey": "k", "baseUrl": url})
        provider = build_provider("anthropic", config)
        message = await complete(
            provider, asking(), deadline=1000, sleep=clock.sleep, random=lambda: 1.0, clock=lambda: clock.now
        )
        await provider.close()
    assert message.text == "at last"
    assert clock.slept == [1, 0.5, 4]
    assert len(emulator.requests) == 4


async def test_a_model_that_failed_rests_and_one_answer_forgets_it() -> None:
    health = Health()
    health.failed("first", "m")
    first, second = Scripted([], name="first"), Scripted([], name="second")
    request = replace(asking(), model="m")
    ask = partial(complete, first, request, deadline=1e12, fallbacks=[(second, request)], health=health)
    assert (await ask()).text == "second 1"
    assert (await complete(first, request, deadline=1e12, health=health)).text == "first 1"
    assert not health.rests("first", "m")
    assert (await ask()).text == "first 2"
