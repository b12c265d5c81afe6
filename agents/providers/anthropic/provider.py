"""Claude, through Anthropic's official SDK: one request, one stream, one attempt.

The SDK is imported and its client built at the first need, in a thread, because that costs over a second. It gives us
authentication, the connection pool and the raw events; retries are ours (`agents.providers.retry`), and so are parsing
and assembly, because the SDK takes a cut stream for a whole one and raises in the middle of half-written arguments.
Nothing but the machine's proxy settings is taken from the environment.
"""

import asyncio
import json
import time
import warnings
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import structlog

from agents.messages import ModelError
from agents.providers.anthropic.errors import from_event, from_status, output_blocked
from agents.providers.anthropic.request import API, wire_request
from agents.providers.anthropic.response import Assembly, BadStream
from agents.providers.config import ProviderConfig
from agents.providers.provider import Done, ModelEvent, ModelRequest

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

BASE_URL = "https://api.anthropic.com"
CONNECT_SECONDS = 5.0
DRAIN_SECONDS = 0.25
"""How long the body may take to end after `message_stop`; read to its end, the connection can be used again."""
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

log = structlog.get_logger()


class _StreamError(Exception):
    """The server reported an error after it had answered 200."""

    def __init__(self, error: ModelError) -> None:
        super().__init__(error.summary)
        self.error = error


class AnthropicProvider:
    """A `Provider` of the api `anthropic-messages`."""

    def __init__(self, name: str, config: ProviderConfig, *, now: Callable[[], float] = time.time) -> None:
        self._name = name
        self._config = config
        self._now = now
        self._client: AsyncAnthropic | None = None
        self._building = asyncio.Lock()

    @property
    def name(self) -> str:
        return self._name

    @property
    def api(self) -> str:
        return API

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        assembly = Assembly(provider=self._name, model=request.model, timestamp=self._now())
        if not self._key:
            missing = ModelError(
                kind="unconfigured", summary=f"providers.{self._name}.apiKey is empty", retryable=False
            )
            yield Done(message=assembly.failed(missing))
            return
        try:
            async with aclosing(self._events(request)) as events:
                async for event in events:
                    for piece in assembly.feed(event):
                        yield piece
            message = assembly.finish()
        except Exception as error:  # noqa: BLE001 - the port's promise: whatever breaks is a final message
            if _blocked(error):
                message = assembly.failed(self._explain(error), "content_filter")
            else:
                message = assembly.failed(self._explain(error))
        yield Done(message=message)

    async def warm_up(self) -> None:
        if self._key:
            await self._ready()

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    @property
    def _key(self) -> str:
        return self._config.api_key.get_secret_value().strip()

    async def _ready(self) -> "AsyncAnthropic":
        async with self._building:
            if self._client is None:
                self._client = await asyncio.to_thread(_build_client, self._config, self._key)
            return self._client

    async def _events(self, request: ModelRequest) -> AsyncGenerator[dict[str, Any], None]:
        """The events of one answer, parsed; ends after `message_stop` or with the body, whichever is first."""
        client = await self._ready()
        clock = asyncio.get_running_loop().time
        end = clock() + self._config.timeout_seconds
        body: Any = wire_request(request)
        async with asyncio.timeout_at(end):
            stream = await client.messages.create(**body, stream=True)
        try:
            headers = stream.response.headers
            _must_be_events(headers)
            raw = stream.raw_events(stream.response)
            until = end  # before its first event a model may think for minutes
            while True:
                async with asyncio.timeout_at(until):
                    sse = await anext(raw, None)
                if sse is None:
                    return
                event = _parse(sse.event, sse.data, headers)
                if event is not None:
                    yield event
                    if event.get("type") == "message_stop":
                        await _drain(raw)
                        return
                until = min(end, clock() + self._config.idle_seconds)
        finally:
            await stream.close()

    def _explain(self, error: Exception) -> ModelError:
        """Every exception as one of our kinds."""
        import anthropic
        import httpx2

        match error:
            case _StreamError():
                return error.error
            case anthropic.APIStatusError():
                return from_status(error.status_code, error.body, error.response.headers, self._now())
            case anthropic.APITimeoutError() | httpx2.TimeoutException() | TimeoutError():
                return ModelError(kind="timeout", summary=type(error).__name__, retryable=True)
            case BadStream():
                return ModelError(kind="incomplete", summary=str(error), retryable=True)
            case httpx2.DecodingError() | UnicodeDecodeError():
                return ModelError(kind="incomplete", summary=type(error).__name__, retryable=True)
            case anthropic.APIConnectionError() | httpx2.HTTPError():
                cause = type(error.__cause__ or error).__name__
                return ModelError(kind="network", summary=cause, retryable=True)
            case _:
                # Its text may hold what a person wrote, so the log gets the name alone.
                log.error("model_unexpected_error", provider=self._name, type=type(error).__name__)
                return ModelError(kind="invalid", summary=f"unexpected {type(error).__name__}", retryable=False)


def _build_client(config: ProviderConfig, key: str) -> "AsyncAnthropic":
    import anthropic
    import httpx2

    # The notice of a model's end of life is for programmers, and a warning must not become a failed turn.
    warnings.filterwarnings("ignore", message=r"The model '.*' is deprecated", category=DeprecationWarning)
    base_url = (config.base_url or BASE_URL).rstrip("/").removesuffix("/v1")  # the SDK adds /v1/messages
    timeout = httpx2.Timeout(config.timeout_seconds, connect=min(CONNECT_SECONDS, config.timeout_seconds))
    client = anthropic.AsyncAnthropic(
        api_key=key,
        auth_token=None,
        base_url=base_url,
        max_retries=0,
        timeout=timeout,
        open_telemetry=False,
        http_client=httpx2.AsyncClient(
            timeout=timeout,
            limits=httpx2.Limits(max_connections=1000, max_keepalive_connections=100),
            # A proxy for the outside world is the machine's business; a server on this machine is never behind it.
            trust_env=not _is_local(base_url),
            # Following a redirect would carry the key to wherever it points.
            follow_redirects=False,
        ),
    )
    # Drop what the SDK reads from ANTHROPIC_CUSTOM_HEADERS: a stray variable must not change what we send.
    client._custom_headers = dict(config.headers)
    return client


def _is_local(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def _must_be_events(headers: Mapping[str, str]) -> None:
    """A proxy's page with status 200 is no answer."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind and kind != "text/event-stream":
        raise BadStream("the answer is not an event stream")


def _parse(name: str | None, data: str, headers: Mapping[str, str]) -> dict[str, Any] | None:
    """One event; None for what is no news. Raises BadStream, or the error that the server reports."""
    if not data or (name is not None and name not in _EVENTS):
        return None
    try:
        event = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadStream("an event is not JSON") from error
    if not isinstance(event, dict):
        raise BadStream("an event is not an object")
    if name == "error" or event.get("type") == "error":
        raise _StreamError(from_event(event, headers.get("request-id")))
    return event if "type" in event else {**event, "type": name}


async def _drain(raw: Any) -> None:
    """Read the body to its end, whatever becomes of it: the answer is already whole."""
    with suppress(Exception):
        async with asyncio.timeout(DRAIN_SECONDS):
            async for _ in raw:
                pass


def _blocked(error: Exception) -> bool:
    import anthropic

    return isinstance(error, anthropic.APIStatusError) and output_blocked(error.status_code, error.body)
