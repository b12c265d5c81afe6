"""Mistral's models, over plain HTTP.

One JSON body goes out and server-sent events come back, which takes no SDK: httpx gives us the connections, the rest
is ours. The client is built at the first need, in a thread, because reading the machine's certificates takes time.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from agents.providers.config import ProviderConfig
from agents.providers.errors import AttemptFailed, Refused
from agents.providers.http import DRAIN_SECONDS, END, event_of, is_local, must_be_events, server_sent, settings
from agents.providers.mistral.errors import from_status
from agents.providers.mistral.request import API, wire_request
from agents.providers.mistral.response import Assembly
from agents.providers.network import network_failure
from agents.providers.provider import ModelRequest

if TYPE_CHECKING:
    from httpx import AsyncClient

BASE_URL = "https://api.mistral.ai"


class MistralWire:
    """`mistral`, as a `Wire`."""

    api = API

    def __init__(self, config: ProviderConfig) -> None:
        self._config = config
        self._base_url = (config.base_url or BASE_URL).rstrip("/").removesuffix("/v1")
        self._client: AsyncClient | None = None
        self._building = asyncio.Lock()
        self.keyless = is_local(self._base_url)

    def assembly(self, request: ModelRequest, *, provider: str, timestamp: float) -> Assembly:
        return Assembly(provider=provider, model=request.model, timestamp=timestamp)

    async def events(self, request: ModelRequest, key: str) -> AsyncGenerator[dict[str, Any], None]:
        client = await self._ready()
        body = wire_request(request) | {"stream": True}
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        url = f"{self._base_url}/v1/chat/completions"
        async with client.stream("POST", url, json=body, headers=headers) as response:
            must_be_events(response.headers)
            raw = server_sent(response.aiter_bytes())
            async for data in raw:
                if data.strip() == END:
                    return
                event = event_of(data)
                yield event
                if _finishes(event):
                    yield await _late(raw, min(DRAIN_SECONDS, self._config.idle_seconds / 2))
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


def _build_client(config: ProviderConfig, base_url: str) -> "AsyncClient":
    import httpx

    headers = {"Accept": "text/event-stream"} | config.headers
    return httpx.AsyncClient(headers=headers, **settings(config, base_url, httpx))


def _finishes(event: dict[str, Any]) -> bool:
    choices = event.get("choices")
    choices = choices if isinstance(choices, list) else []
    return any(isinstance(choice, dict) and choice.get("finish_reason") for choice in choices)


async def _late(raw: AsyncIterator[str], seconds: float) -> dict[str, Any]:
    """What an answer that has ended is said to have cost, read with the rest of the body, whatever becomes of that:
    the answer is whole, and a connection that is read to its end can be used again."""
    late: dict[str, Any] = {}
    with suppress(Exception):
        async with asyncio.timeout(seconds):
            async for data in raw:
                if data.strip() != END and isinstance(usage := event_of(data).get("usage"), dict):
                    late = {"usage": usage}
    return late
