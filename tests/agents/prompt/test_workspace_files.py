"""The workspace's documents: which are read, how much of them, and what no link or pipe can make of it."""

import os
from pathlib import Path

from structlog.testing import capture_logs

from agents.prompt.fences import FILE_HEADINGS
from agents.workspaces import read_workspace_files
from channels.message import ChatKind
from tools.workspace import Workspace

LONG_AGO = 1_700_000_000_000_000_000


def read(root: Path, kind: ChatKind) -> tuple[tuple[str, str], ...]:
    workspace = Workspace(root=root)
    try:
        return tuple(read_workspace_files(workspace.serving(hides_private=kind == "group")))
    finally:
        workspace.close()


def put(path: Path, text: str, mtime_ns: int = LONG_AGO) -> None:
    path.write_text(text, encoding="utf-8")
    os.utime(path, ns=(mtime_ns, mtime_ns))


def test_workspace_files_are_ordered_and_private_ones_direct_only(tmp_path: Path) -> None:
    for name in reversed(FILE_HEADINGS):
        put(tmp_path / name, f"\ufeff\n{name} 你好\n")
    put(tmp_path / "README.md", "not one of them")
    everything = tuple((name, f"{name} 你好") for name in FILE_HEADINGS)
    assert read(tmp_path, "direct") == everything
    assert read(tmp_path, "group") == tuple(pair for pair in everything if pair[0] not in ("USER.md", "MEMORY.md"))


def test_empty_files_give_nothing(tmp_path: Path) -> None:
    put(tmp_path / "AGENTS.md", " \n\t\n")
    assert read(tmp_path, "direct") == ()


def test_a_long_file_is_cut_at_twenty_thousand_characters_with_a_note(tmp_path: Path) -> None:
    put(tmp_path / "AGENTS.md", "汉" * 20_000)
    put(tmp_path / "SOUL.md", "😀" * 20_001)
    put(tmp_path / "TOOLS.md", "early" + " " * 90_000 + "late")
    (_, whole), (_, cut), (_, hollow) = read(tmp_path, "direct")
    assert hollow.startswith("early\n\n[Cut here: TOOLS.md")
    assert whole == "汉" * 20_000
    assert cut.startswith("😀" * 20_000 + "\n\n[Cut here: SOUL.md is longer")
    assert cut.count("😀") == 20_000


def test_all_files_together_are_cut_at_sixty_thousand_characters(tmp_path: Path) -> None:
    for name in FILE_HEADINGS:
        put(tmp_path / name, "x" * 18_000)
    shown = dict(read(tmp_path, "direct"))
    assert [text.count("x" * 100) for text in shown.values()] == [180, 180, 180, 60, 0, 0]
    assert shown["USER.md"].endswith("`read` shows the rest.]")
    assert shown["MEMORY.md"] == "[Not shown: these files together exceed 60,000 characters.]"
    assert dict(read(tmp_path, "group"))["IDENTITY.md"] == "x" * 18_000


def test_links_pipes_folders_and_second_names_are_passed_over(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    put(secret, "secret")
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "AGENTS.md").symlink_to(secret)
    put(tmp_path / "other", "secret")
    (workspace / "SOUL.md").hardlink_to(tmp_path / "other")
    os.mkfifo(workspace / "IDENTITY.md")
    (workspace / "USER.md").mkdir()
    (workspace / "TOOLS.md").symlink_to("/dev/zero")
    put(workspace / "MEMORY.md", "mine")
    assert read(workspace, "direct") == (("MEMORY.md", "mine"),)


def test_workspace_file_is_reread_each_turn_and_may_be_binary(tmp_path: Path) -> None:
    path = tmp_path / "AGENTS.md"
    path.write_bytes(b"ok \xff\xfe end")
    assert read(tmp_path, "direct") == (("AGENTS.md", "ok �� end"),)
    for text in ("one", "two"):  # the same size and time: only the bytes could tell
        put(path, text)
        assert read(tmp_path, "direct") == (("AGENTS.md", text),)
    path.unlink()
    assert read(tmp_path, "direct") == ()


def test_what_is_passed_over_costs_one_log_line_and_no_descriptor(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").mkdir()
    before = len(os.listdir("/proc/self/fd"))
    with capture_logs() as logs:
        for _ in range(3):
            assert read(tmp_path, "direct") == ()
    assert [line["event"] for line in logs] == ["workspace_file_passed_over"]
    assert len(os.listdir("/proc/self/fd")) == before
