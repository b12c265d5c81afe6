"""The sections `budgets` and `rates`: spending limits per day or month, and rate limits for messages."""

import re
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field

from channels.section import Section

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
RATE_SECONDS_MAX = 86_400
RATE_COUNT_MAX = 10_000
Rated: TypeAlias = Literal["sender", "chat"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
    """Allow `count` messages within any window of `seconds`."""

    count: int
    seconds: float


class BudgetConfig(Section):
    """Spending limits per day or month; without any key, nothing is counted."""

    tokens_per_day: Annotated[int, Field(ge=1)] | None = None
    """Tokens of all model requests: input, cached or not, and output."""
    cost_per_day: Annotated[float, Field(gt=0)] | None = None
    """Cost at the prices under `models`, else at the shipped ones; a model without prices counts as free."""
    cost_per_month: Annotated[float, Field(gt=0)] | None = None
    """Cost per calendar month, including days that were counted before this key was set."""

    @property
    def is_set(self) -> bool:
        return self.is_set_for_day or self.cost_per_month is not None

    @property
    def is_set_for_day(self) -> bool:
        return self.tokens_per_day is not None or self.cost_per_day is not None


class BudgetsConfig(Section):
    """Spending limits per day or month, which begin at midnight in `server.timezone` (docs/budgets.md)."""

    agent: BudgetConfig = BudgetConfig()
    """Each agent, over all chats."""
    chat: BudgetConfig = BudgetConfig()
    """Each chat, including its topics, over all senders."""
    sender: BudgetConfig = BudgetConfig()
    """Each sender, over all chats of a channel account."""

    @property
    def is_set(self) -> bool:
        return self.agent.is_set or self.chat.is_set or self.sender.is_set


def rate_of(text: str) -> Rate:
    """Raises ValueError."""
    found = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})([smhd])", text)
    count, seconds = (int(found[1]), int(found[2]) * _SECONDS[found[3]]) if found else (0, 0)
    if not (1 <= count <= RATE_COUNT_MAX and 1 <= seconds <= RATE_SECONDS_MAX):
        raise ValueError(f"expected messages/time such as 20/1m, 100/1h or 5/30s; at most {RATE_COUNT_MAX:,} and 1d")
    return Rate(count=count, seconds=seconds)


RateText = Annotated[str, AfterValidator(lambda text: rate_of(text) and text)]


class RatesConfig(Section):
    """Rate limits for messages. The first message above a limit gets a notice, further ones no answer."""

    sender: RateText | None = None
    """Messages of one sender over all chats of a channel account, such as `20/1m`. A command counts only if it asks a
    model."""
    chat: RateText | None = None
    """Messages of one chat, including its topics, over all senders, such as `60/1m`."""

    @property
    def by_whom(self) -> dict[Rated, Rate]:
        written: dict[Rated, str | None] = {"sender": self.sender, "chat": self.chat}
        return {whose: rate_of(text) for whose, text in written.items() if text is not None}
