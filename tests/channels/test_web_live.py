"""What pages are told of turns that run, and the messages that are rendered once for all of them."""

import asyncio
import tracemalloc
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.abilities import Progress
from channels.message import Chat
from channels.web import views
from channels.web.archive import MessageBody, WebMessage
from channels.web.live import BACKLOG_BYTES_MAX, BACKLOG_MAX, ENDED_MAX, LiveTurns, Watcher
from channels.web.views import Renderings, blocks
from tests.channels.contexts import context

CHAT, MESSAGE = "c_one_one", "m_one_one"


def progress(text: str = "", *, message: str = MESSAGE, **more: Any) -> Progress:
    return Progress(context=context("web", Chat(id=CHAT, kind="direct"), message_id=message), text=text, **more)


async def news_of(live: LiveTurns, watcher: Watcher) -> list[tuple[str, dict[str, Any]]]:
    """What the page has been told since it was asked last: names and data."""
    live.announce(b"event: end\ndata: {}\n\n")
    news = []
    while (notice := parsed(await watcher.next() or b""))[0] != "end":
        news.append(notice)
    return news


def parsed(notice: bytes) -> tuple[str, dict[str, Any]]:
    name, data = notice.decode().removesuffix("\n\n").split("\n")
    return name.removeprefix("event: "), orjson.loads(data.removeprefix("data: "))


PIECES = [
    *("hello ", "**bold", "** ", "\n\n", "- item\n", "```py\n", "x = 1\n", "```\n", "|a|\n|-|\n", "# T\n", "> q\n"),
    "===\n",
]
grown = st.lists(st.sampled_from(PIECES), max_size=8).map(lambda it: ["".join(it[: n + 1]) for n in range(len(it))])


@given(st.lists(grown, min_size=1, max_size=3), st.data())
async def test_whoever_looks_from_whenever_on_sees_the_draft_as_it_is(
    attempts: list[list[str]], data: st.DataObject
) -> None:
    """Drafts that grow, and are taken back between attempts; one page comes behind the other, as the protocol says."""
    texts = [text for attempt in attempts for text in (*attempt, "")]
    comes = data.draw(st.lists(st.integers(0, len(texts)), min_size=2, max_size=2))
    live, pages = LiveTurns(), list[tuple[list[tuple[str, dict[str, Any]]], Watcher]]()
    with ExitStack() as stack:
        for number in range(len(texts) + 1):
            for _ in range(comes.count(number)):
                watcher = stack.enter_context(live.watching())
                pages.append(([parsed(notice) for notice in live.state()], watcher))
            for text in texts[number : number + 1]:
                live.show(progress(text))
        for standing, watcher in pages:
            drawn: list[str] = []
            for name, event in [*standing, *await news_of(live, watcher)]:
                if name == "draft":
                    assert event["at"] <= len(drawn)
                    drawn[event["at"] :] = event["blocks"]
            assert drawn == blocks(texts[-1])


async def test_only_what_has_changed_is_told() -> None:
    live = LiveTurns()
    with live.watching() as page:
        live.show(progress("one\n\ntwo"))
        await news_of(live, page)
        for _ in range(2):
            live.show(progress("one\n\ntwo three"))
        changed = {"chat": CHAT, "message": MESSAGE, "at": 1, "blocks": ["<p>two three</p>\n"]}
        assert await news_of(live, page) == [("draft", changed)]


async def test_turns_that_have_ended_are_forgotten_however_many_there_were() -> None:
    live = LiveTurns()
    live.show(progress("runs on"))
    for number in range(ENDED_MAX * 3):
        live.show(progress(message=f"m_{number}"))
        live.show(progress(message=f"m_{number}", outcome="silent"))
    assert len(live._turns) <= ENDED_MAX + 2
    assert (live.running(CHAT), live.running("c_another")) == (True, False)


@pytest.mark.parametrize(("size", "count"), [(1, BACKLOG_MAX), (1_048_576, BACKLOG_BYTES_MAX // 1_048_576)])
async def test_web_stream_of_a_page_that_does_not_read_is_closed(size: int, count: int) -> None:
    live = LiveTurns()
    with live.watching() as slow, live.watching() as quick:
        for _ in range(count + 1):
            assert not slow.lost
            live.announce(b"x" * size)
            assert await quick.next() == b"x" * size
        assert (slow.lost, quick.lost) == (True, False)
        live.announce(b"more")
        assert (await slow.next(), await quick.next()) == (None, b"more")


class Memory:
    """The one method of `ChatHistory` that is needed; `loads` are the numbers that were asked for, each time."""

    def __init__(self, *texts: str) -> None:
        self.texts = dict(enumerate(texts, 1))
        self.loads: list[list[int]] = []

    async def messages(self, numbers: Sequence[int]) -> Sequence[WebMessage]:
        self.loads.append(list(numbers))
        await asyncio.sleep(0)
        bodies = {it: MessageBody(text=self.texts[it], agent="helper") for it in sorted(numbers) if it in self.texts}
        return [
            WebMessage(number=it, chat="c_one", author="agent", key=str(it), words=words, at=1.0)
            for it, words in bodies.items()
        ]


async def test_web_stream_renders_once_for_many_pages() -> None:
    memory = Memory("**one**", "two")
    shared = Renderings(memory)  # type: ignore[arg-type]
    answers = await asyncio.gather(*(shared.of([9, 2, 1]) for _ in range(50)))
    assert memory.loads[0] == [9, 2, 1]
    assert [load for load in memory.loads[1:] if load != [9]] == []
    assert [(it.number, orjson.loads(it.json)["text"]) for it in answers[-1]] == [(2, "two"), (1, "**one**")]


async def test_no_more_is_kept_than_may_be_and_whoever_asks_gets_it_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(views, "RENDERED_BYTES_MAX", 40_000)
    memory = Memory(*["x" * 10_000] * 4)
    shared = Renderings(memory)  # type: ignore[arg-type]
    assert len(await shared.of([1, 2, 3, 4])) == 4
    assert sum(len(it.json) for it in shared._kept.values()) == shared._bytes <= 40_000
    for number in (4, 1):
        await shared.of([number])
    assert memory.loads == [[1, 2, 3, 4], [1]]


async def test_what_is_kept_takes_hardly_more_memory_than_it_has_bytes() -> None:
    shared = Renderings(Memory(*["one"] * 1_000))  # type: ignore[arg-type]
    await shared.of([1])
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        await shared.of(range(2, 1_001))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    beside_the_bytes = 1_000  # the number, the chat and the place of each
    assert after - before < shared._bytes + 1_000 * beside_the_bytes
