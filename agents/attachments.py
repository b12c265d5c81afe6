"""Files between a chat and an agent: incoming ones are stored in the session's uploads and pictures shown to the
model; outgoing ones are sent.

A line below the user's text says what the gateway did with a file, so that the model knows its path. File names are
untrusted: only what is harmless in a path and in a prompt is kept. The bytes decide what is a picture, not the
declared type.
"""

import base64
import mimetypes
import re
from dataclasses import dataclass, field, replace
from typing import Literal

import structlog

from agents.prompt.fences import harmless
from agents.transcription import Transcript
from channels.marks import NOTE, TRANSCRIPT
from channels.message import PICTURES, UNKNOWN_TYPE, File
from tools.attachment import safe_name
from tools.documents.document import Glance
from tools.picture import fitted, image_type, unshown
from tools.tool import Image, NativeDocument, ToolError
from tools.workspace import UPLOADS, Workspace

ENDINGS = {"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp"}
"""Extensions for pictures without one; those of `mimetypes` differ between machines."""

NATIVE_PAGES_MAX = 20
NATIVE_BYTES_MAX = 3_000_000
"""The largest PDF that a model reads natively: it is journaled with its message and paid for in each round."""
NO_DOCUMENT = Glance()


_HEIC = (b"ftyphei", b"ftypmif", b"ftypavi")
"""Bytes 4 to 10 of picture formats that phones make and no model supports."""
log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True, slots=True)
class Untaken:
    """A file that the agent does not get, or a recording that it cannot hear. `name` may be empty."""

    reason: Literal["large", "fetch", "many", "unheard", "untranscribed"]
    kind: str
    name: str = ""
    bytes_max: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Received:
    """`note`: the gateway's line about the files, if any. `spoken`: their sanitised transcripts; `untaken`: what to
    report to the sender. `has_quoted`: the quoted message's files are included or unavailable for good."""

    note: str = ""
    spoken: str = ""
    shown: tuple[Image | NativeDocument, ...] = ()
    untaken: tuple[Untaken, ...] = ()
    has_quoted: bool = False


@dataclass(kw_only=True)
class Receiver:
    """Stores the files of one message one by one, so that only one is in memory. `keeps`: the agent has a tool to read
    them; `native`: one of its models reads small PDFs directly."""

    workspace: Workspace
    message_id: str
    keeps: bool
    native: bool = False
    _taken: set[str] = field(default_factory=set)
    _lines: list[str] = field(default_factory=list)
    _spoken: list[str] = field(default_factory=list)
    _shown: list[Image | NativeDocument] = field(default_factory=list)

    def store(self, sent: File, transcript: Transcript | None = None, document: Glance = NO_DOCUMENT) -> None:
        """Blocking."""
        kind, picture = actual_type(sent.type, sent.data), fitted(sent.data)
        ending = ENDINGS.get(kind) or mimetypes.guess_extension(kind) or ""
        ending = "" if "." in sent.name or kind == UNKNOWN_TYPE else ending
        file = replace(sent, type=kind, name=sent.name + ending)
        name = _free(safe_name(file.name), self._taken)
        path = f"{UPLOADS}/{tag(self.message_id)}/{name}"
        where = _saved(self.workspace, path, file) if self.keeps else "not saved: no tool reads files"
        facts = [f"{len(file.data):,} bytes"]
        if picture:
            facts.append(f"shown to you{picture.note}")
            shown = base64.b64encode(picture.data).decode()
            self._shown.append(Image(media_type=picture.type, data=shown, name=safe_name(file.name)))
        elif sent.type.startswith("image/") or sent.data[4:11] in _HEIC:
            facts.append(f"not shown: {unshown(sent.data)}")
        if self.native and _is_small(document, file.data):
            facts.append("shown to you")
            data = base64.b64encode(file.data).decode()
            self._shown.append(NativeDocument(data=data, name=safe_name(file.name), pages=document.pages))
        if transcript:
            facts.append(transcript.problem or "what is said in it stands above")
            self._spoken += [f"{TRANSCRIPT} {name}]\n{harmless(transcript.text)}"] if transcript.text else []
        self._lines.append(", ".join((name, *facts, where, *([document.words] if document.words else []))))

    def miss(self, name: str, reason: str) -> None:
        """Note a file that could not be fetched; `reason` continues "a.pdf, "."""
        self._lines.append(f"{safe_name(name)}, {reason}")

    def received(self) -> Received:
        note = f"{NOTE}: attached files: {'; '.join(self._lines)}.)" if self._lines else ""
        return Received(note=note, spoken="\n".join(self._spoken), shown=tuple(self._shown))


def _is_small(document: Glance, data: bytes) -> bool:
    # vendors refuse a PDF with restricted rights, even if it opens without a password
    return 0 < document.pages <= NATIVE_PAGES_MAX and len(data) <= NATIVE_BYTES_MAX and b"/Encrypt" not in data


def actual_type(declared: str, data: bytes) -> str:
    """Return the picture type by the bytes; else the declared type, or UNKNOWN_TYPE if that claims a picture."""
    return image_type(data[:16]) or (UNKNOWN_TYPE if declared in PICTURES else declared)


def _saved(workspace: Workspace, path: str, file: File) -> str:
    try:
        return f"saved as ./{workspace.write(path, file.data)}"
    except ToolError as error:
        reason = error.__context__ or error
        log.warning("upload_not_saved", folder=str(workspace.uploads), code=error.code, reason=repr(reason))
        return f"not saved: {error.code}"


def _free(name: str, taken: set[str]) -> str:
    stem, dot, ending = name.rpartition(".")
    free, number = name, 2
    while free in taken:
        free = f"{stem}-{number}{dot}{ending}" if dot else f"{name}-{number}"
        number += 1
    taken.add(free)
    return free


def tag(message_id: str) -> str:
    """Return a folder name from the end of the id, where ids differ. Deterministic."""
    return re.sub(r"[^A-Za-z0-9]+", "-", message_id)[-12:].strip("-") or "message"
