"""The turns to inspect: their records, the texts they share, and their journal rows.

A turn's record is written in the commit that ends it (`finish`), so every turn has its row and nothing needs repair
after a crash. Its prompt, tools and route are shared and stored once each, by hash. Everything else is read from the
journal, so recalled or erased content is missing here too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from gateway.store.operations import Database, reads, run, writes
from gateway.store.records import Entry, Work
from gateway.store.sessions import CHOICE, CONTROL, LOCAL_CHANNEL, session_parts
from gateway.store.statements import GAPS, NEVER

TURNS_MAX = 50
PRUNED_AT_ONCE = 500
RECALLED = '{"missing":["recalled"]}'
"""The record of a turn whose message was recalled."""
FILTERS = ("agent", "channel", "person", "outcome", "feedback")
RATINGS = {"good": '%"emoji":"👍"%', "bad": '%"emoji":"👎"%'}
LISTED = """
SELECT l.turn, l.sid, l.person, l.outcome, l.at, l.content, i.body, i.at AS accepted,
    (SELECT t.content FROM transcript t WHERE t.turn = l.turn AND t.kind = 'final' LIMIT 1) AS final,
    COALESCE((
        SELECT s.name FROM spoken s WHERE s.turn = l.turn AND s.how = 'said' ORDER BY s.seq DESC, s.place DESC LIMIT 1
    ), '') AS name
FROM layer l LEFT JOIN inbox i ON i.id = l.turn WHERE l.turn IN (
    SELECT turn FROM layer WHERE turn < :before
    AND (CAST(:agent AS TEXT) IS NULL OR agent = :agent) AND (CAST(:channel AS TEXT) IS NULL OR channel = :channel)
    AND (CAST(:person AS TEXT) IS NULL OR person = :person) AND (CAST(:outcome AS TEXT) IS NULL OR outcome = :outcome)
    ORDER BY turn DESC LIMIT :limit
) ORDER BY l.turn DESC
"""
"""Filters only the narrow index: finding a rare outcome among 100,000 turns takes a few milliseconds."""
RATED = """
SELECT l.turn, l.sid, l.person, l.outcome, l.at, l.content, i.body, i.at AS accepted,
    (SELECT t.content FROM transcript t WHERE t.turn = l.turn AND t.kind = 'final' LIMIT 1) AS final,
    COALESCE((
        SELECT s.name FROM spoken s WHERE s.turn = l.turn AND s.how = 'said' ORDER BY s.seq DESC, s.place DESC LIMIT 1
    ), '') AS name
FROM layer l LEFT JOIN inbox i ON i.id = l.turn WHERE l.turn IN (
    SELECT turn FROM layer WHERE turn < :before
    AND (CAST(:agent AS TEXT) IS NULL OR agent = :agent) AND (CAST(:channel AS TEXT) IS NULL OR channel = :channel)
    AND (CAST(:person AS TEXT) IS NULL OR person = :person) AND (CAST(:outcome AS TEXT) IS NULL OR outcome = :outcome)
    AND EXISTS (
        SELECT 1 FROM mark m WHERE m.sid = layer.sid AND m.turn = layer.turn AND m.kind LIKE 'reaction %'
        AND m.content LIKE :feedback
    )
    ORDER BY turn DESC LIMIT :limit
) ORDER BY l.turn DESC
"""
OPEN = """
SELECT i.id AS turn, i.sid, i.body, i.at AS accepted, EXISTS (
    SELECT 1 FROM transcript t WHERE t.turn = i.id AND t.kind = 'user'
) AS begun FROM inbox i
WHERE i.status = 0 AND i.sid NOT LIKE 'aside:%' AND i.sid IN (
    SELECT id FROM session WHERE owner IS NOT NULL UNION ALL SELECT id FROM session WHERE owner IS NULL AND pending > 0
) ORDER BY i.id DESC LIMIT :limit
"""
_NAMES = "SELECT message, name FROM spoken WHERE turn = :turn AND how = 'said' ORDER BY seq, place"
_TITLES = "SELECT id, title FROM web_conversation WHERE id IN :chats"
_LAYER = """
SELECT l.turn, l.sid, l.person, l.outcome, l.at, l.content, l.tools AS tools_hash,
    COALESCE((SELECT content FROM layer_text WHERE hash = l.prompt), '[]') AS prompt,
    COALESCE((SELECT content FROM layer_text WHERE hash = l.tools), '[]') AS tools,
    COALESCE((SELECT content FROM layer_text WHERE hash = l.route), '{}') AS route
FROM layer l WHERE l.turn = :turn
"""
_ROWS = "SELECT sid, seq, kind, content FROM transcript WHERE turn = :turn ORDER BY seq"
_MESSAGES = """
SELECT id, sid, body, at, status FROM inbox WHERE id = :turn
UNION SELECT id, sid, body, at, status FROM inbox WHERE turn = :turn ORDER BY 1
"""
_PARTS = """
SELECT part, key, payload, status, ext_id, attempts, ambiguous, reason, created FROM outbox WHERE turn = :turn ORDER BY part
"""
_APPROVALS = "SELECT id, tool, state, decided_by, decided_at, created FROM approval WHERE turn = :turn ORDER BY created"
LAST_FINISHED = (
    "SELECT turn FROM transcript WHERE sid = :sid AND kind = 'final' AND turn < :before ORDER BY seq DESC LIMIT 1"
)
_MARKS_OF = """
SELECT turn, kind, content FROM mark WHERE sid = :sid AND at <= :until AND kind IN ('new', 'summary', 'settings', 'undone')
AND (kind <> 'new' OR turn < :turn) ORDER BY turn
"""
_TURNS_BEFORE = """
SELECT turn, kind, content FROM transcript WHERE sid = :sid AND turn < :turn AND turn > :begin AND seq >= COALESCE((
    SELECT u.seq FROM transcript u WHERE u.sid = :sid AND u.kind = 'user' AND u.turn < :turn ORDER BY u.seq DESC
    LIMIT 1 OFFSET :skip
), 0) ORDER BY seq
"""
_CHOSEN = "SELECT content FROM mark WHERE sid = :sid AND kind = 'settings' AND at <= :until ORDER BY turn DESC LIMIT 1"
_UNKEPT = """
SELECT count(*) FROM transcript t WHERE t.kind = 'final' AND t.turn > :after AND t.sid NOT LIKE 'aside:%'
AND NOT EXISTS (SELECT 1 FROM layer l WHERE l.turn = t.turn)
"""
_FORGET_TEXTS = """
DELETE FROM layer_text WHERE hash NOT IN (
    SELECT prompt FROM layer UNION SELECT tools FROM layer UNION SELECT route FROM layer
)
"""
_OLDEST = "SELECT turn, at FROM layer ORDER BY turn LIMIT :most"


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerRow:
    """The row of one turn's record. `prompt`, `tools` and `route` are hashes of `texts`; `content` is the rest, as
    JSON."""

    agent: str
    channel: str
    person: str
    outcome: str
    at: float
    prompt: str = ""
    tools: str = ""
    route: str = ""
    content: str = "{}"
    texts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ListedTurn:
    """A turn of the list: its record and its journal data. `final` and `body` are None if they are gone; `content`
    is empty if no record was stored or the turn has not ended."""

    turn: int
    sid: str
    content: str = ""
    final: str | None = None
    body: str | None = None
    accepted: float | None = None
    begun: bool = True
    name: str = ""
    person: str = ""
    outcome: str = ""
    at: float | None = None
    title: str = ""


@dataclass(frozen=True, kw_only=True)
class StoredTurn(ListedTurn):
    """Everything that the database has about one turn. `prompt`, `tools` and `route` are JSON."""

    rows: Sequence[Mapping[str, Any]]
    messages: Sequence[Mapping[str, Any]]
    parts: Sequence[Mapping[str, Any]]
    approvals: Sequence[Mapping[str, Any]]
    names: Mapping[str, str]
    """The senders' names by message id."""
    prompt: str = "[]"
    tools: str = "[]"
    tools_hash: str = ""
    route: str = "{}"


class DatabaseLayers(Database):
    @reads
    def listed(
        self, connection: Connection, *, before: int | None, only: Mapping[str, str], limit: int = TURNS_MAX
    ) -> Sequence[ListedTurn]:
        """Return the newest turns below `before`; without it, waiting and running turns come first. `only` filters
        by the columns agent, channel, person and outcome; `feedback` is good or bad."""
        wanted = {name: only.get(name) or None for name in FILTERS}
        statement = RATED if wanted["feedback"] else LISTED
        wanted["feedback"] = RATINGS.get(wanted["feedback"] or "", "")
        below = NEVER if before is None else before
        return _listed(connection, statement, before=below, limit=limit, **wanted)

    @reads
    def unfinished(self, connection: Connection, limit: int = TURNS_MAX) -> Sequence[ListedTurn]:
        """Return waiting and running turns, newest first."""
        return _listed(connection, OPEN, limit=limit)

    @reads
    def get(self, connection: Connection, turn: int) -> StoredTurn | None:
        """Return a turn; None if it does not exist or is a command's."""
        layer: dict[str, Any] = next(iter(_rows(connection, _LAYER, turn=turn)), {})
        rows, messages = _rows(connection, _ROWS, turn=turn), _rows(connection, _MESSAGES, turn=turn)
        own = next((it for it in messages if it["id"] == turn), None)
        sid = next((it["sid"] for it in (layer, *rows[:1], own) if it), "")
        if not sid or sid.startswith(CONTROL):
            return None
        names = {row.message: row.name for row in run(connection, _NAMES, turn=turn)}
        return StoredTurn(
            **layer | {"turn": turn, "sid": sid},
            final=next((it["content"] for it in rows if it["kind"] == "final"), None),
            body=own["body"] if own else None,
            accepted=own["at"] if own else None,
            begun=any(it["kind"] == "user" for it in rows),
            name=next(iter(names.values()), ""),
            title=_titles(connection, [sid]).get(sid, ""),
            rows=rows,
            messages=messages,
            parts=_rows(connection, _PARTS, turn=turn),
            approvals=_rows(connection, _APPROVALS, turn=turn),
            names=names,
        )

    @reads
    def last(self, connection: Connection, sid: str, before: int) -> int | None:
        """Return the newest finished turn of a conversation below that number."""
        turn: int | None = run(connection, LAST_FINISHED, sid=sid, before=before).scalar()
        return turn

    @reads
    def stood(self, connection: Connection, sid: str, turn: int, *, until: float, history_turns: int) -> Work:
        """Return the conversation as a turn that began at `until` saw it: content that was summarised or undone
        later is included, and later settings are not."""
        gaps = [tuple(it) for it in run(connection, GAPS, sid=sid, turn=turn)]

        def is_read(number: int, kind: str = "") -> bool:
            return kind == "settings" or not any(first <= number < last for first, last in gaps)

        marks = [Entry(**row) for row in run(connection, _MARKS_OF, sid=sid, turn=turn, until=until).mappings()]
        marks = [it for it in marks if is_read(it.turn, it.kind)]
        begin = max((it.turn for it in marks if it.kind in ("new", "summary")), default=0)
        undone = {it.turn for it in marks if it.kind == "undone"}
        rows = run(connection, _TURNS_BEFORE, sid=sid, turn=turn, begin=begin, skip=history_turns - 1).mappings()
        history = [Entry(**row) for row in rows if row["turn"] not in undone and is_read(row["turn"])]
        return Work.of([], [*(it for it in marks if it.kind != "undone"), *history])

    @reads
    def chosen(self, connection: Connection, key: str, until: float) -> str:
        """Return the choice for a chat (`gateway.state.choices`) at that time; empty if there was none."""
        return run(connection, _CHOSEN, sid=CHOICE + key, until=until).scalar() or ""

    @reads
    def unkept(self, connection: Connection, after: int) -> int:
        """Count the finished turns above that number without stored layers."""
        return int(run(connection, _UNKEPT, after=after).scalar() or 0)

    @writes
    def prune(self, connection: Connection, before: float) -> bool:
        """Run one step: delete records of turns that ended before that time. Return whether there may be more."""
        oldest = run(connection, _OLDEST, most=PRUNED_AT_ONCE).all()
        gone = [row.turn for row in oldest if row.at < before]
        run(connection, "DELETE FROM layer WHERE turn IN :gone", gone=gone)
        return bool(gone) and len(gone) == PRUNED_AT_ONCE

    @writes
    def prune_texts(self, connection: Connection) -> None:
        forget_texts(connection)


def forget_texts(connection: Connection) -> int:
    """Delete the texts that no turn refers to."""
    return run(connection, _FORGET_TEXTS).rowcount


def _listed(connection: Connection, statement: str, **params: Any) -> Sequence[ListedTurn]:
    found = _rows(connection, statement, **params)
    titles = _titles(connection, [row["sid"] for row in found])
    return [ListedTurn(**row, title=titles.get(row["sid"], "")) for row in found]


def _titles(connection: Connection, sids: Sequence[str]) -> dict[str, str]:
    """Return the titles of the sessions that are conversations of the page."""
    chats = {sid: place.chat for sid in sids if (place := session_parts(sid)).channel == LOCAL_CHANNEL}
    found = {row.id: row.title for row in run(connection, _TITLES, chats=sorted({*chats.values()}))}
    return {sid: found.get(chat, "") for sid, chat in chats.items()}


def _rows(connection: Connection, statement: str, **params: Any) -> Sequence[dict[str, Any]]:
    return [dict(row) for row in run(connection, statement, **params).mappings()]
