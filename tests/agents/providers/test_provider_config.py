"""The `providers:` block: what is implied, what is refused and what one is told to do."""

import pytest
from pydantic import ValidationError

from agents.providers.config import ProviderConfig
from agents.providers.models import Level, facts_of, family_of, nearest


def config(**members: object) -> ProviderConfig:
    return ProviderConfig.model_validate(members)


ENDPOINTS = [
    *(
        (f"{before}{end}{slash}", end)
        for before in ("", "/v1", "/proxy/v1")
        for end in ("/chat/completions", "/completions", "/responses", "/messages", "/embeddings", "/models")
        for slash in ("", "/")
    ),
    ("/v1beta/models/gemini-3-flash:generateContent", "/models"),
    ("/v1beta/models/gemini-3-flash:streamGenerateContent", "/models"),
]
KEYS = {
    '"sk-abc"': "quotes around it",
    "'sk-abc'": "quotes around it",
    '"sk-abc': "a quote at one end",
    "sk-abc # mine": "a comment behind it",
    "Bearer sk-abc": "a word of the header",
    "Authorization: Bearer sk-abc": "a word of the header",
    "sk abc": "a blank inside",
    "DEEPSEEK_API_KEY=sk-abc": "a name and an equals sign",
    "export KEY=sk-abc": "a name and an equals sign",
}


@pytest.mark.parametrize(
    "url", ["https://m.example.com/v1", "https://h.example.com/models/qwen/v1", "http://h/messages/v1"]
)
@pytest.mark.parametrize(
    "key", ["sk-abc", " sk-abc\n", "sk-abc#1", "a=b", "bearer-like", "AIza_x-y", "JBSWY3DP====", "id.secret", ""]
)
def test_an_address_and_a_key_that_only_look_odd_are_taken(url: str, key: str) -> None:
    assert config(baseUrl=url, apiKey=key).keys == ((key.strip(),) if key else ())


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"api": "openai"}, "this release speaks anthropic-messages, openai-responses"),
        ({"api": 7}, "unknown api 7"),
        ({"baseUrl": "ftp://host"}, "expected an http:// or https:// address"),
        ({"baseUrl": "http://host:99999"}, "expected an http:// or https:// address"),
        ({"baseUrl": "http://host/?q=1"}, "expected an http:// or https:// address"),
        ({"baseUrl": "http://ho st"}, "expected an http:// or https:// address"),
        ({"apiKey": "你的密钥"}, "was a placeholder left in?"),
        *(({"baseUrl": f"https://m.example.com{path}"}, f"ends in {end}, which is added") for path, end in ENDPOINTS),
        *(
            ({name: value}, words)
            for key, words in KEYS.items()
            for name, value in (("apiKey", key), ("apiKeys", (key,)))
        ),
        ({"headers": {"x-a": "b\nc"}}, "header 'x-a' cannot be sent"),
        ({"headers": {"": "b"}}, "cannot be sent"),
    ],
)
def test_mistakes_are_told_with_the_fix(members: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError) as error:
        config(**members)
    assert message in str(error.value)


def test_a_key_is_never_shown() -> None:
    assert "sk-secret" not in repr(config(apiKey="sk-secret"))


def test_limits() -> None:
    limits = {it: facts_of(it) for it in ("claude-haiku-4-5-20251001", "guide", "someone-elses-model")}
    assert [(facts.window, facts.max_output, facts.known) for facts in limits.values()] == [
        *((200_000, 64_000, True), (200_000, 8_192, True), (128_000, 8_192, False)),
    ]


def test_a_vendor_in_front_changes_nothing() -> None:
    assert facts_of("vendor/glm-4.7") == facts_of("glm-4.7")


def test_families_are_models_without_dates() -> None:
    assert family_of("claude-opus-5@20260801") == family_of("claude-opus-5") == "claude-opus-5"
    assert family_of("claude-opus-5-5") != family_of("claude-opus-5")


@pytest.mark.parametrize(
    ("wanted", "levels", "sent"),
    [
        ("high", ("off", "low", "high", "max"), "high"),
        ("medium", ("off", "low", "high", "max"), "low"),
        ("off", ("low", "high"), "low"),
        ("low", ("off", "high"), "high"),
        ("max", ("low", "medium"), "medium"),
        ("high", (), None),
    ],
)
def test_a_level_that_a_model_does_not_take_becomes_the_nearest(
    wanted: Level, levels: tuple[Level, ...], sent: Level | None
) -> None:
    assert nearest(wanted, levels) == sent
