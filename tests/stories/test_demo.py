"""The demo as a process: on every platform, for people and for programs."""

import asyncio
import json
import sys
from itertools import cycle
from pathlib import Path

import pytest

from tests.demo import story
from tests.demo.makers import MAKERS
from tests.demo.platforms import PLATFORMS

ROOT = Path(__file__).resolve().parents[2]
PANELS = ["Request 1 to the model", "Request 4 to the model", "earlier ones", story.SCRIPT_NAME]


async def demo(*arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.demo", *arguments,
        cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


@pytest.mark.slow
async def test_the_demo_shows_layer_by_layer_what_happens_to_a_message() -> None:
    programs, mistaken, *people = await asyncio.gather(
        demo("--json"),
        demo("--api", "mistrial"),
        *(demo("--api", api, "--channel", channel) for api, channel in zip(MAKERS, cycle(PLATFORMS), strict=False)),
    )
    for maker, (code, output, errors) in zip(MAKERS.values(), people, strict=True):
        assert (code, errors) == (0, "")
        assert [text for text in (*PANELS, maker.model.partition("/")[2]) if text not in output] == []
        assert output.count("You are ") == 1, "a request abridges the system prompt, which has a panel of its own"
        assert "Read a text file" not in output, "a request names its tools, without schemas"
        assert "That was the real gateway between two emulators." in output
    assert (programs[0], programs[2]) == (0, "")
    layers = json.loads(programs[1])["layers"]
    names = [layer["name"] for layer in layers]
    assert names[:6] == ["event", "context", "system_prompt", "user_message", "request", "response"]
    assert names[-1] == "reply"
    assert names.count("request") == names.count("response") == 4
    assert [layer["data"]["name"] for layer in layers if layer["name"] == "tool_call"] == ["read", "ls", "write"]
    context = layers[1]["data"]
    assert (context["channel"], context["text"], context["sender"]["name"]) == (
        "feishu",
        story.ASKED,
        story.SENDER_NAME,
    )
    assert (mistaken[0], mistaken[1]) == (2, "")
    assert "'mistrial'" in mistaken[2]
