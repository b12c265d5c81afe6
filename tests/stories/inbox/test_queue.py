"""Messages that arrive while an earlier one is being answered, commands, and messages that come late."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from gateway.config.root import DatabaseConfig
from gateway.store.opening import open_store
from tests.channels.contexts import Clock
from tests.emulators.models.script import calls, says
from tests.running import ALICE, ALICE_CHAT, BOB, BOB_CHAT, GROUP, Running, running
from tests.stories.at_work import NEVER, RUNS, users


async def test_queue_collects_messages_during_a_turn_into_the_next(tmp_path: Path) -> None:
    async with running(tmp_path, script=[says("slow"), says("both")]) as house:
        house.line.hold()
        await house.say("one")
        await house.requested(1)
        for text in ("two", "three"):
            await house.say(text)
        newest = house.feishu.text_event("four", sender=ALICE, chat=ALICE_CHAT)
        await house.push(newest)
        house.line.release()
        assert await house.replies(2) == ["slow", "both"]
        await house.idle()
        assert len(house.anthropic.requests) == 2
        words = "\n".join(users(house.anthropic.requests[1].body))
        assert words.index(": two") < words.index(": three") < words.index(": four")
        assert house.feishu.messages[1].reply_to == newest["event"]["message"]["message_id"]
    store = open_store(DatabaseConfig(url=f"sqlite:///{tmp_path}/data/clawgate.db"))
    assert await store.claim(10) == []
    assert (await store.backlog()).oldest is None
    await store.close()


async def one_is_answered_and_two_waits(house: Running) -> None:
    """The second came during the first one's turn: it waits for the chat to be quiet."""
    house.line.hold()
    await house.say("one")
    await house.requested(1)
    await house.say("two")
    house.line.release()
    await house.replies(1)


async def test_queue_debounce_survives_a_clock_set_back(tmp_path: Path) -> None:
    clock = Clock(time.time())
    async with running(tmp_path, script=[says("slow"), says("next")], now=clock) as house:
        await one_is_answered_and_two_waits(house)
        clock.now -= 3_600
        assert await house.replies(2) == ["slow", "next"]


async def test_queue_mode_followup_is_one_turn_each(tmp_path: Path) -> None:
    agents = "agents: { list: [ { id: helper, model: anthropic/claude-sonnet-4-6, queue: { mode: followup } } ] }"
    async with running(tmp_path, script=lambda body: says(f"re {users(body)[-1].split()[-1]}"), agents=agents) as house:
        house.line.hold()
        for number in range(8):
            await house.say(f"n{number}")
        house.line.release()
        assert await house.replies(8) == [f"re n{number}" for number in range(8)]


async def test_queue_mode_steer_adds_a_message_after_tool_results(tmp_path: Path) -> None:
    wait = ("exec", {"command": "until [ -e go ]; do sleep 0.02; done"})
    more = f"queue: {{ mode: steer }}\n{RUNS}"
    async with running(tmp_path, script=[calls(wait), says("steered"), says("next")], more=more) as house:
        await house.say("start")
        await house.requested(1)
        await house.say("use the other one")
        (house.workspace() / "go").touch()
        assert await house.replies(1) == ["steered"]
        await house.idle()
        last = house.anthropic.requests[1].body["messages"][-1]["content"]
        assert last[0]["type"] == "tool_result"
        assert "use the other one" in last[-1]["text"]
        await house.say("and now")
        assert (await house.replies(2))[1] == "next"
        history = json.dumps(house.anthropic.requests[2].body)
        assert history.count("use the other one") == 1


async def test_queue_mode_interrupt_drops_the_running_answer(tmp_path: Path) -> None:
    async with running(tmp_path, script=[NEVER, says("the newest")], more="queue: { mode: interrupt }") as house:
        await house.say("one")
        await house.requested(1)
        await house.say("no, two")
        assert await house.replies(1) == ["the newest"]
        await house.idle()
        words = "\n".join(users(house.anthropic.requests[1].body))
        assert words.index(": one") < words.index(": no, two")


async def test_queue_mode_interrupt_before_the_turn_answers_both(
    tmp_path: Path,
) -> None:
    more = "queue: { mode: interrupt }\nlimits: { parallelTurns: 1, graceSeconds: 0.1 }"
    async with running(tmp_path, script=[NEVER], more=more) as house:
        await house.say("hello", sender=BOB, chat=BOB_CHAT)
        await house.requested(1)
        await house.say("one")
        await house.say("no, two")
    async with running(tmp_path, emulator=house.feishu, more=more) as house:
        await house.replies(2)
        spoken = [users(request.body)[-1] for request in house.anthropic.requests]
        assert [": one" in words for words in spoken if ": no, two" in words] == [True]


async def test_stop_passes_the_queue_and_ends_the_turn(tmp_path: Path) -> None:
    run = calls(("exec", {"command": f"sleep 60; : {tmp_path}"}))
    async with running(tmp_path, script=[run, says("fresh"), NEVER], more=RUNS) as house:
        await house.say("/stop")
        assert (await house.replies(1))[0].startswith("Nothing is running.")
        await house.say("run it")
        await house.requested(1)
        await house.say("and this")
        await house.say("/stop")
        assert (await house.replies(2))[1].startswith("Stopped.")
        await house.idle()
        await house.say("hello again")
        assert (await house.replies(3))[2] == "fresh"
        words = "\n".join(users(house.anthropic.requests[1].body))
        assert "run it" in words
        assert "and this" not in words
        group: dict[str, Any] = {"chat": GROUP, "chat_type": "group", "mention_bot": True}
        await house.say("think", **group)
        await house.requested(3)
        await house.say("/stop", **group)
        assert (await house.replies(4))[3].startswith("Stopped.")


async def test_stop_spares_messages_written_after_it(tmp_path: Path) -> None:
    clock = Clock(time.time())
    async with running(tmp_path, script=[says("first"), says("third")], now=clock) as house:
        await one_is_answered_and_two_waits(house)
        await house.say("/stop")
        assert "“two”" in (await house.replies(2))[1]
        await house.say("three")
        clock.now += 1  # the chat has been quiet for long enough
        assert (await house.replies(3))[2] == "third"
        words = users(house.anthropic.requests[1].body)[-1]
        assert ("two" in words, "three" in words) == (False, True)


HOURS_AGO = str(int((time.time() - 7200) * 1000))
STALE = [
    ("", HOURS_AGO, ["(Sorry for the delay"], 1),
    ("queue: { stale: answer }", HOURS_AGO, ["here"], 1),
    ("queue: { stale: drop }", HOURS_AGO, [], 0),
    ("queue: { staleAfterSeconds: 90000 }", HOURS_AGO, ["here"], 1),
    ("", "1609073151345", ["here"], 1),  # a recorded sample from years ago
]


@pytest.mark.parametrize(("more", "sent", "begins", "requests"), STALE, ids=map(str, range(len(STALE))))
async def test_stale_message_follows_the_late_policy(
    tmp_path: Path, more: str, sent: str, begins: list[str], requests: int
) -> None:
    async with running(tmp_path, script=[says("here")], more=more) as house:
        event = house.feishu.text_event("hello", sender=ALICE, chat=ALICE_CHAT)
        event["event"]["message"]["create_time"] = sent
        assert (await house.push(event)).status_code == 200
        await house.idle()
        replies = [message.text for message in house.feishu.messages]
        assert [reply[: len(begin)] for reply, begin in zip(replies, begins, strict=True)] == begins
        assert all(reply.endswith("here") for reply in replies)
        assert len(house.anthropic.requests) == requests
