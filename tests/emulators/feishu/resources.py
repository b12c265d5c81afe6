"""The files that people send on an emulated Feishu: which message brought them, and who may have them.

A key is good with its own message only, and under the type that belongs to the kind of message; what the platform does
not hand out is refused with its code.
"""

import secrets
from dataclasses import dataclass, field
from typing import Any

import orjson

from tests.emulators.feishu.events import EventSource
from tests.emulators.feishu.rules import FILE_BYTES_MAX, IMAGE_BYTES_MAX, Refusal

_PICTURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8", b"GIF8", b"RIFF", b"BM")
DOWNLOAD_BYTES_MAX = 100 * 1024 * 1024
_TYPES = {"image": "image", "post": "", "file": "file", "audio": "file", "media": "file"}
"""The type to ask with, by the kind of message; whatever is not here is not handed out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Resource:
    """One file. `size` may be more than there is of `data`: that of a file which nobody wants to make."""

    name: str
    media_type: str
    data: bytes = field(repr=False)
    size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Upload:
    name: str
    media_type: str

    def kept(self, data: bytes) -> Resource:
        return Resource(name=self.name, media_type=self.media_type, data=data, size=len(data))


@dataclass(kw_only=True)
class ResourceSource(EventSource):
    """People who send files."""

    resources: dict[str, Resource] = field(default_factory=dict)
    """By key."""
    uploads: dict[str, str] = field(default_factory=dict)
    """What the app uploaded: the kind by key."""

    def image_event(self, data: bytes, *, media_type: str = "image/png", **where: Any) -> dict[str, Any]:
        """Somebody sends a picture; `where` is sender, chat and whatever else a message has."""
        key = self._keep("img_v3", Resource(name="image", media_type=media_type, data=data, size=len(data)))
        return self.message_event("image", orjson.dumps({"image_key": key}).decode(), **where)

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

    def take(self, kind: str, upload: Upload, data: bytes) -> str:
        """A file that the app uploads; its key. Raises Refusal."""
        if not data:
            raise Refusal(234010, "File's size can't be 0.")
        if len(data) > (IMAGE_BYTES_MAX if kind == "image" else FILE_BYTES_MAX):
            raise Refusal(234006, "The file size exceed the max value.")
        if kind == "image" and not data.startswith(_PICTURES):
            raise Refusal(234011, "Can't recognize the image format.")
        key = self._keep("img_v3" if kind == "image" else "file_v3", upload.kept(data))
        self.uploads[key] = kind
        return key

    def check_upload(self, kind: str, key: str) -> None:
        """Whether a message of this kind may name that key. Raises Refusal."""
        wanted = {"image": ("image",), "audio": ("opus",)}.get(
            kind, ("opus", "mp4", "pdf", "doc", "xls", "ppt", "stream")
        )
        if self.uploads.get(key) not in wanted:
            raise Refusal(230001, "Your request contains an invalid request parameter, ext=invalid key.")

    def resource(self, message_id: str, file_key: str, wanted: str) -> Resource:
        """What is handed out. Raises Refusal."""
        message, found = self.known.get(message_id), self.resources.get(file_key)
        if wanted not in ("image", "file"):
            raise Refusal(234001, "Invalid request param.")
        if message is None or found is None or orjson.dumps(file_key).decode() not in message.content:
            raise Refusal(234003, "File not in message.")
        if message.msg_type not in _TYPES or message.upper:
            raise Refusal(234043, "Unsupported message type.")
        kind = "image" if file_key.startswith("img_") else "file"  # a post may have both
        if wanted != (kind if message.msg_type == "post" else _TYPES[message.msg_type]):
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
