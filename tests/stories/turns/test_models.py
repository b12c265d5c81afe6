"""What a person notices of the models behind an agent: mostly nothing, whatever they do."""

import base64
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from agents.messages import Usage
from tests.agents.providers.requests import PIXEL
from tests.emulators.models.chat.emulator import ChatEmulator
from tests.emulators.models.script import Fault, Think, Turn, calls, says
from tests.emulators.models.server import Reply, Script
from tests.loopback import serve_on_loopback
from tests.running import Running, running

TWO_MODELS = """
agents:
  list:
    - id: helper
      model: [anthropic/claude-sonnet-4-6, other/some-model]
      tools: { allow: [read, write, ls] }
"""
OTHER_MODEL = TWO_MODELS.replace("[anthropic/claude-sonnet-4-6, other/some-model]", "other/some-model")
BUSY = Fault(status=529)


@asynccontextmanager
async def two(
    folder: Path,
    *,
    script: Script = (),
    other: Script = (),
    vendor: str = "generic",
    agents: str = TWO_MODELS,
    more: str = "",
) -> AsyncIterator[tuple[Running, ChatEmulator]]:
    """A gateway with a second provider, `other`."""
    folder.mkdir(exist_ok=True)
    emulator = ChatEmulator(other, vendor=vendor)
    async with serve_on_loopback(emulator.app) as url:
        block = f'  other: {{ api: openai-chat, dialect: {vendor}, apiKey: sk-other, baseUrl: "{url}/v1" }}'
        async with running(folder, script=script, agents=agents, providers=block, more=more) as house:
            yield house, emulator


def finals(house: Running) -> list[dict[str, Any]]:
    """The `final` rows of the transcript, oldest first."""
    with sqlite3.connect(house.folder / "data" / "clawgate.db") as database:
        rows = database.execute("SELECT content FROM transcript WHERE kind = 'final' ORDER BY seq").fetchall()
    return [json.loads(content) for (content,) in rows]


async def test_model_fallback_takes_over_for_a_cooldown(
    tmp_path: Path,
) -> None:
    script: list[Reply] = [calls(("write", {"file_path": "a.txt", "content": "one"})), BUSY, BUSY]
    async with two(tmp_path, script=script, other=[says("written, I say"), says("and again")]) as (house, other):
        await house.say("write a file")
        assert await house.replies(1) == ["written, I say"]
        assert (house.workspace() / "a.txt").read_text() == "one"
        before = len(house.anthropic.requests)
        await house.say("once more")
        assert await house.replies(2) == ["written, I say", "and again"]
        assert len(house.anthropic.requests) == before
        assert [received.refusal for received in other.requests] == [None] * 2


async def test_model_answer_cut_by_the_limit_is_continued(
    tmp_path: Path,
) -> None:
    refused = Fault(status=400, message="messages.1.content.0: Invalid `signature` in `thinking` block")
    thinking = Turn(parts=(Think(text="hm"), *calls(("ls", {})).parts))
    halves = [says("The first half of a long st", stop="length"), says("ory, and its end.")]
    async with running(tmp_path, script=[*halves, thinking, refused, says("done")]) as house:
        await house.say("tell me a story")
        assert await house.replies(1) == ["The first half of a long story, and its end."]
        await house.say("look")
        assert (await house.replies(2))[1] == "done"
        *before, stale, healed = house.anthropic.requests
        assert [received.refusal for received in before] == [None] * 3
        kinds = [[block["type"] for block in it.body["messages"][-2]["content"]] for it in (stale, healed)]
        assert kinds == [["thinking", "tool_use"], ["tool_use"]]


async def test_text_call_is_run_and_never_shown(tmp_path: Path) -> None:
    call = '<tool_call>\n{"name": "write", "arguments": {"file_path": "c.txt", "content": "three"}}\n</tool_call>'
    broken = 'Here: <tool_call>{"name": "write", "argu'
    async with two(tmp_path, other=[says(call), says("done"), says(broken), says("sorry")], agents=OTHER_MODEL) as (
        house,
        _,
    ):
        await house.say("write a file")
        assert await house.replies(1) == ["done"]
        assert (house.workspace() / "c.txt").read_text() == "three"
        await house.say("again")
        assert (await house.replies(2))[1].strip() == "Here:"


async def test_usage_of_a_turn_is_stored_and_counted(tmp_path: Path) -> None:
    prices = "models: { anthropic/claude-sonnet-4-6: { prices: { input: 3, cacheRead: 0.3, output: 15 } } }"
    used = Usage(input=1000, cache_read=2000, output=100)
    script = [calls(("ls", {}), usage=used), says("done", usage=used)]
    async with running(tmp_path, script=script, more=prices) as house:
        await house.say("look")
        await house.replies(1)
        await house.idle()
        (final,) = finals(house)
        assert final["requests"] == 2
        assert final["tokens"] == {"input": 2000, "cache_read": 4000, "cache_write": 0, "output": 200, "reasoning": 0}
        assert final["cost"] == 2 * (0.003 + 0.0006 + 0.0015)
        sonnet = 'model="anthropic/claude-sonnet-4-6"'
        assert house.counted(f'clawgate_model_tokens_total{{kind="cache_read",{sonnet}}} 4000.0')
        assert house.counted(f"clawgate_model_requests_total{{{sonnet}}} 2.0")


@pytest.mark.parametrize(
    ("prices", "cost", "shown"),
    [
        ("", 0.0051, "$0.0051"),
        (
            "models: { anthropic/claude-sonnet-4-6: { prices: { input: 30, cacheRead: 3, output: 150 } } }",
            0.051,
            "$0.0510",
        ),
        ("models: { claude-sonnet-4-6: { prices: { output: 1 } } }", 0.0001, "$0.0001"),
        ("models: { claude-sonnet-4-6: { vision: false } }", 0.0051, "$0.0051"),
        ("currency: CNY\nmodels: { claude-sonnet-4-6: { prices: { output: 12340 } } }", 1.234, "¥1.23"),
        ("currency: CHF\nmodels: { claude-sonnet-4-6: { prices: { output: 1 } } }", 0.0001, "0.0001 CHF"),
        ("currency: CNY", None, ""),  # the shipped prices are in dollars, and no sum mixes two
    ],
)
async def test_usage_cost_at_shipped_or_configured_prices(
    tmp_path: Path, prices: str, cost: float | None, shown: str
) -> None:
    script = [says("done", usage=Usage(input=1000, cache_read=2000, output=100))]
    async with running(tmp_path, script=script, more=prices) as house:
        costs = [("look", 0), ("/usage", 2), ("/new", 0), ("/usage", 1)]  # of this conversation, and of today
        for count, (text, places) in enumerate(costs, start=1):
            await house.say(text)
            (*_, answer) = await house.replies(count)
            await house.idle()
            assert answer.count(f", cost {shown}" if shown else "cost") == (places if shown else 0), text
        assert [it["cost"] for it in finals(house) if "cost" in it] == ([] if cost is None else [pytest.approx(cost)])


async def test_usage_is_estimated_when_the_vendor_reports_none(
    tmp_path: Path,
) -> None:
    script: list[Reply] = [says("short", usage=Usage()), Fault(status=500), says("done", usage=Usage(input=1000))]
    async with two(tmp_path, other=script, agents=OTHER_MODEL) as (house, _):
        for number in (1, 2):
            await house.say("hello")
            await house.replies(number)
            await house.idle()
        estimated, counted = finals(house)
        assert estimated["estimated"]
        assert estimated["tokens"]["input"] > 200
        assert "cost" not in estimated
        assert (counted["requests"], counted["tokens"]["input"], "estimated" in counted) == (1, 1000, False)


CALL = '<tool_call>{"name": "write", "arguments": {"file_path": "e.txt", "content": "five"}}</tool_call>'
MUST_CALL = OTHER_MODEL.replace("tools:", "toolChoice: required\n      tools:")


async def test_tool_choice_is_told_in_the_prompt_where_unsupported(tmp_path: Path) -> None:
    agents = MUST_CALL.replace("tools:", "thinking: max\n      tools:")
    async with two(tmp_path, other=[says("hi")], vendor="deepseek", agents=agents) as (house, other):
        await house.say("hello")
        assert await house.replies(1) == ["hi"]
        assert other.requests[0].refusal is None
        assert "tool_choice" not in other.requests[0].body
        assert "Begin with a tool call whenever you are asked" in other.requests[0].body["messages"][0]["content"]


NO_TOOLS = Fault(status=400, message="registry.ollama.ai/library/gemma does not support tools")
IN_WORDS = says("I would write it.")
UNABLE = [
    pytest.param("generic", OTHER_MODEL, NO_TOOLS, id="refuses tools"),
    pytest.param("generic", MUST_CALL, IN_WORDS, id="answers in words although it must call"),
    pytest.param("clawdbot", MUST_CALL.replace("some-model", "house-model"), IN_WORDS, id="another vendor's"),
]


@pytest.mark.parametrize(("vendor", "agents", "first"), UNABLE)
async def test_model_without_tool_calls_gets_tools_by_prompt(
    tmp_path: Path, vendor: str, agents: str, first: Reply
) -> None:
    script = [first, says(CALL), says("by prompt"), says("in words")]
    async with two(tmp_path, other=script, vendor=vendor, agents=agents) as (house, other):
        with capture_logs() as logs:
            await house.say("write a file")
            assert await house.replies(1) == ["by prompt"]
        assert (house.workspace() / "e.txt").read_text() == "five"
        assert [line["event"] for line in logs].count("tools_by_prompt") == 1
        await house.say("and now?")
        assert await house.replies(2) == ["by prompt", "in words"]
        assert ["tools" in received.body for received in other.requests] == [True, False, False, False]
        assert [received.refusal for received in other.requests] == [None] * 4


async def test_tool_choice_required_allows_text_after_a_call(tmp_path: Path) -> None:
    agents = MUST_CALL.replace("some-model", "clawdbot-3.5-tools")
    script = [calls(("read", {})), says("sorry"), says("I need no tool.")]
    async with two(tmp_path, other=script, vendor="clawdbot", agents=agents) as (house, other):
        await house.say("read it")
        await house.replies(1)
        assert json.loads(other.requests[1].body["messages"][-1]["content"]) == {
            "ok": False,
            "error": "Invalid argument: 'file_path' is required",
            "error_code": "INVALID_ARGUMENT",
            "message": "'file_path' is required",
            "retryable": False,
        }
        await house.say("thanks")
        assert await house.replies(2) == ["sorry", "I need no tool."]
        assert ["tools" in received.body for received in other.requests] == [True] * 3


async def test_picture_is_shown_or_described_by_model_ability(tmp_path: Path) -> None:
    script = [calls(("read", {"file_path": "dot.png"})), says("a dot")]
    for model, vendor, seen in (("gpt-4.1", "openai", 1), ("deepseek-v4-pro", "deepseek", 0)):
        agents = OTHER_MODEL.replace("some-model", model)
        async with two(tmp_path / vendor, other=script, vendor=vendor, agents=agents) as (house, other):
            (house.workspace() / "dot.png").write_bytes(base64.b64decode(PIXEL))
            await house.say("what is in dot.png?")
            assert await house.replies(1) == ["a dot"]
            request = json.dumps(other.requests[1].body)
            assert request.count(PIXEL) == seen
            assert ("[image: dot.png]" in request) == (not seen)
            assert other.requests[1].refusal is None
