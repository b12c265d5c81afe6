"""Bind an approval to what runs: the program, the folder, and the script that an interpreter reads.

Only the simplest commands are parsed: words and quotes that the shell leaves unchanged. Their script, and a program in
the workspace, are read once: the hashed bytes are held, and the command runs those. Any other command is bound by its
text and its folder alone.
"""

import hashlib
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote, split

from tools.supervisor import FOLDER
from tools.tool import Copy, Held, ToolError

HELD_BYTES_MAX = 16 * 1024 * 1024
_SIMPLE = re.compile(r"""(?:[A-Za-z0-9_@%+=:,./ -]|'[^'\n]*'|"[^"$`\\!\n]*")+""")
_INTERPRETERS = re.compile(
    r"(?:python|pypy|perl|ruby|node|nodejs|deno|bun|php|lua|luajit|tclsh|Rscript|osascript|pwsh"
    r"|(?:ba|da|z|k|fi|c|tc|a)?sh)[0-9.]*"
)
_NAMES = """
base64 basename cat cksum cmp comm cut date df dirname du echo false fold free grep head id join ls md5sum nl nproc od paste
printf pwd readlink realpath seq sha1sum sha256sum sha512sum stat tac tail tr true uname uptime wc whoami
"""
_READERS = frozenset(_NAMES.split())
"""Programs that no option, file or variable makes run or write something: only these can be allowed for good."""
_READS_DATE = re.compile(r"\+.*|-u|-R|-I[a-z]*|--utc|--rfc-email|--iso-8601(?:=[a-z]+)?")
"""Arguments with which `date` only reads; any other may set the clock."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Binding:
    """`always`: nothing in the workspace changes what the command executes."""

    identity: Mapping[str, str | int] = field(default_factory=dict)
    always: bool = False
    held: Held | None = None


def binding_of(command: str, *, folder: int, path: str) -> Binding:
    """Bind a command. `folder` is the descriptor of its working folder, `path` the shell's PATH. Blocking. Raises
    ToolError."""
    status = os.fstat(folder)
    bound: dict[str, str | int] = {"folder": f"{status.st_dev}:{status.st_ino}"}
    words = _words(command)
    name = words[0] if words else ""
    places = [name] if "/" in name else [f"{place}/{name}" for place in path.split(":") if name]
    found = next(((it, file) for it in places if (file := _file(it, folder)) and file.is_program), None)
    if found is None:
        return Binding(identity=bound)
    place, program = found
    files = {0: program}
    if _INTERPRETERS.fullmatch(name.rpartition("/")[2]):
        files |= _scripts(words, folder)
    bound |= {f"file {index} {words[index]}": file.facts for index, file in files.items()}
    copies = {index: file.copy for index, file in files.items() if file.copy is not None}
    typed = (
        f'"$TMPDIR"/{FOLDER}/{quote(copies[index].name)}' if index in copies else quote(it)
        for index, it in enumerate(words)
    )
    held = Held(command=" ".join(typed), copies=tuple(copies.values())) if copies else None
    reads = name in _READERS and (name != "date" or all(map(_READS_DATE.fullmatch, words[1:])))
    return Binding(identity=bound, always=reads and _is_systems(place), held=held)


def _words(command: str) -> list[str]:
    if not _SIMPLE.fullmatch(command):  # a shell might change the words
        return []
    try:
        words = split(command)
    except ValueError:
        return []
    return [] if not words or "=" in words[0] else words


def _scripts(words: list[str], folder: int) -> dict[int, "_File"]:
    # A word after an option may be its value or the script, so the next one counts, too. The rest is data.
    found = {}
    for index, word in enumerate(words[1:], 1):
        if file := _file(word, folder):
            found[index] = file
            if not words[index - 1].startswith("-"):
                break
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class _File:
    facts: str
    is_program: bool
    copy: Copy | None


def _file(place: str, folder: int) -> _File | None:
    """Open a regular file, with its content if the gateway's user could change it."""
    top = str(Path(f"/proc/self/fd/{folder}").readlink())
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except (OSError, ValueError):
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None
        real = Path(f"/proc/self/fd/{descriptor}").readlink()
        name = os.path.relpath(Path(top, place), top)
        is_ours = not os.path.relpath(real, top).startswith("../")
        content = b""
        if is_ours or os.access(f"/proc/self/fd/{descriptor}", os.W_OK):
            with open(descriptor, "rb", closefd=False) as file:
                content = file.read(HELD_BYTES_MAX + 1)
        if is_ours and len(content) > HELD_BYTES_MAX:
            message = f"{place!r} is larger than {HELD_BYTES_MAX:,} bytes, so it cannot be held as it was approved"
            raise ToolError("EXEC_DENIED", message)
    finally:
        os.close(descriptor)
    rights = (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)
    copy = Copy(name, content, rights) if is_ours else Copy(name, link=str(real))
    changes = f"{status.st_dev}:{status.st_ino} {status.st_size} {status.st_mtime_ns}"
    return _File(
        facts=f"{real} {hashlib.sha256(content).hexdigest() if content else changes}",
        is_program=bool(status.st_mode & 0o111),
        copy=None if name.startswith("../") else copy,
    )


def _is_systems(place: str) -> bool:
    paths = (Path(place), Path(place).resolve())
    statuses = [it.stat() for path in paths for it in (path, *path.parents)]
    return all(it.st_uid == 0 and not it.st_mode & (stat.S_IWGRP | stat.S_IWOTH) for it in statuses)
