"""SQLite's own statements: steps that PostgreSQL takes in one statement are several here."""

from gateway.store import statements
from gateway.store.statements import TO_SEND, WAITS, InboxStatus, OutboxStatus

COUNT_MESSAGE = """
INSERT INTO session AS t (id, owner, epoch, pending, stopped, begun) VALUES (:sid, :owner, 1, 1, :stopped, :begun)
ON CONFLICT (id) DO UPDATE SET
    begun = CASE WHEN t.owner IS NULL AND t.pending = 0 THEN excluded.begun ELSE t.begun END,
    pending = t.pending + 1,
    epoch = t.epoch + (t.owner IS NULL AND excluded.owner IS NOT NULL),
    owner = COALESCE(t.owner, excluded.owner),
    stopped = max(t.stopped, excluded.stopped)
RETURNING owner, epoch, pending
"""
OF_SENDER = f"""
SELECT count(*) AS theirs, min(id) AS since, count(*) FILTER (WHERE sid LIKE :control_sids) AS notes
FROM inbox WHERE sender = :sender AND {WAITS} AND again IS NULL
"""
"""Messages that the gateway itself has put there, such as reminders, use up none of a person's limit."""
OF_PEOPLE = f"SELECT count(*) FROM inbox WHERE sid = :sid AND {WAITS} AND again IS NULL"
OTHERS_WAIT = f"SELECT {statements.OTHERS_WAIT}"
OLDEST_WAITING = f"SELECT min(id) FROM inbox WHERE sid = :sid AND {WAITS}"
NOTED = "SELECT EXISTS (SELECT 1 FROM inbox WHERE sid = :control AND id > :since)"
"""True if the chat has had a note since a message came."""
MOVE_MESSAGE = """
UPDATE inbox SET sid = :sid, beyond = :rate, chat = CASE WHEN :rate IS NULL THEN NULL ELSE chat END WHERE id = :turn
"""
FREE_KEY = "UPDATE inbox SET dedupe = dedupe || ':' || id WHERE id = :turn"
REFUSE_MESSAGE = f"UPDATE inbox SET status = {InboxStatus.OVERFLOW:d}, body = '', chat = NULL WHERE id = :turn"

CLAIMABLE = f"""
SELECT id, owner FROM session
WHERE owner IS NOT NULL AND owner <> :owner
   OR owner IS NULL AND pending > 0
   OR owner IS NULL AND id IN (SELECT sid FROM outbox WHERE {TO_SEND})
ORDER BY id LIMIT :limit
"""
TAKE = "UPDATE session SET owner = :owner, epoch = epoch + 1, begun = 0 WHERE id = :sid RETURNING epoch"
COUNT_ATTEMPT = f"""
UPDATE inbox SET attempts = attempts + 1
WHERE sid = :sid AND {WAITS} AND id <= (SELECT begun FROM session WHERE id = :sid)
"""
COUNT_AMBIGUOUS = f"""
UPDATE outbox SET ambiguous = ambiguous + 1 WHERE id = (SELECT min(id) FROM outbox WHERE sid = :sid AND {TO_SEND})
"""

APPEND = """
INSERT INTO transcript (sid, seq, turn, kind, content)
VALUES (:sid, (SELECT COALESCE(max(seq), 0) + 1 FROM transcript WHERE sid = :sid), :turn, :kind, :content) RETURNING seq
"""
SPEAK = """
INSERT INTO spoken (sid, seq, place, turn, message, person, name, direct, how, parts)
VALUES (:sid, :seq, :place, :turn, :message, :person, :name, :direct, :how, :parts)
"""
JOIN = f"UPDATE inbox SET status = {InboxStatus.JOINED:d}, turn = :turn WHERE id = :joined AND {WAITS} RETURNING id"
COUNT_DOWN = "UPDATE session SET pending = pending - :by WHERE id = :sid"
COUNT_FINISHED = "UPDATE session SET pending = pending - 1, begun = 0 WHERE id = :sid"
CLOSE_MESSAGE = f"UPDATE inbox SET status = :status WHERE id = :turn AND {WAITS} RETURNING id"
INSERT_PART = """
INSERT INTO outbox (sid, turn, part, key, payload, status, attempts, ambiguous, next_at, created)
VALUES (:sid, :turn, :part, :key, :payload, 0, 0, 0, 0, :created) RETURNING id
"""
OPEN_BESIDE = """
INSERT INTO session (id, owner, epoch, pending, stopped, begun) VALUES (:sid, NULL, 0, 0, 0, 0) ON CONFLICT DO NOTHING
"""
MARK = "UPDATE outbox SET status = :status, ext_id = :ext_id, reason = :reason WHERE id = :part"
STOP = "UPDATE session SET stopped = max(stopped, :before) WHERE id = :sid"
STOPPED = f"SELECT count(*) FROM inbox WHERE sid = :sid AND id < :before AND {WAITS}"
SPEND = """
INSERT INTO usage (scope, day, tokens, cost) VALUES (:scope, :day, :tokens, :cost)
ON CONFLICT (scope, day) DO UPDATE SET tokens = usage.tokens + excluded.tokens, cost = usage.cost + excluded.cost
"""
PROBE = """
INSERT INTO worker (id, lock_key, expires) VALUES ('probe', 0, '1970-01-01 00:00:00')
ON CONFLICT (id) DO UPDATE SET lock_key = lock_key + 1
"""
"""A statement that changes nothing would pass on a full or read-only disk: this one changes a row."""
_ANSWERED = f"status IN ({InboxStatus.JOINED:d}, {InboxStatus.DONE:d}, {InboxStatus.OVERFLOW:d})"
PRUNE = (
    "DELETE FROM usage WHERE day < date(:before, 'unixepoch', '-31 days')",
    "DELETE FROM mark WHERE kind = 'draft' AND at < :before",
    f"DELETE FROM outbox WHERE status = {OutboxStatus.SENT:d} AND created < :before",
    f"DELETE FROM inbox WHERE {_ANSWERED} AND at < :before",
)
