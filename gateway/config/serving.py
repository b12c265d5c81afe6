"""The record of a serving gateway: a small file next to its database, from which commands know what is in force.

It names the gateway's address, its config as it was accepted and its database, also while the config file is being edited.
It holds no secret that the config file itself does not: what `${NAME}` stands for is not in it. Its reader knows a gateway
that was killed by its lock, which falls with the process.
"""

import fcntl
import json
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO

from gateway.config.problems import Findings
from gateway.config.root import Config
from gateway.config.yaml import parse

RECORDS = "serving-*.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class ServingRecord:
    """Hold what commands need of a gateway that serves."""

    config: str
    pid: int
    host: str
    port: int
    version: str
    place: str
    """The database without user and password; of SQLite the file."""
    written_url: str
    """PostgreSQL: the address as the config of the start has it, with its references."""
    text: str = field(repr=False)
    """The config in force, as it is written."""


def named(config: Path) -> Path:
    """Return the name of a config file that its record is found by, also after the file was moved away."""
    return config.parent.resolve() / config.name


def record_folders(config: Path, home: str) -> list[Path]:
    """List the folders where commands look for a record if they know only the config's name: where data is kept by default,
    and the user's own folder. No workspace may hold them."""
    return [named(config).parent / "data", *([Path(home) / ".local/state/clawgate"] if home else [])]


class ServingFile:
    """Keeps the record of this process up to date until `close`."""

    def __init__(self, path: Path, config: Config, source: bytes, version: str, *, home: str) -> None:
        """`config` has the address that is listened on."""
        text = source.decode()
        self._record = ServingRecord(
            config=str(named(path)),
            pid=os.getpid(),
            host=config.server.host,
            port=config.server.port,
            version=version,
            place=config.database.shown,
            written_url="" if config.database.path else _written_url(source),
            text=text,
        )
        self._name = f"serving-{secrets.token_hex(4)}.json"
        self._files: dict[Path, IO[bytes]] = {}
        by_config = record_folders(path, home)
        if config.database.path:
            self._keep(Path(config.database.path).parent)
        if self._files.keys().isdisjoint(by_config):
            any(map(self._keep, by_config))

    def update(self, source: bytes, version: str) -> None:
        """Record another config that is now in force."""
        self._record = replace(self._record, text=source.decode(), version=version)
        for folder in [*self._files]:
            self._keep(folder)

    def close(self) -> None:
        for folder, file in self._files.items():
            with suppress(OSError):
                (folder / self._name).unlink()
            file.close()
        self._files.clear()

    def _keep(self, folder: Path) -> bool:
        """Write the record, locked before it is visible. Return False if the folder cannot be written; the old one stays."""
        new = folder / f".{self._name}"
        try:
            if folder.name == "clawgate":
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _remove_stale(folder)
            file = os.fdopen(os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "r+b")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                file.write(json.dumps(asdict(self._record)).encode())
                file.flush()
                new.replace(folder / self._name)
            except BaseException:
                file.close()
                raise
        except OSError:
            return False
        if folder in self._files:
            self._files[folder].close()
        self._files[folder] = file
        return True


def live_record(config: Path, folders: Iterable[Path]) -> ServingRecord | None:
    """Return the record of a gateway that serves this config; of several replicas the newest."""
    trusted = {0, os.geteuid()}
    with suppress(OSError):
        trusted.add(named(config).parent.stat().st_uid)  # who could as well write another config
    found = [it for folder in dict.fromkeys(folders) for it in _live(folder, trusted)]
    ours = [it for it in found if it[1].config == str(named(config))]
    return max(ours, key=lambda it: it[0])[1] if ours else None


def _live(folder: Path, trusted: Iterable[int]) -> Iterator[tuple[float, ServingRecord]]:
    for path in folder.glob(RECORDS):
        with suppress(OSError, ValueError, TypeError), _opened(path) as file:
            status = os.fstat(file.fileno())
            if status.st_uid in trusted and not status.st_mode & 0o022 and _is_locked(file):
                yield status.st_mtime, ServingRecord(**json.loads(file.read()))


def _remove_stale(folder: Path) -> None:
    for path in folder.glob(RECORDS):
        with suppress(OSError), _opened(path) as file:
            if not _is_locked(file):
                path.unlink()


def _opened(path: Path) -> IO[bytes]:
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")


def _is_locked(file: IO[bytes]) -> bool:
    """Return True while the process that wrote it lives."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _written_url(source: bytes) -> str:
    document = parse(source, Findings(""))
    data = document.data if document else None
    section = data.get("database") if isinstance(data, dict) else None
    return str(section.get("url", "")) if isinstance(section, dict) else ""
