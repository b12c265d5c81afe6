"""Group messages that do not mention the bot, if the config stores a group's history: the newest few lines of each
chat, and how many came before them. Also votes in an agent's poll that share the turn of an earlier vote, and all
messages of the groups that the config has the bot remember.

Nothing is marked as read. A turn gets what arrived between the message that the session's last turn answered and its
own, so a repeated turn reads the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import orjson
from pydantic import TypeAdapter
from sqlalchemy import Connection

from channels.access import HISTORY_MAX
from channels.message import MessageContext, Quote
from gateway.store import later
from gateway.store.operations import Database, reads, records, run, writes
from gateway.store.records import BotRounds, KeptLine, OutboxPart
from gateway.store.sessions import chat_of, sender_of

_KEEP = """
INSERT INTO chatter (chat, thread, message, sender, body, at) VALUES (:chat, :thread, :message, :sender, :body, :at)
ON CONFLICT DO NOTHING
"""
_TRIM = """
UPDATE chatter SET sender = '', body = '' WHERE chat = :chat AND thread = :thread AND body <> '' AND message IN (
    SELECT message FROM chatter WHERE chat = :chat AND thread = :thread
    ORDER BY at DESC, message DESC LIMIT 100 OFFSET :kept
)
"""
_SINCE = """
SELECT body FROM chatter WHERE chat = :chat AND thread = :thread AND at <= :until AND at > COALESCE((
    SELECT at FROM inbox WHERE id = (SELECT max(turn) FROM transcript WHERE sid = :sid AND kind = 'user' AND turn < :turn)
), 0)
AND body <> '' ORDER BY at DESC, message DESC LIMIT :limit
"""
_COUNT = """
SELECT count(*) FROM chatter WHERE chat = :chat AND thread = :thread AND at <= :until AND at > COALESCE((
    SELECT at FROM inbox WHERE id = (SELECT max(turn) FROM transcript WHERE sid = :sid AND kind = 'user' AND turn < :turn)
), 0)
"""
_UNBEGUN = """
SELECT body FROM inbox i WHERE sid = :sid AND status = 0 AND body <> ''
AND NOT EXISTS (SELECT 1 FROM transcript t WHERE t.turn = i.id AND t.kind = 'user')
"""
KEPT_MAX = HISTORY_MAX
"""Messages kept per chat. Older ones lose sender and text; their rows are only counted, until they are pruned."""
LINE_CHARS_MAX = 2_000
"""Characters that are kept of one message of a remembered group."""
VOTES_MAX = 200
"""Votes kept per chat."""
REMEMBERED = "kept "
"""The prefix of the thread that stores what is said in a remembered group, apart from the newest lines of `history`."""
EXPIRED_AT_ONCE = 500
"""Rows that one step of the pruning deletes."""
_KEEP_ANSWER = """
INSERT INTO chatter (chat, thread, message, sender, body, at)
SELECT :chat, :thread, :message, :sender, :body, :at FROM outbox WHERE id = :part AND payload = :payload
ON CONFLICT DO NOTHING
"""
"""The payload of a part that was recalled while it was sent has changed."""
_AMEND = """
UPDATE chatter SET body = :body WHERE chat = :chat AND thread = :thread AND message = :message AND sender = :sender
"""
_LINES = """
SELECT chat, thread, message, sender, body, at FROM chatter WHERE chat = :chat AND thread LIKE 'kept %'
AND body <> '' AND at >= :since AND at < :until ORDER BY at, length(message), message
"""
_NO_LONGER = """
DELETE FROM chatter WHERE (chat, thread, message) IN (
    SELECT chat, thread, message FROM chatter WHERE chat NOT IN :chats AND thread LIKE 'kept %' LIMIT :most
)
"""
_TOO_OLD = """
DELETE FROM chatter WHERE (chat, thread, message) IN (
    SELECT chat, thread, message FROM chatter WHERE chat = :chat AND at < :before AND thread LIKE 'kept %' LIMIT :most
)
"""
_SAY_ONCE = """
INSERT INTO mark (sid, kind, turn, content, at) VALUES (:sid, 'remembers', 0, :by, :at) ON CONFLICT DO NOTHING
"""
_SAID = "SELECT content FROM mark WHERE sid = :sid AND kind = 'remembers' AND turn = 0"
VOTES = "votes "
"""The prefix of the thread that stores votes, so that votes and messages do not evict each other."""
_OF_MEMBERS = "SELECT id FROM session WHERE substr(id, 1, length(:beginning)) = :beginning"
_ANSWERED = """
SELECT 1 FROM transcript WHERE sid IN :sids AND kind = 'final' AND (
    content LIKE '{"outcome": "replied"%' OR content LIKE '{"outcome": "failed"%' OR content LIKE '{"outcome": "declined"%'
) LIMIT 1
"""
_ROUNDS = """
WITH here AS (
    SELECT id, person, sender, again FROM inbox WHERE sid IN :sids AND status = 0 AND id < :before
    UNION ALL SELECT id, person, sender, again FROM inbox
    WHERE sid IN :sids AND status <> 0 AND status <> 3 AND id < :before
)
SELECT count(*) FROM here WHERE person IS NULL AND sender IS NOT NULL
AND id > COALESCE((SELECT max(id) FROM here WHERE person IS NOT NULL AND again IS NULL), 0)
"""
_HELD = "SELECT 1 FROM chatter WHERE chat = :chat AND thread = :thread AND message = :message"
REACTION = "reaction "
"""The kind prefix of a mark that holds a reaction to an answer; the user follows."""
_FEEDBACK = """
SELECT sid, turn, content, at FROM mark WHERE kind LIKE 'reaction %' AND at >= :since ORDER BY at DESC, turn DESC
"""
_GIVEN = "SELECT content FROM mark WHERE kind = :kind AND sid IN :sids"
_COUNT_RATINGS = """
SELECT count(*) FILTER (WHERE content LIKE '%"emoji":"👍"%') AS good,
    count(*) FILTER (WHERE content LIKE '%"emoji":"👎"%') AS bad FROM mark WHERE kind LIKE 'reaction %' AND at >= :since
"""
_ANSWER = "SELECT key, words FROM web_message WHERE chat = :chat AND number = :number AND author = 'agent'"
_ANSWERED_BY = """
SELECT sid, turn, 0 AS place FROM outbox WHERE key = :key AND part >= 0 AND sid NOT LIKE 'aside:%'
UNION ALL SELECT s.sid, s.turn, 1 FROM spoken s WHERE s.message = :message AND s.how = 'said' AND EXISTS (
    SELECT 1 FROM transcript t WHERE t.sid = s.sid AND t.turn = s.turn AND t.kind = 'final'
) ORDER BY place, turn DESC LIMIT 1
"""
"""The turn of an answer on the page: of its part, else, once the outbox has forgotten it, of the message that it answers."""
_UNRATE = "DELETE FROM mark WHERE sid = :sid AND kind = :kind AND turn = :turn"
RATINGS_SECONDS = 7 * 24 * 3600.0
"""Seconds from a rating to the notice that counts it."""
_UNMARK = "DELETE FROM mark WHERE sid = :sid AND kind = :kind AND turn = :turn AND content LIKE :like"
_MADE_BY = """
SELECT t.content AS final, l.agent, l.prompt FROM transcript t LEFT JOIN layer l ON l.turn = t.turn
WHERE t.sid = :sid AND t.turn = :turn AND t.kind = 'final'
"""
_MARK = """
INSERT INTO mark (sid, kind, turn, content, at) VALUES (:sid, :kind, :turn, :content, :at)
ON CONFLICT (sid, kind, turn) DO UPDATE SET content = excluded.content, at = excluded.at
"""
LANGUAGE = "language "
"""The kind prefix of a mark that holds a user's language in a chat; the user follows."""
LANGUAGE_SECONDS = 365 * 24 * 3600.0
"""The age at which the language of an inactive user is deleted."""
_LANGUAGE = """
SELECT content FROM mark WHERE turn = 0 AND kind = :kind
OR sid = :sid AND turn = 0 AND kind >= 'language' AND kind < 'languagf' AND kind LIKE 'language %'
ORDER BY CASE WHEN sid = :sid AND kind = :kind THEN 0 WHEN kind = :kind THEN 1 ELSE 2 END, at DESC LIMIT 1
"""
_FORGET_LANGUAGES = """
DELETE FROM mark WHERE turn = 0 AND kind >= 'language' AND kind < 'languagf' AND kind LIKE 'language %' AND at < :before
"""
message_json: TypeAdapter[MessageContext] = TypeAdapter(MessageContext)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rating:
    """A person's 👍 or 👎 on the answer of a turn. `prompt` is the hash of the prompt; models and prompt are empty if they
    were not known, as for ratings of an older version."""

    turn: int
    session: str
    at: float
    by: str
    emoji: str
    why: str
    agent: str
    models: Sequence[str]
    prompt: str

    @property
    def verdict(self) -> str:
        return "good" if self.emoji == "👍" else "bad"

    @classmethod
    def read(cls, turn: int, session: str, at: float, content: Mapping[str, Any]) -> "Rating":
        texts = {name: str(content.get(name, "")) for name in ("by", "emoji", "why", "agent", "prompt")}
        return cls(turn=turn, session=session, at=at, models=content.get("models", ()), **texts)


class DatabaseChatter(Database):
    @reads
    def has_answered(self, connection: Connection, sessions: Sequence[str], members: Sequence[str]) -> bool:
        """Return whether a turn of these conversations, or of those of single members, has ended with an answer."""
        sids = _conversations(connection, sessions, members)
        return run(connection, _ANSWERED, sids=sids).first() is not None

    @writes
    def keep(self, connection: Connection, context: MessageContext, at: float) -> None:
        """Store a message once. Idempotent."""
        place = _place(context)
        row = {"message": context.message_id, "sender": sender_of(context), "at": at}
        run(connection, _KEEP, **place, **row, body=message_json.dump_json(context).decode())
        run(connection, _TRIM, **place, kept=VOTES_MAX if context.is_vote else KEPT_MAX)

    @reads
    def since(
        self, connection: Connection, sid: str, context: MessageContext, *, turn: int, until: float, limit: int
    ) -> Sequence[MessageContext]:
        """Return the newest `limit` messages, oldest first, that arrived after the session's last turn before
        `turn`."""
        place = {"chat": chat_of(context), "thread": context.chat.thread or ""}
        rows = run(connection, _SINCE, **place, sid=sid, turn=turn, until=until, limit=limit).all()
        return [message_json.validate_json(row.body) for row in reversed(rows)]

    @reads
    def count_since(self, connection: Connection, sid: str, context: MessageContext, *, turn: int, until: float) -> int:
        """Return how many messages arrived in that time, including those whose text is no longer stored."""
        place = {"chat": chat_of(context), "thread": context.chat.thread or ""}
        return int(run(connection, _COUNT, **place, sid=sid, turn=turn, until=until).scalar_one())

    @reads
    def votes_since(
        self, connection: Connection, sid: str, context: MessageContext, *, turn: int, until: float
    ) -> Sequence[MessageContext]:
        """Return the votes that arrived after the session's last turn before `turn`, oldest first."""
        place = {"chat": chat_of(context), "thread": VOTES + (context.chat.thread or "")}
        rows = run(connection, _SINCE, **place, sid=sid, turn=turn, until=until, limit=VOTES_MAX).all()
        return [message_json.validate_json(row.body) for row in reversed(rows)]

    @writes
    def remember(self, connection: Connection, line: KeptLine) -> None:
        """Store a message of a remembered group that nobody answers. Idempotent, also once the message was recalled."""
        keep_line(connection, line)

    @writes
    def amend(self, connection: Connection, line: KeptLine) -> bool:
        """Replace the text of a kept message of the same sender. Return whether there was one."""
        return run(connection, _AMEND, **asdict(line)).rowcount > 0

    @reads
    def lines(self, connection: Connection, chat: str, since: float, until: float) -> Sequence[KeptLine]:
        """Return what is kept of a group between two times, oldest first."""
        return records(connection, KeptLine, _LINES, chat=chat, since=since, until=until)

    @writes
    def says(self, connection: Connection, chat: str, turn: int, at: float) -> bool:
        """Return whether this turn is the one that says in the group that it is remembered; there is only one."""
        run(connection, _SAY_ONCE, sid=chat, by=str(turn), at=at)
        return bool(run(connection, _SAID, sid=chat).scalar() == str(turn))

    @reads
    def has_said(self, connection: Connection, chat: str) -> bool:
        return run(connection, _SAID, sid=chat).first() is not None

    @writes
    def expire(self, connection: Connection, kept: Mapping[str, float]) -> bool:
        """Run one step: delete the lines of a group that are older than its time in `kept`, and those of groups that are not
        in it. Return whether there may be more."""
        chats = [*kept, ""]
        run(connection, "DELETE FROM mark WHERE kind = 'remembers' AND sid NOT IN :chats", chats=chats)
        gone = [run(connection, _NO_LONGER, chats=chats, most=EXPIRED_AT_ONCE)]
        gone += [run(connection, _TOO_OLD, chat=it, before=at, most=EXPIRED_AT_ONCE) for it, at in kept.items()]
        return any(it.rowcount >= EXPIRED_AT_ONCE for it in gone)

    @reads
    def holds(self, connection: Connection, context: MessageContext) -> bool:
        """Return whether the message is stored."""
        return run(connection, _HELD, **_place(context), message=context.message_id).scalar() is not None

    @reads
    def unbegun(self, connection: Connection, sid: str) -> Sequence[str]:
        """Return the bodies of the session's waiting messages whose turn has not begun."""
        return [row.body for row in run(connection, _UNBEGUN, sid=sid).all()]

    @writes
    def forget(self, connection: Connection, chat: str, message: str) -> bool:
        """Delete a message of `channel:account:chat`. Return whether there was one."""
        gone = "DELETE FROM chatter WHERE chat = :chat AND message = :message"
        return run(connection, gone, chat=chat, message=message).rowcount > 0

    @writes
    def react(
        self, connection: Connection, sid: str, turn: int, person: str, emoji: str, at: float, why: str = ""
    ) -> None:
        """Store a 👍 or 👎 on the answer of a turn, with the model and the hash of the prompt that made it; the newest of
        each `channel:account:person`."""
        _rate(connection, sid, turn, person, at, {"emoji": emoji, "why": why})

    @writes
    def rate(self, connection: Connection, chat: str, number: int, person: str, emoji: str | None, at: float) -> bool:
        """Store a person's rating of an answer in the web chat; None deletes it. Idempotent. Return False if there is no
        such answer of a turn."""
        if (answer := run(connection, _ANSWER, chat=chat, number=number).first()) is None:
            return False
        words = orjson.loads(answer.words)
        found = run(connection, _ANSWERED_BY, key=answer.key, message=words.get("reply_to") or "").first()
        if found is None:
            return False
        if emoji is None:
            run(connection, _UNRATE, sid=found.sid, kind=REACTION + person, turn=found.turn)
        else:
            rating = {"emoji": emoji, "place": words.get("place") or number}
            _rate(connection, found.sid, found.turn, person, at, rating)
        return True

    @reads
    def given(self, connection: Connection, sessions: Sequence[str], person: str) -> Mapping[str, str]:
        """Return a person's ratings on the page, `good` or `bad` by the place of the answer."""
        rows = run(connection, _GIVEN, kind=REACTION + person, sids=sessions).all()
        found = (orjson.loads(row.content) for row in rows)
        return {str(it["place"]): "good" if it["emoji"] == "👍" else "bad" for it in found if "place" in it}

    @writes
    def unreact(self, connection: Connection, sid: str, turn: int, person: str, emoji: str) -> None:
        """Delete a person's 👍 or 👎, unless the other one replaced it."""
        names = {"sid": sid, "kind": REACTION + person, "turn": turn, "like": f'%"emoji":"{emoji}"%'}
        run(connection, _UNMARK, **names)

    @reads
    def feedback(self, connection: Connection, since: float) -> Sequence[Rating]:
        """Return the ratings since then, newest first."""
        rows = run(connection, _FEEDBACK, since=since).all()
        return [Rating.read(row.turn, row.sid, row.at, orjson.loads(row.content)) for row in rows]

    @writes
    def speak(self, connection: Connection, chat: str, person: str, language: str, at: float) -> None:
        """Store the language of `channel:account:person` in the chat with that id."""
        run(connection, _MARK, sid=chat, kind=LANGUAGE + person, turn=0, content=language, at=at)

    @reads
    def language(self, connection: Connection, chat: str, person: str) -> str | None:
        """Return the user's language in the chat, else in their newest other chat, else that of other users in this
        chat."""
        found: str | None = run(connection, _LANGUAGE, sid=chat, kind=LANGUAGE + person).scalar()
        return found

    @writes
    def prune(self, connection: Connection, before: float) -> None:
        run(connection, "DELETE FROM chatter WHERE at < :before AND thread NOT LIKE 'kept %'", before=before)
        run(connection, _FORGET_LANGUAGES, before=before - LANGUAGE_SECONDS)


def ratings_since(connection: Connection, since: float) -> Mapping[str, int]:
    """Count the ratings since then: `good` and `bad`."""
    row = run(connection, _COUNT_RATINGS, since=since).one()
    return {"good": row.good, "bad": row.bad}


def _rate(connection: Connection, sid: str, turn: int, person: str, at: float, rating: Mapping[str, str | int]) -> None:
    row = run(connection, _MADE_BY, sid=sid, turn=turn).first()
    final = orjson.loads((row and row.final) or "{}")
    made = {"by": person, "models": sorted(final.get("models", ()))}
    made |= {"agent": (row and row.agent) or "", "prompt": (row and row.prompt) or ""}
    content = orjson.dumps({"why": "", **rating, **made}).decode()
    run(connection, _MARK, sid=sid, kind=REACTION + person, turn=turn, content=content, at=at)
    due, kind = at + RATINGS_SECONDS, later.RATINGS
    row_of = later.Later(id=kind, kind=kind, due=due, owner=None, place="", state="active", body="", since=at)
    later.insert(connection, row_of, None)


def line_of(context: MessageContext, *, sender: str = "") -> KeptLine:
    """Return the message as a remembered group keeps it: its files by name, the quoted message by id. `sender` is set for
    the bot's own answer."""
    files = tuple(replace(it, key="") for it in context.attachments)
    quote = Quote(message_id=context.reply_to.message_id) if context.reply_to else None
    text = context.text if len(context.text) <= LINE_CHARS_MAX else context.text[: LINE_CHARS_MAX - 1] + "…"
    kept = replace(context, text=text, attachments=files, reply_to=quote, links=())
    return KeptLine(
        chat=chat_of(context),
        thread=REMEMBERED + (context.chat.thread or ""),
        message=context.message_id,
        sender=sender or sender_of(context),
        body=message_json.dump_json(kept).decode(),
        at=context.sent_at.timestamp(),
    )


def keep_line(connection: Connection, line: KeptLine) -> None:
    run(connection, _KEEP, **asdict(line))


def keep_answer(connection: Connection, line: KeptLine, part: OutboxPart) -> None:
    run(connection, _KEEP_ANSWER, **asdict(line), part=part.id, payload=part.payload)


def _place(context: MessageContext) -> dict[str, str]:
    thread = context.chat.thread or ""
    return {"chat": chat_of(context), "thread": VOTES + thread if context.is_vote else thread}


def bot_rounds(connection: Connection, rounds: BotRounds, *, before: int) -> int:
    """Count the messages of bots below `before` that were accepted there since the last message of a person."""
    sids = _conversations(connection, rounds.sessions, rounds.members)
    count: int = run(connection, _ROUNDS, sids=sids, before=before).scalar_one()
    return count


def _conversations(connection: Connection, sessions: Sequence[str], members: Sequence[str]) -> list[str]:
    of_members = (run(connection, _OF_MEMBERS, beginning=it).scalars() for it in members)
    return [*sessions, *(sid for found in of_members for sid in found)]
