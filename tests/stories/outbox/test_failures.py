"""A failure is told in every place, in the same words: docs/doctor.md has the tables, and each of their rows is broken here.

Beside each row stands how it is broken. A row without an injury, or an injury without a row, fails. The same row of the
Chinese page is read where Chinese is: on the page, by the person, and in `status` and `doctor` with `language: zh`.
"""

import re
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gateway.store.errors import StoreUnavailable
from tests.channels.contexts import Clock
from tests.emulators.models.script import Fault, says
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.loopback import serve_on_loopback
from tests.postgres import postgres_server
from tests.running import ALICE, ALICE_CHAT, FEISHU, SECRETS, Running, client, feishu_emulator, running
from tests.stories.operate.test_health import ADMIN, ANOTHER, OPERATOR, TOKEN, becomes, tries_often
from tests.stories.operate.test_status import asked, beside, findings
from tests.stories.process.test_process import ask
from tests.stories.store.test_storage import fill, push_until_taken, small_disk
from tests.web_page import opened

pytestmark = pytest.mark.slow  # it asks status and doctor as processes
__all__ = ["tries_often"]

DOCS = Path(__file__).resolve().parents[3] / "docs"
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
DATABASES = table("### The database")
CHINESE = dict(
    zip(
        [*CHANNELS, *MODELS, *DATABASES],
        [row for heading in ("渠道", "模型", "数据库") for row in table(f"### {heading}", "doctor.zh-CN.md").values()],
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
    "the rate limit is reached": Fault(status=429, type="rate_limit_error"),
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
async def test_failure_of_a_channel_is_told_in_five_places(
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
async def test_failure_of_a_model_is_told_in_five_places(tmp_path: Path, failure: str, chinese: str) -> None:
    row, zh, fault = MODELS[failure], CHINESE[failure], REFUSALS[failure]
    more = f'{ADMIN}\nowners: ["feishu:{ALICE}"]\nretry: {{ maxSeconds: 0.1 }}'
    async with running(tmp_path, feishu=f"{FEISHU}  web: {{}}\n", more=more, script=lambda _: fault) as house:
        await house.say("hello")
        (told,) = await house.replies(1)
        assert row.reason in told
        assert "the bot's owner" not in told  # that is the owner
        async with client(house.url, headers=OPERATOR) as http:
            ready = await http.get("/readyz")
            shown = (await http.get("/api/console/state")).json()["outages"]
        assert (ready.status_code, ready.json()["failingModels"]) == (200, {"anthropic/claude-sonnet-4-6": row.state})
        assert shown == ready.json()["outages"]
        outage = shown["anthropic/claude-sonnet-4-6"]
        assert (outage["kind"], row.fix in outage["fix"], zh.fix in outage["zh"]["fix"]) == (row.state, True, True)
        assert outage["fix"] in told
        for command in ("status", "doctor"):
            if command == chinese:
                code, text = await printed_in_chinese(command, beside(house))
                assert (zh.state == row.state, zh.state in text, zh.fix in text) == (True, True, True), text
                assert outage["zh"]["reason"] in text
            else:
                code, found = await findings(command, beside(house))
                (bad,) = [it for it in found if it["check"] == "model" and it["status"] == "error"]
                assert (outage["reason"] in bad["message"], bad["fix"]) == (True, outage["fix"]), bad
            assert code == 1
        async with opened(house.url, authorization=f"Bearer {TOKEN}") as page:
            await page.say("hello")
            (shown,) = await page.answers(1)
            assert row.reason in shown
        await house.say("你好，请帮我")
        answer = (await house.replies(2))[1]
        assert (zh.reason in answer, outage["zh"]["fix"] in answer) == (True, True), answer


@contextmanager
def full(folder: Path) -> Iterator[None]:
    filler = fill(folder / "data")
    yield
    filler.unlink()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    with closing(sqlite3.connect(folder / "data" / "clawgate.db", isolation_level=None)) as foreign:
        foreign.execute("BEGIN IMMEDIATE")
        yield
        foreign.execute("ROLLBACK")


@asynccontextmanager
async def read_only(house: Running) -> AsyncIterator[None]:
    writer = house.gateway.runtime.store._writer  # type: ignore[attr-defined]
    begin = writer._begin
    for pragma in ("ON", "OFF"):
        with suppress(StoreUnavailable):  # whatever is written in the same commit fails, and this with it
            await writer.call(lambda connection, to=pragma: connection.exec_driver_sql(f"PRAGMA query_only={to}"))
        if pragma == "ON":
            yield
            writer._begin = "PRAGMA query_only=OFF"
            with suppress(StoreUnavailable):  # a read-only connection cannot begin what would let it write
                await writer.call(lambda connection: None)
            writer._begin = begin


@asynccontextmanager
async def database_in(failure: str, folder: Path) -> AsyncIterator[tuple[Running, Callable[[], Any]]]:
    """A gateway, and what breaks its database until it is left."""
    async with AsyncExitStack() as stack:
        if failure == "the disk is full":
            stack.enter_context(small_disk(folder / "data"))
        server = stack.enter_context(postgres_server()) if failure == "PostgreSQL is away" else None
        more = f'{ADMIN}\ndatabase: {{ url: "{server.new_database()}" }}' if server else ADMIN
        served = running(folder, script=lambda _: says("here"), feishu=f"{FEISHU}  web: {{}}\n", more=more)
        house = await stack.enter_async_context(served)
        if server:

            @asynccontextmanager
            async def away() -> AsyncIterator[None]:
                server.crash()
                yield
                server.start_again()

            yield house, away
        elif failure == "the database is read-only":
            yield house, partial(read_only, house)
        else:
            broken = {"the disk is full": full, "another program holds a lock": locked}[failure]

            @asynccontextmanager
            async def breaks() -> AsyncIterator[None]:
                with broken(folder):
                    yield

            yield house, breaks


async def printed(house: Running, chinese: str, *arguments: str) -> tuple[int, str]:
    """What a command prints beside the gateway; in Chinese if it is the one of which that is asked."""
    more = SECRETS | ({"LANG": "zh_CN.UTF-8"} if arguments[0] == chinese else {})
    return await ask(*arguments, "--config", str(beside(house)), more=more)


@pytest.mark.parametrize(
    "chinese", ["status", *(pytest.param(it, marks=pytest.mark.long) for it in ("doctor", "chat"))]
)
@pytest.mark.parametrize("failure", sorted(DATABASES))
async def test_failure_of_the_database_is_told_in_every_place(tmp_path: Path, failure: str, chinese: str) -> None:
    row, zh = DATABASES[failure], CHINESE[failure]
    async with (
        database_in(failure, tmp_path) as (house, breaks),
        opened(house.url, authorization=f"Bearer {TOKEN}") as page,
    ):
        await house.say("one")
        await house.replies(1)
        await house.idle()
        event = house.feishu.text_event("two " + "x" * 9_000, sender=ALICE, chat=ALICE_CHAT)
        async with breaks():
            await house.until(lambda: is_told(house, row.state))
            refused = [await house.push(event), await page.say("three " + "x" * 9_000)]
            assert [(it.status_code, it.json()["cause"]) for it in refused] == [(503, row.state)] * 2
            for it in refused:
                assert it.json()["error"].lower() == f"{row.reason}.".lower()
                assert (it.json()["zh"], it.headers["retry-after"]) == (f"{zh.reason}。", "5")
            async with client(house.url) as http:
                public = await http.get("/readyz")
                told = (await http.get("/readyz", headers=OPERATOR)).json()["outages"]["database"]
                console = (await http.get("/api/console/state", headers=OPERATOR)).json()["outages"]["database"]
            assert (public.json()["failing"], "outages" in public.json()) == ({"database": row.state}, False)
            assert not [it for it in (public, *refused) if str(tmp_path) in it.text]
            assert told == console
            assert (told["reason"], told["zh"]["reason"]) == (row.reason, zh.reason)
            assert (row.fix in told["fix"], zh.fix in told["zh"]["fix"]) == (True, True), told
            for command in ("status", "doctor", "chat"):
                code, text = await printed(house, chinese, command, *["hi " + "x" * 9_000] * (command == "chat"))
                shown = told["zh"] if command == chinese else told
                assert (code, shown["reason"] in text, shown["fix"] in text) == (1, True, True), text
            await page.until(lambda: any(it["database"] for it in page.named("fault")))
            (banner, *_) = [it["database"] for it in page.named("fault") if it["database"]]
            assert (banner["fix"]["en"], banner["fix"]["zh"]) == (told["fix"], told["zh"]["fix"])
        await push_until_taken(house, event)
        await house.replies(2)


async def is_told(house: Running, kind: str) -> bool:
    async with client(house.url) as http:
        return bool((await http.get("/readyz")).json()["failing"] == {"database": kind})


async def test_failure_of_room_in_the_queue_is_told_with_the_reason(tmp_path: Path) -> None:
    async with running(tmp_path, script=lambda _: says("here")) as house:
        store: Any = house.gateway.runtime.store
        await store._writer.call(lambda connection: connection.exec_driver_sql("PRAGMA max_page_count = 1"))
        event = house.feishu.text_event("x" * 30_000, sender=ALICE, chat=ALICE_CHAT)
        answer = await house.push(event)
        assert (answer.status_code, answer.json()["cause"]) == (503, "full")
        await store._writer.call(lambda connection: connection.exec_driver_sql("PRAGMA max_page_count = 1000000"))
        await push_until_taken(house, event)
        assert await house.replies(1) == ["here"]
