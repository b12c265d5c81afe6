"""The folder of what people sent to one session, beside every workspace; and of its background processes' records."""

import os
import shutil
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

UPLOADS = "uploads"


def folder_of(base: Path, session: str) -> Path:
    """The session's folder: it never changes, and no two sessions share one."""
    return base / sha256(session.encode(errors="surrogatepass")).hexdigest()[:32]


def processes_of(uploads: Path) -> Path:
    """The place of the records of a session's background processes, beside its uploads: no tool sees them there."""
    return uploads.with_name(f"{uploads.name}.processes")


def make_folder(folder: Path) -> int:
    """A descriptor of a session's folder, made if missing, for its owner only. Raises OSError."""
    # If the gateway is root, its commands have another user: that may pass the folder above, and not list it.
    folder.parent.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def forget(base: Path, session: str) -> None:
    """Delete what was sent to a session and what it ran. Blocking. Raises OSError."""
    uploads = folder_of(base, session)
    for folder in (uploads, processes_of(uploads)):
        with suppress(FileNotFoundError):
            shutil.rmtree(folder)
