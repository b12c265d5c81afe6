"""The demo as a process: on every platform, for people and for programs."""

import asyncio
import json
import os
from asyncio.subprocess import PIPE
from itertools import cycle

import pytest

from tests import warm
from tests.demo import story
from tests.demo.makers import MAKERS
from tests.demo.platforms import PLATFORMS
from tests.demo.play import play
from tests.demo.show import show

PANELS = ["Request 1 to the model", "Request 4 to the model", "earlier ones", story.SCRIPT_NAME]


async def demo(*arguments: str) -> tuple[int, str, str]:
    process = await warm.start("tests.demo.__main__", *arguments, env=os.environ, stdout=PIPE, stderr=PIPE)
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


@pytest.mark.parametrize(("api", "channel"), list(zip(MAKERS, cycle(PLATFORMS), strict=False)))
async def test_demo_shows_every_wire_on_every_platform(
    api: str, channel: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show(await play(MAKERS[api], PLATFORMS[channel]()), "full")
    panels = capsys.readouterr().out
    assert [text for text in (*PANELS, MAKERS[api].model.partition("/")[2]) if text not in panels] == []
    assert panels.count("You are ") == 1, "a request abridges the system prompt, which has a panel of its own"
    assert "Read a text file" not in panels, "a request names its tools, without schemas"
    assert "That was the real gateway between two emulators." in panels


@pytest.mark.parametrize("channel", PLATFORMS)
async def test_demo_fits_a_screen_and_ends_with_the_reply(channel: str, capsys: pytest.CaptureFixture[str]) -> None:
    layers = await play(platform=PLATFORMS[channel]())
    capsys.readouterr()  # the log
    show(layers, "tale")
    told = capsys.readouterr().out.splitlines()
    assert len(told) <= 30
    assert max(map(len, told)) <= 120
    story_of = [
        "张三",
        story.ASKED,
        "claude-sonnet-4-6",
        "SKILL.md",
        "README.md requirements.txt",
        "Wrote list_files.py",
    ]
    assert [text for text in (*story_of, "• ", "make demo ARGS=--full") if text not in "\n".join(told)] == []
    assert [line for line in told if "`" in line or "{" in line] == [], "rendered, without a mark of Markdown or JSON"


@pytest.mark.slow
async def test_demo_runs_as_a_process() -> None:
    telegram = ("--api", "google-gemini", "--channel", "telegram")
    people, programs, mistaken = await asyncio.gather(demo(*telegram), demo("--json"), demo("--api", "mistrial"))
    assert (people[0], people[2], programs[0], programs[2]) == (0, "", 0, "")
    assert story.SCRIPT_NAME in people[1]
    layers = json.loads(programs[1])["layers"]
    names = [layer["name"] for layer in layers]
    assert names[:6] == ["event", "context", "system_prompt", "user_message", "request", "response"]
    assert names[-1] == "reply"
    assert names.count("request") == names.count("response") == 4
    assert [layer["data"]["name"] for layer in layers if layer["name"] == "tool_call"] == ["read", "ls", "write"]
    assert layers[1]["data"]["text"] == story.ASKED
    assert (mistaken[0], mistaken[1]) == (2, "")
    assert "'mistrial'" in mistaken[2]
