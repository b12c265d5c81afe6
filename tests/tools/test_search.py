"""grep and find on a real folder: what they find, what they never leave, and that nothing makes them slow."""

import os
import time
from pathlib import Path

import pytest

from tests.tools.bench import Bench, bench, text_of


@pytest.fixture
def tree(at: Bench) -> Bench:
    for path, text in {
        "a.py": "import os\nx = 1\n",
        "src/b.py": "def Eins():\n    return '一'\n",
        "src/deep/c.ts": "let x = 2;\r\nno newline at the end x",
        "src/deep/test_d.py": "",
        ".git/config": "x = git\n",
        "notes/[1].txt": "x marks\n",
    }.items():
        file = at.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())
    (at.root / "program").write_bytes(b"\x7fELF\0 x = 3\n")
    return at


@pytest.mark.parametrize(
    ("glob", "found"),
    [
        ("*.py", "a.py src/b.py src/deep/test_d.py"),
        ("/a.py", "(no path)"),
        ("./*.py", "a.py src/b.py src/deep/test_d.py"),
        ("src/*.py", "src/b.py"),
        ("src/**/*.{py,ts}", "src/b.py src/deep/c.ts src/deep/test_d.py"),
        ("**/deep", "src/deep/"),
        ("src/**", "src/b.py src/deep/ src/deep/c.ts src/deep/test_d.py"),
        ("?.py", "a.py src/b.py"),
        ("[!a].{ts,py}", "src/b.py src/deep/c.ts"),
        (r"\[1\].txt", "notes/[1].txt"),
        ("[[]1].txt", "notes/[1].txt"),
        ("config", "(no path)"),
    ],
)
async def test_a_glob_finds_names_at_its_depth(tree: Bench, glob: str, found: str) -> None:
    assert (await tree.text("find", glob=glob)).split("\n") == (found.split(" ") if "(" not in found else [found])


async def test_grep_names_path_and_line(tree: Bench) -> None:
    assert await tree.text("grep", pattern="x") == (
        "a.py:2: x = 1\nnotes/[1].txt:1: x marks\nsrc/deep/c.ts:1: let x = 2;\nsrc/deep/c.ts:2: no newline at the end x"
    )
    assert await tree.text("grep", pattern="eins|一", ignore_case=True) == (
        "src/b.py:1: def Eins():\nsrc/b.py:2:     return '一'"
    )
    assert await tree.text("grep", pattern="x$", path="src/deep/c.ts") == "src/deep/c.ts:2: no newline at the end x"
    assert await tree.text("grep", pattern="^x", glob="*.ts") == "(no matching line)"
    assert await tree.text("grep", pattern="x", path=".git") == ".git/config:1: x = git"
    assert (await tree.text("grep", pattern="^", path="a.py")).splitlines() == ["a.py:1: import os", "a.py:2: x = 1"]
    assert await tree.text("grep", pattern=r"os\sx", path="a.py") == "(no matching line)"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("grep", {"pattern": "a("}),
        ("grep", {"pattern": r"(a)\1"}),
        ("grep", {"pattern": "(?=a)"}),
        ("grep", {"pattern": "((a{100}){100}){100}"}),
        ("grep", {"pattern": "half \ud83d"}),
        ("grep", {"pattern": "a" * 1_001}),
        ("grep", {"pattern": "x", "limit": 0}),
        ("find", {"glob": "{a,b"}),
        ("find", {"glob": "a" * 1_001}),
        ("find", {"glob": "x", "path": "a\0b"}),
    ],
)
async def test_what_is_no_pattern_is_an_invalid_argument(tree: Bench, tool: str, arguments: dict[str, object]) -> None:
    assert await tree.code(tool, **arguments) == "INVALID_ARGUMENT"


async def test_hostile_patterns_take_no_time(tree: Bench) -> None:
    folder = tree.root
    for _ in range(100):
        folder /= "a"
    folder.mkdir(parents=True)
    (folder / ("a" * 200)).write_text("a" * 1_000_000)
    began = time.monotonic()
    assert await tree.text("find", glob="**/a/" * 40 + "b") == "(no path)"
    assert await tree.text("find", glob="*a" * 50 + "b") == "(no path)"
    assert await tree.text("grep", pattern="(a*)*Q|(a|aa)+$x") == "(no matching line)"
    assert time.monotonic() - began < 5


async def test_many_hits_are_cut_with_their_number(tmp_path: Path) -> None:
    at = bench(tmp_path, result_chars=2_000)
    (at.root / "many").write_text("hit\n" * 500)
    (at.root / "wide").write_text("y" * 5_000 + "hit" + "z" * 5_000)
    page = await at.text("grep", pattern="hit", limit=5)
    assert page.splitlines()[-1] == "[496 more matching lines; narrow it down]"
    assert len(page.splitlines()) == 6
    assert len(await at.text("grep", pattern="hit", limit=1000)) <= 2_000
    (wide,) = (await at.text("grep", pattern="hit", path="wide")).splitlines()
    assert "yhitz" in wide
    assert len(wide) < 400
    for number in range(20):
        (at.root / f"f{number}").touch()
    assert (await at.text("find", glob="f*", limit=3)).splitlines()[-1] == "[17 more paths; narrow it down]"
    at.workspace.close()


async def test_huge_and_odd_files_cost_little(at: Bench) -> None:
    with (at.root / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with (at.root / "large").open("wb") as file:
        file.write(b"line\n" * 4_000_000)
        file.write(b"needle\n")
    os.mkfifo(at.root / "pipe")
    (at.root / os.fsdecode(b"bad\xff\nname")).write_text("needle")
    began = time.monotonic()
    found = (await at.text("grep", pattern="needle")).splitlines()
    assert found == ["bad?\\nname:1: needle", "[of 1 larger files only the first 16,777,216 bytes]"]
    assert time.monotonic() - began < 5


async def test_no_link_and_no_second_name_leads_out(at: Bench, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("secret")
    (at.root / "link").symlink_to(outside)
    (at.root / "file").symlink_to(outside / "file")
    (at.root / "hard").hardlink_to(outside / "file")
    (at.root / "loop").symlink_to(".")
    assert await at.text("grep", pattern="secret") == "(no matching line)"
    assert await at.text("find", glob="*") == "file\nhard\nlink\nloop"
    for path in ("link", "file", "hard", "../outside", "missing"):
        result = await at.call("grep", pattern="secret", path=path)
        assert "secret" not in text_of(result)
