"""What an approval binds: what is offered for good runs nothing of the workspace, and what was read is what runs."""

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.tools.bench import Bench, bench, text_of
from tools.binding import binding_of
from tools.catalog import Toolbox
from tools.exec import PATH
from tools.sandbox.sandbox import Sandbox
from tools.tool import Call, Request, ToolError, ToolResult

READS = (
    "ls -la", "cat data.txt", "head -n 2 data.txt", "tail -n1 data.txt", "wc -l data.txt", "grep -rn 'x y' .",
    "date +%F", "df -h", "date -u", "du -sh .", "uname -a", "sha256sum data.txt", "stat data.txt", "echo hello",
)  # fmt: skip
RUNS = (
    "python3 report.py", "sh run.sh", "bash run.sh", "./run.sh", "node app.js", "perl a.pl", "pip3 install .",
    "pip install .", "gcc -B . x.c", "wget https://example.com/", "curl -K x", "curl https://example.com/",
    "hg status", "eslint x.js", "jest", "mypy x.py", "pylint x.py", "uvicorn app:app", "flask run",
    "coverage run x.py", "scons", "ctest", "meson setup b", "py.test", "pytest", "pre-commit run", "vim.tiny x",
    "tcpdump -z ./x.sh", "ssh-keygen -D ./x.so", "unbuffer ls", "cpulimit ls", "git status", "make", "npm test",
    "env ls", "xargs ls", "find . -name x", "sort -o out data.txt", "sort --compress-program=./run.sh data.txt",
    "uniq data.txt out", "tee out", "cp a b", "mv a b", "rm a", "sed -n p data.txt", "awk 1 data.txt", "diff a b",
    "file data.txt", "date -s 12:00", "date 010100002030", "date --set=tomorrow", "date -f data.txt", "less data.txt",
    "tree -o out", "xxd -r a b", "split data.txt", "jq . x.json", "man ls", "hostname x", "./ls", "bin/cat data.txt",
    "unknown", "if", ". run.sh", "ls; ls", "cat $HOME/x", "cat data.txt > out", "ls | cat", "PATH=. ls", "cat `ls`",
    "ls\nls", "cat *.txt", "~/ls",
)  # fmt: skip
PLANTED = (
    "ls", "cat", "date", "grep", "bin/ls", ".local/bin/ls", "json.py", "sitecustomize.py", "usercustomize.py",
    ".local/lib/python3.11/site-packages/usercustomize.py", ".bashrc", ".bash_profile", ".profile", ".shrc", ".kshrc",
    ".npmrc", ".curlrc", ".wgetrc", ".vimrc", ".exrc", ".inputrc", ".magic", ".grep", ".dircolors", ".dir_colors",
    ".pythonrc", ".perlrc", "Makefile", "conftest.py", "setup.py", "package.json", "pyproject.toml", ".gitconfig",
    ".config/git/config", ".git/config", "run.sh", "app.js", "libc.so.6", "ld.so.preload", ".config/locale.conf",
    "locale/C.UTF-8/LC_MESSAGES/coreutils.mo",
)  # fmt: skip
EVIL = "#!/bin/sh\necho RAN >> PROOF\n"


def always(at: Bench, command: str) -> bool:
    return binding_of(command, folder=at.workspace.fd, path=PATH).always


def test_what_only_reads_is_offered_for_good(at: Bench) -> None:
    assert [it for it in READS if not always(at, it)] == []


def test_approval_grant_is_not_offered_for_running_or_writing(at: Bench) -> None:
    for name in ("run.sh", "ls", "report.py", "unknown", "if"):
        (at.root / name).write_text(EVIL)
        (at.root / name).chmod(0o755)
    assert [it for it in RUNS if always(at, it)] == []


def test_approval_grant_is_not_offered_for_a_replaceable_program(at: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "ls").symlink_to("/bin/ls")
    folder.chmod(0o777)
    assert not binding_of("ls", folder=at.workspace.fd, path=f"{folder}:{PATH}").always


_NAMES = (
    "basename cat cksum comm cut date df du echo fold grep head id join ls nl od paste printf sort stat tac tail tr"
)
NAMES = st.sampled_from(f"{_NAMES} uniq uname uptime wc sh python3 env find awk sed tee xargs diff file cp".split())
OPTIONS = st.sampled_from(
    ["-", "-a", "-c", "-e", "-f", "-i", "-l", "-n", "-o", "-r", "-s", "-t", "-w", "-x", "-z", "-P", "-C", "-T", "--help",
     "--output=out", "-oout", "--files0-from=run.sh", "--reference=run.sh", "--file=run.sh", "-frun.sh", "--color=always",
     "--compress-program=./run.sh", "--filter=./run.sh", "--set=tomorrow", "+%s", "1", "2", "out", "new/out", "x"]
)  # fmt: skip


@given(st.lists(st.tuples(NAMES, st.lists(OPTIONS | st.sampled_from(PLANTED), max_size=4)), min_size=8, max_size=8))
@example([("sort", ["-o", "out", "run.sh"]), ("date", ["-s", "12:00"]), ("cat", ["run.sh"])])
@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_approval_grant_offered_never_touches_the_workspace(
    tmp_path: Path, commands: list[tuple[str, list[str]]]
) -> None:
    """Whatever lies there: all of it is a program that leaves a proof."""
    at = bench(tmp_path, exec_={"sandbox": "off", "timeoutSeconds": 2})
    for name in PLANTED:
        (at.root / name).parent.mkdir(parents=True, exist_ok=True)
        (at.root / name).write_text(
            EVIL if "." not in name[1:] else f"import os\nos.system('echo RAN >> PROOF')\n{EVIL}"
        )
        (at.root / name).chmod(0o777)
    for folder in (at.root, *at.root.rglob("*")):
        if folder.is_dir():
            folder.chmod(0o777)
    before = standing(at.root)
    for name, words in commands:
        command = " ".join((name, *words))
        if always(at, command):
            await at.call("exec", command=command)
            assert standing(at.root) == before, command
    at.workspace.close()


def standing(folder: Path) -> dict[str, object]:
    return {str(it): it.is_dir() or it.read_bytes() for it in folder.rglob("*")}


@dataclass
class Approver:
    """A gate that has approved one request, digest for digest, and is asked for each run."""

    approved: str = ""
    let_through: int = 0

    def demands(self, tool: str, call: Call) -> bool:
        return False

    async def admit(self, request: Request, call: Call) -> "Approver":
        bound = request.canonical("helper")
        self.approved = self.approved or bound
        if bound != self.approved:
            raise ToolError("EXEC_BINDING_MISMATCH", "it changed")
        self.let_through += 1
        return self

    async def finished(self, result: ToolResult) -> None:
        pass


@contextmanager
def flipping(file: Path, contents: list[str]) -> Iterator[None]:
    """A writer that puts now this, now that there, at once, as the file tools do."""
    stop = threading.Event()

    def flip() -> None:
        turn = 0
        while not stop.is_set():
            other = file.with_name("flipped")
            other.unlink(missing_ok=True)
            other.write_text(contents[turn % len(contents)])
            other.chmod(0o755)
            other.rename(file)
            turn += 1
            time.sleep(0.02)

    writer = threading.Thread(target=flip)
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()


def asking(folder: Path, kind: str) -> tuple[Bench, Approver]:
    off: dict[str, Any] = {"exec_": {"sandbox": "off"}} if kind == "off" else {"sandbox": Sandbox(kinds=[kind])}  # type: ignore[list-item]
    at = bench(folder, mode="ask", uploads=folder / "uploads/a", **off)
    gate = Approver()
    tools = list(at.toolbox._tools.values())
    at.toolbox = Toolbox(tools, layers=(), argument_bytes_max=65_536, gate=gate)
    (at.root / "helper.py").write_text("WORD = 'GOOD'\n")
    (at.root / "word.sh").write_text("word() { echo GOOD; }\n")
    (at.root / "sub").mkdir()
    (at.root / ".venv/bin").mkdir(parents=True)
    (at.root / ".venv/pyvenv.cfg").write_text("home = /usr/bin\n")
    (at.root / ".venv/bin/python").symlink_to("/usr/bin/python3")
    return at, gate


@pytest.fixture
def passable() -> Iterator[Path]:
    """A folder that the commands' user reaches by its path: pytest's own are root's alone."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


SCRIPTS = {
    "sh job": ("job", 'cd "$(dirname "$0")"; . ./word.sh; word\n', "echo EVIL\n"),
    "sh -e sub/job": ("sub/job", '. "$(dirname "$0")/../word.sh"; word\n', "echo EVIL\n"),
    "./job": ("job", "#!/bin/sh\necho GOOD\n", "#!/bin/sh\necho EVIL\n"),
    ".venv/bin/python job": ("job", "import helper, sys\nprint(helper.WORD)\n", "print('EVIL')\n"),
}  # fmt: skip


KINDS = ("bubblewrap", "off", "Landlock and seccomp", "bubblewrap without /proc")
RUNS_OF_SCRIPTS = [
    pytest.param(kind, command, marks=() if (at + number) % 2 == 0 and at < 3 else pytest.mark.long)
    for at, kind in enumerate(KINDS)
    for number, command in enumerate(SCRIPTS)
]
"""In `make test`, each kind runs two and each script runs in one or two."""


@pytest.mark.parametrize(("kind", "command"), RUNS_OF_SCRIPTS)
async def test_of_an_approved_script_only_those_bytes_run_that_were_hashed(
    passable: Path, kind: str, command: str
) -> None:
    """However often somebody puts another one there between the hash and the start."""
    at, gate = asking(passable, kind)
    name, good, evil = SCRIPTS[command]
    file = at.root / name
    file.write_text(good)
    file.chmod(0o755)
    first = await at.text("exec", command=command)
    assert first.splitlines()[0] == "GOOD", first
    seen = []
    with flipping(file, [good, evil]):
        while gate.let_through < 5:
            seen.append(text_of(await at.call("exec", command=command)).splitlines()[0])
            if gate.let_through == 4:
                begun = await at.call("process", action="start", command=command)
                seen += [text_of(begun)] if begun.is_error else []
    assert "EVIL" not in seen
    assert seen.count("GOOD") == gate.let_through - 1
    at.workspace.close()
