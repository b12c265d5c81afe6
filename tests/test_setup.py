"""From nothing but python3 and make: what fails on the way leaves nothing broken behind, and says what to type."""

import ast
import asyncio
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import zipfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from gateway.cli.options import config_to_read, config_to_write
from tests.stories.process.test_process import Process
from tests.upstream import Upstream, git
from tests.web_page import opened

ROOT = Path(__file__).resolve().parents[1]
MAKE_SECONDS = 300
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
PYTHON = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"

PACKAGES = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"

# Debian without python3-venv: the folder is made, ensurepip is missing, the exit code is 1.
WITHOUT_VENV = f"""#!/bin/sh
if [ "$1 $2" = "-m venv" ]; then shift 2; {PYTHON} -m venv --without-pip "$@"; exit 1; fi
exec {PYTHON} "$@"
"""
# Writing a pip of their own costs each environment four seconds of a processor. The one that runs this has it from there.
WITH_OUR_PIP = f"""#!/bin/sh
if [ "$1 $2" = "-m venv" ]; then
    {PYTHON} -m venv --without-pip "$3" && ln -s {sysconfig.get_path("purelib")}/pip "$3/{PACKAGES}"; exit
fi
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


class Mirror(ThreadingHTTPServer):
    """A package index on loopback, whose pages are its folder's listings. `asked` are paths and who wanted them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[tuple[str, str]] = []
        super().__init__(("127.0.0.1", 0), self.answer)
        self.url = f"http://127.0.0.1:{self.server_port}"

    def answer(self, *connection: Any) -> "Listing":
        return Listing(*connection, directory=str(self.folder))

    def put(self, path: Path) -> str:
        """The line of a lock."""
        name, version = path.name.split("-")[:2]
        (self.folder / name).mkdir()
        path.rename(self.folder / name / path.name)
        digest = hashlib.sha256((self.folder / name / path.name).read_bytes()).hexdigest()
        return f"{name}=={version.removesuffix('.zip')} \\\n    --hash=sha256:{digest}\n"


class Listing(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        assert isinstance(self.server, Mirror)
        self.server.asked.append((self.path, self.headers["user-agent"]))


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[Mirror]:
    with Mirror(tmp_path / "mirror") as mirror:
        mirror.folder.mkdir()
        thread = Thread(target=mirror.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield mirror
        mirror.shutdown()
        thread.join()


def wheel(path: Path, **files: str) -> Path:
    name, version = path.name.split("-")[:2]
    facts = f"{name}-{version}.dist-info"
    files |= {
        f"{facts}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{facts}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            entry = zipfile.ZipInfo(file)
            entry.external_attr = 0o100755 << 16
            archive.writestr(entry, text)
        archive.writestr(f"{facts}/RECORD", "".join(f"{file},,\n" for file in [*files, f"{facts}/RECORD"]))
    return path


def source(folder: Path) -> Path:
    """`tiny`, which is built once the file `go` is there."""
    built = wheel(folder / "tiny-1.0-py3-none-any.whl", **{"tiny.py": ""})
    path = folder / "tiny-1.0.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(built, f"tiny-1.0/{built.name}")
        archive.writestr("tiny-1.0/PKG-INFO", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        archive.writestr("tiny-1.0/backend.py", BACKEND.format(folder=str(folder)))
        project = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        archive.writestr("tiny-1.0/pyproject.toml", project)
    return path


@pytest.fixture
def folder(tmp_path: Path, mirror: Mirror) -> Path:
    """A Clawgate whose one dependency is `tiny`, and the way to it pip's mirror."""
    (tmp_path / "tests").mkdir()
    for name in ("Makefile", "tests/installer.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    calls_ours = f'#!/bin/sh\nexec {Path(sys.executable).with_name("uv")} "$@"\n'
    uv = wheel(tmp_path / "uv-9.0-py3-none-any.whl", **{"uv-9.0.data/scripts/uv": calls_ours})
    (tmp_path / "requirements-dev.txt").write_text(f"above==1.0\n{mirror.put(uv)}    # via nothing\nbeneath==1.0\n")
    (tmp_path / "requirements.txt").write_text(mirror.put(source(tmp_path)))
    (tmp_path / "gateway").mkdir()
    (tmp_path / "gateway" / "__main__.py").write_text("import tiny\nprint('serving')\n")
    for name, text in (("without-venv", WITHOUT_VENV), ("with-our-pip", WITH_OUR_PIP)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return tmp_path


def started(folder: Path, python: str, **more: str) -> subprocess.Popen[str]:
    env = {name: it for name, it in os.environ.items() if not name.startswith(("MAKE", "PIP_", "PYTHON", "UV_"))}
    return subprocess.Popen(
        ["make", "run", f"PYTHON={folder / python}"],
        cwd=folder,
        env=env
        | {"PIP_CONFIG_FILE": os.devnull, "UV_CACHE_DIR": str(folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
        | more,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def make_run(folder: Path, python: str = "with-our-pip", **more: str) -> tuple[int, str]:
    with started(folder, python, **more) as process:
        output, _ = process.communicate(timeout=MAKE_SECONDS)
    return process.returncode, output


def test_without_uv_pip_does_it_and_what_was_missing_leaves_nothing_behind(folder: Path, mirror: Mirror) -> None:
    code, output = make_run(folder, "without-venv")
    assert code != 0
    assert "apt install python3-venv" in output
    assert not (folder / ".venv").exists()
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", folder / ".venv"], check=True)  # by an older Makefile
    good = (folder / "requirements.txt").read_text()
    (folder / "requirements.txt").write_text("not-there==1.0 --hash=sha256:" + "0" * 64 + "\n")
    shutil.rmtree(mirror.folder / "uv")
    for _ in range(2):
        code, output = make_run(folder, PIP_INDEX_URL=mirror.url)
        assert code != 0
        assert "not-there" in output
    (folder / "requirements.txt").write_text(good)
    (folder / "go").touch()
    code, output = make_run(folder, PIP_INDEX_URL=mirror.url)
    assert (code, output.splitlines()[-1]) == (0, "serving")
    assert make_run(folder) == (0, "serving\n")
    assert not [agent for _, agent in mirror.asked if agent.startswith("uv/")]


def test_setup_uses_pips_mirror_and_repairs_an_interrupted_install(folder: Path, mirror: Mirror) -> None:
    """First where it is killed: also a package of which it has written the first half, which counts as a whole one. Then
    where it stops by itself in the middle."""
    with started(folder, "with-our-pip", PIP_INDEX_URL=mirror.url) as process:
        deadline = time.monotonic() + MAKE_SECONDS
        while not (folder / "building").exists():
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
    packages = folder / ".venv" / PACKAGES
    half = packages / "tiny-1.0.dist-info"
    half.mkdir()
    (half / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
    (folder / "go").touch()
    code, output = make_run(folder, PIP_INDEX_URL=mirror.url)
    assert (code, output.splitlines()[-1]) == (0, "serving")
    assert {agent.split("/")[0] for path, agent in mirror.asked if path == "/tiny/"} == {"uv"}
    assert list(packages.glob("__pycache__/tiny.*.pyc"))
    more = mirror.put(wheel(folder / "more-1.0-py3-none-any.whl", **{"begun.py": "", "more.py": ""}))
    lock = folder / "requirements.txt"
    tiny = lock.read_text()
    lock.write_text(tiny + more[:-9] + "00000000\n")
    code, output = make_run(folder, PIP_INDEX_URL=mirror.url)
    assert code != 0
    assert "Hash mismatch" in output  # says uv,
    assert "DO NOT MATCH THE HASHES" in output  # and pip
    within = wheel(
        folder / "within-1.0-py3-none-any.whl", **{"more.py/within.py": ""}
    )  # a folder where `more` has a file
    lock.write_text(tiny + more + mirror.put(within))
    code, output = make_run(folder, PIP_INDEX_URL=mirror.url)
    assert (code != 0, (folder / ".venv" / ".run").exists()) == (True, False)
    assert "Type make again" in output
    lock.write_text(tiny + more)
    code, output = make_run(folder, PIP_INDEX_URL=mirror.url)
    assert (code, output.splitlines()[-1], (packages / "more.py").is_file()) == (0, "serving", True)


@asynccontextmanager
async def made(clone: Path) -> AsyncIterator[Process]:
    """`make run` in a clone, whose packages are those of this environment."""
    process = await asyncio.create_subprocess_exec(
        *("make", "run", f"BIN={Path(sys.executable).parent}", "--old-file=.venv/.run"),
        cwd=clone,
        env={"PATH": os.environ["PATH"], "HOME": str(clone.parent), "CLAWGATE_PORT": "0"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    run = Process(process)
    try:
        await run.ready()
        yield run
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGTERM)
            await run.ended()


async def said(run: Process, text: str) -> None:
    async with opened(run.url) as page:
        await page.say(text, agent="assistant")
        await page.answers(1)


async def titles(run: Process) -> list[str]:
    async with opened(run.url) as page:
        return [it["title"] for it in await page.chats()]


OWNED = ("# owners: [", 'owners: ["web:local"] # [')


@needs_git
async def test_setup_make_run_serves_an_ignored_folder(tmp_path: Path) -> None:
    upstream, clone = Upstream(tmp_path / "upstream"), tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", str(upstream.folder), str(clone))
    config = clone / "bot" / "config.yaml"
    async with made(clone) as run:
        assert f"{config}: written\n" in run.output
        assert not any("git tracks" in line for line in run.output)
        await said(run, "hello")
    assert {it.name for it in config.parent.iterdir()} == {"config.yaml", "data"}
    edited = config.read_text(encoding="utf-8").replace(*OWNED)
    config.write_text(edited, encoding="utf-8")
    assert git(clone, "status", "--porcelain") == ""
    upstream.change_config()
    git(clone, "pull", "--quiet")
    async with made(clone) as run:
        assert await titles(run) == ["hello"]
        assert not any("/claim" in line for line in run.output), "the edit is in force"
    assert config.read_text(encoding="utf-8") == edited
    for command, result in (("check", "bot/config.yaml: ok"), ("init --yes", "bot/config.yaml: already exists")):
        done = subprocess.run(
            [sys.executable, "-m", "gateway", *command.split()], cwd=clone, capture_output=True, text=True, check=False
        )
        assert result in done.stdout + done.stderr


@needs_git
async def test_setup_old_clone_is_served_until_moved(
    tmp_path: Path,
) -> None:
    upstream, clone = Upstream(tmp_path / "upstream"), tmp_path / "a clone"
    git(tmp_path, "clone", "--quiet", str(upstream.folder), str(clone))
    (clone / ".env").write_text("CLAWGATE_MODEL=demo/guide\n")
    text = (clone / "config.yaml").read_text(encoding="utf-8")
    (clone / "config.yaml").write_text(text.replace(*OWNED), encoding="utf-8")
    async with made(clone) as run:
        await said(run, "hello")
        (advice,) = [line for line in run.output if "git tracks config.yaml" in line]
        assert not (clone / "bot").exists()
        kept = (clone / "config.yaml").read_text(encoding="utf-8")
    commands = advice.partition("make run serves: ")[2]
    subprocess.run(["sh", "-c", commands], cwd=tmp_path, check=True, capture_output=True)
    assert git(clone, "status", "--porcelain") == ""
    upstream.change_config()
    git(clone, "pull", "--quiet")
    async with made(clone) as run:
        assert await titles(run) == ["hello"]
        assert not any("git tracks" in line for line in run.output)
    assert (clone / "bot" / "config.yaml").read_text(encoding="utf-8") == kept
    assert {".env", "data"} <= {it.name for it in (clone / "bot").iterdir()}


@pytest.mark.parametrize(
    ("left", "served"),
    [
        ("", "bot/config.yaml"),
        ("data/clawgate.db", "config.yaml"),
        (".env", "config.yaml"),
        ("config.yaml", "config.yaml"),
        ("skills.lock", "config.yaml"),
        (".env bot/.env", "bot/config.yaml"),  # the one in the clone is compose's
        ("data/clawgate.db bot/config.yaml", "bot/config.yaml"),
    ],
)
def test_a_start_in_a_clone_serves_what_was_served_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str, served: str
) -> None:
    for name in ("Makefile", "config.yaml", "gateway/cli/config.template.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    for name in left.split():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        with (tmp_path / name).open("a") as file:
            file.write("# mine\n")
    assert str(config_to_write()) == served
    (tmp_path / "Makefile").unlink()  # any other folder
    assert str(config_to_write()) == str(config_to_read()) == "config.yaml"


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
