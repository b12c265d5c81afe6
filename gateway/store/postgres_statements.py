"""PostgreSQL's own statements: each text is one round trip and one commit.

Counters on the session row decide, never an EXISTS over another table: under READ COMMITTED a re-checked UPDATE does not
see a row that another transaction just added.
"""

from gateway.store.errors import NOTIFY_CHANNEL
from gateway.store.sessions import CONTROL
from gateway.store.statements import (
    OTHERS_WAIT,
    PART_COLUMNS,
    RATES,
    RELEASE,
    TO_SEND,
    WAITS,
    InboxStatus,
    OutboxStatus,
)
from gateway.store.writer import Lock

_ACCEPT = f"""
WITH r AS ({{rates}}),
f AS (SELECT
    COALESCE((SELECT pending FROM session WHERE id = :sid), 0) >= :pending_max
        AND (SELECT count(*) FROM inbox WHERE sid = :sid AND {WAITS} AND again IS NULL) >= :pending_max AS chat_full,
    count(*) AS theirs, min(id) AS since, bool_or(starts_with(sid, '{CONTROL}')) AS noted
    FROM inbox WHERE sender = :sender AND {WAITS} AND again IS NULL
),
g AS (SELECT f.*, theirs >= :sender_max * CASE WHEN :control = :sid THEN 2 ELSE 1 END AS sender_full FROM f),
a AS (
    SELECT r.rate, r.rate IS NOT NULL OR chat_full OR sender_full AS overflow,
    CASE WHEN r.rate IS NOT NULL THEN r.noted ELSE (chat_full OR sender_full) AND (
        :control = :sid OR sender_full AND g.noted OR EXISTS (
            SELECT FROM inbox WHERE sid = :control AND id > CASE WHEN sender_full THEN since ELSE (
                SELECT min(id) FROM inbox WHERE sid = :sid AND {WAITS}
            ) END
        )
    ) END AS noted FROM g, r
),
i AS (
    INSERT INTO inbox (dedupe, dedupe_text, sid, body, at, sender, person, again, chat, beyond, status, attempts)
    SELECT CASE WHEN a.overflow AND :repeatable THEN :dedupe || ':' || gen_random_uuid() ELSE :dedupe END,
        :dedupe_text, CASE WHEN a.overflow THEN :control ELSE :sid END,
        CASE WHEN a.noted THEN '' ELSE :body END, :at, :sender, :person, CAST(:again AS BIGINT),
        CASE WHEN a.noted OR a.overflow AND a.rate IS NULL THEN NULL ELSE :chat::text END,
        CASE WHEN a.noted THEN NULL ELSE a.rate END,
        CASE WHEN a.noted THEN {InboxStatus.OVERFLOW:d} ELSE {InboxStatus.WAITING:d} END, 0 FROM a
    WHERE NOT :repeatable OR NOT EXISTS (SELECT FROM inbox WHERE dedupe = :dedupe)
    ON CONFLICT DO NOTHING RETURNING id, sid, status
),
n AS (
    INSERT INTO session AS t (id, owner, epoch, pending, stopped, begun)
    SELECT i.sid, :owner::text, 1, 1, CASE WHEN :interrupts AND NOT a.overflow AND NOT {OTHERS_WAIT} THEN i.id ELSE 0 END,
        CASE WHEN :begin THEN i.id ELSE 0 END
    FROM i, a WHERE i.{WAITS}
    ON CONFLICT (id) DO UPDATE SET
        begun = CASE WHEN t.owner IS NULL AND t.pending = 0 THEN excluded.begun ELSE t.begun END,
        pending = t.pending + 1,
        owner = COALESCE(t.owner, excluded.owner),
        epoch = t.epoch + (t.owner IS NULL AND excluded.owner IS NOT NULL)::int,
        stopped = GREATEST(t.stopped, excluded.stopped)
    RETURNING owner, epoch
)
SELECT i.id AS turn, i.sid, a.overflow, a.rate, n.owner, n.epoch FROM i CROSS JOIN a LEFT JOIN n ON TRUE
"""
ACCEPT = _ACCEPT.format(rates="SELECT FALSE AS noted, NULL::text AS rate")
"""The statement sees as it begins if the chat is full or the sender has had enough: what is accepted at the same
moment may exceed a limit, by one a replica in a chat and by one a connection for a sender; but a message is in one place
from its first moment on."""

LOCK_RATES = f"""
SELECT pg_advisory_xact_lock({Lock.SENDER_RATE:d}, hashtext(:sender)),
    pg_advisory_xact_lock({Lock.CHAT_RATE:d}, hashtext(:chat))
"""
"""Held until the commit of the statement that follows, which sees what was accepted before: a rate is exact."""
ACCEPT_RATED = _ACCEPT.format(rates=RATES)

CLAIM = f"""
WITH dead AS MATERIALIZED (
    SELECT id FROM worker
    WHERE id <> :owner AND (expires < clock_timestamp() OR pg_try_advisory_xact_lock(lock_key))
),
c AS (
    SELECT s.id, s.owner, s.begun FROM session s
    WHERE s.owner IS NULL AND s.pending > 0
       OR s.owner IS NULL AND s.id IN (SELECT sid FROM outbox WHERE {TO_SEND})
       OR s.owner IN (SELECT id FROM dead)
       OR s.owner IS NOT NULL AND NOT EXISTS (SELECT FROM worker w WHERE w.id = s.owner)
    ORDER BY s.id LIMIT :limit FOR UPDATE OF s SKIP LOCKED
),
a AS (
    UPDATE inbox i SET attempts = attempts + 1 FROM c
    WHERE i.sid = c.id AND i.{WAITS} AND c.owner IS NOT NULL AND i.id <= c.begun
),
o AS (
    UPDATE outbox SET ambiguous = ambiguous + 1
    WHERE id IN (
        SELECT min(p.id) FROM outbox p JOIN c ON c.id = p.sid AND c.owner IS NOT NULL WHERE p.{TO_SEND} GROUP BY p.sid
    )
)
UPDATE session s SET owner = :owner, epoch = s.epoch + 1, begun = 0 FROM c WHERE s.id = c.id RETURNING s.id AS sid, s.epoch
"""

BURY = """
DELETE FROM worker w WHERE expires < clock_timestamp() - interval '1 minute'
AND NOT EXISTS (SELECT FROM session WHERE owner = w.id)
"""


_STEPS = """
s AS ({owned}),{spend}
n AS (SELECT COALESCE(max(seq), 0) AS seq FROM transcript WHERE sid = :sid),
t AS (
    INSERT INTO transcript (sid, seq, turn, kind, content)
    SELECT s.id, n.seq + e.place, :turn, e.kind, e.content FROM s, n,
    unnest(:kinds::text[], :contents::text[]) WITH ORDINALITY AS e (kind, content, place)
),
k AS (
    INSERT INTO spoken (sid, seq, place, turn, message, person, name, direct, how, parts)
    SELECT s.id, n.seq + e.entry, e.place, :turn, e.message, e.person, e.name, e.direct::int, e.how, e.parts FROM s, n,
    unnest(:spoken_entry::int[], :spoken_place::int[], :spoken_message::text[], :spoken_person::text[],
        :spoken_name::text[], :spoken_direct::bool[], :spoken_how::text[], :spoken_parts::int[])
        AS e (entry, place, message, person, name, direct, how, parts)
)
"""
_SPEND = """
u AS (
    INSERT INTO usage (scope, day, tokens, cost)
    SELECT p.* FROM s, unnest(:spent_scope::text[], :spent_day::text[], :spent_tokens::bigint[], :spent_cost::float8[]) AS p
    ON CONFLICT (scope, day) DO UPDATE SET tokens = usage.tokens + excluded.tokens, cost = usage.cost + excluded.cost
),"""
_AS_READ = "(CAST(:revision AS BIGINT) IS NULL OR revision = :revision{})"
_LOCKED = f"""
SELECT id, pending, stopped, revision FROM session WHERE id = :sid AND epoch = :epoch AND {_AS_READ.format("")} FOR UPDATE
"""
_COUNTED_DOWN = f"""
UPDATE session SET pending = pending - (SELECT count(*) FROM w), begun = 0
WHERE id = :sid AND epoch = :epoch AND {_AS_READ.format(" AND stopped <= :turn")} RETURNING id
"""


APPEND = [
    f"WITH {_STEPS.format(owned=_LOCKED, spend=spend)} SELECT pending, stopped, revision FROM s"
    for spend in ("", _SPEND)
]
"""Two variants: if nothing was spent, and if something was. The next two have them as well."""
JOIN = [
    f"""
WITH {_STEPS.format(owned=_LOCKED, spend=spend)},
j AS (
    UPDATE inbox SET status = {InboxStatus.JOINED:d}, turn = :turn FROM s
    WHERE inbox.id = ANY(:joined) AND inbox.sid = s.id AND inbox.{WAITS} RETURNING inbox.id
)
UPDATE session SET pending = session.pending - (SELECT count(*) FROM j) FROM s WHERE session.id = s.id
RETURNING session.pending, session.stopped, session.revision
"""
    for spend in ("", _SPEND)
]
FINISH = [
    f"""
WITH w AS (SELECT id FROM inbox WHERE id = :turn AND {WAITS}),
l AS ({_COUNTED_DOWN}),
{_STEPS.format(owned="SELECT l.id FROM l, w", spend=spend)},
i AS (UPDATE inbox SET status = :status FROM s WHERE inbox.id = :turn),
y AS (
    INSERT INTO layer (turn, sid, agent, channel, person, outcome, at, prompt, tools, route, content)
    SELECT :turn, s.id, :layer_agent::text, :layer_channel::text, :layer_person::text, :layer_outcome::text,
        :layer_at::float8, :layer_prompt::text, :layer_tools::text, :layer_route::text, :layer_content::text
    FROM s WHERE :layer_content::text IS NOT NULL ON CONFLICT DO NOTHING
),
b AS (
    INSERT INTO session (id, owner, epoch, pending, stopped, begun) SELECT :beside::text, NULL, 0, 0, 0, 0 FROM s
    WHERE :beside::text IS NOT NULL ON CONFLICT DO NOTHING
),
o AS (
    INSERT INTO outbox (sid, turn, part, key, payload, status, attempts, ambiguous, next_at, created)
    SELECT COALESCE(:beside::text, s.id), :turn, p.place - 1, p.key, p.payload, 0, 0, 0, 0, :at FROM s,
    unnest(:keys::text[], :payloads::text[]) WITH ORDINALITY AS p (key, payload, place)
    RETURNING {PART_COLUMNS}
)
SELECT o.* FROM l LEFT JOIN o ON TRUE ORDER BY o.part
"""
    for spend in ("", _SPEND)
]

MARK = f"""
WITH o AS (UPDATE outbox SET status = :status, ext_id = :ext_id, reason = :reason WHERE id = :part)
{RELEASE}
"""
STOP = f"""
WITH s AS (UPDATE session SET stopped = GREATEST(stopped, :before) WHERE id = :sid)
SELECT count(*) AS concerned FROM inbox WHERE sid = :sid AND id < :before AND {WAITS}
"""
NOTIFY = f"SELECT pg_notify('{NOTIFY_CHANNEL}', :sid)"
PRUNE = f"""
WITH o AS (DELETE FROM outbox WHERE status = {OutboxStatus.SENT:d} AND created < :before),
d AS (DELETE FROM mark WHERE kind = 'draft' AND at < :before),
u AS (
    DELETE FROM usage
    WHERE day < to_char(to_timestamp(:before) AT TIME ZONE 'UTC' - INTERVAL '31 days', 'YYYY-MM-DD')
)
DELETE FROM inbox WHERE status IN ({InboxStatus.JOINED:d}, {InboxStatus.DONE:d}, {InboxStatus.OVERFLOW:d}) AND at < :before
"""
PROBE = "UPDATE session SET pending = pending WHERE FALSE"
