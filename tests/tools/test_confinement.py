"""What no path may do, at every door that takes one: five tools, `MEDIA:` and what people send."""

import errno
import os
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest

from channels.message import File
from tests.agents.test_attachments import receive
from tests.tools.bench import CALL, Bench, bench, text_of
from tools.attachment import attachment
from tools.config import FetchConfig
from tools.paths import called, explained
from tools.sandbox.sandbox import ProbeReport, Sandbox
from tools.tool import ToolError
from tools.web.client import WebClient

SECRET = "secret-81723"
Door = Callable[[Bench, str], Awaitable[str]]


def tool(name: str, argument: str, **more: str) -> Door:
    async def call(at: Bench, path: str) -> str:
        return text_of(await at.toolbox.call(name, {argument: path, **more}, "{}", CALL))

    return call


async def media(at: Bench, path: str) -> str:
    try:
        return attachment(at.workspace, path, bytes_max=1_000_000).data.decode()
    except ToolError as error:
        return error.body


DOORS: dict[str, Door] = {
    "read": tool("read", "file_path"),
    "write": tool("write", "file_path", content="mine"),
    "edit": tool("edit", "file_path", old_text=SECRET, new_text="mine"),
    "ls": tool("ls", "path"),
    "grep": tool("grep", "path", pattern="."),
    "find": tool("find", "path", glob="**"),
    "media": media,
}
OUTSIDE = (
    "../outside/file", "folder/../../outside/file", "/etc/passwd", "/proc/self/environ", "/proc/self/fd/0", "to-file",
    "to-folder/file", "to-folder", "absolute", "loop", "hard", "pipe", "..", "../workspace-evil/file", "magic/environ",
    "folder/up/outside/file",
)  # fmt: skip
NO_PATHS = ("a\0b", "folder/file\0.txt", "~/file", "~root/file", "x" * 4_097, "half \ud83d", " ")


@pytest.fixture
def hostile(at: Bench, tmp_path: Path) -> Bench:
    for folder in (tmp_path / "outside", tmp_path / "workspace-evil"):
        folder.mkdir()
        (folder / "file").write_text(SECRET)
    (at.root / "folder").mkdir()
    (at.root / "folder" / "file").write_text("inside")
    (at.root / "folder" / "up").symlink_to("../..")
    (at.root / "to-file").symlink_to("../outside/file")
    (at.root / "to-folder").symlink_to("../outside")
    (at.root / "absolute").symlink_to(tmp_path / "outside" / "file")
    (at.root / "magic").symlink_to("/proc/self")
    (at.root / "loop").symlink_to("loop")
    (at.root / "hard").hardlink_to(tmp_path / "outside" / "file")
    os.mkfifo(at.root / "pipe")
    return at


@pytest.mark.parametrize("door", DOORS)
async def test_outside_and_missing_are_one_answer_at_every_door(hostile: Bench, tmp_path: Path, door: str) -> None:
    missing = await DOORS["read"](hostile, "absent")
    for path in (*OUTSIDE, "missing", "missing too/file"):
        answer = await DOORS[door](hostile, path)
        if door == "write" and path.startswith("missing"):
            assert "Wrote missing" in answer
        elif door == "ls" and path in ("hard", "pipe"):  # names in the workspace, which it lists
            assert "NOT_A_FOLDER" in answer, path
        else:
            assert answer.replace(repr(called(path)), "PATH") == missing.replace("'absent'", "PATH"), path
        assert SECRET not in answer, path
        assert {(tmp_path / it / "file").read_text() for it in ("outside", "workspace-evil")} == {SECRET}, path


@pytest.mark.parametrize("door", DOORS)
async def test_what_is_no_path_is_an_invalid_argument_at_every_door(hostile: Bench, door: str) -> None:
    for path in NO_PATHS:
        assert '"INVALID_ARGUMENT"' in await DOORS[door](hostile, path), path


@pytest.mark.parametrize("door", ["read", "ls", "grep", "find", "media"])
async def test_an_absolute_path_inside_is_the_same_path(hostile: Bench, door: str) -> None:
    path = "folder" if door == "ls" else "folder/file"
    assert await DOORS[door](hostile, str(hostile.root / path)) == await DOORS[door](hostile, path)
    assert "$HOME" in await DOORS[door](hostile, "$HOME")  # nothing is expanded or decoded
    assert "NOT_FOUND" in await DOORS[door](hostile, "folder%2Ffile")


ABSOLUTE: dict[str, Callable[[Path, str], str]] = {
    "as it is": lambda root, name: f"{root}/{name}",
    "by a detour": lambda root, name: f"{root}/folder/../{name}",
    "doubled": lambda root, name: f"{root}//{name}/",
    "from above": lambda root, name: f"..{root}/{name}",
    "of a neighbour": lambda root, name: f"{root}-evil/{name}",
}
KINDS = ("missing", "folder", "hard", "pipe", "loop", "to-file", "binary", "large", "AGENTS.md", "MEMORY.md", "x" * 300)


@pytest.mark.parametrize("door", DOORS)
async def test_no_door_says_where_the_server_keeps_its_files(hostile: Bench, tmp_path: Path, door: str) -> None:
    """Whatever went wrong, also where the model itself has named the place: people read what it makes of the answer."""
    for kind, spelling in product(KINDS, ABSOLUTE):
        (hostile.root / "missing").unlink(missing_ok=True)
        (hostile.root / "binary").write_bytes(b"\0")
        with (hostile.root / "large").open("wb") as file:
            file.truncate(9_000_000)
        answer = await DOORS[door](hostile, ABSOLUTE[spelling](hostile.root, kind))
        assert str(tmp_path) not in answer, (kind, spelling)
        if "NOT_FOUND" in answer:
            assert kind[:150] in answer, (kind, spelling)


def test_no_error_of_the_system_says_where_the_server_keeps_its_files() -> None:
    """Permissions, a full disk, a broken one: what a test cannot make real on every machine."""
    place = "/srv/clawgate/data/workspaces/helper/plan.txt"
    for code in errno.errorcode:
        body = explained(OSError(code, os.strerror(code), place), place).body
        assert "/srv" not in body, code
        assert "plan.txt" in body or "space" in body or "too long" in body, code


PROTECTED = (
    ".git/hooks/x", ".git/config", ".gitmodules", ".env", ".env.production", ".ssh/authorized_keys", ".bashrc",
    ".zshrc", ".profile", "skills/x/SKILL.md", "AGENTS.md", "MEMORY.md", "memory/2026-01-01.md",
)  # fmt: skip


@pytest.mark.parametrize("spelling", [str, str.upper, str.title, lambda it: f"./folder/../{it}", lambda it: f"{it}."])
async def test_confinement_protects_names_in_any_spelling(hostile: Bench, spelling: Callable[[str], str]) -> None:
    before = sorted(os.listdir(hostile.root))
    for name in PROTECTED:
        for door, code in (("write", "PROTECTED"), ("edit", "NOT_FOUND")):
            assert f'"{code}"' in await DOORS[door](hostile, spelling(name)), (door, name)
            assert sorted(os.listdir(hostile.root)) == before, (door, name)


async def test_what_people_send_goes_nowhere_but_into_their_session(tmp_path: Path) -> None:
    at = bench(tmp_path)
    workspace = at.workspace.serving(uploads=tmp_path / "uploads" / "a")
    names = ["../../x", "/etc/x", "a\0b", ".env", "..", "x" * 5_000, "half \ud83d", "skills/x"]
    files = [File(name=name, type="text/plain", data=b"x") for name in names]
    note = receive(workspace, "../om_1", files, keeps=True).note
    assert note.count("saved as ./uploads/om-1/") == len(names)
    assert os.listdir(at.root) == []
    assert [it.name for it in tmp_path.iterdir() if it.name not in ("workspace", "uploads")] == []
    assert len(list((tmp_path / "uploads" / "a" / "om-1").iterdir())) == len(names)
    at.workspace.close()


async def test_no_door_leaks_while_a_folder_turns_into_a_link(hostile: Bench, tmp_path: Path) -> None:
    """The swapper of security.md §6.6, against every door that reads."""
    (hostile.root / "door").symlink_to("folder")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for target in (tmp_path / "outside", "folder"):
                (hostile.root / "next").symlink_to(target)
                (hostile.root / "next").rename(hostile.root / "door")
            with suppress(OSError):  # where `write` has made the folder meanwhile
                (hostile.root / "folder").rename(hostile.root / "moved")
                (hostile.root / "folder").symlink_to(tmp_path / "outside")
                (hostile.root / "folder").unlink()
                (hostile.root / "moved").rename(hostile.root / "folder")

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for _ in range(80):
            for path in ("door/file", "folder/file"):
                for door in ("read", "grep", "media", "write", "edit"):
                    assert SECRET not in await DOORS[door](hostile, path)
            for door in ("grep", "find"):
                assert SECRET not in await DOORS[door](hostile, ".")
    finally:
        stop.set()
        swapper.join()
    assert (tmp_path / "outside" / "file").read_text() == SECRET
    assert os.listdir(tmp_path / "outside") == ["file"]


async def test_a_workspace_has_a_quota_and_so_has_what_is_sent_to_a_session(tmp_path: Path) -> None:
    at = bench(tmp_path, quota_bytes=100_000)
    await at.text("write", file_path="a", content="x" * 40_000)
    await at.text("write", file_path="a", content="x" * 60_000)
    assert await at.code("write", file_path="deep/new/b", content="x" * 50_000) == "QUOTA_EXCEEDED"
    assert os.listdir(at.root) == ["a"]
    await at.text("write", file_path="a", content="x")
    await at.text("write", file_path="b", content="x" * 50_000)
    results = [await at.call("write", file_path=f"small/{number}", content="") for number in range(30)]
    assert "QUOTA_EXCEEDED" in text_of(results[-1])
    assert 5 < len(os.listdir(at.root / "small")) < 15
    await at.output("rm -r small b")
    await at.text("write", file_path="c", content="x" * 50_000)
    with (at.root / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    await at.text("write", file_path="sparse", content="x")
    assert await at.code("write", file_path="d", content="x" * 60_000) == "QUOTA_EXCEEDED"

    workspace = at.workspace.serving(uploads=tmp_path / "uploads" / "a")
    sent = [File(name="f", type="text/plain", data=b"x" * 60_000)] * 2
    note = receive(workspace, "om_1", sent, keeps=True).note
    assert "saved as ./uploads/om-1/f.txt;" in note
    assert "not saved: QUOTA_EXCEEDED" in note
    at.workspace.close()


@pytest.mark.parametrize("network", [None, "open"])
async def test_a_command_that_finds_no_sandbox_says_why_and_not_where(tmp_path: Path, network: str | None) -> None:
    sandbox = Sandbox(kinds=["bubblewrap"])
    reason = f"bwrap: Can't mkdir {tmp_path}/workspace/.git/hooks: Permission denied"
    for it in (sandbox, sandbox.opened):
        it.report = ProbeReport(wall=None, failures={"bubblewrap": reason})
        it._probed = time.monotonic()
    at = bench(
        tmp_path, sandbox=sandbox, uploads=tmp_path / "uploads/a", network=WebClient(FetchConfig()) if network else None
    )
    for tool_, arguments in (("exec", {}), ("process", {"action": "start"})):
        answer = text_of(await at.call(tool_, command="true", **arguments))
        assert "EXEC_SANDBOX_UNAVAILABLE" in answer
        assert "Can't mkdir hooks: Permission denied" in answer
        assert str(tmp_path) not in answer
    at.workspace.close()
