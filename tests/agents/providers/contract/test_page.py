"""Every line of config in docs/providers.md: it loads as it stands, and it works against that vendor's emulator."""

import re
from pathlib import Path

import pytest

from agents.providers.catalog import build_provider
from agents.providers.config import ProviderConfig, api_of
from agents.providers.models import facts_of
from agents.providers.vendors import VENDORS, vendor_for
from gateway.config.load import load
from gateway.config.root import Config
from tests.agents.providers.contract.subjects import NATIVE
from tests.agents.providers.requests import asking, collect
from tests.emulators.models.chat.emulator import ChatEmulator
from tests.emulators.models.script import says
from tests.emulators.models.server import ModelEmulator
from tests.loopback import serve_on_loopback

PAGE = (Path(__file__).parents[4] / "docs" / "providers.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| ([^|]+?) \| `([^`]+)` \| `model: ([^`]+)` \|$", PAGE, re.MULTILINE)
YAML = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
ENVIRONMENT = dict.fromkeys(re.findall(r"\$\{([A-Z0-9_]+)", PAGE), "sk-page")


def loaded(folder: Path, text: str) -> Config:
    file = folder / "config.yaml"
    file.write_text(text, encoding="utf-8")
    return load(file, ENVIRONMENT).config


def emulated(name: str, config: ProviderConfig) -> tuple[ModelEmulator, str, str | None]:
    """The vendor's own, what stands behind its address, and the dialect that the address no longer tells."""
    api = api_of(name, config)
    for subject in NATIVE.values():
        if subject.wire == api:
            return subject.emulator([says("hi")]), subject.path, None
    vendor = vendor_for(name, config.base_url, config.dialect).name
    return ChatEmulator([says("hi")], vendor=vendor), "/v1", vendor


def test_every_vendor_of_the_chat_wire_has_a_row() -> None:
    named = {vendor.names[0] for vendor in VENDORS.values() if vendor.names and vendor.name != "deepseek-r1"}
    assert named <= {line.partition(":")[0] for _, line, _ in ROWS}


@pytest.mark.parametrize(("line", "model"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
async def test_a_line_of_the_page_works_as_it_stands(tmp_path: Path, line: str, model: str) -> None:
    config = loaded(tmp_path, f"providers:\n  {line}\nagents: {{ list: [ {{ id: a, model: {model} }} ] }}\n")
    name, _, model = model.partition("/")
    written = config.provider(name)
    emulator, path, dialect = emulated(name, written)
    async with serve_on_loopback(emulator.app) as url:
        moved = written.model_copy(update={"base_url": f"{url}{path}", "dialect": dialect})
        provider = build_provider(name, moved)
        _, message = await collect(provider, asking(model=model))
        await provider.close()
    assert message.text == "hi", emulator.requests[-1].refusal


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
