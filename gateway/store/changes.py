"""Changes to accepted messages: recalls, edits and summaries. A recall removes a message's words everywhere, in one commit.

The message may wait, or be answered, alone or with others; it may have been answered again, quoted, overheard, summarised,
noted and indexed. The answer that a turn gave to it goes too; other people's words in the same turn stay. The sessions
concerned are locked and get a new revision: a turn that has read the old one writes nothing more that it made from it
(`Revised`), and continues with what is left. Sent messages stay on the platform, and approved calls have run.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import orjson
from pydantic import ValidationError
from sqlalchemy import Connection

from agents.messages import AssistantMessage, Text, UserMessage, message_json
from channels.marks import ANSWER_GONE, TAKEN_BACK
from channels.message import MessageContext
from gateway.records.inbound import Inbound, inbound_json
from gateway.records.sessions import control_session, conversation, session_parts
from gateway.store import memory
from gateway.store.approval_words import forget_words
from gateway.store.records import SessionMark
from gateway.store.statements import MARK, NEVER, TO_SEND, WAITS, InboxStatus, OutboxStatus
from gateway.store.writer import Database, run, writes

TurnState: TypeAlias = Literal["waiting", "running", "finished", "overheard"]
WRITE = "UPDATE transcript SET content = :content WHERE sid = :sid AND seq = :seq"
_IN_ROW = "SELECT place, parts FROM spoken WHERE sid = :sid AND seq = :seq AND parts > 0 ORDER BY place"
_WITHDRAW = "UPDATE spoken SET how = 'withdrawn', parts = 1 WHERE sid = :sid AND seq = :seq AND place = :place"
RECALLED = "recalled"

ROW = f"""
SELECT i.id, i.sid, i.body, i.status, COALESCE(i.turn, i.id) AS turn,
    EXISTS (SELECT 1 FROM transcript t WHERE t.turn = COALESCE(i.turn, i.id) AND t.kind = 'user') AS begun,
    EXISTS (SELECT 1 FROM inbox o WHERE o.id = COALESCE(i.turn, i.id) AND o.status > {InboxStatus.JOINED:d}) AS ended
FROM inbox i WHERE """
FOUND = f"{ROW} (i.dedupe = :name OR i.dedupe_text = :name) AND i.body <> ''"
SPOKEN = "SELECT sid, seq, place, turn, how, parts FROM spoken WHERE message = :message ORDER BY sid, seq, place"
WAITING_SIDS = f"SELECT DISTINCT sid FROM inbox WHERE status = {InboxStatus.WAITING:d}"
REVISE = "UPDATE session SET revision = revision + 1 WHERE id IN :sids"
_LOCK = "UPDATE session SET revision = revision WHERE id IN :sids"
COPIES = f"""
SELECT id, body FROM inbox WHERE body LIKE :named AND id IN (
    SELECT id FROM inbox WHERE id IN :numbers
    UNION SELECT id FROM inbox WHERE turn IN :numbers
    UNION SELECT id FROM inbox WHERE sid IN :sids AND again IS NOT NULL
    UNION SELECT id FROM inbox WHERE sid IN :sids AND status = {InboxStatus.WAITING:d}
) ORDER BY id
"""
"""Rows that may name a message: itself, what was answered with it or quoted it, copies of it, and what waits."""
_CHATTER = "DELETE FROM chatter WHERE chat = :chat AND message = :message"
_UNTIL = "COALESCE((SELECT min(turn) FROM mark WHERE sid = :sid AND kind = 'new' AND turn >= :turn), :never)"
SUMMARIES = f"DELETE FROM mark WHERE sid = :sid AND kind = 'summary' AND turn >= :turn AND turn <= {_UNTIL}"
NOTES = f"""
UPDATE note SET text = '' WHERE sid = :sid AND text <> '' AND turn >= :turn AND turn <= {_UNTIL} RETURNING sender
"""
_SHOWN = "SELECT DISTINCT sid, seq, 0 AS parts FROM spoken WHERE person = :person AND direct = 1 AND turn >= :turn"
"""The places of notes beside a person's own messages."""
ROWS = "SELECT seq, kind, content FROM transcript WHERE turn = :turn AND kind <> 'final' ORDER BY seq"
_OTHERS = """
SELECT 1 FROM transcript t WHERE t.turn = :turn AND t.kind IN ('user', 'steered') AND (
    EXISTS (SELECT 1 FROM spoken s WHERE s.sid = t.sid AND s.seq = t.seq AND s.how = 'said')
    OR NOT EXISTS (SELECT 1 FROM spoken s WHERE s.sid = t.sid AND s.seq = t.seq AND s.parts > 0)
)
"""
"""Words of other people in the turn, or of the gateway itself."""
_UNDO = """
INSERT INTO mark (sid, kind, turn, content, at) VALUES (:sid, 'undone', :turn, 'recalled', :at) ON CONFLICT DO NOTHING
"""
_FORGET_TASKS = """
UPDATE task SET state = 'recalled', ended = COALESCE(ended, :at), title = '', result = ''
WHERE sid = :sid OR (parent = :sid AND turn = :turn)
"""
"""A task's words come from those that asked for it."""
_SENT = "SELECT id, status, payload FROM outbox WHERE turn = :turn"
_BLANK = f"""
UPDATE outbox SET payload = :payload, reason = CASE status WHEN {OutboxStatus.QUEUED:d} THEN '{RECALLED}' ELSE reason END,
    status = CASE WHEN {TO_SEND} AND NOT :replaces THEN {OutboxStatus.SENT:d} ELSE status END WHERE id = :id
"""
"""A part that takes the place of an unfinished answer is still sent: without words it takes that away."""
_LAYERLESS = "UPDATE layer SET content = :content, prompt = '', tools = '', route = '' WHERE turn = :turn"
_UNANSWERED = f"""
SELECT count(CASE WHEN reason = '{RECALLED}' THEN 1 END) > 0 AND count(CASE WHEN reason IS NULL THEN 1 END) = 0
FROM outbox WHERE turn = :turn AND part >= 0
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recall:
    """The findings of a recall: the conversations, the turns that answered the message, and those among them whose answer
    to others is never sent. `number` is the message's own, 0 if only overheard."""

    state: TurnState
    number: int = 0
    sids: Sequence[str] = ()
    turns: Sequence[tuple[str, int]] = ()
    unanswered: Sequence[tuple[str, int]] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Changed:
    """A message and the turn that answers it."""

    sid: str
    turn: int
    state: TurnState


class DatabaseChanges(Database):
    @writes
    def recall(self, connection: Connection, name: str, chat: str, message: str, at: float) -> Recall | None:
        """Removes the message with this dedupe key and id from `channel:account:chat`; idempotent. None if it is unknown."""
        own = run(connection, FOUND, name=name).first()
        heard = run(connection, _CHATTER, chat=chat, message=message).rowcount
        home = conversation(own.sid) if own else ""
        sids = {row.sid for row in run(connection, SPOKEN, message=message) if row.sid == home or _is_in(row.sid, chat)}
        waiting = run(connection, WAITING_SIDS).scalars()
        sids |= {it for it in waiting if _is_in(conversation(it), chat)} | ({own.sid, home} if own else set())
        sids |= {control_session(conversation(it)) for it in sids}  # a summary may be made there
        run(connection, _LOCK, sids=sorted(sids))
        facts = [row for row in run(connection, SPOKEN, message=message) if row.sid in sids]
        if own is None and not facts and not heard:
            return None
        numbers = {row.turn for row in facts} | ({own.id} if own else set())
        copies = {
            "numbers": sorted(numbers),
            "sids": sorted(sids),
            "named": f'%"message_id":{orjson.dumps(message).decode()}%',
        }
        changes = 0
        for row in run(connection, COPIES, **copies).all():
            with suppress(ValidationError):
                changes += _rewrite(connection, row, without(inbound_json.validate_json(row.body), message))
        for fact in facts:
            changes += withdraw(connection, fact)
        if changes:  # once, however often a platform tells it: a running turn asks its model again
            run(connection, REVISE, sids=sorted(sids))
        turns = sorted({(fact.sid, fact.turn) for fact in facts if fact.parts})
        for sid, turn in turns:
            run(connection, _FORGET_TASKS, sid=sid, turn=turn, at=at)
            names: dict[str, Any] = {"sid": sid, "turn": turn, "never": NEVER}
            run(connection, SUMMARIES, **names)
            for note in run(connection, NOTES, **names).all():
                channel, _, person = note.sender.split(":", 2)
                shown = run(connection, _SHOWN, person=f"{channel}:{person}", turn=turn).all()
                run(connection, REVISE, sids=sorted({it.sid for it in shown} - sids))
                for row in shown:
                    withdraw(connection, row)
            forget_words(connection, turn)
            if not run(connection, f"SELECT 1 FROM inbox WHERE id = :turn AND {WAITS}", turn=turn).first():
                is_others_too = run(connection, _OTHERS, turn=turn).first() is not None
                _wipe(connection, sid, turn, at, keeping=is_others_too)
        unanswered = [it for it in turns if run(connection, _UNANSWERED, turn=it[1]).scalar()]
        state: TurnState = (
            "overheard" if own is None else "finished" if own.ended else "running" if own.begun else "waiting"
        )
        number = own.id if own else 0
        return Recall(state=state, number=number, sids=sorted(sids), turns=turns, unanswered=unanswered)

    @writes
    def wipe(self, connection: Connection, sid: str, turn: int, at: float, *, ended: bool) -> None:
        """Remove what a turn made of a message that was taken back. Before it has `ended`: all but what ends it."""
        _wipe(connection, sid, turn, at, ended=ended)

    @writes
    def summarise(self, connection: Connection, sid: str, mark: SessionMark, revision: int) -> bool:
        """Replaces turns by a summary. Returns False if the conversation has changed since it was read."""
        if not memory.holds(connection, sid, revision):
            return False
        run(connection, MARK, sid=sid, **mark.row)
        return True

    @writes
    def edit(self, connection: Connection, name: str, sender: str, text: str) -> Changed | None:
        """Changes the text of a waiting message. Returns None if it has another sender, is a command or a pairing
        request, whose words are not kept, or has this text already."""
        if (row := run(connection, FOUND, name=name).first()) is None:
            return None
        inbound = inbound_json.validate_json(row.body)
        if inbound.command or inbound.context.sender.id != sender or inbound.context.text == text:
            return None
        state: TurnState = "finished" if row.ended else "running" if row.begun else "waiting"
        if state == "waiting":
            _rewrite(connection, row, replace(inbound, context=replace(inbound.context, text=text), event=""))
        return Changed(sid=row.sid, turn=row.turn, state=state)


def _wipe(connection: Connection, sid: str, turn: int, at: float, *, keeping: bool = False, ended: bool = True) -> None:
    """Remove what a turn has made of a message that was taken back: answers, calls and results. `keeping`: others' words
    stay in the history, with a line in the place of the answer; else the whole turn leaves it, once it has `ended`."""
    rows = run(connection, ROWS, turn=turn).all()
    memory.forget_turn(connection, sid, turn, [row.content for row in rows if row.kind != "toolResult"])
    answers = [row.seq for row in rows if row.kind == "assistant"]
    for row in rows:
        if row.kind in ("assistant", "toolResult", "drained"):
            place = {"sid": sid, "seq": row.seq}
            if keeping and row.seq == answers[-1]:
                run(connection, WRITE, **place, content=message_json.dump_json(_GONE).decode())
            else:
                run(connection, "DELETE FROM transcript WHERE sid = :sid AND seq = :seq", **place)
    for row in run(connection, _SENT, turn=turn).all():
        payload = orjson.loads(row.payload)
        payload["part"] |= {"text": "", "buttons": [], "files": []}
        names = {"id": row.id, "payload": orjson.dumps(payload).decode(), "replaces": bool(payload["part"]["replaces"])}
        run(connection, _BLANK, **names)
    run(connection, _LAYERLESS, turn=turn, content='{"recalled":true}')
    if ended and not keeping:
        run(connection, _UNDO, sid=sid, turn=turn, at=at)


def without(inbound: Inbound, message: str) -> Inbound:
    """The inbox's message without that one. An approval's outcome loses the words alone, for what was approved has run."""

    def unquoting(context: MessageContext) -> MessageContext:
        quotes = context.reply_to is not None and context.reply_to.message_id == message
        return replace(context, reply_to=None) if quotes else context

    before, inbound = inbound, replace(inbound, event="")
    kept = tuple(unquoting(it) for it in inbound.contexts if it.message_id != message)
    if kept == before.contexts:
        return before
    if kept:
        return replace(inbound, context=kept[-1], together=kept if len(kept) > 1 else ())
    return replace(inbound, recalled=not inbound.approval, context=inbound.context.wordless, together=())


def withdraw(connection: Connection, fact: Any) -> bool:
    """The message leaves its row of the transcript; what cannot be read goes whole. False if it had left before."""
    place = {"sid": fact.sid, "seq": fact.seq}
    content: str | None = run(
        connection, "SELECT content FROM transcript WHERE sid = :sid AND seq = :seq", **place
    ).scalar()
    if content is None:
        return False
    try:
        message = message_json.validate_json(content)
    except ValidationError:
        run(connection, WRITE, **place, content="{}")
        return content != "{}"
    if isinstance(message, UserMessage):
        message = replace(message, metadata="")
        if fact.parts:
            parts = message.content
            before = sum(it.parts for it in run(connection, _IN_ROW, **place) if it.place < fact.place)
            head = next((it.text for it in parts[before : before + 1] if isinstance(it, Text)), "").partition("\n")[0]
            gone = Text(text=f"{head}\n{TAKEN_BACK}.)")
            message = replace(message, content=(*parts[:before], gone, *parts[before + fact.parts :]))
    left = message_json.dump_json(message).decode()
    if left != content:
        run(connection, WRITE, **place, content=left)
    if fact.parts:
        run(connection, _WITHDRAW, **place, place=fact.place)
    return left != content


def _rewrite(connection: Connection, row: Any, inbound: Inbound) -> bool:
    """Let a row of the inbox have this message. False if it is the one it has."""
    body = inbound_json.dump_json(inbound).decode()
    if is_new := bool(body != row.body):
        run(connection, "UPDATE inbox SET body = :body WHERE id = :id", body=body, id=row.id)
    return is_new


def _is_in(sid: str, chat: str) -> bool:
    """True if a conversation is of `channel:account:chat`."""
    with suppress(ValueError):
        return session_parts(sid).place == chat
    return False


_GONE = AssistantMessage(
    content=(Text(text=f"{ANSWER_GONE}: somebody has taken back a message that it was about.)"),),
    provider="",
    model="",
    api="",
    stop_reason="end_turn",
    timestamp=0.0,
)
