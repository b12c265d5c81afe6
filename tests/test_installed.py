"""Clawgate as a person installs it: a wheel in an environment of its own, called by its name from any folder."""

import os
import re
import shutil
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from gateway.program import PACKAGES, VERSION
from tests.release import build, install, serving
from tests.stories.process.test_process import ROOT
from tests.upstream import ENVIRONMENT, Upstream, git
from tests.waiting import until
from tests.web_page import opened

pytestmark = pytest.mark.slow  # it builds, installs and starts processes

BROWSER = '#!/bin/sh\necho "$1" > "$HOME/opened.new" && mv "$HOME/opened.new" "$HOME/opened"\n'
SYSTEMCTL = """#!/bin/sh
[ "$1" = --user ] || { echo "only of a user" >&2; exit 1; }
echo "$@" >> "$HOME/systemctl"
[ ! -e "$HOME/no-bus" ] || { echo "Failed to connect to bus: No medium found" >&2; exit 1; }
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("dist"))[0]


@pytest.fixture(scope="module")
def home(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel in it; what that needs is taken from ours. As uv links an environment's files to its
    cache, skills and documents have a second name."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    install(wheel, folder, linked=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for number, path in enumerate([*packages.glob("skills/*/SKILL.md"), *packages.glob("agents/docs/*.md")]):
        (folder / f"cached-{number}").hardlink_to(path)
    return folder


@pytest.fixture
def away(tmp_path: Path) -> Path:
    """A folder that has nothing to do with Clawgate but for its own `tools`."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "__init__.py").write_text("raise SystemExit('foreign code ran')")
    return tmp_path


def environment(folder: Path, **more: str) -> dict[str, str]:
    return {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "HOME": str(folder), **more}


def call(home: Path, folder: Path, *words: str, **more: str) -> tuple[int, str]:
    """The exit code of `clawgate`, or of another program of its environment, and everything it wrote."""
    name, *options = words if words and words[0] == "python" else ("clawgate", *words)
    done = subprocess.run(
        [home / "bin" / name, *options],
        cwd=folder,
        env=environment(folder, **more),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_wheel_has_exactly_packages_docs_and_licence(wheel: Path) -> None:
    names = {it for it in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in it}
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    wanted = {it for it in files if it.partition("/")[0] in PACKAGES and "/samples/" not in it}
    wanted |= {f"agents/{it}" for it in files if it.startswith("docs/") and "/images/" not in it}
    assert names == wanted
    facts = zipfile.ZipFile(wheel).read(f"clawgate-{VERSION}.dist-info/METADATA").decode()
    assert "License-Expression: MIT" in facts
    assert "License-File: LICENSE" in facts
    assert f"\nVersion: {VERSION}\n" in facts


def test_it_works_from_any_folder_and_names_itself_as_it_was_called(home: Path, away: Path) -> None:
    assert call(home, away, "--version") == (0, f"{VERSION}\n")
    code, output = call(home, away, "init", "--yes", "--config", "bot/config.yaml")
    assert (code, "\n  clawgate doctor --config bot/config.yaml\n" in output) == (0, True)
    assert "#   clawgate serve      serve with this file" in (away / "bot" / "config.yaml").read_text()
    code, output = call(home, away / "bot", "check", TELEGRAM_BOT_TOKEN=f"123456789:{'x' * 35}")
    assert code == 0
    assert "a stranger gets a code: clawgate pairing approve CODE" in output
    assert "skills create-python-script translate weekly-report" in output
    _, output = call(home, away / "bot", "--help")
    assert output.split()[:2] == ["Usage:", "clawgate"]
    assert "--install-completion" in output
    code, output = call(home, away / "bot", "python", "-m", "gateway", "--help")
    assert output.split()[:4] == ["Usage:", "python", "-m", "gateway"]
    assert "--install-completion" not in output


def test_a_foreign_package_is_refused_also_where_it_was_written_over_ours(home: Path, away: Path) -> None:
    code, output = call(home, away, "python", "-m", "gateway", "check")
    assert code == 1
    assert "'tools' would come from" in output
    assert "Start it as clawgate" in output
    (ours,) = home.glob("lib/python*/site-packages/agents/__init__.py")
    ours.write_text("raise SystemExit('foreign code ran')")
    try:
        code, output = call(home, away, "check")
    finally:
        ours.write_text("")
    assert code == 1
    assert "'agents' is another distribution's" in output
    assert "foreign code ran" not in output


def test_a_shell_completes_it(home: Path, tmp_path: Path) -> None:
    words = {"COMP_WORDS": "clawgate se", "COMP_CWORD": "1", "_CLAWGATE_COMPLETE": "complete_bash"}
    assert call(home, tmp_path, **words)[1].split() == ["serve", "send", "service", "sessions"]


async def test_installed_in_an_empty_folder_it_answers(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    desktop = {"DISPLAY": ":9", "BROWSER": str(executable(tmp_path / "bin" / "browser", BROWSER))}
    async with serving(home, folder, **desktop) as run:
        assert f"{folder / 'config.yaml'}: written" in run.output[0]
        await until((folder / "opened").exists)
        assert (folder / "opened").read_text() == f"{run.url}\n"
        async with opened(run.url) as page:
            await page.say("hello", agent="assistant")
            (answer,) = await page.answers(1)
        assert "demo/guide" in answer
    assert {it.name for it in folder.iterdir()} == {"config.yaml", "data", "opened"}
    assert stat.S_IMODE((folder / "data" / "clawgate.db").stat().st_mode) == 0o600
    (folder / "opened").unlink()
    before = (folder / "config.yaml").read_text()
    async with serving(home, folder, SSH_CONNECTION="somewhere", **desktop) as run:
        assert "written" not in run.output[0]
        async with opened(run.url) as page:
            assert [it["title"] for it in await page.chats()] == ["hello"]
    assert not (folder / "opened").exists()
    assert (folder / "config.yaml").read_text() == before


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
@pytest.mark.parametrize("channel", ["telegram", "feishu"])
async def test_git_pull_after_a_quickstart_has_no_conflict(home: Path, tmp_path: Path, channel: str) -> None:
    upstream = Upstream(tmp_path / "upstream")
    page = (ROOT / "docs" / f"quickstart-{channel}.md").read_text(encoding="utf-8")
    (first, *_) = re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S)
    done = [line for line in first.splitlines() if not re.match(r"uv tool install|clawgate\b", line)]
    assert "uv tool install ./clawgate " in first, "what `home` is"
    commands = "\n".join(done).replace("<this repository>", str(upstream.folder))
    env = {**os.environ, **ENVIRONMENT, "HOME": str(tmp_path)}
    subprocess.run(
        ["bash", "-euc", f'{commands}\n[ "$PWD" = ~/bot ]'], cwd=tmp_path, env=env, check=True, capture_output=True
    )
    config = tmp_path / "bot" / "config.yaml"
    async with serving(home, config.parent) as run:
        await run.wrote("/claim ")
        assert not any("git tracks" in line for line in run.output)
    edited = config.read_text(encoding="utf-8").replace("# owners: [", 'owners: ["telegram:500000011"] # [')
    config.write_text(edited, encoding="utf-8")
    upstream.change_config()
    git(tmp_path / "clawgate", "pull", "--quiet")
    assert "More about owners" in (tmp_path / "clawgate" / "config.yaml").read_text(encoding="utf-8")
    async with serving(home, config.parent) as run:
        assert any("listens on" in line for line in run.output)
    assert config.read_text(encoding="utf-8") == edited


def keys_of(text: str) -> dict[str, str]:
    lines = [line for line in text.splitlines() if line and line[0] not in "#["]
    assert all(re.fullmatch(r"[A-Z]\w+=\S.*", line) for line in lines)
    return dict(line.split("=", 1) for line in lines)


def test_service_of_a_user_is_installed_and_removed(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "my bot"
    folder.mkdir()
    shutil.copy(ROOT / "config.yaml", folder)
    code, output = call(home, folder, "service", "install", PATH="/nowhere")
    assert (code, output.count("\n")) == (1, 1)
    assert "systemd does not run here" in output
    executable(folder / "bin" / "systemctl", SYSTEMCTL)
    (folder / "no-bus").touch()
    code, output = call(home, folder, "service", "install")
    assert (code, output.count("\n")) == (1, 1)
    assert "Failed to connect to bus" in output
    assert not (folder / ".config").exists()
    for name in ("no-bus", "systemctl"):
        (folder / name).unlink()
    code, output = call(home, folder, "service", "install", ANTHROPIC_API_KEY="only-exported-91827")
    unit = folder / ".config" / "systemd" / "user" / "clawgate.service"
    assert code == 0, output
    assert f"{unit}: written, and started" in output
    assert "loginctl enable-linger" in output
    assert f"ANTHROPIC_API_KEY: set in this shell alone; write it into {folder / '.env'}" in output
    assert "91827" not in output + unit.read_text()
    keys = keys_of(unit.read_text())
    assert keys["ExecStart"] == f'{home}/bin/clawgate serve --config "{folder}/config.yaml"'
    assert keys["WorkingDirectory"] == str(folder)
    assert int(keys["TimeoutStopSec"]) > 25
    assert call(home, folder, "service", "install", "--print", PATH="/nowhere") == (0, unit.read_text())
    assert call(home, folder, "service", "status")[0] == 0
    code, output = call(home, folder, "service", "uninstall")
    assert (code, unit.exists()) == (0, False)
    calls = [it.removeprefix("--user ") for it in (folder / "systemctl").read_text().splitlines()]
    name = "clawgate.service"
    made = ["daemon-reload", "daemon-reload", f"enable {name}", f"restart {name}"]
    assert calls == [*made, f"--no-pager status {name}", f"disable --now {name}", "daemon-reload"]
    code, output = call(home, folder, "service", "status")
    assert (code, "clawgate service install" in output) == (1, True)


READS = """
import sys
from pathlib import Path
from agents.runner import DOCS_DIR
from tools.workspace import Workspace
workspace = Workspace(root=Path(sys.argv[1])).serving(mounts={"docs": DOCS_DIR})
with workspace.reading("docs/upgrade.md") as fd:
    print(open(fd, closefd=False).readline().strip())
"""


def test_documents_are_read_through_hard_links(home: Path, tmp_path: Path) -> None:
    code, output = call(home, tmp_path, "python", "-c", READS, str(tmp_path / "workspace"))
    assert (code, output) == (0, "# Install, update, back up, remove\n")
