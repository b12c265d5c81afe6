"""Every line of config in docs/providers.md: it loads as it stands, and it works against that vendor's emulator."""

import re
from pathlib import Path

import pytest

from agents.messages import Message
from agents.providers.catalog import build_provider
from agents.providers.chat.vendors import VENDORS, vendor_for
from agents.providers.config import ProviderConfig, api_of
from agents.providers.models import facts_of, family_of
from agents.repair import repair
from gateway.config.load import load
from gateway.config.root import Config
from tests.agents.providers.requests import asking, collect, result, user
from tests.emulators.models.anthropic.emulator import AnthropicEmulator
from tests.emulators.models.chat.emulator import ChatEmulator
from tests.emulators.models.gemini.emulator import GeminiEmulator
from tests.emulators.models.mistral.emulator import MistralEmulator
from tests.emulators.models.responses.emulator import ResponsesEmulator
from tests.emulators.models.script import calls, says
from tests.emulators.models.server import ModelEmulator, Reply
from tests.loopback import serve_on_loopback

PAGE = (Path(__file__).parents[4] / "docs" / "providers.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| ([^|]+?) \| `([^`]+)` \| `model: ([^`]+)` \|$", PAGE, re.MULTILINE)
YAML = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
ENVIRONMENT = dict.fromkeys(re.findall(r"\$\{([A-Z0-9_]+)", PAGE), "sk-page")


def loaded(folder: Path, text: str) -> Config:
    file = folder / "config.yaml"
    file.write_text(text, encoding="utf-8")
    return load(file, ENVIRONMENT).config


def emulator(name: str, config: ProviderConfig, script: list[Reply]) -> tuple[ModelEmulator, str]:
    """The vendor's own, and what stands behind its address."""
    match api_of(name, config):
        case "anthropic-messages":
            return AnthropicEmulator(script), ""
        case "openai-responses":
            return ResponsesEmulator(script), "/v1"
        case "google-gemini":
            return GeminiEmulator(script), ""
        case "mistral":
            return MistralEmulator(script), ""
        case _:
            return ChatEmulator(script, vendor=vendor_for(name, config.base_url, config.dialect).name), "/v1"


def test_every_vendor_of_the_chat_wire_has_a_row() -> None:
    names = {name for _, line, _ in ROWS for name in [line.partition(":")[0]]}
    named = {vendor.names[0] for vendor in VENDORS.values() if vendor.names and vendor.name != "deepseek-r1"}
    assert named <= names


@pytest.mark.parametrize(("line", "model"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
async def test_a_line_of_the_page_works_as_it_stands(tmp_path: Path, line: str, model: str) -> None:
    config = loaded(tmp_path, f"providers:\n  {line}\nagents: {{ list: [ {{ id: a, model: {model} }} ] }}\n")
    name, _, model = model.partition("/")
    written = config.provider(name)
    script: list[Reply] = (
        [says("hi")] if written.tool_calling == "prompt" else [calls(("ls", {"path": "."})), says("hi")]
    )
    vendor, path = emulator(name, written, script)
    async with serve_on_loopback(vendor.app) as url:
        moved = written.model_copy(
            update={"base_url": f"{url}{path}", "dialect": written.dialect or _dialect(name, written)}
        )
        provider = build_provider(name, moved)
        try:
            request = asking(
                user("hello"), model=model, tools=() if written.tool_calling == "prompt" else asking().tools
            )
            _, message = await collect(provider, request)
            if message.calls:
                history: list[Message] = [user("hello"), message, result(message.calls[0].id)]
                repaired = repair(history, api=provider.api, family=family_of(model))
                _, message = await collect(provider, asking(*repaired, model=model))
        finally:
            await provider.close()
    assert message.text == "hi", vendor.requests[-1].refusal
    assert written.tool_calling == "prompt" or len(vendor.requests) == 2


def _dialect(name: str, config: ProviderConfig) -> str | None:
    return vendor_for(name, config.base_url, None).name if api_of(name, config) == "openai-chat" else None


@pytest.mark.parametrize("block", YAML)
def test_a_longer_example_of_the_page_loads(tmp_path: Path, block: str) -> None:
    more = "" if "providers:" in block else 'providers: { mine: { api: openai-chat, baseUrl: "http://h/v1" } }\n'
    agents = "" if "agents:" in block else "agents: { list: [ { id: a } ] }\n"
    if "defaults:" in block:
        block += "  list: [ { id: a } ]\n"
    loaded(tmp_path, more + block + agents)


def test_the_models_of_the_page_are_known_to_the_table() -> None:
    unknown = {model for _, _, model in ROWS if not facts_of(model.partition("/")[2]).known}
    assert unknown == {"mine/some-model"}
