"""Sentences about what a person, a chat or an agent may still use: budgets of tokens, and rates of messages."""

import math
from typing import Literal

from agents.language import Language
from agents.turn import OverBudget, Payer, Period
from channels.bilingual import Bilingual


def over_budget(spent: OverBudget, language: Language) -> str:
    """The sentence instead of an answer; behind another sentence if something has been done."""
    sentence = _OVER_BUDGET[spent.period](language).format(whose=_WHOSE[spent.whose](language), until=spent.until)
    return sentence[:1].upper() + sentence[1:]


def budget_warning(whose: Payer, period: Period, share: float, until: str, language: Language) -> str:
    """The warning that is put beneath an answer."""
    percent = min(100, int(share * 100))
    return _BUDGET_WARNING[period](language).format(whose=_WHOSE[whose](language), percent=percent, until=until)


def too_fast(whose: Literal["sender", "chat"], seconds: float, language: Language) -> str:
    """The sentence instead of an answer to the first message beyond a rate; `seconds` until it goes on."""
    amount, en, zh = math.ceil(max(1.0, seconds)), "s", "秒"
    for size, *units in ((60, "min", "分钟"), (60, "h", "小时")):
        if amount >= 2 * size:
            amount, (en, zh) = math.ceil(amount / size), units
    return (_TOO_FAST if whose == "sender" else _TOO_BUSY)(language).format(amount=amount, en=en, zh=zh)


_WHOSE: dict[Payer, Bilingual] = {
    "agent": Bilingual("this agent's", "这个智能体"),
    "chat": Bilingual("this chat's", "这个聊天"),
    "sender": Bilingual("your", "你"),
}
_OVER_BUDGET: dict[Period, Bilingual] = {
    "day": Bilingual(
        "{whose} budget for today is used up. It resets at {until}; please write to me then.",
        "{whose}今天的额度已经用完，{until} 重置，届时再聊。",
    ),
    "month": Bilingual(
        "{whose} budget for this month is used up. It resets on {until}; please write to me then.",
        "{whose}本月的额度已经用完，{until} 重置，届时再聊。",
    ),
}
_BUDGET_WARNING: dict[Period, Bilingual] = {
    "day": Bilingual(
        "({percent} % of {whose} budget for today is used. It resets at {until}.)",
        "（{whose}今天的额度已用 {percent}%，{until} 重置。）",
    ),
    "month": Bilingual(
        "({percent} % of {whose} budget for this month is used. It resets on {until}.)",
        "（{whose}本月的额度已用 {percent}%，{until} 重置。）",
    ),
}
_TOO_FAST = Bilingual(
    "That was a lot at once. Please wait {amount} {en}; I will not see messages sent before then.",
    "你发得太快了，请等 {amount} {zh}再发；在此之前的消息我不会看到。",
)
_TOO_BUSY = Bilingual(
    "This chat is too busy for me. Please wait {amount} {en}; I will not see messages sent before then.",
    "这个聊天的消息太多了，请等 {amount} {zh}再发；在此之前的消息我不会看到。",
)
