"""Claude, through Anthropic's official SDK."""

import re
from collections.abc import Mapping
from typing import Any

from agents.providers.anthropic.request import API, wire_request
from agents.providers.anthropic.response import AnthropicAssembly, from_status, output_blocked
from agents.providers.config import ProviderConfig
from agents.providers.http import SdkClient, event_of, http_client
from agents.providers.network import WireSpec

BASE_URL = "https://api.anthropic.com"
VERSION = "2023-06-01"
_EVENT = re.compile(r"message_(?:start|delta|stop)|content_block_(?:start|delta|stop)|error")


def anthropic_wire(config: ProviderConfig) -> WireSpec:
    base_url = (config.base_url or BASE_URL).rstrip("/").removesuffix("/v1")  # the path has it
    return WireSpec(
        api=API,
        build=lambda: _build_client(config, base_url),
        path=lambda request: "/v1/messages",
        body=lambda request: wire_request(request) | {"stream": True},
        assembly=AnthropicAssembly,
        event=_parse,
        ends=lambda event: event.get("type") == "message_stop",
        from_status=from_status,
        output_blocked=output_blocked,
        models_url=f"{base_url}/v1/models?limit=1000",
        models_headers={"anthropic-version": VERSION},
    )


def _build_client(config: ProviderConfig, base_url: str) -> SdkClient:
    import anthropic
    import httpx2

    http = http_client(config, base_url, httpx2)
    client = anthropic.AsyncAnthropic(
        api_key="set with each request",
        auth_token=None,
        base_url=base_url,
        max_retries=0,
        timeout=http.timeout,
        open_telemetry=False,
        http_client=http,
    )
    return SdkClient(client, anthropic.AsyncStream, config)


def _parse(name: str, data: str, headers: Mapping[str, str]) -> dict[str, Any]:
    """One event; an empty one for what is no news. Raises BadStream."""
    if name and not _EVENT.fullmatch(name):
        return {}
    event = event_of(data)
    if name == "error" or event.get("type") == "error":
        return {"request_id": headers.get("request-id"), **event, "type": "error"}
    return {"type": name, **event} if event else {}
