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


def test_without_keys_there_is_none() -> None:
    assert KeyRing([]).pick("chat") is None


def test_chats_are_spread_over_the_keys_and_each_stays_with_its_own() -> None:
    ring = KeyRing(["a", "b", "c"])
    picked = {chat: ring.pick(chat) for chat in map(str, range(60))}
    assert set(picked.values()) == {"a", "b", "c"}
    assert all(ring.pick(chat) == key for chat, key in picked.items())


def test_a_key_that_has_had_enough_rests_while_another_works() -> None:
    clock = Clock()
    ring = KeyRing(["a", "b"], clock=clock)
    first = ring.pick("chat")
    assert first is not None
    assert ring.refused(first, error("rate_limited", 7))
    other = ring.pick("chat")
    assert other is not None
    assert other != first
    clock.at = 7.0
    assert ring.pick("chat") == first


def test_when_every_key_rests_the_one_that_wakes_first_is_used() -> None:
    clock = Clock()
    ring = KeyRing(["a", "b"], clock=clock)
    assert ring.refused("a", error("auth"))
    assert not ring.refused("b", error("rate_limited"))
    assert ring.pick("chat") == "b"


def test_what_is_not_about_the_key_lets_none_rest() -> None:
    ring = KeyRing(["a", "b"])
    before = ring.pick("chat")
    assert before is not None
    assert not ring.refused(before, error("overloaded"))
    assert ring.pick("chat") == before


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
