"""read, write, edit and ls on a real folder."""

import base64
import os
import re
import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tools.bench import CALL, Bench, bench, pictures, text_of
from tools.edit import replaced

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


async def test_what_is_written_is_what_is_read(at: Bench) -> None:
    text = "第一行\nsecond 👩‍🚀\n\tthird"
    result = await at.call("write", file_path="notes/deep/a.txt", content=text)
    size = len(text.encode())
    assert text_of(result) == f"Wrote notes/deep/a.txt ({size} bytes)"
    assert dict(result.details) == {"bytesWritten": size, "path": "notes/deep/a.txt"}
    assert (at.root / "notes/deep/a.txt").read_text(encoding="utf-8") == text
    assert await at.text("read", file_path="./notes//deep/a.txt") == text
    assert await at.text("read", file_path=str(at.root / "notes/deep/a.txt")) == text


async def test_ls_is_one_sorted_name_a_line_with_a_slash_behind_folders(at: Bench) -> None:
    for folder in ("tests", "scripts"):
        (at.root / folder).mkdir()
    for name in ("requirements.txt", "README.md"):
        (at.root / name).write_text("")
    listing = "README.md\nrequirements.txt\nscripts/\ntests/"
    assert await at.text("ls", path=".") == listing
    assert await at.text("ls") == listing
    assert await at.text("ls", path="tests") == "(empty folder)"
    assert await at.code("ls", path="README.md") == "NOT_A_FOLDER"
    assert await at.code("read", file_path="tests") == "IS_A_FOLDER"
    (at.root / "two\nlines").write_text("")
    assert r"two\nlines" in await at.text("ls")


async def test_a_large_folder_is_cut_with_a_notice(at: Bench) -> None:
    for number in range(510):
        (at.root / f"{number:04}").write_text("")
    listing = (await at.text("ls")).splitlines()
    assert len(listing) == 501
    assert "10 more" in listing[-1]


async def test_a_long_file_comes_in_pages_that_say_where_to_go_on(at: Bench) -> None:
    (at.root / "long.txt").write_text("".join(f"line {number}\n" for number in range(1, 101)))
    page = await at.text("read", file_path="long.txt", offset=11, limit=5)
    assert page.startswith("line 11\nline 12\nline 13\nline 14\nline 15\n")
    assert page.endswith("\n[lines 11 to 15 of a file of 792 bytes; 681 bytes were cut; go on with offset=16]")
    assert "offset" not in await at.text("read", file_path="long.txt", offset=99)
    assert "ends before line 200" in await at.text("read", file_path="long.txt", offset=200)
    (at.root / "empty").write_text("")
    assert await at.text("read", file_path="empty") == "(empty file)"


LINES = st.lists(st.text(alphabet="ab中\r", max_size=8), max_size=30)
MANY = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@given(LINES, st.integers(1, 7), st.integers(1, 40))
@MANY
async def test_the_pages_of_a_file_are_the_file_and_its_last_lines_the_end_of_it(
    at: Bench, lines: list[str], limit: int, count: int
) -> None:
    text = "\n".join(lines)
    (at.root / "file").write_bytes(text.encode())
    got, offset = "", 1
    note = "more"
    while note:
        page = await at.text("read", file_path="file", offset=offset, limit=limit)
        body, note, _ = page.partition("\n[lines ")
        got += body
        offset += limit
    assert got == (text or "(empty file)")
    end = "".join(re.findall(r"[^\n]*\n|[^\n]+", text)[-count:])
    assert await at.text("read", file_path="file", offset=-count) == (end or "(empty file)")


async def test_the_end_of_a_file_keeps_its_numbers_while_the_file_grows(tmp_path: Path) -> None:
    at = bench(tmp_path, result_chars=1_000)
    (at.root / "log").write_text("".join(f"line {number}\n" for number in range(1, 1_001)))
    page = await at.text("read", file_path="log", offset=-200)
    assert page.startswith("line 801\n")
    with (at.root / "log").open("a") as file:
        file.write("line 1001\n")
    following = int(page.rpartition("offset=")[2].rstrip("]"))
    assert (await at.text("read", file_path="log", offset=following)).startswith(f"line {following}\n")
    at.workspace.close()


@pytest.mark.parametrize("chars", [300, 5_000])
async def test_a_line_longer_than_a_page_is_cut_and_the_next_one_is_read(tmp_path: Path, chars: int) -> None:
    at = bench(tmp_path, result_chars=chars)
    (at.root / "file").write_text("a\n" + "B" * 9_999 + "c\nd\n")
    page = await at.text("read", file_path="file")
    assert page.endswith("\n[lines 1 to 1 of a file of 10,005 bytes; 10,003 bytes were cut; go on with offset=2]")
    page = await at.text("read", file_path="file", offset=2)
    shown = page.count("B")
    assert shown == chars - 260
    rest = f"[… {10_001 - shown:,} bytes of this line are not shown; read them with offset=2 and byte="
    assert page.startswith("B" * shown + f" {rest}{shown}]\n\n[lines 2 to 2")
    assert page.endswith("; 2 bytes were cut; go on with offset=3]")
    assert len(page) <= chars
    assert await at.text("read", file_path="file", offset=3) == "d\n"
    page = await at.text("read", file_path="file", offset=-2)
    assert page.startswith(f"{rest}0] B")
    assert "Bc\n\n[lines 2 to 2" in page
    at.workspace.close()


PIECES = st.sampled_from(["a", "中文字", "😀", "\r", "word ", "é", "[… ]"])
LINES = st.lists(
    st.lists(PIECES, max_size=12).map("".join).flatmap(lambda it: st.integers(1, 60).map(it.__mul__)), max_size=9
)
CUT = re.compile(
    r"(?s)(.*) \[… [\d,]+ bytes of this line are not shown; read them with offset=(\d+) and byte=(\d+)]\n\Z"
)


@given(LINES, st.sampled_from(["\n", "\r\n"]), st.sampled_from([300, 512, 2_000]))
async def test_read_tool_pages_cover_every_line_once(lines: list[str], newline: str, chars: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        at = bench(Path(folder), result_chars=chars)
        text = newline.join(lines)
        (at.root / "file").write_bytes(text.encode())
        got, where = "", {"offset": 1, "byte": 0}
        while where:
            page = await at.text("read", file_path="file", **where)
            assert len(page) <= chars
            body, note, following = page.rpartition("\n[lines ")
            body = body if note else following
            where = {"offset": int(following.rpartition("=")[2].rstrip("]"))} if note else {}
            if cut := CUT.fullmatch(body):
                body, where = cut[1], {"offset": int(cut[2]), "byte": int(cut[3])}
            got += body
        assert got == (text or "(empty file)")
        at.workspace.close()


@pytest.mark.parametrize("offset", [1, -1, -3])
@pytest.mark.parametrize("kind", ["lines", "one endless line", "sparse"])
async def test_a_huge_file_is_read_in_bounded_memory(at: Bench, kind: str, offset: int) -> None:
    path = at.root / "huge"
    with path.open("wb") as file:
        if kind == "sparse":
            file.write(b"head of a sparse file\n" * 3_000)
            file.truncate(1 << 40)
        else:
            chunk = (b"x" * 99 + b"\n" if kind == "lines" else b"x" * 100) * 10_000
            for _ in range(100):
                file.write(chunk)
    tracemalloc.start()
    result = await at.call("read", file_path="huge", offset=offset)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4_000_000
    assert len(text_of(result)) <= 64_000
    assert result.is_error == (kind == "sparse" and offset == -3)


@pytest.mark.parametrize("name", ["picture.png", "picture.txt"])
async def test_a_picture_is_shown_as_a_picture_whatever_its_name(at: Bench, name: str) -> None:
    (at.root / name).write_bytes(PNG)
    (image,) = pictures(await at.call("read", file_path=name))
    assert image.media_type == "image/png"
    assert base64.b64decode(image.data) == PNG


async def test_read_tool_names_an_oversized_picture_or_binary(at: Bench) -> None:
    (at.root / "big.png").write_bytes(PNG[:40] + b"\0" * 6_000_000)
    assert pictures(await at.call("read", file_path="big.png")) == []
    (at.root / "program").write_bytes(b"\x7fELF\0\0")
    assert await at.code("read", file_path="program") == "NOT_TEXT"


async def test_edit_changes_one_passage_and_nothing_else(at: Bench) -> None:
    path = at.root / "a.py"
    path.write_text("a\nb\nc\nd\n")
    path.chmod(0o755)
    for old, new, changed in (
        ("b\nc\n", "B\nB\nB\nC\n", "(lines 2-5, 12 bytes)"),
        ("B\nB\nB\n", "", "(deleted at line 2, 6 bytes)"),
        ("d", "D", "(line 3, 6 bytes)"),
    ):
        assert await at.text("edit", file_path="a.py", old_text=old, new_text=new) == f"Edited a.py {changed}"
    assert path.read_text() == "a\nC\nD\n"
    assert path.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("zzz", "y", "NO_MATCH"),
        ("aa", "b", "MANY_MATCHES"),
        ("", "b", "INVALID_ARGUMENT"),
        ("aaa", "aaa", "INVALID_ARGUMENT"),
    ],
)
async def test_edit_refuses_what_is_not_exactly_one_place(at: Bench, old: str, new: str, code: str) -> None:
    (at.root / "a.txt").write_text("aaa")
    assert await at.code("edit", file_path="a.txt", old_text=old, new_text=new) == code
    assert (at.root / "a.txt").read_text() == "aaa"


async def test_edit_keeps_the_files_own_line_endings_and_its_mark(at: Bench) -> None:
    path = at.root / "dos.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\nthree\r\n")
    await at.text("edit", file_path="dos.txt", old_text="one\ntwo", new_text="1\n2")
    assert path.read_bytes() == b"\xef\xbb\xbf1\r\n2\r\nthree\r\n"


HOSTILE = [
    "../outside.txt", "a/../../outside.txt", "/etc/passwd", "/proc/self/environ", "link", "link/inner", "loop", "hard",
    "missing", "pipe", "/dev/zero", "folder/../../outside.txt", "..", "link2abs",
]  # fmt: skip


@pytest.mark.parametrize("path", HOSTILE)
@pytest.mark.parametrize("tool", ["read", "edit"])
async def test_what_lies_outside_cannot_be_told_from_what_is_missing(
    at: Bench, tmp_path: Path, tool: str, path: str
) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("secret")
    (at.root / "folder").mkdir()
    (at.root / "link").symlink_to("../outside.txt")
    (at.root / "link2abs").symlink_to(outside)
    (at.root / "loop").symlink_to("loop")
    (at.root / "hard").hardlink_to(outside)
    os.mkfifo(at.root / "pipe")
    more = {"old_text": "secret", "new_text": "x"} if tool == "edit" else {}
    result = await at.call(tool, file_path=path, **more)
    assert result.is_error
    assert '"error_code": "NOT_FOUND"' in text_of(result)
    assert "secret" not in text_of(result)
    assert str(tmp_path) not in text_of(result).replace(path, "")
    assert outside.read_text() == "secret"


@pytest.mark.parametrize("path", ["a\0b", "~/x", "", " ", "x" * 5000, "half \ud83d"])
async def test_a_path_that_is_none_is_an_invalid_argument(at: Bench, path: str) -> None:
    result = await at.toolbox.call("read", {"file_path": path}, "{}", CALL)
    assert '"INVALID_ARGUMENT"' in text_of(result)


@pytest.mark.parametrize(
    "path",
    ["skills/x/SKILL.md", "./skills/new.md", ".git/config", "sub/.GIT/hooks/pre-commit", ".env", ".env.local", ".ENV",
     "sub/.ssh/id", ".bashrc", "a/../.git/x", "Skills/x"],
)  # fmt: skip
async def test_what_others_read_or_run_is_not_written_even_where_it_is_missing(at: Bench, path: str) -> None:
    assert await at.code("write", file_path=path, content="x") == "PROTECTED"
    assert list(at.root.iterdir()) == []


async def test_a_link_inside_the_workspace_is_no_way_to_what_is_protected(at: Bench) -> None:
    (at.root / ".git").mkdir()
    (at.root / "alias").symlink_to(".git")
    assert await at.code("write", file_path="alias/config", content="x") == "NOT_FOUND"
    assert list((at.root / ".git").iterdir()) == []


async def test_a_link_or_a_second_name_is_not_written_through(at: Bench, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("secret")
    (at.root / "link").symlink_to(outside)
    (at.root / "hard").hardlink_to(outside)
    for name in ("link", "hard"):
        assert await at.code("write", file_path=name, content="x") == "NOT_FOUND"
    assert outside.read_text() == "secret"


async def test_no_temporary_file_is_left_after_a_refusal(at: Bench) -> None:
    (at.root / "folder").mkdir()
    assert await at.code("write", file_path="folder", content="x") == "IS_A_FOLDER"
    assert await at.code("write", file_path=".", content="x") == "INVALID_ARGUMENT"
    assert [path.name for path in at.root.iterdir()] == ["folder"]


async def test_read_tool_reads_a_mounted_skill_by_its_path(tmp_path: Path) -> None:
    skill = tmp_path / "elsewhere" / "greet"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("shared")
    (skill / "more.md").write_text("more")
    (tmp_path / "elsewhere" / "secret").write_text("secret")
    at = bench(tmp_path, mounts={"skills/greet": skill})
    assert await at.text("read", file_path="./skills/greet/SKILL.md") == "shared"
    assert await at.text("read", file_path="skills/greet/more.md") == "more"
    assert await at.text("ls", path="skills/greet") == "SKILL.md\nmore.md"
    assert await at.code("read", file_path="skills/greet/../secret") == "NOT_FOUND"
    assert await at.code("write", file_path="skills/greet/SKILL.md", content="x") == "PROTECTED"
    (at.root / "skills" / "greet").mkdir(parents=True)
    (at.root / "skills" / "greet" / "SKILL.md").write_text("own")
    assert await at.text("read", file_path="./skills/greet/SKILL.md") == "own"
    at.workspace.close()


async def test_text_that_is_shown_holds_no_nul(at: Bench) -> None:
    (at.root / "file").write_bytes(b"text\n" * 20_000 + b"\0\0\n")
    assert await at.text("read", file_path="file", offset=20_001) == "\ufffd\ufffd\n"


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


ENDED: st.SearchStrategy[list[tuple[str, str]]] = st.lists(
    st.tuples(st.sampled_from(["a", "b", "", "ab", "c d"]), st.sampled_from(["\n", "\r\n"])), max_size=6
)


def unbroken(text: str) -> str:
    return text.replace("\r\n", "\n")


@given(lines=ENDED, last=st.sampled_from(["", "a", "end"]), data=st.data())
def test_an_edit_keeps_the_line_endings_of_a_file_whatever_their_mix(
    lines: list[tuple[str, str]], last: str, data: st.DataObject
) -> None:
    """A model sees `\\n` alone and writes it. All endings outside the passage stay, those inside that still have a line keep
    theirs, and a new line has one that stands there: no bare `\\n` comes into a CRLF file, nor the other way round."""
    text = "".join(line + ending for line, ending in lines) + last
    plain = unbroken(text)
    start = data.draw(st.integers(0, max(0, len(plain) - 1)))
    old = plain[start : data.draw(st.integers(start + 1, len(plain) + 1))]
    new = data.draw(st.text("xyz\n", max_size=6))
    if not old or old == new or sum(plain.startswith(old, at) for at in range(len(plain))) > 1:
        return
    edited, *_ = replaced(text, old, new)
    assert unbroken(edited) == plain.replace(old, new, 1)
    before = re.findall(r"\r?\n", text)
    after = re.findall(r"\r?\n", edited)
    ahead, inside, added = plain[: plain.find(old)].count("\n"), old.count("\n"), new.count("\n")
    same = min(inside, added)
    assert after[: ahead + same] == before[: ahead + same]
    assert after[ahead + added :] == before[ahead + inside :]
    if before:
        assert set(after) <= set(before)


@pytest.mark.parametrize(
    ("text", "old", "new", "expected"),
    [
        ("a\r\nfoo\r\nb", "foo", "foo\nbar", "a\r\nfoo\r\nbar\r\nb"),
        ("a\r\nfoo", "foo", "foo\nbar", "a\r\nfoo\r\nbar"),
        ("a\r\nb\nc\n", "a\nb\nc", "1\n2\n3", "1\r\n2\n3\n"),
        ("a\r\nb\nfoo\nc", "foo", "x\ny", "a\r\nb\nx\ny\nc"),
        ("a\r\nb", "\nb", "\n\nb", "a\r\n\r\nb"),
        ("a\nb\r\na\r\nb", "a\nb", "x\ny", "x\ny\r\na\r\nb"),
        ("a\nb", "b", "b\r\n", "a\nb\r\n"),
    ],
)
def test_the_line_ending_of_a_new_line(text: str, old: str, new: str, expected: str) -> None:
    assert replaced(text, old, new)[0] == expected
