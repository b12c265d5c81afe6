"""OpenAI's two wires, Chat Completions and Responses, through its official SDK; many vendors speak Chat.

What a vendor of Chat wants differently is its record (`chat.vendors`). Bodies and events are ours: the SDK is given the
body whole, since it would walk through its typed arguments on the event loop, a third of a millisecond an item.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing
from typing import TYPE_CHECKING, Any

from agents.providers.chat import request as chat_request
from agents.providers.chat import response as chat_response
from agents.providers.chat.vendors import Vendor, for_model
from agents.providers.config import ProviderConfig
from agents.providers.errors import AttemptFailed
from agents.providers.openai.client import OpenAIClient
from agents.providers.provider import ModelRequest
from agents.providers.responses import request as responses_request
from agents.providers.responses import response as responses_response
from channels.transport import is_local

if TYPE_CHECKING:
    from openai import AsyncOpenAI

TAIL_SECONDS = 2.0
"""How long a finished answer waits for what may come behind it: its price, and the end of the body."""


class ChatWire:
    """`openai-chat`, as a `Wire`. Raises ValueError where neither the config nor the vendor says where it is."""

    api = chat_response.API

    def __init__(self, name: str, config: ProviderConfig, vendor: Vendor) -> None:
        base_url = config.base_url or vendor.base_url
        if base_url is None:
            raise ValueError(f"providers.{name}: add baseUrl:, the address of its chat API with /v1")
        self.keyless = vendor.keyless or is_local(base_url)
        self._vendor = vendor
        self._client = OpenAIClient(config, base_url)
        self._tail_seconds = min(TAIL_SECONDS, config.idle_seconds / 2)

    def assembly(self, request: ModelRequest, *, provider: str, timestamp: float) -> chat_response.ChatAssembly:
        vendor = for_model(self._vendor, request.model)
        return chat_response.ChatAssembly(provider=provider, model=request.model, timestamp=timestamp, vendor=vendor)

    async def events(self, request: ModelRequest, key: str) -> AsyncGenerator[dict[str, Any], None]:
        """After the finish reason, later stream errors are ignored."""
        body = chat_request.wire_request(request, self._vendor)

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
                finished = finished or chat_response.finishes(event)
                yield event

    def explain(self, error: Exception, now: float) -> AttemptFailed | None:
        return self._client.explain(error, now)

    async def warm_up(self) -> None:
        await self._client.warm_up()

    async def close(self) -> None:
        await self._client.close()


RESPONSES_URL = "https://api.openai.com/v1"


class ResponsesWire:
    """`openai-responses`, as a `Wire`."""

    api = responses_request.API

    def __init__(self, config: ProviderConfig) -> None:
        self._client = OpenAIClient(config, RESPONSES_URL)
        self.keyless = is_local(self._client.base_url)

    def assembly(
        self, request: ModelRequest, *, provider: str, timestamp: float
    ) -> responses_response.ResponsesAssembly:
        return responses_response.ResponsesAssembly(provider=provider, model=request.model, timestamp=timestamp)

    async def events(self, request: ModelRequest, key: str) -> AsyncGenerator[dict[str, Any], None]:
        body = responses_request.wire_request(request)

        def create(client: "AsyncOpenAI", headers: dict[str, str]) -> AbstractAsyncContextManager[Any]:
            post = client.responses.with_streaming_response.create
            return post(stream=True, extra_body=body, extra_headers=headers)

        async with aclosing(self._client.events(create, key, last=_is_last)) as events:
            async for event in events:
                yield event

    def explain(self, error: Exception, now: float) -> AttemptFailed | None:
        return self._client.explain(error, now)

    async def warm_up(self) -> None:
        await self._client.warm_up()

    async def close(self) -> None:
        await self._client.close()


def _is_last(event: dict[str, Any]) -> bool:
    return event.get("type") in responses_response.ENDS
