"""Back up everything that a config names into one file, even while a gateway serves, and restore it.

The config's path fields define the contents (`gateway.config.folders`): the config with `.env` and `${file:…}`,
the database, workspaces, uploads, skills and tools, and the default folder `data`.

A restore needs an empty folder, overwrites nothing, and moves files into place only after all of them are verified.
"""

import gzip
import io
import os
import re
import shutil
import stat
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path, PurePath
from typing import IO

from gateway.config.folders import paths_of
from gateway.config.load import DOTENV, Loaded, load, over_file
from gateway.config.problems import ConfigErrors
from gateway.config.root import Config, DatabaseConfig
from gateway.config.serving import RECORDS
from gateway.operate.backup_file import (
    CHUNK,
    ELSEWHERE,
    FILES,
    MANIFEST,
    ROWS,
    BackupEntry,
    BackupLink,
    BackupMember,
    BadBackup,
    Manifest,
    digest,
    is_inside,
    members,
    opened,
    read_manifest,
    stays_inside,
)
from gateway.program import VERSION, OperatorError
from gateway.state.ending import Ending
from gateway.state.seal import key_file
from gateway.store.snapshot import RESTORED, InFlight, is_served, refuse_full, restore_file, restore_rows, take_snapshot
from tools.catalog import own_tools

DATA = "data"
"""The default data folder, next to the config."""
READS = 3
"""Attempts to read a file that changes meanwhile."""
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PASSED_OVER = frozenset({"__pycache__"})
_OF_A_PROCESS = re.compile(r"serving-[0-9a-f]{8}\.json")
"""The record of a serving gateway, which is only valid for its process."""
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
MARGIN_BYTES = 64 * 1024 * 1024
"""Disk space to leave free."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BackupDone:
    """`left_out` lists what is not backed up, with the reasons; `unread` lists the files that could not be read."""

    file: Path
    size: int
    manifest: Manifest
    left_out: tuple[str, ...]
    unread: tuple[str, ...]


def back_up(loaded: Loaded, config: Path, target: Path, env: Mapping[str, str]) -> BackupDone:
    """Write a backup and verify it. `target` is a new file, or a folder for a file named by the time. `env` is the
    environment without `.env`. Raise OperatorError, leaving no file."""
    made = datetime.now(tz=UTC)
    if target.is_dir():
        target = target / f"clawgate-{made:%Y%m%dT%H%M%SZ}.tar.gz"
    if os.path.lexists(target):
        raise OperatorError(f"{target}: is there already, and a backup overwrites nothing — choose another name")
    roots = _Roots(loaded, config)
    for root in roots.found:
        if target.resolve().is_relative_to(root):
            raise OperatorError(f"{target}: lies in {root}, which is backed up itself — choose another folder")
    try:
        return _written(loaded, roots, target, made, env)
    except OSError as error:
        raise OperatorError(f"{error.filename or target}: {error.strerror}; nothing was written") from None


def _written(loaded: Loaded, roots: "_Roots", target: Path, made: datetime, env: Mapping[str, str]) -> BackupDone:
    database = loaded.config.database
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.absolute().parent) as scratch:  # mode 0700
        new, copy = Path(scratch, "new"), Path(scratch, "database")
        served = is_served(database)
        revision = take_snapshot(database, copy)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            archive = _Archive(file, Path(scratch))
            for above in sorted({it for root in roots.found for it in root.parents if roots.folder in it.parents}):
                archive.folders.append(_entry(roots.name(above), above.stat()))
            for root in roots.found:
                archive.add_tree(root, roots.name(root), roots.private, roots.passed_over)
            if roots.in_force is not None:
                text = Path(scratch, "config")
                text.write_bytes(roots.in_force)
                with text.open("rb") as content:
                    archive.add(content, roots.config, os.fstat(content.fileno()), mode=0o600)
            named = roots.name(Path(database.path)) if database.path else ROWS
            if revision is not None:
                with copy.open("rb") as rows:
                    archive.add(rows, named, os.fstat(rows.fileno()), mode=0o600)
            manifest = Manifest(
                clawgate=VERSION,
                made=made.isoformat(timespec="seconds"),
                config=roots.config,
                database=named if revision is not None else None,
                kind="sqlite" if database.path else "postgresql",
                revision=revision,
                served=served,
                files=tuple(archive.files),
                folders=tuple(archive.folders),
                links=tuple(archive.links),
                moved=roots.moved,
                variables=tuple(set_outside(loaded, roots.folder / DOTENV, env)),
            )
            archive.close(manifest)
        with new.open("rb") as file:
            if read_manifest(file, bytes_max=archive.bytes) != manifest:
                raise OperatorError(f"{target}: what was written is not what was read; nothing is kept of it")
        size = new.stat().st_size
        if os.path.lexists(target):
            raise OperatorError(f"{target}: is there by now, and a backup overwrites nothing")
        new.rename(target)
    folder = os.open(target.absolute().parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    left_out = (*roots.left_out, *archive.told())
    return BackupDone(file=target, size=size, manifest=manifest, left_out=left_out, unread=tuple(archive.unread))


def set_outside(loaded: Loaded, dotenv: Path, env: Mapping[str, str]) -> list[str]:
    """List the variables that the config takes from the environment and not from `.env`."""
    used = {*(name for names in loaded.names.values() for name in names), *loaded.variables.values()}
    return sorted(used & {name for name, value in env.items() if value} - over_file(dotenv, {}).keys())


class _Roots:
    """The files and folders to back up, and the path of each in the backup."""

    def __init__(self, loaded: Loaded, config: Path) -> None:
        self.folder = config.parent.resolve()
        self.config = config.name
        self.moved: dict[str, str] = {}
        self.left_out: list[str] = []
        database = loaded.config.database.path
        self.passed_over = (
            {Path(f"{database}{it}") for it in ("", "-wal", "-shm", "-journal", ".lock")} if database else set()
        )
        file = self.folder / config.name
        self.in_force = None if file.is_file() and file.read_bytes() == loaded.source else loaded.source
        """The config in force, if the file differs or is gone."""
        if self.in_force is not None:
            self.passed_over.add(file)
        self.passed_over.add(key_file(loaded.config))
        for folder in (self.folder / DATA, *([Path(database).parent] if database else [])):
            self.passed_over.update(folder.glob(RECORDS))
        secrets = loaded.files - own_tools(loaded.config.tools).files
        self.private = secrets
        wanted = [
            file,
            *sorted(secrets),
            *self._named(loaded.config),
            (self.folder / DATA).resolve(),
        ]
        there = [it for it in dict.fromkeys(wanted) if os.path.lexists(it) and it not in self.passed_over]
        self.found = [it for it in there if not any(other in it.parents for other in there)]
        for root in (*self.found, *([Path(database)] if database else [])):
            if not root.is_relative_to(self.folder):
                self.moved[self.name(root)] = str(root)

    def name(self, path: Path) -> str:
        if path.is_relative_to(self.folder):
            return path.relative_to(self.folder).as_posix()
        return f"{ELSEWHERE}{path.as_posix()}"

    def _named(self, config: Config) -> Iterator[Path]:
        for it in paths_of(config):
            key = ".".join(map(str, it.key))
            path = Path(it.path.partition("{")[0])  # each chat or person has a folder beneath
            if it.path == config.database.url:
                continue
            if it.how.left_out:
                if path.exists():
                    self.left_out.append(f"{path}: {key}, {it.how.left_out}")
            elif path == self.folder or path in self.folder.parents:
                self.left_out.append(
                    f"{path}: {key}, the folder of the config itself; what lies there besides is yours to keep"
                )
            else:
                yield path
                yield from (path.parent / name for name in it.how.beside)
        for server in config.mcp.servers.values():
            for word in server.command:
                program = Path(os.path.realpath(Path(server.cwd, word)))
                if program.is_relative_to(self.folder) and program.is_file():
                    yield program


class _Archive:
    def __init__(self, file: IO[bytes], scratch: Path) -> None:
        self.files: list[BackupMember] = []
        self.folders: list[BackupEntry] = []
        self.links: list[BackupLink] = []
        self.unread: list[str] = []
        self.bytes = 0
        self._left_out: Counter[str] = Counter()
        self._file, self._scratch = file, scratch
        self._packed = gzip.GzipFile(fileobj=file, mode="wb", compresslevel=6, filename="")
        self._tar = tarfile.open(fileobj=self._packed, mode="w:", format=tarfile.PAX_FORMAT)  # noqa: SIM115

    def add_tree(self, root: Path, name: str, private: Collection[Path], passed_over: Collection[Path]) -> None:
        """Add a file, or a folder recursively, except for `passed_over`."""
        real = root.resolve()  # a config, or its `.env`, may be a link to the file
        above = os.open(real.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if not real.is_dir():
                self._add_entry(real.name, above, name, is_private=root in private)
                return
            for where, folders, files, fd in os.fwalk(
                real.name, follow_symlinks=False, dir_fd=above, onerror=self._unread
            ):
                inside, here = PurePath(name, *PurePath(where).parts[1:]).as_posix(), real.parent / where
                entries = sorted((*folders, *files))
                folders[:] = [it for it in sorted(folders) if it not in _PASSED_OVER and is_inside(it)]
                self.folders.append(_entry(inside, os.fstat(fd)))
                for entry in entries:
                    if here / entry not in passed_over and not _OF_A_PROCESS.fullmatch(entry):
                        self._add_entry(entry, fd, f"{inside}/{entry}", is_private=here / entry in private)
        finally:
            os.close(above)

    def _add_entry(self, entry: str, folder: int, name: str, *, is_private: bool) -> None:
        if not is_inside(name):
            self._left_out["has a name that is no text"] += 1
            return
        try:
            kind = os.stat(entry, dir_fd=folder, follow_symlinks=False).st_mode
            if stat.S_ISLNK(kind):
                target = os.readlink(entry, dir_fd=folder)
                if stays_inside(name, target):
                    self.links.append(BackupLink(path=name, target=target))
                else:
                    self._left_out["is a link that leads elsewhere"] += 1
            elif stat.S_ISREG(kind):
                self._add_file(entry, folder, name, mode=0o600 if is_private else None)
            elif not stat.S_ISDIR(kind):
                self._left_out["is a socket, a pipe or a device"] += 1
        except OSError as error:
            self._unread(error, name)

    def _unread(self, error: OSError, name: str = "") -> None:
        if not isinstance(error, FileNotFoundError):  # else it was deleted meanwhile
            self.unread.append(f"{name or error.filename}: {error.strerror}")

    def _add_file(self, entry: str, folder: int, name: str, *, mode: int | None) -> None:
        # A program may be writing the file: retry until it did not change while it was read.
        for left in reversed(range(READS)):
            with (
                os.fdopen(os.open(entry, _READ, dir_fd=folder), "rb") as file,
                tempfile.SpooledTemporaryFile(16 * CHUNK, dir=str(self._scratch)) as copy,
            ):
                before = os.fstat(file.fileno())
                if not stat.S_ISREG(before.st_mode):
                    return
                while copy.tell() < before.st_size and (piece := file.read(CHUNK)):
                    copy.write(piece)
                after = os.fstat(file.fileno())
                if (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns) or not left:
                    self.add(copy, name, after, mode=mode)
                    return

    def add(self, content: IO[bytes], name: str, status: os.stat_result, *, mode: int | None = None) -> None:
        size = content.seek(0, io.SEEK_END)
        content.seek(0)
        whole = sha256()
        header = tarfile.TarInfo(FILES + name)
        header.size, header.mode, header.mtime = size, 0o600, int(status.st_mtime)
        self._tar.addfile(header, _Hashed(content, whole.update))
        entry = _entry(name, status, mode)
        self.files.append(
            BackupMember(
                **entry.model_dump(), size=size, modified=max(0, int(status.st_mtime)), sha256=whole.hexdigest()
            )
        )
        self._tar.members.clear()  # type: ignore[attr-defined]
        self.bytes += size

    def close(self, manifest: Manifest) -> None:
        content = manifest.model_dump_json(by_alias=True).encode()
        header = tarfile.TarInfo(MANIFEST)
        header.size, header.mode = len(content), 0o600
        self._tar.addfile(header, io.BytesIO(content))
        self._tar.close()
        self._packed.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self.bytes += len(content)

    def told(self) -> list[str]:
        """Count the entries that a backup cannot contain, a line per reason."""
        return [f"{count:,} that {reason}" for reason, count in self._left_out.items()]


@dataclass
class _Hashed:
    """Passes everything that is read to `note`."""

    content: IO[bytes]
    note: Callable[[bytes], object]

    def read(self, size: int = -1) -> bytes:
        piece = self.content.read(size)
        self.note(piece)
        return piece


def _entry(path: str, status: os.stat_result, mode: int | None = None) -> BackupEntry:
    kept = stat.S_IMODE(status.st_mode) & 0o777 if mode is None else mode
    return BackupEntry(path=path, mode=kept, uid=status.st_uid, gid=status.st_gid)


@dataclass(frozen=True, kw_only=True, slots=True)
class RestoreDone:
    folder: Path
    manifest: Manifest
    parked: InFlight
    database: str
    """The PostgreSQL database that was restored; empty for SQLite."""


def restore(backup: Path, folder: Path, env: Mapping[str, str], *, database_url: str = "") -> RestoreDone:
    """Restore into `folder`, which is created if missing. Raise OperatorError, restoring nothing."""
    with opened(backup) as file:
        _refuse_full(folder, backup)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            manifest = read_manifest(file, bytes_max=shutil.disk_usage(folder).free - MARGIN_BYTES)
            with tempfile.TemporaryDirectory(prefix=".restoring-", dir=folder) as scratch:
                new = Path(scratch, "new")
                _extract(file, manifest, new)
                config, parked = _with_database(manifest, new, env, database_url)
                entries = sorted(new.iterdir(), key=lambda it: it.name == manifest.config)  # what is served comes last
                for entry in entries:
                    entry.rename(folder / entry.name)
        except OSError as error:
            raise OperatorError(f"{error.filename or folder}: {error.strerror}; nothing was restored") from None
    return RestoreDone(folder=folder, manifest=manifest, parked=parked, database=config.shown if config else "")


def _refuse_full(folder: Path, backup: Path) -> None:
    if os.path.lexists(folder) and not folder.is_dir():
        raise OperatorError(f"{folder}: is there, and is no folder")
    inside = [it.name for it in folder.iterdir() if it.absolute() != backup.absolute()] if folder.is_dir() else []
    if inside:
        names = ", ".join(sorted(inside)[:5]) + (f" and {len(inside) - 5:,} more" if len(inside) > 5 else "")
        raise OperatorError(f"{folder}: has {names}, and a restore overwrites nothing — name an empty folder")


def _extract(file: IO[bytes], manifest: Manifest, new: Path) -> None:
    new.mkdir(mode=0o700)
    for folder in sorted(manifest.folders, key=lambda it: it.path):
        _make_above(new, folder.path)
        (new / folder.path).mkdir(mode=0o700)
    wanted = {FILES + it.path: it for it in manifest.files}
    for name, _, content in members(file):
        if (member := wanted.get(name)) is None:
            continue
        path = new / member.path
        _make_above(new, member.path)
        with os.fdopen(os.open(path, _NEW, 0o600), "wb") as written:
            if digest(content, written.write) != member.sha256:
                raise BadBackup(f"{member.path} has changed since it was read")
            written.flush()
            os.fsync(written.fileno())
            _own(written.fileno(), member)
        os.utime(path, (time.time(), member.modified))
    for folder in sorted(manifest.folders, key=lambda it: it.path, reverse=True):
        fd = os.open(new / folder.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            _own(fd, folder, least=0o700)
        finally:
            os.close(fd)
    for link in manifest.links:
        _make_above(new, link.path)
        (new / link.path).symlink_to(link.target)


def _make_above(new: Path, path: str) -> None:
    (new / path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)


def _own(fd: int, entry: BackupEntry, least: int = 0o400) -> None:
    # Workspaces may belong to other users, which only root can restore. Nothing is writable by others.
    if os.geteuid() == 0:
        os.fchown(fd, entry.uid, entry.gid)
    os.fchmod(fd, entry.mode & 0o755 | least)


def _with_database(
    manifest: Manifest, new: Path, env: Mapping[str, str], database_url: str
) -> tuple[DatabaseConfig | None, InFlight]:
    # If a gateway served during the backup, it went on with the work in flight: park that as dead letters.
    final = Ending(outcome="failed", reason=RESTORED, dead=True).record(0, time.time())
    if database_url and manifest.kind != "postgresql":
        raise OperatorError("--database-url: the backup has a SQLite file, which is restored into the folder")
    if manifest.database is None:
        return None, InFlight()
    file = new / manifest.database
    if manifest.kind == "sqlite":
        return None, restore_file(file, final=final, parks=manifest.served)
    config = DatabaseConfig(url=database_url) if database_url else _database_of(new / manifest.config, env)
    refuse_full(config)
    parked = restore_rows(config, file, final=final, parks=manifest.served)
    file.unlink()
    return config, parked


def _database_of(config: Path, env: Mapping[str, str]) -> DatabaseConfig:
    try:
        database = load(config, env).config.database
    except ConfigErrors as errors:
        fix = "name the empty database with --database-url"
        raise OperatorError(
            f"the config of the backup cannot be used, so its database is not known: {fix}\n{errors}"
        ) from None
    if database.path is not None:
        raise OperatorError("the backup has rows of PostgreSQL: name an empty database with --database-url")
    return database
