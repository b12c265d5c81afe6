"""A failure is told in five places, in the same words: docs/doctor.md has the table, and each of its rows is broken here.

Beside each row stands how it is broken. A row without an injury, or an injury without a row, fails. The same row of the
Chinese page is read where Chinese is: on the page, by the person, and in `status` and `doctor` with `language: zh`.
"""

import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.channels.contexts import Clock
from tests.emulators.models.script import Fault
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.loopback import serve_on_loopback
from tests.running import ALICE, FEISHU, Running, client, feishu_emulator, running
from tests.stories.test_health import ADMIN, ANOTHER, OPERATOR, TOKEN, becomes, tries_often
from tests.stories.test_status import asked, beside, findings
from tests.web_page import opened

pytestmark = pytest.mark.slow  # it asks status and doctor as processes
__all__ = ["tries_often"]

DOCS = Path(__file__).resolve().parents[2] / "docs"
BOSS = 500000011


class Row(NamedTuple):
    failure: str
    state: str
    reason: str
    fix: str


def table(heading: str, page: str = "doctor.md") -> dict[str, Row]:
    """The rows of the table beneath this heading, by their first cell. What stands in backticks is quoted."""
    section = (DOCS / page).read_text(encoding="utf-8").partition(f"\n{heading}\n")[2].partition("\n#")[0]
    lines = [line.strip("| ").split(" | ") for line in re.findall(r"^\|.*", section, re.M)]
    return {cells[0]: Row(cells[0], *(cell.strip("` ") for cell in cells[1:])) for cells in lines[2:]}


CHANNELS = table("### A channel")
MODELS = table("### A model")
CHINESE = dict(
    zip(
        [*CHANNELS, *MODELS],
        [*table("### 渠道", "doctor.zh-CN.md").values(), *table("### 模型", "doctor.zh-CN.md").values()],
        strict=True,
    )
)
"""The rows of the Chinese page, by the failure's English name."""


@dataclass
class Breakage:
    """How one row comes about. `deliveries`: what the platform sends before it shows. `owner` has a channel that works."""

    telegram: str = ""
    app: Callable[[Any], None] = lambda emulator: None
    bot: Callable[[TelegramEmulator], None] = lambda emulator: None
    server: str = ""
    deliveries: int = 0
    owner: str = f"telegram:{BOSS}"
    broken: str = "feishu:default"


def conflict(bot: TelegramEmulator) -> None:
    bot.fail_next("getUpdates", times=10**6, status=409, description="Conflict: terminated by other getUpdates request")


BREAKAGES = {
    "the Feishu app secret is wrong": Breakage(app=lambda it: setattr(it, "app_secret", "another")),
    "the Feishu Encrypt Key is wrong": Breakage(app=lambda it: setattr(it, "encrypt_key", "another"), deliveries=5),
    "nobody answers at `server.publicUrl`": Breakage(server=', publicUrl: "http://127.0.0.1:1"'),
    "the Telegram token is unknown": Breakage(
        bot=lambda it: setattr(it, "token", ANOTHER), owner=f"feishu:{ALICE}", broken="telegram:default"
    ),
    "Telegram is out of reach": Breakage(
        telegram="http://127.0.0.1:1", owner=f"feishu:{ALICE}", broken="telegram:default"
    ),
    "two gateways poll with one token": Breakage(bot=conflict, owner=f"feishu:{ALICE}", broken="telegram:default"),
}
REFUSALS = {
    "the key is refused": Fault(status=401),
    "no money is left": Fault(status=402),
    "there is no such model": Fault(status=404),
    "the vendor is overloaded": Fault(status=529, type="overloaded_error"),
}


def in_chinese(command: str, other: str) -> pytest.MarkDecorator:
    """The command that prints in Chinese while the other one tells it in English; the other way round takes long."""
    return pytest.mark.parametrize("chinese", [command, pytest.param(other, marks=pytest.mark.long)])


async def printed_in_chinese(command: str, file: Path) -> tuple[int, str]:
    file.write_text(f"language: zh\n{file.read_text(encoding='utf-8')}", encoding="utf-8")
    return await asked(command, "--config", str(file))


@asynccontextmanager
async def house_with(folder: Path, it: Breakage, clock: Clock) -> AsyncIterator[tuple[Running, TelegramEmulator]]:
    feishu, bot = feishu_emulator(), TelegramEmulator()
    right = bot.token
    bot.private(BOSS)
    it.app(feishu)
    it.bot(bot)
    async with AsyncExitStack() as stack:
        url = it.telegram or await stack.enter_async_context(serve_on_loopback(bot.app))
        section = f'{FEISHU}  telegram: {{ botToken: "{right}", apiRoot: "{url}" }}\n  web: {{}}\n'
        more = f'server: {{ adminToken: {TOKEN}{it.server} }}\nowners: ["{it.owner}"]'
        house = await stack.enter_async_context(running(folder, emulator=feishu, feishu=section, more=more, now=clock))
        yield house, bot


@in_chinese("status", "doctor")
@pytest.mark.parametrize("failure", sorted(CHANNELS.keys() | BREAKAGES.keys()))
async def test_what_breaks_a_channel_is_said_in_five_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: str, chinese: str
) -> None:
    monkeypatch.setattr("gateway.app.health.FIRST_REACH_SECONDS", 0.05)
    row, it, clock = CHANNELS[failure], BREAKAGES[failure], Clock(time.time())
    zh = CHINESE[failure]
    assert zh.state == row.state

    def says_it(where: str, row: Row = row) -> None:
        assert row.reason in where, where
        assert row.fix in where, where

    async with house_with(tmp_path, it, clock) as (house, bot):
        for _ in range(it.deliveries):
            assert (await house.say("hello")).status_code == 401
        state = await becomes(house, row.state, it.broken)
        says_it(f"{state['reason']} {state['fix']}")
        for command in ("status", "doctor"):
            if command == chinese:
                code, text = await printed_in_chinese(command, beside(house))
                says_it(text, zh)
            else:
                code, found = await findings(command, beside(house))
                (bad,) = [it_ for it_ in found if it_["check"] == "channels" and it_["status"] == "error"]
                says_it(f"{bad['message']} {bad['fix']}")
            assert code == 1
        async with opened(house.url, authorization=f"Bearer {TOKEN}") as page:
            await page.until(lambda: page.named("fault"))
            (shown,) = page.named("fault")[-1]["channels"]
            says_it(f"{shown['reason']['en']} {shown['fix']['en']}")
            says_it(f"{shown['reason']['zh']} {shown['fix']['zh']}", zh)
        clock.now += 60
        messages = house.feishu.messages if it.owner.startswith("feishu") else bot.messages
        await house.until(lambda: messages)
        says_it(messages[0].text)


@in_chinese("doctor", "status")
@pytest.mark.parametrize("failure", sorted(MODELS.keys() | REFUSALS.keys()))
async def test_what_a_model_refuses_is_said_in_five_places(tmp_path: Path, failure: str, chinese: str) -> None:
    row, zh, fault = MODELS[failure], CHINESE[failure], REFUSALS[failure]
    more = f'{ADMIN}\nowners: ["feishu:{ALICE}"]\nretry: {{ maxSeconds: 0.1 }}'
    async with running(tmp_path, feishu=f"{FEISHU}  web: {{}}\n", more=more, script=lambda _: fault) as house:
        await house.say("hello")
        (told,) = await house.replies(1)
        assert row.reason in told
        assert "whoever runs" not in told  # that is the owner
        async with client(house.url, headers=OPERATOR) as http:
            ready = await http.get("/readyz")
        assert (ready.status_code, ready.json()["failingModels"]) == (200, {"anthropic/claude-sonnet-4-6": row.state})
        for command in ("status", "doctor"):
            if command == chinese:
                code, text = await printed_in_chinese(command, beside(house))
                assert (zh.state == row.state, zh.state in text, zh.fix in text) == (True, True, True), text
            else:
                code, found = await findings(command, beside(house))
                (bad,) = [it for it in found if it["check"] == "model" and it["status"] == "error"]
                assert (row.state in bad["message"], row.fix in bad["fix"]) == (True, True), bad
            assert code == 1
        async with opened(house.url, authorization=f"Bearer {TOKEN}") as page:
            await page.say("hello")
            (shown,) = await page.answers(1)
            assert row.reason in shown
        await house.say("你好，请帮我")
        assert zh.reason in (await house.replies(2))[1]
