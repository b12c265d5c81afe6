"""What a session is and when it ends: of a chat, of each person in a group, of a topic; by the hour, by silence."""

import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from agents.turn import settings_json
from gateway.store.errors import StoreUnavailable
from gateway.store.opening import connected
from gateway.store.records import SessionMark
from gateway.turns.journal import TurnJournal
from tests.emulators.models.script import says
from tests.running import ALICE, ALICE_CHAT, BOB, GROUP, Running, feishu_emulator, running
from tests.stories.at_work import spoken, users

IN_GROUP: dict[str, Any] = {"chat": GROUP, "chat_type": "group", "mention_bot": True}
MODEL = "model: anthropic/claude-sonnet-4-6"


def agents(session: str) -> str:
    """One that has the session's settings from the defaults, and one with its own over them."""
    own = "{ id: other, session: { resetIdleMinutes: 30 } }"
    return f"agents: {{ defaults: {{ {MODEL}, session: {session} }}, list: [ {{ id: helper }}, {own} ] }}"


async def asks(house: Running, text: str, **who: Any) -> list[str]:
    """Somebody writes; what the people of the chat say in the request that follows, with what was said before."""
    house.anthropic.script = [says(f"about {text}")]
    answers = len(house.feishu.messages)
    await house.say(text, **who)
    await house.replies(answers + 1)
    await house.idle()
    assert f"about {text}" not in str(house.anthropic.requests[-1].body)
    return [it.rpartition("\n")[2] for it in users(house.anthropic.requests[-1].body)]


async def test_session_first_turn_of_a_day_has_the_notes(tmp_path: Path) -> None:
    clock = Clock("2026-06-15T03:50+00:00")
    async with clock.running(tmp_path, agents=DAILY) as house:
        await house.say("/remember I am allergic to nuts")
        await house.replies(1)
        for text, time_ in (("late", "03:51"), ("breakfast", "04:10"), ("lunch", "04:11")):
            clock.put(f"2026-06-15T{time_}+00:00")
            await asks(house, text)
            assert "allergic" in spoken(house)


@pytest.mark.parametrize(
    ("scope", "bob_sees"),
    [("chat", ["Alice: one", "Bob: two", "Alice: three", "Bob: four"]), ("sender", ["Bob: two", "Bob: four"])],
)
async def test_session_scope_in_a_group_is_shared_or_per_person(
    tmp_path: Path, scope: str, bob_sees: Sequence[str]
) -> None:
    more = f'bindings: [ {{ agent: other, match: {{ chat: "{GROUP}9" }} }} ]'
    async with running(tmp_path, agents=agents(f"{{ scope: {scope} }}"), more=more) as house:
        await asks(house, "one", sender=ALICE, **IN_GROUP)
        await asks(house, "two", sender=BOB, **IN_GROUP)
        await asks(house, "three", sender=ALICE, **IN_GROUP)
        assert await asks(house, "four", sender=BOB, **IN_GROUP) == bob_sees
        assert await asks(house, "private", sender=BOB) == ["Bob: private"]
        in_topic = IN_GROUP | {"thread_id": "omt_1"}
        assert await asks(house, "five", sender=ALICE, **in_topic) == ["Alice: five"]
        seen = await asks(house, "six", sender=BOB, **in_topic)
        assert seen == ["Alice: five", "Bob: six"] if scope == "chat" else ["Bob: six"]
        elsewhere = IN_GROUP | {"chat": f"{GROUP}9"}
        await asks(house, "seven", sender=ALICE, **elsewhere)
        assert ("Alice: seven" in await asks(house, "eight", sender=BOB, **elsewhere)) is (scope == "chat")


class Clock:
    """What the gateway takes for now; it goes on from where it was put."""

    def __init__(self, text: str) -> None:
        self.put(text)
        self._emulator = feishu_emulator()
        self._emulator.now = self

    def put(self, text: str) -> None:
        self._ahead = datetime.fromisoformat(text).timestamp() - time.monotonic()

    def __call__(self) -> float:
        return time.monotonic() + self._ahead

    def running(self, folder: Path, **more: Any) -> AbstractAsyncContextManager[Running]:
        """A gateway and a Feishu that both go by it."""
        return running(folder, emulator=self._emulator, now=self, **more)


DAILY = agents("{ resetDaily: 04:00 }")
SHANGHAI = "server: { timezone: Asia/Shanghai }"


async def test_session_expires_by_hour_and_idle_timeout(tmp_path: Path, database_url: str) -> None:
    clock = Clock("2026-06-15T03:50+08:00")
    bound = f'bindings: [ {{ agent: other, match: {{ chat: "{GROUP}" }} }} ]'
    more = f'{SHANGHAI}\n{bound}\ndatabase: {{ url: "{database_url}" }}'
    async with clock.running(tmp_path, agents=DAILY, more=more) as house:
        store, sid = house.gateway.runtime.store, f"agent:helper:feishu:default:{ALICE_CHAT}"
        assert await asks(house, "one") == ["Alice: one"]
        chosen = SessionMark(turn=1, kind="settings", at=clock(), content='{"thinking": "low"}')
        await store.mark(sid, chosen)
        choices = house.gateway.runtime.choices
        await choices.choose_queue(sid, "interrupt", turn=1, at=clock())
        clock.put("2026-06-15T03:57+08:00")
        assert await asks(house, "two") == ["Alice: one", "Alice: two"]
        clock.put("2026-06-15T04:00:00+08:00")
        assert await asks(house, "three") == ["Alice: three"]
        clock.put("2026-06-16T03:00+08:00")
        assert await asks(house, "four") == ["Alice: three", "Alice: four"]
        work = await store.conversation(sid, before=9, history_turns=9, waiting_max=9)
        assert settings_json.validate_json(work.settings).thinking is None
        assert choices.queue(sid) is None

        await asks(house, "five", sender=ALICE, **IN_GROUP)
        clock.put("2026-06-16T03:27+08:00")
        assert len(await asks(house, "six", sender=ALICE, **IN_GROUP)) == 2
        clock.put("2026-06-16T03:58+08:00")
        assert len(await asks(house, "seven", sender=ALICE, **IN_GROUP)) == 1


async def test_session_settings_after_expiry_hold_for_the_new_one(tmp_path: Path) -> None:
    clock = Clock("2026-06-15T03:50+00:00")
    async with clock.running(tmp_path, agents=DAILY) as house:
        store, sid = house.gateway.runtime.store, f"agent:helper:feishu:default:{ALICE_CHAT}"
        await asks(house, "one")
        clock.put("2026-06-15T04:10+00:00")
        await store.mark(sid, SessionMark(turn=2, kind="settings", at=clock(), content='{"thinking": "low"}'))
        assert await asks(house, "two") == ["Alice: two"]
        work = await store.conversation(sid, before=9, history_turns=9, waiting_max=9)
        assert settings_json.validate_json(work.settings).thinking == "low"


async def test_session_expiry_during_a_turn_keeps_its_history(tmp_path: Path) -> None:
    clock = Clock("2026-06-15T03:50+00:00")
    async with clock.running(tmp_path, agents=DAILY, more="limits: { graceSeconds: 0.1 }") as house:
        await asks(house, "one")
        house.anthropic.script = [says("slow")]
        house.line.hold()
        await house.say("two")
        await house.requested(2)
        clock.put("2026-06-15T04:10+00:00")
    async with clock.running(tmp_path, agents=DAILY, script=[says("slow")]) as house:
        await house.replies(2)
        assert [it.rpartition("\n")[2] for it in users(house.anthropic.requests[-1].body)] == [
            "Alice: one",
            "Alice: two",
        ]
        await house.idle()
        assert await asks(house, "three") == ["Alice: one", "Alice: two", "Alice: three"]


async def test_session_expiry_survives_a_kill_before_the_first_row(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, dies = Clock("2026-06-15T03:50+00:00"), list[bool]()
    begin = TurnJournal.begin

    async def begin_once_dead(journal: TurnJournal, *args: Any, **names: Any) -> None:
        if dies and dies.pop():
            raise StoreUnavailable("killed here")
        await begin(journal, *args, **names)

    more = f'database: {{ url: "{database_url}" }}'
    async with clock.running(tmp_path, agents=DAILY, more=more) as house:
        await asks(house, "one")
        clock.put("2026-06-15T04:10+00:00")
        monkeypatch.setattr(TurnJournal, "begin", begin_once_dead)
        dies.append(True)
        assert await asks(house, "two") == ["Alice: two"]
        assert await asks(house, "three") == ["Alice: two", "Alice: three"]
        with connected(house.gateway.config.database) as connection:
            rows = connection.exec_driver_sql("SELECT turn FROM mark WHERE kind = 'new'").all()
        assert [tuple(row) for row in rows] == [(1,)]


async def test_session_expiry_off_costs_no_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock("2026-06-15T03:50+00:00")
    monkeypatch.setattr("gateway.turns.turns.Turns._begin_anew", None)
    async with clock.running(tmp_path) as house:
        await asks(house, "one")
        clock.put("2027-06-15T04:10+00:00")
        assert await asks(house, "two") == ["Alice: one", "Alice: two"]
