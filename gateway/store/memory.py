"""Memory on SQLite and PostgreSQL: users' notes, and a word index of past turns.

A search first indexes its session up to the last finished turn, so a turn itself writes nothing to the index. The index
holds only words; results are read from the transcript, from which they may have been undone or erased.
`tools.memory.terms` extracts the words for both databases. They are in a plain table: a full-text index keeps a deleted
word until its segment is rewritten, which blocks the writer for seconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from pydantic import ValidationError
from sqlalchemy import Connection, text

from agents.messages import message_json
from agents.prompt.inbound import spoken
from gateway.store.operations import Database, Lock, lock, reads, run, writes
from gateway.store.records import Entry
from tools.memory import Note, terms

STEP_ROWS, STEP_TERMS = 200, 5_000
"""Transcript rows that one step adds to the index, and the number of terms after which it adds no further row."""
ROWS_AT_ONCE = 8
NOTES_MAX = 200
"""Most notes of one user with one agent."""

_UNINDEXED = """
SELECT seq, turn, CASE WHEN kind IN ('user', 'steered', 'assistant') THEN content ELSE '' END AS content FROM transcript
WHERE sid = :sid AND seq > :done
AND seq <= (SELECT seq FROM transcript WHERE sid = :sid AND kind = 'final' ORDER BY seq DESC LIMIT 1)
ORDER BY seq LIMIT :limit
"""
_DONE = "SELECT revision, (SELECT seq FROM indexed WHERE sid = session.id) AS seq FROM session WHERE id = :sid"
_INDEXED = """
INSERT INTO indexed (sid, seq)
SELECT :sid, CAST(:seq AS BIGINT) WHERE EXISTS (SELECT 1 FROM transcript WHERE sid = :sid AND seq = :seq)
ON CONFLICT (sid) DO UPDATE SET seq = excluded.seq WHERE indexed.seq = :done RETURNING seq
"""
"""Writes nothing if another reader has indexed the same rows, or the session was erased."""
_TURNS = """
WITH gaps AS (SELECT first, last FROM gap WHERE sid = :sid AND turn = (SELECT max(turn) FROM gap WHERE sid = :sid))
SELECT turn, kind, content FROM transcript t WHERE sid = :sid AND turn IN :turns
AND NOT EXISTS (SELECT 1 FROM gaps WHERE t.turn >= first AND t.turn < last)
AND NOT EXISTS (SELECT 1 FROM mark m WHERE m.sid = t.sid AND m.kind = 'undone' AND m.turn = t.turn)
AND EXISTS (SELECT 1 FROM transcript f WHERE f.sid = t.sid AND f.turn = t.turn AND f.kind = 'final')
ORDER BY seq
"""
_MATCHING = """
SELECT turn FROM word WHERE scope = :scope AND term IN :terms GROUP BY turn HAVING count(*) >= :least
ORDER BY turn DESC LIMIT :limit
"""
_SPEAKERS = """
SELECT person, min(turn) AS first, max(turn) AS last FROM spoken s WHERE sid = :sid AND how = 'said' AND person <> ''
AND turn < :before AND turn > COALESCE((
    SELECT max(turn) FROM mark WHERE sid = :sid AND kind = 'new' AND turn < :before
), 0) AND NOT EXISTS (SELECT 1 FROM mark m WHERE m.sid = s.sid AND m.kind = 'undone' AND m.turn = s.turn)
GROUP BY person ORDER BY person
"""
_SPEAKERS_IN = """
SELECT DISTINCT turn, person FROM spoken WHERE sid = :sid AND turn IN :turns AND how = 'said' AND person <> ''
ORDER BY turn, person
"""
_FORGET = """
DELETE FROM word WHERE scope = :scope AND (term, turn) IN (
    SELECT term, turn FROM word WHERE scope = :scope LIMIT :limit
)
"""
_TAKE_NOTE = """
INSERT INTO note (sender, agent, number, turn, text, at, sid)
SELECT :sender, :agent, (SELECT COALESCE(max(number), 0) + 1 FROM note WHERE sender = :sender AND agent = :agent),
    :turn, :text, :at, :sid
WHERE (SELECT count(*) FROM note WHERE sender = :sender AND agent = :agent AND text <> '') < :notes_max
ON CONFLICT DO NOTHING
"""
_CHANGE_NOTE = """
UPDATE note SET text = :text, at = :at WHERE sender = :sender AND agent = :agent AND number = :number AND text <> ''
RETURNING number
"""
_DELETE_NOTE = """
UPDATE note SET text = '', deleted = :turn WHERE sender = :sender AND agent = :agent AND number = :number
AND (text <> '' OR deleted = :turn) RETURNING number
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Speaker:
    """A user, `channel:id`, with the first and the last turn that holds their text."""

    person: str
    first: int
    last: int


class DatabaseMemory(Database):
    """Notes and the index. A user is `channel:account:id`, the form of the inbox's senders."""

    @writes
    def take_note(
        self,
        connection: Connection,
        sender: str,
        agent: str,
        words: str,
        *,
        turn: int,
        at: float,
        of: tuple[str, int] | None = None,
    ) -> int | None:
        """Store a note once for message `turn` and return its number. None if there are too many, or if the
        conversation `of` has a different revision than the one the note was based on."""
        row = {
            "sender": sender,
            "agent": agent,
            "turn": turn,
            "text": storable(words),
            "at": at,
            "notes_max": NOTES_MAX,
        }
        row["sid"] = of[0] if of else None
        if of and not holds(connection, *of):
            return None
        lock(connection, Lock.NOTES)  # the person may have another taken at the same moment, in another chat
        run(connection, _TAKE_NOTE, **row)
        number: int | None = run(connection, "SELECT number FROM note WHERE turn = :turn", turn=turn).scalar()
        return number

    @reads
    def notes(self, connection: Connection, sender: str, agent: str) -> Sequence[Note]:
        """Return the notes, oldest first."""
        theirs = """
        SELECT number, at, text FROM note WHERE sender = :sender AND agent = :agent AND text <> '' ORDER BY number
        """
        rows = run(connection, theirs, sender=sender, agent=agent)
        return [Note(number=row.number, at=row.at, text=row.text) for row in rows]

    @writes
    def change_note(
        self, connection: Connection, sender: str, agent: str, number: int, words: str, *, at: float
    ) -> bool:
        """Change a note. Return False if it does not exist."""
        row = {"sender": sender, "agent": agent, "number": number, "text": storable(words), "at": at}
        return run(connection, _CHANGE_NOTE, **row).first() is not None

    @writes
    def delete_note(self, connection: Connection, sender: str, agent: str, number: int, *, turn: int) -> bool:
        """Delete a note. Return whether it existed, or message `turn` has deleted it before."""
        row = {"sender": sender, "agent": agent, "number": number, "turn": turn}
        return run(connection, _DELETE_NOTE, **row).first() is not None

    async def search(self, sid: str, wanted: Sequence[str], limit: int) -> Sequence[int]:
        """Return the numbers of matching finished turns of the session: first those with all wanted terms, then
        those with some; each newest first, and at most `limit` of either."""
        while step := await self._unindexed(sid):
            await self._index(sid, *step)
        return await self._matching(sid, wanted, limit)

    @reads
    def turns(self, connection: Connection, sid: str, turns: Sequence[int]) -> Sequence[Entry]:
        """Return the transcript of those turns that are finished and in the history, in order."""
        return [Entry(**row) for row in run(connection, _TURNS, sid=sid, turns=list(turns)).mappings()]

    @reads
    def speakers(self, connection: Connection, sid: str, before: int) -> Sequence[Speaker]:
        """Return the users whose text a conversation holds, from its beginning to the turn `before`."""
        return [Speaker(**row) for row in run(connection, _SPEAKERS, sid=sid, before=before).mappings()]

    @reads
    def speakers_in(self, connection: Connection, sid: str, turns: Sequence[int]) -> Sequence[tuple[int, str]]:
        """Return these turns with the users whose text they hold."""
        return [(row.turn, row.person) for row in run(connection, _SPEAKERS_IN, sid=sid, turns=list(turns))]

    @reads
    def _unindexed(self, connection: Connection, sid: str) -> tuple[int, int, int, Sequence[tuple[int, str]]] | None:
        """Return the next step of the index: the session's revision, the rows before and at its end, and turns with
        their terms."""
        if (session := run(connection, _DONE, sid=sid).first()) is None:
            return None
        done: int = session.seq or 0
        new = text(_UNINDEXED).execution_options(yield_per=ROWS_AT_ONCE)  # a picture in each may be megabytes
        last, found = done, dict[tuple[int, str], None]()
        with connection.execute(new, {"sid": sid, "done": done, "limit": STEP_ROWS}) as rows:
            for row in rows:
                last = row.seq
                found |= dict.fromkeys((row.turn, term) for term in terms(_words(row.content)))
                if len(found) > STEP_TERMS:
                    break
        return (session.revision, done, last, list(found)) if last > done else None

    @writes
    def _index(
        self, connection: Connection, sid: str, revision: int, done: int, last: int, found: Sequence[tuple[int, str]]
    ) -> None:
        """Write one step of the index. Idempotent; does nothing if the session was revised since it was read."""
        if not holds(connection, sid, revision):
            return
        if run(connection, _INDEXED, sid=sid, done=done, seq=last).first() is None:
            return
        rows = [{"scope": _scope(sid), "turn": turn, "term": term} for turn, term in found]
        if rows:
            new = "INSERT INTO word (scope, turn, term) VALUES (:scope, :turn, :term) ON CONFLICT DO NOTHING"
            connection.execute(text(new), rows)

    @reads
    def _matching(self, connection: Connection, sid: str, wanted: Sequence[str], limit: int) -> Sequence[int]:
        found: dict[int, None] = {}
        for least in (len(wanted), 1):
            names = {"scope": _scope(sid), "terms": list(wanted), "least": least, "limit": limit}
            found |= dict.fromkeys(run(connection, _MATCHING, **names).scalars())
        return list(found)


def storable(words: str) -> str:
    """Return the text without characters that databases reject."""
    return words.encode(errors="replace").decode().replace("\0", "\ufffd")


def holds(connection: Connection, sid: str, revision: int) -> bool:
    """Return whether the conversation is unchanged since it was read; until the commit nothing can be removed from
    it."""
    same = "UPDATE session SET revision = revision WHERE id = :sid AND revision = :revision"
    return run(connection, same, sid=sid, revision=revision).rowcount == 1


def forget_notes(connection: Connection, channel: str, person: str) -> int:
    """Delete a user's notes with every bot and return the count."""
    senders = run(connection, "SELECT DISTINCT sender FROM note").scalars()
    theirs = [it for it in senders if (it.partition(":")[0], it.split(":", 2)[2]) == (channel, person)]
    return run(connection, "DELETE FROM note WHERE sender IN :theirs", theirs=theirs).rowcount


def forget(connection: Connection, sid: str) -> bool:
    """Run one step: remove a session from the index. Return False when nothing is left."""
    run(connection, "DELETE FROM indexed WHERE sid = :sid", sid=sid)
    return run(connection, _FORGET, scope=_scope(sid), limit=STEP_TERMS).rowcount == STEP_TERMS


def forget_turn(connection: Connection, sid: str, turn: int, contents: Sequence[str], *, keeping: str = "") -> None:
    """Remove a turn from the index; `contents` are its rows. `keeping` is the row that stays."""
    found = sorted({term for content in contents for term in terms(_words(content))} - {*terms(_words(keeping))})
    gone = "DELETE FROM word WHERE scope = :scope AND turn = :turn AND term IN :terms"
    for at in range(0, len(found), STEP_ROWS):
        run(connection, gone, scope=_scope(sid), turn=turn, terms=found[at : at + STEP_ROWS])


def _scope(sid: str) -> int:
    """Return a number for a session; results are read from the session's own transcript, so a collision is harmless."""
    return int.from_bytes(sha256(sid.encode(errors="surrogatepass")).digest()[:7])


def _words(content: str) -> str:
    try:
        return spoken(message_json.validate_json(content))
    except ValidationError:  # one bad row cannot break a search
        return ""
