"""Each capability of README's "Why this one", through the door, with config.yaml as it ships: only addresses are added.

A bullet that no row of `PROMISES` knows fails, and so does a row without a bullet: whoever changes the list adds a row.
"""

import asyncio
import re
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gateway.cli import app
from tests.channels.contexts import Clock
from tests.emulators.models.anthropic.emulator import AnthropicEmulator
from tests.emulators.models.script import Fault, calls, says
from tests.loopback import serve_on_loopback
from tests.running import ALICE_CHAT, APP_ID, BOB, BOB_CHAT, SECRETS, Running, feishu_emulator, running
from tests.stories.approvals.test_approvals import asked
from tests.stories.at_work import NEVER, results, text_of, users
from tests.stories.channels.test_documents import document
from tests.stories.inbox.test_claims import code_of
from tests.stories.process.test_process import ROOT, started
from tests.stories.tools import test_feishu as as_the_person
from tests.stories.turns import test_handover
from tests.waiting import until
from tests.web_page import opened

BEGIN = 1_800_000_000.0  # Fri 2027-01-15 08:00 UTC
BOBS: dict[str, Any] = {"sender": BOB, "chat": BOB_CHAT}


def shipped(*, feishu_url: str = "", anthropic_url: str) -> str:
    """The shipped config between the emulators; no clock of a platform is that of a test."""
    text = (ROOT / "config.yaml").read_text(encoding="utf-8")
    places = {"https://api.anthropic.com": anthropic_url, "${CLAWGATE_PORT:-8080}": "0"}
    if feishu_url:
        added = "mode: webhook\n    streaming: off\n    timestampWindowSeconds: null\n    #"
        places |= {
            "${FEISHU_APP_ID:-}": APP_ID,
            "mode: auto  ": added,
            "${FEISHU_BASE_URL:-https://open.feishu.cn}": feishu_url,
        }
    for written, now in places.items():
        assert text.count(written) == 1, written
        text = text.replace(written, now)
    return text


def bot(folder: Path, **more: Any) -> Any:
    return running(folder, write=shipped, **more)


async def owned(house: Running) -> None:
    """Alice has claimed the bot."""
    await house.say(f"/claim {await code_of(house)}")
    assert (await house.replies(1))[0].startswith("This bot is yours")
    await house.idle()


async def answered_after_a_kill(folder: Path) -> None:
    anthropic = AnthropicEmulator([NEVER], api_key=SECRETS["ANTHROPIC_API_KEY"])
    async with serve_on_loopback(anthropic.app) as url:
        config = folder / "config.yaml"
        config.write_text(shipped(anthropic_url=url), encoding="utf-8")
        env = {"ANTHROPIC_API_KEY": SECRETS["ANTHROPIC_API_KEY"]}
        async with started(config, env) as run, opened(run.url) as page:
            assert (await page.say("hello", agent="assistant")).status_code == 200
            await until(lambda: anthropic.requests)
            await run.end(signal.SIGKILL)
        anthropic.script = [says("still here")]
        async with started(config, env) as run, opened(run.url) as page:
            assert await page.answers(1) == ["still here"]
        assert len(anthropic.requests) == 2


async def failure_is_a_sentence(folder: Path) -> None:
    async with bot(folder, script=[Fault(status=401, type="authentication_error", message="no")]) as house:
        await owned(house)
        await house.say("你好")
        reply = (await house.replies(2))[1]
        assert re.search("[一-龥]{4}", reply)
        assert "{" not in reply


async def claimed_and_lets_people_in(folder: Path) -> None:
    async with bot(folder, script=[says("hello Bob")]) as house:
        await owned(house)
        await house.say("let me in", **BOBS)
        await house.replies(3)  # his code, and the owner's notice
        await house.say(f"/pair feishu:{BOB}")
        await house.replies(4)
        await house.idle()
        assert house.anthropic.requests == [], "nothing of a stranger reaches a model"
        await house.say("hello", **BOBS)
        await until(lambda: "hello Bob" in house.feishu.shown(BOB_CHAT))


async def commands_run_once_approved(folder: Path) -> None:
    run = ("exec", {"command": "echo ran >> ran.txt"})
    async with bot(folder, script=[calls(run), says("it waits"), says("it ran")]) as house:
        await owned(house)
        id_ = await asked(house)
        file = house.workspace("assistant") / "ran.txt"
        assert not file.exists()
        await house.say(f"/approve {id_} allow-once")
        await until(lambda: "it ran" in house.feishu.shown(ALICE_CHAT))
        assert file.read_text() == "ran\n"


async def each_person_has_their_own(folder: Path) -> None:
    """Bob's note reaches his own requests and nobody else's, and what he took is counted as his."""
    async with bot(folder, script=[says("hello")] * 4) as house:
        await owned(house)
        await house.say("let me in", **BOBS)
        await house.replies(3)
        await house.say(f"/pair feishu:{BOB}")
        await house.replies(4)
        await house.say("/remember I collect teapots", **BOBS)
        await house.idle()
        for asker in (BOBS, {}):
            await house.say("hello", **asker)
            await house.idle()
        bobs, owners = (str(request.body) for request in house.anthropic.requests)
        assert "teapots" in bobs
        assert "teapots" not in owners
        await house.say("/usage", **BOBS)
        await until(lambda: any("1 turn" in it or "tokens" in it for it in house.feishu.shown(BOB_CHAT)))


async def documents_are_read(folder: Path) -> None:
    async with bot(folder, script=[says("I have it")]) as house, opened(house.url) as page:
        kept = (await page.upload(document("report.pdf"), "report.pdf")).json()
        await page.say("what is on page 2?", agent="assistant", files=[kept["id"]])
        await page.answers(1)
        (path,) = house.uploads()
        house.anthropic.script = [calls(("read", {"file_path": path, "page": "2"})), says("It begins there.")]
        await page.say("read it", agent="assistant")
        await page.answers(2)
        assert "The second page begins here" in results(house.anthropic.requests[-1].body)[0]


async def console_shows_each_turn(folder: Path) -> None:
    async with bot(folder, script=[says("hello")]) as house, opened(house.url) as page:
        await page.say("hello", agent="assistant")
        await page.answers(1)
        await house.idle()
        assert (await page.http.get("/console")).status_code == 200
        (turn,) = (await page.http.get("/api/turns")).json()["turns"]
        assert "hello" in str((await page.http.get(f"/api/turns/{turn['id']}")).json())


async def work_goes_on(folder: Path) -> None:
    """A task, a reminder and a command in the background, each asked for in words; the model is told the time in between."""
    clock = Clock(BEGIN)
    asks: dict[str, tuple[str, dict[str, Any]]] = {
        "compare": ("task", {"action": "start", "title": "Offers", "prompt": "compare the offers"}),
        "remind": ("schedule", {"action": "create", "at": "2027-01-15T09:30", "say": "Call Bob"}),
        "run": ("process", {"action": "start", "command": "echo built", "notify": True}),
    }

    def model(body: dict[str, Any]) -> Any:
        (*_, last) = users(body)
        if text_of(body["messages"][-1]) == "":
            return says("I am on it")
        word = last.rpartition(" ")[2].strip()
        return calls(asks[word]) if word in asks and "This is the task" not in last else says("Offer B is best")

    async with bot(folder, script=model, now=clock) as house:
        await owned(house)

        async def comes(text: str) -> None:
            await until(lambda: any(text in it for it in house.feishu.shown(ALICE_CHAT)))
            await house.idle()

        await house.say("please compare")
        await comes("Offer B is best")
        report = next(it for it in house.feishu.messages if "Offer B is best" in it.text)
        assert report.reply_to, "as a reply"
        await house.say("please remind")
        await house.idle()
        clock.now += 5_400
        house.gateway.wake()
        await comes("Call Bob")
        id_ = await asked(house, "please run")
        await house.say(f"/approve {id_} allow-once")
        await comes("`echo built`, has ended")


async def mistake_is_one_line(folder: Path) -> None:
    config = folder / "config.yaml"
    config.write_text(shipped(anthropic_url="http://127.0.0.1:1").replace("  list:\n", "  lst:\n"), encoding="utf-8")
    result = await asyncio.to_thread(CliRunner().invoke, app, ["check", "--config", str(config)])
    assert result.exit_code == 1
    (line,) = [it for it in result.output.splitlines() if "lst" in it]
    assert re.search(r"config\.yaml:\d+:\d+: agents\.lst: .*did you mean \"list\"", line)


async def asks_instead_of_guessing(folder: Path) -> None:
    """A question with choices waits over a restart, and the work continues with the answer."""

    def model(body: dict[str, Any]) -> Any:
        if "Tuesday" in str(body["messages"][-1]):
            return says("Tuesday it is")
        return calls(("ask", {"question": "Which day?", "options": ["Monday", "Tuesday"]}))

    feishu = feishu_emulator()
    async with bot(folder, script=model, emulator=feishu) as house:
        await owned(house)
        await house.say("plan the review")
        await until(lambda: any("Which day?" in it.text for it in feishu.messages))
        await house.idle()
    async with bot(folder, script=model, emulator=feishu) as house:
        await house.say("2")
        await until(lambda: any("Tuesday it is" in it.text for it in feishu.messages))


PROMISES: dict[str, Callable[[Path], Awaitable[None]]] = {
    r"reliability\.md": answered_after_a_kill,
    r"Never silent|outage|failure": failure_is_a_sentence,
    r"`/claim`": claimed_and_lets_people_in,
    r"security\.md": commands_run_once_approved,
    r"memory\.md": each_person_has_their_own,
    r"documents\.md": documents_are_read,
    r"console\.md": console_shows_each_turn,
    r"tasks\.md|later\.md": work_goes_on,
    r"asks instead of guessing": asks_instead_of_guessing,
    r"handover\.md": test_handover.test_handover_relays_both_ways_and_the_agent_remembers,
    r"feishu-as-the-person\.md": as_the_person.test_feishu_reads_with_the_rights_of_the_one_who_asks,
    r"mistake in `config\.yaml`": mistake_is_one_line,
}
"""A pattern that the bullet has, such as the page that it links, and what it promises."""


def bullets(page: str) -> list[str]:
    section = (ROOT / page).read_text(encoding="utf-8").split("\n## ")[1]
    return [" ".join(it.split()) for it in re.split(r"^\* ", section, flags=re.MULTILINE)[1:]]


def test_each_promise_of_the_readme_has_a_row_here() -> None:
    promised = bullets("README.md")
    assert [it for it in promised if not any(re.search(row, it) for row in PROMISES)] == []
    assert [row for row in PROMISES if not any(re.search(row, it) for it in promised)] == []
    assert len(bullets("README.zh-CN.md")) == len(promised)


@pytest.mark.slow
@pytest.mark.parametrize("promise", PROMISES.values(), ids=lambda it: it.__name__)
async def test_the_shipped_config_keeps_the_promise(tmp_path: Path, promise: Callable[[Path], Awaitable[None]]) -> None:
    await promise(tmp_path)
