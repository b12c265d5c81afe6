"""OpenAI's Responses API, through the official SDK.

The SDK gives us authentication, paths and the connection pool; body and events are ours. The body passes beside its
typed arguments, which it would walk through on the event loop, a third of a millisecond an item.
"""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing
from typing import TYPE_CHECKING, Any

from agents.providers.config import ProviderConfig
from agents.providers.errors import AttemptFailed
from agents.providers.http import is_local
from agents.providers.openai.client import OpenAIClient
from agents.providers.provider import ModelRequest
from agents.providers.responses.request import API, wire_request
from agents.providers.responses.response import ENDS, Assembly

if TYPE_CHECKING:
    from openai import AsyncOpenAI

BASE_URL = "https://api.openai.com/v1"


class ResponsesWire:
    """`openai-responses`, as a `Wire`."""

    api = API

    def __init__(self, config: ProviderConfig) -> None:
        self._client = OpenAIClient(config, BASE_URL)
        self.keyless = is_local(self._client.base_url)

    def assembly(self, request: ModelRequest, *, provider: str, timestamp: float) -> Assembly:
        return Assembly(provider=provider, model=request.model, timestamp=timestamp)

    async def events(self, request: ModelRequest, key: str) -> AsyncGenerator[dict[str, Any], None]:
        body = wire_request(request)

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
    return event.get("type") in ENDS
