"""Chat platform and model in the harness's own process: they answer, they keep the ledger, and they see who asks.

Each request comes under a path that names the replica. A trap strikes when the n-th request of its kind is there, in
the middle of its answer, or done and not answered yet.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.chaos.books import Books
from tests.chaos.emulated import Emulated
from tests.chaos.ledger import ANSWER, Ledger, Shown, asked_of
from tests.chaos.model import EFFECTS, Model, is_whole
from tests.emulators.models.anthropic.emulator import AnthropicEmulator
from tests.loopback import serve_on_loopback
from tests.running import SECRETS

TEMPORARY = ".clawgate-*"


@dataclass(kw_only=True)
class Trap:
    """`strike` is called with the replica's number."""

    point: str
    left: int
    strike: Callable[[int], None]

    def springs(self, point: str, replica: int) -> bool:
        if self.point != point:
            return False
        self.left -= 1
        if self.left == 0:
            self.strike(replica)
        return self.left == 0


class Platform:
    """`ledger` is up to date whenever `read` has been called."""

    def __init__(self, chat: Emulated, folder: Path, model: Model, books: Books) -> None:
        self.chat = chat
        self.folder = folder
        self.ledger = Ledger(repeats=chat.repeats, recognises=chat.recognises)
        self.model = model
        self.trap: Trap | None = None
        self._books = books
        self._anthropic = AnthropicEmulator(model, api_key=SECRETS["ANTHROPIC_API_KEY"])
        self._serials: dict[tuple[str, str], str] = {}
        """By chat and message id."""
        self.replies: defaultdict[str, list[Shown]] = defaultdict(list)
        """What was shown, by serial."""

    @asynccontextmanager
    async def served(self) -> AsyncIterator[tuple[str, str]]:
        """The base URLs of platform and model, without the replica."""
        async with AsyncExitStack() as stack:
            chat = await stack.enter_async_context(serve_on_loopback(_App(self._chat_door)))
            model = await stack.enter_async_context(serve_on_loopback(_App(self._model_door)))
            yield chat, model

    async def _chat_door(self, scope: Scope, receive: Receive, send: Send) -> None:
        replica, scope = _whose(scope)
        if not self.chat.is_send(scope):
            await self.chat.app(scope, receive, send)
            return
        body = await _whole(receive)
        if found := ANSWER.search(body.decode()):
            self.ledger.asked_to_show.add((found[1], int(found[2]), int(found[3])))
        if self.springs("K13", replica):
            await _never(receive)
            return
        held: list[Message] = []

        async def hold(message: Message) -> None:
            held.append(message)

        await self.chat.app(scope, _again(body, receive), hold)
        if held[0].get("status") != 200:
            self.ledger.refused.append(f"{self.chat.name}: {held[-1].get('body', b'')!r}")
        if self.springs("K14", replica):
            await _never(receive)
            return
        for message in held:
            await send(message)

    async def _model_door(self, scope: Scope, receive: Receive, send: Send) -> None:
        replica, scope = _whose(scope)
        self.springs("K5", replica)

        async def watched(message: Message) -> None:
            await send(message)
            if message["type"] == "http.response.body":
                self.springs("K6", replica)

        app: ASGIApp = self._anthropic.app
        await app(scope, receive, watched)

    def springs(self, point: str, replica: int) -> bool:
        return self.trap is not None and self.trap.springs(point, replica)

    def wrote(self, serial: str, chat: str, message_id: str) -> None:
        """A user's message exists from here on."""
        self._serials[chat, message_id] = serial

    def read(self) -> Ledger:
        """Bring the ledger up to date: what was shown, what was asked."""
        for sent in self.chat.seen():
            serial = self._serials.get((sent.chat, sent.reply_to or ""), "")
            found = ANSWER.search(sent.text)
            take, part, parts = (int(found[n]) for n in (2, 3, 4)) if found else (0, 1, 1)
            named = found[1] if found else serial
            kills = self.ledger.kills
            shown = Shown(chat=sent.chat, serial=named, take=take, part=part, parts=parts, kills=kills)
            self.ledger.shown.append(shown)
            self.replies[named].append(shown)
        for received in self._anthropic.requests:
            refusal = f"model: {received.refusal.status} {received.refusal.message}" if received.refusal else ""
            self.ledger.asked.append(asked_of(received.body, refusal))
        self._anthropic.requests.clear()
        return self.ledger

    async def look_at_books(self) -> None:
        """What the gateway says of sends that may have arrived. A given-up one will not come any more."""
        for doubt in await asyncio.to_thread(lambda: list(self._books.doubts(self._serials))):
            self.ledger.doubts[doubt.serial, doubt.take, doubt.part] = doubt

    async def look_at_files(self) -> None:
        """What the tools left in the workspace."""
        await asyncio.to_thread(self._look_at_files)

    def _look_at_files(self) -> None:
        workspace = self.folder / "data" / "workspaces" / "helper"
        effects = workspace / EFFECTS
        self.ledger.effects = effects.read_text(encoding="utf-8").split() if effects.exists() else []
        self.ledger.litter = [f"{path.name} was left behind" for path in workspace.rglob(TEMPORARY)]
        notes = [path for path in workspace.glob("note-*.txt") if not is_whole(path.read_text(encoding="utf-8"))]
        self.ledger.torn = [f"{path.name} is half written" for path in notes]

    def effects(self) -> int:
        """How many lines the commands have written so far."""
        try:
            return (self.folder / "data" / "workspaces" / "helper" / EFFECTS).read_bytes().count(b"\n")
        except FileNotFoundError:
            return 0


class _App:
    """uvicorn does not see that a bound method is an ASGI app of the present kind. Who asked may die meanwhile."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(ClientDisconnect):
            await self._app(scope, receive, send)


async def _whole(receive: Receive) -> bytes:
    """The body of a request. Raises ClientDisconnect."""
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return body


def _again(body: bytes, receive: Receive) -> Receive:
    """For an app that has not read the request: its body, and then what comes."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Message:
        return waiting.pop() if waiting else await receive()

    return received


async def _never(receive: Receive) -> None:
    """No answer, until the other side is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _whose(scope: Scope) -> tuple[int, Scope]:
    """Take the replica's number off the path."""
    _, name, rest = scope["path"].split("/", 2)
    return int(name.removeprefix("replica")), {**scope, "path": f"/{rest}", "raw_path": f"/{rest}".encode()}
