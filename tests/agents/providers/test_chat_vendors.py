"""Which quirk record a provider gets, and what the records promise."""

import re
from urllib.parse import urlsplit

import pytest

from agents.providers.catalog import lacks_key
from agents.providers.config import ProviderConfig
from agents.providers.request import wire_id
from agents.providers.vendors import VENDORS, for_model, vendor_for
from tests.emulators.models.chat.habits import HABITS


@pytest.mark.parametrize(
    ("name", "base_url", "dialect", "vendor"),
    [
        ("openai", None, None, "openai"),
        ("kimi", None, None, "moonshot"),
        ("ollama", "http://gpu-box:8080/v1", None, "ollama"),
        ("work", "https://api.deepseek.com", None, "deepseek"),
        ("work", "https://team.openai.azure.com/openai/v1", None, "azure"),
        ("work", "https://openrouter.ai:443/api/v1", None, "openrouter"),
        ("work", "http://me:pw@localhost:11434/v1", None, "ollama"),
        ("work", "http://localhost:9999/v1", None, "generic"),
        ("work", "https://notopenrouter.ai/v1", None, "generic"),
        ("work", "https://api.deepseek.com.evil.example/v1", None, "generic"),
        ("work", None, None, "generic"),
        ("deepseek", "https://openrouter.ai/api/v1", None, "deepseek"),
        ("deepseek", "https://openrouter.ai/api/v1", "openrouter", "openrouter"),
    ],
)
def test_the_dialect_wins_then_the_name_then_the_host(
    name: str, base_url: str | None, dialect: str | None, vendor: str
) -> None:
    assert vendor_for(name, base_url, dialect).name == vendor


def test_a_vendor_of_two_eras_has_a_record_for_each() -> None:
    for model, vendor in (("deepseek-reasoner", "deepseek-r1"), ("deepseek-r1-0528", "deepseek-r1"), ("x", "deepseek")):
        assert for_model(VENDORS["deepseek"], model).name == vendor


@pytest.mark.parametrize("name", VENDORS)
def test_a_record_can_be_used(name: str) -> None:
    record = VENDORS[name]
    assert record.base_url is None or urlsplit(record.base_url).scheme in ("http", "https")
    assert all(VENDORS[other] for other in record.models.values())
    assert re.fullmatch(record.ids, wire_id("目录", pattern=record.ids))
    assert record.name in HABITS or record.name == "mistral"  # whose emulator is its own
    assert bool(record.variables) != record.keyless or record.name == "generic"


def test_no_name_and_no_host_picks_two_records() -> None:
    for taken in ([it.names for it in VENDORS.values()], [it.hosts for it in VENDORS.values()]):
        given = [name for names in taken for name in names]
        assert len(set(given)) == len(given)


def configured(vendor: str, base_url: str | None) -> ProviderConfig:
    return ProviderConfig.model_validate({"api": "openai-chat", "dialect": vendor, "baseUrl": base_url})


def test_only_local_servers_and_those_without_accounts_need_no_key() -> None:
    gpu = "https://gpu.example/v1"
    for vendor, base_url in (("openai", None), ("generic", gpu)):
        assert lacks_key("x", configured(vendor, base_url))
    for vendor, base_url in (("openai", "http://127.0.0.1:1/v1"), ("ollama", None), ("ollama", gpu)):
        assert not lacks_key("x", configured(vendor, base_url))
