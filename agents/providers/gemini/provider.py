"""Gemini, over its REST API and the plain HTTP client.

Google's SDK is not used at run time: it adds little more than names to one request with server-sent events, and costs a
second and 40 MiB. The client is imported and built at the first need, in a thread.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from agents.providers.config import ProviderConfig
from agents.providers.errors import AttemptFailed, Refused
from agents.providers.gemini.errors import from_status
from agents.providers.gemini.models import resource
from agents.providers.gemini.request import API, wire_request
from agents.providers.gemini.response import Assembly, finish_reason
from agents.providers.http import DRAIN_SECONDS, event_of, must_be_events, server_sent, settings
from agents.providers.network import network_failure
from agents.providers.provider import ModelRequest

if TYPE_CHECKING:
    from httpx import AsyncClient

BASE_URL = "https://generativelanguage.googleapis.com"


class GeminiWire:
    """`google-gemini`, as a `Wire`."""

    api = API
    keyless = False

    def __init__(self, config: ProviderConfig) -> None:
        self._config = config
        self._base_url = base_url(config)
        self._client: AsyncClient | None = None
        self._building = asyncio.Lock()

    def assembly(self, request: ModelRequest, *, provider: str, timestamp: float) -> Assembly:
        return Assembly(provider=provider, model=request.model, timestamp=timestamp)

    async def events(self, request: ModelRequest, key: str) -> AsyncGenerator[dict[str, Any], None]:
        client = await self._ready()
        url = f"{self._base_url}/{quote(resource(request.model))}:streamGenerateContent"
        body, headers = wire_request(request), {"x-goog-api-key": key}
        async with client.stream("POST", url, params={"alt": "sse"}, headers=headers, json=body) as response:
            must_be_events(response.headers)
            raw = server_sent(response.aiter_bytes())
            async for data in raw:
                event = event_of(data)
                yield event
                if event and finish_reason(event):
                    for late in await _afterwards(raw, min(DRAIN_SECONDS, self._config.idle_seconds / 2)):
                        yield late
                    return

    def explain(self, error: Exception, now: float) -> AttemptFailed | None:
        import httpx

        if isinstance(error, Refused):
            return AttemptFailed(from_status(error.status, error.body, error.headers, now))
        return network_failure(error, httpx)

    async def warm_up(self) -> None:
        await self._ready()

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _ready(self) -> "AsyncClient":
        async with self._building:
            if self._client is None:
                self._client = await asyncio.to_thread(_build_client, self._config, self._base_url)
            return self._client


def base_url(config: ProviderConfig) -> str:
    """Where the API is, with its version: the one that is configured, else `v1beta`."""
    url = (config.base_url or BASE_URL).rstrip("/")
    return url if re.search(r"/v\d+(?:alpha|beta)?\d*$", url) else f"{url}/v1beta"


def _build_client(config: ProviderConfig, url: str) -> "AsyncClient":
    import httpx

    return httpx.AsyncClient(headers=config.headers, **settings(config, url, httpx))


async def _afterwards(raw: AsyncIterator[str], seconds: float) -> list[dict[str, Any]]:
    """What still comes behind the reason to end, such as usage, within so many seconds. The answer is whole, so neither
    silence nor an error matters any more; read to its end, the connection can be used again."""
    events: list[dict[str, Any]] = []
    with suppress(Exception):
        async with asyncio.timeout(seconds):
            async for data in raw:
                event = event_of(data)
                if "error" not in event:
                    events.append(event)
    return events
