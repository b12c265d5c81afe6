"""Every way to fail has one calm sentence, in the language of the person, without a word of the provider's."""

from typing import get_args

import pytest

from agents.messages import ErrorKind, ModelError, StopReason
from agents.providers.sentences import sentence

PROBLEMS: list[ModelError | StopReason] = [
    *(ModelError(kind=kind, summary="status=500 SECRET", retryable=True) for kind in get_args(ErrorKind)),
    *get_args(StopReason),
]


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize(("answered", "chinese"), [("帮我写脚本", True), ("write a script", False), ("", False)])
def test_one_short_sentence_in_the_persons_language(
    problem: ModelError | StopReason, answered: str, chinese: bool
) -> None:
    said = sentence(problem, answered)
    assert 5 < len(said) < 130
    assert "SECRET" not in said
    assert "\n" not in said
    assert said.isascii() != chinese


def test_the_operators_errors_name_the_operator() -> None:
    for kind in ("auth", "billing", "not_found", "unconfigured"):
        assert "管理员" in sentence(ModelError(kind=kind, summary="", retryable=False), "你好")


def test_sentences_differ_where_the_advice_differs() -> None:
    same = {"invalid", "stale_thinking", "no_tools"}  # to a person: the model did not accept this
    said = {sentence(ModelError(kind=kind, summary="", retryable=True)) for kind in get_args(ErrorKind)}
    assert len(said) == len(get_args(ErrorKind)) - len(same) + 1
