"""Changes to accepted messages: recalls, edits and summaries.

A recall removes a message's text everywhere, in one commit. The message may be waiting or answered, alone or with
others; it may have been answered again, quoted, overheard, summarised, noted and indexed. A turn's answer to it is
removed too; other users' text in the same turn stays. The affected sessions are locked and get a new revision: a turn
that has read the old one writes nothing more that is based on it (`Revised`), and continues with what is left. Sent
messages stay on the platform, and approved calls have run.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import orjson
from pydantic import ValidationError
from sqlalchemy import Connection

from agents.attachments import tag
from agents.messages import AssistantMessage, Text, ToolCall, ToolResultMessage, UserMessage, message_json
from channels.marks import ANSWER_GONE, TAKEN_BACK
from channels.message import MessageContext
from gateway.store import later, layers, memory
from gateway.store.approvals import forget_words
from gateway.store.inbound import Inbound, inbound_json
from gateway.store.operations import Database, run, writes
from gateway.store.records import SessionMark
from gateway.store.sessions import control_session, conversation, session_parts
from gateway.store.statements import MARK, NEVER, InboxStatus
from tools.tool import line_source, note_source, schedule_source, task_source, turn_source, upload_source
from tools.workspace import UPLOADS, folder_name

TurnState: TypeAlias = Literal["waiting", "running", "finished", "overheard"]
WRITE = "UPDATE transcript SET content = :content WHERE sid = :sid AND seq = :seq"
COPIED = """
SELECT s.sid, s.seq, s.turn, s.message, t.kind FROM spoken s JOIN transcript t ON t.sid = s.sid AND t.seq = s.seq
WHERE s.message IN :sources AND s.how = 'copied' AND s.turn >= :since ORDER BY s.sid, s.seq
"""
_SAID_IN = "SELECT sid, seq, place, turn, how, parts FROM spoken WHERE sid = :sid AND turn = :turn AND how = 'said'"
_UNCOPY = "DELETE FROM spoken WHERE sid = :sid AND seq = :seq AND how = 'copied'"
_ANSWERS = """
SELECT seq, content FROM transcript
WHERE turn = :turn AND sid = :sid AND kind = 'assistant' AND seq < :before ORDER BY seq DESC
"""
_COPYING_TASKS = "UPDATE task SET result = '' WHERE sid IN :sids RETURNING id"
_RUNS = """
SELECT id, sid, body, status, dedupe FROM inbox WHERE dedupe >= :first AND dedupe < :end AND body <> ''
"""
"""The runs of a reminder, including waiting ones, by dedupe key."""
_QUOTING = """
SELECT DISTINCT s.message FROM spoken q JOIN spoken s ON s.sid = q.sid AND s.seq = q.seq AND s.how = 'said'
WHERE q.message IN :messages AND q.sid = :sid AND q.how = 'quoted'
"""
_IN_ROW = "SELECT place, parts FROM spoken WHERE sid = :sid AND seq = :seq AND parts > 0 ORDER BY place"
_WITHDRAW = "UPDATE spoken SET how = 'withdrawn', parts = 1 WHERE sid = :sid AND seq = :seq AND place = :place"
RECALLED = "recalled"

FOUND = """
SELECT i.id, i.sid, i.body, i.status, COALESCE(i.turn, i.id) AS turn,
    EXISTS (SELECT 1 FROM transcript t WHERE t.turn = COALESCE(i.turn, i.id) AND t.kind = 'user') AS begun,
    EXISTS (SELECT 1 FROM inbox o WHERE o.id = COALESCE(i.turn, i.id) AND o.status > 1) AS ended
FROM inbox i WHERE (i.dedupe = :name OR i.dedupe_text = :name) AND i.body <> ''
"""
SPOKEN = """
SELECT sid, seq, place, turn, how, parts FROM spoken WHERE message = :message AND how <> 'copied' ORDER BY sid, seq, place
"""
WAITING_SIDS = "SELECT DISTINCT sid FROM inbox WHERE status = 0"
REVISE = "UPDATE session SET revision = revision + 1 WHERE id IN :sids"
_LOCK = "UPDATE session SET revision = revision WHERE id IN :sids"
COPIES = """
SELECT id, body FROM inbox WHERE body LIKE :named AND id IN (
    SELECT id FROM inbox WHERE id IN :numbers
    UNION SELECT id FROM inbox WHERE turn IN :numbers
    UNION SELECT id FROM inbox WHERE sid IN :sids AND again IS NOT NULL
    UNION SELECT id FROM inbox WHERE sid IN :sids AND status = 0
) ORDER BY id
"""
"""Rows that may refer to a message: itself, what was answered with it or quoted it, copies of it, and what is
waiting."""
_CHATTER = "DELETE FROM chatter WHERE chat = :chat AND message = :message AND thread NOT LIKE 'kept %'"
_LINE = """
UPDATE chatter SET sender = '', body = '' WHERE chat = :chat AND message = :message AND thread LIKE 'kept %' AND body <> ''
"""
"""The row stays, so that a redelivery does not bring the words back."""
_ANSWERED_LINES = "DELETE FROM chatter WHERE sender = :turn"
SUMMARIES = """
DELETE FROM mark WHERE sid = :sid AND kind = 'summary' AND turn >= :turn AND turn <= COALESCE((
    SELECT min(turn) FROM mark WHERE sid = :sid AND kind = 'new' AND turn >= :turn
), :never)
"""
NOTES = """
UPDATE note SET text = '' WHERE sid = :sid AND text <> '' AND turn >= :turn AND turn <= COALESCE((
    SELECT min(turn) FROM mark WHERE sid = :sid AND kind = 'new' AND turn >= :turn
), :never)
RETURNING sender, agent, number
"""
_SHOWN = "SELECT DISTINCT sid, seq, 0 AS parts FROM spoken WHERE person = :person AND direct = 1 AND turn >= :turn"
"""The positions of notes that were shown with a user's own messages."""
ROWS = "SELECT seq, kind, content FROM transcript WHERE turn = :turn AND kind <> 'final' ORDER BY seq"
_OTHERS = """
SELECT 1 FROM transcript t WHERE t.turn = :turn AND t.kind IN ('user', 'steered') AND (
    EXISTS (SELECT 1 FROM spoken s WHERE s.sid = t.sid AND s.seq = t.seq AND s.how = 'said')
    OR NOT EXISTS (SELECT 1 FROM spoken s WHERE s.sid = t.sid AND s.seq = t.seq AND s.parts > 0)
)
"""
"""Text of other users in the turn, or of the gateway itself."""
_UNDO = """
INSERT INTO mark (sid, kind, turn, content, at) VALUES (:sid, 'undone', :turn, 'recalled', :at) ON CONFLICT DO NOTHING
"""
_FORGET_TASKS = """
UPDATE task SET state = 'recalled', ended = COALESCE(ended, :at), title = '', result = ''
WHERE sid = :sid OR (parent = :sid AND turn = :turn)
"""
"""A task's text comes from the messages that asked for it."""
_SENT = "SELECT id, status, payload FROM outbox WHERE turn = :turn"
_BLANK = """
UPDATE outbox SET payload = :payload, poll = NULL,
    reason = CASE status WHEN 0 THEN 'recalled' ELSE reason END,
    status = CASE WHEN status = 0 AND NOT :replaces THEN 2 ELSE status END WHERE id = :id
"""
"""A part that replaces a draft is still sent: without text it removes the draft."""
_LAYERLESS = "UPDATE layer SET content = :content, prompt = '', tools = '', route = '' WHERE turn = :turn"
_UNANSWERED = """
SELECT count(CASE WHEN reason = 'recalled' THEN 1 END) > 0 AND count(CASE WHEN reason IS NULL THEN 1 END) = 0
FROM outbox WHERE turn = :turn AND part >= 0
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recall:
    """The result of a recall: the conversations, the turns that answered the message, and those among them whose
    answer to others is never sent. `number` is the message's own, 0 if it was only overheard."""

    state: TurnState
    number: int = 0
    sids: Sequence[str] = ()
    turns: Sequence[tuple[str, int]] = ()
    unanswered: Sequence[tuple[str, int]] = ()
    quoting: Sequence[tuple[str, str]] = ()
    """The messages that quoted it, with their conversations."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Changed:
    """A changed message and the turn that answers it."""

    sid: str
    turn: int
    state: TurnState


class DatabaseChanges(Database):
    @writes
    def recall(self, connection: Connection, name: str, chat: str, message: str, at: float) -> Recall | None:
        """Remove the message with this dedupe key and id from `channel:account:chat`. Idempotent. Return None if it
        is unknown."""
        own = run(connection, FOUND, name=name).first()
        heard = sum(run(connection, it, chat=chat, message=message).rowcount for it in (_CHATTER, _LINE))
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
        quoting = [(sid, it) for sid in sorted(sids) for it in quoting_of(connection, sid, [message])]
        turns = sorted({(fact.sid, fact.turn) for fact in facts if fact.parts})
        said = {turn for _, turn in turns} | ({own.turn} if own else set())
        sources = {turn_source(it) for it in said} | {line_source(chat, message)}
        sources |= {
            it for sid in sids for it in uploads_of(connection, sid, message, [it for it in facts if it.sid == sid])
        }
        copying = forget_reminders(connection, sorted(said), at)
        copying |= withdraw_copies(connection, sources, since=min(said, default=0), at=at)
        run(connection, REVISE, sids=sorted({sid for sid, _ in copying} - sids))
        changes = len(copying)
        for row in run(connection, COPIES, **copies).all():
            with suppress(ValidationError):
                changes += _rewrite(connection, row, without(inbound_json.validate_json(row.body), message))
        for fact in facts:
            changes += withdraw(connection, fact)
        if changes:  # once, however often a platform tells it: a running turn asks its model again
            run(connection, REVISE, sids=sorted(sids))
        for sid, turn in turns:
            run(connection, _FORGET_TASKS, sid=sid, turn=turn, at=at)
            forget_made(connection, sid, turn, at, revised=sids)
            forget_words(connection, turn)
            if not run(connection, "SELECT 1 FROM inbox WHERE id = :turn AND status = 0", turn=turn).first():
                is_others_too = run(connection, _OTHERS, turn=turn).first() is not None
                _wipe(connection, sid, turn, at, keeping=is_others_too)
        unanswered = [it for it in turns if run(connection, _UNANSWERED, turn=it[1]).scalar()]
        state: TurnState = (
            "overheard" if own is None else "finished" if own.ended else "running" if own.begun else "waiting"
        )
        number = own.id if own else 0
        sids |= {sid for sid, _ in copying}
        found = {"sids": sorted(sids), "turns": turns, "unanswered": unanswered, "quoting": quoting}
        return Recall(state=state, number=number, **found)

    @writes
    def wipe(self, connection: Connection, sid: str, turn: int, at: float, *, ended: bool) -> None:
        """Remove what a turn derived from a recalled message. Before the turn has `ended`, keep the row that ends
        it."""
        _wipe(connection, sid, turn, at, ended=ended)

    @writes
    def summarise(self, connection: Connection, sid: str, mark: SessionMark, revision: int) -> bool:
        """Replace turns by a summary. Return False if the conversation was revised since it was read."""
        if not memory.holds(connection, sid, revision):
            return False
        run(connection, MARK, sid=sid, **mark.row)
        return True

    @writes
    def edit(self, connection: Connection, name: str, sender: str, text: str) -> Changed | None:
        """Change the text of a waiting message. Return None if it has another sender, if its text is not stored (a
        command or a pairing request), or if the text is the same."""
        if (row := run(connection, FOUND, name=name).first()) is None:
            return None
        inbound = inbound_json.validate_json(row.body)
        if inbound.command or inbound.context.sender.id != sender or inbound.context.text == text:
            return None
        state: TurnState = "finished" if row.ended else "running" if row.begun else "waiting"
        if state == "waiting":
            _rewrite(connection, row, replace(inbound, context=replace(inbound.context, text=text), event=""))
        return Changed(sid=row.sid, turn=row.turn, state=state)


def forget_made(connection: Connection, sid: str, turn: int, at: float, *, revised: Iterable[str] = ()) -> None:
    """Remove the summaries and notes derived from a conversation since a turn, and what repeats those notes.
    `revised` are conversations with a new revision already."""
    names: dict[str, Any] = {"sid": sid, "turn": turn, "never": NEVER}
    run(connection, SUMMARIES, **names)
    for note in run(connection, NOTES, **names).all():
        channel, _, person = note.sender.split(":", 2)
        shown = run(connection, _SHOWN, person=f"{channel}:{person}", turn=turn).all()
        for row in shown:
            withdraw(connection, row)
        sources = {note_source(note.sender, note.agent, it) for it in (note.number, None)}
        copying = withdraw_copies(connection, sources, since=turn, at=at)
        concerned = {it.sid for it in shown} | {it for it, _ in copying}
        run(connection, REVISE, sids=sorted(concerned - set(revised)))


def withdraw_copies(connection: Connection, sources: Iterable[str], *, since: int, at: float) -> set[tuple[str, int]]:
    """Remove what repeats these texts, directly or through other copies: tool results and runs of reminders. Return
    the affected conversations and turns. `since` is the first turn that may have copies."""
    seen, copying = set[str](), set[tuple[str, int]]()
    while wanted := sorted(set(sources) - seen):
        seen.update(wanted)
        rows = run(connection, COPIED, sources=wanted, since=since).all()
        for row in {(it.sid, it.seq): it for it in rows}.values():
            if row.kind == "toolResult":
                _withdraw_result(connection, row, asks=not row.message.endswith(":*"))
            else:
                _withdraw_run(connection, row.sid, row.turn, at)
            run(connection, _UNCOPY, sid=row.sid, seq=row.seq)
        found = {(row.sid, row.turn) for row in rows}
        for sid, turn in sorted(found - copying):
            forget_made(connection, sid, turn, at, revised=[sid])
        copying |= found
        tasks = run(connection, _COPYING_TASKS, sids=sorted({it.sid for it in rows})).scalars()
        sources = {*(turn_source(row.turn) for row in rows), *map(task_source, tasks)}
    return copying


def _withdraw_result(connection: Connection, row: Any, *, asks: bool) -> None:
    """Remove a result's content. `asks`: its call may contain the search terms, so its arguments are removed as
    well."""
    place = {"sid": row.sid, "seq": row.seq}
    content = run(connection, "SELECT content FROM transcript WHERE sid = :sid AND seq = :seq", **place).scalar()
    left = "{}"
    with suppress(ValidationError):
        message = message_json.validate_json(content or "")
        if isinstance(message, ToolResultMessage):
            left = message_json.dump_json(message.withdrawn).decode()
            if asks:
                _withdraw_call(connection, row, message.call_id)
    run(connection, WRITE, **place, content=left)


def _withdraw_call(connection: Connection, row: Any, call_id: str) -> None:
    asked = {"sid": row.sid, "turn": row.turn, "before": row.seq}
    for answer in run(connection, _ANSWERS, **asked).all():
        with suppress(ValidationError):
            message = message_json.validate_json(answer.content)
            if isinstance(message, AssistantMessage) and any(it.id == call_id for it in message.calls):
                bare: dict[str, Any] = {"arguments": {}, "arguments_raw": "{}", "wire": None}
                content = tuple(
                    replace(it, **bare) if isinstance(it, ToolCall) and it.id == call_id else it
                    for it in message.content
                )
                left = message_json.dump_json(replace(message, content=content)).decode()
                run(connection, WRITE, sid=row.sid, seq=answer.seq, content=left)
                return


def _withdraw_run(connection: Connection, sid: str, turn: int, at: float) -> None:
    """Remove the text of a reminder's run. A run that has not ended is left to its end, which finds it recalled."""
    for row in run(connection, _SAID_IN, sid=sid, turn=turn).all():
        withdraw(connection, row)
    if not run(connection, "SELECT 1 FROM inbox WHERE id = :turn AND status = 0", turn=turn).first():
        _wipe(connection, sid, turn, at)


def forget_reminders(
    connection: Connection, turns: Sequence[int], at: float, *, only_ended: bool = False
) -> set[tuple[str, int]]:
    """Delete the reminders that were created in these turns, and the text of their runs. Return the conversations
    and turns of the runs, and those that repeat the reminders."""
    ids = later.forget_asked(connection, turns, only_ended=only_ended)
    found = set[tuple[str, int]]()
    for id_ in ids:
        first, end = later.run_keys(id_)
        for row in run(connection, _RUNS, first=first, end=end).all():
            if not row.dedupe.startswith(first):
                continue
            with suppress(ValidationError):
                inbound = inbound_json.validate_json(row.body)
                gone = replace(inbound, recalled=True, context=inbound.context.wordless, together=(), event="")
                _rewrite(connection, row, gone)
            if row.status != InboxStatus.WAITING:
                _wipe(connection, row.sid, row.id, at)
            found.add((row.sid, row.id))
    sources = [schedule_source(it) for it in ids]
    return found | withdraw_copies(connection, sources, since=min(turns, default=0), at=at)


def uploads_of(connection: Connection, sid: str, message: str, facts: Sequence[Any]) -> set[str]:
    """Return the files of a message as sources. A command can read all files of its conversation, so its output may
    repeat any of them; `facts` are the rows of the message, one of which shows whether it had files."""
    folder, name = folder_name(sid), tag(message)
    held = "SELECT 1 FROM transcript WHERE sid = :sid AND seq = :seq AND content LIKE :named"
    names = {"named": f"%{UPLOADS}/{name}/%"}
    has_files = any(run(connection, held, sid=it.sid, seq=it.seq, **names).first() for it in facts if it.parts)
    return {upload_source(folder, it) for it in ((name, "*") if has_files else (name,))}


def quoting_of(connection: Connection, sid: str, messages: Sequence[str]) -> Sequence[str]:
    """Return the messages of a conversation that quoted one of these."""
    return list(run(connection, _QUOTING, sid=sid, messages=list(messages)).scalars())


def _wipe(connection: Connection, sid: str, turn: int, at: float, *, keeping: bool = False, ended: bool = True) -> None:
    """Remove what a turn derived from a recalled message: answers, calls and results. `keeping`: other users' text
    stays in the history, with a placeholder for the answer; otherwise the whole turn is removed once it has `ended`."""
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
        payload["part"] |= {"text": "", "buttons": [], "files": [], "options": []}
        names = {"id": row.id, "payload": orjson.dumps(payload).decode(), "replaces": bool(payload["part"]["replaces"])}
        run(connection, _BLANK, **names)
    run(connection, _ANSWERED_LINES, turn=turn_source(turn))
    run(connection, _LAYERLESS, turn=turn, content=layers.RECALLED)
    if ended and not keeping:
        run(connection, _UNDO, sid=sid, turn=turn, at=at)


def without(inbound: Inbound, message: str) -> Inbound:
    """Return the inbox message without that one. An approval's outcome only loses the text, because the approved
    call has run."""

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
    """Remove the message from its transcript row; an unreadable row is removed entirely. Return False if it was
    removed before."""
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
        memory.forget_turn(connection, fact.sid, fact.turn, [content], keeping=left)
        run(connection, _WITHDRAW, **place, place=fact.place)
    return left != content


def _rewrite(connection: Connection, row: Any, inbound: Inbound) -> bool:
    """Update an inbox row with this message. Return False if it is unchanged."""
    body = inbound_json.dump_json(inbound).decode()
    if is_new := bool(body != row.body):
        run(connection, "UPDATE inbox SET body = :body WHERE id = :id", body=body, id=row.id)
    return is_new


def _is_in(sid: str, chat: str) -> bool:
    """Return whether a conversation belongs to `channel:account:chat`."""
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
