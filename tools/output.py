"""The output of a command: keeps its beginning and end, and escapes what could act on the reader."""

import re
from bisect import bisect_right
from itertools import accumulate
from typing import Literal

TAIL_SHARE = 0.3
TAIL_CHARS_MAX = 4_000
"""The end's share of what is shown, as wherever a result is cut (`agents.context`)."""
GAP_CHARS = 64
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\udc80-\udcff]")
_PIECE = re.compile(r"\r\n|.", re.DOTALL)
_SHOWN = {
    "\r\n": "\n",
    # Terminals take C1 controls, from U+0080 on, for the start of a sequence.
    **{chr(code): f"\\x{code:02x}" for code in (*range(32), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"},
    **{chr(code): "\ufffd" for code in range(0xDC80, 0xDD00)},
}
"""Substitutes for what must reach no prompt, chat or terminal; the last row is for bytes that are not UTF-8."""


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

    def since(self, position: int) -> "Output":
        """Return a copy of the output after this number of bytes."""
        later = Output(2 * self._half)
        tail = self._tail[-self._half :]
        later._head = self._head[position:]
        later._tail = tail[max(0, position - (self.total - len(tail))) :]
        later.total = self.total - position
        return later

    def dump(self) -> tuple[int, str, str, int]:
        return self._half, self._head.decode("latin-1"), self._tail[-self._half :].decode("latin-1"), self.total

    @classmethod
    def load(cls, half: int, head: str, tail: str, total: int) -> "Output":
        """Restore a dumped output."""
        output = cls(2 * half)
        output._head += head.encode("latin-1")
        output._tail += tail.encode("latin-1")
        output.total = total
        return output

    def shown(self, chars_max: int) -> str:
        """Return the output, printable; if it is longer than `chars_max`, its two ends and how many bytes are left
        out."""
        head, tail = bytes(self._head), bytes(self._tail[-self._half :])
        if len(head) + len(tail) == self.total:
            head = tail = head + tail
            text, shown_bytes = _printed(head, chars_max, keep="beginning")
            if shown_bytes == self.total:
                return text
        room = chars_max - GAP_CHARS
        tail_chars = min(int(room * TAIL_SHARE), TAIL_CHARS_MAX)
        beginning, beginning_bytes = _printed(head, room - tail_chars, keep="beginning")
        end, end_bytes = _printed(tail, tail_chars, keep="end")
        left = self.total - beginning_bytes - end_bytes
        return f"{beginning}\n[… {left:,} bytes of output are left out …]\n{end}"


def _printed(raw: bytes, chars: int, *, keep: Literal["beginning", "end"]) -> tuple[str, int]:
    step = 1 if keep == "beginning" else -1
    text = (raw[: 4 * chars] if step > 0 else raw[-4 * chars :]).decode("utf-8", errors="surrogateescape")
    text = text[:chars] if step > 0 else text[-chars:]
    if len(text) <= chars and not _UNSAFE.search(text):
        return text, _bytes(text)
    pieces = _PIECE.findall(text)[::step]
    escaped = [_SHOWN.get(piece, piece) for piece in pieces]
    escaped = escaped[: bisect_right(list(accumulate(map(len, escaped))), chars)]
    return "".join(escaped[::step]), _bytes("".join(pieces[: len(escaped)]))


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", errors="surrogateescape"))
