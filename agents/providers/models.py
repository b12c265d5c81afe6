"""Facts about models: `models.yaml`, read once; the config overrides them.

An unknown model gets conservative limits, no pictures and no thinking settings. Its API is its provider's choice.
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
"""Thinking levels, lowest first."""

DocumentForm: TypeAlias = Literal["text", "native"]
ThinkingStyle: TypeAlias = Literal["adaptive", "always", "between_tools", "budget", "level"]

_TABLE = Path(__file__).with_name("models.yaml")


Price = Annotated[float, Field(ge=0)]


SHIPPED_CURRENCY = "USD"
"""The currency of the shipped prices."""
_SIGNS: Mapping[str, str] = {"USD": "$", "EUR": "€", "GBP": "£", "CNY": "¥"}


class PricesConfig(Section):
    """Prices per million tokens, in the `currency` of the config."""

    input: Price = 0.0
    """Uncached input."""
    cache_read: Price = 0.0
    """Input from the provider's cache."""
    cache_write: Price = 0.0
    """Input written to the provider's cache, if that is charged."""
    output: Price = 0.0
    """Output, including reasoning."""
    as_of: str = ""
    """The date of these prices, such as `"2026-11-23"`; informational."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFacts:
    """`known` is False for the conservative defaults of an unlisted model. `models.yaml` describes the members; a
    `thinking_style` of None means the API's newest way."""

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
    """Return the shipped facts of a model, named without its provider."""
    names = {family_of(model), family_of(model.rpartition("/")[2])}  # OpenRouter says vendor/model
    table, prices = _tables()
    for pattern, facts in table:
        if any(fnmatchcase(name, pattern) for name in names):
            return replace(facts, prices=next((prices[it] for it in names if it in prices), None))
    return UNKNOWN


def shipped_prices(model: str, currency: str) -> PricesConfig | None:
    """Return the shipped prices of a model; None in another currency, since sums never mix two."""
    return facts_of(model).prices if currency == SHIPPED_CURRENCY else None


def money(amount: float, currency: str) -> str:
    """Format an amount: `$0.0779`, `¥12.30`, `0.0779 CHF`."""
    shown = f"{amount:,.2f}" if amount >= 1 else f"{amount:.4f}"
    return f"{_SIGNS[currency]}{shown}" if currency in _SIGNS else f"{shown} {currency}"


def known_names() -> list[str]:
    """Return the names in the shipped table; of a pattern, the part before its asterisk."""
    return [
        name for pattern, _ in _tables()[0] if "*" not in (name := pattern.removesuffix("*")) and name[-1].isalnum()
    ]


def family_of(model: str) -> str:
    """Return the model without its date; thinking blocks go back only to the same family."""
    return re.sub(r"(?:[-@]20\d{6}|-20\d\d-\d\d-\d\d|-latest)$", "", model)


def nearest(wanted: Level, levels: tuple[Level, ...]) -> Level | None:
    """Return the level to request: the wanted one, else the next below, else the lowest; None if the model has no levels."""
    ranked = sorted(levels, key=LEVELS.index)
    below = [level for level in ranked if LEVELS.index(level) <= LEVELS.index(wanted)]
    if wanted != "off" and below == ["off"] and len(ranked) > 1:
        return ranked[1]  # a request for a little thinking gets some
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
