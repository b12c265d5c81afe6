"""Files between a chat and an agent: incoming ones go into the session's uploads, pictures to the model, and the files it
sends go out.

What the gateway did with a file is a line of its own beneath the person's words, so that the model knows the path to
read. File names are people's words: of them only what is harmless in a path and in a prompt is kept. The bytes
decide what is a picture, whatever type they were sent as.
"""

import base64
import mimetypes
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

import structlog

from agents.transcription import Transcript
from channels.message import PICTURES, UNKNOWN_TYPE, File
from tools.attachment import safe_name
from tools.picture import fitted, image_type
from tools.tool import Image, ToolError
from tools.workspace import UPLOADS, Workspace

ENDINGS = {"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp"}
"""How a picture without an ending is called; what the machine knows of it differs."""

_HEIC = (b"ftyphei", b"ftypmif", b"ftypavi")
"""What phones make and no model takes."""
log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True, slots=True)
class Missing:
    """A file that could not be fetched; `reason` goes on where "a.pdf, " stops."""

    name: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Received:
    """`note` is the gateway's line on the files; empty where there were none. `spoken` is what was said in them: words of
    people."""

    note: str = ""
    spoken: str = ""
    pictures: tuple[Image, ...] = ()


def receive(
    workspace: Workspace,
    message_id: str,
    files: Sequence[File],
    missing: Sequence[Missing],
    *,
    keeps: bool,
    transcripts: Sequence[Transcript | None] = (),
) -> Received:
    """Store the files of one message and say where. `keeps`: the agent has a tool to read them with; `transcripts`: one
    for each file, where any was made. Blocking."""
    lines: list[str] = []
    spoken: list[str] = []
    pictures: list[Image] = []
    taken: set[str] = set()
    for sent, transcript in zip_longest(files, transcripts):
        file, picture = _settled(sent), fitted(sent.data)
        name = _free(safe_name(file.name), taken)
        where = (
            _saved(workspace, f"{UPLOADS}/{tag(message_id)}/{name}", file)
            if keeps
            else "not saved: no tool reads files"
        )
        facts = [f"{len(file.data):,} bytes"]
        if picture:
            facts.append(f"shown to you{picture.note}")
            shown = base64.b64encode(picture.data).decode()
            pictures.append(Image(media_type=picture.type, data=shown, name=safe_name(file.name)))
        elif sent.type.startswith("image/") or sent.data[4:11] in _HEIC:
            facts.append("not shown: no picture of a kind or size that can be shown to you")
        if transcript:
            facts.append(transcript.problem or "what is said in it stands above")
            spoken += [f"[transcript of {name}]\n{transcript.text}"] if transcript.text else []
        lines.append(", ".join((name, *facts, where)))
    lines += [f"{safe_name(one.name)}, {one.reason}" for one in missing]
    note = f"(The gateway: attached files: {'; '.join(lines)}.)" if lines else ""
    return Received(note=note, spoken="\n".join(spoken), pictures=tuple(pictures))


def actual_type(declared: str, data: bytes) -> str:
    """What the bytes are where they are a picture; what is declared otherwise, unless that is a lie about pictures."""
    return image_type(data[:16]) or (UNKNOWN_TYPE if declared in PICTURES else declared)


def _settled(file: File) -> File:
    """Under its actual type, and with the ending of that where it has none."""
    kind = actual_type(file.type, file.data)
    ending = ENDINGS.get(kind) or mimetypes.guess_extension(kind) or ""
    return replace(file, type=kind, name=file.name if "." in file.name or kind == UNKNOWN_TYPE else file.name + ending)


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
    """The end of the message's id, which is where ids differ: the same message always has the same folder."""
    return re.sub(r"[^A-Za-z0-9]+", "-", message_id)[-12:].strip("-") or "message"
