"""What pages are told of turns that run: drafts that grow, tools, and pages that do not keep up."""

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from channels.channel import Progress, ToolUse
from channels.message import Chat
from channels.web.live import BACKLOG_BYTES_MAX, BACKLOG_MAX, ENDED_MAX, LiveTurns, Watcher
from channels.web.views import blocks
from tests.channels.contexts import context

CHAT, MESSAGE = "c_one_one", "m_one_one"


def progress(text: str = "", *, chat: str = CHAT, message: str = MESSAGE, **more: Any) -> Progress:
    return Progress(context=context("web", Chat(id=chat, kind="direct"), message_id=message), text=text, **more)


def waiting(watcher: Watcher) -> int:
    return watcher._queue.qsize()


async def news_of(watcher: Watcher) -> list[tuple[str, dict[str, Any]]]:
    """What the page has been told since it was asked last: names and data."""
    return [parsed(notice) for _ in range(waiting(watcher)) if (notice := await watcher.next()) is not None]


def parsed(notice: bytes) -> tuple[str, dict[str, Any]]:
    name, data = notice.decode().removesuffix("\n\n").split("\n")
    return name.removeprefix("event: "), orjson.loads(data.removeprefix("data: "))


class Page:
    """A page's draft of one turn, as the protocol says to keep it."""

    def __init__(self) -> None:
        self.drawn: list[str] = []

    def take(self, name: str, data: dict[str, Any]) -> None:
        if name == "draft":
            assert (data["chat"], data["message"]) == (CHAT, MESSAGE)
            assert data["at"] <= len(self.drawn)
            self.drawn = [*self.drawn[: data["at"]], *data["blocks"]]


TEXTS = (
    "hello ",
    "**bold",
    "** ",
    "\n\n",
    "- item\n",
    "```py\n",
    "x = 1\n",
    "```\n",
    "|a|\n|-|\n",
    "# T\n",
    "> q\n",
    "===\n",
)
paragraphs = st.sampled_from(TEXTS)
grown = st.lists(paragraphs, max_size=8).map(lambda parts: ["".join(parts[:n]) for n in range(1, len(parts) + 1)])


@settings(max_examples=300, deadline=None)
@given(st.lists(grown, min_size=1, max_size=3), st.data())
async def test_whoever_looks_from_whenever_on_sees_the_draft_as_it_is(
    attempts: list[list[str]], data: st.DataObject
) -> None:
    """Drafts that grow, and are taken back between attempts; a second page comes in the middle."""
    texts = [text for attempt in attempts for text in (*attempt, "")]
    comes = data.draw(st.integers(0, len(texts)))
    live, first, second = LiveTurns(), Page(), Page()
    with live.watching() as early:
        for text in texts[:comes]:
            live.show(progress(text))
        with live.watching() as late:
            standing = list(live.state())
            for text in texts[comes:]:
                live.show(progress(text))
            for notice in standing:
                second.take(*parsed(notice))
            for name, event in await news_of(late):
                second.take(name, event)
        for name, event in await news_of(early):
            first.take(name, event)
    assert first.drawn == second.drawn == blocks(texts[-1])


async def test_only_what_has_changed_is_told() -> None:
    live = LiveTurns()
    with live.watching() as page:
        live.show(progress("one\n\ntwo"))
        await news_of(page)
        live.show(progress("one\n\ntwo three"))
        assert await news_of(page) == [
            ("draft", {"chat": CHAT, "message": MESSAGE, "at": 1, "blocks": ["<p>two three</p>\n"]})
        ]
        live.show(progress("one\n\ntwo three"))
        assert await news_of(page) == []


async def test_who_comes_later_sees_what_was_not_drawn_while_nobody_looked() -> None:
    live, page = LiveTurns(), Page()
    live.show(progress("one\n\ntwo"))
    with live.watching() as watcher:
        for notice in live.state():
            page.take(*parsed(notice))
        assert page.drawn == blocks("one\n\ntwo")
        live.show(progress("one\n\ntwo\n\nthree"))
        ((_, event),) = await news_of(watcher)
        assert (event["at"], event["blocks"]) == (2, ["<p>three</p>\n"])


async def test_a_turn_is_told_when_it_begins_uses_a_tool_and_ends() -> None:
    live = LiveTurns()
    running = ToolUse(id="t", name="read", about="a.txt", state="running")
    with live.watching() as page:
        live.show(progress())
        live.show(progress(tools=(running,)))
        assert live.running(CHAT)
        assert not live.running("c_another")
        live.show(progress(tools=(running,), outcome="replied"))
        turns = [event for name, event in await news_of(page) if name == "turn"]
        assert [(turn["running"], turn["outcome"], len(turn["tools"])) for turn in turns] == [
            (True, None, 0),
            (True, None, 1),
            (False, "replied", 1),
        ]
    assert not live.running(CHAT)
    assert list(live.state()) == []
    assert live.tools((CHAT, MESSAGE)) == (running,)
    assert live.tools((CHAT, MESSAGE)) == ()


async def test_turns_that_have_ended_are_forgotten_however_many_there_were() -> None:
    live = LiveTurns()
    live.show(progress("runs on"))
    for number in range(ENDED_MAX * 3):
        live.show(progress(message=f"m_{number}"))
        live.show(progress(message=f"m_{number}", outcome="silent"))
    assert len(live._turns) <= ENDED_MAX + 2
    assert live.running(CHAT)


@pytest.mark.parametrize(("size", "count"), [(1, BACKLOG_MAX), (1_048_576, BACKLOG_BYTES_MAX // 1_048_576)])
async def test_a_page_that_does_not_read_is_let_go_and_what_it_was_owed_is_forgotten(size: int, count: int) -> None:
    live = LiveTurns()
    with live.watching() as slow, live.watching() as quick:
        for number in range(count + 1):
            assert not slow.lost
            live.announce(b"x" * size)
            assert await quick.next() == b"x" * size, number
        assert slow.lost
        assert not quick.lost
        assert waiting(slow) == 1
        assert await slow.next() is None
        live.announce(b"more")
        assert waiting(slow) == 0
        assert await quick.next() == b"more"


async def test_a_page_that_reads_may_be_told_for_ever() -> None:
    page = Watcher()
    for _ in range(3 * BACKLOG_BYTES_MAX // 1_048_576):
        page.tell(b"x" * 1_048_576)
        await page.next()
    assert not page.lost


async def test_a_page_that_went_away_is_forgotten_and_when_it_closes_every_page_is_let_go() -> None:
    live = LiveTurns()
    with live.watching():
        assert live.pages == 1
    assert live.pages == 0
    with live.watching() as page:
        live.close()
        assert page.lost
        assert await page.next() is None
    with live.watching() as late:
        assert late.lost
