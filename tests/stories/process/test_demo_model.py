"""The product without any key: the scripted model that ships really works with the agent's tools, and says what it is."""

from pathlib import Path

import pytest

from tests.channels.contexts import Clock
from tests.running import AGENTS, running
from tests.stories.approvals.test_approvals import ASKS, asked, shows
from tests.stories.channels.test_telegram import PUBLIC, bot
from tests.stories.later.test_schedules import ANYTIME, BEGIN, settled

GUIDED = AGENTS.replace("anthropic/claude-sonnet-4-6", "demo/guide")


async def test_demo_model_writes_a_file_and_says_it_is_a_script(tmp_path: Path) -> None:
    async with running(tmp_path, agents=GUIDED) as house:
        for number, text in enumerate(
            ("帮我写一个 Python 脚本，列出所有文件", "write me a python script that lists files")
        ):
            before = {*house.workspace().iterdir()}
            await house.say(text)
            *_, reply, _ = await house.replies(2 * (number + 1))  # the script itself comes behind the text
            assert "demo/guide" in reply
            assert "ANTHROPIC_API_KEY" in reply
            (script,) = {*house.workspace().iterdir()} - before
            assert script.name in reply
            assert script.read_text(encoding="utf-8").startswith("#!")
            compile(script.read_text(encoding="utf-8"), script.name, "exec")
        assert house.anthropic.requests == []


@pytest.mark.parametrize(
    ("question", "printed", "waits", "end"),
    [
        ("What can you do for me?", "> Hello! I ran on your own machine", "allow it", "That was the tour"),
        ("你能帮我做什么？", "> 你好！我在你自己的机器上运行", "请看清请求并批准", "演示到此结束"),
    ],
)
async def test_demo_model_tour_runs_a_file_after_an_approval(
    tmp_path: Path, question: str, printed: str, waits: str, end: str
) -> None:
    async with running(tmp_path, agents=GUIDED, more=ASKS) as house:
        id_ = await asked(house, question)
        script = house.workspace() / "clawgate_tour.sh"
        assert script.read_text(encoding="utf-8").startswith("#!/bin/sh")
        before = "\n".join(it.text for it in house.feishu.messages)
        assert [word for word in (waits, "demo/guide") if word not in before] == []
        assert [word for word in (printed, end, "ANTHROPIC_API_KEY") if word in before] == []
        await house.say(f"/approve {id_} allow-once")
        shown = await shows(house, end)
        (last,) = [it for it in shown if end in it]
        assert printed in last
        assert "ANTHROPIC_API_KEY" in last
        assert house.anthropic.requests == []


async def test_demo_model_tour_on_telegram_by_a_button(tmp_path: Path) -> None:
    more = f"{PUBLIC}\napprovals: {{ approvers: ['telegram:500000011'] }}"
    async with bot(tmp_path, "webhook", more=more, agents=GUIDED) as it:
        alice = it.telegram.private(500000011)
        await it.happens(it.telegram.text_update("What can you do for me?", chat=alice))
        await it.house.until(lambda: any(sent.reply_markup for sent in it.telegram.messages))
        (request,) = [sent for sent in it.telegram.messages if sent.reply_markup]
        assert request.reply_markup is not None
        first = request.reply_markup["inline_keyboard"][0][0]["callback_data"]
        await it.happens(it.telegram.press_update(request.message_id, first, chat=alice, sender=alice))
        await it.house.until(lambda: any("That was the tour" in sent.text for sent in it.telegram.messages))
        (last,) = [sent for sent in it.telegram.messages if "That was the tour" in sent.text]
        assert "Hello! I ran on your own machine" in last.text
        assert "blockquote" in {entity["type"] for entity in last.entities}


async def test_demo_model_denied_says_that_nothing_ran(tmp_path: Path) -> None:
    async with running(tmp_path, agents=GUIDED, more=ASKS) as house:
        id_ = await asked(house, "What can you do for me?")
        await house.say(f"/approve {id_} deny")
        shown = await shows(house, "It was denied, so nothing ran")
        assert not any("> Hello!" in it for it in shown)


@pytest.mark.parametrize(
    ("asks", "tries", "comes"),
    [
        (
            ("What can you do for me?", "Remind me in 2 minutes to stretch"),
            "Remind me in one minute to stretch",
            "You asked me: Remind me in 2 minutes to stretch",
        ),
        (("你能帮我做什么？", "2分钟后提醒我活动一下"), "一分钟后提醒我", "你让我提醒：2分钟后提醒我活动一下"),
    ],
)
async def test_demo_model_sets_a_real_reminder(tmp_path: Path, asks: tuple[str, str], tries: str, comes: str) -> None:
    clock = Clock(BEGIN)
    agents = GUIDED.replace("exec, message", "schedule")
    async with running(tmp_path, agents=agents, feishu=ANYTIME, now=clock) as house:
        await house.say(asks[0])
        assert tries in (await house.replies(1))[0]
        await house.say(asks[1])
        assert "R-" in (await house.replies(2))[1]
        await house.idle()
        clock.now += 119
        house.gateway.wake()
        assert len(await settled(house, 2)) == 2
        clock.now += 2
        house.gateway.wake()
        assert (await house.replies(3))[2] == comes
