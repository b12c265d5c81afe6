"""What does not fit into a model's window: it shrinks, and the person gets an answer, or a sentence that says what to do."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.demo.makers import MAKERS, Maker
from tests.emulators.models.dialogue import summary_names
from tests.emulators.models.script import Think, Turn, calls, says
from tests.emulators.models.server import ModelEmulator
from tests.loopback import serve_on_loopback
from tests.running import AGENTS, Running, feishu_emulator, running

ROUNDS = 24
WINDOW = 60_000


def agents(model: str, window: int) -> str:
    return AGENTS.replace("model: anthropic/claude-sonnet-4-6", f"model: {model}\n      contextWindow: {window}")


@asynccontextmanager
async def made_by(
    maker: Maker, folder: Path, script: list[Turn], *, window: int, configured: int | None = None
) -> AsyncIterator[tuple[Running, ModelEmulator]]:
    """A gateway whose agent asks this maker's model, which refuses what is longer than its window."""
    emulator = maker.build(script, "sk-window")
    emulator.window_tokens = window
    async with serve_on_loopback(emulator.app) as url:
        block = "" if maker.model.startswith("anthropic") else f"  {maker.provider_line(url, 'sk-window')}"
        async with running(folder, agents=agents(maker.model, configured or window), providers=block) as house:
            if not block:
                house.anthropic.script, house.anthropic.window_tokens = script, window
                emulator = house.anthropic
            yield house, emulator


def said(body: dict[str, Any]) -> list[str]:
    """The conversation of a request, one JSON text a message, without marks for the cache."""
    messages = next(body[name] for name in ("messages", "contents", "input") if name in body)
    text = json.dumps(messages, ensure_ascii=False).replace(', "cache_control": {"type": "ephemeral"}', "")
    return [json.dumps(message, ensure_ascii=False) for message in json.loads(text)]


LARGE = ("read", {"file_path": "large.txt"})


def large(house: Running) -> None:
    house.workspace().mkdir(parents=True, exist_ok=True)
    (house.workspace() / "large.txt").write_text("one more line of it\n" * 1_500)


def refusals(model: ModelEmulator) -> list[Any]:
    return [received.refusal for received in model.requests if received.refusal]


@pytest.mark.parametrize("api", MAKERS)
async def test_long_turn_of_large_results_keeps_a_stable_beginning(tmp_path: Path, api: str) -> None:
    script = [calls(("read", {"file_path": f"{number}.txt"})) for number in range(ROUNDS)]
    async with made_by(MAKERS[api], tmp_path, [*script, says("all read")], window=WINDOW) as (house, model):
        house.workspace().mkdir(parents=True, exist_ok=True)
        for number in range(ROUNDS):
            (house.workspace() / f"{number}.txt").write_text(f"file {number}\n" + "one more line of it\n" * 1_500)
        await house.say("read them all")
        assert await house.replies(1) == ["all read"]
        assert refusals(model) == []
        requests = [said(received.body) for received in model.requests]
        assert len(requests) == ROUNDS + 1
        changed = [n for n, (one, two) in enumerate(pairwise(requests)) if two[: len(one)] != one]
        assert len(changed) > 2
        assert min(later - earlier for earlier, later in pairwise(changed)) >= 3
        await house.idle()
        model.script = [says("you had me read them")]
        await house.say("what was that?")
        assert (await house.replies(2))[1] == "you had me read them"
        assert refusals(model) == []
        assert f"file {ROUNDS - 1}" in "".join(said(model.requests[-1].body))


async def test_small_context_window_answers_and_explains_a_long_message(tmp_path: Path) -> None:
    async with made_by(MAKERS["anthropic-messages"], tmp_path, [], window=8_192) as (house, model):
        house.anthropic.script = [says("nice"), says("blue"), says("still blue")]
        await house.say("my favourite colour is blue")
        await house.replies(1)
        await house.say("which is it?")
        await house.replies(2)
        assert "my favourite colour" in said(model.requests[1].body)[0]
        await house.say("很长的消息。" * 3_000)
        assert (await house.replies(3))[2] == "这条消息太长，模型读不完。请缩短，或分成几条发送。"
        await house.say("a word " * 2_800)
        assert "several parts" in (await house.replies(4))[3]
        assert len(model.requests) == 2
        await house.say("and now?")
        assert (await house.replies(5))[4] == "still blue"
        assert "my favourite colour" in said(model.requests[2].body)[0]
        assert refusals(model) == []


@pytest.mark.parametrize("model", ["claude-sonnet-4-6", "claude-haiku-4-5", "claude-opus-5-5"])
async def test_long_turn_drops_bound_thinking_with_its_step(tmp_path: Path, model: str) -> None:
    thinking = [Turn(parts=(Think(text=f"hm {n}"), *calls(LARGE).parts)) for n in range(12)]
    agent = agents(f"anthropic/{model}\n      thinking: high", 40_000)
    async with running(tmp_path, script=[*thinking, says("done")], agents=agent) as house:
        house.anthropic.window_tokens = 40_000
        large(house)
        await house.say("read it twelve times")
        assert await house.replies(1) == ["done"]
        assert refusals(house.anthropic) == []
        requests = [said(received.body) for received in house.anthropic.requests]
        stepped = next(n for n, (one, two) in enumerate(pairwise(requests), 1) if two[: len(one)] != one)
        before, behind = "".join(requests[stepped]), "".join(requests[stepped + 1][len(requests[stepped]) :])
        # The one with a budget binds no thinking, and wants that of the whole turn.
        assert before.count('"type": "thinking"') == (stepped if model == "claude-haiku-4-5" else 0)
        assert behind.count('"type": "thinking"') == 1


async def test_long_turn_resumed_elsewhere_builds_the_same_request(tmp_path: Path) -> None:
    script = [calls(LARGE) for _ in range(12)]
    options: dict[str, Any] = {"emulator": feishu_emulator(), "agents": agents("anthropic/claude-sonnet-4-6", WINDOW)}
    async with running(tmp_path, script=script, **options) as house:
        large(house)
        house.line.hold()
        house.anthropic.script = [*script, says("never heard")]
        await house.say("read it twelve times")
        await house.requested(13)
        interrupted = house.anthropic.requests[-1].body
        assert "characters were cut" in json.dumps(interrupted)
        await house.gateway.lanes.drain(0)
    async with running(tmp_path, script=[says("done")], **options) as house:
        assert (await house.replies(1))[-1] == "done"
        assert house.anthropic.requests[0].body == interrupted


@pytest.mark.parametrize("api", ["anthropic-messages", "openai-chat"])
async def test_context_window_smaller_than_configured_costs_one_request(tmp_path: Path, api: str) -> None:
    async with made_by(MAKERS[api], tmp_path, [], window=16_000, configured=30_000) as (house, model):
        model.script = lambda body: says(
            "- much" if summary_names(body) is not None else "answer " + "and so on " * 300
        )
        for number in range(20):
            await house.say(f"question {number} " + "about something " * 200)
            assert (await house.replies(number + 1))[-1].startswith("answer")
        assert 1 <= len(refusals(model)) <= 3
