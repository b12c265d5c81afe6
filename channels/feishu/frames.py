"""The frames of Feishu's long connection: one protobuf message, read and written by hand.

The message is `pbbp2.Frame` of the official SDKs (proto2): the numbers below are its fields. A protobuf runtime for one
message would weigh more than these lines. Fields that are unknown are passed over.
"""

from collections.abc import Iterator
from dataclasses import dataclass

CONTROL, DATA = 0, 1
"""The values of a frame's `method`."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED = {_FIXED64: 8, _FIXED32: 4}
VARINT_BYTES_MAX = 10
_WRAP = 1 << 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """`service` names the app's connection, `seq` and `log` are the platform's own; an answer repeats all of them."""

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
    """Raises ValueError for what is no frame."""
    numbers: dict[int, int] = {}
    texts: dict[int, bytes] = {}
    headers = []
    for field, value in _fields(data):
        if isinstance(value, int):
            numbers[field] = value
        elif field == 5:
            header = {key: text for key, text in _fields(value) if isinstance(text, bytes)}
            headers.append((header.get(1, b"").decode(), header.get(2, b"").decode()))
        else:
            texts[field] = value
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
    for field, number in enumerate((frame.seq, frame.log, frame.service, frame.method), start=1):
        written += _varint(field << 3 | _VARINT) + _varint(number % _WRAP)
    for key, value in frame.headers:
        written += _text(5, _text(1, key.encode()) + _text(2, value.encode()))
    texts = (frame.encoding.encode(), frame.kind.encode(), frame.payload, frame.log_id.encode())
    for field, text in enumerate(texts, start=6):
        written += _text(field, text) if text else b""
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
    """The varint there, and the place where it ends."""
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
    """An int32, which is written as 64 bits."""
    number &= 0xFFFFFFFF
    return number - (1 << 32) if number >> 31 else number
