"""Small things that were wrong once: each of these has been red."""

import json
import os
from pathlib import Path

import pytest

from tests.tools.bench import Bench, bench, text_of
from tools.tool import ToolError
from tools.workspace import Workspace


async def test_text_that_is_shown_holds_no_nul(at: Bench) -> None:
    (at.root / "file").write_bytes(b"text\n" * 20_000 + b"\0\0\n")
    assert await at.text("read", file_path="file", offset=20_001) == "\ufffd\ufffd\n"


async def test_another_file_system_inside_the_workspace_is_outside(tmp_path: Path) -> None:
    shared = Path("/dev/shm", f"clawgate-{os.getpid()}")
    shared.write_text("other device")
    workspace = Workspace(root=Path("/dev"), fd=os.open("/dev", os.O_PATH))
    try:
        with pytest.raises(ToolError, match="there is no"), workspace.reading(f"shm/{shared.name}"):
            pass
    finally:
        workspace.close()
        shared.unlink()


async def test_a_workspace_named_with_dots_takes_the_absolute_path_it_shows(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    built = bench(tmp_path / "here" / "..")
    await built.call("write", file_path="note", content="found")
    assert await built.text("read", file_path=str(built.workspace.root / "note")) == "found"
    assert await built.text("read", file_path=str(tmp_path / "workspace" / "note")) == "found"
    built.workspace.close()


async def test_what_is_rewritten_keeps_its_mode_but_no_borrowed_rights(at: Bench) -> None:
    (at.root / "run").write_text("old")
    (at.root / "run").chmod(0o4755)
    await at.text("write", file_path="run", content="new")
    assert (at.root / "run").stat().st_mode & 0o7777 == 0o755


def test_writing_never_runs_beside_reading(at: Bench) -> None:
    effects = [at.toolbox.effect(name) for name in ("read", "ls", "write", "message", "edit", "exec", "nope")]
    assert effects == ["safe", "safe", "keyed", "keyed", "once", "once", "once"]


async def test_thousands_of_mistakes_are_a_short_answer(at: Bench) -> None:
    answer = text_of(await at.call("read", **{f"wrong{number}": 1 for number in range(1_000)}))
    assert len(answer) < 4_000
    assert "and 981 more mistakes" in json.loads(answer)["message"]


async def test_a_command_that_begins_with_a_dash_is_a_command(at: Bench) -> None:
    assert "not found" in text_of(await at.call("exec", command="-n"))
