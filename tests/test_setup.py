"""From nothing but python3 and make: what fails on the way leaves nothing broken behind, and says what to type."""

import ast
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MAKE_SECONDS = 300
PYTHON = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"

# Debian without python3-venv: the folder is made, ensurepip is missing, the exit code is 1.
WITHOUT_VENV = f"""#!/bin/sh
if [ "$1 $2" = "-m venv" ]; then shift 2; {PYTHON} -m venv --without-pip "$@"; exit 1; fi
exec {PYTHON} "$@"
"""
BACKEND = """
import pathlib, shutil, time
here = pathlib.Path(__file__).parent
def build_wheel(directory, config_settings=None, metadata_directory=None):
    pathlib.Path({folder!r}, "building").touch()
    while not pathlib.Path({folder!r}, "go").exists():
        time.sleep(0.02)
    return shutil.copy(here / "tiny-1.0-py3-none-any.whl", directory).rpartition("/")[2]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A Clawgate whose one dependency is `tiny`, which is built once the file `go` is there."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    with zipfile.ZipFile(tmp_path / "tiny-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny.py", "")
        wheel.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        wheel.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("tiny-1.0.dist-info/RECORD", "tiny.py,,\ntiny-1.0.dist-info/RECORD,,\n")
    with zipfile.ZipFile(tmp_path / "tiny-1.0.zip", "w") as source:
        source.write(tmp_path / "tiny-1.0-py3-none-any.whl", "tiny-1.0/tiny-1.0-py3-none-any.whl")
        source.writestr("tiny-1.0/backend.py", BACKEND.format(folder=str(tmp_path)))
        project = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        source.writestr("tiny-1.0/pyproject.toml", project)
    digest = hashlib.sha256((tmp_path / "tiny-1.0.zip").read_bytes()).hexdigest()
    (tmp_path / "requirements.txt").write_text(f"tiny @ file://{tmp_path}/tiny-1.0.zip --hash=sha256:{digest}\n")
    (tmp_path / "gateway").mkdir()
    (tmp_path / "gateway" / "__main__.py").write_text("import tiny\nprint('serving')\n")
    (tmp_path / "without-venv").write_text(WITHOUT_VENV)
    (tmp_path / "without-venv").chmod(0o755)
    return tmp_path


def started(folder: Path, python: Path | str) -> subprocess.Popen[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "PIP_", "PYTHON"))}
    return subprocess.Popen(
        ["make", "run", f"PYTHON={python}"],
        cwd=folder,
        env=env | {"PIP_NO_INDEX": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def make_run(folder: Path, python: Path | str = PYTHON) -> tuple[int, str]:
    with started(folder, python) as process:
        output, _ = process.communicate(timeout=MAKE_SECONDS)
    return process.returncode, output


def test_a_python_without_venv_leaves_nothing_behind_and_it_works_once_what_was_missing_is_there(folder: Path) -> None:
    code, output = make_run(folder, folder / "without-venv")
    assert code != 0
    assert "apt install python3-venv" in output
    assert not (folder / ".venv").exists()
    good = (folder / "requirements.txt").read_text()
    (folder / "requirements.txt").write_text("not-there==1.0 --hash=sha256:" + "0" * 64 + "\n")
    for _ in range(2):
        code, output = make_run(folder)
        assert code != 0
        assert "not-there" in output
    (folder / "requirements.txt").write_text(good)
    (folder / "go").touch()
    code, output = make_run(folder)
    assert (code, output.splitlines()[-1]) == (0, "serving")
    assert make_run(folder) == (0, "serving\n")


def test_what_was_left_half_made_is_made_anew(folder: Path) -> None:
    """First what an older Makefile left without pip, then what is left where pip was killed: also a package of which it
    had written the first half, which it would take for a whole one."""
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", folder / ".venv"], check=True)
    with started(folder, PYTHON) as process:
        deadline = time.monotonic() + MAKE_SECONDS
        while not (folder / "building").exists():
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
    (packages,) = (folder / ".venv" / "lib").glob("python*/site-packages")
    half = packages / "tiny-1.0.dist-info"
    half.mkdir()
    (half / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
    (folder / "go").touch()
    code, output = make_run(folder)
    assert (code, output.splitlines()[-1]) == (0, "serving")


OLDER = [
    path
    for path in sorted(Path(sys.base_prefix).parent.glob("[23].*/bin/python"))
    if tuple(map(int, path.parts[-3].split(".")[:2])) < (3, 11)
]
"""Those beside ours, where several are installed."""
OLD_GRAMMAR = (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr, ast.Match, ast.AsyncFunctionDef)


def test_the_entry_is_read_by_any_old_python() -> None:
    tree = ast.parse((ROOT / "gateway" / "__main__.py").read_text(encoding="ascii"))
    assert [node for node in ast.walk(tree) if isinstance(node, OLD_GRAMMAR)] == []
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    assert [
        function for function in functions if function.returns or any(it.annotation for it in function.args.args)
    ] == []
    assert (ROOT / "gateway" / "__init__.py").read_text() == ""


def output_of(*command: str) -> tuple[int, str]:
    env = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=env)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("command", [[], ["check"], ["serve", "--port", "0"], ["--help"]], ids=" ".join)
def test_outside_its_environment_one_sentence_says_what_to_type(command: list[str]) -> None:
    code, output = output_of(
        sys.executable, "-S", "-m", "gateway", *command
    )  # -S: as a Python where nothing is installed
    assert code == 1
    assert output.count("\n") == 1
    assert "make run" in output
    assert " ".join([".venv/bin/python -m gateway", *command]) in output
    assert "Traceback" not in output


@pytest.mark.parametrize("python", OLDER, ids=lambda path: path.parts[-3])
def test_a_python_that_is_too_old_is_told_so_in_one_sentence(python: Path) -> None:
    code, output = output_of(str(python), "-m", "gateway", "check")
    assert code == 1
    assert output.count("\n") == 1
    assert "Clawgate needs Python 3.11 or newer" in output
    assert "make run" in output
