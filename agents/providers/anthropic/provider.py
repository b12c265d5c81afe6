"""Claude, through Anthropic's official SDK.

The SDK is imported and its client built at the first need, in a thread, because that costs over a second. It gives us
authentication, the connection pool and the raw events; parsing and assembly are ours, because the SDK takes a cut
stream for a whole one and raises in the middle of half-written arguments.
"""

import asyncio
import json
import warnings
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any

from agents.providers.anthropic.errors import from_event, from_status, output_blocked
from agents.providers.anthropic.request import API, wire_request
from agents.providers.anthropic.response import AnthropicAssembly
from agents.providers.config import ProviderConfig
from agents.providers.errors import AttemptFailed, BadStream, Refused
from agents.providers.http import drain, must_be_events, settings
from agents.providers.network import network_failure
from agents.providers.provider import ModelRequest

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

BASE_URL = "https://api.anthropic.com"
_EVENTS = frozenset(
    {
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "error",
    }
)
_NO_NEWS: dict[str, Any] = {}


class AnthropicWire:
    """`anthropic-messages`, as a `Wire`."""

    api = API
    keyless = False

    def __init__(self, config: ProviderConfig) -> None:
        self._config = config
        self._client: AsyncAnthropic | None = None
        self._building = asyncio.Lock()

    def assembly(self, request: ModelRequest, *, provider: str, timestamp: float) -> AnthropicAssembly:
        return AnthropicAssembly(provider=provider, model=request.model, timestamp=timestamp)

    async def events(self, request: ModelRequest, key: str) -> AsyncGenerator[dict[str, Any], None]:
        client = await self._ready()
        body: Any = wire_request(request)
        authorization = {"Authorization": f"Bearer {key}"}
        stream = await client.messages.create(**body, stream=True, extra_headers=authorization)
        try:
            headers = stream.response.headers
            must_be_events(headers)
            raw = stream.raw_events(stream.response)
            async for sse in raw:
                event = _parse(sse.event, sse.data, headers)
                yield event
                if event.get("type") == "message_stop":
                    await drain(raw, idle_seconds=self._config.idle_seconds)
                    return
        finally:
            await stream.close()

    def explain(self, error: Exception, now: float) -> AttemptFailed | None:
        import anthropic
        import httpx2

        match error:
            case Refused(status=status, body=body, headers=headers):
                blocked = output_blocked(status, body)
                return AttemptFailed(from_status(status, body, headers, now), "content_filter" if blocked else "error")
            case anthropic.APIConnectionError(__cause__=Exception() as cause):
                return self.explain(cause, now)
            case _:
                return network_failure(error, httpx2)

    async def warm_up(self) -> None:
        await self._ready()

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _ready(self) -> "AsyncAnthropic":
        async with self._building:
            if self._client is None:
                self._client = await asyncio.to_thread(_build_client, self._config)
            return self._client


def _build_client(config: ProviderConfig) -> "AsyncAnthropic":
    import anthropic
    import httpx2

    # The notice of a model's end of life is for programmers, and a warning must not become a failed turn.
    warnings.filterwarnings("ignore", message=r"The model '.*' is deprecated", category=DeprecationWarning)
    base_url = (config.base_url or BASE_URL).rstrip("/").removesuffix("/v1")  # the SDK adds /v1/messages
    arguments = settings(config, base_url, httpx2)
    client = anthropic.AsyncAnthropic(
        api_key="set with each request",
        auth_token=None,
        base_url=base_url,
        max_retries=0,
        timeout=arguments["timeout"],
        open_telemetry=False,
        http_client=httpx2.AsyncClient(**arguments),
    )
    # Drop what the SDK reads from ANTHROPIC_CUSTOM_HEADERS: a stray variable must not change what we send.
    client._custom_headers = dict(config.headers)
    return client


def _parse(name: str | None, data: str, headers: Mapping[str, str]) -> dict[str, Any]:
    """One event; an empty one for what is no news. Raises BadStream, or AttemptFailed for an error that is told."""
    if not data or (name is not None and name not in _EVENTS):
        return _NO_NEWS
    try:
        event = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadStream("an event is not JSON") from error
    if not isinstance(event, dict):
        raise BadStream("an event is not an object")
    if name == "error" or event.get("type") == "error":
        raise AttemptFailed(from_event(event, headers.get("request-id")))
    return event if "type" in event else {**event, "type": name}
