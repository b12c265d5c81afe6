"""A file of the workspace that an agent sends, with its answer or by itself, and what files are called in chats."""

import mimetypes
import os
import re
import unicodedata

from channels.message import UNKNOWN_TYPE, File
from tools.paths import called
from tools.tool import ToolError
from tools.workspace import Workspace

NAME_CHARS_MAX = 80
NAME_BYTES_MAX = 200
"""A file system takes 255, and two files of one name get numbers."""
ENDING_CHARS_MAX = 10

_NOT_IN_NAMES = re.compile(r"[^\w.+-]+")


def attachment(workspace: Workspace, path: str, *, bytes_max: int) -> File:
    """A file that the agent wants to send. Raises ToolError. Blocking."""
    with workspace.reading(path) as fd:
        if (size := os.fstat(fd).st_size) > bytes_max:
            message = f"{called(path)!r} has {size:,} bytes, more than the {bytes_max:,} that may be sent"
            raise ToolError("TOO_LARGE", message)
        with os.fdopen(os.dup(fd), "rb") as file:
            data = file.read(bytes_max)
    name = safe_name(path)
    return File(name=name, type=mimetypes.guess_type(name)[0] or UNKNOWN_TYPE, data=data)


def safe_name(name: str) -> str:
    """Letters of any script, digits, dots and dashes; never hidden, never a path, never too long for a file system."""
    name = unicodedata.normalize("NFC", name.replace("\\", "/").rpartition("/")[2])
    name = _NOT_IN_NAMES.sub("_", name).strip("._")
    stem, dot, ending = name.rpartition(".")
    if not dot or len(ending) > ENDING_CHARS_MAX:
        stem, ending = name, ""
    ending = dot + ending if ending else ""
    room = NAME_BYTES_MAX - len(ending.encode())
    return stem[: NAME_CHARS_MAX - len(ending)].encode()[:room].decode(errors="ignore") + ending or "file"
