"""Turns begin one at a time, in the order of asking, and whatever else the event loop has to do comes in between."""

import asyncio

from gateway.runtime import Gate


async def test_one_begins_at_a_time_and_the_loop_goes_on_in_between() -> None:
    gate, events = Gate(), list[str]()

    async def turn(number: int) -> None:
        await gate.enter()
        events.append(f"turn {number}")
        asyncio.get_running_loop().call_soon(events.append, "something else")

    await asyncio.gather(*map(turn, range(5)))
    await asyncio.sleep(0)
    assert [event for event in events if event != "something else"] == [f"turn {number}" for number in range(5)]
    assert events.index("something else") < events.index("turn 2")


async def test_whoever_gives_up_holds_up_nobody() -> None:
    gate = Gate()
    waiting = [asyncio.create_task(gate.enter()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    waiting[1].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert not waiting[2].cancelled()
    await gate.enter()
