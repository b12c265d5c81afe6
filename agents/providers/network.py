"""A provider behind a network: one request, one stream, one attempt, the same for every wire.

What differs is the `Wire`: how a request is sent, how its events become a message, how its errors read. What does not
is here: keys, deadlines, and the promise that whatever breaks is a final message. Retries are not
(`agents.providers.retry`).
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Protocol

import structlog

from agents.messages import AssistantMessage, ErrorKind, ModelError, StopReason
from agents.providers.config import ProviderConfig
from agents.providers.errors import AttemptFailed, BadStream
from agents.providers.keys import KeyRing
from agents.providers.provider import Done, ModelEvent, ModelRequest

log = structlog.get_logger()


class Assembly(Protocol):
    """One answer in the making."""

    def feed(self, event: dict[str, Any]) -> Iterator[ModelEvent]:
        """Take one event of the wire. Raises BadStream for what is plainly broken, AttemptFailed for a reported error;
        passes over what it does not know."""

    def finish(self) -> AssistantMessage:
        """The whole answer. Raises BadStream where its end is missing."""

    def failed(self, error: ModelError, reason: StopReason = "error") -> AssistantMessage:
        """The text up to the failure, and nothing else: for neither calls nor thinking are sure to be whole."""


class Wire(Protocol):
    """One vendor's protocol. `keyless`: it needs no key."""

    api: str
    keyless: bool

    def assembly(self, request: ModelRequest, *, provider: str, timestamp: float) -> Assembly: ...

    def events(self, request: ModelRequest, key: str) -> AsyncGenerator[dict[str, Any], None]:
        """The events of one answer, parsed; an empty one for every other sign of life. Ends with the answer or with
        the body, whichever is first."""

    def explain(self, error: Exception, now: float) -> AttemptFailed | None:
        """What the wire's own exceptions mean; None for those that are not its own."""

    async def warm_up(self) -> None: ...

    async def close(self) -> None: ...


class NetworkProvider:
    """A `Provider` that speaks `wire`."""

    def __init__(self, name: str, config: ProviderConfig, wire: Wire, *, now: Callable[[], float] = time.time) -> None:
        self._name = name
        self._config = config
        self._wire = wire
        self._keys = KeyRing(config.keys)
        self._now = now

    @property
    def name(self) -> str:
        return self._name

    @property
    def api(self) -> str:
        return self._wire.api

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        assembly = self._wire.assembly(request, provider=self._name, timestamp=self._now())
        key = self._keys.pick(request.conversation)
        if key is None and not self._wire.keyless:
            summary = f"providers.{self._name}.apiKey is empty"
            yield Done(message=assembly.failed(ModelError(kind="unconfigured", summary=summary, retryable=False)))
            return
        try:
            async with (
                aclosing(self._wire.events(request, key or "")) as events,
                aclosing(self._paced(events)) as paced,
            ):
                async for event in paced:
                    for piece in assembly.feed(event):
                        yield piece
            message = assembly.finish()
        except Exception as error:  # noqa: BLE001 - the port's promise: whatever breaks is a final message
            failed = self._explain(error)
            message = assembly.failed(self._with_another_key(key, failed.error), failed.reason)
        yield Done(message=message)

    async def warm_up(self) -> None:
        if self._config.keys or self._wire.keyless:
            await self._wire.warm_up()

    async def close(self) -> None:
        await self._wire.close()

    async def _paced(self, events: AsyncGenerator[dict[str, Any], None]) -> AsyncGenerator[dict[str, Any], None]:
        """Raises TimeoutError: where nothing comes, where it falls silent, where it takes too long in all."""
        clock = asyncio.get_running_loop().time
        began = clock()
        end = began + self._config.timeout_seconds
        until = min(end, began + self._config.first_byte_seconds)
        while True:
            async with asyncio.timeout_at(until):
                event = await anext(events, None)
            if event is None:
                return
            yield event
            until = min(end, clock() + self._config.idle_seconds)

    def _with_another_key(self, key: str | None, error: ModelError) -> ModelError:
        if key and self._keys.refused(key, error):
            log.warning("model_key_rests", provider=self._name, kind=error.kind)
            return replace(error, retryable=True, retry_after_seconds=0.0)
        return error

    def _explain(self, error: Exception) -> AttemptFailed:
        """Every exception as one of our kinds."""
        match error:
            case AttemptFailed():
                return error
            case BadStream():
                return _failed("incomplete", str(error))
            case TimeoutError():
                return _failed("timeout", type(error).__name__)
            case UnicodeDecodeError():
                return _failed("incomplete", type(error).__name__)
        if (known := self._wire.explain(error, self._now())) is not None:
            return known
        # Its text may hold what a person wrote, so the log gets the name alone.
        log.error("model_unexpected_error", provider=self._name, type=type(error).__name__)
        summary = f"unexpected {type(error).__name__}"
        return AttemptFailed(ModelError(kind="invalid", summary=summary, retryable=False))


def network_failure(error: Exception, library: Any) -> AttemptFailed | None:
    """What an exception of `library` (`httpx`, or the `httpx2` of the SDKs) means; None for any other."""
    match error:
        case library.TimeoutException():
            return _failed("timeout", type(error).__name__)
        case library.DecodingError():
            return _failed("incomplete", type(error).__name__)
        case library.HTTPError():
            return _failed("network", type(error.__cause__ or error).__name__)
        case _:
            return None


def _failed(kind: ErrorKind, summary: str) -> AttemptFailed:
    return AttemptFailed(ModelError(kind=kind, summary=summary, retryable=True))
