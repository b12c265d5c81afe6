"""Gemini, over its REST API."""

import re
from urllib.parse import quote

from agents.providers.config import ProviderConfig
from agents.providers.gemini.request import API, resource, wire_request
from agents.providers.gemini.response import GeminiAssembly
from agents.providers.http import PlainClient
from agents.providers.network import WireSpec

BASE_URL = "https://generativelanguage.googleapis.com"


def base_url(config: ProviderConfig) -> str:
    """Where the API is, with its version: the one that is configured, else `v1beta`."""
    url = (config.base_url or BASE_URL).rstrip("/")
    return url if re.search(r"/v\d+(?:alpha|beta)?\d*$", url) else f"{url}/v1beta"


def gemini_wire(config: ProviderConfig) -> WireSpec:
    return WireSpec(
        api=API,
        build=lambda: PlainClient(config, base_url(config), {}),
        path=lambda request: f"/{quote(resource(request.model))}:streamGenerateContent?alt=sse",
        body=wire_request,
        models_url=f"{base_url(config)}/models?pageSize=1000",
        key_header=lambda key: ("x-goog-api-key", key),
        assembly=GeminiAssembly,
    )
