"""A call that something cut short: the model reads that it may have run, whatever cut it short."""

import json
import signal
from pathlib import Path
from typing import Any

from tests.emulators.models.script import calls, says
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.running import Running, feishu_emulator, running
from tests.stories.at_work import RUNS, results
from tests.stories.channels.test_telegram import bot
from tests.stories.process.test_process import polled, started
from tests.waiting import until

SLOW = ("exec", {"command": "echo ran >> ran.txt; sleep 60"})
NEXT = ("exec", {"command": "echo next >> ran.txt"})


def errors(house: Running) -> list[dict[str, Any]]:
    """The error bodies of the tool results in the last request."""
    return [json.loads(text) for text in results(house.anthropic.requests[-1].body) if text.startswith("{")]


async def test_interrupted_command_may_have_run_and_the_next_call_did_not(tmp_path: Path) -> None:
    async with running(tmp_path, script=[calls(SLOW, NEXT), says("I see")], more=RUNS) as house:
        await house.say("run them")
        await house.until((house.workspace() / "ran.txt").exists)
        await house.say("/stop")
        await house.replies(1)
        await house.idle()
        await house.say("what happened?")
        assert (await house.replies(2))[1] == "I see"
        first, second = errors(house)
        assert (first["error_code"], first["retryable"]) == ("INTERRUPTED", False)
        assert "may have run" in first["message"]
        assert (second["error_code"], second["retryable"]) == ("INTERRUPTED", True)
        assert "was not run" in second["message"]
        assert (house.workspace() / "ran.txt").read_text() == "ran\n"


SEND = ("message", {"action": "send", "message": "by the way"})


async def test_ambiguous_send_of_a_tool_is_not_retried_where_seen_twice(tmp_path: Path) -> None:
    async with bot(tmp_path, "polling", script=[calls(SEND), says("it may be there")]) as it:
        it.telegram.fail_next("sendMessage", lose_answer=True)
        await it.happens(it.telegram.text_update("write", chat=it.telegram.private()))
        assert [sent.text for sent in await it.replies(2)] == ["by the way", "it may be there"]
        (result,) = errors(it.house)
        assert (result["error_code"], result["retryable"]) == ("NOT_DELIVERED", False)
        assert "may have arrived" in result["message"]


async def test_ambiguous_send_is_retried_where_the_platform_dedupes(
    tmp_path: Path,
) -> None:
    feishu = feishu_emulator()
    long = ("message", {"action": "send", "message": "word " * 12_000})
    script = [calls(SEND), says("sent"), calls(SEND), says("it may be there"), calls(long), says("half of it")]
    async with running(tmp_path, script=script, emulator=feishu) as house:
        feishu.fail_next("/im/v1/messages", lose_answer=True, times=1)
        await house.say("write")
        assert await house.replies(2) == ["by the way", "sent"]
        assert errors(house) == []
        feishu.fail_next("/im/v1/messages", lose_answer=True, times=3)
        await house.say("write")
        assert (await house.replies(4))[2:] == ["by the way", "it may be there"]
        assert errors(house)[-1]["retryable"] is False
        await house.idle()
        await house.say("write")
        await house.replies(5)
        feishu.fail_next("/im/v1/messages", code=230002)
        await house.requested(6)
        result = errors(house)[-1]
        assert (result["error_code"], result["retryable"]) == ("NOT_DELIVERED", False)
        assert "were sent" in result["message"]


async def test_ambiguous_send_after_a_kill_is_not_repeated(tmp_path: Path) -> None:
    telegram = TelegramEmulator()
    async with polled(tmp_path, telegram) as (anthropic, config):
        anthropic.script = [calls(SEND)]
        telegram.fail_next("sendMessage", status=429, description="Too Many Requests", parameters={"retry_after": 4})
        async with started(config) as run:
            await telegram.push(telegram.text_update("write", chat=telegram.private()))
            await until(lambda: any(request.method == "sendMessage" for request in telegram.requests))
            await run.end(signal.SIGKILL)
        anthropic.script = [says("perhaps")]
        async with started(config):
            assert [sent.text for sent in await telegram.sent(1)] == ["perhaps"]
        last = json.dumps(anthropic.requests[-1].body["messages"])
        assert "INTERRUPTED" in last
        assert "may have arrived" in last
