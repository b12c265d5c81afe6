"""Sessions for the operator to read: the turns of one chat with one agent, from one `/new` to the next.

A chat keeps its key forever; a `new` mark ends one session and starts the next. The list of all sessions counts their
turns without reading text; `read` adds the attributes of one session from its rows, for long ones only from the end,
which has the time. `names` resolves ids to names.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import orjson
from sqlalchemy import Connection, text

from gateway.store.sessions import conversation, session_parts

_TAIL_CHARS = 80
_TIME = re.compile(r'"timestamp":([0-9.e+]+),"role":"[A-Za-z]+"}$')
_SESSIONS = """
SELECT sid, begin, count(*) AS turns, max(turn) AS newest FROM (
    SELECT t.sid, t.turn, COALESCE((
        SELECT max(m.turn) FROM mark m WHERE m.sid = t.sid AND m.kind = 'new' AND m.turn < t.turn
    ), 0) AS begin
    FROM transcript t WHERE t.kind = 'user' AND t.sid NOT LIKE 'aside:%'
) AS turns GROUP BY sid, begin ORDER BY max(turn), sid
"""
"""Finds the turns by the index `transcript_turns` and counts them in the database, so no message text is read."""
_ROWS = """
SELECT kind, CASE WHEN kind = 'final' THEN content ELSE substr(content, length(content) - 80) END AS content
FROM transcript
WHERE sid = :sid AND turn > :after AND (turn <= :until OR :until < 0) AND kind IN ('user', 'final') ORDER BY seq
"""
_BEGINNINGS = "SELECT sid, turn FROM mark WHERE kind = 'new' ORDER BY sid, turn"
_ENTRIES = """
SELECT seq, turn, kind, content FROM transcript
WHERE sid = :sid AND turn > :after AND (turn <= :until OR :until < 0) ORDER BY seq
"""
_NAMES = """
SELECT seq, name FROM spoken
WHERE sid = :sid AND turn > :after AND (turn <= :until OR :until < 0) AND parts > 0 ORDER BY seq, place
"""
_BILLS = "SELECT sid, content, '' AS person FROM transcript WHERE kind = 'final'"
_BILLS_OF_PEOPLE = """
SELECT t.sid, t.content, COALESCE((
    SELECT s.person FROM spoken s WHERE s.turn = t.turn AND s.how IN ('said', 'withdrawn') AND s.person <> ''
    ORDER BY s.seq, s.place LIMIT 1
), (SELECT i.person FROM inbox i WHERE i.id = t.turn), '') AS person
FROM transcript t WHERE t.kind = 'final'
"""
"""A message stays in the inbox for seven days; after that only the turn's transcript names its sender."""
_MARKS = """
SELECT turn, kind, at, content FROM mark
WHERE sid = :sid AND turn > :after AND (turn <= :until OR :until < 0) AND kind NOT IN ('draft', 'under') ORDER BY turn, kind
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """The turns of `sid` above `after`, up to `until` if it has ended. `started` and `last` are the times of its
    first message and of its last turn's end; `tokens` are input, including cached, and output. These are 0 before it
    was `read`."""

    sid: str
    after: int
    until: int | None
    started: float = 0.0
    last: float = 0.0
    turns: int = 0
    tokens: int = 0

    @property
    def id(self) -> str:
        """A stable id, derived from the start of the session."""
        return sha256(f"{self.sid}\n{self.after}".encode(errors="surrogatepass")).hexdigest()[:12]


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelBill:
    """The share of one model in a turn; without a name the sum of all models, in rows of version 1.0."""

    model: str
    tokens: Mapping[str, int]
    cost: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnBill:
    """The tokens and cost of a turn or a command. `person` is `channel:id`, empty if unknown or not asked for."""

    sid: str
    person: str
    at: float
    models: Sequence[ModelBill]


def bills(connection: Connection, since: float, *, people: bool) -> Iterator[TurnBill]:
    """Yield the bills of all turns that called a model and ended at `since` or later, with their senders if `people`."""
    statement = text(_BILLS_OF_PEOPLE if people else _BILLS).execution_options(yield_per=500)
    for sid, content, person in connection.execute(statement):
        if not isinstance(final := _value(content), dict) or "tokens" not in final:
            continue
        if (at := float(final.get("at", 0.0))) >= since:
            models = [
                ModelBill(model=name, tokens=it["tokens"], cost=it.get("cost"))
                for name, it in final.get("models", {"": final}).items()
            ]
            yield TurnBill(sid=sid, person=person, at=at, models=models)


def sessions(connection: Connection) -> list[Session]:
    """List the sessions that have a turn, unread; the one with the newest message is last."""
    beginnings: dict[str, list[int]] = defaultdict(list)
    for row in connection.execute(text(_BEGINNINGS)):
        beginnings[row.sid].append(row.turn)

    def until(sid: str, after: int) -> int | None:
        return next((it for it in beginnings.get(sid, ()) if it > after), None)

    rows = connection.execute(text(_SESSIONS)).all()
    return [Session(sid=it.sid, after=it.begin, until=until(it.sid, it.begin), turns=it.turns) for it in rows]


def read(connection: Connection, session: Session) -> Session:
    """Return the session with its times and tokens, from its messages and the ends of its turns."""
    started, last, tokens = 0.0, 0.0, 0
    for row in _rows(connection, _ROWS, session):
        at = 0.0
        if row["kind"] == "user":
            at = float(found[1]) if (found := _TIME.search(row["content"])) else 0.0
            started = started or at
        elif isinstance(final := _value(row["content"]), dict):
            at = float(final.get("at", 0.0))
            counted = final.get("tokens") or {}
            tokens += sum(counted.get(it, 0) for it in ("input", "cache_read", "cache_write", "output"))
        last = max(last, at)
    return replace(session, started=started, last=last, tokens=tokens)


def entries(connection: Connection, session: Session) -> list[dict[str, Any]]:
    """List the whole transcript: turn number, kind, row (parsed if it is JSON) and speakers."""
    names: dict[int, dict[str, None]] = defaultdict(dict)
    for row in _rows(connection, _NAMES, session):
        names[row["seq"]][row["name"]] = None
    return [row | {"names": ", ".join(names[row["seq"]])} for row in _read(connection, _ENTRIES, session)]


def marks(connection: Connection, session: Session) -> list[dict[str, Any]]:
    """Return the marks of a session: those of commands and compaction, and users' reactions, but no drafts."""
    return list(_read(connection, _MARKS, session))


def _read(connection: Connection, statement: str, session: Session) -> Iterator[dict[str, Any]]:
    for row in _rows(connection, statement, session):
        yield {**row, "content": _value(row["content"])}


def _rows(connection: Connection, statement: str, session: Session) -> Iterator[Mapping[Any, Any]]:
    until = -1 if session.until is None else session.until
    names = {"sid": session.sid, "after": session.after, "until": until}
    yield from connection.execute(text(statement), names).mappings()


def _value(content: str) -> Any:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        return content


_SAID = """
SELECT sid, person, name, max(turn) AS turn FROM spoken WHERE how = 'said' AND name <> ''
GROUP BY sid, person, name ORDER BY max(turn)
"""
_CONTACTS = "SELECT channel, person, name FROM contact WHERE name <> ''"
_TITLES = "SELECT id, title FROM web_conversation WHERE title <> ''"
_GROUPS = """
SELECT sid, body FROM inbox WHERE id IN (SELECT max(turn) FROM spoken WHERE how = 'said' AND direct = 0 GROUP BY sid)
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Names:
    """Display names. `people` has the latest name by `channel:id`; `chats` has a title by `channel:account:id`: a
    group's or web conversation's own, otherwise the names of its speakers."""

    people: Mapping[str, str]
    chats: Mapping[str, str]

    def person(self, id_: str | None) -> str:
        return self.people.get(id_ or "", "")

    def chat(self, sid: str) -> str:
        """Return the title of a conversation's chat; empty without one."""
        return self.place(session_parts(conversation(sid)).place)

    def place(self, place: str) -> str:
        """Return the title of the chat `channel:account:id`."""
        return self.chats.get(place, "")


def names(connection: Connection) -> Names:
    people = {f"{it.channel}:{it.person}": str(it.name) for it in connection.execute(text(_CONTACTS))}
    speakers: dict[str, dict[str, None]] = defaultdict(dict)
    for it in connection.execute(text(_SAID)):
        people[it.person] = it.name
        speakers[session_parts(conversation(it.sid)).place][it.name] = None
    chats = {place: ", ".join(found) for place, found in speakers.items()}
    for it in connection.execute(text(_GROUPS)):
        if title := _title(it.body):
            chats[session_parts(conversation(it.sid)).place] = title
    chats |= {f"web:default:{it.id}": it.title for it in connection.execute(text(_TITLES))}
    return Names(people=people, chats=chats)


def _title(body: str) -> str:
    with suppress(ValueError, TypeError, KeyError):
        return orjson.loads(body)["context"]["chat"]["title"] or ""
    return ""
