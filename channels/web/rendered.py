"""Messages as the page is given them. What was said never changes, so each is rendered once, however many pages ask.

Rendering takes its time (Markdown becomes HTML), so it is done on a thread, one page's worth after the other; what was
rendered last is kept, up to a number of bytes.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from channels.web.archive import Archive, Said, Sized
from channels.web.views import said_view

PAGE_BYTES_MAX = 524_288
"""Of the words that are loaded at once; a message that is larger comes alone."""
RENDERED_BYTES_MAX = 8 * 1_048_576


@dataclass(frozen=True, kw_only=True, slots=True)
class Rendered:
    """`json` is the whole message, as in docs/http.md."""

    number: int
    chat: str
    json: bytes


class Renderings:
    """The messages that were rendered last."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._kept: dict[int, Rendered] = {}
        self._bytes = 0
        self._lock = asyncio.Lock()

    async def of(self, numbers: Sequence[int]) -> list[Rendered]:
        """Those of the messages that there still are, in the order of `numbers`."""
        async with self._lock:
            missing = [number for number in numbers if number not in self._kept]
            if missing:
                self._keep(await asyncio.to_thread(_render, await self._archive.said(missing)))
            found = [self._kept[number] for number in numbers if number in self._kept]
            self._drop_oldest()
            return found

    def _keep(self, fresh: Sequence[Rendered]) -> None:
        self._kept |= {it.number: it for it in fresh}
        self._bytes += sum(len(it.json) for it in fresh)

    def _drop_oldest(self) -> None:
        while self._bytes > RENDERED_BYTES_MAX:
            self._bytes -= len(self._kept.pop(next(iter(self._kept))).json)


def fitting(sized: Sequence[Sized]) -> list[int]:
    """The numbers of the first messages that fit into one page; at least one's."""
    numbers: list[int] = []
    total = 0
    for it in sized:
        total += it.bytes
        if numbers and total > PAGE_BYTES_MAX:
            break
        numbers.append(it.number)
    return numbers


def _render(page: Sequence[Said]) -> list[Rendered]:
    return [Rendered(number=it.number, chat=it.chat, json=orjson.dumps(said_view(it))) for it in page]
