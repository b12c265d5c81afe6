"""The long connection of an emulated Feishu: where to connect, the frames, and what the app acknowledged.

As strict as the platform: a wrong secret, a second ticket, a text frame or an answer that is not the same frame ends it.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from channels.feishu.connection import CONTROL, DATA, Frame, decode, encode

SERVICE = 33554678
CONNECTED_SECONDS = 240.0
"""The official client is ten thousand files, which a fresh machine has to compile first."""


AGAIN_SECONDS = 0.5
"""Before an event is pushed again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Acknowledged:
    """What the app said of an event: `code` is 200 where it has it."""

    event_id: str
    code: int


@dataclass(kw_only=True)
class LongConnections:
    """The connections of one app; an event goes to one of them, and again to another where the first is lost."""

    app_id: str
    app_secret: str
    ping_seconds: int = 120
    refusal: int = 0
    """The code to refuse with, at the endpoint."""
    handshake_refusal: str = ""
    mute: bool = False
    """Answer no ping: a connection that is dead although the socket lives."""
    split: int = 1
    """Into how many frames an event goes."""
    acknowledged: list[Acknowledged] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """What the app did that the platform would not take."""
    opened: int = 0
    _tickets: set[str] = field(default_factory=set)
    _open: list[WebSocket] = field(default_factory=list)
    _sent: dict[str, tuple[Frame, str]] = field(default_factory=dict)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def routes(self) -> list[BaseRoute]:
        return [Route("/callback/ws/endpoint", self._endpoint, methods=["POST"]), WebSocketRoute("/ws/v2", self._serve)]

    async def connected(self, count: int = 1) -> None:
        """Wait until so many connections are open."""
        async with asyncio.timeout(CONNECTED_SECONDS), self._changed:
            await self._changed.wait_for(lambda: len(self._open) >= count)

    async def answered(self, count: int) -> list[Acknowledged]:
        async with asyncio.timeout(CONNECTED_SECONDS), self._changed:
            await self._changed.wait_for(lambda: len(self.acknowledged) >= count)
        return self.acknowledged

    async def drop(self) -> None:
        """End every connection."""
        for connection in list(self._open):
            await connection.close(1001)

    async def push(self, event: Mapping[str, Any]) -> None:
        """Give an event to the first connection."""
        body, message = orjson.dumps(event), secrets.token_hex(8)
        size = -(-len(body) // self.split)
        pieces = [body[at : at + size] for at in range(0, len(body), size)]
        for place, piece in enumerate(pieces):
            facts = {"type": "event", "message_id": message, "trace_id": secrets.token_hex(8)}
            headers = facts | {"sum": str(len(pieces)), "seq": str(place)}
            frame = Frame(
                seq=7,
                log=-9 % 2**64,
                service=SERVICE,
                method=DATA,
                headers=tuple(headers.items()),
                payload=piece,
                log_id="l1",
            )
            self._sent[message] = (frame, event["header"]["event_id"])
            await self._open[0].send_bytes(encode(frame))

    async def deliver(self, event: Mapping[str, Any]) -> None:
        """Push an event until the app has acknowledged it: again where the connection is lost or the app cannot store it."""
        event_id = event["header"]["event_id"]
        while not self._has(event_id):
            async with self._changed:
                await self._changed.wait_for(lambda: self._open)
            connection = self._open[0]
            refused = self._refusals(event_id)
            with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # it is closed at this moment
                await self.push(event)
            async with self._changed:
                await self._changed.wait_for(
                    lambda: connection not in self._open or self._has(event_id) or self._refusals(event_id) > refused  # noqa: B023
                )
            await asyncio.sleep(0 if self._has(event_id) else AGAIN_SECONDS)

    def _has(self, event_id: str) -> bool:
        return any(it.event_id == event_id and it.code == 200 for it in self.acknowledged)

    def _refusals(self, event_id: str) -> int:
        return sum(it.event_id == event_id and it.code != 200 for it in self.acknowledged)

    async def _endpoint(self, request: Request) -> Response:
        body = orjson.loads(await request.body())
        if self.refusal:
            return JSONResponse({"code": self.refusal, "msg": "refused"})
        if request.headers.get("locale") != "zh" or body != {"AppID": self.app_id, "AppSecret": self.app_secret}:
            return JSONResponse({"code": 514, "msg": "auth failed"})
        ticket = secrets.token_hex(8)
        self._tickets.add(ticket)
        url = f"ws://{request.url.netloc}/ws/v2?device_id=1&service_id={SERVICE}&ticket={ticket}"
        config = {"ReconnectCount": -1, "ReconnectInterval": 1, "ReconnectNonce": 0, "PingInterval": self.ping_seconds}
        return JSONResponse({"code": 0, "msg": "", "data": {"URL": url, "ClientConfig": config}})

    async def _serve(self, socket: WebSocket) -> None:
        ticket = socket.query_params.get("ticket", "")
        if self.handshake_refusal or ticket not in self._tickets:
            headers = {
                "Handshake-Status": "514",
                "Handshake-Autherrcode": self.handshake_refusal,
                "Handshake-Msg": "no",
            }
            await socket.send_denial_response(Response(status_code=403, headers=headers))
            return
        self._tickets.remove(ticket)
        await socket.accept()
        self.opened += 1
        async with self._changed:
            self._open.append(socket)
            self._changed.notify_all()
        try:
            while True:
                await self._take(socket, decode(await socket.receive_bytes()))
        except (WebSocketDisconnect, ValueError, KeyError) as error:
            if not isinstance(error, WebSocketDisconnect):
                self.faults.append(repr(error))
        finally:
            async with self._changed:
                self._open.remove(socket)
                self._changed.notify_all()

    async def _take(self, socket: WebSocket, frame: Frame) -> None:
        if frame.service != SERVICE:
            raise ValueError("a frame of another service")
        if frame.method == CONTROL:
            if frame.header("type") != "ping":
                raise ValueError("a control frame that is no ping")
            if not self.mute:
                pong = Frame(service=SERVICE, method=CONTROL, headers=(("type", "pong"),))
                await socket.send_bytes(encode(pong))
            return
        sent, event_id = self._sent[frame.header("message_id")]
        answer = orjson.loads(frame.payload)
        same = replace(frame, headers=frame.headers[:-1], payload=sent.payload)
        if same != sent or frame.headers[-1][0] != "biz_rt" or not frame.header("biz_rt").isdecimal():
            raise ValueError("an answer that is not the same frame")
        if answer.keys() - {"code", "headers", "data"} or answer["code"] not in (200, 500):
            raise ValueError("an answer that Feishu does not know")
        async with self._changed:
            self.acknowledged.append(Acknowledged(event_id=event_id, code=answer["code"]))
            self._changed.notify_all()
