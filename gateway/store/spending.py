"""The counts beside the messages: what their answers take, for budgets, and how often people write, for rates."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from gateway.config.budgets import Rate, Rated


@dataclass(frozen=True, kw_only=True, slots=True)
class Spent:
    """The usage of model requests, counted for each of `scopes` on `day`, such as 2026-11-22. Their order is agent, chat,
    sender: two turns with the same scopes never deadlock."""

    scopes: tuple[str, ...]
    day: str
    tokens: int
    cost: float

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [{"scope": it, "day": self.day, "tokens": self.tokens, "cost": self.cost} for it in self.scopes]


@dataclass(frozen=True, kw_only=True, slots=True)
class ScopeUsage:
    """A scope's spending in a day, and in the days of its month up to then. `warned` is the turn with the warning that most
    of it is used, 0 for none."""

    scope: str
    tokens: int = 0
    cost: float = 0.0
    warned: int = 0
    month_cost: float = 0.0
    month_warned: int = 0


def month_of(day: str) -> str:
    """The month of a day: `2026-11`, under which the month's warning is kept."""
    return day[:7]


def limits_of(rates: Mapping[Rated, Rate]) -> dict[str, float]:
    """The rates as placeholders; a missing rate gets a limit that is never reached."""
    of = {whose: rates.get(whose, Rate(count=2**31 - 1, seconds=0.0)) for whose in get_args(Rated)}
    counts = {f"{whose}_count": rate.count for whose, rate in of.items()}
    return counts | {f"{whose}_seconds": rate.seconds for whose, rate in of.items()}
