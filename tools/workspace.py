"""One agent's workspace: the only place its file tools can touch, held by a directory descriptor.

Reads also reach the mounted skills, which lie elsewhere and are read-only. What is opened is looked at after it was
opened: regular files only, with one name, on the workspace's own file system. Writing is atomic: a temporary name in
the same folder, then a rename, so that a crash leaves the old file or the new one. Blocking; the tools run it off the
event loop.
"""

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tools.beneath import open_beneath
from tools.paths import is_protected, not_found, relative
from tools.temporary import new_temporary, sweep
from tools.tool import ToolError

NOBODY = 65_534
"""Whom a workspace is given to where the gateway runs as root: commands never do."""

_READ = os.O_RDONLY | os.O_NONBLOCK
_FOLDER = os.O_RDONLY | os.O_DIRECTORY
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, kw_only=True, slots=True)
class Version:
    """What a file was when it was read: if it is something else at the rename, somebody changed it in between."""

    inode: int
    mtime_ns: int
    size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class FileEntry:
    name: str
    is_folder: bool


@dataclass(kw_only=True)
class Workspace:
    """`root` is made where it is missing, for its owner only. `mounts` maps `skills/NAME` to the folder of a skill."""

    root: Path
    mounts: Mapping[str, Path] = field(default_factory=dict)
    _fd: int = field(default=-1, repr=False)

    def __post_init__(self) -> None:
        self.root = Path(os.path.abspath(self.root))  # noqa: PTH100 - it removes `..`, as `relative` does
        if self._fd < 0:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._fd = os.open(self.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            if os.geteuid() == 0 and os.fstat(self._fd).st_uid == 0:
                with suppress(PermissionError):  # a root without that right: file tools work, commands are refused
                    os.chown(f"/proc/self/fd/{self._fd}", NOBODY, NOBODY)

    @property
    def fd(self) -> int:
        return self._fd

    def mounting(self, mounts: Mapping[str, Path]) -> "Workspace":
        """The same workspace, by the same descriptor, with these skills to read."""
        return Workspace(root=self.root, mounts=mounts, _fd=self._fd)

    def close(self) -> None:
        """Once, by whoever made the workspace; `mounting` shares the descriptor."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @contextmanager
    def reading(self, path: str) -> Iterator[int]:
        """A descriptor of a regular file. Raises ToolError."""
        name = relative(path, str(self.root))
        try:
            fd = open_beneath(self._fd, name, _READ)
            device = os.fstat(self._fd).st_dev
        except OSError as error:
            fd, device = self._open_mounted(name, path, error)
        try:
            _judge(fd, path, device)
            yield fd
        finally:
            os.close(fd)

    def version(self, fd: int) -> Version:
        status = os.fstat(fd)
        return Version(inode=status.st_ino, mtime_ns=status.st_mtime_ns, size=status.st_size)

    def entries(self, path: str) -> list[FileEntry]:
        """What is in a folder, unsorted. Raises ToolError."""
        name = relative(path, str(self.root))
        try:
            fd = open_beneath(self._fd, name, _FOLDER)
        except OSError as error:
            if error.errno == errno.ENOTDIR:
                raise ToolError("NOT_A_FOLDER", f"{path!r} is not a folder; `read` reads files") from None
            fd, _ = self._open_mounted(name, path, error, _FOLDER)
        try:
            with os.scandir(fd) as found:
                return [FileEntry(name=e.name, is_folder=e.is_dir(follow_symlinks=False)) for e in found]
        finally:
            os.close(fd)

    def write(self, path: str, data: bytes, *, expected: Version | None = None) -> str:
        """Put `data` there, atomically, and make the folders on the way; the name relative to the workspace.

        With `expected`, only where the file is still that version. Raises ToolError.
        """
        name = self._writable(path)
        folder, _, leaf = name.rpartition("/")
        try:
            parent = self._folder(folder)
            try:
                self._replace(parent, leaf, data, path, expected)
            finally:
                os.close(parent)
        except OSError as error:
            raise _explained(error, path) from None
        return name

    def _writable(self, path: str) -> str:
        name = relative(path, str(self.root))
        if name == ".":
            raise ToolError("INVALID_ARGUMENT", "that is the workspace itself; name a file in it")
        if is_protected(name):
            raise ToolError("PROTECTED", f"{name!r} is protected: tools do not write there")
        return name

    def _folder(self, folder: str) -> int:
        """A descriptor of the folder, made if missing. No link is followed: it could lead to what is protected."""
        current = open_beneath(self._fd, ".", _FOLDER)
        for part in folder.split("/") if folder else ():
            try:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=current)
                    self._give(part, current)
                inner = os.open(part, _FOLDER | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=current)
            finally:
                os.close(current)
            current = inner
        return current

    def _give(self, name: str | int, parent: int | None = None) -> None:
        """What tools make belongs to whom the workspace belongs to, so that commands and file tools can share it."""
        if os.geteuid() == 0:
            owner = os.fstat(self._fd)
            if isinstance(name, int):
                os.fchown(name, owner.st_uid, owner.st_gid)
            else:
                os.chown(name, owner.st_uid, owner.st_gid, dir_fd=parent, follow_symlinks=False)

    def _replace(self, parent: int, leaf: str, data: bytes, path: str, expected: Version | None) -> None:
        mode = self._check_replaceable(parent, leaf, path)
        sweep(parent)
        temporary, fd = new_temporary(parent)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                file.flush()
                self._give(file.fileno())
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            if expected is not None and self._current(parent, leaf) != expected:
                raise ToolError("CHANGED", f"{path!r} changed while it was edited; read it again", retryable=True)
            os.rename(temporary, leaf, src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=parent)
            raise
        os.fsync(parent)

    def _check_replaceable(self, parent: int, leaf: str, path: str) -> int:
        """The mode to keep. A link, a folder or a file with other names is not replaced."""
        try:
            status = os.stat(leaf, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return 0o644
        if stat.S_ISDIR(status.st_mode):
            raise ToolError("IS_A_FOLDER", f"{path!r} is a folder")
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            raise not_found(path)
        return stat.S_IMODE(status.st_mode) & 0o777  # set-uid was given to what the file was, not to what it becomes

    def _current(self, parent: int, leaf: str) -> Version | None:
        try:
            status = os.stat(leaf, dir_fd=parent, follow_symlinks=False)
        except OSError:
            return None
        return Version(inode=status.st_ino, mtime_ns=status.st_mtime_ns, size=status.st_size)

    def _open_mounted(self, name: str, path: str, error: OSError, flags: int = _READ) -> tuple[int, int]:
        """The workspace does not have it: perhaps a mounted skill does. A descriptor, and the skill's device."""
        for prefix, folder in self.mounts.items():
            if error.errno == errno.ENOENT and (name == prefix or name.startswith(prefix + "/")):
                try:
                    root = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
                    try:
                        return open_beneath(root, name[len(prefix) + 1 :] or ".", flags), os.fstat(root).st_dev
                    finally:
                        os.close(root)
                except OSError as inner:
                    raise _explained(inner, path) from None
        raise _explained(error, path) from None


def _judge(fd: int, path: str, device: int) -> None:
    """Only an ordinary file under one name: no pipe, no second name for something outside, no other file system."""
    status = os.fstat(fd)
    if stat.S_ISDIR(status.st_mode):
        raise ToolError("IS_A_FOLDER", f"{path!r} is a folder; `ls` lists it")
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1 or status.st_dev != device:
        raise not_found(path)


def _explained(error: OSError, path: str) -> ToolError:
    if error.errno in _NO_SPACE:
        return ToolError("NO_SPACE", "there is no space left for that")
    if error.errno == errno.ENAMETOOLONG:
        return ToolError("INVALID_ARGUMENT", "the name is too long")
    return not_found(path)
