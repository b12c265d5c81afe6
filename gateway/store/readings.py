"""Queries of commands, recalls and readers about one conversation: its state, its turns and its bills."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from gateway.records.sessions import CHOICE, CONTROL
from gateway.store import statements as sql
from gateway.store.errors import Fenced
from gateway.store.records import Bill, Concerned, Entry, Work


class Readings(Protocol):
    async def conversation(self, sid: str, *, before: int, history_turns: int, waiting_max: int) -> Work:
        """Returns the conversation before the command `before`: the messages that wait, with or without a running turn,
        and at most `history_turns` turns."""
        names = {"sid": sid, "before": before}
        waiting = await self._rows(sql.WAITING_BEFORE, names | {"waiting_max": waiting_max})
        revision = (await self._ours(sql.REVISION, names))["revision"]
        entries = await self._rows(sql.HISTORY_BEFORE, names | sql.bounds(history_turns))
        return replace(Work.of(waiting, [Entry(**row) for row in entries]), revision=revision)

    async def bodies(self, sid: str, turn: int) -> Mapping[int, str]:
        """Returns the bodies of all messages that a turn answered, by number, oldest first; empty if its own is gone."""
        return {row["id"]: row["body"] for row in await self._rows(sql.BODIES, {"sid": sid, "turn": turn})}

    async def last_turn(self, sid: str, *, command: int, by: str) -> int | None:
        """Returns the newest finished turn on the branch of a command that was not undone, or the turn that `by` has
        undone: a command that runs again undoes the same turn."""
        turn: int | None = (await self._one(sql.LAST_TURN, {"sid": sid, "before": command, "by": by}))["turn"]
        return turn

    async def stopped_at(self, sid: str) -> int:
        """Returns the number of the command that stopped the conversation last; 0 if none did, or a message has interrupted
        it since."""
        row = await self._one(sql.STOPPED_AT, {"sid": sid})
        return row["stopped"] if row else 0

    async def concerned(self, sid: str, *, before: int, by: str) -> Sequence[Concerned]:
        """The messages below `before` that wait, or that were stopped with `by` in their final row, in order."""
        rows = await self._rows(sql.CONCERNED, {"sid": sid, "before": before, "by": f'%"{by}"%'})
        return [Concerned(turn=row["turn"], body=row["body"], begun=bool(row["begun"])) for row in rows]

    async def bills(self, sid: str, *, since: float) -> Sequence[Bill]:
        """The final rows of the conversation and its control session: those since it began, and those since then."""
        rows = await self._rows(sql.BILLS, {"sid": sid, "control": CONTROL + sid, "since": since})
        return [Bill(content=it["content"], current=bool(it["current"]), recent=bool(it["recent"])) for it in rows]

    async def transcript(self, sid: str) -> Sequence[Entry]:
        """Returns the whole conversation since it began, with what a summary has replaced, without undone turns."""
        return [Entry(**row) for row in await self._rows(sql.TRANSCRIPT, {"sid": sid})]

    async def has_arrived(self, first: str, second: str = "") -> bool:
        """Return True if a message has one of these dedupe keys, also if its words are erased."""
        return bool(await self._rows(sql.ARRIVED, {"first": first, "second": second}))

    async def choices(self) -> Mapping[str, str]:
        """The newest choice for each sid that begins with `CHOICE`, by the rest of the sid."""
        rows = await self._rows(sql.CHOICES, {"prefix": f"{CHOICE}%"})
        return {row["sid"].removeprefix(CHOICE): row["content"] for row in rows}

    async def _rows(self, statement: str, names: Mapping[str, Any]) -> Sequence[Any]:
        """The rows that one statement returns, after its commit."""
        raise NotImplementedError

    async def _one(self, statement: str, names: Mapping[str, Any]) -> Any:
        """Returns the first row or None."""
        return next(iter(await self._rows(statement, names)), None)

    async def _ours(self, statement: str, names: Mapping[str, Any]) -> Any:
        """Returns the first row. Raises Fenced without one: another worker owns the chat."""
        if (row := await self._one(statement, names)) is None:
            raise Fenced
        return row
