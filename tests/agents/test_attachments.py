"""Files between a chat and a workspace: what they are called, where they lie, and what the model is told."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.attachments import Received, Receiver
from channels.message import File
from tests.stories.channels.test_telegram import PIXEL
from tools.attachment import NAME_BYTES_MAX, NAME_CHARS_MAX, attachment, safe_name
from tools.tool import Image, ToolError
from tools.workspace import Workspace

NAMES = {
    "report.pdf": "report.pdf",
    "图 表.png": "图_表.png",
    "e\u0301.txt": "\u00e9.txt",
    "a/b\\c.txt": "c.txt",
    "C:\\Users\\me\\a.txt": "a.txt",
    "..": "file",
    "___": "file",
    ".env": "env",
    "a; rm -rf ~.txt": "a_rm_-rf_.txt",
    "x)(The gateway: y.txt": "x_The_gateway_y.txt",
    "\u202etxt.exe": "txt.exe",
    "\ud800.txt": "txt",
    "a" * 200 + ".tar.gz": "a" * 77 + ".gz",
    "a." + "b" * 200: "a." + "b" * 78,
    "字" * 100 + ".md": "字" * 65 + ".md",
}


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    workspace = Workspace(root=tmp_path / "workspace")
    yield workspace
    workspace.close()


def receive(workspace: Workspace, message: str, files: Sequence[File], *, keeps: bool) -> Received:
    receiver = Receiver(workspace=workspace, message_id=message, keeps=keeps)
    for it in files:
        receiver.store(it)
    return receiver.received()


def file(name: str, data: bytes = b"x", type_: str = "text/plain") -> File:
    return File(name=name, type=type_, data=data)


@pytest.mark.parametrize(("name", "safe"), NAMES.items())
def test_what_a_file_is_called(name: str, safe: str) -> None:
    assert safe_name(name) == safe


@given(
    st.text(max_size=300)
    | st.lists(st.sampled_from(["a", ".", "/", "\\", "_", "\x00", "字", "𝔘", "\u0301"])).map("".join)
)
def test_no_name_is_empty_hidden_a_path_or_too_long(name: str) -> None:
    safe = safe_name(name)
    assert safe
    assert not set(safe) & {"/", "\\", "\x00", "\n", " ", ";", "(", ")"}
    assert not safe.startswith(".")
    assert len(safe) <= NAME_CHARS_MAX
    assert len(safe.encode()) <= NAME_BYTES_MAX
    assert safe.isprintable()


def test_files_of_one_name_lie_side_by_side_and_the_message_has_one_folder(workspace: Workspace) -> None:
    names = ["a.txt", "a.txt", "x/a.txt", "a-2.txt", "b", "b"]
    for _ in range(2):
        files = [file(name, f"{number}".encode()) for number, name in enumerate(names)]
        receive(workspace, "m_0123456789abcdef", files, keeps=True)
    (folder,) = (workspace.root / "uploads").iterdir()
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        "a.txt": "0",
        "a-2.txt": "1",
        "a-3.txt": "2",
        "a-2-2.txt": "3",
        "b.txt": "4",
        "b-2.txt": "5",
    }


@pytest.mark.parametrize("message", ["../../../x", "", "...", "om_1", "a/b", "\x00", "字" * 50])
def test_no_message_id_leads_out_of_the_folder(workspace: Workspace, message: str) -> None:
    note = receive(workspace, message, [file("a.txt")], keeps=True).note
    (path,) = workspace.root.rglob("a.txt")
    assert path.relative_to(workspace.root).parts[0] == "uploads"
    assert len(path.relative_to(workspace.root).parts) == 3
    assert f"./{path.relative_to(workspace.root)}" in note


def test_the_model_is_told_of_every_file_in_one_line(workspace: Workspace) -> None:
    picture = file("p.png", PIXEL + bytes(1_930), "image/png")
    receiver = Receiver(workspace=workspace, message_id="m_1", keeps=True)
    receiver.store(file("a.txt", b"x" * 1234))
    receiver.store(picture)
    receiver.miss("b)\n(c.txt", "could not be fetched")
    got = receiver.received()
    assert got.note == (
        "(The gateway: attached files: a.txt, 1,234 bytes, saved as ./uploads/m-1/a.txt; "
        "p.png, 2,000 bytes, shown to you, saved as ./uploads/m-1/p.png; b_c.txt, could not be fetched.)"
    )
    assert [(it.media_type, it.name) for it in got.shown if isinstance(it, Image)] == [("image/png", "p.png")]


def test_an_agent_without_a_tool_to_read_sees_pictures_and_gets_no_files(workspace: Workspace) -> None:
    picture = file("p.png", PIXEL, "image/png")
    got = receive(workspace, "m_1", [picture, file("a.txt")], keeps=False)
    assert len(got.shown) == 1
    assert got.note.count("no tool reads files") == 2
    assert list(workspace.root.rglob("*")) == []


def test_a_workspace_that_cannot_be_written_is_told_and_nothing_fails(workspace: Workspace) -> None:
    (workspace.root / "uploads").write_text("in the way")
    assert "a.txt, 1 bytes, not saved: " in receive(workspace, "m_1", [file("a.txt")], keeps=True).note


def test_what_may_be_sent_has_a_size(workspace: Workspace) -> None:
    workspace.write("out/a.svg", b"x" * 10)
    sent = attachment(workspace, "out/a.svg", bytes_max=10)
    assert (sent.name, sent.type, sent.data) == ("a.svg", "image/svg+xml", b"x" * 10)
    with pytest.raises(ToolError, match="may be sent"):
        attachment(workspace, "out/a.svg", bytes_max=9)


@pytest.mark.parametrize(
    "path", ["", ".", "..", "../x", "/etc/passwd", "a\x00b", "nothing.txt", "x" * 5000, "\ud800", "\udcff.txt"]
)
def test_what_is_not_a_file_of_the_workspace_is_an_error_of_the_tool(workspace: Workspace, path: str) -> None:
    with pytest.raises(ToolError):
        attachment(workspace, path, bytes_max=10)
