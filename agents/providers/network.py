"""A provider behind a network: one request, one stream, one attempt, the same for every wire.

What differs is the `WireSpec`: how a request reads, how its events become a message, how its errors read. What does not
is here: keys, deadlines, and the promise that whatever breaks is a final message. Retries are not
(`agents.providers.retry`).
"""

import json
import time
import zlib
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import orjson
import structlog

from agents.messages import AssistantMessage, ErrorKind, ModelError
from agents.providers.config import ProviderConfig
from agents.providers.draft import Draft
from agents.providers.errors import AttemptFailed, BadStream, RequestRefused, words_of
from agents.providers.http import END, TAIL_SECONDS, Answer, Client, Event, LazyClient, event_of
from agents.providers.provider import Done, ModelEvent, ModelRequest

log = structlog.get_logger()


class Assembly(Protocol):
    """One answer in the making."""

    draft: Draft

    def feed(self, event: dict[str, Any]) -> Iterator[ModelEvent]:
        """Take one event of the wire. Raises BadStream for what is plainly broken, AttemptFailed for a reported error;
        passes over what it does not know."""

    def finish(self) -> AssistantMessage:
        """The whole answer. Raises BadStream where its end is missing, AttemptFailed where the model broke off."""


def bearer(key: str) -> tuple[str, str]:
    return "Authorization", f"Bearer {key}"


@dataclass(frozen=True, kw_only=True, slots=True)
class WireSpec:
    """One vendor's protocol. `keyless`: it needs no key. `event` parses one server-sent event: its name, its data, and the
    headers of the answer. `ends`: the answer is complete with it, and `late` is what counts of one behind that, for
    `tail_seconds`. `from_status` says what a refusal means, at a wall time in seconds, and `output_blocked` whether it
    is a content filter's, of what the model wrote."""

    api: str
    build: Callable[[], Client]
    path: Callable[[ModelRequest], str]
    body: Callable[[ModelRequest], dict[str, Any]]
    assembly: Callable[..., Assembly]
    ends: Callable[[dict[str, Any]], bool]
    from_status: Callable[[int, object, Mapping[str, str], float], ModelError]
    output_blocked: Callable[[int, object], bool] = lambda status, body: False
    event: Callable[[str, str, Mapping[str, str]], dict[str, Any]] = lambda name, data, headers: event_of(data)
    late: Callable[[dict[str, Any]], dict[str, Any]] = lambda event: {}
    key_header: Callable[[str], tuple[str, str]] = bearer
    keyless: bool = False
    tail_seconds: float = TAIL_SECONDS
    models_url: str = ""
    """Lists the models of a key, for `agents.providers.doctor`."""
    models_headers: Mapping[str, str] = field(default_factory=dict)
    key_url: str = ""
    """Tells whether a key is good, where the list of models is open to everybody."""


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
        assembly = self._wire.assembly(provider=self.name, model=request.model, timestamp=self._now())
        key = self._keys.pick(request.conversation)
        if key is None and not self._wire.keyless:
            summary = f"providers.{self.name}.apiKey is empty"
            yield Done(message=assembly.draft.failed(ModelError(kind="unconfigured", summary=summary, retryable=False)))
            return
        answer, client = Answer(self._config, tail_seconds=self._wire.tail_seconds), self._client
        event: object = None
        try:
            with client.in_use():
                try:
                    await answer.open(self._send(client, request, key))
                    while (events := await answer.read()) is not None:
                        for event in self._parsed(answer, events):
                            for piece in assembly.feed(event):
                                yield piece
                finally:
                    await answer.close()
            message = assembly.finish()
        except Exception as error:  # noqa: BLE001 - the port's promise: whatever breaks is a final message
            failed = self._explain(error, event)
            message = assembly.draft.failed(self._with_another_key(key, failed.error), failed.reason)
        yield Done(message=message)

    async def warm_up(self) -> None:
        if self._config.keys or self._wire.keyless:
            await self._client.get()

    async def close(self) -> None:
        await self._client.close()

    def adopt(self, other: "NetworkProvider") -> None:
        """Ask as `other`, of the same wire, would: from the next request on. What is under way ends as it began."""
        self._client.retire()
        self._config, self._wire, self._keys, self._client = other._config, other._wire, other._keys, other._client

    def revoke(self) -> None:
        """Ask nobody any more: the config does not have it."""
        self._keys, self._wire = KeyRing(()), replace(self._wire, keyless=False)
        self._client.retire()

    async def _send(self, lazy: LazyClient, request: ModelRequest, key: str | None) -> Any:
        client = await lazy.get()
        headers = {"Content-Type": "application/json"} | (dict([self._wire.key_header(key)]) if key else {})
        return await client.post(self._wire.path(request), self._body(request), headers)

    def _body(self, request: ModelRequest) -> bytes:
        """Faster by twenty than the standard library, which alone writes whole numbers of any size."""
        try:
            return orjson.dumps(self._wire.body(request))
        except TypeError:
            body = self._wire.body(replace(request, settled=()))
            return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()

    def _parsed(self, answer: Answer, events: Sequence[Event]) -> Iterator[dict[str, Any]]:
        """Each one when its turn comes. Behind the end nothing is an error any more."""
        for name, data in events:
            if not answer.ended:
                event = self._wire.event(name, data, answer.headers)
                yield event
                answer.ended = event.get("type") == END or self._wire.ends(event)
                continue
            with suppress(BadStream, AttemptFailed):
                yield self._wire.late(self._wire.event(name, data, answer.headers))

    def _with_another_key(self, key: str | None, error: ModelError) -> ModelError:
        if key and self._keys.refused(key, error):
            log.warning("model_key_rests", provider=self.name, kind=error.kind)
            return replace(error, retryable=True, retry_after_seconds=0.0)
        return error

    def _refused(self, refused: RequestRefused) -> AttemptFailed:
        error = self._wire.from_status(refused.status, refused.body, refused.headers, self._now())
        blocked = self._wire.output_blocked(refused.status, refused.body)
        error = replace(error, words=words_of(refused.body))
        return AttemptFailed(error, "content_filter" if blocked else "error")

    def _explain(self, error: Exception, event: object) -> AttemptFailed:
        """An exception as one of our kinds: its own, or that of the one that an SDK has wrapped. `event` is the stream's
        last."""
        cause: BaseException | None = error
        while cause is not None:
            match cause:
                case AttemptFailed():
                    cause.error = replace(cause.error, words=cause.error.words or words_of(event))
                    return cause
                case RequestRefused():
                    return self._refused(cause)
                case BadStream():
                    return _failed("incomplete", str(cause))
            if kind := _kind(cause):
                named = cause.__cause__ or cause if kind == "network" else cause
                return _failed(kind, type(named).__name__)
            cause = cause.__cause__
        name = type(error).__name__
        if "APIConnectionError" in _class_names(error):
            return _failed("network", name)
        # Its text may hold what a person wrote, so the log gets the name alone.
        log.error("model_unexpected_error", provider=self.name, type=name)
        return AttemptFailed(ModelError(kind="invalid", summary=f"unexpected {name}", retryable=False))


_KINDS: dict[str, ErrorKind] = {
    "TimeoutError": "timeout",
    "UnicodeDecodeError": "incomplete",
    "TimeoutException": "timeout",
    "DecodingError": "incomplete",
    "HTTPError": "network",
}
"""By the class or its base, the first that fits. By name, since httpx comes as `httpx2` with the SDKs, too, and importing
either for nothing costs time."""


def _kind(error: BaseException) -> ErrorKind | None:
    names = _class_names(error)
    return next((kind for name, kind in _KINDS.items() if name in names), None)


def _class_names(error: BaseException) -> set[str]:
    return {base.__name__ for base in type(error).__mro__}


def _failed(kind: ErrorKind, summary: str) -> AttemptFailed:
    return AttemptFailed(ModelError(kind=kind, summary=summary, retryable=True))


_REST_SECONDS: dict[ErrorKind, float] = {"rate_limited": 30.0, "auth": 600.0, "billing": 600.0}
"""How long a refused key rests where the server names no time. One that is not accepted or has no money left rests longer:
somebody has to do something about it."""


class KeyRing:
    """Chats are spread over the keys of a provider, and a key that is refused rests while another is ready. A chat stays
    with its key as long as that works, because prompt caches belong to a key's account."""

    def __init__(self, keys: Sequence[str], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._keys = tuple(keys)
        self._clock = clock
        self._ready_at = dict.fromkeys(self._keys, float("-inf"))

    def pick(self, conversation: str) -> str | None:
        """The chat's key, or the next one that is ready, or the one that will be ready first; None without any."""
        if not self._keys:
            return None
        start = zlib.crc32(conversation.encode(errors="replace")) % len(self._keys)
        order = self._keys[start:] + self._keys[:start]
        now = self._clock()
        ready = next((key for key in order if self._ready_at[key] <= now), None)
        return ready or min(order, key=lambda key: self._ready_at[key])

    def refused(self, key: str, error: ModelError) -> bool:
        """Let a key rest where `error` is about it. True where another one is ready, so that asking again is worth it."""
        if error.kind not in _REST_SECONDS:
            return False
        now = self._clock()
        self._ready_at[key] = now + (error.retry_after_seconds or _REST_SECONDS[error.kind])
        return any(ready_at <= now for ready_at in self._ready_at.values())
