"""The files of an emulated Telegram: what was uploaded or sent by people, under which id, and where to fetch it.

A file that came with a recorded update has a size and no content; it downloads as that many zero bytes. Thumbnails and
videos are not made.
"""

import mimetypes
import secrets
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tests.emulators.telegram.requests import Upload
from tests.emulators.telegram.rules import Refusal, bad_request

DOWNLOAD_BYTES_MAX = 20 * 1024 * 1024
UPLOAD_BYTES_MAX = 50 * 1024 * 1024
PHOTO_BYTES_MAX = 10 * 1024 * 1024
PHOTO_SIDES_MAX = 10_000
PHOTO_RATIO_MAX = 20
PATH_SECONDS = 3_600
Uploads: TypeAlias = Mapping[str, Upload]


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredFile:
    """One file. `facts` is how a message names it."""

    facts: Mapping[str, Any]
    folder: str
    content: bytes | None = field(default=None, repr=False)

    @property
    def size(self) -> int:
        return int(self.facts.get("file_size", 0))


@dataclass(kw_only=True, slots=True)
class Files:
    """All files by id, and the paths that were given out."""

    now: Callable[[], float]
    stored: dict[str, StoredFile] = field(default_factory=dict)
    _paths: dict[str, tuple[StoredFile, float]] = field(default_factory=dict)

    def add_document(self, content: bytes, *, name: str, mime_type: str | None = None) -> dict[str, Any]:
        guessed = mime_type or mimetypes.guess_type(name)[0] or "application/octet-stream"
        return self._add("documents", content, {"file_name": name, "mime_type": guessed})

    def add_photo(self, content: bytes) -> list[dict[str, Any]]:
        """A picture in two sizes, the largest last. Raises Refusal."""
        width, height = _checked_sides(content)
        small = {"width": max(1, width * 90 // max(width, height)), "height": max(1, height * 90 // max(width, height))}
        sizes = [small, {"width": width, "height": height}]
        return [self._add("photos", content, size) for size in sizes]

    def learn(self, facts: Mapping[str, Any]) -> None:
        """A file that a recorded update names."""
        self.stored.setdefault(facts["file_id"], StoredFile(facts=facts, folder="documents"))

    def get(self, file_id: str | None) -> dict[str, Any]:
        """What `getFile` answers; the path holds for an hour. Raises Refusal."""
        file = self.stored.get(file_id or "")
        if file is None:
            raise bad_request("wrong file_id or the file is temporarily unavailable")
        if file.size > DOWNLOAD_BYTES_MAX:
            raise bad_request("file is too big")
        ending = mimetypes.guess_extension(str(file.facts.get("mime_type", ""))) or ""
        path = f"{file.folder}/file_{list(self.stored).index(str(file_id))}{ending}"
        self._paths[path] = (file, self.now() + PATH_SECONDS)
        named = {name: file.facts[name] for name in ("file_id", "file_unique_id", "file_size") if name in file.facts}
        return {**named, "file_path": path}

    def download(self, path: str) -> bytes | None:
        file, until = self._paths.get(path, (None, 0.0))
        if file is None or until < self.now():
            return None
        return file.content if file.content is not None else bytes(file.size)

    def of_message(self, kind: str, named: str | None, uploads: Uploads) -> dict[str, Any]:
        """The member of a message for the file that a call uploads or names again. Raises Refusal."""
        upload = uploads.get((named or "").removeprefix("attach://"))
        if upload is None:
            return {kind: self._named(kind, named)}
        check_upload(kind, upload)
        if kind == "photo":
            return {"photo": self.add_photo(upload.content)}
        if kind == "voice":
            return {"voice": self._add("voice", upload.content, {"duration": 1, "mime_type": upload.mime_type})}
        return {"document": self.add_document(upload.content, name=upload.name, mime_type=upload.mime_type)}

    def _named(self, kind: str, named: str | None) -> Any:
        if not named:
            raise bad_request(f"there is no {kind} in the request")
        if "://" in named:  # nothing here goes out to the network
            raise bad_request("failed to get HTTP URL content")
        file = self.stored.get(named)
        if file is None:
            raise bad_request("wrong file_id or the file is temporarily unavailable")
        return [dict(file.facts)] if kind == "photo" else dict(file.facts)

    def _add(self, folder: str, content: bytes, facts: Mapping[str, Any]) -> dict[str, Any]:
        file_id, unique_id = f"BQACAgIAAxkD{secrets.token_hex(16)}", f"AgAD{secrets.token_hex(6)}"
        named = {**facts, "file_id": file_id, "file_unique_id": unique_id, "file_size": len(content)}
        self.stored[file_id] = StoredFile(facts=named, folder=folder, content=content)
        return named


def check_upload(kind: str, upload: Upload) -> None:
    if not upload.content:
        raise bad_request("file must be non-empty")
    if len(upload.content) > UPLOAD_BYTES_MAX:
        raise Refusal(413, "Request Entity Too Large")
    if kind == "photo" and len(upload.content) > PHOTO_BYTES_MAX:
        raise bad_request("file is too big")


def files_in(message: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Every object of a message that names a file."""
    for member in message.values():
        for item in member if isinstance(member, list) else [member]:
            if isinstance(item, Mapping) and "file_id" in item:
                yield item


def _checked_sides(content: bytes) -> tuple[int, int]:
    sides = _sides(content)
    if sides is None:
        raise bad_request("IMAGE_PROCESS_FAILED")
    if sum(sides) > PHOTO_SIDES_MAX or not min(sides) or max(sides) / min(sides) > PHOTO_RATIO_MAX:
        raise bad_request("PHOTO_INVALID_DIMENSIONS")
    return sides


def _sides(content: bytes) -> tuple[int, int] | None:
    """Width and height as the header of a PNG or a JPEG has them."""
    if content.startswith(b"\x89PNG\r\n\x1a\n") and len(content) >= 24:
        width, height = struct.unpack(">II", content[16:24])
        return width, height
    position = 2 if content.startswith(b"\xff\xd8") else len(content)
    while position + 9 <= len(content) and content[position] == 0xFF:
        marker, length = content[position + 1], int.from_bytes(content[position + 2 : position + 4], "big")
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", content[position + 5 : position + 9])
            return width, height
        position += 2 + length
    return None
