"""The workspace's own documents that go into the prompt: six names, read anew at every turn, for they are small.

They are opened by descriptor and never through a link; what is not an ordinary file under one name is passed over, and so
is what a running command may have put there. How they are shown is not decided here.
"""

import os
import stat
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import structlog

from agents.prompt.fences import FILE_HEADINGS
from tools.absent import is_absent
from tools.workspace import Workspace

NAMES = FILE_HEADINGS
FILE_CHARS_MAX = 20_000
ALL_CHARS_MAX = 60_000
_BYTES_MAX = 4 * FILE_CHARS_MAX  # no character takes more than four

log = structlog.get_logger()


def read_workspace_files(workspace: Workspace) -> Iterator[tuple[str, str]]:
    """Name and text of the files that this session sees, in their fixed order, each and all together capped with a note.
    Blocking. Raises nothing."""
    left = ALL_CHARS_MAX
    for name in NAMES:
        if workspace.hides(name):
            continue
        whole, cut = _text(workspace, name)
        if is_absent(workspace.fd, name):
            continue
        text = whole[:left]
        left -= len(text)
        if whole and (cut or len(text) < len(whole)):
            shown = f"{text}\n\n[Cut here: {name} is longer than what is shown; `read` shows the rest.]" if text else ""
            yield name, shown or f"[Not shown: these files together exceed {ALL_CHARS_MAX:,} characters.]"
        elif whole:
            yield name, text


def _text(workspace: Workspace, name: str) -> tuple[str, bool]:
    """At most FILE_CHARS_MAX characters, and whether there were more; nothing of a file that cannot be used."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=workspace.fd)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
                raise OSError("not an ordinary file under one name")
            data = os.read(fd, _BYTES_MAX + 1)
        finally:
            os.close(fd)
    except FileNotFoundError:
        return "", False
    except OSError:
        _log_passed_over(workspace.root, name)
        return "", False
    text = data.decode(errors="replace").removeprefix("\ufeff").strip()
    return text[:FILE_CHARS_MAX], len(text) > FILE_CHARS_MAX or len(data) > _BYTES_MAX


@lru_cache(maxsize=1_024)
def _log_passed_over(root: Path, name: str) -> None:
    """Logs once for each file."""
    reason = "not an ordinary file, or not readable"
    log.warning("workspace_file_passed_over", folder=str(root), name=name, reason=reason)
