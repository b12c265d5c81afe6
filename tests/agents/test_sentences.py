"""Every way a turn can fail has a sentence, in both languages, and none of them says too much."""

import re
from typing import get_args

import pytest

from agents import sentences
from agents.language import Language, decided_by, language_of
from agents.messages import ErrorKind, ModelError
from agents.turn import Declined, LimitReached, ModelFailed, Outcome, OverBudget, Payer, TurnLimit

OUTCOMES: list[Outcome] = [
    *(
        ModelFailed(error=ModelError(kind=kind, summary="401 secret-summary", retryable=False))
        for kind in get_args(ErrorKind)
    ),
    *(LimitReached(limit=limit) for limit in get_args(TurnLimit)),
    Declined(),
    *(OverBudget(whose=whose, period="day", until="00:00 CST") for whose in get_args(Payer)),
    OverBudget(whose="sender", period="month", until="2026-12-01"),
]


@pytest.mark.parametrize("outcome", OUTCOMES, ids=repr)
def test_every_failure_is_one_short_sentence_in_the_users_language(outcome: Outcome) -> None:
    chinese, english = sentences.failure(outcome, "zh"), sentences.failure(outcome, "en")
    assert any("一" <= char <= "鿿" for char in chinese)
    assert english.isascii()
    for sentence in (chinese, english):
        assert 5 < len(sentence) < 160
        assert not re.search(r"secret-summary|\n", sentence)
    if isinstance(outcome, ModelFailed) and outcome.error.kind in ("auth", "billing", "not_found", "unconfigured"):
        assert "所有者" in chinese


def test_a_long_pause_is_told_with_its_seconds() -> None:
    busy, broken = (ModelError(kind=kind, summary="", retryable=True) for kind in ("overloaded", "network"))
    assert sentences.retrying(busy, 1.9, "en") == "The model is busy. Trying again."
    assert sentences.retrying(busy, 19.6, "en") == "The model is busy. Trying again in 20 s."
    assert sentences.retrying(broken, 5.0, "zh") == "与模型的连接中断，5 秒后重试。"


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("帮我写脚本", "zh"),
        ("write 脚本", "zh"),
        ("𠮷", "zh"),
        ("write a script", "en"),
        ("", "en"),
        ("。、!", "en"),
        ("おはよう", "en"),
        ("ｶﾀｶﾅ", "en"),
        ("大韓民國 만세", "en"),
    ],
)
def test_language_is_chinese_for_chinese_else_english(text: str, language: Language) -> None:
    assert language_of(text) == language
    for kind in get_args(ErrorKind):
        failed = ModelFailed(error=ModelError(kind=kind, summary="", retryable=False))
        assert sentences.failure(failed, language).isascii() == (language == "en")
    for sentence in (sentences.internal_error(language), sentences.too_many(language)):
        assert sentence.isascii() == (language == "en")


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("帮我写脚本", "zh"),
        ("看看 this error message from the server", "zh"),
        ("/帮助", "zh"),
        ("please write me a script", "en"),
        ("What's in my folder?", "en"),
        ("おはよう", "en"),
        ("OK", None),
        ("table please", None),
        ("git status --short", None),
        ("https://example.com/a/long/path/to/some/page", None),
        ("ls -la /usr/lib && cat a_b.txt", None),
        ("/model anthropic/claude-haiku-4-5", None),
        ("/status", None),
        ("／status", None),
        ("👍", None),
        ("", None),
    ],
)
def test_a_text_decides_a_language_by_its_characters_or_by_four_words(text: str, language: Language | None) -> None:
    assert decided_by(text) == language


@pytest.mark.parametrize(
    ("seconds", "english", "chinese"),
    [
        (-5, "1 s", "1 秒"),
        (0.2, "1 s", "1 秒"),
        (119, "119 s", "119 秒"),
        (119.5, "2 min", "2 分钟"),
        (121, "3 min", "3 分钟"),
        (7140, "119 min", "119 分钟"),
        (7201, "3 h", "3 小时"),
        (86400, "24 h", "24 小时"),
    ],
)
def test_when_somebody_may_go_on_is_never_said_too_early(seconds: float, english: str, chinese: str) -> None:
    languages: tuple[tuple[str, Language], ...] = ((f" wait {english};", "en"), (f"等 {chinese}再发", "zh"))
    for sentence, language in languages:
        assert sentence in sentences.too_fast("sender", seconds, language)
        assert sentence in sentences.too_fast("chat", seconds, language)
