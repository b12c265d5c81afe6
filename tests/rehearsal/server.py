"""The page of a rehearsal over HTTP: what the phones and the terminal show, as a stream, and what people do on them.

It is for this machine alone, and for this page: requests of other sites are refused.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.emulators.telegram.rules import Refusal
from tests.rehearsal.feishu import OnFeishuPhones
from tests.rehearsal.stage import Stage
from tests.rehearsal.telegram import OnTelegramPhones

FOLDER = Path(__file__).with_name("page")
LOOK_SECONDS = 0.08
FILE_BYTES_MAX = 10 * 1024 * 1024
TEXT_CHARS_MAX = 4_000
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


class Act(BaseModel, extra="forbid", frozen=True):
    """One thing that a person does."""

    do: Literal["write", "press", "stop", "add", "kill"]
    phone: str = ""
    chat: str = ""
    text: str = ""
    message: str = ""
    data: str = ""


def page_app(stage: Stage) -> Starlette:
    return PageDoor(stage).app


class PageDoor:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._killing: asyncio.Task[None] | None = None
        routes = [Route(f"/{name}", self._asset, methods=["GET"]) for name in ("", "page.css", "page.js")]
        self.app = Starlette(
            routes=[
                *routes,
                Route("/events", self._guarded(self._events), methods=["GET"]),
                Route("/act", self._guarded(self._act), methods=["POST"]),
                Route("/upload", self._guarded(self._upload), methods=["POST"]),
                Route("/file/{platform}/{key}", self._guarded(self._file), methods=["GET"]),
            ]
        )

    def state(self) -> dict[str, Any]:
        """Everything that the page shows."""
        program = self._stage.program
        return {
            "life": program.life,
            "kills": program.kills,
            "gateway": program.url,
            "claim": program.claim,
            "terminal": list(program.lines),
            "phones": [asdict(phone) for platform in self._stage.platforms for phone in platform.phones()],
        }

    # what is read

    async def _asset(self, request: Request) -> Response:
        name = request.url.path.removeprefix("/") or "page.html"
        return FileResponse(FOLDER / name, headers=HEADERS)

    async def _events(self, request: Request) -> Response:
        return StreamingResponse(self._stream(request), media_type="text/event-stream", headers=HEADERS)

    async def _stream(self, request: Request) -> AsyncIterator[bytes]:
        """The whole state each time it has changed: a conversation of an afternoon is some kilobytes."""
        last = b""
        while not await request.is_disconnected():
            now = orjson.dumps(self.state())
            if now != last:
                last = now
                yield b"data: " + now + b"\n\n"
            await asyncio.sleep(LOOK_SECONDS)

    async def _file(self, request: Request) -> Response:
        platform = self._platform(request.path_params["platform"])
        found = platform.file(request.path_params["key"]) if platform else None
        if found is None:
            return Response(status_code=HTTPStatus.NOT_FOUND)
        kind, data = found
        attached = {} if kind.startswith("image/") else {"content-disposition": "attachment"}
        return Response(data, media_type=kind, headers=HEADERS | attached)

    # what is done

    async def _act(self, request: Request) -> Response:
        try:
            act = Act.model_validate_json(await request.body())
        except ValidationError:
            return _refused("this is no act")
        if act.do == "kill":
            if self._killing is None or self._killing.done():
                self._killing = asyncio.create_task(self._stage.program.kill())
            return Response(status_code=HTTPStatus.NO_CONTENT)
        platform = self._of(act.phone)
        if platform is None or len(act.text) > TEXT_CHARS_MAX:
            return _refused("there is no such phone, or the text is too long")
        doing: Awaitable[None]
        match act.do:
            case "write":
                doing = platform.write(act.phone, act.chat, act.text)
            case "press":
                doing = platform.press(act.phone, act.chat, act.message, act.data)
            case "stop":
                doing = platform.stop(act.phone, act.chat, act.data)
            case "add":
                doing = platform.add_bot(act.phone, act.chat)
        return await _done(doing)

    async def _upload(self, request: Request) -> Response:
        query = request.query_params
        platform = self._of(query.get("phone", ""))
        data = await request.body()
        if platform is None or not 0 < len(data) <= FILE_BYTES_MAX:
            return _refused("the file is empty or too large")
        name = Path(query.get("name", "")).name or "file"
        return await _done(platform.send_file(query["phone"], query.get("chat", ""), name, data))

    def _platform(self, name: str) -> OnTelegramPhones | OnFeishuPhones | None:
        return next((it for it in self._stage.platforms if it.name == name), None)

    def _of(self, phone: str) -> OnTelegramPhones | OnFeishuPhones | None:
        return next((it for it in self._stage.platforms if phone in [one.id for one in it.phones()]), None)

    def _guarded(self, handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def guarded(request: Request) -> Response:
            host, origin = request.headers.get("host", ""), request.headers.get("origin")
            if not host.startswith("127.0.0.1:") or origin not in (None, f"http://{host}"):
                return Response(status_code=HTTPStatus.FORBIDDEN)
            if request.method == "POST" and request.headers.get("x-rehearsal") != "1":
                return Response(status_code=HTTPStatus.FORBIDDEN)
            return await handler(request)

        return guarded


async def _done(doing: Awaitable[None]) -> Response:
    try:
        await doing
    except Refusal as refusal:
        return _refused(refusal.description)
    except (LookupError, ValueError) as error:
        return _refused(str(error))
    return Response(status_code=HTTPStatus.NO_CONTENT)


def _refused(why: str) -> Response:
    return Response(why, status_code=HTTPStatus.CONFLICT, media_type="text/plain")
