"""OpenAI's two wires, Chat Completions and Responses, through its official SDK; many vendors speak Chat.

What a vendor of Chat wants differently is its record (`chat.vendors`).
"""

from agents.providers.chat import request as chat_request
from agents.providers.chat.response import API, ChatAssembly
from agents.providers.chat.vendors import Vendor
from agents.providers.config import ProviderConfig
from agents.providers.http import SdkClient, http_client
from agents.providers.network import WireSpec
from agents.providers.responses import request as responses_request
from agents.providers.responses.response import ResponsesAssembly
from channels.transport import is_local

NO_KEY = "no-key"
RESPONSES_URL = "https://api.openai.com/v1"
TAIL_SECONDS = 2.0
"""How long a finished answer waits for what may come behind it: its price, and the end of the body."""


def chat_wire(config: ProviderConfig, vendor: Vendor) -> WireSpec:
    base_url = config.base_url or vendor.base_url or ""  # `api_of` has checked that there is one
    return WireSpec(
        api=API,
        build=lambda: _build_client(config, base_url),
        path=lambda request: "/chat/completions",
        body=lambda request: chat_request.wire_request(request, vendor),
        assembly=lambda draft: ChatAssembly(draft, vendor),
        keyless=vendor.keyless or is_local(base_url),
        models_url=f"{base_url.rstrip('/')}/models",
        key_url=f"{base_url.rstrip('/')}{vendor.key_path}" if vendor.key_path else "",
        tail_seconds=TAIL_SECONDS,
    )


def responses_wire(config: ProviderConfig) -> WireSpec:
    base_url = config.base_url or RESPONSES_URL
    return WireSpec(
        api=responses_request.API,
        build=lambda: _build_client(config, base_url),
        path=lambda request: "/responses",
        body=lambda request: responses_request.wire_request(request) | {"stream": True},
        assembly=ResponsesAssembly,
        keyless=is_local(base_url),
        models_url=f"{base_url.rstrip('/')}/models",
    )


def _build_client(config: ProviderConfig, base_url: str) -> SdkClient:
    import httpx2
    import openai

    base_url = base_url.rstrip("/")
    http = http_client(config, base_url, httpx2)
    client = openai.AsyncOpenAI(
        api_key=NO_KEY,  # each request brings its own; servers that want none often want to see one all the same
        base_url=base_url,
        max_retries=0,
        timeout=http.timeout,
        http_client=http,
    )
    # What it reads from the environment is dropped: a stray variable must not change what we send, or to whom.
    client.organization = client.project = client.admin_api_key = client.webhook_secret = None
    return SdkClient(client, openai.AsyncStream, config)
