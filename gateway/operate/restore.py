"""A backup's way back into an empty folder. Nothing is overwritten, and until all of it is right nothing is in its place."""

import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from gateway.config.load import load
from gateway.config.problems import ConfigErrors
from gateway.config.root import DatabaseConfig
from gateway.operate.backup_file import FILES, BackupEntry, BadBackup, Manifest, digest, members, opened, read_manifest
from gateway.program import OperatorError
from gateway.state.ending import Ending
from gateway.store.snapshot import RESTORED, InFlight, refuse_full, restore_file, restore_rows

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
MARGIN_BYTES = 64 * 1024 * 1024
"""Room that the disk keeps."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RestoreDone:
    folder: Path
    manifest: Manifest
    parked: InFlight
    database: str
    """The database that the rows of PostgreSQL were written to; empty for a file."""


def restore(backup: Path, folder: Path, env: Mapping[str, str], *, database_url: str = "") -> RestoreDone:
    """Restore into `folder`, which is made if it is missing. Raises OperatorError; then nothing is in it."""
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
    """Write folders, then files, then links. Raises BadBackup, OSError."""
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
    """Give it its mode, never writable by others; as root also its user and group, such as those of a workspace."""
    if os.geteuid() == 0:
        os.fchown(fd, entry.uid, entry.gid)
    os.fchmod(fd, entry.mode & 0o755 | least)


def _with_database(
    manifest: Manifest, new: Path, env: Mapping[str, str], database_url: str
) -> tuple[DatabaseConfig | None, InFlight]:
    """Bring the restored database up to date, and park what was in flight next to a gateway that went on with it."""
    final = Ending(outcome="failed", reason=RESTORED, text=None, dead=True).record(0, time.time())
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
