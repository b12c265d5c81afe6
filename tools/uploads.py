"""Where the files that people send are kept: a folder for each session, outside of every workspace.

A session's file tools see its folder as `uploads` in their workspace; nobody else's has a name there at all.
"""

import os
import shutil
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

UPLOADS = "uploads"


def folder_of(base: Path, session: str) -> Path:
    """The same for ever, and no two sessions' are one."""
    return base / sha256(session.encode(errors="surrogatepass")).hexdigest()[:32]


def make_folder(folder: Path) -> int:
    """A descriptor of a session's folder, made if missing, for its owner only. Raises OSError."""
    # Where the gateway is root its commands are somebody else: they may pass the folder above, and not list it.
    folder.parent.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def forget(base: Path, session: str) -> None:
    """Delete what was sent to a session. Blocking. Raises OSError."""
    with suppress(FileNotFoundError):
        shutil.rmtree(folder_of(base, session))
