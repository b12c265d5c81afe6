"""An update over real data: a database of Clawgate 1.0.0 with every kind of row is migrated, and life in it goes on.

The rows were written by a gateway which was killed while one turn ran, one message waited, one reply
was on its way and one approval was open. A newer database is refused with one sentence.
"""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from gateway.approvals.approvals import Clock
from gateway.store.migrate import HEAD
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.feishu.events import Known
from tests.emulators.models.script import says
from tests.gateway.store.release_1_0 import OLD, ROWS, make_old
from tests.postgres import PostgresServer
from tests.running import ALICE, ALICE_CHAT, BOB, BOB_CHAT, feishu_emulator, running
from tests.stories.at_work import users, works
from tests.stories.process.test_process import ask
from tests.web_page import WEB, opened

THEN = max(it["at"] for it in ROWS["inbox"]) + 60
CAROL = "ou_ca401000000000000000000000000000"
AGENTS = """
agents:
  list:
    - id: helper
      model: anthropic/claude-sonnet-4-6
      tools: { allow: [read, write, edit, ls, exec, message, memory_search, memory_get] }
"""
PAIRING = WEB.replace("dmPolicy: open", "dmPolicy: pairing\n    timestampWindowSeconds: null").replace(
    "groupPolicy: open", "groupPolicy: open\n    history: 5"
)


def more(url: str) -> str:
    approvers = f'owners: ["feishu:{ALICE}"]\napprovals: {{ approvers: ["feishu:{ALICE}"] }}\n'
    return f'{approvers}budgets: {{ sender: {{ tokensPerDay: 10000000 }} }}\ndatabase: {{ url: "{url}" }}\n'


def read(url: str, query: str) -> list[tuple[Any, ...]]:
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as connection:
        found = [tuple(row) for row in connection.execute(text(query))]
    engine.dispose()
    return found


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """Of a database without a table: those of the older revision are made there."""
    address = postgres.new_database()
    yield address
    postgres.drop(address)


def clock_at(start: float = THEN) -> Callable[[], float]:
    """A clock that starts at `start`: by default a minute after the old gateway was killed, so that no message is stale."""
    ahead = start - time.time()
    return lambda: time.time() + ahead


def platform() -> FeishuEmulator:
    """A Feishu on which the old messages exist."""
    emulator = feishu_emulator()

    def exists(message: str, chat: str, sender: str, words: str) -> None:
        content = json.dumps({"text": words})
        emulator.known[message] = Known(chat_id=chat, sender=sender, msg_type="text", content=content)

    for row in ROWS["inbox"]:
        context = json.loads(row["body"])["context"]
        exists(context["message_id"], context["chat"]["id"], context["sender"]["id"], context["text"])
    for row in ROWS["outbox"]:
        if row["ext_id"]:
            exists(row["ext_id"], json.loads(row["payload"])["part"]["target"]["chat"], emulator.app_id, "an old reply")
    return emulator


async def test_upgrade_from_1_0_keeps_every_row_and_answers_what_waits(tmp_path: Path, database_url: str) -> None:
    make_old(database_url)
    assert read(database_url, "SELECT version_num FROM alembic_version") == [(OLD,)]
    for table, old in ROWS.items():
        assert [(len(old),)] == read(database_url, f'SELECT count(*) FROM "{table}"') != [(0,)], table
    async with running(
        tmp_path, emulator=platform(), agents=AGENTS, feishu=PAIRING, more=more(database_url), now=clock_at()
    ) as house:
        house.anthropic.script = lambda body: says(f"answer to {users(body)[-1][-19:]}")

        async def command(words: str, sender: str = ALICE, chat: str = ALICE_CHAT) -> str:
            before = len(house.feishu.messages)
            await house.say(words, sender=sender, chat=chat)
            return (await house.replies(before + 1))[-1]

        def sent() -> list[str]:
            return [it.text for it in house.feishu.messages]

        def replied(text: str) -> bool:
            return any(text in it for it in sent())

        await house.until(lambda: all(map(replied, ("sent later", "in the middle of it", "and one that waits"))))
        await house.idle()
        assert [sent().count(it) for it in ("sent later", "lost words")] == [1, 0]
        assert "INTERRUPTED" not in str(house.anthropic.requests[0].body)  # `ls` had its result
        assert "Our order is INV-2024-0042" in str(house.anthropic.requests[0].body)
        assert read(database_url, "SELECT version_num FROM alembic_version") == [(HEAD,)]
        assert "1. my passport expires in 2031" in await command("/remember")
        assert "high" in await command("/status")
        (found,) = await works(house, ("memory_search", {"query": "INV-2024-0042"}), sender=ALICE, chat=ALICE_CHAT)
        assert "Our order is INV-2024-0042" in found
        assert await command("hello again", BOB, BOB_CHAT) == "Bob: hello again"
        waiting = read(database_url, "SELECT person FROM contact WHERE approved_by IS NULL")
        assert waiting == [(CAROL,)]
        states = read(database_url, "SELECT state FROM approval ORDER BY created")
        assert states == [("finished",), ("denied",), ("pending",)]
        await house.idle()
        async with opened(house.url) as page:
            (chat,) = await page.chats()
            messages = (await page.conversation(chat["id"]))["messages"]
            assert [it["text"] for it in messages] == ["look at this", "seen"]
            (file,) = messages[0]["files"]
            assert (await page.http.get(f"/api/files/{file['id']}")).content == b"in a file"
    kept = {table: len(rows) for table, rows in ROWS.items() if table not in {"word", "indexed"}}
    for table, rows in kept.items():
        ((count,),) = read(database_url, f'SELECT count(*) FROM "{table}"')
        assert count >= rows, table


EXPIRES = next(it["expires"] for it in ROWS["approval"] if it["state"] == "pending")
HOUR = 3600.0


@pytest.mark.parametrize(
    ("same_boot", "deadline", "wall", "state"),
    [
        (False, -HOUR, -60.0, "pending"),  # another machine's monotonic clock says nothing
        (False, HOUR, 60.0, "expired"),
        (True, HOUR, -60.0, "pending"),
        (True, HOUR, 60.0, "expired"),
        (True, -HOUR, -60.0, "expired"),  # the wall clock was set back
    ],
)
async def test_approval_expiry_after_an_upgrade_uses_wall_clock_and_own_boot(
    tmp_path: Path, same_boot: bool, deadline: float, wall: float, state: str
) -> None:
    url = f"sqlite:///{tmp_path}/data/clawgate.db"
    make_old(url)
    with create_engine(url).begin() as connection:
        boot = Clock(time.time).boot if same_boot else "the-boot-of-another-machine"
        values = {"boot": boot, "deadline": time.monotonic() + deadline}
        connection.execute(
            text("UPDATE approval SET boot = :boot, deadline = :deadline WHERE state = 'pending'"), values
        )
    now = clock_at(EXPIRES + wall)
    async with running(tmp_path, emulator=platform(), agents=AGENTS, feishu=PAIRING, more=more(url), now=now) as house:
        house.anthropic.script = lambda _: says("ok")
        if state == "pending":
            # Looking for expired requests is the first thing each round does: wait for a whole one.
            await house.gateway.approvals._round()
        query = "SELECT state FROM approval ORDER BY created DESC LIMIT 1"
        await house.until(lambda: read(url, query) == [(state,)])
        await house.idle()


@pytest.mark.parametrize(
    ("revision", "fix"),
    [("9999", "install a newer Clawgate, or restore the backup"), ("0012", "start it once with Clawgate 1.0.0")],
)
async def test_migration_refuses_a_newer_or_pre_1_0_database_and_says_what_to_do(
    tmp_path: Path, revision: str, fix: str
) -> None:
    url = f"sqlite:///{tmp_path}/data/clawgate.db"
    make_old(url)
    with create_engine(url).begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :it"), {"it": revision})
    config = tmp_path / "config.yaml"
    config.write_text("agents: { list: [ { id: helper } ] }\n")
    for command in (("serve", "--port", "0"), ("sessions", "list")):
        code, output = await ask(*command, "--config", str(config))
        assert (code, output.count("\n")) == (1, 1), output
        assert revision in output
        assert fix in output
        assert "docs/upgrade.md" in output
    assert read(url, "SELECT version_num FROM alembic_version") == [(revision,)]
