"""Messages as the pages are given them: each is loaded and rendered once, whoever asks, and not all are kept."""

import asyncio
from collections.abc import Sequence

import orjson

from channels.web.archive import MessageBody, Sized, WebMessage
from channels.web.views import PAGE_BYTES_MAX, RENDERED_BYTES_MAX, Renderings, fitting


class Memory:
    """The one method of `Archive` that is needed; `loads` are the numbers that were asked for, each time."""

    def __init__(self, *texts: str) -> None:
        self.texts = dict(enumerate(texts, 1))
        self.loads: list[list[int]] = []

    async def messages(self, numbers: Sequence[int]) -> Sequence[WebMessage]:
        self.loads.append(list(numbers))
        await asyncio.sleep(0)
        return [self._message(number) for number in sorted(numbers) if number in self.texts]

    def _message(self, number: int) -> WebMessage:
        words = MessageBody(text=self.texts[number], agent="helper")
        return WebMessage(number=number, chat="c_one", author="agent", key=str(number), words=words, at=1.0)


def renderings(memory: Memory) -> Renderings:
    return Renderings(memory)  # type: ignore[arg-type]


async def test_fifty_pages_that_ask_at_once_cost_one_rendering() -> None:
    memory = Memory("**one**", "two")
    shared = renderings(memory)
    answers = await asyncio.gather(*(shared.of([1, 2]) for _ in range(50)))
    assert memory.loads == [[1, 2]]
    assert {it.number: orjson.loads(it.json)["html"] for it in answers[-1]} == {
        1: "<p><strong>one</strong></p>\n",
        2: "<p>two</p>\n",
    }
    assert all(one is other for one, other in zip(answers[0], answers[-1], strict=True))
    await shared.of([2, 3])
    assert memory.loads[1:] == [[3]]


async def test_what_is_gone_is_left_out_and_the_order_is_the_askers() -> None:
    shared = renderings(Memory("one", "two"))
    assert [it.number for it in await shared.of([9, 2, 1])] == [2, 1]


async def test_no_more_is_kept_than_may_be_and_whoever_asks_gets_it_all_the_same() -> None:
    half = "x" * (RENDERED_BYTES_MAX // 4)
    memory = Memory(*[half] * 4)
    shared = renderings(memory)
    assert len(await shared.of([1, 2, 3, 4])) == 4
    assert sum(len(it.json) for it in shared._kept.values()) == shared._bytes <= RENDERED_BYTES_MAX
    await shared.of([4])
    await shared.of([1])
    assert memory.loads == [[1, 2, 3, 4], [1]]


def test_a_page_holds_what_fits_and_always_something() -> None:
    def numbers(*sizes: int) -> list[int]:
        return fitting([Sized(number=number, bytes=size) for number, size in enumerate(sizes)])

    assert numbers() == []
    assert numbers(10, 20) == [0, 1]
    assert numbers(PAGE_BYTES_MAX, 1) == [0]
    assert numbers(PAGE_BYTES_MAX + 1, 1) == [0]
    assert numbers(1, PAGE_BYTES_MAX) == [0]
    assert numbers(1, PAGE_BYTES_MAX - 1) == [0, 1]
