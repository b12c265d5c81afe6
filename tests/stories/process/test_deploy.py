"""docs/deploy.md and docs/upgrade.md as far as a test can follow: the backup, the unit, the read-only image."""

import asyncio
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from gateway.cli import app
from gateway.config.load import load
from tests.emulators.models.script import says
from tests.running import SECRETS, running
from tests.stories.at_work import users
from tests.stories.process.test_process import ROOT, Process, real
from tests.web_page import opened

PAGE = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
LIFE = (ROOT / "docs" / "upgrade.md").read_text(encoding="utf-8")


def blocks(section: str, language: str, page: str = PAGE) -> list[str]:
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", page, re.M | re.S)
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


MORE = """
skills: { directories: [./my-skills] }
tools: { directories: [./tools.d] }
mcp: { servers: { clock: { command: [sh, -c, exit] } } }
"""


def paste(script: str, folder: Path) -> str:
    """What a block of the page writes; `clawgate` is ours, and its home the folder above."""
    script = f'clawgate() {{ "{sys.executable}" -m gateway "$@"; }}\n{script}'
    env = {"PATH": os.environ["PATH"], "HOME": str(folder.parent), "PYTHONPATH": str(ROOT), **SECRETS}
    done = subprocess.run(
        ["bash", "-eu", "-c", script], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


async def test_deploy_backup_of_the_page_restores_everything(tmp_path: Path) -> None:
    """As the page says it, with a skill, a tool file and the folder of an MCP server in place; test_backup has the rest."""
    (back_up,), (restore,) = blocks("Back up", "sh", LIFE), blocks("Restore", "sh", LIFE)
    bot = tmp_path / "bot"
    own = {
        "my-skills/own/SKILL.md": "---\nname: own\ndescription: Own.\n---\n",
        "tools.d/dice.py": 'async def roll() -> str:\n    """Roll."""\n    return "4"\n',
        "data/mcp/clock/state.json": "{}",
    }
    for name, text in own.items():
        (bot / name).parent.mkdir(parents=True)
        (bot / name).write_text(text)
    (bot / "data").chmod(0o700)
    async with running(bot, script=[says("noted"), says("noted again")], more=MORE) as house:
        await house.say("the number is 4711")
        await house.replies(1)
        await house.idle()
        (bot / "data" / "workspaces" / "helper" / "plan.md").write_text("the plan", encoding="utf-8")
        before = await asyncio.to_thread(paste, "clawgate check", bot)
        await asyncio.to_thread(paste, back_up, bot)
        await house.say("said after the backup")
        await house.replies(2)
        await house.idle()
    after = await asyncio.to_thread(paste, restore, bot)
    new = bot / "restored"
    assert all((new / name).read_text() == text for name, text in own.items())
    assert before.splitlines() == after.splitlines()[-before.count("\n") :]
    assert stat.S_IMODE((new / "data" / "clawgate.db").stat().st_mode) == 0o600
    assert (new / "data" / "workspaces" / "helper" / "plan.md").read_text() == "the plan"
    async with running(new, script=[says("4711")], more=MORE) as house:
        await house.say("which number?")
        await house.replies(1)
        history = [text.rpartition("\n")[2] for text in users(house.anthropic.requests[-1].body)]
    assert history == ["Alice: the number is 4711", "Alice: which number?"]


def test_deploy_systemd_unit_is_valid_and_leaves_time_to_stop() -> None:
    (unit,) = blocks("On a box, with systemd", "ini")
    lines = [line for line in unit.splitlines() if line and line[0] not in "#["]
    assert all(re.fullmatch(r"[A-Z]\w+=\S.*", line) for line in lines)
    keys = dict(line.split("=", 1) for line in lines)
    from gateway.config.root import LimitsConfig

    assert int(keys["TimeoutStopSec"]) > LimitsConfig().grace_seconds
    assert keys["ReadWritePaths"] == keys["WorkingDirectory"] + "/data"
    assert "RestrictNamespaces" not in keys


def test_deploy_compose_has_no_default_password() -> None:
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"\$\{POSTGRES_PASSWORD[^}]*\}", text)) == {"${POSTGRES_PASSWORD:-}"}
    services = yaml.safe_load(text)["services"]
    assert {name for name, it in services.items() if "profiles" not in it} == {"clawgate"}
    assert services["postgres"]["depends_on"] == {"password": {"condition": "service_completed_successfully"}}
    guard = services["password"]
    (script,) = [it.replace("$$", "$") for it in guard["command"]]
    for password, code in (("", 1), ("x", 0)):
        environment = {"POSTGRES_PASSWORD": password, "PATH": os.environ["PATH"]}
        done = subprocess.run(
            [*guard["entrypoint"], script], env=environment, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr.count("\n"), "POSTGRES_PASSWORD in .env" in done.stderr) == (
            code,
            code,
            code == 1,
        )


COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
GATEWAYS = ("clawgate", "replica-1", "replica-2")


def test_deploy_container_mounts_one_folder() -> None:
    """An editor writes by rename: a file that is mounted alone stays the old one for ever."""
    (folder,) = re.findall(r"^WORKDIR (/\S+)$", DOCKERFILE.rpartition("FROM ")[2], re.M)
    assert f"VOLUME {folder}\n" in DOCKERFILE
    assert "--config" not in DOCKERFILE
    for name in GATEWAYS:
        (mount,) = COMPOSE[name]["volumes"]
        assert (mount["type"], mount["source"], mount["target"]) == ("bind", "./bot", folder)
        assert mount["bind"] == {"create_host_path": False}
        service = COMPOSE[name]
        assert (service["read_only"], service["cap_drop"], service["tmpfs"]) == (True, ["ALL"], ["/tmp"])
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert re.fullmatch(r"\$\{CLAWGATE_UID:-[1-9]\d*\}:\$\{CLAWGATE_GID:-[1-9]\d*\}", service["user"])
    for name in COMPOSE.keys() - {*GATEWAYS}:
        assert all(re.fullmatch(r"[a-z-]+:/.*", it) for it in COMPOSE[name].get("volumes", ()))


def test_deploy_container_gets_every_variable_of_the_docs(tmp_path: Path) -> None:
    pages = [ROOT / "config.yaml", *ROOT.glob("docs/examples/*.yaml"), *ROOT.glob("channels/*/README.md")]
    names = {name for it in pages for name in re.findall(r"\$\{([A-Z][A-Z0-9_]*)\b", it.read_text(encoding="utf-8"))}
    assert {"CI_HOOK_SECRET", "TRACKER_TOKEN", "TELEGRAM_BOT_TOKEN"} <= names
    for name in GATEWAYS:  # from the file next to compose's own, if it is there, but for what compose itself says
        assert COMPOSE[name]["env_file"] == [{"path": ".env", "required": False}]
        assert {*COMPOSE[name].get("environment", {})} <= {"CLAWGATE_DATABASE_URL"}
    config = tmp_path / "config.yaml"  # and from the one next to the config, also while it serves
    (tmp_path / ".env").write_text("".join(f"{name}=value-of-{name}\n" for name in sorted(names)))
    config.write_text("agents: { list: [ { id: helper, model: demo/guide } ] }\n")
    assert load(config, {}).environment == {name: f"value-of-{name}" for name in names}


@pytest.mark.slow
async def test_deploy_container_first_start_prints_a_link(tmp_path: Path) -> None:
    (command,) = re.findall(r"^CMD (\[.+\])$", DOCKERFILE, re.M)
    words = [{"8080": "0"}.get(it, it) for it in yaml.safe_load(command)[1:]]
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}

    async def begun() -> Process:
        run = Process(await real(words, {**env, "PYTHONPATH": str(ROOT)}, cwd=tmp_path))
        await run.ready()
        return run

    run = await begun()
    try:
        token = (tmp_path / ".env").read_text().partition("'")[2].rstrip("'\n")
        assert stat.S_IMODE((tmp_path / ".env").stat().st_mode) == 0o600
        assert len(token) >= 32
        assert (tmp_path / "config.yaml").is_file()
        assert any("CLAWGATE_ADMIN_TOKEN written" in it for it in run.output)
        assert token not in "".join(run.output)
        url = run.url.replace("0.0.0.0", "127.0.0.1")
        (link,) = re.findall(rf"{url}/#sign-in=(\S+)", "".join(run.output))
        async with opened(url, link=link, watching=False) as page:
            assert await page.chats() == []
    finally:
        await run.end(signal.SIGTERM)
    before = (tmp_path / ".env").read_text(), (tmp_path / "config.yaml").read_text()
    run = await begun()
    try:
        assert "#sign-in=" not in "".join(run.output)
        async with opened(run.url.replace("0.0.0.0", "127.0.0.1"), link=token, watching=False) as page:
            assert await page.chats() == []
    finally:
        await run.end(signal.SIGTERM)
    assert ((tmp_path / ".env").read_text(), (tmp_path / "config.yaml").read_text()) == before


def test_deploy_folder_of_another_user_is_named_with_the_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.chdir(tmp_path)
    os.chown(tmp_path, os.geteuid() or 65_534, -1)
    result = CliRunner().invoke(app, ["serve", "--init"])
    assert (result.exit_code, result.output.count("\n")) == (1, 1)
    assert "CLAWGATE_UID" in result.output
    assert "chown" in result.output
    assert [*tmp_path.iterdir()] == []


def test_deploy_proxy_configs_pass_body_sizes_and_streams() -> None:
    (nginx,) = blocks("Behind a reverse proxy", "nginx")
    assert nginx.count("{") == nginx.count("}")
    page = nginx.split("location / {")[1]
    assert "proxy_buffering off" in page
    for text in (nginx, *re.findall(r"max_size \d+MB", PAGE)):
        assert "21" in text
    assert "flush_interval -1" in PAGE
    assert "proxy_set_header Host $host;" in nginx.split("location")[0]
