"""What people write under `budgets` and `rates`."""

from pathlib import Path

import pytest

from gateway.config.budgets import Rate, RatesConfig, rate_of
from tests.gateway.config.writing import lines, loaded

AGENT = "agents: { list: [ { id: a, model: [openai/gpt-5, anthropic/claude-sonnet-4-6] } ] }\n"


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("20/1m", Rate(count=20, seconds=60)),
        ("5/30s", Rate(count=5, seconds=30)),
        ("100/2h", Rate(count=100, seconds=7200)),
        ("1/1d", Rate(count=1, seconds=86400)),
        *((text, None) for text in ("", "20", "20/m", "0/1m", "1/0s", "-1/1m", "1.5/1m", "1/25h", "1/2d", "20/1M")),
        *((text, None) for text in ("20 / 1m", "20/1m ", "10001/1m", "２０/1m", "9" * 400 + "/1m")),
    ],
)
def test_a_rate_is_messages_in_a_time(text: str, rate: Rate | None) -> None:
    if rate is not None:
        assert rate_of(text) == rate
        assert RatesConfig(sender=text).by_whom == {"sender": rate}
        return
    with pytest.raises(ValueError, match="such as 20/1m"):
        rate_of(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rates: { sender: 20/min }", "rates.sender"),
        ("budgets: { agent: { tokensPerDay: 0 } }", "budgets.agent.tokensPerDay"),
        ("budgets: { chat: { costPerDay: -1 } }", "budgets.chat.costPerDay"),
        ("budgets: { agent: { costPerMonth: 0 } }", "budgets.agent.costPerMonth"),
        ("budgets: { sender: { tokenPerDay: 5 } }", "tokensPerDay"),
    ],
)
def test_a_wrong_one_is_refused_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    (problem,) = lines(tmp_path, AGENT + text)
    assert words in problem


def test_a_budget_in_money_wants_prices(tmp_path: Path) -> None:
    money = "budgets: { agent: { tokensPerDay: 5, costPerMonth: 9 }, sender: { costPerDay: 1 } }\n"
    prices = "models: { claude-sonnet-4-6: { prices: { input: 3, output: 15 } } }\n"
    assert not [line for line in loaded(tmp_path, AGENT + prices).warnings if "no price" in line.message]
    assert not [
        line for line in loaded(tmp_path, AGENT + money + prices).warnings if "no price" in line.message
    ]  # shipped ones
    unknown = AGENT.replace("openai/gpt-5", "openai/gpt-5-pro")
    (line,) = [line for line in loaded(tmp_path, unknown + money + prices).warnings if "no price" in line.message]
    whose = "budgets.agent.costPerMonth, budgets.sender.costPerDay"
    assert f"config.yaml:2:38: {whose}: no price in USD is known of openai/gpt-5-pro, so what they take" in line.message
