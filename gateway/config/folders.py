"""Checks of the config's folders.

The file tools reach everything beneath a workspace. So it must not hold the config, the database or what people send,
belong to the system, or be shared: two agents must not see each other's files (see `tools.workspace`). The same holds for
the folder that an MCP server's program may write. And neither may write to the folder of the operator's own tools.
"""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from agents.workspaces import PLACEHOLDERS
from gateway.config.problems import Findings, Key, quoted
from gateway.config.root import Config
from gateway.config.serving import record_folders
from gateway.program import PACKAGES

_OF_THE_SYSTEM = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/sbin", "/sys", "/usr")
"""Folders that no workspace may be or lie in."""
_SHARED = ("/", "/home", "/media", "/mnt", "/opt", "/root", "/run", "/srv", "/tmp", "/var", "/var/lib", "/var/tmp")
"""Folders that no workspace may be; one beneath them is fine."""
_CODE = Path(__file__).resolve().parents[2]
_CODE_FOLDERS = tuple(_CODE / name for name in (*PACKAGES, ".git", ".venv"))


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
    for name, server in config.mcp.servers.items():
        place: Key = ("mcp", "servers", name, "cwd")
        if server.command and findings.is_sound(place[:3]):
            folder = Path(server.cwd)
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
    """The beginning of a folder's path that no template fills."""
    head, brace, _ = folder.partition("{")
    return head if brace else f"{folder}/"
