"""Statements of the engine for both databases: each text is one statement, a placeholder is `:name`.

The database is the queue, the journal and the store; `migrations/versions/` make its tables and say what a column is for.
A session row is the lease of one chat: one owner at a time, with an epoch that every write names, and counters that
decide. The transcript is the write-ahead log of a turn. Times are seconds since the epoch. What only one of the two
understands is in `sqlite` and `postgres`.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from gateway.store.operations import LOCK_ARRIVAL
from gateway.store.records import ContactState, Known, StoredAnswer


class InboxStatus(IntEnum):
    WAITING = 0
    """Accepted; its turn has not finished."""
    JOINED = 1
    """Answered together with the message `turn`."""
    DONE = 2
    """Its turn finished: replied, silent by choice, or failed with a note. The transcript's final row says which."""
    OVERFLOW = 3
    """Only its keys are stored: accepted beyond the limit of a chat or a sender, after the "too many" note of its
    burst, or erased since."""
    DEAD = 4
    """Its turn crashed the process too often: closed with an apology, kept for the operator to replay."""


class OutboxStatus(IntEnum):
    QUEUED = 0
    """Waits to be sent, now or at `next_at`."""
    SENT = 2
    """The platform accepted it; `ext_id` is its message id."""
    FAILED = 3
    """The platform rejected it, or failed for too long: a dead letter, kept for the operator to replay."""


WAITS = f"status = {InboxStatus.WAITING:d}"
"""A message waits in the inbox."""
TO_SEND = f"status = {OutboxStatus.QUEUED:d}"
"""A part waits in the outbox."""
_STARTED_AT = "COALESCE(attempt_started_at, CASE WHEN next_at < 0 THEN -next_at END)"
"""During an update, a replica of the older version may still record a start as a negative `next_at`."""
PART_COLUMNS = (
    f"id, turn, part, key, payload, attempts, ambiguous, next_at, {_STARTED_AT} AS attempt_started_at, created"
)
NEVER = 2**62
"""Larger than any id of a turn or a message."""
_IS_OURS = "EXISTS (SELECT 1 FROM session WHERE id = :sid AND epoch = :epoch)"

_INSERT_MESSAGE = f"""
WITH arrival AS ({{}})
INSERT INTO inbox (dedupe, dedupe_text, sid, body, at, sender, person, again, chat, status, attempts)
SELECT :dedupe, :dedupe_text, :sid, :body, CAST(:at AS DOUBLE PRECISION), :sender, :person, CAST(:again AS BIGINT), :chat,
    {InboxStatus.WAITING:d}, 0
FROM arrival WHERE TRUE ON CONFLICT DO NOTHING RETURNING id
"""
INSERT_MESSAGE = _INSERT_MESSAGE.format("SELECT 1")
INSERT_MESSAGE_LOCKED = _INSERT_MESSAGE.format(LOCK_ARRIVAL)
"""The number is assigned after the wait, so messages of one chat are numbered in arrival order."""
_COUNT_MESSAGE = """
INSERT INTO session AS t (id, owner, epoch, pending, stopped, begun) SELECT :sid, :owner, 1, 1, :stopped, :begun WHERE {}
ON CONFLICT (id) DO UPDATE SET
    begun = CASE WHEN t.owner IS NULL AND t.pending = 0 THEN excluded.begun ELSE t.begun END,
    pending = t.pending + 1,
    epoch = t.epoch + CASE WHEN t.owner IS NULL AND excluded.owner IS NOT NULL THEN 1 ELSE 0 END,
    owner = COALESCE(t.owner, excluded.owner),
    stopped = CASE WHEN t.stopped > excluded.stopped THEN t.stopped ELSE excluded.stopped END
RETURNING owner, epoch
"""
COUNT_MESSAGE = _COUNT_MESSAGE.format("TRUE")
_WAITING_OF = f"FROM inbox WHERE sender = :sender AND {WAITS} AND again IS NULL"
COUNT_WITHIN = _COUNT_MESSAGE.format(f"""(SELECT count(*) {_WAITING_OF}) <= :theirs_max
    AND COALESCE((SELECT pending FROM session WHERE id = :sid), 0) < :pending_max""")
"""Counts the message if its sender and its chat have no more waiting than that."""
WAITING_OF = f"""
SELECT count(*) AS theirs, min(id) AS since, count(*) FILTER (WHERE sid LIKE :control_sids) AS notes {_WAITING_OF}
"""
"""The gateway's own messages, such as reminders, do not count towards a user's limit."""
WAITING_OF_PEOPLE = f"SELECT count(*) FROM inbox WHERE sid = :sid AND {WAITS} AND again IS NULL"
OLDEST_WAITING = f"SELECT min(id) FROM inbox WHERE sid = :sid AND {WAITS}"
NOTED = "SELECT EXISTS (SELECT 1 FROM inbox WHERE sid = :control AND id > :since)"
"""True if the chat has had a note since a message arrived."""
MOVE_MESSAGE = """
UPDATE inbox SET sid = :sid, beyond = :rate, chat = CASE WHEN CAST(:rate AS TEXT) IS NULL THEN NULL ELSE chat END
WHERE id = :turn
"""
FREE_KEY = "UPDATE inbox SET dedupe = dedupe || ':' || id WHERE id = :turn"
REFUSE_MESSAGE = f"UPDATE inbox SET status = {InboxStatus.OVERFLOW:d}, body = '', chat = NULL WHERE id = :turn"
TAKE = "UPDATE session SET owner = :owner, epoch = epoch + 1, begun = 0 WHERE id = :sid RETURNING epoch"
COUNT_ATTEMPT = f"""
UPDATE inbox SET attempts = attempts + 1
WHERE sid = :sid AND {WAITS} AND id <= (SELECT begun FROM session WHERE id = :sid)
"""
COUNT_AMBIGUOUS = f"""
UPDATE outbox SET ambiguous = ambiguous + 1 WHERE id = (SELECT min(id) FROM outbox WHERE sid = :sid AND {TO_SEND})
"""
LEASED = "SELECT id AS sid, epoch FROM session WHERE owner = :owner"
QUEUED = f"""
SELECT {PART_COLUMNS} FROM outbox WHERE sid = :sid AND {TO_SEND}
AND EXISTS (SELECT 1 FROM session WHERE id = :sid AND epoch = :epoch AND owner IS NOT NULL) ORDER BY id
"""
IS_QUEUED = f"SELECT 1 FROM outbox WHERE id = :part AND {TO_SEND}"
WAITING = f"""
SELECT i.id AS turn, i.body, i.at, i.attempts, s.stopped, s.revision, s.begun,
    EXISTS (SELECT 1 FROM inbox n WHERE n.id = s.stopped AND n.sid = s.id) AS superseded,
    EXISTS (SELECT 1 FROM note WHERE sender = i.sender AND text <> '') AS has_notes,
    EXISTS (
        SELECT 1 FROM approval a WHERE a.sid = i.sid AND a.tool = 'ask'
        AND (a.state = 'pending' OR a.decided_turn = i.id)
    ) AS has_question
FROM inbox i JOIN session s ON s.id = i.sid
WHERE i.sid = :sid AND i.{WAITS} AND s.epoch = :epoch AND s.owner IS NOT NULL ORDER BY i.id LIMIT :waiting_max
"""
OTHERS_WAIT = f"SELECT EXISTS (SELECT 1 FROM inbox WHERE sid = :sid AND {WAITS} AND COALESCE(sender, '') <> :sender)"
"""A message does not stop work of another user, or calls that an approver has allowed."""
WAITING_BEFORE = f"""
SELECT i.id AS turn, i.body, i.at, i.attempts FROM inbox i
WHERE i.sid = :sid AND i.{WAITS} AND i.id < :before ORDER BY i.id LIMIT :waiting_max
"""
BODIES = """
SELECT id, body FROM inbox WHERE sid = :sid AND (id = :turn OR turn = :turn) AND body <> ''
AND EXISTS (SELECT 1 FROM inbox WHERE id = :turn AND sid = :sid AND body <> '') ORDER BY id
"""
HISTORY_CHARS_MAX = 4_000_000
"""Characters of a chat's past rows that are loaded: as many as the largest model window holds."""
_LAST = """COALESCE((
    SELECT u.seq FROM transcript u WHERE u.sid = :sid AND u.kind = 'user' AND u.turn {} ORDER BY u.seq DESC LIMIT 1{}
), 0)"""
GAPS_OF = """
SELECT first, last FROM gap WHERE sid = :sid
AND turn = (SELECT max(turn) FROM gap WHERE sid = :sid AND turn <= {})"""
"""The gaps in the history of a turn: what is on other branches of its conversation."""


def _is_on_branch(turn: str, before: str) -> str:
    return f"NOT EXISTS (SELECT 1 FROM ({GAPS_OF.format(before)}) AS gaps WHERE {turn} >= first AND {turn} < last)"


_NEWEST = "9223372036854775807"
ON_BRANCH = _is_on_branch("t.turn", _NEWEST)
_NOT_UNDONE = "NOT EXISTS (SELECT 1 FROM mark m WHERE m.sid = t.sid AND m.kind = 'undone' AND m.turn = t.turn)"
_BEGIN = "COALESCE((SELECT max(turn) FROM mark WHERE sid = :sid AND kind IN ('new', 'summary') AND {}), 0)"
_BEGIN_TURN = _BEGIN.format(_is_on_branch("mark.turn", ":before"))
_ENDED = "COALESCE((SELECT seq FROM transcript WHERE sid = :sid AND kind = 'final' ORDER BY seq DESC LIMIT 1), 0)"


def _history_version(before: str, begin: str, seq: str) -> str:
    """Return an expression that changes whenever a finished turn is removed: rows are only appended, a recall or an
    erasure increments the session's revision, another branch has other gaps, and turn numbers are never reused."""
    return f"""({begin}
|| ' ' || COALESCE((SELECT max(turn) FROM gap WHERE sid = :sid AND turn <= {before}), 0)
|| ' ' || (SELECT count(*) FROM mark WHERE sid = :sid AND kind = 'undone')
|| ' ' || COALESCE((SELECT revision FROM session WHERE id = :sid), 0)
|| ' ' || COALESCE((SELECT turn FROM transcript WHERE sid = :sid AND seq = {seq}), 0))"""


def _history(before: str, *, continues: bool) -> str:
    """Return the statement that loads the transcript before turn `before`, since the conversation's start or its
    summary, preceded by the newest marks: the newest `:skip` + 1 turns, up to `:history_chars`, and at least one. A
    conversation that began later does not affect the turn's own rows: a stopped turn ends with what it has
    journaled. `continues`: only rows after the known one, if everything before it is unchanged; the first row then
    says how it was read."""
    holds = _is_on_branch("mark.turn", before)
    begin = _BEGIN.format(f"turn < {before} AND {holds}")
    stands = f"{_history_version(before, begin, ':known_seq')} = :known"
    newest = "SELECT * FROM (SELECT turn, kind, content, -1 AS seq FROM mark WHERE {} ORDER BY turn DESC LIMIT 1) AS {}"
    new, *others = (f"sid = :sid AND kind = '{kind}'" for kind in ("new", "summary", "settings"))
    summary, settings = others
    held = (f"{new} AND turn < {before} AND {holds}", f"{summary} AND {holds}", settings)
    marks = (newest.format(which, f"of_{at}") for at, which in enumerate(held))
    begun, newest_turn = _LAST.format(f"<= {begin}", ""), _LAST.format(f"< {before}", "")
    oldest = _LAST.format(f"< {before}", " OFFSET :skip")
    after = "(SELECT CASE WHEN begun >= seq THEN begun ELSE seq END FROM fitting)"
    read = ""
    if continues:
        after = f"CASE WHEN {stands} THEN :known_seq ELSE {after} END"
        how = f"CASE WHEN {stands} THEN 'incremental' ELSE 'full' END"
        read = f"UNION ALL SELECT {_ENDED}, {how}, {_history_version(before, begin, _ENDED)}, -2"
    return f"""
WITH bounds AS (SELECT {begun} AS begun, {oldest} AS oldest, {newest_turn} AS newest),
sized AS (
    SELECT seq, kind, SUM(length(content)) OVER (ORDER BY seq DESC) AS chars FROM transcript
    WHERE sid = :sid AND turn < {before} AND seq > (SELECT begun FROM bounds) AND seq >= (SELECT oldest FROM bounds)
), fitting AS (
    SELECT begun, COALESCE((SELECT min(seq) FROM sized WHERE kind = 'user' AND chars <= :history_chars), newest) - 1 AS seq
    FROM bounds
)
SELECT turn, kind, content FROM (
    SELECT turn, kind, content, seq FROM transcript t
    WHERE t.sid = :sid AND t.turn > {begin} AND t.seq > {after} AND {_NOT_UNDONE}
    AND {_is_on_branch("t.turn", before)}
    UNION ALL {" UNION ALL ".join(marks)} {read}
) AS rows ORDER BY seq
"""


HISTORY = _history(f"(SELECT min(id) FROM inbox WHERE sid = :sid AND {WAITS})", continues=True)
HISTORY_BEFORE = _history(":before", continues=False)
_NEW_TURN = "COALESCE((SELECT max(turn) FROM mark WHERE sid = :sid AND kind = 'new'{}), 0)"
_NEW_ON_BRANCH = _NEW_TURN.format(f" AND {_is_on_branch('mark.turn', _NEWEST)}")
_NEW_TURN = _NEW_TURN.format("")
LAST_TURN = f"""
SELECT COALESCE(
    (SELECT max(turn) FROM mark WHERE sid = :sid AND kind = 'undone' AND content = :by),
    (SELECT max(t.turn) FROM transcript t WHERE t.sid = :sid AND t.kind = 'final'
     AND t.turn > {_BEGIN_TURN} AND {_NOT_UNDONE} AND {_is_on_branch("t.turn", ":before")})
) AS turn
"""
_BEGUN = "EXISTS (SELECT 1 FROM transcript u WHERE u.sid = i.sid AND u.turn = i.id AND u.kind = 'user') AS begun"
CONCERNED = f"""
SELECT i.id AS turn, i.body, {_BEGUN} FROM inbox i WHERE i.sid = :sid AND i.{WAITS} AND i.id < :before
UNION ALL
SELECT i.id AS turn, i.body, {_BEGUN} FROM transcript t JOIN inbox i ON i.id = t.turn AND i.sid = t.sid
WHERE t.sid = :sid AND t.kind = 'final' AND t.turn < :before AND t.content LIKE :by ORDER BY turn
"""
STOPPED_AT = """
SELECT CASE WHEN EXISTS (SELECT 1 FROM inbox n WHERE n.id = s.stopped AND n.sid = s.id) THEN 0 ELSE s.stopped END AS stopped
FROM session s WHERE s.id = :sid
"""
BILLS = f"""
SELECT t.content, t.turn > {_NEW_TURN} AS current, COALESCE(i.at >= :since, 1 = 0) AS recent
FROM transcript t LEFT JOIN inbox i ON i.id = t.turn
WHERE t.sid IN (:sid, :control) AND t.kind = 'final' AND (t.turn > {_NEW_TURN} OR i.at >= :since) ORDER BY t.turn
"""
TRANSCRIPT = f"""
SELECT turn, kind, content FROM transcript t WHERE sid = :sid AND turn > {_NEW_ON_BRANCH} AND {_NOT_UNDONE} AND {ON_BRANCH}
ORDER BY seq
"""
CHOICES = "SELECT sid, content FROM mark WHERE kind = 'settings' AND sid LIKE :prefix ORDER BY turn"
DRAFT = "SELECT content FROM mark WHERE sid = :sid AND kind = 'draft' AND turn = :turn"
MARK = """
INSERT INTO mark (sid, kind, turn, content, at) VALUES (:sid, :kind, :turn, :content, :at)
ON CONFLICT (sid, kind, turn) DO UPDATE SET content = excluded.content WHERE mark.kind = 'draft' RETURNING turn
"""
STATE = "SELECT pending, stopped, revision FROM session WHERE id = :sid AND epoch = :epoch"
STATE_LOCKED = f"{STATE} FOR UPDATE"
APPEND = """
INSERT INTO transcript (sid, seq, turn, kind, content)
VALUES (:sid, (SELECT COALESCE(max(seq), 0) FROM transcript WHERE sid = :sid) + :place, :turn, :kind, :content)
RETURNING seq
"""
SPEAK = """
INSERT INTO spoken (sid, seq, place, turn, message, person, name, direct, how, parts)
VALUES (:sid, :seq, :place, :turn, :message, :person, :name, :direct, :how, :parts)
"""
JOIN = f"UPDATE inbox SET status = {InboxStatus.JOINED:d}, turn = :turn WHERE id = :joined AND {WAITS} RETURNING id"
COUNT_DOWN = "UPDATE session SET pending = pending - :by WHERE id = :sid"
COUNT_FINISHED = "UPDATE session SET pending = pending - 1, begun = 0 WHERE id = :sid"
CLOSE_MESSAGE = f"UPDATE inbox SET status = :status WHERE id = :turn AND {WAITS} RETURNING id"
INSERT_PART = f"""
INSERT INTO outbox (sid, turn, part, key, payload, status, attempts, ambiguous, next_at, created)
VALUES (:sid, :turn, :part, :key, :payload, {OutboxStatus.QUEUED:d}, 0, 0, 0, :created)
RETURNING {PART_COLUMNS}
"""
OPEN_BESIDE = """
INSERT INTO session (id, owner, epoch, pending, stopped, begun) VALUES (:sid, NULL, 0, 0, 0, 0) ON CONFLICT DO NOTHING
"""
CLOSE_PART = "UPDATE outbox SET status = :status, ext_id = :ext_id, reason = :reason WHERE id = :part"
STOP = "UPDATE session SET stopped = :before WHERE id = :sid AND stopped < :before"
STOPPED = f"SELECT count(*) FROM inbox WHERE sid = :sid AND id < :before AND {WAITS}"
SPEND = """
INSERT INTO usage (scope, day, tokens, cost) VALUES (:scope, :day, :tokens, :cost)
ON CONFLICT (scope, day) DO UPDATE SET tokens = usage.tokens + excluded.tokens, cost = usage.cost + excluded.cost
"""
PROBE = """
INSERT INTO worker (id, lock_key, expires) VALUES ('probe', 0, '1970-01-01')
ON CONFLICT (id) DO UPDATE SET lock_key = worker.lock_key + 1
"""
"""A statement that changes nothing would pass on a full or read-only disk, so this one changes a row."""
_ANSWERED = f"status IN ({InboxStatus.JOINED:d}, {InboxStatus.DONE:d}, {InboxStatus.OVERFLOW:d})"
PRUNE = (
    "DELETE FROM usage WHERE day < :day",
    "DELETE FROM mark WHERE kind = 'draft' AND at < :before",
    f"DELETE FROM outbox WHERE status = {OutboxStatus.SENT:d} AND created < :before",
    f"DELETE FROM inbox WHERE {_ANSWERED} AND at < :before",
)
REVISION = "SELECT COALESCE(max(revision), 0) AS revision FROM session WHERE id = :sid"
RENEW = "UPDATE session SET epoch = epoch + 1 WHERE id = :sid AND epoch = :epoch RETURNING epoch"
RELEASE = f"""
UPDATE session SET owner = NULL WHERE id = :sid AND epoch = :epoch AND pending = 0
AND NOT EXISTS (SELECT 1 FROM outbox WHERE sid = :sid AND {TO_SEND} AND id <> :part) RETURNING id
"""
BEGUN = "UPDATE session SET begun = :turn WHERE id = :sid AND epoch = :epoch RETURNING id"
RELEASE_FOR_TAKEOVER = "UPDATE session SET owner = NULL, begun = 0 WHERE id = :sid AND epoch = :epoch"
BEGIN = f"""
UPDATE outbox SET attempt_started_at = CAST(:at AS DOUBLE PRECISION), next_at = -CAST(:at AS DOUBLE PRECISION),
    ambiguous = CASE WHEN attempts = 0 AND {_STARTED_AT} IS NULL THEN 0 ELSE ambiguous END
WHERE id = :part AND {_IS_OURS} RETURNING status
"""
"""`next_at` also tells a replica of the older version, which may take over during an update, about the start."""
POSTPONE = f"""
UPDATE outbox SET attempts = attempts + 1, ambiguous = ambiguous + :ambiguous, next_at = :next_at,
    attempt_started_at = NULL
WHERE id = :part AND {_IS_OURS}
"""
CUT_OFF = f"UPDATE outbox SET attempts = attempts + 1, ambiguous = ambiguous + 1 WHERE id = :part AND {_IS_OURS}"
_LATELY = "o.id > (SELECT COALESCE(max(id), 0) FROM outbox) - 20000"
"""Searches only the newest 20,000 rows; an index would slow down every send."""
SENT_PARTS = f"""
SELECT o.payload, COALESCE(i.body, '') AS body, COALESCE(i.sid, o.sid) AS sid, o.ext_id, o.turn, o.part
FROM outbox o LEFT JOIN inbox i ON i.id = o.turn
WHERE o.{{column}} = :value AND {_LATELY} ORDER BY o.id DESC
"""
KEEP_SENT = f"""
INSERT INTO outbox (sid, turn, part, key, payload, status, ext_id, poll, attempts, ambiguous, next_at, created)
SELECT :sid, t.turn, (SELECT COALESCE(min(part), 0) FROM outbox WHERE turn = t.turn AND part < 0) - 1, :key, :payload,
    {OutboxStatus.SENT:d}, :ext_id, :poll, 0, 0, 0, CAST(:at AS DOUBLE PRECISION)
FROM (SELECT COALESCE(min(id), 0) AS turn FROM inbox WHERE sid = :sid AND {WAITS}) AS t
WHERE NOT EXISTS (SELECT 1 FROM outbox o WHERE o.key = :key AND {_LATELY}) RETURNING id
"""
"""Messages that a tool sends during a turn have negative part numbers; those of the reply start at 0."""
SET_SENT = f"UPDATE outbox SET ext_id = :ext_id WHERE key = :key AND {_LATELY.removeprefix('o.')} RETURNING id"
LATELY_DONE = f"""
SELECT body FROM inbox WHERE status IN ({InboxStatus.DONE:d}, {InboxStatus.DEAD:d}) AND at > :since AND body <> ''
ORDER BY id DESC LIMIT :limit
"""
ACCEPTED = "SELECT body FROM inbox WHERE (dedupe IN (:first, :second) OR dedupe_text = :second) AND body <> ''"
ARRIVED = "SELECT 1 FROM inbox WHERE dedupe IN (:first, :second) OR dedupe_text = :second LIMIT 1"
WAITING_AS = f"""
SELECT id, sid, body FROM inbox WHERE (dedupe IN (:first, :second) OR dedupe_text = :second) AND {WAITS} LIMIT 1
"""
KEEP_LAYERS = """
INSERT INTO layer (turn, sid, agent, channel, person, outcome, at, prompt, tools, route, content)
VALUES (:turn, :sid, :agent, :channel, :person, :outcome, :at, :prompt, :tools, :route, :content) ON CONFLICT DO NOTHING
RETURNING (SELECT count(*) FROM layer_text WHERE hash IN (:prompt, :tools, :route)) AS known
"""
"""`known` texts exist already. An erasure, also by another process, deletes a text with the last turn that used it."""
KEEP_LAYER_TEXT = "INSERT INTO layer_text (hash, content) VALUES (:hash, :content) ON CONFLICT DO NOTHING"
ANSWER = f"""
SELECT i.status, o.payload, CASE WHEN i.status NOT IN ({InboxStatus.WAITING:d}, {InboxStatus.OVERFLOW:d}) THEN (
    SELECT content FROM transcript WHERE sid = i.sid AND turn = i.id AND kind = 'final' ORDER BY seq DESC LIMIT 1
) END AS final
FROM inbox i LEFT JOIN outbox o ON o.turn = i.id AND o.part >= 0 WHERE i.dedupe = :dedupe ORDER BY o.part
"""
_OF_DAY = "CASE WHEN day = :day THEN {} ELSE 0 END"
USAGE = f"""
SELECT scope, CAST(sum({_OF_DAY.format("tokens")}) AS BIGINT) AS tokens, sum({_OF_DAY.format("cost")}) AS cost,
    max({_OF_DAY.format("warned")}) AS warned,
    sum(cost) AS month_cost, max(CASE WHEN day = :month THEN warned ELSE 0 END) AS month_warned
FROM usage WHERE scope IN (:first, :second, :third) AND day BETWEEN :month AND :day GROUP BY scope
"""
"""Reads at most 32 rows per scope, by primary key: `2026-11`, which has the month's warning, sorts before
`2026-11-01`."""
CLAIM_WARNING = """
INSERT INTO usage (scope, day, tokens, cost, warned) VALUES (:scope, :day, 0, 0, :turn)
ON CONFLICT (scope, day) DO UPDATE SET warned = excluded.warned WHERE usage.warned IN (0, :turn) RETURNING scope
"""
_EXCEEDED = """(
    SELECT count(*) FROM inbox WHERE {0} = :{0} AND chat IS NOT NULL AND beyond IS NULL AND dedupe <> :dedupe
    AND at > :at - :{0}_seconds AND at < :at + :{0}_seconds
) >= :{0}_count"""
"""Ignores times in the future, from before the clock was set back; replicas' clocks may differ by less than the
window."""
_NOTED = """(
    SELECT beyond IS NOT NULL FROM inbox
    WHERE {0} = :{0} AND chat IS NOT NULL AND (beyond IS NULL OR beyond = '{0}') AND dedupe <> :dedupe
    ORDER BY at DESC, id DESC LIMIT 1
)"""
RATES = f"""
SELECT CASE r.rate WHEN 'sender' THEN {_NOTED.format("sender")} WHEN 'chat' THEN {_NOTED.format("chat")} END AS noted,
    r.rate
FROM (
    SELECT CASE WHEN {_EXCEEDED.format("sender")} THEN 'sender' WHEN {_EXCEEDED.format("chat")} THEN 'chat' END AS rate
) AS r
"""
"""The rate that a message exceeds, and whether a note was given since the newest accepted message; only accepted
ones count."""
RATE_LIMITED_BY = "SELECT beyond AS rate FROM inbox WHERE id = :turn"
KEPT_OUT = """
SELECT at FROM inbox WHERE {0} = (SELECT {0} FROM inbox WHERE id = :turn)
AND chat IS NOT NULL AND beyond IS NULL AND id < :turn ORDER BY at DESC, id DESC LIMIT 1 OFFSET :skip
"""
BACKLOG = f"""
SELECT sum(messages) AS messages, sum(parts) AS parts, min(oldest) AS oldest FROM (
    SELECT count(*) AS messages, 0 AS parts, min(at) AS oldest FROM inbox WHERE {WAITS}
    UNION ALL SELECT 0, count(*), min(created) FROM outbox WHERE {TO_SEND}
) AS waiting
"""

PAIRING_SECONDS = 3600.0
"""Seconds that a code is valid, and until an unknown sender may get another line."""
PAIRING_PENDING_MAX = 3
"""Most pending users at one channel account."""
_CONTACT = "FROM contact WHERE channel = :channel AND account = :account"
CONTACT_STATE = f"""
SELECT (SELECT CASE WHEN approved_by IS NOT NULL THEN 'paired' WHEN code IS NULL OR reminded IS NOT NULL THEN 'silent'
    ELSE 'waiting' END {_CONTACT} AND person = :person AND (approved_by IS NOT NULL OR asked > :since)) AS state,
    (SELECT count(*) {_CONTACT} AND approved_by IS NULL AND code IS NOT NULL AND asked > :since) AS waiting
"""


def contact_state_of(row: Any) -> ContactState:
    if row["state"] is not None:
        state: ContactState = row["state"]
        return state
    return "new" if row["waiting"] < PAIRING_PENDING_MAX else "crowded"


def answer_of(rows: Sequence[Any]) -> StoredAnswer | None:
    """Return the answer from the rows of `ANSWER`; None while the message waits."""
    status = rows[0]["status"] if rows else None
    if status == InboxStatus.WAITING:
        return None
    outcome = '{"outcome": "too-many"}' if status == InboxStatus.OVERFLOW else '{"outcome": "erased"}'
    final = (rows[0]["final"] if rows else None) or outcome
    return StoredAnswer(final=final, payloads=[row["payload"] for row in rows if row["payload"]])


def bounds(history_turns: int, known: Known | None = None) -> dict[str, Any]:
    """Return the parameters that limit a loaded history."""
    of_known = {"known_seq": known.seq, "known": known.version} if known else {"known_seq": 0, "known": ""}
    return {"skip": history_turns - 1, "history_chars": HISTORY_CHARS_MAX} | of_known
