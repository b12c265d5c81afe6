"""Which paths a model may name, before anything is opened: a pure function from what it wrote to a relative path."""

import os
import re
import unicodedata
from collections.abc import Collection
from pathlib import PurePosixPath
from typing import get_args

from tools.config import InstructionFile
from tools.tool import ToolError

PATH_BYTES_MAX = 4_096
INSTRUCTION_FILES: tuple[str, ...] = get_args(InstructionFile)
"""At the top of a workspace these are part of the system prompt: they are the operator's."""
_SHELL_FILES = re.compile(
    r"\.(bashrc|bash_(profile|login|logout|aliases)|profile|zsh(rc|env)|zprofile|zlog(in|out)|m?kshrc|t?cshrc|log(in|out)|inputrc)"
)


def relative(path: str, root: str) -> str:
    """The path beneath the workspace; `.` for the workspace itself. Raises ToolError.

    Absolute paths are accepted where they start with the workspace's own path. Nothing is expanded: `~` and `$` are
    ordinary characters of a name, except that a leading `~` is surely a mistake.
    """
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise ToolError("INVALID_ARGUMENT", "the path holds half a character") from None
    if "\0" in path or size > PATH_BYTES_MAX or not path.strip():
        raise ToolError("INVALID_ARGUMENT", "that is not a usable path")
    if path.startswith("~"):
        raise ToolError("INVALID_ARGUMENT", "`~` is not expanded; use a path relative to the workspace")
    if path.startswith("/"):
        inside = os.path.normpath(path)
        if inside != root and not inside.startswith(root.rstrip("/") + "/"):
            raise not_found(path)
        path = os.path.relpath(inside, root)
    parts: list[str] = []
    for part in PurePosixPath(path).parts:
        if part != "..":
            parts.append(part)
        elif not parts:
            raise not_found(path)
        else:
            parts.pop()
    return "/".join(parts) or "."


def protection(path: str, writable: Collection[str] = ()) -> str | None:
    """Why tools may not write there, whatever exists: what the gateway reads, and what others would run. None where they
    may. Of the instruction files those in `writable` are open."""
    parts = [_plain(part) for part in PurePosixPath(path).parts]
    for name in INSTRUCTION_FILES:
        if parts[:1] == [_plain(name)] and name not in writable:
            return (
                f"{name} is part of your instructions, which only the operator changes: by hand, or after opening it to "
                f"tools with tools.files.writable: [{name}]. Say so to the user; what you want to remember goes into "
                "MEMORY.md"
            )
    if parts[:1] == ["skills"] or any(map(_is_run_by_others, parts)):
        return f"{path!r} is protected: tools do not write there"
    return None


def _plain(part: str) -> str:
    """As the most careless file system compares names."""
    return unicodedata.normalize("NFKC", part).casefold().rstrip(". ")


def _is_run_by_others(part: str) -> bool:
    return part in (".git", ".gitmodules", ".ssh") or part.startswith(".env") or bool(_SHELL_FILES.fullmatch(part))


def not_found(path: str) -> ToolError:
    """The same answer for a missing path and for one outside the workspace, so that neither reveals the other."""
    shown = path if len(path) <= 200 else path[:200] + "…"
    return ToolError("NOT_FOUND", f"there is no {shown!r} in the workspace; `ls` shows what there is")
