"""The record of a serving gateway, and the config in force that commands learn from it.

The record is a small file next to the database. It names the gateway's address, its config as it was accepted and its
database, also while the config file is being edited, broken or gone. It holds no secret that the config file itself does
not: what `${NAME}` stands for is not in it. Its reader knows a gateway that was killed by its lock, which falls with the
process.
"""

import fcntl
import json
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO

from channels.bilingual import Bilingual, Finding
from gateway.config.folders import named, record_folders
from gateway.config.load import DOTENV, ConfigReading, Expansion, Loaded, over_file, read_config, required, stand_in
from gateway.config.problems import Findings, Problem
from gateway.config.root import Config, DatabaseConfig
from gateway.config.yaml import parse
from gateway.program import program

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


@dataclass(frozen=True, kw_only=True, slots=True)
class InForce:
    """`problems` are those of the file as it is now; `is_exact` is False if a part of the config in force is not known."""

    loaded: Loaded | None
    problems: tuple[Problem, ...]
    serving: ServingRecord | None
    is_exact: bool

    @property
    def refusal(self) -> Finding | None:
        """Describe the first problem, and what is in force in spite of it; None without any."""
        if not self.problems:
            return None
        first = self.problems[0].finding
        others = len(self.problems) - 1
        en, zh = "", ""
        if others:
            en, zh = f" ({others} more: {program()} check)", f"（另有 {others} 处：{program()} check）"
        if self.serving:
            en += f"; version {self.serving.version} is still in force"
            zh += f"；仍沿用版本 {self.serving.version}"
        message = Bilingual(f"{first.message}{en}", f"{first.message.zh}{zh}")
        return Finding("config", "error", message, first.fix)

    @property
    def knows_database(self) -> bool:
        """Return True if server and database can be read. A misspelt section may be that of the database."""
        if self.loaded is None or any(not it.path for it in self.problems):
            return False
        tops = {re.split(r"[.\[]", it.path)[0] for it in self.problems}
        misspelt = any(it.path in tops for it in self.problems)
        is_written = re.search(rb"^database:", self.loaded.source, re.MULTILINE) is not None
        return tops.isdisjoint({"server", "database"}) and (is_written or not misspelt)


def of_file(path: Path, env: Mapping[str, str]) -> InForce:
    """Read the file alone, whatever serves."""
    present = read_config(path, env)
    return InForce(loaded=present.loaded, problems=present.problems, serving=None, is_exact=not present.problems)


def in_force(path: Path, env: Mapping[str, str]) -> InForce:
    """Find what is in force of the config in `path`; `env` is the environment of the command."""
    present = of_file(path, env)
    folders = record_folders(path, env.get("HOME", ""))
    if present.loaded and (database := present.loaded.config.database.path):
        folders.append(Path(database).parent)
    serving = live_record(path, folders)
    if serving is None:
        return present
    source = serving.text.encode()
    held: InForce | ConfigReading = present
    if present.loaded is None or present.problems or present.loaded.source != source:
        held = read_config(path, env, source=source)
    problems, is_exact = present.problems or held.problems, not held.problems
    if held.problems:  # this shell's environment is not that of the gateway
        there = over_file(path.parent.resolve() / DOTENV, env)
        lacking = {name: stand_in(name) for name in required(serving.text) if not there.get(name)}
        held = read_config(path, {**env, **lacking}, source=source)
    loaded = held.loaded and _as_serving(held.loaded, serving, path.parent.resolve())
    return InForce(loaded=loaded, problems=problems, serving=serving, is_exact=is_exact)


def _as_serving(loaded: Loaded, serving: ServingRecord, folder: Path) -> Loaded:
    """Put in the address and the database, which a running gateway cannot change."""
    loaded = loaded.listening(serving.host, serving.port)
    database = loaded.config.database.but(
        url=_database_url(serving, Expansion(folder, loaded.environment, Findings("")))
    )
    return replace(loaded, config=loaded.config.but(database=database))


def _database_url(serving: ServingRecord, expansion: Expansion) -> str:
    """Return the database's address, with user and password if this environment has those of the same database."""
    if not serving.place.startswith("postgresql://"):
        return f"sqlite:///{serving.place}"
    try:
        url = DatabaseConfig(url=expansion.fill(serving.written_url, ())).url
    except ValueError:
        return serving.place
    return url if DatabaseConfig(url=url).shown == serving.place else serving.place
