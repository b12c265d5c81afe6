"""Messages that a program, a person at the command line or an event has the gateway send.

Each is a row of the inbox beside its chat's conversation, as a notice to an owner is: stored once under its own key,
and sent by the outbox like a reply. It is in no history, so no model takes it for its own words. A person who
answers it by quoting shows it to the agent.
"""

import asyncio
import mimetypes
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from channels.message import UNKNOWN_TYPE, Chat, File, Origin, Place, StoredFile
from gateway.config.bindings import route
from gateway.config.places import kind_of
from gateway.config.root import Config
from gateway.state.runtime import Runtime
from gateway.store.inbound import SAY, Inbound
from gateway.store.records import Delivery
from gateway.store.sends import SendOutcome
from gateway.store.sessions import message_in, saying_session, session_key

WAIT_SECONDS = 30.0
FIRST_PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.02, 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Saying:
    """Text for a place, in Markdown, with its files. `origin` is its cause; its key is that of the message."""

    place: Place
    text: str
    origin: Origin
    files: tuple[StoredFile, ...] = ()
    reply_to: str | None = None

    def delivery(self, config: Config, at: float) -> Delivery:
        place = self.place
        chat = Chat(id=place.chat, kind=kind_of(config.channels, place), thread=place.thread)
        context = replace(
            message_in(place.channel, place.account, chat, ""),
            message_id=self.reply_to or "",
            text=self.text,
            origin=self.origin,
            sent_at=datetime.fromtimestamp(at, UTC),
        )
        agent = route(config.routes, config.agents, context)
        inbound = Inbound(agent=agent, context=context, command=SAY, files=self.files)
        sid = saying_session(session_key(agent, context, "chat"))
        return Delivery.own(inbound, self.origin.key, sid=sid, at=at)


def sending(place: Place, text: str, key: str, files: Sequence[StoredFile] = (), reply_to: str | None = None) -> Saying:
    """Makes the message of `clawgate send` or of a program. The same key is the same message."""
    return Saying(
        place=place, text=text, origin=Origin(kind="send", id=key, by_operator=True), files=(*files,), reply_to=reply_to
    )


def file_of(name: str, data: bytes) -> File:
    return File(name=name, type=mimetypes.guess_type(name)[0] or UNKNOWN_TYPE, data=data)


class Sends:
    """Sends through a running gateway."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def send(self, saying: Saying) -> SendOutcome:
        """Stores it, and waits a while for the platform's answer. Raises StoreUnavailable if it is not stored."""
        await self._runtime.accept(saying.delivery(self._runtime.setup.config, self._runtime.now()))
        return await outcome(lambda: self._runtime.store.sends.outcome(saying.origin.key))


async def outcome(look: Callable[[], Awaitable[SendOutcome]]) -> SendOutcome:
    """Looks until it is sent or refused, for `WAIT_SECONDS` at most."""
    clock = asyncio.get_running_loop().time
    end, pause = clock() + WAIT_SECONDS, FIRST_PAUSE_SECONDS
    while (send := await look()).state == "waiting" and clock() < end:
        await asyncio.sleep(pause)
        pause = min(2 * pause, PAUSE_SECONDS_MAX)
    return send
