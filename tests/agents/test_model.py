"""What the config says of a model wins over what is known of it; how its tools are offered follows from both."""

from datetime import date
from pathlib import Path

import pytest
import yaml

from agents.messages import Usage
from agents.model import Models
from agents.providers import models as models_table
from agents.providers.catalog import build_provider
from agents.providers.config import ModelConfig, ProviderConfig
from agents.providers.models import facts_of
from agents.providers.prompted import PromptedTools

NATIVE = ProviderConfig.model_validate({"api": "openai-chat", "baseUrl": "http://h/v1"})
BY_PROMPT = ProviderConfig.model_validate({"api": "openai-chat", "baseUrl": "http://h/v1", "toolCalling": "prompt"})


def models(provider: ProviderConfig = NATIVE, **configured: dict[str, object]) -> Models:
    written = {name.replace("__", "/"): ModelConfig.model_validate(config) for name, config in configured.items()}
    return Models({"p": build_provider("p", provider)}, {"p": provider}, written)


@pytest.mark.parametrize(
    ("provider", "name", "configured", "by_prompt"),
    [
        (NATIVE, "some", {}, False),
        (BY_PROMPT, "some", {}, True),
        (BY_PROMPT, "some", {"toolCalling": "native"}, False),
        (NATIVE, "some", {"toolCalling": "prompt"}, True),
        (NATIVE, "clawdbot-3.5", {}, True),
        (NATIVE, "clawdbot-3.5", {"toolCalling": "native"}, False),
        (NATIVE, "clawdbot-3.5-tools", {}, False),
    ],
)
def test_tools_are_offered_as_the_model_takes_them(
    provider: ProviderConfig, name: str, configured: dict[str, object], by_prompt: bool
) -> None:
    model = Models(
        {"p": build_provider("p", provider)}, {"p": provider}, {name: ModelConfig.model_validate(configured)}
    )
    assert isinstance(model.get(f"p/{name}").provider, PromptedTools) == by_prompt


def test_model_config_wins_over_the_table() -> None:
    configured = models(p__some={"window": 9000, "maxOutput": 900}, some={"window": 7000, "vision": True})
    facts = configured.get("p/some").facts
    assert (facts.window, facts.max_output, facts.vision, facts.known) == (9000, 900, False, True)
    assert configured.get("p/some") is configured.get("p/some")


PRICED: list[str] = list(yaml.safe_load(Path(models_table.__file__).with_name("models.yaml").read_bytes())["prices"])


@pytest.mark.parametrize("name", PRICED)
def test_model_shipped_price_has_a_date_and_a_known_model(name: str) -> None:
    prices = facts_of(name).prices
    assert facts_of(name).known
    assert prices is not None
    assert date(2024, 1, 1) < date.fromisoformat(prices.as_of) < date(2026, 12, 31)
    assert 0 < prices.cache_read < prices.input < prices.output
    if name.startswith("claude"):
        assert prices.cache_read == pytest.approx(prices.input / 10)
        assert prices.cache_write == 1.25 * prices.input


@pytest.mark.parametrize(
    ("model", "priced_as"),
    [
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("anthropic/claude-sonnet-4-6", "claude-sonnet-4-6"),
        ("gpt-4o-2024-11-20", "gpt-4o"),
        ("gpt-4o-mini", "gpt-4o-mini"),
        ("gpt-5.5-pro", None),
        ("gpt-4.1-turbo", None),
        ("claude-opus-5-5", None),
        ("gemma", None),
        ("prices", None),
        ("nobody-knows-it", None),
    ],
)
def test_a_price_is_of_the_very_model_and_no_other_size_has_it(model: str, priced_as: str | None) -> None:
    assert facts_of(model).prices == (facts_of(priced_as).prices if priced_as else None)
    assert (facts_of(model).prices is None) is (priced_as is None)


def test_a_cost_needs_prices() -> None:
    usage = Usage(input=1_000_000, cache_read=2_000_000, cache_write=1_000_000, output=100_000)
    prices = {"input": 3.0, "cacheRead": 0.3, "cacheWrite": 3.75, "output": 15.0}
    assert models(some={"prices": prices}).get("p/some").cost(usage) == pytest.approx(3 + 0.6 + 3.75 + 1.5)
    assert models().get("p/some").cost(usage) is None
