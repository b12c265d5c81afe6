"""The sections `budgets` and `rates`: what may be spent in a day, and how often somebody is answered."""

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field
from pydantic.alias_generators import to_camel

from gateway.store.spending import Rate, Rated

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
RATE_SECONDS_MAX = 86_400
RATE_COUNT_MAX = 10_000


class BudgetConfig(BaseModel, extra="forbid", strict=True, frozen=True, alias_generator=to_camel):
    """What may be spent in a day; nothing is counted where neither key is set."""

    tokens_per_day: Annotated[int, Field(ge=1)] | None = None
    """Tokens of all requests to a model: input, cached or not, and output."""
    cost_per_day: Annotated[float, Field(gt=0)] | None = None
    """Money at the prices under `models`, in their currency; a model without prices costs nothing here."""

    @property
    def is_set(self) -> bool:
        return self.tokens_per_day is not None or self.cost_per_day is not None


class BudgetsConfig(BaseModel, extra="forbid", strict=True, frozen=True, alias_generator=to_camel):
    """What may be spent in a day, which begins at midnight in `server.timezone` (docs/budgets.md)."""

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


def _is_rate(text: str) -> str:
    rate_of(text)
    return text


RateText = Annotated[str, AfterValidator(_is_rate)]


class RatesConfig(BaseModel, extra="forbid", strict=True, frozen=True, alias_generator=to_camel):
    """How many messages are answered in a time; the first one beyond that gets a sentence, the further ones nothing."""

    sender: RateText | None = None
    """Of one person, in all chats of a channel account together, such as `20/1m`. Commands do not count."""
    chat: RateText | None = None
    """Of one chat, its topics and all people in it together, such as `60/1m`."""

    @property
    def by_whom(self) -> dict[Rated, Rate]:
        """Those that are set."""
        written: dict[Rated, str | None] = {"sender": self.sender, "chat": self.chat}
        return {whose: rate_of(text) for whose, text in written.items() if text is not None}
