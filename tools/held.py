"""Puts approved files where no other process can change them: a part of the supervisor.

Each file lies below the temporary folder's `approved` as it lies in the workspace, beside links to its neighbours, so that
a script finds what it imports or reads from its own folder. The folders cannot be written.
"""

import os
from contextlib import suppress

FOLDER = "approved"
NEIGHBOURS_MAX = 2_000
"""Neighbours of one folder that get a link, in the order of their names."""

Copied = tuple[str, str, int, tuple[int, int, int]]
"""The name in the workspace, where a link leads, the descriptor of the content, and mode, uid and gid."""


def hold(temporary: str, copies: list[Copied], owner: tuple[int, int]) -> list[str]:
    """The folders that it made, in the order to remove them. The workspace is the working folder. Raises OSError."""
    made: list[str] = []
    for name, link, fd, rights in copies:
        *folders, leaf = name.split("/")
        place, there = f"{temporary}/{FOLDER}", "."
        for inner in (*folders, ""):
            if place not in made:
                with suppress(OSError):
                    os.unlink(place)  # noqa: PTH108 - pathlib would double the start-up time
                os.mkdir(place)  # noqa: PTH102 - as above
                made.insert(0, place)
                for neighbour in _neighbours(there, owner):
                    os.symlink(f"{os.getcwd()}/{there}/{neighbour}", f"{place}/{neighbour}")  # noqa: PTH109, PTH211
            if inner:
                place, there = f"{place}/{inner}", f"{there}/{inner}"
        with suppress(FileNotFoundError):
            os.unlink(f"{place}/{leaf}")  # noqa: PTH108 - as above
        if link:
            os.symlink(link, f"{place}/{leaf}")  # noqa: PTH211 - as above
        else:
            _copy(fd, f"{place}/{leaf}", allowed(*rights, *owner))
        os.close(fd)
    for place in made if owner[0] < 0 else ():  # else they are root's
        os.chmod(place, 0o555)  # noqa: PTH101 - as above
    return made


def _neighbours(folder: str, owner: tuple[int, int]) -> list[str]:
    """The names that the command's own user can list."""
    us = os.geteuid(), os.getegid()
    try:
        if owner[0] >= 0:
            os.setegid(owner[1])
            os.seteuid(owner[0])
        return sorted(os.listdir(folder))[:NEIGHBOURS_MAX]  # noqa: PTH208 - as above
    except OSError:
        return []
    finally:
        os.seteuid(us[0])
        os.setegid(us[1])


def allowed(mode: int, uid: int, gid: int, as_uid: int, as_gid: int) -> int:
    """The rights of a command's user on a file, as the lowest three bits; a negative user is the gateway's own."""
    return mode >> 6 if uid == as_uid or as_uid < 0 else mode >> 3 if gid == as_gid else mode


def _copy(source: int, place: str, rights: int) -> None:
    fd = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        while os.sendfile(fd, source, None, 1 << 20):
            pass
        os.fchmod(fd, (rights & 5) * 0o111)
    finally:
        os.close(fd)
