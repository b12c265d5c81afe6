"""The start of a server's program: found by the gateway's PATH, in the sandbox of commands, with a folder of its own."""

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
from tools.sandbox.sandbox import Sandbox
from tools.tool import ToolError
from tools.web.client import WebClient
from tools.workspace import Workspace


async def start(config: McpServerConfig, sandbox: Sandbox, path: str, network: WebClient | None) -> Supervised:
    """`path` is where programs are looked for. Raises OSError, and ToolError without a wall or a program."""
    name, *arguments = config.command
    program = shutil.which(name, path=path)
    if program is None:
        raise ToolError("TOOL_UNAVAILABLE", f"there is no program {name!r} in the PATH of the gateway")
    whole = Path(program) if program.startswith("/") else Path.cwd() / program
    # Nothing of it is read by us, so it may write names that a workspace keeps from commands.
    workspace = Workspace(root=Path(config.cwd), writable=(*FORBIDDEN_NAMES, MEMORY, MEMORY_FOLDER))
    launch = await sandbox.launch(
        f"exec {shlex.join((str(whole), *arguments))}",
        workspace=workspace,
        environment={
            "PATH": f"{whole.parent}:{PATH}",
            "HOME": str(workspace.root),
            "LANG": "C.UTF-8",
            "TMPDIR": "/tmp",
            **{name: value.get_secret_value() for name, value in config.env.items()},
        },
        config=ExecConfig(sandbox=config.sandbox),
        network=network,
        readable=[*map(Path, config.readable), *dict.fromkeys(_parts_of(whole))],
    )
    try:
        bounds = ExecConfig().model_copy(update={"timeout_seconds": LIFE_SECONDS})
        return Supervised(launch, workspace.fd, bounds, "pipe", errors="apart")
    finally:
        workspace.close()


def _parts_of(program: Path) -> Iterator[Path]:
    """The program itself; if it is of a Python environment, that one and the Python that it was made with."""
    yield program
    for it in (program, program.resolve()):
        yield it
        settings = it.parent.parent / "pyvenv.cfg"
        if settings.is_file():
            yield it.parent.parent
            for line in settings.read_text(encoding="utf-8", errors="replace").splitlines():
                key, _, value = line.partition("=")
                if key.strip() == "home":
                    yield Path(value.strip()).resolve().parent
