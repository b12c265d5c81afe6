"""The config's paths, which are the fields marked as `LocalPath`, and validation of folders.

File tools can access everything in a workspace. So a workspace must not contain the config, the database, uploads or system
files, nor overlap with another agent's. The same goes for the writable folder of an MCP server. Neither may contain the
folders of the operator's tools.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from agents.workspaces import PLACEHOLDERS
from channels.section import LocalPath, Section
from gateway.config.problems import Findings, Key, quoted
from gateway.config.root import Config
from gateway.program import PACKAGES

_OF_THE_SYSTEM = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/sbin", "/sys", "/usr")
"""Folders that no workspace may be or be inside of."""
_SHARED = ("/", "/home", "/media", "/mnt", "/opt", "/root", "/run", "/srv", "/tmp", "/var", "/var/lib", "/var/tmp")
"""Folders that no workspace may be; their subfolders are fine."""
_CODE = Path(__file__).resolve().parents[2]
_CODE_FOLDERS = tuple(_CODE / name for name in (*PACKAGES, ".git", ".venv"))
Root = TypeVar("Root", bound=Config)
_SQLITE = "sqlite:///"


def named(config: Path) -> Path:
    """Return the path that identifies a config file's record, even after the file was moved."""
    return config.parent.resolve() / config.name


def record_folders(config: Path, home: str) -> list[Path]:
    """List the folders where commands look for a record by the config's path: the default data folder, and the user's
    state folder. No workspace may contain them."""
    return [named(config).parent / "data", *([Path(home) / ".local/state/clawgate"] if home else [])]


def check_folders(config: Config, config_file: Path, home: str, findings: Findings) -> None:
    folders = {config_file.parent.resolve(), config_file.resolve().parent}
    kept = record_folders(config_file, home)
    seen: dict[str, Path] = {}
    for index, agent in enumerate(config.agents.list):
        key: Key = ("agents", "list", index, "workspaceDir")
        if findings.is_sound(key[:3]):
            workspace = Path(agent.workspace_dir)
            if message := _unusable(workspace, folders, kept, home, config) or _neighbour(workspace, seen):
                findings.add(key, message)
            seen[agent.id] = workspace
    programs: dict[Key, str] = {
        ("mcp", "servers", name, "cwd"): it.cwd for name, it in config.mcp.servers.items() if it.command
    }
    programs |= {
        ("agents", "list", index, "runner", "cwd"): it.runner.cwd for index, it in enumerate(config.agents.list)
    }
    for place, path in programs.items():
        if path and findings.is_sound(place[:3]):
            folder = Path(path)
            if message := _unusable(folder, folders, kept, home, config, "program's folder") or _neighbour(
                folder, seen
            ):
                findings.add(place, message)


def _unusable(
    workspace: Path,
    folders: Iterable[Path],
    kept: Iterable[Path],
    home: str,
    config: Config,
    what: str = "workspace",
) -> str | None:
    for part in workspace.parts:  # two chats must never be one folder, so a placeholder is a whole part
        if any(it in part and it != part for it in PLACEHOLDERS):
            return "{chat} and {sender} are each a whole folder name, such as ./data/workspaces/{agent}/{chat}"
        if part not in PLACEHOLDERS and re.search(r"\{\w*\}", part):
            return "only {agent}, {chat} and {sender} are replaced"
    system = {*_OF_THE_SYSTEM, *(str(Path(it).resolve()) for it in _OF_THE_SYSTEM)}  # `/bin` is often `/usr/bin`
    is_system = str(workspace) in _SHARED or any(map(workspace.is_relative_to, system))
    if is_system or (home and Path(home).resolve().is_relative_to(workspace)):
        return f"a folder of the system or a whole home folder cannot be a {what}"
    if _CODE.is_relative_to(workspace) or any(map(workspace.is_relative_to, _CODE_FOLDERS)):
        return f"the {what} would hold Clawgate's own code — choose another folder"
    if any(folder.is_relative_to(workspace) for folder in folders):
        return f"the {what} would hold the config file — choose another folder"
    if config.database.path and Path(config.database.path).is_relative_to(workspace):
        return f"the {what} would hold the database — choose another folder"
    if any(folder.is_relative_to(workspace) for folder in kept):
        return f"the {what} would hold what the gateway leaves for its commands — choose a folder inside it"
    if _overlaps(Path(config.tools.files.uploads_dir), workspace):
        return "overlaps tools.files.uploadsDir, where the files that people send are kept — keep them apart"
    return None


def _neighbour(workspace: Path, seen: Mapping[str, Path]) -> str | None:
    name = next((name for name, other in seen.items() if _overlaps(workspace, other)), None)
    return name and f"overlaps the workspace of agent {quoted(name)} — {{agent}} in the path keeps them apart"


def _overlaps(one: Path, other: Path) -> bool:
    """True if they are the same, or one lies in the other; a placeholder may be any name."""
    pairs = zip(one.parts, other.parts, strict=False)
    return all(a == b or a in PLACEHOLDERS or b in PLACEHOLDERS for a, b in pairs)


def check_tool_folders(config: Config, findings: Findings) -> Config:
    """The config without the folders of tools that agents or people could write to: their files would be the gateway's."""
    places = {agent.workspace_dir: f"the workspace of agent {agent.id}" for agent in config.agents.list}
    places[config.tools.files.uploads_dir] = "tools.files.uploadsDir"
    places |= {it.cwd: f"the folder of MCP server {name}" for name, it in config.mcp.servers.items() if it.command}
    kept = []
    for index, directory in enumerate(config.tools.directories):
        real = [directory, *(os.path.realpath(it) for it in _python_files(directory))]
        inside = [what for place, what in places.items() for it in real if f"{it}/".startswith(_literal(place))]
        if inside:
            why = f"lies in {inside[0]}: who writes there would write the gateway's code — move it out"
            findings.add(("tools", "directories", index), why)
        else:
            kept.append(directory)
    return config.but(tools=config.tools.but(directories=tuple(kept)))


def _python_files(directory: str) -> list[Path]:
    try:
        return [*Path(directory).glob("*.py")]
    except OSError:
        return []


def _literal(folder: str) -> str:
    head, brace, _ = folder.partition("{")
    return head if brace else f"{folder}/"


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedPath:
    """A path in the config; `how` is its field's `LocalPath`."""

    key: Key
    path: str
    how: LocalPath


def mark_of(field: FieldInfo) -> LocalPath | None:
    return next((it for it in field.metadata if isinstance(it, LocalPath)), None)


def with_absolute_paths(config: Root, folder: os.PathLike[str], home: str) -> Root:
    """Make every path absolute, relative to `folder`, so that nothing depends on the working directory. Expand `~` to
    `home`, and resolve `..` and existing symbolic links."""

    def resolve(path: str) -> str:
        if path.startswith(_SQLITE):
            return _SQLITE + resolve(path.removeprefix(_SQLITE))
        if not path or "://" in path:  # unset, or PostgreSQL
            return path
        if home and (path == "~" or path.startswith("~/")):
            path = home + path[1:]
        return os.path.realpath(os.path.join(folder, path))  # noqa: PTH118 - a path may be absolute

    agents = (it.but(workspace_dir=it.workspace_dir.replace("{agent}", it.id)) for it in config.agents.list)
    servers = {name: it.but(cwd=it.cwd or f"./data/mcp/{name}") for name, it in config.mcp.servers.items()}
    named = config.but(agents=config.agents.but(list=tuple(agents)), mcp=config.mcp.but(servers=servers))
    changed: Root = _each(named, resolve)
    return changed


def paths_of(config: Config) -> list[NamedPath]:
    """List every path of a loaded config in file order. Templates keep their placeholders."""
    return list(_found(config, ()))


def _each(value: Any, change: Callable[[str], str]) -> Any:
    # Unchanged values stay the same object.
    match value:
        case Section():
            fields = {
                name: _changed(getattr(value, name), change) if mark_of(field) else _each(getattr(value, name), change)
                for name, field in type(value).model_fields.items()
                if name != "defaults"  # each agent has its own copy of them
            }
            new = {name: it for name, it in fields.items() if it is not getattr(value, name)}
            return value.but(**new) if new else value
        case dict():
            items = {name: _each(it, change) for name, it in value.items()}
            return items if any(items[name] is not it for name, it in value.items()) else value
        case tuple():
            entries = tuple(_each(it, change) for it in value)
            return entries if any(a is not b for a, b in zip(entries, value, strict=True)) else value
    return value


def _changed(value: str | tuple[str, ...], change: Callable[[str], str]) -> str | tuple[str, ...]:
    return change(value) if isinstance(value, str) else tuple(map(change, value))


def _found(value: Any, key: Key) -> Iterator[NamedPath]:
    match value:
        case BaseModel():
            for name, field in type(value).model_fields.items():
                inner, place = getattr(value, name), (*key, field.alias or name)
                if how := mark_of(field):
                    listed = (
                        [(place, inner)]
                        if isinstance(inner, str)
                        else [((*place, n), it) for n, it in enumerate(inner)]
                    )
                    yield from (NamedPath(key=at, path=path, how=how) for at, path in listed if path)
                elif name != "defaults":
                    yield from _found(inner, place)
        case dict():
            for name, it in value.items():
                yield from _found(it, (*key, name))
        case tuple():
            for number, it in enumerate(value):
                yield from _found(it, (*key, number))
