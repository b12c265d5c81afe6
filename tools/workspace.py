"""An agent's workspace, the only place its file tools can touch, and the folders of each session's uploads.

A directory descriptor holds the workspace. Two things only appear to be in it: `uploads`, the folder of the running
session, and read-only mounts such as shared skills. The private files (`tools.paths.PRIVATE`) are in it, but hidden
from sessions with other readers, under every name and link. Files are checked after opening: only regular files with
one name, on the file system of their folder. Writes are atomic and within a quota. Blocking; the tools run it off the
event loop.
"""

import fcntl
import os
import secrets
import shutil
import stat
import sys
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

from tools.limits import ENTRY_BYTES, stored_bytes
from tools.paths import called, explained, is_memory, is_private, not_found, open_beneath, open_in, protection, relative
from tools.tool import ToolError, repeats, upload_source

UPLOADS = "uploads"
QUOTED = "quoted-"
"""Prefix of the names of files that came with a quoted message."""


def folder_of(base: Path, session: str) -> Path:
    """Return the session's folder: it never changes, and no two sessions share one."""
    return base / folder_name(session)


def folder_name(session: str) -> str:
    return sha256(session.encode(errors="surrogatepass")).hexdigest()[:32]


def processes_of(uploads: Path) -> Path:
    """Return the folder of a session's process records, next to its uploads: no tool sees them there."""
    return uploads.with_name(f"{uploads.name}.processes")


def make_folder(folder: Path) -> int:
    """Open a session's folder, created if missing, for its owner only. Raises OSError."""
    # If the gateway is root, commands run as another user, who may enter the parent folder but not list it.
    folder.parent.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def forget_message(base: Path, session: str, tag: str) -> None:
    """Delete the files of one message. Blocking. Raises OSError."""
    with suppress(FileNotFoundError):
        shutil.rmtree(folder_of(base, session) / tag)


def forget_quoted(base: Path, session: str, tag: str) -> None:
    """Delete the files of the quoted message, which are stored with the quoting one. Blocking. Raises OSError."""
    for file in (folder_of(base, session) / tag).glob(f"{QUOTED}*"):
        file.unlink(missing_ok=True)


def forget_session(base: Path, session: str) -> None:
    """Delete a session's uploads and process records. Blocking. Raises OSError."""
    uploads = folder_of(base, session)
    for folder in (uploads, processes_of(uploads)):
        with suppress(FileNotFoundError):
            shutil.rmtree(folder)


COUNT_SECONDS = 60
COUNT_PAUSES = 10
"""Pause after a count, as a multiple of the time it took."""


class FolderUse:
    """Disk usage of a folder: recounted at times, because commands write there, too; tools add what they write."""

    def __init__(self) -> None:
        self._stored, self._counted, self._seconds = 0, float("-inf"), 0.0

    def charge(self, folder: str, more: int, most: int) -> None:
        """Add `more` bytes if the total stays within `most`. Raises ToolError."""
        age = time.monotonic() - self._counted
        is_doubtful = self._stored + more > most or age > COUNT_SECONDS
        if is_doubtful and age > self._seconds * COUNT_PAUSES:
            began = time.monotonic()
            stored = stored_bytes((folder,), entries_max=most // ENTRY_BYTES)
            self._stored = sys.maxsize if stored is None else stored
            self._counted = time.monotonic()
            self._seconds = self._counted - began
        if more > 0 and self._stored + more > most:
            what = f"the files here may take {most:,} bytes in all (tools.files.quotaBytes)"
            raise ToolError("QUOTA_EXCEEDED", f"{what}; delete what is not needed, or tell the user")
        self._stored = max(0, self._stored + more)


PREFIX = ".clawgate-"
"""Prefix of temporary files."""


def replace_file(
    folder: int, name: str, data: bytes, *, path: str, expected: os.stat_result | None, give: Callable[[int], None]
) -> None:
    """Replace the content of `name` atomically; `path` is what a model calls it, and `give` sets the owner of the new
    file. With `expected`, only if the file has not changed since. Raises ToolError and OSError."""
    mode = _mode(folder, name, path)
    with replacing(folder, name) as fd:
        with open(fd, "wb", closefd=False) as file:
            file.write(data)
        give(fd)
        os.fchmod(fd, mode)
        os.fsync(fd)
        if expected is not None and not _is_unchanged(folder, name, expected):
            raise ToolError("CHANGED", f"{called(path)!r} changed while it was edited; read it again", retryable=True)
    os.close(fd)
    os.fsync(folder)


def _mode(folder: int, name: str, path: str) -> int:
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return 0o644
    if stat.S_ISDIR(status.st_mode):
        raise ToolError("IS_A_FOLDER", f"{called(path)!r} is a folder")
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:  # a link, or a file with other names
        raise not_found(path)
    return stat.S_IMODE(status.st_mode) & 0o777  # set-uid was meant for the old content


def _is_unchanged(folder: int, name: str, then: os.stat_result) -> bool:
    with suppress(OSError):
        now = os.stat(name, dir_fd=folder, follow_symlinks=False)
        return (now.st_ino, now.st_mtime_ns, now.st_size) == (then.st_ino, then.st_mtime_ns, then.st_size)
    return False


def new_temporary(folder: int) -> tuple[str, int]:
    """Create an empty, locked file in `folder`; return its name and its descriptor for writing."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        name = f"{PREFIX}{secrets.token_hex(8)}"
        fd = os.open(name, flags, 0o600, dir_fd=folder)
        if _locked(fd) and _is(name, folder, fd):
            return name, fd
        os.close(fd)  # another process swept between the two steps


def sweep(folder: int) -> None:
    """Remove the temporary files of dead writers: earlier processes of ours, and other replicas."""
    for name in os.listdir(folder):
        if name.startswith(PREFIX):
            with suppress(OSError):
                fd = os.open(name, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
                try:
                    if _locked(fd) and _is(name, folder, fd):
                        os.unlink(name, dir_fd=folder)
                finally:
                    os.close(fd)


@contextmanager
def replacing(folder: int, name: str) -> Iterator[int]:
    """Open a temporary file that is renamed to `name` after the block; it stays open and locked."""
    sweep(folder)
    temporary, fd = new_temporary(folder)
    try:
        yield fd
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        os.close(fd)
        raise


def _locked(fd: int, how: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_locked(fd: int) -> bool:
    """Return whether a process of any replica still writes it. Closing `fd` releases the lock that this takes."""
    return not _locked(fd, fcntl.LOCK_SH)


def _is(name: str, folder: int, fd: int) -> bool:
    with suppress(FileNotFoundError):
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_ino == os.fstat(fd).st_ino
    return False


NOBODY = 65_534
"""Owner of a workspace if the gateway runs as root: commands never run as root."""

_CODE = Path(__file__).resolve().parents[1]
_READ = os.O_RDONLY | os.O_NONBLOCK
_FOLDER = os.O_RDONLY | os.O_DIRECTORY


@dataclass(kw_only=True)
class Workspace:
    """`root` is created if missing, for its owner only. `mounts` maps paths in it, such as `skills/NAME`, to read-only
    folders; `uploads` is the folder of a session. `writable` names the instruction files and memory that tools may
    change. `hides_private`: the private files are not found here."""

    root: Path
    mounts: Mapping[str, Path] = field(default_factory=dict)
    uploads: Path | None = None
    writable: Collection[str] = ()
    hides_private: bool = False
    quota_bytes: int = sys.maxsize
    fd: int = field(default=-1, repr=False)
    _owner: "Workspace | None" = field(default=None, repr=False)
    """The workspace that opened the descriptor: it stays open as long as a copy is used."""
    _used: FolderUse = field(default_factory=FolderUse, repr=False)
    _sent: FolderUse = field(default_factory=FolderUse, repr=False)

    def __post_init__(self) -> None:
        if self.fd < 0:
            self.root = Path(os.path.abspath(self.root))  # noqa: PTH100 - it removes `..`, as `relative` does
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.fd = os.open(self.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            if os.geteuid() == 0 and os.fstat(self.fd).st_uid == 0:
                with suppress(PermissionError):  # a root without that right: file tools work, commands are refused
                    os.chown(f"/proc/self/fd/{self.fd}", NOBODY, NOBODY)
        self._closing = weakref.finalize(self, os.close, self.fd) if self._owner is None else None

    def serving(
        self,
        *,
        uploads: Path | None = None,
        mounts: Mapping[str, Path] | None = None,
        writable: Collection[str] = (),
        hides_private: bool = False,
    ) -> "Workspace":
        """Return the workspace as one session sees it, with `writable` added. What was hidden stays hidden."""
        return replace(
            self,
            mounts=mounts or {},
            uploads=uploads,
            writable=(*self.writable, *writable),
            hides_private=self.hides_private or hides_private,
            _owner=self._owner or self,
            _sent=FolderUse(),
        )

    def hides(self, name: str) -> bool:
        """Return whether a path, relative to the workspace, is hidden from this session."""
        return self.hides_private and is_private(name.split("/"))

    def was_sent(self, path: str) -> bool:
        """Return whether a path is among the uploads. Raises ToolError."""
        return self.uploads is not None and self._name(path).startswith(f"{UPLOADS}/")

    def shows_uploads(self) -> None:
        """Record that a command sees every upload: its output may repeat any of them."""
        if self.uploads is not None and self.uploads.is_dir():
            repeats(upload_source(self.uploads.name, "*"))

    def close(self) -> None:
        """Close the descriptor; a copy made by `serving` closes nothing."""
        if self._closing is not None:
            self._closing()
            self.fd = -1

    @contextmanager
    def reading(self, path: str) -> Iterator[int]:
        """Open a regular file and yield its descriptor. Raises ToolError."""
        with self.found(self._name(path), path) as fd:
            yield fd

    @contextmanager
    def found(self, name: str, path: str = "") -> Iterator[int]:
        """Open a name that `below` returned; `path` is what a model calls it. Raises ToolError."""
        try:
            fd, device = self._open(name, _READ)
        except OSError as error:
            raise explained(error, path) from None
        try:
            _check_file(fd, path, device)
            yield fd
        finally:
            os.close(fd)

    def entries(self, path: str) -> dict[str, bool]:
        """List a folder, unsorted: each name, and whether it is a folder. Raises ToolError."""
        return self._entries(self._name(path), path)

    def below(self, path: str) -> Iterator[tuple[str, str, bool]]:
        """Walk a folder, or yield that one file, in order: the name in the workspace, the name below `path`, and
        whether it is a folder. Links are not followed, and the contents of `.git` are skipped unless `path` is there.
        Raises ToolError."""
        start = self._name(path)
        try:
            pending = self._inner(start, "", path)
        except ToolError as error:
            if error.code != "NOT_A_FOLDER":
                raise
            with self.found(start, path):
                pending = [(start, start.rpartition("/")[2], False)]
        while pending:
            name, below, is_folder = pending.pop()
            yield name, below, is_folder
            if is_folder and not below.endswith(".git"):
                with suppress(ToolError):  # gone, or not ours
                    pending += self._inner(name, f"{below}/", name)

    def _inner(self, name: str, below: str, path: str) -> list[tuple[str, str, bool]]:
        entries = sorted(self._entries(name, path).items(), reverse=True)
        return [(it if name == "." else f"{name}/{it}", below + it, is_folder) for it, is_folder in entries]

    def _entries(self, name: str, path: str) -> dict[str, bool]:
        names = dict.fromkeys(self._elsewhere(name), True)
        try:
            fd, device = self._open(name, _FOLDER)
        except NotADirectoryError:
            raise ToolError("NOT_A_FOLDER", f"{called(path)!r} is not a folder; `read` reads files") from None
        except OSError as error:
            if not names:
                raise explained(error, path) from None
            return names
        try:
            status = os.fstat(fd)
            if status.st_dev != device:
                raise not_found(path)
            is_root = os.path.samestat(status, os.fstat(self.fd))  # by whatever link
            with os.scandir(fd) as entries:
                own = {
                    it.name: it.is_dir(follow_symlinks=False) for it in entries if not (is_root and self.hides(it.name))
                }
        finally:
            os.close(fd)
        hidden = UPLOADS if name == "." and self.uploads is not None else None
        return {it: is_folder for it, is_folder in own.items() if it.casefold() != hidden} | names

    def write(self, path: str, data: bytes, *, expected: os.stat_result | None = None) -> str:
        """Write `data` atomically, creating parent folders, and return the name relative to the workspace. With
        `expected`, only if the file has not changed since. Raises ToolError."""
        name = self._writable(path)
        folder, _, leaf = name.rpartition("/")
        self._charge(name, len(data))
        try:
            parent = self._folder(folder)
            try:
                replace_file(parent, leaf, data, path=path, expected=expected, give=self._give)
            finally:
                os.close(parent)
        except OSError as error:
            raise explained(error, path) from None
        return name

    def is_memory(self, path: str) -> bool:
        """Return whether a path names one of the agent's memory files. Raises ToolError."""
        return is_memory(self._name(path).split("/"))

    def _charge(self, name: str, size: int) -> None:
        more = size + ENTRY_BYTES * (1 + name.count("/"))
        with suppress(ToolError), self.found(name) as fd:
            more = size - os.fstat(fd).st_blocks * 512
        if self.uploads is not None and name.startswith(f"{UPLOADS}/"):
            self._sent.charge(str(self.uploads), more, self.quota_bytes)
        else:
            self._used.charge(f"/proc/self/fd/{self.fd}", more, self.quota_bytes)

    def _name(self, path: str) -> str:
        if self.uploads is None:
            return relative(path, str(self.root))
        if path.startswith(f"{self.uploads}/"):  # as commands know it
            path = UPLOADS + path.removeprefix(str(self.uploads))
        head, slash, rest = relative(path, str(self.root)).partition("/")
        return (UPLOADS if head.casefold() == UPLOADS else head) + slash + rest

    def _writable(self, path: str) -> str:
        name = self._name(path)
        if name == ".":
            raise ToolError("INVALID_ARGUMENT", "that is the workspace itself; name a file in it")
        if name == UPLOADS and self.uploads is not None:
            raise ToolError("IS_A_FOLDER", f"{called(path)!r} is a folder")
        if self.hides(name):
            raise ToolError("PROTECTED", f"{called(path)!r} is private: others read along here. Say so to the user")
        if reason := protection(name, self.writable):
            raise ToolError("PROTECTED", reason)
        head = name.partition("/")[0]
        if head in self.mounts:  # a folder of that name would hide the mount for everyone
            raise ToolError("PROTECTED", f"{head!r} is read-only here; use another folder")
        return name

    def _open(self, name: str, flags: int) -> tuple[int, int]:
        if self.uploads is not None and (name == UPLOADS or name.startswith(f"{UPLOADS}/")):
            if tag := name[len(UPLOADS) + 1 :].partition("/")[0]:
                repeats(upload_source(self.uploads.name, tag))
            return open_in(self.uploads, name[len(UPLOADS) + 1 :], flags)
        if self.hides(name):
            raise FileNotFoundError
        try:
            fd = open_beneath(self.fd, name, os.O_PATH if self.hides_private else flags)
        except FileNotFoundError:
            prefix = next((it for it in self.mounts if name == it or name.startswith(f"{it}/")), None)
            if prefix is None:
                raise
            return open_in(self.mounts[prefix], name[len(prefix) + 1 :], flags)
        if self.hides_private:
            fd = self._seen(fd, flags)
        return fd, os.fstat(self.fd).st_dev

    def _seen(self, fd: int, flags: int) -> int:
        """Reopen the descriptor with `flags`, unless a link led to a private file. Raises OSError."""
        try:
            root, place = (Path(f"/proc/self/fd/{it}").readlink() for it in (self.fd, fd))
            if not place.is_relative_to(root) or self.hides(str(place.relative_to(root))):
                raise FileNotFoundError
            return os.open(f"/proc/self/fd/{fd}", flags | os.O_CLOEXEC)
        finally:
            os.close(fd)

    def _elsewhere(self, folder: str) -> set[str]:
        if folder == ".":  # not the mounts: the prompt names them
            return {UPLOADS} if self.uploads is not None and self.uploads.is_dir() else set()
        inside = f"{folder}/"
        return {it.removeprefix(inside).partition("/")[0] for it in self.mounts if it.startswith(inside)}

    def _folder(self, folder: str) -> int:
        parts = folder.split("/") if folder else []
        if self.uploads is not None and parts[:1] == [UPLOADS]:
            del parts[0]
            current = make_folder(self.uploads)
            self._give(current)
        else:
            current = open_beneath(self.fd, ".", _FOLDER)
        for part in parts:  # no link is followed: it could lead to a protected file
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
        """Give new files to the workspace's owner, so that commands and file tools can share them."""
        if os.geteuid() == 0:
            owner = os.fstat(self.fd)
            if isinstance(name, int):
                os.fchown(name, owner.st_uid, owner.st_gid)
            else:
                os.chown(name, owner.st_uid, owner.st_gid, dir_fd=parent, follow_symlinks=False)


def _check_file(fd: int, path: str, device: int) -> None:
    """Refuses all but an ordinary file under one name: a pipe, a second name for something outside, another file system."""
    status = os.fstat(fd)
    if stat.S_ISDIR(status.st_mode):
        raise ToolError("IS_A_FOLDER", f"{called(path)!r} is a folder; `ls` lists it")
    has_others = status.st_nlink != 1 and not _is_shipped(fd)
    if not stat.S_ISREG(status.st_mode) or has_others or status.st_dev != device:
        raise not_found(path)


def _is_shipped(fd: int) -> bool:
    """The file was opened where our own skills and documents lie. An installer may keep a second name in its cache."""
    with suppress(OSError):
        place = Path(f"/proc/self/fd/{fd}").readlink()
        return any(place.is_relative_to(_CODE / it) for it in ("skills", "agents"))
    return False
