"""What a person may ask of their data, and that nothing is left of it: in no table, no file and no log of SQLite."""

import asyncio
import io
import json
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text as statement

from gateway.operate import sessions
from gateway.store.holdings import HOLDINGS
from gateway.store.opening import connected
from gateway.store.records import SessionMark
from tests.channels.contexts import Clock
from tests.emulators.models.script import calls, says
from tests.running import ALICE, ALICE_CHAT, BOB, GROUP, Running, running
from tests.stories.channels.test_telegram import bot
from tests.stories.operate.test_sessions_command import BOBS, CANARY, IN_GROUP, OWN, talk, traces
from tests.stories.store.test_replicas import two
from tests.web_page import CHAT, WEB, new_id, opened

pytestmark = pytest.mark.slow  # it erases on both databases

DAY = 86_400.0
ANYTIME = WEB.replace("groupPolicy: open", "groupPolicy: open\n    history: 5\n    timestampWindowSeconds: null")
SID = f"agent:helper:feishu:default:{ALICE_CHAT}"
_AT = f"feishu:default:{ALICE}"
ROWS = f"""
INSERT INTO note (sender, agent, number, turn, text, at) VALUES ('{_AT}', 'helper', 1, 901, '{CANARY}', 1)
INSERT INTO contact (channel, account, person, name) VALUES ('feishu', 'default', '{ALICE}', '{CANARY}')
INSERT INTO wrong_code (turn, sender, at) VALUES (902, 'feishu:{ALICE}', 1)
INSERT INTO claim (code, at, owner) VALUES ('hash', 1, 'feishu:{ALICE}')
INSERT INTO chatter (chat, thread, message, sender, body, at) VALUES ('feishu:default:{GROUP}', '', 'om_1', '{_AT}', '"{CANARY}"', 1)
INSERT INTO usage (scope, day, tokens, cost) VALUES ('sender:{_AT}', '2026-01-01', 1, 1)
INSERT INTO later (id, kind, due, owner, place, state, body, since) VALUES ('R-1', 'schedule', 9e12, '{_AT}', 'feishu:default:{ALICE_CHAT}', 'active', '{{"say": "{CANARY}"}}', 1)
INSERT INTO login (channel, account, person, name, scopes, access_until, refresh_until, revision, since) VALUES ('feishu', 'default', '{ALICE}', '{CANARY}', '', 1, 1, 1, 1)
INSERT INTO word (scope, term, turn) VALUES (1, '{CANARY}', 1)
"""  # noqa: E501 - one row a line
TURNS = f"""
INSERT INTO approval (id, tool, agent, sid, turn, requester, origin, request, digest, always, tainted, surfaces, state, version, created, expires, boot, deadline, announced) VALUES ('A', 'exec', 'helper', '{SID}', :turn, 'feishu:{ALICE}', '{{}}', '"{CANARY}"', 'd', 0, 0, '[]', 'denied', 1, 1, 1, 'b', 1, 1)
INSERT INTO task (id, key, parent, sid, chat, person, agent, title, turn, origin, started, state, ended, result) VALUES ('T', 'k', '{SID}', '{SID}:task:T:by:helper', 'c', 'feishu:{ALICE}', 'helper', '{CANARY}', :turn, '{{}}', 1, 'done', 1, '')
"""  # noqa: E501 - one row a line
STAYS = {"contact", "wrong_code", "claim", "usage", "later", "login", "word"}
"""Tables in which `retention` deletes nothing by age; `word` has here a row of no conversation."""


def held(house: Running, word: str) -> set[str]:
    """The tables that hold a word, or the id of Alice."""
    found = set()
    with connected(house.gateway.config.database, access="read") as connection:
        for table in HOLDINGS:
            rows = connection.execute(statement(f"SELECT * FROM {table}")).all()
            shown = [bytes(it) if isinstance(it, memoryview) else it for row in rows for it in row]
            if word in str(shown) or ALICE in str(shown):
                found.add(table)
    return found


@asynccontextmanager
async def filled(folder: Path, url: str, clock: Clock, more: str = "") -> AsyncIterator[tuple[Running, Any]]:
    """A gateway whose every table of people has a row of Alice, or of the person of the page."""
    more = f'database: {{ url: "{url}" }}\n{more}'
    async with running(folder, more=more, feishu=ANYTIME, agents=OWN, now=clock) as house, opened(house.url) as page:
        house.anthropic.script = [calls(("write", {"file_path": "a.txt", "content": CANARY})), says(CANARY)]
        await house.say(f"I am {CANARY}")
        await house.replies(1)
        await house.idle()
        house.anthropic.script = [says("seen")]
        await house.push(house.feishu.file_event(CANARY.encode(), name=f"{CANARY}.txt", sender=ALICE, chat=ALICE_CHAT))
        await house.replies(2)
        await talk(house, CANARY, CANARY, sender=ALICE, **IN_GROUP)
        await talk(house, BOBS, BOBS, sender=BOB, **IN_GROUP)
        house.anthropic.script = [says(CANARY)]
        file = (await page.upload(CANARY.encode(), f"{CANARY}.txt", "text/plain")).json()
        await page.say(CANARY, files=[file["id"]])
        await page.answers(1)
        await house.idle()
        turn = (await house.gateway.runtime.store.transcript(SID))[-1].turn
        await house.gateway.runtime.store.mark(
            SID, SessionMark(turn=turn, kind="summary", at=1.0, content=f'"{CANARY}"')
        )
        with connected(house.gateway.config.database) as connection:
            for line in f"{ROWS}{TURNS}".strip().splitlines():
                if line.strip():
                    connection.execute(statement(_literal(line, turn)))
        assert held(house, CANARY) == HOLDINGS.keys(), "write a row of a new table here"
        yield house, page


def _literal(line: str, turn: int) -> str:
    """Colons are parameters to SQLAlchemy, but for the one that is."""
    return line.replace(":turn,", f"{turn},").replace(":", "\\:")


async def forgotten(house: Running) -> str:
    """Alice asks to be forgotten and presses the button; the answer."""
    before = len(house.feishu.messages)
    await house.say("/forget me")
    await house.replies(before + 1)
    await house.idle()
    asked = house.feishu.messages[before]
    await house.push(house.feishu.press_event(asked.message_id, "Erase everything", sender=ALICE))
    await house.until(lambda: any(it.text.startswith("Erased: ") for it in house.feishu.messages))
    await house.until(lambda: _none_due(house))
    await house.idle()
    return house.feishu.messages[-1].text


async def _none_due(house: Running) -> bool:
    return not [it for it in await house.gateway.runtime.store.later.every() if it.kind == "forget"]


@pytest.mark.parametrize("way", ["erase", "forget"])
async def test_erasure_leaves_nothing_in_any_table_or_file(tmp_path: Path, database_url: str, way: str) -> None:
    clock = Clock()
    async with filled(tmp_path, database_url, clock) as (house, _):
        with connected(house.gateway.config.database) as connection:
            connection.execute(statement("DELETE FROM word WHERE scope = 1"))
        if way == "forget":
            clock.now += 2
            ticking = asyncio.create_task(_tick(clock))
            try:
                answer = await forgotten(house)
            finally:
                ticking.cancel()
            assert {"notes 1", "logins 1"} <= set(answer.removeprefix("Erased: ").partition(".")[0].split(", ")), answer
        else:
            await asyncio.to_thread(sessions.erase, house.gateway.config, person=("feishu", ALICE))
        await asyncio.to_thread(sessions.erase, house.gateway.config, person=("web", "local"))
        assert traces(house, CANARY) == []
        assert traces(house, ALICE) == []
        assert traces(house, BOBS) != []
        await talk(house, "hello", "who are you?")
        assert CANARY not in str(house.anthropic.requests[-1].body)


async def _tick(clock: Clock) -> None:
    while True:
        await asyncio.sleep(0.05)
        clock.now += 0.5


async def test_retention_leaves_nothing_of_older_turns(tmp_path: Path, database_url: str) -> None:
    clock = Clock()
    async with filled(tmp_path, database_url, clock, "retention: { days: 30 }") as (house, _):
        await asyncio.to_thread(sessions.age, house.gateway.config, clock.now + 29 * DAY)
        assert held(house, CANARY) == HOLDINGS.keys() - {"chatter"}  # its row is of the year 1970
        clock.now += 20 * DAY
        with connected(house.gateway.config.database) as connection:
            connection.execute(statement("DELETE FROM note"))  # later turns show it
        await talk(house, BOBS, BOBS)
        await asyncio.to_thread(sessions.age, house.gateway.config, clock.now + 11 * DAY)
        left = traces(house, CANARY)
        with connected(house.gateway.config.database, access="read") as connection:
            rows = {table: str(connection.execute(statement(f"SELECT * FROM {table}")).all()) for table in HOLDINGS}
        assert {table for table, row in rows.items() if CANARY in row} <= STAYS
        assert not [it for it in left if "uploads" in it]
        await talk(house, "still there?", "yes")
        assert BOBS in str(house.anthropic.requests[-1].body)
        assert CANARY not in str(house.anthropic.requests[-1].body)
        assert (await house.gateway.runtime.store.later.of_owner(f"feishu:default:{ALICE}"))[0].id == "R-1"


async def test_retention_of_a_chat_and_of_an_agent_outweigh_the_days(tmp_path: Path) -> None:
    more = f'retention: {{ days: 90, chats: {{ "feishu:{GROUP}": 5 }} }}'
    agents = OWN.rstrip() + "\n      retention: { days: 10 }\n"
    async with running(tmp_path, more=more, agents=agents) as house:
        config = house.gateway.config
        assert config.kept_days(f"feishu:default:{GROUP}", "helper") == 5
        assert config.kept_days(f"feishu:default:{ALICE_CHAT}", "helper") == 10
        assert config.kept_days(f"feishu:default:{ALICE_CHAT}", "gone") == 90
    async with running(tmp_path) as house:
        assert not house.gateway.config.retains
        assert house.gateway.config.kept_days(f"feishu:default:{GROUP}") is None


async def test_retention_runs_at_night_beside_a_second_replica(tmp_path: Path, postgres_url: str) -> None:
    async with two(tmp_path, postgres_url, [says(CANARY)], "retention: { days: 1 }") as (one, _):
        await one.say(CANARY)
        await one.replies(1)
        await one.idle()
        with connected(one.gateway.config.database) as connection:
            (end,) = connection.execute(statement("SELECT content FROM transcript WHERE kind = 'final'")).scalars()
            old = json.dumps(json.loads(end) | {"at": 1.0})
            connection.execute(statement("UPDATE transcript SET content = :old WHERE kind = 'final'"), {"old": old})
            connection.execute(statement("UPDATE later SET due = 1 WHERE kind = 'retention'"))
        await one.until(lambda: not traces(one, CANARY))
        (row,) = [it for it in await one.gateway.runtime.store.later.every() if it.kind == "retention"]
        assert (row.due or 0) > one.gateway.runtime.now()


async def test_forget_button_is_the_askers_alone(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        await talk(house, CANARY, CANARY)
        await house.say("/forget me")
        await house.replies(2)
        await house.idle()
        await house.push(house.feishu.press_event(house.feishu.messages[1].message_id, "Erase everything", sender=BOB))
        await house.push(house.feishu.press_event(house.feishu.messages[1].message_id, "Keep it", sender=ALICE))
        await house.until(lambda: "Nothing was erased." in str(house.feishu.known[house.feishu.messages[1].message_id]))
        await house.idle()
        assert await _none_due(house)
        assert traces(house, CANARY) != []
        await house.say("/forget me", **IN_GROUP)
        await house.idle()
        assert house.feishu.messages[-1].text == "Send it to me in a direct chat."


async def test_forget_answer_that_fails_is_sent_by_the_next_process(tmp_path: Path, database_url: str) -> None:
    """The counts are stored before the answer is sent, and the row is deleted after it."""
    more = f'database: {{ url: "{database_url}" }}'
    async with running(tmp_path, more=more) as house:
        await talk(house, CANARY, CANARY)
        await house.say("/forget me")
        await house.replies(2)
        await house.idle()
        card = house.feishu.messages[1].message_id
        await house.push(house.feishu.press_event(card, "Erase everything", sender=ALICE))
        await house.until(lambda: "I erase it now" in str(house.feishu.known[card]))
        house.feishu.fail_next("/im/v1/messages", status=503)
        await house.until(lambda: _counted(house))
        assert traces(house, CANARY) == []
        (row,) = [it for it in await house.gateway.runtime.store.later.every() if it.kind == "forget"]
        emulator = house.feishu
    async with running(tmp_path, more=more, emulator=emulator) as house:
        await house.gateway.runtime.store.later.hasten(row.id, house.gateway.runtime.now())
        await house.until(lambda: _none_due(house))
        assert [it.text.startswith("Erased: ") for it in house.feishu.messages] == [False, False, True]
        await house.until(lambda: not traces(house, ALICE))


async def _counted(house: Running) -> bool:
    rows = [it for it in await house.gateway.runtime.store.later.every() if it.kind == "forget"]
    return bool(rows) and json.loads(rows[0].body).get("removed") is not None


async def test_mydata_is_whole_and_nobody_elses(tmp_path: Path, database_url: str) -> None:
    clock = Clock()
    async with filled(tmp_path, database_url, clock) as (house, _):
        before = len(house.feishu.messages)
        await house.say("/mydata")
        await house.replies(before + 1)
        await house.idle()
        with connected(house.gateway.config.database, access="read") as connection:
            data = connection.execute(statement("SELECT data FROM file WHERE name = 'mydata.zip'")).scalar_one()
        packed = zipfile.ZipFile(io.BytesIO(bytes(data)))
        whole = json.loads(packed.read("mydata.json"))
        assert whole["person"] == f"feishu:{ALICE}"
        assert {
            "note",
            "later",
            "login",
            "contact",
            "task",
            "approval",
            "usage",
            "chatter",
            "outbox",
            "mark",
        } <= whole.keys()
        assert not {"access", "refresh"} & whole["login"][0].keys()
        assert BOBS not in json.dumps(whole)
        names = packed.namelist()
        assert {Path(it).name for it in names} >= {"a.txt", "mydata.md"}
        assert [it for it in names if it.endswith(f"{CANARY}.txt")]
        readable = packed.read("mydata.md").decode()
        assert "Note 1: " in readable
        assert (CANARY in readable, BOBS in readable) == (True, False)


async def test_mydata_and_forget_speak_chinese(tmp_path: Path) -> None:
    async with running(tmp_path, more="language: zh") as house:
        await house.say("/我的数据")
        await house.replies(1)
        await house.idle()
        await house.say("/忘记 我")
        await house.until(lambda: any("无法恢复" in it.text for it in house.feishu.messages))
        assert any("我保存的关于你的全部数据" in it.text for it in house.feishu.messages)


async def test_forget_on_telegram_erases_by_its_button(tmp_path: Path) -> None:
    async with bot(tmp_path, "webhook", script=[says(CANARY)]) as it:
        alice = it.telegram.private()
        await it.happens(it.telegram.text_update(CANARY, chat=alice))
        await it.replies(1)
        await it.house.idle()
        await it.happens(it.telegram.text_update("/forget me", chat=alice))
        asked = (await it.replies(2))[1]
        await it.house.idle()
        token = (asked.reply_markup or {})["inline_keyboard"][0][0]["callback_data"]
        await it.happens(it.telegram.press_update(asked.message_id, token, chat=alice))
        await it.house.until(lambda: any(sent.text.startswith("Erased: ") for sent in it.telegram.messages))
        await it.house.until(lambda: not traces(it.house, CANARY))


async def test_forget_on_the_page_removes_its_conversations(tmp_path: Path) -> None:
    async with running(tmp_path, script=[says(CANARY)], feishu=WEB) as house, opened(house.url) as page:
        await page.say(CANARY)
        await page.answers(1)
        await page.say("/forget me")
        await page.answers(2)
        await house.idle()
        (asked,) = [it for it in page.written() if it["buttons"]]
        press = {"token": asked["buttons"][0]["token"], "message": asked["message"]}
        answer = await page.http.post(
            "/webhooks/web/default", json={"id": new_id("p"), "chat": CHAT, "agent": "helper", "press": press}
        )
        assert answer.status_code == 200
        await house.until(lambda: not traces(house, CANARY))
        await house.until(lambda: _none_due(house))
        assert await page.chats() == []
