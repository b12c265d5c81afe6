"""The queries of commands, recalls and readers about one conversation: it, its turns and its bills, as they stand."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from gateway.records.sessions import CHOICE, CONTROL
from gateway.store import statements as sql
from gateway.store.errors import Fenced
from gateway.store.records import Bill, Concerned, Entry, Work


class Readings(Protocol):
    async def conversation(self, sid: str, *, before: int, history_turns: int, waiting_max: int) -> Work:
        """The conversation as it stands for a command numbered `before`: what waits since before it, with or without a turn
        that runs, and at most `history_turns` turns."""
        names = {"sid": sid, "before": before}
        waiting = await self._rows(sql.WAITING_BEFORE, names | {"waiting_max": waiting_max})
        revision = (await self._ours(sql.REVISION, names))["revision"]
        entries = await self._rows(sql.HISTORY_BEFORE, names | {"skip": history_turns - 1})
        return replace(Work.of(waiting, [Entry(**row) for row in entries]), revision=revision)

    async def bodies(self, sid: str, turn: int) -> Mapping[int, str]:
        """The bodies of all messages that a turn answered, by number, oldest first; none where its own is gone."""
        return {row["id"]: row["body"] for row in await self._rows(sql.BODIES, {"sid": sid, "turn": turn})}

    async def newest_words(self, sid: str, *, before: int) -> str | None:
        """The newest message of a person below turn `before` as it is journaled, whatever marks stand behind it."""
        row = await self._one(sql.NEWEST_WORDS, {"sid": sid, "before": before})
        return row["content"] if row else None

    async def last_turn(self, sid: str, *, before: int, by: str) -> int | None:
        """The newest finished turn of the conversation below `before` that was not undone; but the one whose `undone` mark
        has the content `by`, if there is one: what is undone by one command is one turn, however often it runs."""
        turn: int | None = (await self._one(sql.LAST_TURN, {"sid": sid, "before": before, "by": by}))["turn"]
        return turn

    async def concerned(self, sid: str, *, before: int, by: str) -> Sequence[Concerned]:
        """The messages below `before` that wait, or that were stopped with `by` in their final row, in order."""
        rows = await self._rows(sql.CONCERNED, {"sid": sid, "before": before, "by": f'%"{by}"%'})
        return [Concerned(turn=row["turn"], body=row["body"], begun=bool(row["begun"])) for row in rows]

    async def bills(self, sid: str, *, since: float) -> Sequence[Bill]:
        """The final rows of the conversation and its control session: those since it began, and those since then."""
        rows = await self._rows(sql.BILLS, {"sid": sid, "control": CONTROL + sid, "since": since})
        return [Bill(content=it["content"], current=bool(it["current"]), recent=bool(it["recent"])) for it in rows]

    async def transcript(self, sid: str) -> Sequence[Entry]:
        """The whole conversation since it began, what a summary stands for included, without what was undone."""
        return [Entry(**row) for row in await self._rows(sql.TRANSCRIPT, {"sid": sid})]

    async def choices(self) -> Mapping[str, str]:
        """The newest choice for each sid that begins with `CHOICE`, by the rest of the sid."""
        rows = await self._rows(sql.CHOICES, {"prefix": f"{CHOICE}%"})
        return {row["sid"].removeprefix(CHOICE): row["content"] for row in rows}

    async def _rows(self, statement: str, names: Mapping[str, Any]) -> Sequence[Any]:
        """The rows that one statement returns, after its commit."""
        raise NotImplementedError

    async def _one(self, statement: str, names: Mapping[str, Any]) -> Any:
        """Its first row; None where there is none."""
        return next(iter(await self._rows(statement, names)), None)

    async def _ours(self, statement: str, names: Mapping[str, Any]) -> Any:
        """Raises Fenced where there is no row: the chat is somebody else's."""
        if (row := await self._one(statement, names)) is None:
            raise Fenced
        return row
