"""A file that is longer than a result: whoever follows the notes has read every line of it, once and in order."""

import random
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agents.messages import Text
from agents.turn import ToolFinished
from tests.demo.makers import by_prompt
from tests.emulators.models.chat.emulator import ChatEmulator
from tests.emulators.models.script import Turn, calls, says
from tests.emulators.models.server import ModelEmulator
from tests.loopback import serve_on_loopback
from tests.running import AGENTS, Running, running

GO_ON = re.compile(r"\n\[lines [^\n]* ([\d,]+) bytes were cut; go on with offset=(-?\d+)\]\Z")
MORE = """
limits: { rounds: 200, toolCalls: 200 }
models: { other/small: { window: 16000, maxOutput: 1000 } }
"""
FALLBACK = "model: [anthropic/claude-sonnet-4-6, other/small]"
WINDOWS = [
    pytest.param("contextWindow: 1024", 1_228, id="1024"),
    pytest.param("contextWindow: 8000", 9_600, id="8k"),
    pytest.param("contextWindow: 32000", 16_000, id="32k"),
    pytest.param("contextWindow: 100000", 32_000, id="100k"),
    pytest.param("contextWindow: 200000", 64_000, id="200k"),
    pytest.param("contextWindow: 1000000", 64_000, id="1M"),
    pytest.param(FALLBACK, 16_000, id="a fallback with a small window"),
    pytest.param("model: other/small", 16_000, id="calls by prompt"),
]


@asynccontextmanager
async def reader(folder: Path, agent: str) -> AsyncIterator[tuple[Running, ModelEmulator]]:
    """A gateway whose agent has this line of config, and the model that answers it."""
    by_name = "model: anthropic/claude-sonnet-4-6"
    agents = AGENTS.replace(by_name, agent if agent.startswith("model") else f"{by_name}\n      {agent}")
    chat = ChatEmulator(vendor="generic")
    async with serve_on_loopback(chat.app) as url:
        block = f'  other: {{ api: openai-chat, toolCalling: prompt, apiKey: x, baseUrl: "{url}/v1" }}'
        async with running(folder, agents=agents, providers=block, more=MORE) as house:
            yield house, chat if agent.startswith("model: other") else house.anthropic


async def read_through(house: Running, model: ModelEmulator) -> list[str]:
    """What the model is shown of `file`, page by page, where it does what the notes say."""
    before = len(house.events)
    spoken: Callable[[Turn], Turn] = by_prompt if isinstance(model, ChatEmulator) else lambda turn: turn

    def pages() -> list[str]:
        results = [event.result for event in house.events[before:] if isinstance(event, ToolFinished)]
        return ["".join(part.text for part in result.content if isinstance(part, Text)) for result in results]

    def answer(body: dict[str, Any]) -> Turn:
        if not (shown := pages()):
            return spoken(calls(("read", {"file_path": "file"})))
        if found := GO_ON.search(shown[-1]):
            return spoken(calls(("read", {"file_path": "file", "offset": int(found[2])})))
        return says("read")

    model.script = answer
    replied = len(house.feishu.messages)
    await house.say("read it")
    await house.replies(replied + 1)
    assert [received.refusal for received in model.requests if received.refusal] == []
    return pages()


def text_of(pages: list[str]) -> str:
    return "".join(GO_ON.sub("", page) for page in pages)


def lines(seed: int, *, chars: int, longest: int) -> str:
    """About so many characters in lines of very different lengths, with what an escape makes longer."""
    source = random.Random(seed)
    made: list[str] = []
    while chars > 0:
        length = source.choice([0, 1, source.randrange(60), source.randrange(longest)])
        made.append("".join(source.choices('ab "\\\t中é😀\r', k=length)))
        chars -= length + 1
    return "\n".join(made) + source.choice(["", "\n"])


@pytest.mark.parametrize(("agent", "limit"), WINDOWS)
async def test_read_tool_paging_shows_every_line_once(tmp_path: Path, agent: str, limit: int) -> None:
    async with reader(tmp_path, agent) as (house, model):
        for seed in range(3 if limit < 16_000 else 1):  # a longer page is no other edge
            text = lines(seed, chars=limit * 4, longest=limit // 4)
            (house.workspace() / "file").write_bytes(text.encode())
            pages = await read_through(house, model)
            assert text_of(pages) == text
            assert max(map(len, pages)) <= limit
            assert len(pages) > 4
            left = len(text.encode())
            for page in pages[:-1]:
                left -= len(GO_ON.sub("", page).encode())
                found = GO_ON.search(page)
                assert found is not None
                assert int(found[1].replace(",", "")) == left
