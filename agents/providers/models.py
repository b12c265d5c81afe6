"""The facts that we know of models: `models.yaml`, read once, under what the config says of them.

An unknown model gets cautious limits, no pictures and no thinking settings. Its wire is its provider's business.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import Field
from pydantic.alias_generators import to_snake

from channels.section import Section

Level: TypeAlias = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""The levels of thinking that a model may be asked for, least first."""

DocumentForm: TypeAlias = Literal["text", "native"]
ThinkingStyle: TypeAlias = Literal["adaptive", "always", "between_tools", "budget", "level"]

_TABLE = Path(__file__).with_name("models.yaml")


Price = Annotated[float, Field(ge=0)]


SHIPPED_CURRENCY = "USD"
"""The currency of the shipped prices."""
_SIGNS: Mapping[str, str] = {"USD": "$", "EUR": "€", "GBP": "£", "CNY": "¥"}


class PricesConfig(Section):
    """The cost of a million tokens, in the `currency` of the config."""

    input: Price = 0.0
    """Read by the model, not from a cache."""
    cache_read: Price = 0.0
    """Read from the provider's cache."""
    cache_write: Price = 0.0
    """Written to the provider's cache, if it charges for that."""
    output: Price = 0.0
    """Written by the model, reasoning included."""
    as_of: str = ""
    """The day of these prices, such as `"2026-11-23"`: a note for people."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFacts:
    """`known` is False if these are the cautious guess for a model that no table has. The members are described in
    `models.yaml`; `thinking_style` is None for the newest way of its wire."""

    window: int = 128_000
    max_output: int = 8_192
    vision: bool = False
    thinking: tuple[Level, ...] = ()
    thinking_style: ThinkingStyle | None = None
    forced_tool: bool = True
    prefill: bool = False
    tools: bool = True
    documents: DocumentForm = "text"
    prices: PricesConfig | None = None
    known: bool = True


UNKNOWN = ModelFacts(known=False)


@cache
def facts_of(model: str) -> ModelFacts:
    """The shipped table's facts of a model, named without its provider."""
    names = {family_of(model), family_of(model.rpartition("/")[2])}  # OpenRouter says vendor/model
    table, prices = _tables()
    for pattern, facts in table:
        if any(fnmatchcase(name, pattern) for name in names):
            return replace(facts, prices=next((prices[it] for it in names if it in prices), None))
    return UNKNOWN


def shipped_prices(model: str, currency: str) -> PricesConfig | None:
    """Return the shipped prices of a model; none if costs are counted in another currency: no sum mixes two."""
    return facts_of(model).prices if currency == SHIPPED_CURRENCY else None


def money(amount: float, currency: str) -> str:
    """Return an amount as people read it: `$0.0779`, `¥12.30`, `0.0779 CHF`."""
    shown = f"{amount:,.2f}" if amount >= 1 else f"{amount:.4f}"
    return f"{_SIGNS[currency]}{shown}" if currency in _SIGNS else f"{shown} {currency}"


def known_names() -> list[str]:
    """Names that the shipped table has, as one would write them: of a pattern, the part before its asterisk."""
    return [
        name for pattern, _ in _tables()[0] if "*" not in (name := pattern.removesuffix("*")) and name[-1].isalnum()
    ]


def family_of(model: str) -> str:
    """The model without its date: what made a thinking block is who may get it back."""
    return re.sub(r"(?:[-@]20\d{6}|-20\d\d-\d\d-\d\d|-latest)$", "", model)


def nearest(wanted: Level, levels: tuple[Level, ...]) -> Level | None:
    """The level to ask for: the wanted one of `levels`, else the next below, else the lowest; None if a model takes none."""
    ranked = sorted(levels, key=LEVELS.index)
    below = [level for level in ranked if LEVELS.index(level) <= LEVELS.index(wanted)]
    if wanted != "off" and below == ["off"] and len(ranked) > 1:
        return ranked[1]  # a person who asks for a little thinking gets some
    return below[-1] if below else ranked[0] if ranked else None


@cache
def _tables() -> tuple[tuple[tuple[str, ModelFacts], ...], Mapping[str, PricesConfig]]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    written: dict[str, dict[str, Any]] = yaml.load(_TABLE.read_bytes(), Loader=loader)
    prices = {name: PricesConfig(**record) for name, record in written.pop("prices").items()}
    return tuple((name, _facts(it)) for names, it in written.items() for name in names.split("|")), prices


def _facts(record: dict[str, Any]) -> ModelFacts:
    # YAML 1.1 reads `off` as false.
    levels: tuple[Level, ...] = tuple("off" if level is False else level for level in record.get("thinking", ()))
    return ModelFacts(**{to_snake(key): value for key, value in record.items()} | {"thinking": levels})
