"""Erase parts of sessions and the rows of a user, on either engine.

A `Portion` names the turns and messages to erase; all of them are found before anything is deleted. A number is the
inbox's and is never reused, so it names a turn in every table. An inbox row keeps its keys until they expire, but not
its sender, so a redelivery is still recognised. The sessions are then claimed, and rows are deleted in many short
transactions next to a running gateway. Deleted data is overwritten, and `scrub` empties SQLite's log.
"""

import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson
from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import SQLAlchemyError

from gateway.config.root import DatabaseConfig
from gateway.store import holdings, later, memory
from gateway.store.approvals import forget_approvals
from gateway.store.branches import close_over
from gateway.store.changes import (
    COPIES,
    REVISE,
    forget_reminders,
    uploads_of,
    withdraw,
    withdraw_copies,
)
from gateway.store.chatter import LANGUAGE, REACTION
from gateway.store.errors import NOTIFY_CHANNEL
from gateway.store.files import FORGET_PENDING
from gateway.store.migrate import OVERWRITES, DatabaseUnusable
from gateway.store.operations import Database, is_shared, reads, run
from gateway.store.sessions import CHOICE, all_beside, conversation, is_of_person, session_parts, task_of
from gateway.store.statements import NEVER
from gateway.store.tasks import children_of, forget_tasks
from tools.tool import line_source, turn_source

_MESSAGES = """
SELECT s.message FROM spoken s WHERE s.sid IN :sids AND s.turn > :after AND s.turn <= :until AND s.parts > 0 AND NOT EXISTS (
    SELECT 1 FROM spoken e WHERE e.sid = s.sid AND e.message = s.message AND e.turn <= :after AND e.parts > 0
)
"""
"""The messages of some turns, without those that they answer again."""
_AGAIN = """
SELECT DISTINCT turn FROM spoken WHERE sid = :sid AND turn > :until AND parts > 0 AND message <> '' AND message IN (
    SELECT s.message FROM spoken s WHERE s.sid = :sid AND s.turn > :after AND s.turn <= :until AND s.parts > 0
    AND NOT EXISTS (
        SELECT 1 FROM spoken e WHERE e.sid = s.sid AND e.message = s.message AND e.turn <= :after AND e.parts > 0
    )
)
"""
"""Later turns that answer one of these messages again, for example on another branch."""
_TURNS = "SELECT DISTINCT turn FROM transcript WHERE sid IN :sids AND turn > :after AND turn <= :until"
_ACCEPTED = """
SELECT id, body FROM inbox WHERE sid IN :sids AND id > :after AND id <= :until AND status <> 0
UNION ALL SELECT id, body FROM inbox WHERE sid IN :sids AND id > :after AND id <= :until AND status = 0
"""
_SAID = "SELECT sid, turn, message, direct FROM spoken WHERE person = :person AND how <> 'heard'"
_SENT = "SELECT id, sid, turn, body FROM inbox WHERE person = :person"
_COPIES = "SELECT id, sid, turn, body FROM inbox WHERE sid IN :sids AND again IS NOT NULL AND body LIKE :named"


@dataclass(kw_only=True, slots=True)
class Portion:
    """A part of a session to erase: turns by number and messages by id. `all_between`: every turn above one number
    and up to another, with settings and summaries; None for one user's messages in a group. `again` are later turns
    that answer its messages again. `direct`: only that user writes there. `whole`: nothing is left there afterwards."""

    sid: str
    numbers: set[int] = field(default_factory=set)
    messages: set[str] = field(default_factory=set)
    all_between: tuple[int, int] | None = None
    again: Sequence[int] = ()
    direct: bool = False
    whole: bool = False
    before: float = 0.0
    """Set if its turns go because they are older than this: reminders that wait, choices and counts of usage stay."""

    @property
    def sids(self) -> list[str]:
        return [self.sid, *all_beside(self.sid)]

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The turns to erase completely, each as a range above one number up to another."""
        return [*([self.all_between] if self.all_between else ()), *((it - 1, it) for it in self.again)]


def spans_of(connection: Connection, sid: str, after: int, until: int | None, *, before: float = 0.0) -> list[Portion]:
    """Return everything of a session between two turns, including later turns that answer its messages again and the
    tasks started in them. `before` is given for turns that are only too old."""
    last = NEVER if until is None else until
    again = list(run(connection, _AGAIN, sid=sid, after=after, until=last).scalars())
    own = Portion(sid=sid, all_between=(after, last), again=again, before=before)
    asked = [it for span in own.spans for it in children_of(connection, sid, *span)]
    portions = [own, *(Portion(sid=it, all_between=(-1, NEVER)) for it in asked)]
    for portion in portions:
        _fill(connection, portion)
    return portions


def portions_of(connection: Connection, channel: str, person: str) -> list[Portion]:
    """Find everything of a user: their own sessions, and the turns in groups that answer them."""
    portions: dict[str, Portion] = {}
    named, who = f'%"id":{orjson.dumps(person).decode()}%', f"{channel}:{person}"

    def found(row: Any, numbers: Iterable[int], message: str, direct: bool) -> None:
        sid = conversation(row.sid)
        portion = portions.setdefault(sid, Portion(sid=sid))
        portion.numbers.update(numbers)
        portion.messages |= {message} - {""}
        portion.direct = portion.direct or direct

    for row in run(connection, _SAID, person=who):
        found(row, [row.turn], row.message, bool(row.direct))
    sent = run(connection, _SENT, person=who).all()
    sids = {*portions, *(row.sid for row in sent)}
    sids |= {beside for it in sids for beside in all_beside(conversation(it))}
    for row in (*sent, *run(connection, _COPIES, sids=sorted(sids), named=named)):
        body = orjson.loads(row.body) if row.body else {"context": {"chat": {}}}
        context = body["context"]
        if row in sent or person in [it["sender"]["id"] for it in (context, *body.get("together", ()))]:
            found(
                row,
                {row.id, row.turn or row.id},
                context.get("message_id", ""),
                context["chat"].get("kind") == "direct",
            )
    for portion in portions.values():
        if portion.direct or session_parts(portion.sid).sender == person:
            portion.all_between = (-1, NEVER)
        _fill(connection, portion)
    return list(portions.values())


def _fill(connection: Connection, portion: Portion) -> None:
    for after, until in portion.spans:
        names = {"sids": portion.sids, "after": after, "until": until}
        portion.numbers.update(run(connection, _TURNS, **names).scalars())
        portion.messages.update(run(connection, _MESSAGES, **names).scalars())
        for row in run(connection, _ACCEPTED, **names):
            portion.numbers.add(row.id)
            with suppress(orjson.JSONDecodeError):
                portion.messages.add(orjson.loads(row.body)["context"]["message_id"])
    kept = run(connection, "SELECT DISTINCT turn FROM transcript WHERE sid = :sid", sid=portion.sid).scalars()
    waiting = run(connection, "SELECT id FROM inbox WHERE sid = :sid AND status = 0", sid=portion.sid).scalars()
    portion.whole = {*kept, *waiting} <= portion.numbers


_CONVERSATIONS = "SELECT DISTINCT sid FROM transcript ORDER BY sid"
_ENDS = "SELECT turn, content FROM transcript WHERE sid = :sid AND kind = 'final' ORDER BY seq LIMIT :most"
ENDS_AT_ONCE = 500


def conversations(connection: Connection) -> list[str]:
    """Return the ids of the conversations that have turns."""
    return list(run(connection, _CONVERSATIONS).scalars())


def aged(connection: Connection, sid: str, before: float) -> list[Portion]:
    """Find the oldest turns of a conversation that ended before a time, at most `ENDS_AT_ONCE`."""
    until = None
    for row in run(connection, _ENDS, sid=sid, most=ENDS_AT_ONCE):
        with suppress(orjson.JSONDecodeError, KeyError):
            if orjson.loads(row.content)["at"] >= before:
                break
        until = row.turn
    return [] if until is None else spans_of(connection, sid, -1, until, before=before)


RELAYED = ("relayed", "asked", "taken", "over", "over:line")
"""The messages to the on-call chat that one message causes, by the end of their dedupe keys."""
TURNS_AT_ONCE = 50
ROWS_AT_ONCE = 500
_FORGET = """
UPDATE inbox SET body = '', sid = '', sender = NULL, person = NULL, turn = NULL, status = 3
WHERE id IN :numbers
"""
_STOP = """
UPDATE session SET stopped = COALESCE((SELECT max(id) + 1 FROM inbox WHERE sid = session.id AND status = 0), stopped)
WHERE id IN :sids
"""
_RECOUNT = """
UPDATE session SET owner = NULL,
    pending = (SELECT count(*) FROM inbox WHERE inbox.sid = session.id AND inbox.status = 0)
WHERE id IN :sids
"""
_CLOSE_GAPS = """
DELETE FROM gap WHERE sid IN :sids AND NOT EXISTS (SELECT 1 FROM web_message WHERE chat = :chat AND follows IS NOT NULL)
"""
"""The last branch of a conversation needs no gaps: its messages do not mention branches, so no turn would correct
them."""
_NOTICES = """
SELECT id, body FROM inbox WHERE dedupe >= 'gateway:notice:' AND dedupe < 'gateway:notice;' AND body <> '' AND status <> 0
"""
_WITH_FILES = "SELECT sid, seq, message, parts FROM spoken WHERE turn IN :numbers AND parts > 0"
_QUOTED = """
SELECT DISTINCT sid, seq, turn, 0 AS parts FROM spoken WHERE message IN :messages AND sid = :sid AND how = 'quoted'
"""
_HEARD = "SELECT DISTINCT sid, seq, turn, 0 AS parts FROM spoken WHERE how = 'heard' AND person IN :people"
_LEFT = """
SELECT 1 FROM transcript WHERE sid = :sid UNION ALL SELECT 1 FROM inbox WHERE sid = :sid AND status = 0 LIMIT 1
"""
_MARKS = """
DELETE FROM mark WHERE sid = :sid AND turn > :after AND (
    turn <= :until AND kind IN :kinds
    OR kind = 'summary' AND (:again > 0 OR EXISTS (SELECT 1 FROM gap WHERE sid = :sid))
)
"""
"""A summary made later may stand for these turns too."""
_MARKS_OF_TURNS = """
DELETE FROM mark WHERE sid IN :sids AND (kind = 'under' OR kind LIKE 'reaction %') AND turn IN :numbers
"""


def claim(connection: Connection, portions: Sequence[Portion], *, served: bool) -> list[str]:
    """Take these sessions from their workers. Return the sessions in use, whose workers are asked to stop; if there
    are none, no turn of the portions runs any more. `served`: a gateway runs on the SQLite file."""
    sids = sorted({sid for it in portions for sid in it.sids})
    held = run(connection, "UPDATE session SET pending = pending WHERE id IN :sids RETURNING id, owner", sids=sids)
    owners = {row.id: row.owner for row in held if row.owner is not None}
    active = list(owners) if served else []
    if is_shared(connection):
        living = "SELECT id FROM worker WHERE id IN :owners AND NOT pg_try_advisory_xact_lock(lock_key)"
        alive = {row.id for row in run(connection, living, owners=sorted(set(owners.values())))}
        active = [sid for sid, owner in owners.items() if owner in alive]
    if active:
        whole = [sid for it in portions if it.all_between and it.all_between[1] == NEVER for sid in it.sids]
        run(connection, _STOP, sids=whole)
        if is_shared(connection):
            for sid in whole:
                run(connection, "SELECT pg_notify(:channel, :sid)", channel=NOTIFY_CHANNEL, sid=sid)
        return active
    waiting = run(connection, "SELECT id FROM inbox WHERE sid IN :sids AND status = 0", sids=sids).scalars().all()
    meant = {number for it in portions for number in it.numbers}
    run(connection, _FORGET, numbers=[it for it in waiting if it in meant])
    run(connection, _RECOUNT, sids=sids)
    run(connection, REVISE, sids=sids)
    return []


def forget_turns(connection: Connection, portion: Portion, numbers: Sequence[int]) -> Counter[str]:
    """Run one step: delete the rows of these turns and return the counts by kind."""
    numbers = [*numbers, *_relayed(connection, numbers)]
    names: dict[str, Any] = {"sids": portion.sids, "numbers": numbers}
    removed: Counter[str] = Counter()
    _forget_copies(connection, numbers, aged=portion.before > 0)
    words = "SELECT turn, content FROM transcript WHERE turn IN :numbers AND kind <> 'toolResult'"
    for row in () if portion.whole else run(connection, words, **names).all():
        memory.forget_turn(connection, portion.sid, row.turn, [row.content])
    payloads = run(connection, "SELECT payload FROM outbox WHERE turn IN :numbers", **names)
    files = {it["id"] for row in payloads for it in orjson.loads(row.payload)["part"].get("files", ())}
    removed["file"] += run(connection, "DELETE FROM file WHERE id IN :files", files=sorted(files)).rowcount
    removed.update(forget_approvals(connection, numbers))
    removed += holdings.forget_turns(connection, numbers)
    removed["mark"] += run(connection, _MARKS_OF_TURNS, **names).rowcount
    kept = "SELECT count(*) FROM inbox WHERE body <> '' AND id IN :numbers"
    removed["inbox"] += run(connection, kept, **names).scalar() or 0
    run(connection, _FORGET, **names)
    return removed


def _relayed(connection: Connection, numbers: Sequence[int]) -> Sequence[int]:
    """Return the gateway's messages to the on-call chat that these messages caused (`gateway.turns.handovers`)."""
    named = [f"gateway:handover:{number}:{what}" for number in numbers for what in RELAYED]
    sent = "SELECT id FROM inbox WHERE dedupe IN :named AND body <> '' AND status <> 0"
    return list(run(connection, sent, named=named).scalars())


def _forget_copies(connection: Connection, numbers: Sequence[int], *, aged: bool) -> None:
    """Remove what other turns repeat of these turns and their files, and the reminders created in them."""
    at, since = time.time(), min(numbers, default=0)
    sources = set(map(turn_source, numbers))
    for row in run(connection, _WITH_FILES, numbers=list(numbers)).all():
        sources |= uploads_of(connection, row.sid, row.message, [row])
    copying = forget_reminders(connection, numbers, at, only_ended=aged)
    copying |= withdraw_copies(connection, sources, since=since, at=at)
    run(connection, REVISE, sids=sorted({sid for sid, _ in copying}))


def forget_quotes(connection: Connection, portion: Portion, messages: Sequence[str]) -> None:
    """Remove what others quoted of these messages, in one step. A quote is metadata, which nothing reads once its
    turn has ended."""
    quoting = run(connection, _QUOTED, sid=portion.sid, messages=list(messages)).all()
    for row in quoting:
        withdraw(connection, row)
    names = {"numbers": [row.turn for row in quoting], "sids": portion.sids, "named": '%"reply_to":{%'}
    for row in run(connection, COPIES, **names).all():
        inbound = orjson.loads(row.body)
        if (inbound["context"].get("reply_to") or {}).get("message_id") in messages:
            inbound["context"]["reply_to"], inbound["event"] = None, ""
            body = orjson.dumps(inbound).decode()
            run(connection, "UPDATE inbox SET body = :body WHERE id = :id", body=body, id=row.id)


def forget_session(connection: Connection, portion: Portion) -> Counter[str]:
    """Remove what else belongs to a session once its turns are gone. If other users' turns stay, summarised turns
    are read again, because the summary may contain the user's text."""
    removed: Counter[str] = Counter()
    portion.whole = run(connection, _LEFT, sid=portion.sid).first() is None
    aged = portion.before > 0
    if portion.whole and not aged:
        everything = [portion.sid, CHOICE + portion.sid]
        removed["mark"] += run(connection, "DELETE FROM mark WHERE sid IN :sids", sids=everything).rowcount
    else:
        after, until = portion.all_between or (min(portion.numbers, default=0) - 1, NEVER)
        kinds = (
            ["summary", "undone"] if aged else ["summary", "settings", "undone"] if portion.all_between else ["summary"]
        )
        names = {"sid": portion.sid, "after": after, "until": until, "again": len(portion.again) + int(aged)}
        removed["mark"] += run(connection, _MARKS, kinds=kinds, **names).rowcount
    place = session_parts(portion.sid)
    for first, last in portion.spans:
        removed["task"] += forget_tasks(connection, [portion.sid], after=first, until=last)
    if portion.whole:
        run(connection, "DELETE FROM gap WHERE sid = :sid", sid=portion.sid)
    if portion.whole and portion.all_between:
        run(connection, "DELETE FROM session WHERE id IN :sids AND pending = 0", sids=portion.sids)
    if aged:
        holdings.forget_aged(connection, place.place, portion.before)
    if portion.whole and portion.all_between and not aged and not task_of(portion.sid):  # the chat is the sender's
        removed["later"] += later.forget_place(connection, place.place)
        spent = "DELETE FROM usage WHERE scope = :scope"
        removed["usage"] += run(connection, spent, scope=f"chat:{place.place}").rowcount
        removed["chatter"] += run(connection, "DELETE FROM chatter WHERE chat = :chat", chat=place.place).rowcount
    run(connection, REVISE, sids=portion.sids)
    return removed


def forget_person(connection: Connection, channel: str, person: str) -> Counter[str]:
    """Remove a user's data outside conversations, and their text that turns read from groups."""
    who, removed = f"{channel}:{person}", Counter[str]()
    scopes = run(connection, "SELECT DISTINCT scope FROM usage WHERE scope LIKE 'sender:%'").scalars()
    his = [it for it in scopes if is_of_person(it.removeprefix("sender:"), channel, person)]
    said = [
        it
        for it in run(connection, "SELECT DISTINCT sender FROM chatter").scalars()
        if is_of_person(it, channel, person)
    ]
    places = run(connection, "SELECT DISTINCT chat, sender FROM chatter WHERE sender IN :said", said=said).all()
    lines = {line_source(it.chat, it.sender) for it in places}
    marks = [it for prefix in (REACTION, LANGUAGE) for it in _marks_of(connection, prefix, channel, person)]
    heard = [it for it in run(connection, _HEARD, people=[who, ""]).all() if it.sid.split(":")[2:3] == [channel]]
    for row in heard:
        withdraw(connection, row)
    copying = withdraw_copies(connection, lines, since=0, at=time.time())
    run(connection, REVISE, sids=sorted({sid for sid, _ in copying}))
    removed["usage"] += run(connection, "DELETE FROM usage WHERE scope IN :his", his=his).rowcount
    removed["mark"] += run(connection, "DELETE FROM mark WHERE kind IN :kinds", kinds=marks).rowcount
    removed["task"] += forget_tasks(connection, [], who)
    theirs = [it for it in later.owners(connection) if is_of_person(it, channel, person)]
    removed["later"] += later.forget(connection, theirs)
    removed += holdings.forget(connection, channel, person)
    removed["outbox"] += _forget_notices(connection, channel, person)
    if channel == "web":
        removed["file"] += run(connection, FORGET_PENDING, owner=person).rowcount
    removed["chatter"] += run(connection, "DELETE FROM chatter WHERE sender IN :said", said=said).rowcount
    return removed


def _forget_notices(connection: Connection, channel: str, person: str) -> int:
    """Remove the notices to owners that named a user: one who was waiting, or who added the bot to a group."""
    name = re.compile(rf"(?<![\w-]){re.escape(channel)}:([^:`\s]+:)?{re.escape(person)}(?![\w-])")
    rows = run(connection, _NOTICES).all()
    turns = [row.id for row in rows if name.search(orjson.loads(row.body).get("arguments", ""))]
    for row in run(connection, "SELECT key, payload FROM outbox WHERE turn IN :turns", turns=turns).all():
        chat = orjson.loads(row.payload)["part"]["target"]["chat"]
        run(connection, "DELETE FROM web_message WHERE chat = :chat AND key = :key", chat=chat, key=row.key)
    removed = run(connection, "DELETE FROM outbox WHERE turn IN :turns", turns=turns).rowcount
    run(connection, _FORGET, numbers=turns)
    return removed


def _marks_of(connection: Connection, prefix: str, channel: str, person: str) -> list[str]:
    """Return the kinds of marks with this prefix that name the user."""
    word = prefix.strip()
    kinds = run(
        connection,
        "SELECT DISTINCT kind FROM mark WHERE kind >= :first AND kind < :end",
        first=word,
        end=word[:-1] + chr(ord(word[-1]) + 1),  # letters alone are in the same order in every collation of a database
    ).scalars()
    return [it for it in kinds if it.startswith(prefix) and is_of_person(it.removeprefix(prefix), channel, person)]


def forget_web(connection: Connection, portion: Portion) -> Counter[str]:
    """Run one step: delete what the web chat shows of it, and its files. A conversation that no agent remembers is
    deleted entirely. Empty once nothing is left."""
    chat, removed, files = session_parts(portion.sid).chat, Counter[str](), set[str]()
    found = run(connection, "SELECT id FROM session WHERE id LIKE :of", of=f"agent:%:web:%:{chat}").scalars().all()
    sids = [it for it in found if (session_parts(it).channel, session_parts(it).chat) == ("web", chat)]
    empty = run(connection, "SELECT 1 FROM transcript WHERE sid IN :sids LIMIT 1", sids=sids).first() is None
    rows = run(connection, "SELECT number, key, words, at FROM web_message WHERE chat = :chat", chat=chat).all()
    read = [(row, orjson.loads(row.words)) for row in rows]
    direct = {row.key for row, words in read if words.get("reply_to") in portion.messages}
    concerned = portion.messages | direct  # a press is answered under an answer
    aged = portion.before > 0
    empty = empty and not (aged and any(row.at >= portion.before for row in rows))
    gone = [
        (row, words)
        for row, words in read
        if empty or row.at < portion.before or concerned & {row.key, words.get("reply_to")}
    ][:ROWS_AT_ONCE]
    for _, words in gone:
        files.update(it["id"] for it in words.get("files", ()))
    numbers = [row.number for row, _ in gone]
    close_over(connection, chat, set(numbers))
    removed["web_message"] = run(
        connection, "DELETE FROM web_message WHERE number IN :numbers", numbers=numbers
    ).rowcount
    run(connection, _CLOSE_GAPS, sids=sids, chat=chat)
    removed["file"] = run(connection, "DELETE FROM file WHERE id IN :files", files=sorted(files)).rowcount
    if empty and len(gone) < ROWS_AT_ONCE:
        run(connection, "DELETE FROM web_conversation WHERE id = :chat", chat=chat)
        removed["file"] += run(connection, "DELETE FROM file WHERE chat = :chat", chat=chat).rowcount
    elif gone:  # its title are the first words
        run(connection, "UPDATE web_conversation SET title = '…' WHERE id = :chat", chat=chat)
    return +removed


_OWN_ROWS = "SELECT turn, kind, content FROM transcript WHERE sid = :sid AND turn IN :numbers ORDER BY seq"
_SHARED_ROWS = """
SELECT turn, kind, content FROM transcript t WHERE sid = :sid AND turn IN :numbers AND (kind = 'assistant' OR EXISTS (
    SELECT 1 FROM spoken s WHERE s.sid = t.sid AND s.seq = t.seq AND s.person = :who AND s.how = 'said'
)) ORDER BY seq
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class PersonData:
    """The data of a person: their part of each conversation with its rows, and the rows of other tables by table."""

    conversations: Sequence[tuple[Portion, Sequence[Mapping[str, Any]]]]
    tables: Mapping[str, Sequence[Mapping[str, Any]]]


class DatabasePeople(Database):
    @reads
    def held(self, connection: Connection, channel: str, person: str) -> PersonData:
        """Find everything of a person, for their copy: of a group only their own words and the answers."""
        portions, tables = portions_of(connection, channel, person), dict[str, list[Mapping[str, Any]]]()
        conversations = [(it, _turns_of(connection, it, f"{channel}:{person}")) for it in portions]
        own = [it for it in portions if it.all_between]
        sids = [sid for it in own for sid in (*it.sids, CHOICE + it.sid)]
        turns = sorted({number for it in own for number in it.numbers})
        for table, row in holdings.rows_of(connection, channel, person, sids=sids, turns=turns):
            tables.setdefault(table, []).append(row)
        return PersonData(conversations=conversations, tables=tables)


def _turns_of(connection: Connection, portion: Portion, who: str) -> Sequence[Mapping[str, Any]]:
    statement, numbers = _OWN_ROWS if portion.all_between else _SHARED_ROWS, sorted(portion.numbers)
    return [
        dict(row)
        for first in range(0, len(numbers), ROWS_AT_ONCE)
        for row in run(
            connection, statement, sid=portion.sid, who=who, numbers=numbers[first : first + ROWS_AT_ONCE]
        ).mappings()
    ]


SCRUB_SECONDS = 60.0


def scrub(config: DatabaseConfig) -> None:
    """Empty SQLite's log. A file from before deleted rows were overwritten is rewritten once. Raises
    DatabaseUnusable."""
    engine = create_engine(config.url, connect_args={"timeout": SCRUB_SECONDS})
    deadline = time.monotonic() + SCRUB_SECONDS
    try:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            if connection.exec_driver_sql("PRAGMA user_version").scalar() != OVERWRITES:
                connection.exec_driver_sql("VACUUM")
                connection.exec_driver_sql(f"PRAGMA user_version = {OVERWRITES}")
            while connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").scalar():
                if time.monotonic() > deadline:
                    raise _unscrubbed(config.path, "its log is in use")
                time.sleep(0.05)
    except SQLAlchemyError as error:
        reason = getattr(error, "orig", None) or error
        raise _unscrubbed(config.path, reason) from error
    finally:
        engine.dispose()


def _unscrubbed(file: str | None, reason: object) -> DatabaseUnusable:
    left = (
        f"{file}: all of it was removed, but the file was not rewritten ({reason}), so copies may be in its free pages"
    )
    return DatabaseUnusable(left, f"type: sqlite3 {file} 'VACUUM; PRAGMA wal_checkpoint(TRUNCATE)'")
