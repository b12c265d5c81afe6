"""What the engine says to both databases: each text is one statement, a placeholder is `:name`.

Counters on the session row decide. `sqlite_statements` and `postgres_statements` hold what the two say differently; the
steps and the guarantees are the same.
"""

PART_COLUMNS = "id, turn, part, key, payload, attempts, ambiguous, next_at, created"
_IS_OURS = "EXISTS (SELECT 1 FROM session WHERE id = :sid AND epoch = :epoch)"

LEASED = "SELECT id AS sid, epoch FROM session WHERE owner = :owner"
QUEUED = f"""
SELECT {PART_COLUMNS} FROM outbox WHERE sid = :sid AND status = 0
AND EXISTS (SELECT 1 FROM session WHERE id = :sid AND epoch = :epoch AND owner IS NOT NULL) ORDER BY id
"""
WAITING = """
SELECT i.id AS turn, i.body, i.at, i.attempts, s.stopped,
    EXISTS (SELECT 1 FROM inbox n WHERE n.id = s.stopped AND n.sid = s.id) AS superseded
FROM inbox i JOIN session s ON s.id = i.sid
WHERE i.sid = :sid AND i.status = 0 AND s.epoch = :epoch AND s.owner IS NOT NULL ORDER BY i.id LIMIT :waiting_max
"""
HISTORY = """
SELECT turn, kind, content FROM transcript WHERE sid = :sid AND seq >= COALESCE((
    SELECT u.seq FROM transcript u WHERE u.sid = :sid AND u.kind = 'user'
    AND u.turn < (SELECT min(id) FROM inbox WHERE sid = :sid AND status = 0) ORDER BY u.seq DESC LIMIT 1 OFFSET :skip
), 0) AND EXISTS (SELECT 1 FROM inbox WHERE sid = :sid AND status = 0)
ORDER BY seq
"""
STATE = "SELECT pending, stopped FROM session WHERE id = :sid AND epoch = :epoch"
RENEW = "UPDATE session SET epoch = epoch + 1 WHERE id = :sid AND epoch = :epoch RETURNING epoch"
RELEASE = """
UPDATE session SET owner = NULL WHERE id = :sid AND epoch = :epoch AND pending = 0
AND NOT EXISTS (SELECT 1 FROM outbox WHERE sid = :sid AND status = 0 AND id <> :part) RETURNING id
"""
RELEASE_FOR_TAKEOVER = "UPDATE session SET owner = NULL WHERE id = :sid AND epoch = :epoch"
BEGIN = f"""
UPDATE outbox SET next_at = :next_at, ambiguous = CASE WHEN next_at = 0 THEN 0 ELSE ambiguous END
WHERE id = :part AND {_IS_OURS} RETURNING id
"""
POSTPONE = f"""
UPDATE outbox SET attempts = attempts + 1, ambiguous = ambiguous + :ambiguous, next_at = :next_at
WHERE id = :part AND {_IS_OURS}
"""
OLDEST = """
SELECT min(at) AS at FROM (
    SELECT min(at) AS at FROM inbox WHERE status = 0 UNION ALL SELECT min(created) FROM outbox WHERE status = 0
) AS times
"""
