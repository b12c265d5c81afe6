"""Which model `auto` is and whose key a provider has, where the file leaves both to the environment."""

from pathlib import Path

import pytest

from agents.providers.config import IMPLIED, WELL_KNOWN
from agents.providers.models import facts_of
from agents.providers.vendors import WellKnown
from gateway.config.problems import ConfigErrors
from gateway.config.root import Config
from gateway.observe.secrets import secrets_of
from tests.gateway.config.writing import loaded

AGENT = "agents: { list: [ { id: a } ] }\n"
PAGE = (Path(__file__).parents[3] / "docs" / "providers.md").read_text(encoding="utf-8")


def chosen(config: Config) -> tuple[str, str]:
    """The model of the first agent, and the key it is asked with."""
    model = config.agents.list[0].model[0]
    return model, "".join(config.provider(model.partition("/")[0]).keys)


@pytest.mark.parametrize(
    ("providers", "env", "model", "because"),
    [
        # nothing is written: the usual variables, in the order of docs/providers.md
        ("", {}, "demo/guide", "no key is set"),
        ("", {"GOOGLE_API_KEY": "no", "GEMINI_API_KEY": "k"}, "google/gemini-3-flash", "GEMINI_API_KEY is set"),
        ("", {"DEEPSEEK_API_KEY": "no", "OPENAI_API_KEY": "k"}, "openai/gpt-5.5", "OPENAI_API_KEY is set"),
        ("", {"OPENAI_API_KEY": " \n", "DEEPSEEK_API_KEY": " k\n"}, "deepseek/deepseek-v4-pro", "DEEPSEEK_API_KEY is set"),
        ("", {"OPENROUTER_API_KEY": "no"}, "demo/guide", "the key that is set tells no model"),
        ("", {"OPENROUTER_API_KEY": "no", "MISTRAL_API_KEY": "k"}, "mistral/mistral-large-latest", "MISTRAL_API_KEY is set"),
        # what is written comes first, in the order of the file
        ("qwen: { apiKey: k }", {"ANTHROPIC_API_KEY": "no"}, "qwen/qwen3-max", "providers.qwen has a key"),
        ("kimi: { apiKey: k }, openai: { apiKey: no }", {}, "kimi/kimi-k2.6", "providers.kimi has a key"),
        ("openai: { apiKey: '', apiKeys: [k] }", {}, "openai/gpt-5.5", "providers.openai has a key"),
        ("zhipu: {}, qwen: { apiKey: no }", {"ZHIPUAI_API_KEY": "k"}, "zhipu/glm-4.7", "ZHIPUAI_API_KEY is set"),
        ("zhipu: {}, qwen: { apiKey: k }", {}, "qwen/qwen3-max", "providers.qwen has a key"),
        ("qwen:", {"DASHSCOPE_API_KEY": "k", "OPENAI_API_KEY": "no"}, "qwen/qwen3-max", "DASHSCOPE_API_KEY is set"),
        ("openai: { apiKey: k }", {"OPENAI_API_KEY": "no"}, "openai/gpt-5.5", "providers.openai has a key"),
        # an empty key says that there is none, whatever the environment has
        ("openai: { apiKeys: [] }", {"OPENAI_API_KEY": "no"}, "demo/guide", "no key is set"),
        ("openai: { apiKey: '' }", {"OPENAI_API_KEY": "no", "ZHIPUAI_API_KEY": "k"},
         "zhipu/glm-4.7", "ZHIPUAI_API_KEY is set"),
        # names of one's own have no model that anybody but you knows; ollama needs no key, and has none
        ("mine: { api: anthropic-messages, apiKey: no }", {}, "demo/guide", "the key that is set tells no model"),
        ("ollama: {}", {}, "demo/guide", "no key is set"),
    ],
)  # fmt: skip
def test_auto_is_the_first_provider_with_a_key_else_the_script(
    tmp_path: Path, providers: str, env: dict[str, str], model: str, because: str
) -> None:
    found = loaded(tmp_path, f"providers: {{ {providers} }}\n{AGENT}", env)
    assert chosen(found.config) == (model, "" if model == "demo/guide" else "k")
    assert (found.auto.model, found.auto.because, found.auto.agents) == (model, because, frozenset("a"))
    assert found.config.agents.defaults.model == (model,)


@pytest.mark.parametrize("model", ["auto", "[auto]"])
def test_auto_may_be_said_for_everybody_or_for_one(tmp_path: Path, model: str) -> None:
    text = f"agents: {{ defaults: {{ model: qwen/x }}, list: [ {{ id: a, model: {model} }}, {{ id: b }} ] }}\n"
    found = loaded(tmp_path, text, {"MISTRAL_API_KEY": "k"})
    assert [agent.model for agent in found.config.agents.list] == [("mistral/mistral-large-latest",), ("qwen/x",)]
    assert found.auto.agents == frozenset("a")


def test_keys_named_provider_gets_its_usual_variable(tmp_path: Path) -> None:
    text = "providers: { azure: { baseUrl: 'https://team.openai.azure.com/openai/v1', timeoutSeconds: 7 } }\n"
    text += "agents: { list: [ { id: a, model: deepseek/deepseek-chat }, { id: b, model: [openai/x, kimi/y] } ] }\n"
    env = {"DEEPSEEK_API_KEY": "1", "MOONSHOT_API_KEY": "2", "MISTRAL_API_KEY": "3", "AZURE_OPENAI_API_KEY": "4"}
    found = loaded(tmp_path, text, env)
    keys = {name: "".join(block.keys) for name, block in found.config.providers.items()}
    assert keys == {"azure": "4", "deepseek": "1", "kimi": "2"}
    assert found.variables == {
        "azure": "AZURE_OPENAI_API_KEY",
        "deepseek": "DEEPSEEK_API_KEY",
        "kimi": "MOONSHOT_API_KEY",
    }
    assert found.config.provider("azure").timeout_seconds == 7


def test_keys_of_the_environment_are_masked_in_logs(tmp_path: Path) -> None:
    key = "canary-from-the-environment"
    for text in (AGENT, f"providers: {{ deepseek: {{}} }}\n{AGENT}"):
        found = loaded(tmp_path, text, {"DEEPSEEK_API_KEY": f" {key}\n"})
        assert key in secrets_of(found.config)
        assert key not in repr(found)


@pytest.mark.parametrize(
    ("providers", "env", "which", "name"),
    [
        ("", {"OPENROUTER_API_KEY": "k"}, "OPENROUTER_API_KEY is set", "openrouter"),
        ("mine: { api: openai-chat, apiKey: k, baseUrl: 'http://h/v1' }", {}, "providers.mine has a key", "mine"),
    ],
)
def test_a_key_that_tells_no_model_is_not_passed_over_in_silence(
    tmp_path: Path, providers: str, env: dict[str, str], which: str, name: str
) -> None:
    (tmp_path / "config.yaml").touch(mode=0o600)
    text = f"providers: {{ {providers} }}\n{AGENT}"
    step = f"but auto cannot know which of its models you want — set agents.defaults.model to {name}/…"
    assert [*map(str, loaded(tmp_path, text, env).warnings)] == [f"{which}, {step}"]
    assert loaded(tmp_path, text, {**env, "OPENAI_API_KEY": "k"}).warnings == ()
    assert loaded(tmp_path, text.replace("id: a", "id: a, model: demo/guide"), env).warnings == ()


def test_keys_page_lists_every_vendor_in_order() -> None:
    section = PAGE.partition("## A key is enough")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ") and "`" in line]
    vendors = [
        (
            " or ".join(f"`{variable}`" for variable in vendor.variables),
            ", ".join(f"`{name}`" for name in vendor.names),
            f"`{vendor.model_of(vendor.names[0])}`" if vendor.default_model else "none: name one",
        )
        for vendor in WELL_KNOWN
    ]
    with_one, without = [row for row in vendors if "none" not in row[2]], [row for row in vendors if "none" in row[2]]
    assert [tuple(row) for row in rows] == with_one + without


def test_a_default_model_is_one_we_know_and_that_takes_tools() -> None:
    assert all(name in IMPLIED for vendor in WELL_KNOWN for name in vendor.names)
    models = [vendor.default_model for vendor in WELL_KNOWN if vendor.default_model]
    assert len(models) == 8
    assert [model for model in models if not facts_of(model).known or not facts_of(model).tools] == []


@pytest.mark.parametrize("vendor", WELL_KNOWN, ids=lambda it: it.names[0])
@pytest.mark.parametrize("key", ['"sk-abcdef"', "sk-abcdef # mine", "Bearer sk-abcdef", "sk abcdef"])
def test_keys_with_docker_env_quotes_are_named(tmp_path: Path, vendor: WellKnown, key: str) -> None:
    text = f"agents: {{ list: [ {{ id: a, model: {vendor.names[0]}/x }} ] }}\n"
    for variable in vendor.variables:
        with pytest.raises(ConfigErrors) as error:
            loaded(tmp_path, text, {variable: key})
        assert f"{variable} in the environment: this is no API key: it " in str(error.value)
        assert "abcdef" not in str(error.value)
