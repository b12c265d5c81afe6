"""Statements of the engine for both databases: each text is one statement, a placeholder is `:name`.

The database is the queue, the journal and the store; `migrations/versions/` make its tables and say what a column is for.
A session row is the lease of one chat: one owner at a time, with an epoch that every write names, and counters that
decide. The transcript is the write-ahead log of a turn. Times are seconds since the epoch. What only one of the two
understands is in `sqlite` and `postgres`.

Every text is whole, so it runs as it is in `psql` after `\\set sid '\\'agent:…\\''`, or in `sqlite3` after
`.parameter set :sid "'agent:…'"`. The numbers of a `status` are those of the two enumerations, as in the indexes.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

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


NEVER = 2**62
"""Larger than any id of a turn or a message."""
INSERT_MESSAGE = """
INSERT INTO inbox (dedupe, dedupe_text, sid, body, at, sender, person, again, chat, status, attempts)
SELECT :dedupe, :dedupe_text, :sid, :body, CAST(:at AS DOUBLE PRECISION), :sender, :person, CAST(:again AS BIGINT), :chat,
    0, 0
WHERE TRUE ON CONFLICT DO NOTHING RETURNING id
"""
INSERT_MESSAGE_LOCKED = """
WITH arrival AS (
    SELECT pg_advisory_xact_lock(8, hashtext(:sid)), pg_advisory_xact_lock(1, hashtext(:sender)),
        pg_advisory_xact_lock(2, hashtext(:chat))
)
INSERT INTO inbox (dedupe, dedupe_text, sid, body, at, sender, person, again, chat, status, attempts)
SELECT :dedupe, :dedupe_text, :sid, :body, CAST(:at AS DOUBLE PRECISION), :sender, :person, CAST(:again AS BIGINT), :chat,
    0, 0
FROM arrival WHERE TRUE ON CONFLICT DO NOTHING RETURNING id
"""
"""Waits on PostgreSQL for earlier messages of the session, the sender and the chat (`Lock`); NULL waits for nothing. The
number is assigned after the wait, so messages of one chat are numbered in arrival order."""
COUNT_WITHIN = """
INSERT INTO session AS t (id, owner, epoch, pending, stopped, begun) SELECT :sid, :owner, 1, 1, :stopped, :begun
WHERE (SELECT count(*) FROM inbox WHERE sender = :sender AND status = 0 AND again IS NULL) <= :theirs_max
    AND COALESCE((SELECT pending FROM session WHERE id = :sid), 0) < :pending_max
ON CONFLICT (id) DO UPDATE SET
    begun = CASE WHEN t.owner IS NULL AND t.pending = 0 THEN excluded.begun ELSE t.begun END,
    pending = t.pending + 1,
    epoch = t.epoch + CASE WHEN t.owner IS NULL AND excluded.owner IS NOT NULL THEN 1 ELSE 0 END,
    owner = COALESCE(t.owner, excluded.owner),
    stopped = CASE WHEN t.stopped > excluded.stopped THEN t.stopped ELSE excluded.stopped END
RETURNING owner, epoch
"""
"""Counts the message if its sender and its chat have no more waiting than that."""
WAITING_OF = """
SELECT count(*) AS theirs, min(id) AS since, count(*) FILTER (WHERE sid LIKE :control_sids) AS notes
FROM inbox WHERE sender = :sender AND status = 0 AND again IS NULL
"""
"""The gateway's own messages, such as reminders, do not count towards a user's limit."""
WAITING_OF_PEOPLE = "SELECT count(*) FROM inbox WHERE sid = :sid AND status = 0 AND again IS NULL"
OLDEST_WAITING = "SELECT min(id) FROM inbox WHERE sid = :sid AND status = 0"
NOTED = "SELECT EXISTS (SELECT 1 FROM inbox WHERE sid = :control AND id > :since)"
"""True if the chat has had a note since a message arrived."""
MOVE_MESSAGE = """
UPDATE inbox SET sid = :sid, beyond = :rate, chat = CASE WHEN CAST(:rate AS TEXT) IS NULL THEN NULL ELSE chat END
WHERE id = :turn
"""
FREE_KEY = "UPDATE inbox SET dedupe = dedupe || ':' || id WHERE id = :turn"
REFUSE_MESSAGE = "UPDATE inbox SET status = 3, body = '', chat = NULL WHERE id = :turn"
TAKE = "UPDATE session SET owner = :owner, epoch = epoch + 1, begun = 0 WHERE id = :sid RETURNING epoch"
COUNT_ATTEMPT = """
UPDATE inbox SET attempts = attempts + 1
WHERE sid = :sid AND status = 0 AND id <= (SELECT begun FROM session WHERE id = :sid)
"""
COUNT_AMBIGUOUS = """
UPDATE outbox SET ambiguous = ambiguous + 1 WHERE id = (SELECT min(id) FROM outbox WHERE sid = :sid AND status = 0)
"""
LEASED = "SELECT id AS sid, epoch FROM session WHERE owner = :owner"
QUEUED = """
SELECT id, turn, part, key, payload, attempts, ambiguous, next_at,
    COALESCE(attempt_started_at, CASE WHEN next_at < 0 THEN -next_at END) AS attempt_started_at, created
FROM outbox WHERE sid = :sid AND status = 0
AND EXISTS (SELECT 1 FROM session WHERE id = :sid AND epoch = :epoch AND owner IS NOT NULL) ORDER BY id
"""
"""During an update, a replica of the older version may still record a start as a negative `next_at`."""
IS_QUEUED = "SELECT 1 FROM outbox WHERE id = :part AND status = 0"
WAITING = """
SELECT i.id AS turn, i.body, i.at, i.attempts, s.stopped, s.revision, s.begun,
    EXISTS (SELECT 1 FROM inbox n WHERE n.id = s.stopped AND n.sid = s.id) AS superseded,
    EXISTS (SELECT 1 FROM note WHERE sender = i.sender AND text <> '') AS has_notes,
    EXISTS (
        SELECT 1 FROM approval a WHERE a.sid = i.sid AND a.tool = 'ask'
        AND (a.state = 'pending' OR a.decided_turn = i.id)
    ) AS has_question
FROM inbox i JOIN session s ON s.id = i.sid
WHERE i.sid = :sid AND i.status = 0 AND s.epoch = :epoch AND s.owner IS NOT NULL ORDER BY i.id LIMIT :waiting_max
"""
OTHERS_WAIT = "SELECT EXISTS (SELECT 1 FROM inbox WHERE sid = :sid AND status = 0 AND COALESCE(sender, '') <> :sender)"
"""A message does not stop work of another user, or calls that an approver has allowed."""
WAITING_BEFORE = """
SELECT i.id AS turn, i.body, i.at, i.attempts FROM inbox i
WHERE i.sid = :sid AND i.status = 0 AND i.id < :before ORDER BY i.id LIMIT :waiting_max
"""
BODIES = """
SELECT id, body FROM inbox WHERE sid = :sid AND (id = :turn OR turn = :turn) AND body <> ''
AND EXISTS (SELECT 1 FROM inbox WHERE id = :turn AND sid = :sid AND body <> '') ORDER BY id
"""
HISTORY_CHARS_MAX = 4_000_000
"""Characters of a chat's past rows that are loaded: as many as the largest model window holds."""
GAPS = """
SELECT first, last FROM gap WHERE sid = :sid
AND turn = (SELECT max(turn) FROM gap WHERE sid = :sid AND turn <= :turn) ORDER BY first
"""
"""The gaps in the history of a turn: what is on other branches of its conversation."""
HISTORY = """
WITH gaps AS (
    SELECT first, last FROM gap WHERE sid = :sid AND turn = (SELECT max(turn) FROM gap WHERE sid = :sid AND turn <= :before)
), conversation AS (
    SELECT COALESCE(max(turn), 0) AS since FROM mark
    WHERE sid = :sid AND kind IN ('new', 'summary') AND turn < :before
    AND NOT EXISTS (SELECT 1 FROM gaps WHERE mark.turn >= first AND mark.turn < last)
), ended AS (
    SELECT COALESCE((SELECT seq FROM transcript WHERE sid = :sid AND kind = 'final' ORDER BY seq DESC LIMIT 1), 0) AS seq
), removed AS (
    SELECT since || ' ' || COALESCE((SELECT max(turn) FROM gap WHERE sid = :sid AND turn <= :before), 0)
        || ' ' || (SELECT count(*) FROM mark WHERE sid = :sid AND kind = 'undone')
        || ' ' || COALESCE((SELECT revision FROM session WHERE id = :sid), 0) || ' ' AS times
    FROM conversation
), version AS (
    SELECT times || COALESCE((SELECT turn FROM transcript WHERE sid = :sid AND seq = :known_seq), 0) = :known AS is_known,
        times || COALESCE((SELECT turn FROM transcript WHERE sid = :sid AND seq = (SELECT seq FROM ended)), 0) AS newest
    FROM removed
), bounds AS (
    SELECT COALESCE((
        SELECT seq FROM transcript WHERE sid = :sid AND kind = 'user' AND turn <= (SELECT since FROM conversation)
        ORDER BY seq DESC LIMIT 1
    ), 0) AS begun, COALESCE((
        SELECT seq FROM transcript WHERE sid = :sid AND kind = 'user' AND turn < :before
        ORDER BY seq DESC LIMIT 1 OFFSET :skip
    ), 0) AS oldest, COALESCE((
        SELECT seq FROM transcript WHERE sid = :sid AND kind = 'user' AND turn < :before ORDER BY seq DESC LIMIT 1
    ), 0) AS newest
), sized AS (
    SELECT seq, kind, SUM(length(content)) OVER (ORDER BY seq DESC) AS chars FROM transcript
    WHERE sid = :sid AND turn < :before AND seq > (SELECT begun FROM bounds) AND seq >= (SELECT oldest FROM bounds)
), fitting AS (
    SELECT begun, COALESCE((SELECT min(seq) FROM sized WHERE kind = 'user' AND chars <= :history_chars), newest) - 1 AS seq
    FROM bounds
)
SELECT turn, kind, content FROM (
    SELECT turn, kind, content, seq FROM transcript t
    WHERE t.sid = :sid AND t.turn > (SELECT since FROM conversation)
    AND t.seq > CASE WHEN (SELECT is_known FROM version) THEN :known_seq
        ELSE (SELECT CASE WHEN begun >= seq THEN begun ELSE seq END FROM fitting) END
    AND NOT EXISTS (SELECT 1 FROM mark m WHERE m.sid = t.sid AND m.kind = 'undone' AND m.turn = t.turn)
    AND NOT EXISTS (SELECT 1 FROM gaps WHERE t.turn >= first AND t.turn < last)
    UNION ALL SELECT * FROM (
        SELECT turn, kind, content, -1 AS seq FROM mark WHERE sid = :sid AND kind = 'new' AND turn < :before
        AND NOT EXISTS (SELECT 1 FROM gaps WHERE mark.turn >= first AND mark.turn < last) ORDER BY turn DESC LIMIT 1
    ) AS new
    UNION ALL SELECT * FROM (
        SELECT turn, kind, content, -1 AS seq FROM mark WHERE sid = :sid AND kind = 'summary'
        AND NOT EXISTS (SELECT 1 FROM gaps WHERE mark.turn >= first AND mark.turn < last) ORDER BY turn DESC LIMIT 1
    ) AS summary
    UNION ALL SELECT * FROM (
        SELECT turn, kind, content, -1 AS seq FROM mark WHERE sid = :sid AND kind = 'settings' ORDER BY turn DESC LIMIT 1
    ) AS settings
    UNION ALL SELECT (SELECT seq FROM ended), CASE WHEN is_known THEN 'incremental' ELSE 'full' END, newest, -2 FROM version
) AS history ORDER BY seq
"""
"""The transcript before turn `:before`, since the conversation's start or its summary, preceded by the newest marks: the
newest `:skip` + 1 turns, up to `:history_chars`, and at least one. A conversation that began later does not affect the
turn's own rows: a stopped turn ends with what it has journaled. If everything before the row `:known_seq` is unchanged,
only rows after it; the first row says so, with the version to compare next time. The version changes whenever a finished
turn is removed: rows are only appended, a recall or an erasure increments the session's revision, another branch has
other gaps, and turn numbers are never reused."""
LAST_TURN = """
WITH gaps AS (
    SELECT first, last FROM gap WHERE sid = :sid AND turn = (SELECT max(turn) FROM gap WHERE sid = :sid AND turn <= :before)
)
SELECT COALESCE((SELECT max(turn) FROM mark WHERE sid = :sid AND kind = 'undone' AND content = :by), (
    SELECT max(t.turn) FROM transcript t WHERE t.sid = :sid AND t.kind = 'final' AND t.turn > COALESCE((
        SELECT max(turn) FROM mark WHERE sid = :sid AND kind IN ('new', 'summary')
        AND NOT EXISTS (SELECT 1 FROM gaps WHERE mark.turn >= first AND mark.turn < last)
    ), 0)
    AND NOT EXISTS (SELECT 1 FROM mark m WHERE m.sid = t.sid AND m.kind = 'undone' AND m.turn = t.turn)
    AND NOT EXISTS (SELECT 1 FROM gaps WHERE t.turn >= first AND t.turn < last)
)) AS turn
"""
CONCERNED = """
SELECT i.id AS turn, i.body, EXISTS (
    SELECT 1 FROM transcript u WHERE u.sid = i.sid AND u.turn = i.id AND u.kind = 'user'
) AS begun
FROM inbox i WHERE i.sid = :sid AND i.status = 0 AND i.id < :before
UNION ALL
SELECT i.id AS turn, i.body, EXISTS (
    SELECT 1 FROM transcript u WHERE u.sid = i.sid AND u.turn = i.id AND u.kind = 'user'
) AS begun
FROM transcript t JOIN inbox i ON i.id = t.turn AND i.sid = t.sid
WHERE t.sid = :sid AND t.kind = 'final' AND t.turn < :before AND t.content LIKE :by ORDER BY turn
"""
STOPPED_AT = """
SELECT CASE WHEN EXISTS (SELECT 1 FROM inbox n WHERE n.id = s.stopped AND n.sid = s.id) THEN 0 ELSE s.stopped END AS stopped
FROM session s WHERE s.id = :sid
"""
BILLS = """
WITH conversation AS (SELECT COALESCE(max(turn), 0) AS since FROM mark WHERE sid = :sid AND kind = 'new')
SELECT t.content, t.turn > c.since AS current, COALESCE(i.at >= :since, 1 = 0) AS recent
FROM conversation c, transcript t LEFT JOIN inbox i ON i.id = t.turn
WHERE t.sid IN (:sid, :control) AND t.kind = 'final' AND (t.turn > c.since OR i.at >= :since) ORDER BY t.turn
"""
TRANSCRIPT = """
WITH gaps AS (SELECT first, last FROM gap WHERE sid = :sid AND turn = (SELECT max(turn) FROM gap WHERE sid = :sid))
SELECT turn, kind, content FROM transcript t WHERE sid = :sid AND turn > COALESCE((
    SELECT max(turn) FROM mark WHERE sid = :sid AND kind = 'new'
    AND NOT EXISTS (SELECT 1 FROM gaps WHERE mark.turn >= first AND mark.turn < last)
), 0)
AND NOT EXISTS (SELECT 1 FROM mark m WHERE m.sid = t.sid AND m.kind = 'undone' AND m.turn = t.turn)
AND NOT EXISTS (SELECT 1 FROM gaps WHERE t.turn >= first AND t.turn < last) ORDER BY seq
"""
CHOICES = "SELECT sid, content FROM mark WHERE kind = 'settings' AND sid LIKE :prefix ORDER BY turn"
DRAFT = "SELECT content FROM mark WHERE sid = :sid AND kind = 'draft' AND turn = :turn"
MARK = """
INSERT INTO mark (sid, kind, turn, content, at) VALUES (:sid, :kind, :turn, :content, :at)
ON CONFLICT (sid, kind, turn) DO UPDATE SET content = excluded.content WHERE mark.kind = 'draft' RETURNING turn
"""
STATE = "SELECT pending, stopped, revision FROM session WHERE id = :sid AND epoch = :epoch"
STATE_LOCKED = "SELECT pending, stopped, revision FROM session WHERE id = :sid AND epoch = :epoch FOR UPDATE"
APPEND = """
INSERT INTO transcript (sid, seq, turn, kind, content)
VALUES (:sid, (SELECT COALESCE(max(seq), 0) FROM transcript WHERE sid = :sid) + :place, :turn, :kind, :content)
RETURNING seq
"""
SPEAK = """
INSERT INTO spoken (sid, seq, place, turn, message, person, name, direct, how, parts)
VALUES (:sid, :seq, :place, :turn, :message, :person, :name, :direct, :how, :parts)
"""
JOIN = "UPDATE inbox SET status = 1, turn = :turn WHERE id = :joined AND status = 0 RETURNING id"
COUNT_DOWN = "UPDATE session SET pending = pending - :by WHERE id = :sid"
COUNT_FINISHED = "UPDATE session SET pending = pending - 1, begun = 0 WHERE id = :sid"
CLOSE_MESSAGE = "UPDATE inbox SET status = :status WHERE id = :turn AND status = 0 RETURNING id"
INSERT_PART = """
INSERT INTO outbox (sid, turn, part, key, payload, status, attempts, ambiguous, next_at, created)
VALUES (:sid, :turn, :part, :key, :payload, 0, 0, 0, 0, :created)
RETURNING id, turn, part, key, payload, attempts, ambiguous, next_at,
    COALESCE(attempt_started_at, CASE WHEN next_at < 0 THEN -next_at END) AS attempt_started_at, created
"""
OPEN_BESIDE = """
INSERT INTO session (id, owner, epoch, pending, stopped, begun) VALUES (:sid, NULL, 0, 0, 0, 0) ON CONFLICT DO NOTHING
"""
CLOSE_PART = "UPDATE outbox SET status = :status, ext_id = :ext_id, reason = :reason WHERE id = :part"
STOP = "UPDATE session SET stopped = :before WHERE id = :sid AND stopped < :before"
STOPPED = "SELECT count(*) FROM inbox WHERE sid = :sid AND id < :before AND status = 0"
SPEND = """
INSERT INTO usage (scope, day, tokens, cost) VALUES (:scope, :day, :tokens, :cost)
ON CONFLICT (scope, day) DO UPDATE SET tokens = usage.tokens + excluded.tokens, cost = usage.cost + excluded.cost
"""
PROBE = """
INSERT INTO worker (id, lock_key, expires) VALUES ('probe', 0, '1970-01-01')
ON CONFLICT (id) DO UPDATE SET lock_key = worker.lock_key + 1
"""
"""A statement that changes nothing would pass on a full or read-only disk, so this one changes a row."""
PRUNE = (
    "DELETE FROM usage WHERE day < :day",
    "DELETE FROM mark WHERE kind = 'draft' AND at < :before",
    "DELETE FROM outbox WHERE status = 2 AND created < :before",
    "DELETE FROM inbox WHERE status IN (1, 2, 3) AND at < :before",
)
REVISION = "SELECT COALESCE(max(revision), 0) AS revision FROM session WHERE id = :sid"
RENEW = "UPDATE session SET epoch = epoch + 1 WHERE id = :sid AND epoch = :epoch RETURNING epoch"
RELEASE = """
UPDATE session SET owner = NULL WHERE id = :sid AND epoch = :epoch AND pending = 0
AND NOT EXISTS (SELECT 1 FROM outbox WHERE sid = :sid AND status = 0 AND id <> :part) RETURNING id
"""
BEGUN = "UPDATE session SET begun = :turn WHERE id = :sid AND epoch = :epoch RETURNING id"
RELEASE_FOR_TAKEOVER = "UPDATE session SET owner = NULL, begun = 0 WHERE id = :sid AND epoch = :epoch"
BEGIN = """
UPDATE outbox SET attempt_started_at = CAST(:at AS DOUBLE PRECISION), next_at = -CAST(:at AS DOUBLE PRECISION),
    ambiguous = CASE
        WHEN attempts = 0 AND COALESCE(attempt_started_at, CASE WHEN next_at < 0 THEN -next_at END) IS NULL THEN 0
        ELSE ambiguous
    END
WHERE id = :part AND EXISTS (SELECT 1 FROM session WHERE id = :sid AND epoch = :epoch) RETURNING status
"""
"""`next_at` also tells a replica of the older version, which may take over during an update, about the start."""
POSTPONE = """
UPDATE outbox SET attempts = attempts + 1, ambiguous = ambiguous + :ambiguous, next_at = :next_at,
    attempt_started_at = NULL
WHERE id = :part AND EXISTS (SELECT 1 FROM session WHERE id = :sid AND epoch = :epoch)
"""
CUT_OFF = """
UPDATE outbox SET attempts = attempts + 1, ambiguous = ambiguous + 1
WHERE id = :part AND EXISTS (SELECT 1 FROM session WHERE id = :sid AND epoch = :epoch)
"""
SENT_PARTS = """
SELECT o.payload, COALESCE(i.body, '') AS body, COALESCE(i.sid, o.sid) AS sid, o.ext_id, o.turn, o.part
FROM outbox o LEFT JOIN inbox i ON i.id = o.turn
WHERE (o.key = :key OR o.poll = :poll OR o.ext_id = :ext_id)
AND o.id > (SELECT COALESCE(max(id), 0) FROM outbox) - 20000 ORDER BY o.id DESC
"""
"""Searches only the newest 20,000 rows, as the next two do; an index would slow down every send."""
KEEP_SENT = """
INSERT INTO outbox (sid, turn, part, key, payload, status, ext_id, poll, attempts, ambiguous, next_at, created)
SELECT :sid, t.turn, (SELECT COALESCE(min(part), 0) FROM outbox WHERE turn = t.turn AND part < 0) - 1, :key, :payload,
    2, :ext_id, :poll, 0, 0, 0, CAST(:at AS DOUBLE PRECISION)
FROM (SELECT COALESCE(min(id), 0) AS turn FROM inbox WHERE sid = :sid AND status = 0) AS t
WHERE NOT EXISTS (
    SELECT 1 FROM outbox o WHERE o.key = :key AND o.id > (SELECT COALESCE(max(id), 0) FROM outbox) - 20000
) RETURNING id
"""
"""Messages that a tool sends during a turn have negative part numbers; those of the reply start at 0."""
SET_SENT = """
UPDATE outbox SET ext_id = :ext_id WHERE key = :key AND id > (SELECT COALESCE(max(id), 0) FROM outbox) - 20000 RETURNING id
"""
LATELY_DONE = """
SELECT body FROM inbox WHERE status IN (2, 4) AND at > :since AND body <> ''
ORDER BY id DESC LIMIT :limit
"""
ACCEPTED = "SELECT body FROM inbox WHERE (dedupe IN (:first, :second) OR dedupe_text = :second) AND body <> ''"
ARRIVED = "SELECT 1 FROM inbox WHERE dedupe IN (:first, :second) OR dedupe_text = :second LIMIT 1"
WAITING_AS = """
SELECT id, sid, body FROM inbox WHERE (dedupe IN (:first, :second) OR dedupe_text = :second) AND status = 0 LIMIT 1
"""
KEEP_LAYERS = """
INSERT INTO layer (turn, sid, agent, channel, person, outcome, at, prompt, tools, route, content)
VALUES (:turn, :sid, :agent, :channel, :person, :outcome, :at, :prompt, :tools, :route, :content) ON CONFLICT DO NOTHING
RETURNING (SELECT count(*) FROM layer_text WHERE hash IN (:prompt, :tools, :route)) AS known
"""
"""`known` texts exist already. An erasure, also by another process, deletes a text with the last turn that used it."""
KEEP_LAYER_TEXT = "INSERT INTO layer_text (hash, content) VALUES (:hash, :content) ON CONFLICT DO NOTHING"
ANSWER = """
SELECT i.status, o.payload, CASE WHEN i.status NOT IN (0, 3) THEN (
    SELECT content FROM transcript WHERE sid = i.sid AND turn = i.id AND kind = 'final' ORDER BY seq DESC LIMIT 1
) END AS final
FROM inbox i LEFT JOIN outbox o ON o.turn = i.id AND o.part >= 0 WHERE i.dedupe = :dedupe ORDER BY o.part
"""
USAGE = """
SELECT scope, CAST(sum(CASE WHEN day = :day THEN tokens ELSE 0 END) AS BIGINT) AS tokens,
    sum(CASE WHEN day = :day THEN cost ELSE 0 END) AS cost, max(CASE WHEN day = :day THEN warned ELSE 0 END) AS warned,
    sum(cost) AS month_cost, max(CASE WHEN day = :month THEN warned ELSE 0 END) AS month_warned
FROM usage WHERE scope IN (:first, :second, :third) AND day BETWEEN :month AND :day GROUP BY scope
"""
"""Reads at most 32 rows per scope, by primary key: `2026-11`, which has the month's warning, sorts before
`2026-11-01`."""
CLAIM_WARNING = """
INSERT INTO usage (scope, day, tokens, cost, warned) VALUES (:scope, :day, 0, 0, :turn)
ON CONFLICT (scope, day) DO UPDATE SET warned = excluded.warned WHERE usage.warned IN (0, :turn) RETURNING scope
"""
RATES = """
SELECT CASE r.rate WHEN 'sender' THEN (
    SELECT beyond IS NOT NULL FROM inbox
    WHERE sender = :sender AND chat IS NOT NULL AND (beyond IS NULL OR beyond = 'sender') AND dedupe <> :dedupe
    ORDER BY at DESC, id DESC LIMIT 1
) WHEN 'chat' THEN (
    SELECT beyond IS NOT NULL FROM inbox
    WHERE chat = :chat AND chat IS NOT NULL AND (beyond IS NULL OR beyond = 'chat') AND dedupe <> :dedupe
    ORDER BY at DESC, id DESC LIMIT 1
) END AS noted, r.rate
FROM (SELECT CASE WHEN (
    SELECT count(*) FROM inbox WHERE sender = :sender AND chat IS NOT NULL AND beyond IS NULL AND dedupe <> :dedupe
    AND at > :at - CAST(:sender_seconds AS DOUBLE PRECISION) AND at < :at + CAST(:sender_seconds AS DOUBLE PRECISION)
) >= :sender_count THEN 'sender' WHEN (
    SELECT count(*) FROM inbox WHERE chat = :chat AND chat IS NOT NULL AND beyond IS NULL AND dedupe <> :dedupe
    AND at > :at - CAST(:chat_seconds AS DOUBLE PRECISION) AND at < :at + CAST(:chat_seconds AS DOUBLE PRECISION)
) >= :chat_count THEN 'chat' END AS rate) AS r
"""
"""The rate that a message exceeds, and whether a note was given since the newest accepted message; only accepted
ones count. Times in the future are ignored, from before the clock was set back; replicas' clocks may differ by less than
the window."""
RATE_LIMITED_BY = "SELECT beyond AS rate FROM inbox WHERE id = :turn"
KEPT_OUT = {
    "sender": """
SELECT at FROM inbox WHERE sender = (SELECT sender FROM inbox WHERE id = :turn)
AND chat IS NOT NULL AND beyond IS NULL AND id < :turn ORDER BY at DESC, id DESC LIMIT 1 OFFSET :skip
""",
    "chat": """
SELECT at FROM inbox WHERE chat = (SELECT chat FROM inbox WHERE id = :turn)
AND chat IS NOT NULL AND beyond IS NULL AND id < :turn ORDER BY at DESC, id DESC LIMIT 1 OFFSET :skip
""",
}
BACKLOG = """
SELECT sum(messages) AS messages, sum(parts) AS parts, min(oldest) AS oldest FROM (
    SELECT count(*) AS messages, 0 AS parts, min(at) AS oldest FROM inbox WHERE status = 0
    UNION ALL SELECT 0, count(*), min(created) FROM outbox WHERE status = 0
) AS waiting
"""

PAIRING_SECONDS = 3600.0
"""Seconds that a code is valid, and until an unknown sender may get another line."""
PAIRING_PENDING_MAX = 3
"""Most pending users at one channel account."""
CONTACT_STATE = """
SELECT (
    SELECT CASE WHEN approved_by IS NOT NULL THEN 'paired' WHEN code IS NULL OR reminded IS NOT NULL THEN 'silent'
        ELSE 'waiting' END
    FROM contact WHERE channel = :channel AND account = :account AND person = :person
    AND (approved_by IS NOT NULL OR asked > :since)
) AS state, (
    SELECT count(*) FROM contact WHERE channel = :channel AND account = :account
    AND approved_by IS NULL AND code IS NOT NULL AND asked > :since
) AS waiting
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
