"""Build what is released and try it: `python -m tests.release [--untagged]`, or `make release`.

The wheel is built from the sdist, so the sdist lacks nothing. It is installed into a new environment and answers there,
first in an empty folder, then over a database of the version before. Publishing is done by `.github/workflows/release.yml`.
"""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.program import VERSION
from tests.gateway.store.release_1_0 import OLD, make_old
from tests.stories.process.test_process import ROOT, Process
from tests.web_page import opened

SECTION = re.compile(r"^## (.+)\n((?:(?!## ).*\n?)*)", re.M)


class NotReleasable(Exception):
    """What is to be released is not what it says, or does not work."""


def main() -> int:
    untagged = "--untagged" in sys.argv[1:]
    try:
        if faults := [] if untagged else [*disagreements(ROOT, VERSION)]:
            raise NotReleasable("\n".join(faults))
        _say(f"Building {VERSION} ...")
        shutil.rmtree(ROOT / "dist", ignore_errors=True)
        wheel, sdist = build(ROOT / "dist")
        _say(_run(sys.executable, "-m", "twine", "--no-color", "check", "--strict", str(wheel), str(sdist)).rstrip())
        with tempfile.TemporaryDirectory() as folder:
            environment = Path(folder) / "environment"
            _say("Installing the wheel and the locked packages into a new environment ...")
            subprocess.run([sys.executable, "-m", "venv", environment], check=True)
            _run(sys.executable, "-m", "tests.installer", "requirements.txt", str(environment))
            install(wheel, environment)
            _say(f"Starting it, in an empty folder and over a database of revision {OLD} ...")
            asyncio.run(try_out(environment, Path(folder)))
    except NotReleasable as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    _say("It works. A release needs the tag." if untagged else f"It can be published: git push origin v{VERSION}")
    return 0


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def disagreements(root: Path, version: str) -> Iterator[str]:
    """Yield what keeps the commit from being this version: the tree, the tag, the changelog."""
    if changed := _git(root, "status", "--porcelain"):
        yield f"the tree has changes that no commit has; commit or remove them:\n{changed}"
    tags = _git(root, "tag", "--points-at", "HEAD").split()
    if f"v{version}" not in tags:
        has = f"it has {', '.join(tags)}" if tags else "it has none"
        yield f"gateway/program.py says {version}, so this commit needs the tag v{version}; {has}"
    sections = SECTION.findall((root / "CHANGELOG.md").read_text(encoding="utf-8"))
    if any(title == "Unreleased" and text.strip() for title, text in sections):
        yield f"CHANGELOG.md: entries are under Unreleased; move them under ## {version} — YYYY-MM-DD"
    released = [title for title, _ in sections if title != "Unreleased"]
    if not released or not re.fullmatch(rf"{re.escape(version)} — \d{{4}}-\d\d-\d\d", released[0]):
        yield f"CHANGELOG.md: the newest section is {released[0] if released else 'none'}; expected {version} — YYYY-MM-DD"


def build(folder: Path) -> tuple[Path, Path]:
    """Build the sdist, and the wheel from it."""
    _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT))
    ((wheel,), (sdist,)) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def install(wheel: Path, environment: Path, *, linked: bool = False) -> None:
    """Install the wheel alone. `linked` has the environment take everything that it needs from this one."""
    uv = str(Path(sys.executable).with_name("uv"))
    command = [uv, "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-cache", str(wheel)]
    _run(*command, "--python", str(environment / "bin" / "python"))
    if linked:
        (packages,) = environment.glob("lib/python*/site-packages")
        (packages / "needed.pth").write_text(sysconfig.get_path("purelib"))


async def try_out(environment: Path, folder: Path) -> None:
    """Have the installed program answer in an empty folder, and over an older database. Raises NotReleasable."""
    program = environment / "bin" / "clawgate"
    if (said := _run(str(program), "--version")) != f"{VERSION}\n":
        raise NotReleasable(f"clawgate --version says {said.strip()}, and not {VERSION}")
    (empty := folder / "empty").mkdir()
    async with serving(environment, empty) as run, opened(run.url) as page:
        await page.say("hello", agent="assistant")
        await page.answers(1)
    _run(str(program), "check", cwd=empty)
    (older := folder / "older").mkdir()
    shutil.copy(empty / "config.yaml", older)
    make_old(f"sqlite:///{older}/data/clawgate.db")
    async with serving(environment, older) as run, opened(run.url) as page:
        await run.wrote('"event":"database_upgraded"')
        if not await page.chats():
            raise NotReleasable(f"the chats of a database of revision {OLD} are not shown")


@asynccontextmanager
async def serving(environment: Path, folder: Path, **more: str) -> AsyncIterator[Process]:
    """Run `clawgate` and nothing else in this folder, at a free port."""
    process = await asyncio.create_subprocess_exec(
        environment / "bin" / "clawgate",
        cwd=folder,
        env={"PATH": f"{environment / 'bin'}:{os.environ['PATH']}", "HOME": str(folder), "CLAWGATE_PORT": "0", **more},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    run = Process(process)
    try:
        await run.ready()
        yield run
    finally:
        if process.returncode is None:
            await run.end(signal.SIGTERM)


def _git(root: Path, *words: str) -> str:
    return _run("git", *words, cwd=root).rstrip()


def _run(*command: str, cwd: Path = ROOT) -> str:
    """Return what a command printed. Raises NotReleasable with that if it fails."""
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise NotReleasable(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
