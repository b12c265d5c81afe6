"""The start of a server's program: found by the gateway's PATH, in the sandbox of commands, with its own folder.

A program is seldom one file: a link leads to a script, whose first line names an interpreter, which is a link in a Python
environment. All of it is read here, and bound in the sandbox under each name that leads there.
"""

import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

from tools.config import ExecConfig
from tools.exec import PATH
from tools.mcp.config import McpServerConfig
from tools.mcp.stdio import LIFE_SECONDS
from tools.paths import FORBIDDEN_NAMES, MEMORY, MEMORY_FOLDER
from tools.process import Supervised
from tools.sandbox.bubblewrap import SYSTEM, TOP
from tools.sandbox.sandbox import Sandbox
from tools.tool import ToolError
from tools.web.client import WebClient
from tools.workspace import Workspace

LINKS_MAX = 40
FIRST_LINE_BYTES = 512


async def start(config: McpServerConfig, sandbox: Sandbox, path: str, network: WebClient | None) -> Supervised:
    """`path` is where programs are looked for. Raises OSError, and ToolError without a wall or a program."""
    name, *arguments = config.command
    program = shutil.which(name, path=path)
    if program is None:
        raise ToolError("TOOL_UNAVAILABLE", f"there is no program {name!r} in the PATH of the gateway")
    whole = Path(program) if program.startswith("/") else Path.cwd() / program
    parts, folders = parts_of(whole, path)
    # Nothing of it is read by us, so it may write names that a workspace keeps from commands.
    workspace = Workspace(root=Path(config.cwd), writable=(*FORBIDDEN_NAMES, MEMORY, MEMORY_FOLDER))
    launch = await sandbox.launch(
        f"exec {shlex.join((str(whole), *arguments))}",
        workspace=workspace,
        environment={
            "PATH": ":".join((*folders, PATH)),
            "HOME": str(workspace.root),
            "LANG": "C.UTF-8",
            "TMPDIR": "/tmp",
            **{name: value.get_secret_value() for name, value in config.env.items()},
        },
        config=ExecConfig(sandbox=config.sandbox),
        network=network,
        readable=[*map(Path, config.readable), *parts],
    )
    try:
        bounds = ExecConfig().but(timeout_seconds=LIFE_SECONDS)
        return Supervised(launch, workspace.fd, bounds, "pipe", errors="apart")
    finally:
        workspace.close()


def parts_of(program: Path, path: str) -> tuple[list[Path], list[str]]:
    """The files and folders that a program is made of, without the system's, and the folders of its PATH. An interpreter is
    looked for beside the program, then in `path`."""
    paths: dict[Path, None] = {}
    folders, seen, waiting = [str(program.parent)], set(), [program]
    while waiting:
        for name in _names(waiting.pop()):
            if name in seen:
                continue
            seen.add(name)
            paths |= {} if any(map(name.is_relative_to, (*SYSTEM, *TOP))) else {name: None}
            waiting += _surroundings(name)
            if interpreter := _interpreter(name, f"{program.parent}:{path}"):
                waiting.append(interpreter)
                folders.append(str(interpreter.parent))
    whole = [it for it in paths if it.exists() and not any(parent in paths for parent in it.parents)]
    return whole, list(dict.fromkeys(folders))


def _names(path: Path) -> Iterator[Path]:
    """Yields the path, and what is left of it as one link after the other is followed."""
    for _ in range(LINKS_MAX):
        yield path
        link = next((it for it in (*reversed(path.parents), path) if it.is_symlink()), None)
        if link is None:
            return
        path = Path(os.path.normpath(link.parent / link.readlink())) / path.relative_to(link)


def _surroundings(name: Path) -> Iterator[Path]:
    """Yields what a program of Python or Node finds beside itself."""
    if not name.is_file():
        return
    prefix = name.parent.parent
    settings = prefix / "pyvenv.cfg"
    if settings.is_file():
        yield prefix
        for line in settings.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition("=")
            if key.strip() == "home":
                yield Path(value.strip()) / "python3"
    elif name.name.startswith("python"):
        yield from (it for it in (prefix / "lib", prefix / "lib64") if any(it.glob("python3*")))
    if "node_modules" in name.parts:
        yield Path(*name.parts[: name.parts.index("node_modules") + 1])


def _interpreter(name: Path, path: str) -> Path | None:
    """The interpreter that the first line of a script names."""
    try:
        with name.open("rb") as file:
            first, _, _ = file.read(FIRST_LINE_BYTES).partition(b"\n")
    except OSError:
        return None
    words = first.removeprefix(b"#!").decode(errors="replace").split() if first.startswith(b"#!") else []
    if words and Path(words[0]).name == "env":
        names = [it for it in words[1:] if not it.startswith("-") and "=" not in it]
        return Path(found) if names and (found := shutil.which(names[0], path=path)) else None
    return Path(words[0]) if words and words[0].startswith("/") else None
