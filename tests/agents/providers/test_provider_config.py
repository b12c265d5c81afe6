"""The `providers:` block: what is implied, what is refused and what one is told to do."""

import pytest
from pydantic import ValidationError

from agents.providers.anthropic.provider import AnthropicProvider
from agents.providers.catalog import build_provider
from agents.providers.config import ProviderConfig, api_of
from agents.providers.demo.provider import DemoProvider
from agents.providers.models import accepts_forced_tool, accepts_prefill, family_of, limits_of


def config(**members: object) -> ProviderConfig:
    return ProviderConfig.model_validate(members)


def test_known_names_imply_their_wire() -> None:
    assert isinstance(build_provider("anthropic", config()), AnthropicProvider)
    assert isinstance(build_provider("demo", config()), DemoProvider)
    proxy = build_provider("proxy", config(api="anthropic-messages", baseUrl="http://127.0.0.1:8080/claude"))
    assert (proxy.name, proxy.api) == ("proxy", "anthropic-messages")


def test_an_unknown_name_is_asked_for_its_api() -> None:
    with pytest.raises(ValueError, match=r'providers.local: add "api:", one of anthropic-messages, demo'):
        api_of("local", config())


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"api": "openai-chat"}, "this release speaks anthropic-messages and demo"),
        ({"api": 7}, "unknown api 7"),
        ({"baseUrl": "ftp://host"}, "expected an http:// or https:// address"),
        ({"baseUrl": "api.anthropic.com"}, "expected an http:// or https:// address"),
        ({"baseUrl": "http://host:99999"}, "expected an http:// or https:// address"),
        ({"baseUrl": "http://host/?q=1"}, "expected an http:// or https:// address"),
        ({"baseUrl": "http://ho st"}, "expected an http:// or https:// address"),
        ({"apiKey": "你的密钥"}, "was a placeholder left in?"),
        ({"headers": {"x-a": "b\nc"}}, "header 'x-a' cannot be sent"),
        ({"headers": {"": "b"}}, "cannot be sent"),
        ({"timeoutSeconds": 0}, "greater than 0"),
        ({"api_key": "x"}, "Extra inputs"),
    ],
)
def test_mistakes_are_told_with_the_fix(members: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError) as error:
        config(**members)
    assert message in str(error.value)


def test_a_key_is_never_shown() -> None:
    assert "sk-secret" not in repr(config(apiKey="sk-secret"))


@pytest.mark.parametrize(
    ("model", "window", "max_output", "known"),
    [
        ("claude-sonnet-4-6", 1_000_000, 128_000, True),
        ("claude-haiku-4-5-20251001", 200_000, 64_000, True),
        ("claude-opus-5-latest", 1_000_000, 128_000, True),
        ("guide", 200_000, 8_192, True),
        ("someone-elses-model", 128_000, 8_192, False),
    ],
)
def test_limits(model: str, window: int, max_output: int, known: bool) -> None:
    limits = limits_of(model)
    assert (limits.window, limits.max_output, limits.known) == (window, max_output, known)


def test_families_are_models_without_dates() -> None:
    assert family_of("claude-opus-5@20260801") == family_of("claude-opus-5") == "claude-opus-5"
    assert family_of("claude-opus-5-5") != family_of("claude-opus-5")


def test_what_new_models_refuse() -> None:
    refusing = ["claude-mythos-5-2", "claude-fable-5-1", "claude-opus-5-5", "claude-sonnet-5-5-20261001"]
    assert not any(accepts_forced_tool(model) for model in refusing)
    assert all(accepts_forced_tool(model) for model in ("claude-opus-5", "claude-fable-5", "claude-haiku-5-5", "x"))
    assert accepts_prefill("claude-haiku-4-5")
    assert not accepts_prefill("claude-sonnet-4-6")
