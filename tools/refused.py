"""Names that a command may not make, in the workspace, its `skills` and its `.git`: a part of the supervisor."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tools.limits import LOOK_SECONDS


class ForbiddenNames:
    """Renames new files of these names: nothing is lost, and nothing is read or run by that name. Files that the
    gateway reads are renamed at once, since a background command may run for days; files that git needs, when the
    command has ended."""

    def __init__(self, names: list[str], uid: int) -> None:
        self._names, self._uid = names, uid
        self._before: dict[str, set[str]] = {}
        self._before = {it: self._found(it) for it in (".", "skills", ".git")}
        self.has_any = False

    def watch(self) -> None:
        while self._names:
            self.rename(".", "skills")
            time.sleep(LOOK_SECONDS)

    def rename(self, *folders: str) -> None:
        for folder in folders:
            found = self._found(folder)
            self._before[folder] &= found  # what is gone is new when it comes back
            for name in found - self._before[folder]:
                to = f"refused-{os.urandom(4).hex()}-{name.lstrip('.')}"
                with suppress(OSError), _opened(".") as top, _opened(folder) as parent:
                    os.rename(name, to, src_dir_fd=parent, dst_dir_fd=top)
                self.has_any = True

    def _found(self, folder: str) -> set[str]:
        found: set[str] = set()
        try:
            with _opened(folder) as parent, os.scandir(parent) as entries:
                for entry in filter(lambda it: self._is_refused(folder, it), entries if self._names else ()):
                    with suppress(OSError):
                        if self._uid in (-1, entry.stat(follow_symlinks=False).st_uid):
                            found.add(entry.name)
        except PermissionError:  # the command has closed it: nothing is known to be gone
            return set(self._before.get(folder, ()))
        except OSError:
            pass
        return found

    def _is_refused(self, folder: str, entry: "os.DirEntry[str]") -> bool:
        name = entry.name.casefold()
        if folder == ".git":
            return name in ("hooks", "config")
        if folder == "." and name in (".git", "skills"):
            return not entry.is_dir(follow_symlinks=False)
        return folder == "skills" or name in self._names or name.startswith(".env")


@contextmanager
def _opened(folder: str) -> Iterator[int]:
    """No link is followed: it could lead to what is not the command's."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)
