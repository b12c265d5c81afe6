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
    "agent": Bilingual("this assistant's", "本助手"),
    "chat": Bilingual("this chat's", "本聊天"),
    "sender": Bilingual("your", "你"),
}
_OVER_BUDGET: dict[Period, Bilingual] = {
    "day": Bilingual(
        "{whose} budget for today is used up. It starts again at {until}; please write to me then.",
        "{whose}今天的用量额度已经用完，{until} 恢复，请届时再发消息。",
    ),
    "month": Bilingual(
        "{whose} budget for this month is used up. It starts again on {until}; please write to me then.",
        "{whose}本月的用量额度已经用完，{until} 恢复，请届时再发消息。",
    ),
}
_BUDGET_WARNING: dict[Period, Bilingual] = {
    "day": Bilingual(
        "({percent} % of {whose} budget for today is used; it starts again at {until}.)",
        "（{whose}今天的用量额度已使用 {percent}%，{until} 恢复。）",
    ),
    "month": Bilingual(
        "({percent} % of {whose} budget for this month is used; it starts again on {until}.)",
        "（{whose}本月的用量额度已使用 {percent}%，{until} 恢复。）",
    ),
}
_TOO_FAST = Bilingual(
    "You write faster than I may answer. Please go on in {amount} {en}; what comes before that gets no answer.",
    "你发得太快了，请 {amount} {zh}后继续；在此之前的消息不会得到回复。",
)
_TOO_BUSY = Bilingual(
    "There is more in this chat than I may answer. Please go on in {amount} {en}; what comes before that gets no answer.",
    "本聊天的消息太多了，请 {amount} {zh}后继续；在此之前的消息不会得到回复。",
)
