"""What a tool repeats of an older message is withdrawn with the message: every copy, however the message goes."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from channels.marks import RESULT_GONE
from gateway.config.load import load
from gateway.operate.sessions import erase, listed
from gateway.store.opening import connected
from tests.case import case
from tests.channels.contexts import Clock
from tests.emulators.models.script import calls, says
from tests.emulators.models.server import Reply
from tests.running import ALICE, BOB, BOB_CHAT, FEISHU, GROUP, SECRETS, Running, running
from tests.stories.at_work import RUNS, results, users
from tests.stories.later.test_schedules import BEGIN

AGENTS = """
agents:
  list:
    - id: helper
      model: anthropic/claude-sonnet-4-6
      tools:
        allow: [read, ls, find, grep, exec, process, task, schedule, memory_search, memory_get]
"""
OPEN = FEISHU.replace("groupPolicy: open", "groupPolicy: open\n    requireMention: false")
IN_GROUP: dict[str, Any] = {"chat": GROUP, "chat_type": "group", "mention_bot": True}
SID = f"agent:helper:feishu:default:{GROUP}"
WORD, FILED, REMINDED, HANDED = "quokkasalary", "quokkadiagnosis", "quokkareminder", "quokkatask"
KEPT = "wombatminutes"


class Model:
    """A model that makes the wanted calls, and in a task says what the task was."""

    def __init__(self) -> None:
        self.wanted: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, body: dict[str, Any]) -> Reply:
        if "This is the task" in users(body)[-1]:
            return says(f"about {HANDED}")
        return calls(self.wanted.pop(0)) if self.wanted else says("ok")


async def turn(house: Running, model: Model, event: dict[str, Any], *wanted: tuple[str, dict[str, Any]]) -> str:
    """The message's id, once it is answered after these calls."""
    model.wanted, asked = [*wanted], len(house.anthropic.requests)
    assert (await house.push(event)).status_code == 200
    await house.until(lambda: len(house.anthropic.requests) > asked + len(wanted))
    await house.idle()
    return str(event["event"]["message"]["message_id"])


def tables(house: Running) -> Mapping[str, str]:
    """Every row of the database as text, by table."""
    found: dict[str, str] = {}
    with connected(load(house.folder / "config.yaml", SECRETS).config.database) as connection:
        is_sqlite = connection.dialect.name == "sqlite"
        listing = (
            "SELECT name FROM sqlite_master WHERE type = 'table'"
            if is_sqlite
            else "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
        )
        for name in connection.execute(text(listing)).scalars().all():
            found[name] = str(connection.execute(text(f'SELECT * FROM "{name}"')).all())
    return found


async def withdraw(house: Running, how: str, messages: list[str]) -> None:
    config = load(house.folder / "config.yaml", SECRETS).config
    if how == "recall":
        for message in messages:
            await house.push(house.feishu.recalled_event(message))
    elif how == "person":
        await asyncio.to_thread(erase, config, person=("feishu", BOB))
    else:
        first = next(it for it in listed(config) if it.sid == SID)
        await asyncio.to_thread(erase, config, session=first)
    await house.idle()


@pytest.mark.parametrize("how", ["recall", "person", "session"])
async def test_recall_deletes_copies_in_tool_results(tmp_path: Path, database_url: str, how: str) -> None:
    model = Model()
    more = f'{RUNS}\ndatabase: {{ url: "{database_url}" }}'
    async with running(tmp_path, agents=AGENTS, feishu=OPEN, more=more, script=model) as house:
        bob, alice = {"sender": BOB, **IN_GROUP}, {"sender": ALICE, **IN_GROUP}
        event, file = house.feishu.text_event, house.feishu.file_event
        said = await turn(
            house,
            model,
            event(f"my salary is {WORD}", **bob),
            ("schedule", {"action": "create", "at": "every 30m", "say": REMINDED}),
            ("task", {"action": "start", "prompt": HANDED, "title": HANDED, "wait": True}),
        )
        sent = await turn(house, model, file(FILED.encode(), name=f"{FILED}.txt", **bob))
        (upload,) = house.uploads()
        await house.say("/new", **alice)
        await house.idle()
        asked = next(it.turn for it in await house.gateway.runtime.store.tasks.of(SID))
        copies: dict[str, tuple[str, dict[str, Any]]] = {
            "search": ("memory_search", {"query": "salary"}),
            "turn": ("memory_get", {"path": f"sessions/{asked}"}),
            "task": ("task", {"action": "list"}),
            "read": ("read", {"file_path": upload}),
            "grep": ("grep", {"pattern": FILED, "path": "uploads"}),
            "find": ("find", {"glob": "*.txt", "path": "uploads"}),
            "ls": ("ls", {"path": upload.rpartition("/")[0]}),
            "exec": ("exec", {"command": 'cat "$UPLOADS"/*/*'}),
        }
        await turn(house, model, event(f"look, {KEPT}", **alice), *copies.values())
        given = dict(zip(copies, results(house.anthropic.requests[-1].body)[-len(copies) :], strict=True))
        for name, result in given.items():
            with case(name):
                assert "quokka" in result
        await turn(house, model, event("and again", **alice), ("memory_search", {"query": KEPT}))
        await withdraw(house, how, [said, sent])
        await turn(house, model, event("what now?", **alice))
        request = house.anthropic.requests[-1].body
        given = dict(zip(copies, results(request)[: len(copies)], strict=True))
        for name, result in given.items():
            with case(how, name):
                assert result.startswith(RESULT_GONE)
        assert KEPT in str(request)
        left = {table: rows for table, rows in tables(house).items() if "quokka" in rows}
        assert left == {}
        assert not house.uploads() or how == "session"


async def test_recall_deletes_copies_of_copies_only(tmp_path: Path) -> None:
    model = Model()
    async with running(tmp_path, agents=AGENTS, feishu=OPEN, script=model) as house:
        bob, alice = {"sender": BOB, **IN_GROUP}, {"sender": ALICE, **IN_GROUP}
        event = house.feishu.text_event
        said = await turn(house, model, event(f"it is {WORD}", **bob))
        await turn(house, model, event(f"mine is {KEPT}", **alice))
        await turn(house, model, event("look", **alice), ("memory_search", {"query": "it is", "limit": 1}))
        second = max(int(it) for it in await house.gateway.runtime.store.memory.search(SID, ["look"], 5))
        await turn(house, model, event("look back", **alice), ("memory_get", {"path": f"sessions/{second}"}))
        await turn(house, model, event("and mine", **alice), ("memory_search", {"query": KEPT, "limit": 1}))
        assert [WORD in it for it in results(house.anthropic.requests[-1].body)] == [True, True, False]
        await withdraw(house, "recall", [said])
        await turn(house, model, event("what now?", **alice))
        first, again, kept = results(house.anthropic.requests[-1].body)
        assert first.startswith(RESULT_GONE)
        assert again.startswith(RESULT_GONE)
        assert KEPT in kept
        assert {table: rows for table, rows in tables(house).items() if WORD in rows} == {}


@pytest.mark.parametrize("kind", ["say", "task"])
async def test_recall_cancels_reminders_of_the_message(tmp_path: Path, kind: str) -> None:
    clock, model = Clock(BEGIN), Model()
    feishu = f"{OPEN}    timestampWindowSeconds: null\n"
    async with running(tmp_path, agents=AGENTS, feishu=feishu, script=model, now=clock) as house:
        bob, alice, event = {"sender": BOB, **IN_GROUP}, {"sender": ALICE, **IN_GROUP}, house.feishu.text_event
        made = ("schedule", {"action": "create", "at": "every 30m", kind: REMINDED})
        said = await turn(house, model, event("remind us", **bob), made)
        sent, asked = len(house.feishu.messages), len(house.anthropic.requests)
        clock.now += 1801
        house.gateway.wake()
        await house.until(lambda: len(house.feishu.messages) > sent)
        await house.idle()
        assert len(house.anthropic.requests) == asked + (kind == "task")
        await withdraw(house, "recall", [said])
        assert await house.gateway.runtime.store.later.every() == []
        await turn(house, model, event("what now?", **alice))
        assert REMINDED not in str(house.anthropic.requests[-1].body)
        assert {table: rows for table, rows in tables(house).items() if REMINDED in rows} == {}


async def test_erased_person_leaves_no_owner_notice(tmp_path: Path) -> None:
    pairs = FEISHU.replace("dmPolicy: open", "dmPolicy: pairing")
    assert pairs != FEISHU
    async with running(tmp_path, feishu=pairs, more=f'owners: ["feishu:{ALICE}"]', script=[says("hi")] * 3) as house:
        house.feishu.users[BOB] = "Bob Quokka"
        await house.say("hello", sender=ALICE)
        await house.replies(1)
        await house.say("let me in", sender=BOB, chat=BOB_CHAT)
        await house.until(lambda: any("wants to write to me" in it.text for it in house.feishu.messages))
        await house.idle()
        assert any(BOB in rows for rows in tables(house).values())
        await withdraw(house, "person", [])
        assert {table: rows for table, rows in tables(house).items() if BOB in rows or "Quokka" in rows} == {}
