"""The files that people send on an emulated Feishu: which message brought them, and who may have them.

A key is good with its own message only, and under the type that belongs to the kind of message; what the platform does
not hand out is refused with its code.
"""

import secrets
from dataclasses import dataclass, field
from typing import Any

import orjson

from tests.emulators.feishu.events import EventSource
from tests.emulators.feishu.rules import Refusal

DOWNLOAD_BYTES_MAX = 100 * 1024 * 1024
_TYPES = {"image": "image", "post": "image", "file": "file", "audio": "file", "media": "file"}
"""The type to ask with, by the kind of message; whatever is not here is not handed out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Resource:
    """One file. `size` may be more than there is of `data`: that of a file which nobody wants to make."""

    name: str
    media_type: str
    data: bytes = field(repr=False)
    size: int


@dataclass(kw_only=True)
class ResourceSource(EventSource):
    """People who send files."""

    resources: dict[str, Resource] = field(default_factory=dict)
    """By key."""

    def image_event(self, data: bytes, *, media_type: str = "image/png", **where: Any) -> dict[str, Any]:
        """Somebody sends a picture; `where` is sender, chat and whatever else a message has."""
        key = self._keep("img_v3", Resource(name="image", media_type=media_type, data=data, size=len(data)))
        return self.message_event("image", orjson.dumps({"image_key": key}).decode(), **where)

    def post_event(self, text: str, data: bytes, **where: Any) -> dict[str, Any]:
        """Somebody writes a text with a picture in it."""
        key = self._keep("img_v3", Resource(name="image", media_type="image/png", data=data, size=len(data)))
        rows = [[{"tag": "text", "text": text}], [{"tag": "img", "image_key": key}]]
        return self.message_event("post", orjson.dumps({"title": "", "content": rows}).decode(), **where)

    def file_event(
        self,
        data: bytes,
        *,
        name: str,
        kind: str = "file",
        media_type: str = "application/octet-stream",
        size: int | None = None,
        **where: Any,
    ) -> dict[str, Any]:
        """Somebody sends a file, a voice message, a video or a sticker."""
        kept = Resource(name=name, media_type=media_type, data=data, size=len(data) if size is None else size)
        content = {"file_key": self._keep("file_v3", kept)} | ({"file_name": name} if kind in ("file", "media") else {})
        return self.message_event(kind, orjson.dumps(content).decode(), **where)

    def resource(self, message_id: str, file_key: str, wanted: str) -> Resource:
        """What is handed out. Raises Refusal."""
        message, found = self.known.get(message_id), self.resources.get(file_key)
        if wanted not in ("image", "file"):
            raise Refusal(234001, "Invalid request param.")
        if message is None or found is None or orjson.dumps(file_key).decode() not in message.content:
            raise Refusal(234003, "File not in message.")
        if message.msg_type not in _TYPES:
            raise Refusal(234043, "Unsupported message type.")
        if _TYPES[message.msg_type] != wanted:
            raise Refusal(234001, "Invalid request param.")
        if message.chat_id not in self.chats:
            raise Refusal(234004, "App is not in the chat.")
        if found.size > DOWNLOAD_BYTES_MAX:
            raise Refusal(234037, "Downloaded file size exceeds limit.")
        return found

    def _keep(self, prefix: str, resource: Resource) -> str:
        key = f"{prefix}_{secrets.token_hex(12)}"
        self.resources[key] = resource
        return key
