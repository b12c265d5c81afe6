"""Claude, through Anthropic's official SDK."""

from agents.providers.anthropic.request import API, wire_request
from agents.providers.anthropic.response import AnthropicAssembly
from agents.providers.config import ProviderConfig
from agents.providers.http import SdkClient, http_client
from agents.providers.network import WireSpec

BASE_URL = "https://api.anthropic.com"
VERSION = "2023-06-01"


def anthropic_wire(config: ProviderConfig) -> WireSpec:
    base_url = (config.base_url or BASE_URL).rstrip("/").removesuffix("/v1")  # the path has it
    return WireSpec(
        api=API,
        build=lambda: _build_client(config, base_url),
        path=lambda request: "/v1/messages",
        body=lambda request: wire_request(request) | {"stream": True},
        assembly=AnthropicAssembly,
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
