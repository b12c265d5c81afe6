"""What rests after a failure and for how long: keys of a provider, and models among their fallbacks."""

from dataclasses import dataclass

from agents.messages import ErrorKind, ModelError
from agents.providers.network import KeyRing
from agents.providers.retry import Health


@dataclass
class Clock:
    at: float = 0.0

    def __call__(self) -> float:
        return self.at


def error(kind: ErrorKind, retry_after_seconds: float | None = None) -> ModelError:
    return ModelError(kind=kind, summary="", retryable=True, retry_after_seconds=retry_after_seconds)


def test_chats_are_spread_over_the_keys_and_each_stays_with_its_own() -> None:
    assert KeyRing([]).pick("chat") is None
    ring = KeyRing(["a", "b", "c"])
    picked = {chat: ring.pick(chat) for chat in map(str, range(60))}
    assert set(picked.values()) == {"a", "b", "c"}
    assert all(ring.pick(chat) == key for chat, key in picked.items())


def test_a_key_that_has_had_enough_rests_while_another_works() -> None:
    clock = Clock()
    ring = KeyRing(["a", "b"], clock=clock)
    first = ring.pick("chat") or ""
    assert not ring.refused(first, error("overloaded"))  # this is not about the key
    assert ring.pick("chat") == first
    assert ring.refused(first, error("rate_limited", 7))
    other = ring.pick("chat") or ""
    assert {first, other} == {"a", "b"}
    assert not ring.refused(other, error("auth"))
    assert ring.pick("chat") == first  # which wakes first
    clock.at = 7.0
    assert ring.refused(other, error("auth"))


def test_a_model_rests_longer_each_time_and_one_answer_forgets_it_all() -> None:
    clock = Clock()
    health = Health(clock=clock)
    assert not health.rests("p", "m")
    for rest in (30.0, 60.0, 300.0, 300.0):
        health.failed("p", "m")
        clock.at += rest - 0.1
        assert health.rests("p", "m")
        clock.at += 0.2
        assert not health.rests("p", "m")
    health.answered("p", "m")
    health.failed("p", "m")
    clock.at += 31
    assert not health.rests("p", "m")
    assert not health.rests("p", "other")
