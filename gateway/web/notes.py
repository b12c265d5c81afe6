"""A person's notes with an agent, for the settings of the web chat: listed, taken, changed and deleted.

They are the notes of `/remember`, which reaches them from every channel; if the config closes that command to the
person, these routes are closed as well. A note that the page sends twice is taken once: its turn comes from the page's id.
"""

from collections.abc import Sequence
from dataclasses import asdict
from hashlib import sha256
from typing import Annotated

from fastapi import Request, Response
from pydantic import BaseModel, StringConstraints

from channels.web.channel import WebChannel
from gateway.commands.catalog import COMMANDS
from gateway.http.bodies import Bodies
from gateway.http.request import PersonRoute, Unserved, answer_json, id_in_path, number_of, read_json
from gateway.state.runtime import Runtime
from gateway.store.memory import NOTES_MAX
from gateway.store.sessions import sender_of
from gateway.web.chats import NO_SUCH_AGENT, Offers
from tools.memory import NOTE_CHARS_MAX

NO_SUCH_NOTE = 404, "no-such-note", "There is no such note."
CLOSED = 403, "notes-closed", "The config keeps /remember for others."
TOO_MANY = 409, "too-many-notes", f"There are {NOTES_MAX} notes already. Delete one first."

_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=NOTE_CHARS_MAX)]


class _Taken(BaseModel, extra="forbid", strict=True):
    id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{8,64}$")]
    text: _Text


class _Changed(BaseModel, extra="forbid", strict=True):
    text: _Text


class Notes:
    """Routes of `gateway.web.door`; each gets the person who asks."""

    def __init__(self, runtime: Runtime, channel: WebChannel, bodies: Bodies) -> None:
        self._runtime = runtime
        self._bodies = bodies
        self._memory = runtime.store.memory
        self._offers = Offers(runtime, channel)

    def routes(self) -> Sequence[tuple[str, str, PersonRoute]]:
        return (
            ("GET", "/api/agents/{agent}/notes", self.listed),
            ("POST", "/api/agents/{agent}/notes", self.add),
            ("PUT", "/api/agents/{agent}/notes/{note}", self.change),
            ("DELETE", "/api/agents/{agent}/notes/{note}", self.delete),
        )

    async def listed(self, request: Request, person: str) -> Response:
        sender, agent = self._whose(request, person)
        notes = [asdict(it) for it in await self._memory.notes(sender, agent)]
        return answer_json({"notes": notes, "notes_max": NOTES_MAX, "chars_max": NOTE_CHARS_MAX})

    async def add(self, request: Request, person: str) -> Response:
        sender, agent = self._whose(request, person)
        given, now = await read_json(request, _Taken, self._bodies), self._runtime.now()
        turn = _turn(sender, given.id)
        if await self._memory.take_note(sender, agent, given.text, turn=turn, at=now) is None:
            raise Unserved(*TOO_MANY)
        return await self.listed(request, person)

    async def change(self, request: Request, person: str) -> Response:
        sender, agent = self._whose(request, person)
        given, now = await read_json(request, _Changed, self._bodies), self._runtime.now()
        if not await self._memory.change_note(sender, agent, self._number(request), given.text, at=now):
            raise Unserved(*NO_SUCH_NOTE)
        return await self.listed(request, person)

    async def delete(self, request: Request, person: str) -> Response:
        sender, agent = self._whose(request, person)
        number = self._number(request)
        if not await self._memory.delete_note(sender, agent, number, turn=_turn(sender, f"{agent} {number}")):
            raise Unserved(*NO_SUCH_NOTE)
        return await self.listed(request, person)

    def _number(self, request: Request) -> int:
        return number_of(request.path_params["note"]) or 0

    def _whose(self, request: Request, person: str) -> tuple[str, str]:
        agent, message = id_in_path(request, "agent"), self._offers.message(person)
        if agent not in {it.id for it in self._offers.agents(person)}:
            raise Unserved(*NO_SUCH_AGENT)
        if not COMMANDS["remember"].is_open(self._runtime.setup, message):
            raise Unserved(*CLOSED)
        return sender_of(message), agent


def _turn(sender: str, name: str) -> int:
    """The number used without a message: below zero, which no message has."""
    return -1 - int.from_bytes(sha256(f"{sender} {name}".encode()).digest()[:7])
