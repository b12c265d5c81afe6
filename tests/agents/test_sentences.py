"""Every way a turn can fail has a sentence, in both languages, and none of them says too much."""

from typing import get_args

import pytest

from agents import sentences
from agents.messages import ErrorKind, ModelError
from agents.outcome import Declined, Limit, LimitReached, ModelFailed, Outcome

OUTCOMES: list[Outcome] = [
    *(
        ModelFailed(error=ModelError(kind=kind, summary="401 secret-summary", retryable=False))
        for kind in get_args(ErrorKind)
    ),
    *(LimitReached(limit=limit) for limit in get_args(Limit)),
    Declined(),
]


@pytest.mark.parametrize("outcome", OUTCOMES, ids=repr)
def test_every_failure_is_one_short_sentence_in_the_users_language(outcome: Outcome) -> None:
    chinese, english = sentences.failure(outcome, "你好"), sentences.failure(outcome, "hello")
    assert any("一" <= char <= "鿿" for char in chinese)
    assert english.isascii()
    for said in (chinese, english):
        assert 5 < len(said) < 160
        assert "secret-summary" not in said
        assert "\n" not in said


def test_too_many_is_said_in_the_language_of_the_message() -> None:
    assert sentences.too_many("hello").isascii()
    assert "排队" in sentences.too_many("你好")
