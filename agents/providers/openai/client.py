"""OpenAI's official SDK, for the two wires that speak it: one client a provider, and the raw events of an answer.

Imported and built at the first need, in a thread, because that costs half a second. The SDK gives us authentication,
paths and the connection pool; its own retries are off, and so is its parsing, because it takes a cut stream for a whole
one and knows only what OpenAI itself sends.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, TypeAlias

from agents.providers.config import ProviderConfig
from agents.providers.errors import AttemptFailed, Refused, error_of
from agents.providers.http import END, drain, event_of, must_be_events, server_sent, settings
from agents.providers.network import network_failure
from agents.providers.openai.errors import from_status, output_blocked

if TYPE_CHECKING:
    from openai import AsyncOpenAI

NO_KEY = "no-key"
ERROR_BYTES_MAX = 1_000_000

Create: TypeAlias = Callable[["AsyncOpenAI", dict[str, Any]], AbstractAsyncContextManager[Any]]
"""Posts with the client and these `extra_headers`: `….with_streaming_response.create(…)` of one of its resources."""


class OpenAIClient:
    """`base_url` is where requests go if the config does not say."""

    def __init__(self, config: ProviderConfig, base_url: str) -> None:
        self.base_url = (config.base_url or base_url).rstrip("/")
        self._config = config
        self._client: AsyncOpenAI | None = None
        self._building = asyncio.Lock()

    async def events(
        self, create: Create, key: str, *, last: Callable[[dict[str, Any]], bool] = lambda event: False
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The events of one answer, parsed; an empty one for every other sign of life.

        Ends with `[DONE]`, which is told as an event of that type, behind the event that `last` says is one, or with
        the body. An error in the stream, or in its place, is an event like any other. Raises BadStream,
        and what `explain` knows: Refused, mostly as the cause of an exception of the SDK's.
        """
        client = await self._ready()
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        async with create(client, headers) as response:
            if (error := await _error_instead(response)) is not None:
                yield error
                return
            must_be_events(response.headers)
            raw = server_sent(response.iter_bytes())
            async for data in raw:
                if data.strip() == END:
                    yield {"type": END}
                    await drain(raw, idle_seconds=self._config.idle_seconds)
                    return
                event = event_of(data)
                yield event
                if event and last(event):
                    await drain(raw, idle_seconds=self._config.idle_seconds)
                    return

    def explain(self, error: Exception, now: float) -> AttemptFailed | None:
        """What a refusal and the SDK's exceptions mean; None for any other."""
        import httpx2
        import openai

        match error:
            case Refused(status=status, body=body, headers=headers):
                blocked = output_blocked(status, body)
                return AttemptFailed(from_status(status, body, headers, now), "content_filter" if blocked else "error")
            case openai.APIConnectionError():
                cause = error.__cause__
                known = self.explain(cause, now) if isinstance(cause, Exception) else None
                return known or network_failure(httpx2.NetworkError(type(error).__name__), httpx2)
            case _:
                return network_failure(error, httpx2)

    async def warm_up(self) -> None:
        await self._ready()

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _ready(self) -> "AsyncOpenAI":
        async with self._building:
            if self._client is None:
                self._client = await asyncio.to_thread(_build_client, self._config, self.base_url)
            return self._client


def _build_client(config: ProviderConfig, base_url: str) -> "AsyncOpenAI":
    import httpx2
    import openai

    arguments = settings(config, base_url, httpx2)
    client = openai.AsyncOpenAI(
        api_key=NO_KEY,  # each request brings its own; servers that want none often want to see one all the same
        base_url=base_url,
        max_retries=0,
        timeout=arguments["timeout"],
        http_client=httpx2.AsyncClient(**arguments),
    )
    # What it reads from the environment is dropped: a stray variable must not change what we send, or to whom.
    client.organization = client.project = client.admin_api_key = client.webhook_secret = None
    client._custom_headers = dict(config.headers)
    return client


async def _error_instead(response: Any) -> dict[str, Any] | None:
    """What a JSON body with status 200 says that is an error; OpenRouter sends such. None where there is none."""
    if not response.headers.get("content-type", "").lower().startswith("application/json"):
        return None
    body = b""
    async for chunk in response.iter_bytes():
        body += chunk
        if len(body) > ERROR_BYTES_MAX:
            return None
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return answer if error_of(answer) else None
