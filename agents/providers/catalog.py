"""Which wires there are: a new one is a folder and a line here."""

import time
from collections.abc import Callable

from agents.providers.anthropic.provider import anthropic_wire
from agents.providers.chat.vendors import vendor_for
from agents.providers.config import Api, ProviderConfig, api_of
from agents.providers.demo.provider import DemoProvider
from agents.providers.gemini.provider import gemini_wire
from agents.providers.mistral.provider import mistral_wire
from agents.providers.network import NetworkProvider, WireSpec
from agents.providers.openai.provider import chat_wire, responses_wire
from agents.providers.provider import Provider

_WIRES: dict[Api, Callable[[str, ProviderConfig], WireSpec]] = {
    "anthropic-messages": lambda name, config: anthropic_wire(config),
    "openai-responses": lambda name, config: responses_wire(config),
    "openai-chat": lambda name, config: chat_wire(config, vendor_for(name, config.base_url, config.dialect)),
    "google-gemini": lambda name, config: gemini_wire(config),
    "mistral": lambda name, config: mistral_wire(config),
}


def needs_key(name: str, config: ProviderConfig) -> bool:
    """Whether the provider can answer nothing without a key. Raises ValueError where its api is not known."""
    return api_of(name, config) != "demo" and not wire_of(name, config).keyless


def build_provider(name: str, config: ProviderConfig, *, now: Callable[[], float] = time.time) -> Provider:
    """The provider called `name` in the config. Opens nothing; raises ValueError where its api is not known."""
    api = api_of(name, config)
    if api == "demo":
        return DemoProvider(name, now=now)
    return NetworkProvider(name, config, wire_of(name, config), now=now)


def wire_of(name: str, config: ProviderConfig) -> WireSpec:
    """What the provider called `name` speaks, which must not be `demo`. Raises ValueError where its api is not known."""
    return _WIRES[api_of(name, config)](name, config)
