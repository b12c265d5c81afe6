"""Nothing is opened outside, by either way of opening, and not in a race either."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.paths import open_beneath, open_by_walking
from tools.tool import ToolError
from tools.workspace import Workspace, new_temporary

Opener = Callable[[int, str, int], int]


@pytest.fixture(params=[open_beneath, open_by_walking], ids=["openat2", "walking"])
def opener(request: pytest.FixtureRequest) -> Opener:
    found: Opener = request.param
    return found


def read(opener: Opener, root: Path, path: str) -> str | None:
    folder = os.open(root, os.O_PATH | os.O_DIRECTORY)
    try:
        fd = opener(folder, path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    finally:
        os.close(folder)
    try:
        return os.read(fd, 100).decode()
    finally:
        os.close(fd)


def test_what_is_inside_is_opened(opener: Opener, tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").write_text("inside")
    for path in ("a/b/c", "./a//b/./c"):
        assert read(opener, tmp_path, path) == "inside"


@pytest.mark.parametrize(
    "path", ["../secret", "a/../../secret", "up/secret", "abs", "abs_folder/secret", "/etc/passwd", "magic"]
)
def test_what_is_outside_is_not(opener: Opener, tmp_path: Path, path: str) -> None:
    root = tmp_path / "root"
    (root / "a").mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (root / "up").symlink_to("..")
    (root / "abs").symlink_to(tmp_path / "secret")
    (root / "abs_folder").symlink_to(tmp_path)
    (root / "magic").symlink_to("/proc/self/cwd/pyproject.toml")
    assert read(opener, root, path) is None


def test_a_folder_that_turns_into_a_link_while_it_is_walked_leads_nowhere(opener: Opener, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "real").mkdir(parents=True)
    (root / "real" / "file").write_text("inside")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("secret")
    (root / "link").symlink_to(tmp_path / "outside")
    (root / "door").symlink_to("real")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for name in ("link", "real"):
                temporary = root / "next"
                temporary.symlink_to("real" if name == "real" else tmp_path / "outside")
                temporary.rename(root / "door")

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        seen = {read(opener, root, "door/file") for _ in range(3_000)}
    finally:
        stop.set()
        swapper.join()
    assert seen <= {"inside", None}


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
