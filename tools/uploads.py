"""The folder of what people sent to one session, beside every workspace; and of its background processes' records."""

import os
import shutil
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

UPLOADS = "uploads"
QUOTED = "quoted-"
"""The names of files that came with a quoted message begin with it."""


def folder_of(base: Path, session: str) -> Path:
    """The session's folder: it never changes, and no two sessions share one."""
    return base / folder_name(session)


def folder_name(session: str) -> str:
    return sha256(session.encode(errors="surrogatepass")).hexdigest()[:32]


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


def forget_message(base: Path, session: str, tag: str) -> None:
    """Delete the files of one message. Blocking. Raises OSError."""
    with suppress(FileNotFoundError):
        shutil.rmtree(folder_of(base, session) / tag)


def forget_quoted(base: Path, session: str, tag: str) -> None:
    """Delete the files of the message that this one quoted, which were kept with it. Blocking. Raises OSError."""
    for file in (folder_of(base, session) / tag).glob(f"{QUOTED}*"):
        file.unlink(missing_ok=True)


def forget(base: Path, session: str) -> None:
    """Delete what was sent to a session and what it ran. Blocking. Raises OSError."""
    uploads = folder_of(base, session)
    for folder in (uploads, processes_of(uploads)):
        with suppress(FileNotFoundError):
            shutil.rmtree(folder)
