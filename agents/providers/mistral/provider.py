"""Mistral's models, over plain HTTP."""

from typing import Any

from agents.providers.config import ProviderConfig
from agents.providers.json_wire import Dialect
from agents.providers.mistral.request import API, wire_request
from agents.providers.mistral.response import MistralAssembly, from_status
from agents.providers.provider import ModelRequest

BASE_URL = "https://api.mistral.ai"


def _base_url(config: ProviderConfig) -> str:
    return (config.base_url or BASE_URL).rstrip("/").removesuffix("/v1")


def _body(request: ModelRequest) -> dict[str, Any]:
    return wire_request(request) | {"stream": True}


def _finishes(event: dict[str, Any]) -> bool:
    choices = event.get("choices")
    choices = choices if isinstance(choices, list) else []
    return any(isinstance(choice, dict) and choice.get("finish_reason") for choice in choices)


def _late(event: dict[str, Any]) -> dict[str, Any]:
    usage = event.get("usage")
    return {"usage": usage} if isinstance(usage, dict) else {}


MISTRAL = Dialect(
    api=API,
    base_url=_base_url,
    path=lambda request: "/v1/chat/completions",
    body=_body,
    key_header=lambda key: ("Authorization", f"Bearer {key}"),
    assembly=MistralAssembly,
    finishes=_finishes,
    late=_late,
    from_status=from_status,
    headers={"Accept": "text/event-stream"},
    local_keyless=True,
)
