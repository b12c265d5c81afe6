"""Mistral's models, over plain HTTP."""

from agents.providers.json_wire import Dialect
from agents.providers.mistral.request import API, wire_request
from agents.providers.mistral.response import MistralAssembly, from_status
from agents.providers.payload import object_of, objects_of

BASE_URL = "https://api.mistral.ai"

MISTRAL = Dialect(
    api=API,
    base_url=lambda config: (config.base_url or BASE_URL).rstrip("/").removesuffix("/v1"),
    path=lambda request: "/v1/chat/completions",
    body=lambda request: wire_request(request) | {"stream": True},
    key_header=lambda key: ("Authorization", f"Bearer {key}"),
    assembly=MistralAssembly,
    finishes=lambda event: any(choice.get("finish_reason") for choice in objects_of(event, "choices")),
    late=lambda event: {"usage": usage} if (usage := object_of(event, "usage")) else {},
    from_status=from_status,
    headers={"Accept": "text/event-stream"},
    local_keyless=True,
)
