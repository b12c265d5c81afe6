"""Transcribe speech by a server with OpenAI's `POST /audio/transcriptions`.

The bytes decide whether a file holds sound: names and types are untrusted. Every failure becomes a sentence for the
agent, and the message is still answered.
"""

import asyncio
from dataclasses import dataclass
from typing import Annotated

import httpx
import structlog
from pydantic import Field, SecretStr

from channels.message import File
from channels.section import Section
from channels.transport import Transport, client_class
from channels.wire import clean, loads

BYTES_MAX = 25 * 1024 * 1024
"""OpenAI's file size limit."""
ATTEMPTS = 2
_SILENT = "no speech was heard in it"
_UNHEARD = "not transcribed: no transcription is set up here, so nobody knows what it says"

log = structlog.get_logger()


class TranscriptionConfig(Section):
    """The server that transcribes voice messages, sound and video. Without a `model` they stay files."""

    base_url: Annotated[str, Field(pattern=r"^https?://\S+$")] = "https://api.openai.com/v1"
    """A server with OpenAI's `/audio/transcriptions`: OpenAI, another vendor or your own."""
    api_key: SecretStr = SecretStr("")
    """The server's API key; empty if it needs none."""
    model: str = ""
    """The server's name for its model, such as `gpt-4o-mini-transcribe` or `whisper-1`."""
    language: Annotated[str, Field(pattern=r"^[a-z]{2,3}$")] | None = None
    """The spoken language, such as `zh`, if it is always the same. If unset, the model detects it."""
    timeout_seconds: Annotated[float, Field(gt=0, le=600)] = 60
    """The timeout per file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Transcript:
    """`problem`: why there is no text; it continues "a.ogg, "."""

    text: str = ""
    problem: str = ""

    @property
    def failed(self) -> bool:
        """Return whether the speech is unknown. Silence is no failure."""
        return bool(self.problem) and self.problem != _SILENT


async def transcribe(config: TranscriptionConfig, file: File) -> Transcript | None:
    """Return None for a file without sound. Failures are returned in the transcript, not raised."""
    if (ending := sound(file.data)) is None:
        return None
    if not config.model:
        return Transcript(problem=_UNHEARD)
    if len(file.data) > BYTES_MAX:
        return Transcript(problem=f"not transcribed: larger than {BYTES_MAX:,} bytes")
    base = config.base_url.rstrip("/")
    key = config.api_key.get_secret_value().strip()
    form = {"model": config.model, "response_format": "json"} | (
        {"language": config.language} if config.language else {}
    )
    try:
        async with (
            asyncio.timeout(config.timeout_seconds),
            client_class(httpx)(transport=Transport(httpx, base), timeout=config.timeout_seconds) as client,
        ):
            for attempt in range(ATTEMPTS):
                files = {"file": (f"sound.{ending}", file.data, "application/octet-stream")}
                headers = {"authorization": f"Bearer {key}"} if key else {}
                answer = await client.post(f"{base}/audio/transcriptions", data=form, files=files, headers=headers)
                if attempt or (answer.status_code < 500 and answer.status_code != 429):
                    break
        return _read(answer)
    except (httpx.HTTPError, TimeoutError) as error:
        log.warning("not_transcribed", error=type(error).__name__)
        return Transcript(problem="not transcribed: the transcription server gave no answer in time")


def _read(answer: httpx.Response) -> Transcript:
    if answer.status_code != 200:
        log.warning("not_transcribed", status=answer.status_code)
        return Transcript(problem=f"not transcribed: the transcription server refused it (HTTP {answer.status_code})")
    try:
        found = loads(answer.content)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not isinstance(text := found.get("text"), str):
        log.warning("not_transcribed", error="unreadable")
        return Transcript(problem="not transcribed: the transcription server's answer cannot be read")
    text = clean(text).strip()
    return Transcript(text=text) if text else Transcript(problem=_SILENT)


def sound(data: bytes) -> str | None:
    """Return the file extension for the endpoint, by the bytes; None if it is no sound or video."""
    if data[:4] == b"RIFF":
        return "wav" if data[8:12] == b"WAVE" else None
    if data[4:8] == b"ftyp":
        return None if data[8:11] in (b"hei", b"hev", b"avi", b"mif") else "mp4"
    if data[:2] in (b"\xff\xfb", b"\xff\xf3", b"\xff\xf2", b"\xff\xfa"):
        return "mp3"
    return next((ending for mark, ending in _MARKS if data.startswith(mark)), None)


_MARKS = ((b"OggS", "ogg"), (b"ID3", "mp3"), (b"fLaC", "flac"), (b"\x1aE\xdf\xa3", "webm"))
