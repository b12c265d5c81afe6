"""Feishu's long connection: a WebSocket that we open for events, so that a bot needs no public address.

Each event is stored before it is acknowledged, in order; one that could not be stored is redelivered. Feishu gives each
event to one of an app's connections (fifty at most): every replica holds one, and takes over what a dead one did not
acknowledge. A connection without a pong in time is dead, whatever the socket says. Events are unsigned: the connection is
authenticated.

Its frames are one protobuf message, `pbbp2.Frame` of the official SDKs (proto2), coded by hand: a protobuf runtime would
weigh more. Unknown fields are skipped.
"""

import asyncio
import base64
import json
import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import structlog

from channels.channel import Arrived, Deliver, DeliveryError, NotReady, Receipt, Refused, Rejected, Unreachable
from channels.condition import Condition
from channels.feishu.api import FeishuApi, refused
from channels.wire import loads, mapping, number, text

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

log = structlog.get_logger()

CONTROL, DATA = 0, 1
"""The values of a frame's `method`."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED = {_FIXED64: 8, _FIXED32: 4}
VARINT_BYTES_MAX = 10
_WRAP = 1 << 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """`service` identifies the app's connection, `seq` and `log` are the platform's; a response repeats all of them."""

    seq: int = 0
    log: int = 0
    service: int
    method: int
    headers: tuple[tuple[str, str], ...] = ()
    encoding: str = ""
    kind: str = ""
    payload: bytes = b""
    log_id: str = ""

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key == name), "")


def decode(data: bytes) -> Frame:
    """Raises ValueError for a malformed frame."""
    numbers: dict[int, int] = {}
    texts: dict[int, bytes] = {}
    headers = []
    for tag, value in _fields(data):
        if isinstance(value, int):
            numbers[tag] = value
        elif tag == 5:
            header = {key: part for key, part in _fields(value) if isinstance(part, bytes)}
            headers.append((header.get(1, b"").decode(), header.get(2, b"").decode()))
        else:
            texts[tag] = value
    if not {1, 2, 3, 4} <= numbers.keys():
        raise ValueError("a required field is missing")
    return Frame(
        seq=numbers[1],
        log=numbers[2],
        service=_signed(numbers[3]),
        method=_signed(numbers[4]),
        headers=tuple(headers),
        encoding=texts.get(6, b"").decode(),
        kind=texts.get(7, b"").decode(),
        payload=texts.get(8, b""),
        log_id=texts.get(9, b"").decode(),
    )


def encode(frame: Frame) -> bytes:
    written = bytearray()
    for tag, value in enumerate((frame.seq, frame.log, frame.service, frame.method), start=1):
        written += _varint(tag << 3 | _VARINT) + _varint(value % _WRAP)
    for name, content in frame.headers:
        written += _text(5, _text(1, name.encode()) + _text(2, content.encode()))
    texts = (frame.encoding.encode(), frame.kind.encode(), frame.payload, frame.log_id.encode())
    for tag, part in enumerate(texts, start=6):
        written += _text(tag, part) if part else b""
    return bytes(written)


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        tag, at = _number(data, at)
        field, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _number(data, at)
            yield field, value
            continue
        if wire == _BYTES:
            size, at = _number(data, at)
        elif wire in _FIXED:
            size = _FIXED[wire]
        else:
            raise ValueError(f"wire type {wire}")
        if at + size > len(data):
            raise ValueError("cut off")
        yield field, data[at : at + size]
        at += size


def _number(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for place, byte in enumerate(data[at : at + VARINT_BYTES_MAX]):
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number % _WRAP, at + place + 1
    raise ValueError("a number without an end")


def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*written, number))


def _text(field: int, text: bytes) -> bytes:
    return _varint(field << 3 | _BYTES) + _varint(len(text)) + text


def _signed(number: int) -> int:
    number &= 0xFFFFFFFF
    return number - (1 << 32) if number >> 31 else number


PING_SECONDS = 120.0
PONG_SECONDS_MAX = 30.0
"""Timeout of a ping, after which the connection is dead."""
RECONNECT_SECONDS = 120.0
OPEN_SECONDS_MAX = 10.0
FRAME_BYTES_MAX = 4 * 1024 * 1024
PART_SECONDS = 5.0
"""Timeout for the parts of one event, as in the official SDKs."""
PARTS_MAX = 64
PARTED_MAX = 100
SECONDS_MAX = 3600
REFUSED_CODES = frozenset({"403", "514", "1000040344", "1000040350"})


@dataclass(kw_only=True, slots=True)
class Rhythm:
    """Ping and reconnect intervals in seconds, set by Feishu at each connection and with a pong."""

    ping: float = PING_SECONDS
    interval: float = RECONNECT_SECONDS
    nonce: float = 30.0
    """Jitter of the first reconnect: many bots lose their connection together."""

    def learn(self, config: Mapping[str, Any]) -> None:
        self.ping = _seconds(config, "PingInterval", self.ping, least=1)
        self.interval = _seconds(config, "ReconnectInterval", self.interval, least=1)
        self.nonce = _seconds(config, "ReconnectNonce", self.nonce, least=0)

    def wait(self, failures: int) -> float:
        """Return the seconds to wait after this number of failures: exponential backoff up to the interval."""
        spread = random.random()
        if not failures:
            return spread * self.nonce
        return float(min(2.0 ** min(failures, 10), self.interval)) * (0.75 + spread / 2)


@dataclass(kw_only=True, slots=True)
class LongConnection:
    """`read` turns an event into a receipt; it raises what `Channel.receive` does."""

    api: FeishuApi
    account: str
    read: Callable[[bytes], Receipt]
    deliver: Deliver
    condition: Condition
    rhythm: Rhythm = field(default_factory=Rhythm)
    _parts: "Parts" = field(default_factory=lambda: Parts())

    async def run(self) -> None:
        failures = 0
        while True:
            began = time.monotonic()
            if not failures:
                self.condition.starting("events")
            try:
                await self._once()
            except DeliveryError as error:
                failures = failures + 1 if time.monotonic() - began < self.rhythm.ping else 0
                if failures:
                    self.condition.failed("events", error)
                wait = error.retry_after_seconds or self.rhythm.wait(failures)
                write = log.error if isinstance(error, Refused) else log.warning
                facts = {"account": self.account, "reason": str(error), "failures": failures}
                write("feishu_connection_lost", seconds=round(wait, 1), **facts)
            await asyncio.sleep(wait)

    async def _once(self) -> None:
        import websockets  # lazy: costs some 10 ms, and only this mode needs it
        from websockets.asyncio.client import connect

        url, service = await self._endpoint()
        quiet = logging.getLogger("websockets.quiet")
        quiet.setLevel(logging.WARNING)  # the address contains a ticket, which debug level would log
        try:
            async with connect(
                url,
                open_timeout=OPEN_SECONDS_MAX,
                close_timeout=1,
                ping_interval=None,
                max_size=FRAME_BYTES_MAX,
                compression=None,
                proxy=None,
                logger=quiet,
            ) as connection:
                log.info("feishu_connected", account=self.account)
                self.condition.ok("events")
                pinging = asyncio.create_task(self._ping(connection, service))
                try:
                    await self._listen(connection)
                finally:
                    pinging.cancel()
        except websockets.InvalidStatus as error:
            headers = error.response.headers  # contain Feishu's reason
            code = headers.get("Handshake-Autherrcode") or headers.get("Handshake-Status") or ""
            if code in REFUSED_CODES:
                raise refused(code) from error
            message = f"Feishu refused the long connection ({code or 'it does not say why'})"
            raise Unreachable(message, code=code) from error
        except (OSError, TimeoutError, websockets.WebSocketException) as error:
            raise Unreachable(f"the connection was lost ({type(error).__name__})") from error

    async def _endpoint(self) -> tuple[str, int]:
        answer = await self.api.endpoint()
        self.rhythm.learn(mapping(answer, "ClientConfig"))
        url = text(answer, "URL")
        with suppress(ValueError, IndexError, KeyError):
            parts = urlsplit(url)
            if parts.scheme in ("ws", "wss") and parts.hostname:
                return url, int(parse_qs(parts.query)["service_id"][0])
        raise Unreachable("Feishu's answer does not say where to connect to")

    async def _ping(self, connection: "ClientConnection", service: int) -> None:
        while True:
            await connection.send(encode(Frame(service=service, method=CONTROL, headers=(("type", "ping"),))))
            await asyncio.sleep(self.rhythm.ping)

    async def _listen(self, connection: "ClientConnection") -> None:
        while True:
            async with asyncio.timeout(self.rhythm.ping + PONG_SECONDS_MAX):
                received = await connection.recv(decode=False)
            try:
                frame = decode(received)
            except ValueError as error:
                log.error("feishu_frame_unreadable", account=self.account, reason=str(error))
                continue
            if frame.method == CONTROL and frame.header("type") == "pong":
                with suppress(ValueError):
                    config = loads(frame.payload or b"{}")
                    self.rhythm.learn(config if isinstance(config, dict) else {})
            elif frame.method == DATA and frame.header("type") == "event" and (whole := self._parts.join(frame)):
                await connection.send(encode(await self._answer(frame, whole)))

    async def _answer(self, frame: Frame, event: bytes) -> Frame:
        began = time.monotonic()
        answer: dict[str, Any] = {"code": 200}
        try:
            receipt = self.read(event)
        except NotReady:
            answer = {"code": 500}
        except Rejected as error:  # a redelivery would fail in the same way
            log.warning("feishu_event_rejected", account=self.account, reason=error.reason)
        except Exception as error:  # noqa: BLE001 - one odd event must not end the connection
            log.error("feishu_event_unreadable", account=self.account, error=type(error).__name__)
            answer = {"code": 500}
        else:
            if isinstance(receipt, Arrived) and receipt.context.press:
                answer["data"] = base64.b64encode(receipt.answer).decode()
            try:
                await self.deliver(receipt)
            except Exception as error:  # noqa: BLE001 - whatever it was, the event is not stored
                log.error("feishu_event_not_stored", account=self.account, error=type(error).__name__)
                answer = {"code": 500}
        milliseconds = str(int((time.monotonic() - began) * 1000))
        return replace(frame, headers=(*frame.headers, ("biz_rt", milliseconds)), payload=json.dumps(answer).encode())


class Parts:
    """Reassemble events that arrive in several frames."""

    def __init__(self) -> None:
        self._begun: dict[str, tuple[float, dict[int, bytes]]] = {}

    def join(self, frame: Frame) -> bytes | None:
        """Return the whole event if this frame completes one."""
        with suppress(ValueError):
            count, place = int(frame.header("sum") or 1), int(frame.header("seq") or 0)
            if count == 1:
                return frame.payload
            if 1 < count <= PARTS_MAX and 0 <= place < count:
                return self._add(frame.header("message_id"), count, place, frame.payload)
        log.error("feishu_frame_unreadable", reason="its numbers are none")
        return None

    def _add(self, message: str, count: int, place: int, payload: bytes) -> bytes | None:
        now = time.monotonic()
        self._begun = {key: begun for key, begun in self._begun.items() if now - begun[0] < PART_SECONDS}
        if message not in self._begun and len(self._begun) >= PARTED_MAX:
            del self._begun[next(iter(self._begun))]
        _, parts = self._begun.setdefault(message, (now, {}))
        parts[place] = payload
        size = sum(map(len, parts.values()))
        if len(parts) < count and size <= FRAME_BYTES_MAX:
            return None
        del self._begun[message]
        return None if size > FRAME_BYTES_MAX else b"".join(parts[it] for it in range(count))


def _seconds(config: Mapping[str, Any], key: str, before: float, *, least: int) -> float:
    value = number(config, key)
    return float(value) if value is not None and least <= value <= SECONDS_MAX else before
