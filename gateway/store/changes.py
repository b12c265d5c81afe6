"""The changes that people make to an accepted message: they take it back, or edit it while it waits; and what is made
of a conversation that may have changed meanwhile."""

from dataclasses import dataclass, replace

from sqlalchemy import Connection

from gateway.records.inbound import inbound_json
from gateway.store import recall
from gateway.store.memory import holds
from gateway.store.recall import Recall, State
from gateway.store.records import SessionMark
from gateway.store.statements import MARK
from gateway.store.writer import Database, run, writes


@dataclass(frozen=True, kw_only=True, slots=True)
class Changed:
    """A message and the turn that answers it."""

    sid: str
    turn: int
    state: State


class DatabaseChanges(Database):
    @writes
    def recall(self, connection: Connection, name: str, chat: str, message: str, at: float) -> Recall | None:
        """See `gateway.store.recall`."""
        return recall.take_back(connection, name, chat, message, at)

    @writes
    def wipe(self, connection: Connection, sid: str, turn: int, at: float, *, ended: bool) -> None:
        """Remove what a turn made of a message that was taken back. Before it has `ended`: all but what ends it."""
        recall.wipe(connection, sid, turn, at, ended=ended)

    @writes
    def summarise(self, connection: Connection, sid: str, mark: SessionMark, revision: int) -> bool:
        """Let a summary stand for turns. False if something was taken out of the conversation since it was read."""
        if not holds(connection, sid, revision):
            return False
        run(connection, MARK, sid=sid, **mark.row)
        return True

    @writes
    def edit(self, connection: Connection, name: str, sender: str, text: str) -> Changed | None:
        """Let a message that waits say this. None where it is not this person's, is a command or a stranger's request, of
        which no words are kept, or says so already."""
        if (row := run(connection, recall.FOUND, name=name).first()) is None:
            return None
        inbound = inbound_json.validate_json(row.body)
        if inbound.command or inbound.context.sender.id != sender or inbound.context.text == text:
            return None
        state: State = "finished" if row.ended else "running" if row.begun else "waiting"
        if state == "waiting":
            recall.rewrite(connection, row, replace(inbound, context=replace(inbound.context, text=text, mark="")))
        return Changed(sid=row.sid, turn=row.turn, state=state)
