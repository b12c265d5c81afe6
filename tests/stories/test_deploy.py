"""docs/deploy.md and docs/upgrade.md as far as a test can follow: the backup, the unit, the read-only image."""

import asyncio
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import yaml

from tests.emulators.models.script import says
from tests.running import SECRETS, running
from tests.stories.at_work import users
from tests.stories.test_process import ROOT

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


async def test_a_backup_made_while_it_serves_brings_back_what_was_said_and_sent(tmp_path: Path) -> None:
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


def test_the_unit_is_one_that_systemd_would_load_and_leaves_a_stop_its_time() -> None:
    (unit,) = blocks("On a box, with systemd", "ini")
    lines = [line for line in unit.splitlines() if line and line[0] not in "#["]
    assert all(re.fullmatch(r"[A-Z]\w+=\S.*", line) for line in lines)
    keys = dict(line.split("=", 1) for line in lines)
    from gateway.config.root import LimitsConfig

    assert int(keys["TimeoutStopSec"]) > LimitsConfig().grace_seconds
    assert keys["ReadWritePaths"] == keys["WorkingDirectory"] + "/data"
    assert "RestrictNamespaces" not in keys


def test_compose_has_no_default_password_and_says_what_to_do_where_none_is_set() -> None:
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


def test_each_proxy_lets_through_what_the_gateway_takes_and_streams() -> None:
    (nginx,) = blocks("Behind a reverse proxy", "nginx")
    assert nginx.count("{") == nginx.count("}")
    page = nginx.split("location / {")[1]
    assert "proxy_buffering off" in page
    for text in (nginx, *re.findall(r"max_size \d+MB", PAGE)):
        assert "21" in text
    assert "flush_interval -1" in PAGE
    assert "proxy_set_header Host $host;" in nginx.split("location")[0]
