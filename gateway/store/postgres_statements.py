"""What the engine says to PostgreSQL: each text is one round trip and one commit.

The steps and the guarantees are those of `sqlite_statements`. Counters on the session row decide, never an EXISTS over
another table: under READ COMMITTED a re-checked UPDATE does not see a row that another transaction just added.
Placeholders are psycopg's.
"""

from gateway.store.store import ASIDE

ACCEPT = f"""
WITH f AS (SELECT
    COALESCE((SELECT pending FROM session WHERE id = %(sid)s), 0) >= %(pending_max)s AS chat_full,
    count(*) AS theirs, min(id) AS since, bool_or(starts_with(sid, '{ASIDE}')) AS noted
    FROM inbox WHERE sender = %(sender)s AND status = 0
),
g AS (SELECT f.*, theirs >= %(sender_max)s * CASE WHEN %(aside)s = %(sid)s THEN 2 ELSE 1 END AS sender_full FROM f),
a AS (
    SELECT chat_full OR sender_full AS beyond, (chat_full OR sender_full) AND (
        %(aside)s = %(sid)s OR sender_full AND noted OR EXISTS (
            SELECT FROM inbox WHERE sid = %(aside)s AND id > CASE WHEN sender_full THEN since ELSE (
                SELECT min(id) FROM inbox WHERE sid = %(sid)s AND status = 0
            ) END
        )
    ) AS noted FROM g
),
i AS (
    INSERT INTO inbox (dedupe, dedupe_text, sid, body, at, sender, status, attempts)
    SELECT %(dedupe)s, %(dedupe_text)s, CASE WHEN a.beyond THEN %(aside)s ELSE %(sid)s END,
        CASE WHEN a.noted THEN '' ELSE %(body)s END, %(at)s, %(sender)s, CASE WHEN a.noted THEN 3 ELSE 0 END, 0 FROM a
    ON CONFLICT DO NOTHING RETURNING id, sid, status
),
n AS (
    INSERT INTO session AS t (id, owner, epoch, pending, stopped)
    SELECT i.sid, %(owner)s::text, 1, 1, CASE WHEN %(interrupts)s AND NOT a.beyond THEN i.id ELSE 0 END
    FROM i, a WHERE i.status = 0
    ON CONFLICT (id) DO UPDATE SET
        pending = t.pending + 1,
        owner = COALESCE(t.owner, excluded.owner),
        epoch = t.epoch + (t.owner IS NULL AND excluded.owner IS NOT NULL)::int,
        stopped = GREATEST(t.stopped, excluded.stopped)
    RETURNING owner, epoch
)
SELECT i.id AS turn, i.sid, a.beyond, n.owner, n.epoch FROM i CROSS JOIN a LEFT JOIN n ON TRUE
"""
"""Whether the chat is full, or the sender has had enough, is seen as the statement begins: what is accepted at the same
moment may exceed a limit, by one a replica in a chat and by one a connection for a sender; but a message is in one place
from its first moment on."""

CLAIM = """
WITH dead AS MATERIALIZED (
    SELECT id FROM worker
    WHERE id <> %(owner)s AND (expires < clock_timestamp() OR pg_try_advisory_xact_lock(lock_key))
),
c AS (
    SELECT s.id, s.owner FROM session s
    WHERE s.owner IS NULL AND s.pending > 0
       OR s.owner IS NULL AND s.id IN (SELECT sid FROM outbox WHERE status = 0)
       OR s.owner IN (SELECT id FROM dead)
       OR s.owner IS NOT NULL AND NOT EXISTS (SELECT FROM worker w WHERE w.id = s.owner)
    ORDER BY s.id LIMIT %(limit)s FOR UPDATE OF s SKIP LOCKED
),
a AS (
    UPDATE inbox i SET attempts = attempts + 1 FROM c
    WHERE i.sid = c.id AND i.status = 0 AND c.owner IS NOT NULL AND (
        SELECT kind FROM transcript t WHERE t.sid = i.sid AND t.turn = i.id ORDER BY seq DESC LIMIT 1
    ) <> 'drained'
),
o AS (
    UPDATE outbox SET ambiguous = ambiguous + 1
    WHERE id IN (
        SELECT min(p.id) FROM outbox p JOIN c ON c.id = p.sid AND c.owner IS NOT NULL WHERE p.status = 0 GROUP BY p.sid
    )
)
UPDATE session s SET owner = %(owner)s, epoch = s.epoch + 1 FROM c WHERE s.id = c.id RETURNING s.id, s.epoch
"""

BURY = """
DELETE FROM worker w WHERE expires < clock_timestamp() - interval '1 minute'
AND NOT EXISTS (SELECT FROM session WHERE owner = w.id)
"""

OWNED = "SELECT id, epoch FROM session WHERE owner = %(owner)s"

_PART = "id, turn, part, key, payload, attempts, ambiguous, next_at, created"
_OURS = "EXISTS (SELECT FROM session WHERE id = %(sid)s AND epoch = %(epoch)s AND owner IS NOT NULL)"
QUEUED = f"SELECT {_PART} FROM outbox WHERE sid = %(sid)s AND status = 0 AND {_OURS} ORDER BY id"
WAITING = """
SELECT i.id, i.body, i.at, i.attempts, s.stopped,
    EXISTS (SELECT FROM inbox n WHERE n.id = s.stopped AND n.sid = s.id) AS superseded
FROM inbox i JOIN session s ON s.id = i.sid
WHERE i.sid = %(sid)s AND i.status = 0 AND s.epoch = %(epoch)s AND s.owner IS NOT NULL ORDER BY i.id LIMIT %(waiting_max)s
"""
HISTORY = """
WITH w AS (SELECT min(id) AS turn FROM inbox WHERE sid = %(sid)s AND status = 0)
SELECT t.turn, t.kind, t.content FROM transcript t, w
WHERE w.turn IS NOT NULL AND t.sid = %(sid)s AND t.seq >= COALESCE((
    SELECT u.seq FROM transcript u WHERE u.sid = %(sid)s AND u.kind = 'user' AND u.turn < w.turn
    ORDER BY u.seq DESC LIMIT 1 OFFSET %(skip)s
), 0)
ORDER BY t.seq
"""

_STEPS = """
s AS ({owned}),
n AS (SELECT COALESCE(max(seq), 0) AS seq FROM transcript WHERE sid = %(sid)s),
t AS (
    INSERT INTO transcript (sid, seq, turn, kind, content)
    SELECT s.id, n.seq + e.place, %(turn)s, e.kind, e.content FROM s, n,
    unnest(%(kinds)s::text[], %(contents)s::text[]) WITH ORDINALITY AS e (kind, content, place)
)
"""
APPEND = f"""
WITH {_STEPS.format(owned="SELECT id, pending, stopped FROM session WHERE id = %(sid)s AND epoch = %(epoch)s FOR UPDATE")}
SELECT pending, stopped FROM s
"""
JOIN = f"""
WITH {_STEPS.format(owned="SELECT id, pending, stopped FROM session WHERE id = %(sid)s AND epoch = %(epoch)s FOR UPDATE")},
j AS (
    UPDATE inbox SET status = 1, turn = %(turn)s FROM s
    WHERE inbox.id = ANY(%(joined)s) AND inbox.sid = s.id AND inbox.status = 0 RETURNING inbox.id
)
UPDATE session SET pending = session.pending - (SELECT count(*) FROM j) FROM s WHERE session.id = s.id
RETURNING session.pending, session.stopped
"""
_COUNTED_DOWN = """
    UPDATE session SET pending = pending - 1 WHERE id = %(sid)s AND epoch = %(epoch)s RETURNING id
"""
FINISH = f"""
WITH {_STEPS.format(owned=_COUNTED_DOWN)},
i AS (UPDATE inbox SET status = %(status)s FROM s WHERE inbox.id = %(turn)s),
o AS (
    INSERT INTO outbox (sid, turn, part, key, payload, status, attempts, ambiguous, next_at, created)
    SELECT s.id, %(turn)s, p.place - 1, p.key, p.payload, 0, 0, 0, 0, %(at)s FROM s,
    unnest(%(keys)s::text[], %(payloads)s::text[]) WITH ORDINALITY AS p (key, payload, place)
    RETURNING {_PART}
)
SELECT o.* FROM s LEFT JOIN o ON TRUE ORDER BY o.part
"""

_RELEASED = """
UPDATE session SET owner = NULL WHERE id = %(sid)s AND epoch = %(epoch)s AND pending = 0
AND NOT EXISTS (SELECT FROM outbox WHERE sid = %(sid)s AND status = 0 AND id <> %(part)s) RETURNING id
"""
MARK = f"""
WITH o AS (UPDATE outbox SET status = %(status)s, ext_id = %(ext_id)s, reason = %(reason)s WHERE id = %(part)s)
{_RELEASED}
"""
RELEASE = _RELEASED
BEGIN = """
UPDATE outbox SET next_at = %(next_at)s, ambiguous = CASE WHEN next_at = 0 THEN 0 ELSE ambiguous END
WHERE id = %(part)s AND EXISTS (SELECT FROM session WHERE id = %(sid)s AND epoch = %(epoch)s) RETURNING id
"""
POSTPONE = """
UPDATE outbox SET attempts = attempts + 1, ambiguous = ambiguous + %(ambiguous)s, next_at = %(next_at)s
WHERE id = %(part)s AND EXISTS (SELECT FROM session WHERE id = %(sid)s AND epoch = %(epoch)s)
"""
HAND_OVER = "UPDATE session SET owner = NULL WHERE id = %(sid)s AND epoch = %(epoch)s"
RENEW = "UPDATE session SET epoch = epoch + 1 WHERE id = %(sid)s AND epoch = %(epoch)s RETURNING epoch"
STANDING = "SELECT pending, stopped FROM session WHERE id = %(sid)s AND epoch = %(epoch)s"
STOP = """
WITH s AS (UPDATE session SET stopped = GREATEST(stopped, %(before)s) WHERE id = %(sid)s)
SELECT count(*) AS concerned FROM inbox WHERE sid = %(sid)s AND id < %(before)s AND status = 0
"""
NOTIFY = "SELECT pg_notify(%(channel)s, %(sid)s)"
OLDEST = """
SELECT LEAST((SELECT min(at) FROM inbox WHERE status = 0), (SELECT min(created) FROM outbox WHERE status = 0)) AS at
"""
PRUNE = """
WITH o AS (DELETE FROM outbox WHERE status = 2 AND created < %(before)s)
DELETE FROM inbox WHERE status IN (1, 2, 3) AND at < %(before)s
"""
PROBE = "UPDATE session SET pending = pending WHERE FALSE"
