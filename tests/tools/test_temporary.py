"""Half-written files: swept when their writer is dead, left alone while it lives."""

import os
import subprocess
import sys
from pathlib import Path

from tools.beneath import new_temporary
from tools.workspace import Workspace

KILLED = """
import os, signal, sys
from pathlib import Path
from tools.workspace import Workspace
os.rename = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
Workspace(root=Path(sys.argv[1])).write("a.txt", b"new")
"""


def test_what_a_killed_writer_left_is_gone_with_the_next_write(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path)
    for _ in range(2):  # a process that has written there before looks again: the dead one may be another replica
        workspace.write("a.txt", b"old")
        subprocess.run([sys.executable, "-c", KILLED, tmp_path], check=False)
        assert len(os.listdir(tmp_path)) == 2
        assert (tmp_path / "a.txt").read_bytes() == b"old"
    workspace.write("b.txt", b"x")
    assert sorted(os.listdir(tmp_path)) == ["a.txt", "b.txt"]
    workspace.close()


def test_what_somebody_is_writing_is_left_alone(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path)
    folder = os.open(tmp_path, os.O_RDONLY)
    name, fd = new_temporary(folder)
    workspace.write("a.txt", b"x")
    assert name in os.listdir(tmp_path)
    os.close(fd)
    workspace.write("a.txt", b"y")
    assert os.listdir(tmp_path) == ["a.txt"]
    os.close(folder)
    workspace.close()
