"""Mistral's models, over plain HTTP."""

from agents.providers.config import ProviderConfig
from agents.providers.http import PlainClient
from agents.providers.mistral.request import API, wire_request
from agents.providers.mistral.response import MistralAssembly, from_status
from agents.providers.network import WireSpec
from agents.providers.payload import object_of, objects_of
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
        ends=lambda event: any(choice.get("finish_reason") for choice in objects_of(event, "choices")),
        late=lambda event: {"usage": usage} if (usage := object_of(event, "usage")) else {},
        from_status=from_status,
        keyless=is_local(base_url),
        models_url=f"{base_url}/v1/models",
    )
