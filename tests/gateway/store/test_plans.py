"""What a recall, an erasure and a deleted conversation do to a database that is large: no statement walks a table that grows
with the messages, and each transaction is of a bounded number of turns."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, event

from channels.web.archive import MessageBody
from gateway.store import erasure, memory
from gateway.store.erasure import portions_of, spans_of
from gateway.store.layers import FILTERS, LAST_FINISHED, LISTED, OPEN, RATED
from gateway.store.records import Entry, SessionMark, Spoken
from gateway.store.sqlite import SqliteStore
from gateway.store.statements import BODIES, HISTORY, USAGE, WAITING
from tests.empty_database import _empty_database
from tests.gateway.store.chats import leased, opened

GROWING = ("inbox", "layer", "transcript", "outbox", "spoken", "word", "web_message", "mark")
SID = "agent:a:feishu:d:oc_1"
WEB = "agent:a:web:default:c_1"


async def plans(folder: Path, operate: Callable[[SqliteStore], Any]) -> list[str]:
    """What SQLite says of each statement that is run, as far as it walks such a table."""
    url, ran = f"sqlite:///{folder}/x.db", list[tuple[str, Any]]()
    async with opened(url) as store:
        assert isinstance(store, SqliteStore)
        for number, sid in ((1, SID), (2, SID), (3, WEB)):
            lease = await leased(store, number, sid=sid)
            spoken = (Spoken(message=f"om_{number}", person="feishu:ou_1", direct=True, parts=1),)
            await store.append(lease, [Entry(turn=number, kind="user", content="{}", spoken=spoken)])
            await store.finish(lease, [Entry(turn=number, kind="final", content="{}")], [], at=1.0)
            await store.mark(sid, SessionMark(turn=number, kind="summary", at=1.0))
            await store.release(lease)
        event.listen(store._engine, "before_cursor_execute", lambda *it: ran.append((it[2], it[3])))
        await operate(store)
    assert ran
    with closing(sqlite3.connect(folder / "x.db")) as database:
        found = [
            f"{row[3]} in {statement}"
            for statement, names in ran
            if not statement.lstrip().startswith("INSERT") or "SELECT" in statement
            for row in database.execute(f"EXPLAIN QUERY PLAN {statement}", names)
        ]
    walked = [it for it in found if it.startswith("SCAN ") and it.split()[1] in GROWING]
    return [it for it in walked if "inbox_waiting" not in it]  # what waits is bounded by limits of its own


async def test_query_plan_of_a_recall(tmp_path: Path) -> None:
    async def operate(store: SqliteStore) -> None:
        assert await store.changes.recall(f"{SID}:m1", "feishu:d:oc_1", "om_1", 1.0) is not None

    assert await plans(tmp_path, operate) == []


async def test_erasing_a_person(tmp_path: Path) -> None:
    def operation(connection: Connection) -> None:
        assert len(spans_of(connection, SID, 0, 1)) == 1
        portions = portions_of(connection, "feishu", "ou_1")
        assert {it.sid for it in portions} == {SID, WEB}
        assert erasure.claim(connection, portions, served=False) == []
        for portion in portions:
            erasure.forget_turns(connection, portion, sorted(portion.numbers))
            erasure.forget_quotes(connection, portion, sorted(portion.messages))
            erasure.forget_session(connection, portion)
            memory.forget(connection, portion.sid)
        erasure.forget_person(connection, "feishu", "ou_1")

    async def operate(store: SqliteStore) -> None:
        await store.write(operation)

    assert await plans(tmp_path, operate) == []


async def test_erasing_a_conversation_of_the_web_chat(tmp_path: Path) -> None:
    async def operate(store: SqliteStore) -> None:
        await store.archive.keep("c_1", "m_1", MessageBody(text="x", agent="a"), 1.0)
        assert await store.archive.erase("c_1", [WEB, f"aside:{WEB}"])

    assert await plans(tmp_path, operate) == []


def test_query_plan_of_each_turn_uses_its_index(tmp_path: Path) -> None:
    """An index more may be taken for what another serves better: the whole conversation would be read for each turn."""
    (tmp_path / "x.db").write_bytes(_empty_database())
    with closing(sqlite3.connect(tmp_path / "x.db")) as database:
        names = {
            "before": 4,
            "sid": "a",
            "skip": 3,
            "history_chars": 9,
            "known_seq": 0,
            "known": "",
            "epoch": 1,
            "waiting_max": 20,
            "turn": 3,
        }
        names |= {"day": "2026-11-22", "month": "2026-11", "first": "a", "second": "b", "third": "c"}

        def plan(statement: str) -> str:
            return "\n".join(row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {statement}", names))

        assert "SEARCH t USING INDEX sqlite_autoindex_transcript_1 (sid=? AND seq>?)" in plan(HISTORY)
        assert "SEARCH i USING INDEX inbox_waiting (sid=?)" in plan(WAITING)
        assert "inbox_joined (turn=?)" in plan(BODIES)
        assert "(scope=? AND day>? AND day<?)" in plan(USAGE)


def test_query_plan_of_the_turns_list_uses_an_index(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(_empty_database())
    with closing(sqlite3.connect(tmp_path / "x.db")) as database:
        for column in (*FILTERS, ""):
            names = {"before": 9, "limit": 50, "turn": 1} | dict.fromkeys(FILTERS) | {column: "a"}
            statement = RATED if column == "feedback" else LISTED
            plan = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {statement}", names)]
            if column != "feedback":  # it is looked up for each turn, beyond the index
                assert "SEARCH layer USING COVERING INDEX layer_found (turn<?)" in plan
            assert not [it for it in plan if it.startswith("SCAN")], plan
        for statement in (OPEN, LAST_FINISHED):
            plan = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {statement}", names | {"sid": "a"})]
            assert {it for it in plan if it.startswith("SCAN")} <= {
                "SCAN session USING INDEX session_left"
            }  # what waits
