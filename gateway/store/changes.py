"""What people do to a message that was accepted: they take it back, or edit it while it waits.

What is taken back loses its words wherever they stand, in one commit: in the inbox, and in the turn that answers it, which
leaves the history once it has ended. A running turn is the caller's to stop; an answer that was sent stays.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from sqlalchemy import Connection

from agents.messages import Text, UserMessage, message_json
from gateway.queue import Inbound, inbound_json
from gateway.store import memory
from gateway.store.writer import Database, run, writes

State: TypeAlias = Literal["waiting", "running", "finished"]
TAKEN_BACK = "(The person has taken this message back.)"

_ROWS = """
SELECT i.id, i.sid, i.body, COALESCE(i.turn, i.id) AS turn,
    EXISTS (SELECT 1 FROM inbox n WHERE n.sid = i.sid AND n.status = 0 AND n.id < i.id) AS behind,
    EXISTS (SELECT 1 FROM transcript t WHERE t.sid = i.sid AND t.turn = COALESCE(i.turn, i.id) AND t.kind = 'user') AS begun,
    EXISTS (SELECT 1 FROM inbox o WHERE o.id = COALESCE(i.turn, i.id) AND o.status > 1) AS ended
FROM inbox i WHERE """
_FOUND = f"{_ROWS} (i.dedupe = :name OR i.dedupe_text = :name) AND i.body <> ''"
_AGAIN = f"{_ROWS} i.sid = :sid AND i.id > :id AND i.body LIKE :named ORDER BY i.id"
"""What was delivered after it and names it, as a message that is answered again does."""
_WORDS = "SELECT seq, content FROM transcript WHERE sid = :sid AND turn = :turn AND kind IN ('user', 'steered')"
_UNDO = """
INSERT INTO mark (sid, kind, turn, content, at) VALUES (:sid, 'undone', :turn, 'recalled', :at) ON CONFLICT DO NOTHING
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Changed:
    """A message and the turn that answers it. `behind`: others of its session wait before it."""

    sid: str
    turn: int
    state: State
    behind: bool


class DatabaseChanges(Database):
    @writes
    def recall(self, connection: Connection, name: str, at: float) -> Changed | None:
        """Of the message with that dedupe key no word stays, nor of it as it was answered again. None where there is none;
        the same however often."""
        if (row := run(connection, _FOUND, name=name).first()) is None:
            return None
        id_ = inbound_json.validate_json(row.body).context.message_id
        later = run(connection, _AGAIN, sid=row.sid, id=row.id, named=f'%"message_id":"{id_}"%').all()
        silent = [it for it in (row, *later) if _take_back(connection, it, id_, at)]
        memory.forget(connection, [row.sid])
        return _changed(next((it for it in reversed(silent) if not it.ended), row))

    @writes
    def edit(self, connection: Connection, name: str, sender: str, text: str) -> Changed | None:
        """Let a message that waits say this. None where it is not this person's, is a command or a stranger's request, of
        which no words are kept, or says so already."""
        if (row := run(connection, _FOUND, name=name).first()) is None:
            return None
        inbound = inbound_json.validate_json(row.body)
        if inbound.command or inbound.context.sender.id != sender or inbound.context.text == text:
            return None
        changed = _changed(row)
        if changed.state == "waiting":
            _rewritten(connection, row, lambda it: replace(it, context=replace(it.context, text=text)))
        return changed


def _take_back(connection: Connection, row: Any, id_: str, at: float) -> bool:
    """Whether the row says nothing any more: it was this message alone, not others as well that are answered together."""
    if id_ not in (it.message_id for it in inbound_json.validate_json(row.body).contexts):
        return False
    inbound = _rewritten(connection, row, lambda it: _without(it, id_))
    own = f"[message_id: {id_}]\n"
    for words in run(connection, _WORDS, sid=row.sid, turn=row.turn).all():
        message = message_json.validate_json(words.content)
        if isinstance(message, UserMessage) and any(own in it.text for it in message.content if isinstance(it, Text)):
            kept = tuple(it for it in message.content if isinstance(it, Text))
            kept = tuple(replace(it, text=own + TAKEN_BACK) if it.text.startswith(own) else it for it in kept)
            content = message_json.dump_json(replace(message, content=kept, metadata="")).decode()
            names = {"sid": row.sid, "seq": words.seq, "content": content}
            run(connection, "UPDATE transcript SET content = :content WHERE sid = :sid AND seq = :seq", **names)
    if row.begun and row.ended and not inbound.approval:
        run(connection, _UNDO, sid=row.sid, turn=row.turn, at=at)
    return inbound.recalled


def _without(inbound: Inbound, id_: str) -> Inbound:
    """The outcome of an approval loses the words alone: what was approved has run, and people read what became of it."""
    if others := tuple(it for it in inbound.contexts if it.message_id != id_):
        return replace(inbound, context=others[-1], together=others if len(others) > 1 else ())
    wordless = replace(inbound.context, text="", attachments=(), reply_to=None, more=False)
    return replace(inbound, recalled=not inbound.approval, context=wordless, together=())


def _rewritten(connection: Connection, row: Any, change: Callable[[Inbound], Inbound]) -> Inbound:
    inbound = change(inbound_json.validate_json(row.body))
    body = inbound_json.dump_json(inbound).decode()
    run(connection, "UPDATE inbox SET body = :body WHERE id = :id", body=body, id=row.id)
    return inbound


def _changed(row: Any) -> Changed:
    state: State = "finished" if row.ended else "running" if row.begun else "waiting"
    return Changed(sid=row.sid, turn=row.turn, state=state, behind=bool(row.behind))
