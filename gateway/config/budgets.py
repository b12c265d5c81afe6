"""The sections `budgets` and `rates`: what may be spent in a day or month, and how often a person is answered."""

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
    """The messages answered within any `seconds`."""

    count: int
    seconds: float


class BudgetConfig(Section):
    """The most that may be spent in a day or month; nothing is counted if no key is set."""

    tokens_per_day: Annotated[int, Field(ge=1)] | None = None
    """Tokens of all requests to a model: input, cached or not, and output."""
    cost_per_day: Annotated[float, Field(gt=0)] | None = None
    """Money at the prices under `models`, else at the shipped ones; a model without prices costs nothing here."""
    cost_per_month: Annotated[float, Field(gt=0)] | None = None
    """Money in a calendar month. Days that were counted before the key was set count as well."""

    @property
    def is_set(self) -> bool:
        return self.is_set_for_day or self.cost_per_month is not None

    @property
    def is_set_for_day(self) -> bool:
        return self.tokens_per_day is not None or self.cost_per_day is not None


class BudgetsConfig(Section):
    """The most that may be spent in a day or month, which begin at midnight in `server.timezone` (docs/budgets.md)."""

    agent: BudgetConfig = BudgetConfig()
    """Each agent, in all chats together."""
    chat: BudgetConfig = BudgetConfig()
    """Each chat, its topics and all people in it together."""
    sender: BudgetConfig = BudgetConfig()
    """Each person, in all chats of a channel account together."""

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
    """The number of messages answered in a time; the first one beyond that gets a sentence, the further ones nothing."""

    sender: RateText | None = None
    """Messages of one person, in all chats of a channel account together, such as `20/1m`. A command counts only if it asks
    a model."""
    chat: RateText | None = None
    """Messages of one chat, its topics and all people in it together, such as `60/1m`."""

    @property
    def by_whom(self) -> dict[Rated, Rate]:
        written: dict[Rated, str | None] = {"sender": self.sender, "chat": self.chat}
        return {whose: rate_of(text) for whose, text in written.items() if text is not None}
