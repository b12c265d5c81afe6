"""Files that the bot sends: a picture, a voice message, a document, or several pictures as one album.

What Telegram refuses as a picture or a voice message goes as a document. Several files of one message are one call, so
that they are sent together or not at all. Sizes: the Bot API's page on sending files.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from channels.channel import DeliveryError, Refused
from channels.message import File, StoredFile
from channels.telegram.api import TelegramApi, refusal_of

CAPTION_UNITS_MAX = 1_024
CAPTION_CHARS = 800
"""Of Markdown: what it shows may be longer, and is then sent apart."""
ALBUM_MAX = 10
PHOTO_BYTES_MAX = 10 * 1024 * 1024
UPLOAD_BYTES_MAX = 50 * 1024 * 1024
_PHOTOS = ("image/png", "image/jpeg", "image/webp")
_VOICE = ("audio/ogg", "audio/opus", "audio/mpeg", "audio/mp4", "audio/x-m4a")
_AS_DOCUMENT = ("photo_", "image_process_failed", "voice_messages_forbidden", "wrong file", "file is too big")

log = structlog.get_logger()


class SentFiles:
    """The files of one message, on their way. `attempt` may be made again with another body."""

    def __init__(self, *, api: TelegramApi, files: Sequence[tuple[StoredFile, bytes]], voice: bool) -> None:
        self._api = api
        self._files = [File(name=stored.name, type=stored.type, data=data) for stored, data in files]
        self._kind = _kind(self._files, voice=voice)

    async def attempt(self, body: Mapping[str, Any]) -> Any:
        """The message, of an album the first. Raises DeliveryError."""
        if not self._files or any(not 0 < len(file.data) <= UPLOAD_BYTES_MAX for file in self._files):
            raise Refused("a file that Telegram does not take: it is gone, empty or too large")
        try:
            return await self._call(body)
        except DeliveryError as error:
            refusal = refusal_of(error)
            spoilt = refusal is not None and any(it in refusal.description.lower() for it in _AS_DOCUMENT)
            if self._kind == "document" or not spoilt:
                raise
            log.info("telegram_sent_as_document", kind=self._kind)
            self._kind = "document"
            return await self._call(body)

    async def _call(self, body: Mapping[str, Any]) -> Any:
        if len(self._files) == 1:
            method = f"send{self._kind.capitalize()}"
            return await self._api.upload(method, body, {self._kind: self._files[0]})
        named = {f"file{number}": file for number, file in enumerate(self._files)}
        words = {key: body[key] for key in ("caption", "caption_entities") if key in body}
        rest = {key: value for key, value in body.items() if key not in words}
        media = [{"type": self._kind, "media": f"attach://{name}"} for name in named]
        first, *_ = await self._api.upload("sendMediaGroup", rest | {"media": [media[0] | words, *media[1:]]}, named)
        return first


def _kind(files: Sequence[File], *, voice: bool) -> str:
    if files and all(file.type in _PHOTOS and len(file.data) <= PHOTO_BYTES_MAX for file in files):
        return "photo"
    return "voice" if voice and len(files) == 1 and files[0].type in _VOICE else "document"
