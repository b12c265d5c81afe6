"""The record of a serving gateway, by which commands find the config in force.

The record is a small file next to the database with the gateway's address, accepted config and database, valid even while
the config file is broken or gone. References such as `${NAME}` are not expanded in it. A lock on the file, released when
the process dies, marks a live gateway.
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
    """The attributes of a serving gateway that commands need."""

    config: str
    pid: int
    host: str
    port: int
    version: str
    place: str
    """The database's URL without credentials, or SQLite's file."""
    written_url: str
    """PostgreSQL: the URL as written in the config at the start, with its references."""
    text: str = field(repr=False)
    """The text of the config in force."""


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
        # Lock the new file before it is visible. If the folder is not writable, the old record stays.
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
    """Return the record of the gateway that serves this config; the newest if there are several replicas."""
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
    # The lock is released when the writing process dies.
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
    """The config in force. `problems` are the file's current ones; without `is_exact` a part of the config is guessed."""

    loaded: Loaded | None
    problems: tuple[Problem, ...]
    serving: ServingRecord | None
    is_exact: bool

    @property
    def refusal(self) -> Finding | None:
        """Describe the first problem, and the version that is still in force; None without problems."""
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
        """Return whether the sections server and database are valid. A misspelled section may be the database's."""
        if self.loaded is None or any(not it.path for it in self.problems):
            return False
        tops = {re.split(r"[.\[]", it.path)[0] for it in self.problems}
        misspelt = any(it.path in tops for it in self.problems)
        is_written = re.search(rb"^database:", self.loaded.source, re.MULTILINE) is not None
        return tops.isdisjoint({"server", "database"}) and (is_written or not misspelt)


def of_file(path: Path, env: Mapping[str, str]) -> InForce:
    """Read the file, ignoring any serving gateway."""
    present = read_config(path, env)
    return InForce(loaded=present.loaded, problems=present.problems, serving=None, is_exact=not present.problems)


def in_force(path: Path, env: Mapping[str, str]) -> InForce:
    """Return the config in force for the file `path`; `env` is the command's environment."""
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
    # A running gateway cannot change its address and database.
    loaded = loaded.listening(serving.host, serving.port)
    database = loaded.config.database.but(
        url=_database_url(serving, Expansion(folder, loaded.environment, Findings("")))
    )
    return replace(loaded, config=loaded.config.but(database=database))


def _database_url(serving: ServingRecord, expansion: Expansion) -> str:
    # Add credentials only if this environment has those of the same database.
    if not serving.place.startswith("postgresql://"):
        return f"sqlite:///{serving.place}"
    try:
        url = DatabaseConfig(url=expansion.fill(serving.written_url, ())).url
    except ValueError:
        return serving.place
    return url if DatabaseConfig(url=url).shown == serving.place else serving.place
