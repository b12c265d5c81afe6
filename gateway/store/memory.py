"""What is remembered, on SQLite and PostgreSQL: people's notes, and the words of past turns as an index to search.

A session's index is made when it is searched, up to its last finished turn, so that a turn itself writes nothing for it.
It holds words only; what is shown of a turn is read from the transcript, where it may have been undone or erased since.
The words are made by one function for both databases (`tools.memory.terms`), which neither of them cuts up again.
"""

from collections.abc import Sequence
from hashlib import sha256

from pydantic import ValidationError
from sqlalchemy import Connection, text

from agents.messages import message_json
from agents.prompt.inbound import spoken
from gateway.store.records import Entry
from gateway.store.writer import Database, is_shared, reads, run, writes
from tools.memory import Note, terms

STEP_ROWS = 200
"""Rows of a transcript that one step adds to the index."""
ROWS_AT_ONCE = 8
NOTES_MAX = 200
"""Of one person with one agent."""
_LOCK_KEY = 7_305_843_001_219

_UNINDEXED = """
SELECT seq, turn, CASE WHEN kind IN ('user', 'steered', 'assistant') THEN content ELSE '' END AS content FROM transcript
WHERE sid = :sid AND seq > :done
AND seq <= (SELECT seq FROM transcript WHERE sid = :sid AND kind = 'final' ORDER BY seq DESC LIMIT 1)
ORDER BY seq LIMIT :limit
"""
_INDEXED = """
INSERT INTO indexed (sid, seq) SELECT :sid, :seq WHERE EXISTS (SELECT 1 FROM transcript WHERE sid = :sid AND seq = :seq)
ON CONFLICT (sid) DO UPDATE SET seq = excluded.seq WHERE indexed.seq = :done RETURNING seq
"""
"""Nothing where somebody else has indexed the same, or the session was erased meanwhile."""
_TURNS = """
SELECT turn, kind, content FROM transcript t WHERE sid = :sid AND turn IN :turns
AND NOT EXISTS (SELECT 1 FROM mark m WHERE m.sid = t.sid AND m.kind = 'undone' AND m.turn = t.turn)
AND EXISTS (SELECT 1 FROM transcript f WHERE f.sid = t.sid AND f.turn = t.turn AND f.kind = 'final')
ORDER BY seq
"""
_TAKE_NOTE = """
INSERT INTO note (sender, agent, number, turn, text, at)
SELECT :sender, :agent, (SELECT COALESCE(max(number), 0) + 1 FROM note WHERE sender = :sender AND agent = :agent),
    :turn, :text, :at
WHERE (SELECT count(*) FROM note WHERE sender = :sender AND agent = :agent AND text <> '') < :notes_max
ON CONFLICT DO NOTHING
"""
_DELETE_NOTE = """
UPDATE note SET text = '', deleted = :turn WHERE sender = :sender AND agent = :agent AND number = :number
AND (text <> '' OR deleted = :turn) RETURNING number
"""


class DatabaseMemory(Database):
    """A person is `channel:account:id`, as the inbox names its senders."""

    @writes
    def take_note(
        self, connection: Connection, sender: str, agent: str, words: str, *, turn: int, at: float
    ) -> int | None:
        """The number of the note that the message `turn` had taken, once; None where there are too many."""
        row = {"sender": sender, "agent": agent, "turn": turn, "text": words, "at": at, "notes_max": NOTES_MAX}
        if is_shared(connection):  # the person may have another taken at the same moment, in another chat
            run(connection, "SELECT pg_advisory_xact_lock(:key)", key=_LOCK_KEY)
        run(connection, _TAKE_NOTE, **row)
        number: int | None = run(connection, "SELECT number FROM note WHERE turn = :turn", turn=turn).scalar()
        return number

    @reads
    def notes(self, connection: Connection, sender: str, agent: str) -> Sequence[Note]:
        """Oldest first."""
        theirs = "SELECT number, at, text FROM note WHERE sender = :sender AND agent = :agent AND text <> ''"
        rows = run(connection, f"{theirs} ORDER BY number", sender=sender, agent=agent)
        return [Note(number=row.number, at=row.at, text=row.text) for row in rows]

    @writes
    def delete_note(self, connection: Connection, sender: str, agent: str, number: int, *, turn: int) -> bool:
        """Whether there was one; also True where the message `turn` has deleted it before."""
        row = {"sender": sender, "agent": agent, "number": number, "turn": turn}
        return run(connection, _DELETE_NOTE, **row).first() is not None

    async def search(self, sid: str, wanted: Sequence[str], limit: int) -> Sequence[int]:
        """The numbers of finished turns of the session: first those with every one of the wanted terms, then those with
        some; each newest first, and `limit` of either at most."""
        while step := await self._unindexed(sid):
            await self._index(sid, *step)
        return await self._matching(sid, wanted, limit)

    @reads
    def turns(self, connection: Connection, sid: str, turns: Sequence[int]) -> Sequence[Entry]:
        """The transcript of those that are finished and in the history, in order."""
        return [Entry(**row) for row in run(connection, _TURNS, sid=sid, turns=list(turns)).mappings()]

    @reads
    def _unindexed(self, connection: Connection, sid: str) -> tuple[int, int, Sequence[tuple[int, str]]] | None:
        """The next step of the index: behind which row it begins, with which it ends, and turns with their terms."""
        done: int = run(connection, "SELECT seq FROM indexed WHERE sid = :sid", sid=sid).scalar() or 0
        new = text(_UNINDEXED).execution_options(yield_per=ROWS_AT_ONCE)  # a picture in each may be megabytes
        last, found = done, []
        for row in connection.execute(new, {"sid": sid, "done": done, "limit": STEP_ROWS}):
            last = row.seq
            if row.content and (words := terms(_words(row.content))):
                found.append((row.turn, " ".join(words)))
        return (done, last, found) if last > done else None

    @writes
    def _index(self, connection: Connection, sid: str, done: int, last: int, found: Sequence[tuple[int, str]]) -> None:
        """Once, whoever else does the same."""
        if run(connection, _INDEXED, sid=sid, done=done, seq=last).first() is None:
            return
        value = "array_to_tsvector(string_to_array(:terms, ' '))" if is_shared(connection) else ":terms"
        mine = "" if is_shared(connection) else f"{_scope(sid)} "
        rows = [{"sid": sid, "turn": turn, "terms": mine + words} for turn, words in found]
        if rows:
            connection.execute(text(f"INSERT INTO word (sid, turn, terms) VALUES (:sid, :turn, {value})"), rows)

    @reads
    def _matching(self, connection: Connection, sid: str, wanted: Sequence[str], limit: int) -> Sequence[int]:
        found: dict[int, None] = {}
        for both in (True, False):
            if is_shared(connection):
                matching = "terms @@ CAST(:query AS tsquery) ORDER BY id"
                query = (" & " if both else " | ").join(f"'{it}'" for it in wanted)
            else:
                matching = "word MATCH :query ORDER BY rowid"
                terms_wanted = (" AND " if both else " OR ").join(f'"{it}"' for it in wanted)
                query = f'"{_scope(sid)}" AND ({terms_wanted})'
            turns = f"SELECT turn FROM word WHERE sid = :sid AND {matching} DESC LIMIT :limit"
            found |= dict.fromkeys(run(connection, turns, sid=sid, query=query, limit=limit).scalars())
        return list(found)


def forget_notes(connection: Connection, channel: str, person: str) -> int:
    """Whatever bot they were given to; how many there were."""
    senders = run(connection, "SELECT DISTINCT sender FROM note").scalars()
    theirs = [it for it in senders if (it.partition(":")[0], it.split(":", 2)[2]) == (channel, person)]
    return run(connection, "DELETE FROM note WHERE sender IN :theirs", theirs=theirs).rowcount


def forget(connection: Connection, sids: Sequence[str]) -> None:
    """Nothing of the sessions is left in the index."""
    for sid in sids:
        run(connection, "DELETE FROM indexed WHERE sid = :sid", sid=sid)
        if is_shared(connection):
            run(connection, "DELETE FROM word WHERE sid = :sid", sid=sid)
        else:
            theirs = "SELECT rowid FROM word WHERE word MATCH :scope"
            run(connection, f"DELETE FROM word WHERE rowid IN ({theirs})", scope=f'"{_scope(sid)}"')
    if sids and not is_shared(connection):  # a row that is deleted stays in the index until it is written anew
        run(connection, "INSERT INTO word (word) VALUES ('optimize')")


def _scope(sid: str) -> str:
    """The session as a term, so that the index finds it at once; no word has that sign."""
    return f"§{sha256(sid.encode(errors='surrogatepass')).hexdigest()[:32]}"


def _words(content: str) -> str:
    try:
        return spoken(message_json.validate_json(content))
    except ValidationError:  # one bad row cannot break a search
        return ""
