"""OpenAI's Chat Completions and the servers that speak like it, through OpenAI's official SDK.

One wire and one record of quirks per vendor (`vendors`). The body is ours to the last member: the SDK is given it whole
and adds nothing.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing
from typing import TYPE_CHECKING, Any

from agents.providers.chat.request import wire_request
from agents.providers.chat.response import API, Assembly, finishes
from agents.providers.chat.vendor import Vendor
from agents.providers.chat.vendors import for_model
from agents.providers.config import ProviderConfig
from agents.providers.errors import AttemptFailed
from agents.providers.http import is_local
from agents.providers.openai.client import OpenAIClient
from agents.providers.provider import ModelRequest

if TYPE_CHECKING:
    from openai import AsyncOpenAI

TAIL_SECONDS = 2.0
"""How long a finished answer waits for what may come behind it: its price, and the end of the body."""


class ChatWire:
    """`openai-chat`, as a `Wire`. Raises ValueError where neither the config nor the vendor says where it is."""

    api = API

    def __init__(self, name: str, config: ProviderConfig, vendor: Vendor) -> None:
        base_url = config.base_url or vendor.base_url
        if base_url is None:
            raise ValueError(f"providers.{name}: add baseUrl:, the address of its chat API with /v1")
        self.keyless = vendor.keyless or is_local(base_url)
        self._vendor = vendor
        self._client = OpenAIClient(config, base_url)
        self._tail_seconds = min(TAIL_SECONDS, config.idle_seconds / 2)

    def assembly(self, request: ModelRequest, *, provider: str, timestamp: float) -> Assembly:
        vendor = for_model(self._vendor, request.model)
        return Assembly(provider=provider, model=request.model, timestamp=timestamp, vendor=vendor)

    async def events(self, request: ModelRequest, key: str) -> AsyncGenerator[dict[str, Any], None]:
        """Once the answer has its finish reason, whatever befalls the rest of the stream takes nothing from it."""
        body = wire_request(request, self._vendor)

        def create(client: "AsyncOpenAI", headers: dict[str, str]) -> AbstractAsyncContextManager[Any]:
            return client.chat.completions.with_streaming_response.create(
                model=body["model"],
                messages=[],  # in the body below: the SDK would copy each of them
                stream=True,
                extra_body=body,
                extra_headers=headers,
            )

        finished = False
        async with aclosing(self._client.events(create, key, last=lambda event: False)) as events:
            while True:
                try:
                    async with asyncio.timeout(self._tail_seconds if finished else None):
                        event = await anext(events, None)
                except Exception:
                    if finished:
                        return
                    raise
                if event is None:
                    return
                finished = finished or finishes(event)
                yield event

    def explain(self, error: Exception, now: float) -> AttemptFailed | None:
        return self._client.explain(error, now)

    async def warm_up(self) -> None:
        await self._client.warm_up()

    async def close(self) -> None:
        await self._client.close()
