"""Mistral's models, over plain HTTP."""

from agents.providers.config import ProviderConfig
from agents.providers.http import PlainClient
from agents.providers.mistral.request import API, wire_request
from agents.providers.mistral.response import MistralAssembly
from agents.providers.network import WireSpec
from channels.transport import is_local

BASE_URL = "https://api.mistral.ai"


def mistral_wire(config: ProviderConfig) -> WireSpec:
    base_url = (config.base_url or BASE_URL).rstrip("/").removesuffix("/v1")
    return WireSpec(
        api=API,
        build=lambda: PlainClient(config, base_url, {"Accept": "text/event-stream"}),
        path=lambda request: "/v1/chat/completions",
        body=lambda request: wire_request(request) | {"stream": True},
        assembly=MistralAssembly,
        keyless=is_local(base_url),
        models_url=f"{base_url}/v1/models",
    )
