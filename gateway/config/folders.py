"""Which folders an agent may have as its workspace: its own, and nothing that matters to anyone else.

The file tools reach everything beneath a workspace. So it must not hold the config, the database or what people send,
belong to the system, or be shared: two agents must not see each other's files. How a tool stays inside is
`tools.workspace`.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from agents.workspaces import PLACEHOLDERS
from gateway.config.problems import Findings, quoted
from gateway.config.sections import Agent, Sections
from gateway.guard import PACKAGES

_OF_THE_SYSTEM = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/sbin", "/sys", "/usr")
"""Neither these nor anything beneath them."""
_SHARED = ("/", "/home", "/media", "/mnt", "/opt", "/root", "/run", "/srv", "/tmp", "/var", "/var/lib", "/var/tmp")
"""Not these themselves; a folder of one's own beneath them is fine."""
_CODE = Path(__file__).resolve().parents[2]


def check_folders(sections: Sections, config_file: Path, home: str, findings: Findings) -> None:
    """Report every workspace that cannot be one."""
    folders = {config_file.parent.resolve(), config_file.resolve().parent}
    database = Path(sections.config.database.path) if sections.config.database.path else None
    uploads = Path(sections.config.tools.files.uploads_dir)
    seen: list[tuple[Agent, Path]] = []
    for agent in sections.agents:
        workspace = Path(agent.config.workspace_dir)
        key = agent.origin(("workspaceDir",))
        if odd := _odd_placeholder(workspace):
            findings.add(key, odd)
        elif _is_system(workspace) or (home and _within(Path(home).resolve(), workspace)):
            findings.add(key, "a folder of the system or a whole home folder cannot be a workspace")
        elif _is_code(workspace):
            findings.add(key, "the workspace would hold Clawgate's own code — choose a folder of its own")
        elif any(_within(folder, workspace) for folder in folders):
            findings.add(key, "the workspace would hold the config file — choose a folder of its own")
        elif database and _within(database, workspace):
            findings.add(key, "the workspace would hold the database — choose a folder of its own")
        elif _overlaps(uploads, workspace):
            findings.add(
                key, "overlaps tools.files.uploadsDir, where the files that people send are kept — keep them apart"
            )
        elif other := _neighbour(workspace, seen):
            name = quoted(other.config.id)
            findings.add(key, f"overlaps the workspace of agent {name} — {{agent}} in the path keeps them apart")
        seen.append((agent, workspace))


def _odd_placeholder(workspace: Path) -> str | None:
    """Two chats must never be one folder, so what stands for them is one alone."""
    for part in workspace.parts:
        if any(it in part and it != part for it in PLACEHOLDERS):
            return "{chat} and {sender} are each a folder of their own, such as ./data/workspaces/{agent}/{chat}"
        if part not in PLACEHOLDERS and re.search(r"\{\w*\}", part):
            return "only {agent}, {chat} and {sender} are replaced"
    return None


def _is_system(path: Path) -> bool:
    return str(path) in _SHARED or any(_within(path, Path(real)) for real in _real(_OF_THE_SYSTEM))


def _is_code(path: Path) -> bool:
    return _within(_CODE, path) or any(_within(path, _CODE / name) for name in (*PACKAGES, ".git", ".venv"))


def _real(paths: Iterable[str]) -> set[str]:
    """With what they link to: `/bin` is `/usr/bin` on many systems."""
    return {real for path in paths for real in (path, str(Path(path).resolve()))}


def _within(path: Path, folder: Path) -> bool:
    return path == folder or folder in path.parents


def _neighbour(workspace: Path, seen: list[tuple[Agent, Path]]) -> Agent | None:
    return next((agent for agent, other in seen if _overlaps(workspace, other)), None)


def _overlaps(one: Path, other: Path) -> bool:
    """Whether they are, or one lies in the other; a placeholder may be any name."""
    pairs = zip(one.parts, other.parts, strict=False)
    return all(a == b or a in PLACEHOLDERS or b in PLACEHOLDERS for a, b in pairs)
