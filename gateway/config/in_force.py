"""The config that is in force, for commands: that of the gateway that serves, else that of the file.

The file may be broken or gone, or ask for a restart. The gateway that serves it still has the config that it accepted, its
address and its database, and commands work against these.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from channels.bilingual import Bilingual, Finding
from gateway.config.dotenv import DOTENV, over_file
from gateway.config.expand import Expansion, required, stand_in
from gateway.config.load import ConfigReading, Loaded, read_config
from gateway.config.problems import Findings, Problem
from gateway.config.root import DatabaseConfig
from gateway.config.serving import ServingRecord, live_record, record_folders
from gateway.program import program


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
