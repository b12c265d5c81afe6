"""A provider over the network: one request, one stream, one attempt, for every API.

A `WireSpec` holds the differences: requests, events and errors. Keys, deadlines and the guarantee that every failure
is a final message are here.
"""

import json
import time
import zlib
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import orjson
import structlog

from agents.messages import AssistantMessage, ErrorKind, ModelError
from agents.providers.config import ProviderConfig
from agents.providers.draft import Draft
from agents.providers.http import END, TAIL_SECONDS, AnyClient, ArrivingAnswer, LazyClient, event_of
from agents.providers.payload import BadStream
from agents.providers.provider import Done, ModelEvent, ModelRequest
from agents.providers.refusals import AttemptFailed, RequestRefused, failure_of, is_error, word

log = structlog.get_logger()


class Assembly(Protocol):
    """Assembles one answer from events."""

    draft: Draft

    def feed(self, event: dict[str, Any]) -> Iterator[ModelEvent]:
        """Process one event; ignore unknown ones. Raises BadStream, or AttemptFailed for a reported error."""

    def finish(self) -> AssistantMessage:
        """Return the whole answer. Raises BadStream if its end is missing, AttemptFailed if the model broke off."""


def bearer(key: str) -> tuple[str, str]:
    return "Authorization", f"Bearer {key}"


@dataclass(frozen=True, kw_only=True, slots=True)
class WireSpec:
    """One vendor's protocol. `keyless`: it needs no key. `tail_seconds`: how long a complete answer waits for its usage."""

    api: str
    build: Callable[[], AnyClient]
    path: Callable[[ModelRequest], str]
    body: Callable[[ModelRequest], dict[str, Any]]
    assembly: Callable[[Draft], Assembly]
    key_header: Callable[[str], tuple[str, str]] = bearer
    keyless: bool = False
    tail_seconds: float = TAIL_SECONDS
    models_url: str = ""
    """The URL that lists a key's models, for `agents.providers.doctor`."""
    models_headers: Mapping[str, str] = field(default_factory=dict)
    key_url: str = ""
    """The URL that checks a key, if the list of models is public."""


class NetworkProvider:
    """A `Provider` that speaks `wire`."""

    def __init__(
        self, name: str, config: ProviderConfig, wire: WireSpec, *, now: Callable[[], float] = time.time
    ) -> None:
        self.name = name
        self.api = wire.api
        self._config = config
        self._wire = wire
        self._client = LazyClient(wire.build)
        self._keys = KeyRing(config.keys)
        self._now = now

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        draft = Draft(api=self.api, provider=self.name, model=request.model, timestamp=self._now())
        assembly = self._wire.assembly(draft)
        key = self._keys.pick(request.conversation)
        if key is None and not self._wire.keyless:
            summary = f"providers.{self.name}.apiKey is empty"
            yield Done(message=draft.failed(ModelError(kind="unconfigured", summary=summary, retryable=False)))
            return
        answer, client = ArrivingAnswer(self._config, tail_seconds=self._wire.tail_seconds), self._client
        try:
            with client.in_use():
                try:
                    await answer.open(self._send(client, request, key))
                    while (events := await answer.read()) is not None:
                        for piece in _fed(assembly, answer, events):
                            yield piece
                finally:
                    await answer.close()
            message = assembly.finish()
        except Exception as error:  # noqa: BLE001 - the port's promise: whatever breaks is a final message
            failed = self._explain(error, answer.headers)
            if key and self._keys.refused(key, failed.error):
                log.warning("model_key_rests", provider=self.name, kind=failed.error.kind)
                failed.error = replace(failed.error, retryable=True, retry_after_seconds=0.0)
            message = draft.failed(failed.error, failed.reason)
        yield Done(message=message)

    async def warm_up(self) -> None:
        if self._config.keys or self._wire.keyless:
            await self._client.get()

    async def close(self) -> None:
        await self._client.close()

    def adopt(self, other: "NetworkProvider") -> None:
        """Apply the settings of `other`, of the same API, from the next request on. Running requests are not affected."""
        self._client.retire()
        self._config, self._wire, self._keys, self._client = other._config, other._wire, other._keys, other._client

    def revoke(self) -> None:
        """Stop calling the server: the config no longer has this provider."""
        self._keys, self._wire = KeyRing(()), replace(self._wire, keyless=False)
        self._client.retire()

    async def _send(self, lazy: LazyClient, request: ModelRequest, key: str | None) -> Any:
        client = await lazy.get()
        headers = {"Content-Type": "application/json"} | (dict([self._wire.key_header(key)]) if key else {})
        return await client.post(self._wire.path(request), self._body(request), headers)

    def _body(self, request: ModelRequest) -> bytes:
        try:
            return orjson.dumps(self._wire.body(request))
        except TypeError:  # only the standard library, 20 times slower, writes large integers
            body = self._wire.body(replace(request, settled=()))
            return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()

    def _explain(self, error: Exception, headers: Mapping[str, str]) -> AttemptFailed:
        """Classify an exception, innermost cause first, since SDKs wrap them. `headers` are the answer's."""
        chain: list[BaseException] = [error]
        while (cause := chain[-1].__cause__) is not None:
            chain.append(cause)
        for cause in reversed(chain):
            match cause:
                case AttemptFailed():
                    return _numbered(cause, headers)
                case RequestRefused():
                    refusal = failure_of(cause.body, cause.status, cause.headers, self._now())
                    return _numbered(refusal, cause.headers)
                case BadStream():
                    return _failed("incomplete", str(cause))
            bases = {base.__name__ for base in type(cause).__mro__}
            if kind := next((kind for name, kind in _KINDS.items() if name in bases), None):
                return _failed(kind, type(cause.__cause__ or cause if kind == "network" else cause).__name__)
        name = type(error).__name__
        # Its text may quote a user, so log only the name.
        log.error("model_unexpected_error", provider=self.name, type=name)
        return AttemptFailed(ModelError(kind="invalid", summary=f"unexpected {name}", retryable=False))


def _fed(assembly: Assembly, answer: ArrivingAnswer, events: Sequence[str]) -> Iterator[ModelEvent]:
    for data in events:
        try:
            event = event_of(data)
            if is_error(event):
                raise failure_of(event)
            yield from assembly.feed(event)
        except (BadStream, AttemptFailed):  # ignored after the end
            if not answer.ended:
                raise
        else:
            answer.ended = answer.ended or event.get("type") == END or assembly.draft.ended


def _numbered(failed: AttemptFailed, headers: Mapping[str, str]) -> AttemptFailed:
    """Add the vendor's request id."""
    number = next((headers[name] for name in _REQUEST_IDS if name in headers), None)
    if number is not None:
        failed.error = replace(failed.error, summary=f"{failed.error.summary} request_id={word(number)}")
    return failed


_REQUEST_IDS = ("request-id", "x-request-id", "mistral-correlation-id")
_KINDS: dict[str, ErrorKind] = {
    "TimeoutError": "timeout",
    "TimeoutException": "timeout",
    "DecodingError": "incomplete",
    "HTTPError": "network",
    "APIConnectionError": "network",
}
"""Kinds by the name of the class or a base class, the first match. Names, since SDKs have httpx as `httpx2`, and
imports take time."""


def _failed(kind: ErrorKind, summary: str) -> AttemptFailed:
    return AttemptFailed(ModelError(kind=kind, summary=summary, retryable=True))


_REST_SECONDS: dict[ErrorKind, float] = {"rate_limited": 30.0, "auth": 600.0, "billing": 600.0}
"""The cooldown of a refused key without Retry-After; longer if the operator must act (invalid key, no credit)."""


class KeyRing:
    """Distributes chats over a provider's keys. A refused key cools down while another is ready. A chat keeps its key
    as long as it works, because prompt caches belong to a key's account."""

    def __init__(self, keys: Sequence[str], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._keys = tuple(keys)
        self._clock = clock
        self._ready_at = dict.fromkeys(self._keys, float("-inf"))

    def pick(self, conversation: str) -> str | None:
        """Return the chat's key, or the next one that is ready, or the one that will be ready first; None without keys."""
        if not self._keys:
            return None
        start = zlib.crc32(conversation.encode(errors="replace")) % len(self._keys)
        order = self._keys[start:] + self._keys[:start]
        now = self._clock()
        ready = next((key for key in order if self._ready_at[key] <= now), None)
        return ready or min(order, key=lambda key: self._ready_at[key])

    def refused(self, key: str, error: ModelError) -> bool:
        """Start a key's cooldown if `error` is about the key. Return whether another one is ready, so that a retry is
        worthwhile."""
        if error.kind not in _REST_SECONDS:
            return False
        now = self._clock()
        self._ready_at[key] = now + (error.retry_after_seconds or _REST_SECONDS[error.kind])
        return any(ready_at <= now for ready_at in self._ready_at.values())
