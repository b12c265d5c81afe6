"""The supported APIs: a new one is a module for requests and answers, and a `WireSpec` here.

Claude and OpenAI's two APIs use the official SDKs, Gemini and Mistral plain HTTP. Many vendors speak OpenAI's Chat
API, Mistral included; their differences are in their records (`vendors`).
"""

import ast
import re
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from urllib.parse import quote

from agents.providers import anthropic as claude
from agents.providers import chat, gemini, responses
from agents.providers.config import Api, ProviderConfig, api_of
from agents.providers.demo import DemoProvider
from agents.providers.http import PlainClient, SdkClient, http_client
from agents.providers.network import NetworkProvider, WireSpec
from agents.providers.provider import Provider
from agents.providers.vendors import VENDORS, vendor_for
from channels.transport import is_local

ANTHROPIC_URL = "https://api.anthropic.com"
ANTHROPIC_VERSION = "2023-06-01"
RESPONSES_URL = "https://api.openai.com/v1"
GEMINI_URL = "https://generativelanguage.googleapis.com"
PRICE_SECONDS = 2.0
"""Seconds that a finished Chat answer waits for its usage and the end of the body."""


def lacks_key(name: str, config: ProviderConfig) -> bool:
    """Return whether the provider lacks a required key. Raises ValueError if its API is unknown."""
    return not config.keys and api_of(name, config) != "demo" and not wire_of(name, config).keyless


def build_provider(name: str, config: ProviderConfig, *, now: Callable[[], float] = time.time) -> Provider:
    """Build the provider `name` of the config, without connecting. Raises ValueError if its API is unknown."""
    if api_of(name, config) == "demo":
        return DemoProvider(name, now=now)
    return NetworkProvider(name, config, wire_of(name, config), now=now)


def wire_of(name: str, config: ProviderConfig) -> WireSpec:
    """Return the protocol of provider `name`, which must not be `demo`. Raises ValueError if its API is unknown."""
    return _WIRES[api_of(name, config)](name, config)


def _anthropic(name: str, config: ProviderConfig) -> WireSpec:
    base_url = (config.base_url or ANTHROPIC_URL).rstrip("/").removesuffix("/v1")  # the path has it
    return WireSpec(
        api=claude.API,
        build=lambda: _anthropic_client(config, base_url),
        path=lambda request: "/v1/messages",
        body=lambda request: claude.wire_request(request) | {"stream": True},
        assembly=claude.AnthropicAssembly,
        models_url=f"{base_url}/v1/models?limit=1000",
        models_headers={"anthropic-version": ANTHROPIC_VERSION},
    )


def _anthropic_client(config: ProviderConfig, base_url: str) -> SdkClient:
    load_by_name()
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
    return SdkClient(client, http, anthropic.AsyncStream, config)


def _chat(name: str, config: ProviderConfig) -> WireSpec:
    vendor = vendor_for(name, config.base_url, config.dialect)
    base_url = (config.base_url or vendor.base_url or "").rstrip("/")  # `api_of` has checked that there is one
    return WireSpec(
        api=chat.API,
        build=lambda: _openai_client(config, base_url),
        path=lambda request: "/chat/completions",
        body=lambda request: chat.wire_request(request, vendor),
        assembly=lambda draft: chat.ChatAssembly(draft, vendor),
        keyless=vendor.keyless or is_local(base_url),
        models_url=f"{base_url}/models",
        key_url=f"{base_url}{vendor.key_path}" if vendor.key_path else "",
        tail_seconds=PRICE_SECONDS,
    )


def _responses(name: str, config: ProviderConfig) -> WireSpec:
    base_url = (config.base_url or RESPONSES_URL).rstrip("/")
    return WireSpec(
        api=responses.API,
        build=lambda: _openai_client(config, base_url),
        path=lambda request: "/responses",
        body=lambda request: responses.wire_request(request) | {"stream": True},
        assembly=responses.ResponsesAssembly,
        keyless=is_local(base_url),
        models_url=f"{base_url}/models",
    )


def _openai_client(config: ProviderConfig, base_url: str) -> SdkClient:
    load_by_name()
    import httpx2
    import openai

    http = http_client(config, base_url, httpx2)
    client = openai.AsyncOpenAI(
        api_key="no-key",  # set per request; keyless servers often expect some value
        base_url=base_url,
        max_retries=0,
        timeout=http.timeout,
        http_client=http,
    )
    # Drop settings from the environment: they must not change what is sent, or to whom.
    client.organization = client.project = client.admin_api_key = client.webhook_secret = None
    return SdkClient(client, http, openai.AsyncStream, config)


def _gemini(name: str, config: ProviderConfig) -> WireSpec:
    base_url = gemini_url(config)
    return WireSpec(
        api=gemini.API,
        build=lambda: PlainClient(config, base_url, {}),
        path=lambda request: f"/{quote(gemini.resource(request.model))}:streamGenerateContent?alt=sse",
        body=gemini.wire_request,
        models_url=f"{base_url}/models?pageSize=1000",
        key_header=lambda key: ("x-goog-api-key", key),
        assembly=gemini.GeminiAssembly,
    )


def gemini_url(config: ProviderConfig) -> str:
    """Return Gemini's base URL with a version: the configured one, or `v1beta`."""
    url = (config.base_url or GEMINI_URL).rstrip("/")
    return url if re.search(r"/v\d+(?:alpha|beta)?\d*$", url) else f"{url}/v1beta"


def _mistral(name: str, config: ProviderConfig) -> WireSpec:
    vendor = VENDORS["mistral"]
    base_url = (config.base_url or vendor.base_url or "").rstrip("/").removesuffix("/v1")  # the path has it
    return WireSpec(
        api="mistral",
        build=lambda: PlainClient(config, base_url, {"Accept": "text/event-stream"}),
        path=lambda request: "/v1/chat/completions",
        body=lambda request: chat.wire_request(request, vendor),
        assembly=lambda draft: chat.ChatAssembly(draft, vendor),
        keyless=is_local(base_url),
        models_url=f"{base_url}/v1/models",
    )


_WIRES: dict[Api, Callable[[str, ProviderConfig], WireSpec]] = {
    "anthropic-messages": _anthropic,
    "openai-responses": _responses,
    "openai-chat": _chat,
    "google-gemini": _gemini,
    "mistral": _mistral,
}


SDKS = frozenset({"anthropic", "openai"})


def load_by_name() -> None:
    """Load SDK modules lazily, on first use of a name, from now on. Importing all endpoint types and cloud clients
    takes three times the time and memory. This applies to the SDK and those of its packages that import only from
    their own modules; others are loaded whole."""
    if not any(isinstance(it, _Finder) for it in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in SDKS:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec and spec.origin and spec.submodule_search_locations:
            spec.loader = _Names(fullname, spec.origin)
        return spec


class _Names(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        found: dict[str, tuple[str, str]] = {}
        for it in ast.parse(self.get_data(self.path)).body:
            if isinstance(it, ast.ImportFrom) and it.level == 1:
                found |= {name.asname or name.name: (it.module or "", name.name) for name in it.names}
            elif "." in self.name and not _is_harmless(it):
                return super().exec_module(module)

        def named(name: str) -> object:
            if name not in found:
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            where, original = found[name]
            source = import_module(f".{where or original}", module.__name__)
            value: object = getattr(source, original) if where else source
            setattr(module, name, value)
            return value

        vars(module)["__getattr__"] = named
        return None


def _is_harmless(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Assign):
        return ast.unparse(statement.targets[0]) == "__all__"
    return isinstance(statement, ast.Expr) or (
        isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
    )
