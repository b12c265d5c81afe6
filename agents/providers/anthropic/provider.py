"""Claude, through Anthropic's official SDK.

The SDK gives us authentication, the connection pool and the raw events; parsing and assembly are ours, because the SDK
takes a cut stream for a whole one and raises in the middle of half-written arguments.
"""

import re
import warnings
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any

from agents.providers.anthropic.request import API, wire_request
from agents.providers.anthropic.response import AnthropicAssembly, from_event, from_status, output_blocked
from agents.providers.config import ProviderConfig
from agents.providers.errors import AttemptFailed, Refused
from agents.providers.http import LazyClient, drain, event_of, must_be_events, settings
from agents.providers.provider import ModelRequest

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

BASE_URL = "https://api.anthropic.com"
_EVENT = re.compile(r"message_(?:start|delta|stop)|content_block_(?:start|delta|stop)|error")


class AnthropicWire:
    api = API
    assembly = AnthropicAssembly
    keyless = False

    def __init__(self, config: ProviderConfig) -> None:
        self._config = config
        self.client = LazyClient(lambda: _build_client(config))

    async def events(self, request: ModelRequest, key: str) -> AsyncGenerator[dict[str, Any], None]:
        client: AsyncAnthropic = await self.client.get()
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

    def refusal(self, refused: Refused, now: float) -> AttemptFailed:
        error = from_status(refused.status, refused.body, refused.headers, now)
        blocked = output_blocked(refused.status, refused.body)
        return AttemptFailed(error, "content_filter" if blocked else "error")


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
    if name is not None and not _EVENT.fullmatch(name):
        return {}
    event = event_of(data)
    if name == "error" or event.get("type") == "error":
        raise AttemptFailed(from_event(event, headers.get("request-id")))
    return {"type": name, **event} if event else {}
