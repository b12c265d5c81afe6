"""The output of a command: both of its ends are kept while it runs, and so much is shown as one result may hold."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

OUTPUT_BYTES_MAX = 16 * 1024 * 1024
TAIL_SHARE = 0.3
TAIL_CHARS_MAX = 4_000
"""The end's part of what is shown, as wherever a result is cut (`agents.truncate`)."""
GAP_CHARS = 64

_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\udc80-\udcff]")
_PIECE = re.compile(r"\r\n|.", re.DOTALL)
_SHOWN = {
    "\r\n": "\n",
    # What terminals take from U+0080 on, they also take for the start of a sequence.
    **{chr(code): f"\\x{code:02x}" for code in (*range(32), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"},
    **{chr(code): "\ufffd" for code in range(0xDC80, 0xDD00)},
}
"""What stands for a piece that must reach no prompt, chat or terminal; the last row are bytes that are no UTF-8."""


class Output:
    """Keeps the beginning and the end of a stream."""

    def __init__(self, keep_bytes: int) -> None:
        self._half = keep_bytes // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def feed(self, data: bytes) -> None:
        self.total += len(data)
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[max(room, 0) :]
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    def shown(self, chars_max: int) -> str:
        """The output, printable; where it is longer than that, its two ends and how many bytes are not shown."""
        head, tail = bytes(self._head), bytes(self._tail[-self._half :])
        if len(head) + len(tail) == self.total:
            head = tail = head + tail
            text, shown_bytes = _beginning(head, chars_max)
            if shown_bytes == self.total:
                return text
        room = chars_max - GAP_CHARS
        tail_chars = min(int(room * TAIL_SHARE), TAIL_CHARS_MAX)
        beginning, beginning_bytes = _beginning(head, room - tail_chars)
        end, end_bytes = _end(tail, tail_chars)
        left = self.total - beginning_bytes - end_bytes
        return f"{beginning}\n[… {left:,} bytes of output are left out …]\n{end}"


def _beginning(raw: bytes, chars: int) -> tuple[str, int]:
    """As much of it as is printed in so many characters, and how many of its bytes that is."""
    text = raw[: 4 * chars].decode("utf-8", errors="surrogateescape")[:chars]
    if not _UNSAFE.search(text):
        return text, _bytes(text)
    pieces = _PIECE.findall(text)
    shown = _fitting(pieces, chars)
    return "".join(shown), _bytes("".join(pieces[: len(shown)]))


def _end(raw: bytes, chars: int) -> tuple[str, int]:
    text = raw[-4 * chars :].decode("utf-8", errors="surrogateescape")[-chars:]
    pieces = _PIECE.findall(text)[::-1]
    shown = _fitting(pieces, chars)[::-1]
    return "".join(shown), _bytes("".join(reversed(pieces[: len(shown)])))


def _fitting(pieces: Sequence[str], chars: int) -> list[str]:
    shown = [_SHOWN.get(piece, piece) for piece in pieces]
    return shown[: bisect_right(list(accumulate(map(len, shown))), chars)]


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", errors="surrogateescape"))
