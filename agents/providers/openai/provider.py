"""OpenAI's two wires, Chat Completions and Responses, through its official SDK; many vendors speak Chat.

What a vendor of Chat wants differently is its record (`chat.vendors`). The SDK gives us authentication, paths and the
connection pool. Bodies and events are ours: it would walk through its typed arguments on the event loop, a third of a
millisecond an item, it takes a cut stream for a whole one, and it knows only what OpenAI itself sends.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from agents.providers.chat import request as chat_request
from agents.providers.chat import response as chat_response
from agents.providers.chat.vendors import Vendor, for_model
from agents.providers.config import ProviderConfig
from agents.providers.errors import AttemptFailed, Refused, error_of
from agents.providers.http import END, LazyClient, drain, event_of, must_be_events, server_sent, settings
from agents.providers.openai.errors import from_status, output_blocked
from agents.providers.payload import json_object
from agents.providers.provider import ModelRequest
from agents.providers.responses import request as responses_request
from agents.providers.responses import response as responses_response
from channels.transport import is_local

if TYPE_CHECKING:
    from openai import AsyncOpenAI

NO_KEY = "no-key"
ERROR_BYTES_MAX = 1_000_000
RESPONSES_URL = "https://api.openai.com/v1"
TAIL_SECONDS = 2.0
"""How long a finished answer waits for what may come behind it: its price, and the end of the body."""

Create: TypeAlias = Callable[["AsyncOpenAI"], Callable[..., AbstractAsyncContextManager[Any]]]
"""`….with_streaming_response.create` of one of the client's resources."""


class OpenAIWire:
    """What both wires share. A subclass gives `api`, `assembly` and `events`."""

    def __init__(self, config: ProviderConfig, base_url: str) -> None:
        self.keyless = is_local(base_url)
        self.client = LazyClient(lambda: _build_client(config, base_url.rstrip("/")))
        self._config = config

    def refusal(self, refused: Refused, now: float) -> AttemptFailed:
        error = from_status(refused.status, refused.body, refused.headers, now)
        blocked = output_blocked(refused.status, refused.body)
        return AttemptFailed(error, "content_filter" if blocked else "error")

    async def _events(
        self, create: Create, body: Any, key: str, *, last: Callable[[dict[str, Any]], bool] = lambda event: False
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The events of one answer, parsed; an empty one for every other sign of life.

        Ends with `[DONE]`, which is an event of that type, behind the event that `last` says is one, or with the body.
        An error in the stream, or in its place, is an event like any other. Raises BadStream, and exceptions of the
        SDK's.
        """
        client: AsyncOpenAI = await self.client.get()
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        async with create(client)(stream=True, extra_body=body, extra_headers=headers) as response:
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


class ChatWire(OpenAIWire):
    api = chat_response.API

    def __init__(self, config: ProviderConfig, vendor: Vendor) -> None:
        super().__init__(config, config.base_url or vendor.base_url or "")  # `api_of` has checked that there is one
        self.keyless = self.keyless or vendor.keyless
        self._vendor = vendor

    def assembly(self, *, provider: str, model: str, timestamp: float) -> chat_response.ChatAssembly:
        vendor = for_model(self._vendor, model)
        return chat_response.ChatAssembly(provider=provider, model=model, timestamp=timestamp, vendor=vendor)

    async def events(self, request: ModelRequest, key: str) -> AsyncGenerator[dict[str, Any], None]:
        """After the finish reason, later stream errors are ignored."""
        body = chat_request.wire_request(request, self._vendor)

        def create(client: "AsyncOpenAI") -> Callable[..., AbstractAsyncContextManager[Any]]:
            post = client.chat.completions.with_streaming_response.create
            return partial(post, model=body["model"], messages=[])  # in the body: the SDK would copy each of them

        async with aclosing(self._events(create, body, key)) as events:
            async for event in events:
                yield event
                if chat_response.finishes(event):
                    idle = self._config.idle_seconds
                    for late in await drain(events, idle_seconds=idle, seconds=TAIL_SECONDS):
                        yield late
                    return


class ResponsesWire(OpenAIWire):
    api = responses_request.API
    assembly = responses_response.ResponsesAssembly

    def __init__(self, config: ProviderConfig) -> None:
        super().__init__(config, config.base_url or RESPONSES_URL)

    def events(self, request: ModelRequest, key: str) -> AsyncGenerator[dict[str, Any], None]:
        body = responses_request.wire_request(request)
        return self._events(
            lambda client: client.responses.with_streaming_response.create,
            body,
            key,
            last=lambda event: event.get("type") in responses_response.ENDS,
        )


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
    answer = json_object(body)
    return answer if error_of(answer) else None
