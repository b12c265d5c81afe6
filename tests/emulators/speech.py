"""A server that turns sound into text and text into sound, as strict as OpenAI's `POST /v1/audio/transcriptions` and
`POST /v1/audio/speech`.

Members, the endings of names, the size and the shapes of answers and refusals are those of the API reference.
"""

import asyncio
import gzip
import json
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from tests.emulators.telegram.requests import parse_multipart

KEY = "canary-speech-key-91827"
BYTES_MAX = 25 * 1024 * 1024
OPUS = b"OggS\x00\x02" + bytes(20) + b"OpusHead"
"""The beginning of every recording that it makes."""
_ENDINGS = ("flac", "mp3", "mp4", "mpeg", "mpga", "m4a", "ogg", "wav", "webm")
_MEMBERS = {"model", "language", "prompt", "response_format", "temperature"}


@dataclass
class SpeechEmulator:
    """`heard` are the requests that were taken: the fields and the bytes. `faults` are answered first, one each: a status,
    `shapeless`, `no json`, `deep`, `huge` (packed), or `hangs` until `released`."""

    text: str = "请提醒我明天开会"
    heard: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    spoken: list[str] = field(default_factory=list)
    """The texts that were spoken."""
    refused: list[str] = field(default_factory=list)
    faults: list[int | str] = field(default_factory=list)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/audio/transcriptions", self._transcribe, methods=["POST"]),
                Route("/v1/audio/speech", self._speak, methods=["POST"]),
            ]
        )

    async def _speak(self, request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {KEY}":
            return self._refuse(401, "Incorrect API key provided")
        if request.headers.get("content-type") != "application/json":
            return self._refuse(400, "We could not parse the JSON body of your request.")
        body = json.loads(await request.body())
        if {*body} - {"model", "input", "voice", "response_format", "speed", "instructions"}:
            return self._refuse(400, f"Unknown members: {[*body]}")
        text = body.get("input")
        if not isinstance(text, str) or not 0 < len(text) <= 4096:
            return self._refuse(400, "input must have 1 to 4096 characters")
        if body.get("model") not in ("tts-1", "gpt-4o-mini-tts") or body.get("voice") not in ("alloy", "nova"):
            return self._refuse(404, "The model does not exist")
        if body.get("response_format") not in ("mp3", "opus", "aac", "flac", "wav", "pcm"):
            return self._refuse(400, "Invalid response_format")
        self.spoken.append(text)
        match self.faults.pop(0) if self.faults else None:
            case None:
                return Response(OPUS + text.encode(), media_type="audio/ogg")
            case "hangs":
                await self.released.wait()
                return PlainTextResponse("", 503)
            case int(status):
                return self._refuse(status, f"The server said no {KEY}")
            case _:
                return PlainTextResponse("<html>")

    async def _transcribe(self, request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {KEY}":
            return self._refuse(401, "Incorrect API key provided")
        fields, files = parse_multipart(request.headers["content-type"], await request.body())
        if set(fields) - _MEMBERS or set(files) != {"file"}:
            return self._refuse(400, f"Unknown or missing members: {[*fields, *files]}")
        name, data = files["file"].name, files["file"].content
        if name.rpartition(".")[2] not in _ENDINGS or not data:
            return self._refuse(400, "Invalid file format.")
        if len(data) > BYTES_MAX:
            return self._refuse(413, "Maximum content size limit exceeded")
        if (
            fields.get("model") not in ("whisper-1", "gpt-4o-mini-transcribe")
            or fields.get("response_format") != "json"
        ):
            return self._refuse(404, "The model does not exist")
        self.heard.append((fields | {"name": name}, data))
        match self.faults.pop(0) if self.faults else None:
            case None:
                heard = json.dumps({"text": self.text, "usage": {"type": "duration", "seconds": 2}})
                return Response(heard, media_type="application/json")
            case "hangs":
                await self.released.wait()
                return PlainTextResponse("", 503)
            case "shapeless":
                return JSONResponse({"text": ["no", "text"]})
            case "deep":
                return PlainTextResponse("[" * 100_000)
            case "huge":
                packed = gzip.compress(b'{"text":"' + bytes(64 * 1024 * 1024) + b'"}')
                return Response(packed, headers={"content-encoding": "gzip"}, media_type="application/json")
            case int(status):
                return self._refuse(status, f"The server said no {KEY}")
            case _:
                return PlainTextResponse("<html>")

    def _refuse(self, status: int, message: str) -> Response:
        self.refused.append(message)
        error: dict[str, Any] = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
        return JSONResponse({"error": error}, status)
