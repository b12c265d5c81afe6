"""Which wires there are: a new one is a file and a line here."""

from collections.abc import Callable

from agents.providers.anthropic.provider import AnthropicProvider
from agents.providers.config import Api, ProviderConfig, api_of
from agents.providers.demo.provider import DemoProvider
from agents.providers.provider import Provider

_BUILDERS: dict[Api, Callable[[str, ProviderConfig], Provider]] = {
    "anthropic-messages": AnthropicProvider,
    "demo": lambda name, config: DemoProvider(name),
}


def build_provider(name: str, config: ProviderConfig) -> Provider:
    """The provider called `name` in the config. Opens nothing; raises ValueError where its api is not known."""
    return _BUILDERS[api_of(name, config)](name, config)
