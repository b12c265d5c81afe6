"""Commands beside a gateway whose config file was broken, moved or changed: they work against what is in force."""

import asyncio
import json
import os
import re
import signal
import stat
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from gateway.cli import app
from tests import warm
from tests.stories.process.test_process import GATEWAY, started
from tests.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.slow  # it starts processes

GOOD = """\
server: { port: 1 }
database: { url: "sqlite:///./data/clawgate.db" }
channels: { web: {} }
providers: { anthropic: { apiKey: "${A_KEY}" } }
agents: { list: [ { id: helper, model: demo/guide } ] }
"""
ENV = {"A_KEY": "canary-of-the-provider-91827"}
EDITS: dict[str, Callable[[Path], object]] = {
    "good": lambda file: file.write_text(GOOD),
    "unparsable": lambda file: file.write_text(f"{GOOD}oops: [\n"),
    "unknown key": lambda file: file.write_text(f"{GOOD}bogus: 1\n"),
    "unset name": lambda file: file.write_text(f"{GOOD}language: ${{NOBODY_SETS_THIS}}\n"),
    "another port": lambda file: file.write_text(GOOD.replace("port: 1", "port: 2")),
    "moved": lambda file: file.rename(file.with_suffix(".moved")),
}
"""What an operator does to the file while the gateway serves it."""

REFUSES = "serve", "check", "rehearse", "service install --print"
"""They begin with the file, or judge it."""
STORED = (
    "approvals list",
    "approvals revoke K7QF-2M9X-D3TA",
    "dead-letters list",
    "dead-letters replay part-1",
    "feedback",
    "letters",
    "pairing approve ABCD-EFGH",
    "pairing list",
    "replay part-1",
    "schedules cancel R-AAAAA",
    "schedules list",
    "schedules pause R-AAAAA",
    "schedules run R-AAAAA",
    "sessions export nobody",
    "sessions list",
    "sessions show nobody",
    "turns list",
    "turns show 1",
    "usage",
)
"""They need the database alone."""
WHOLE = (
    "mcp accept nobody",
    "mcp list",
    "mcp try nobody nothing",
    "pairing revoke telegram:1",
    "routes explain --channel web",
    "send --to nowhere:1 hello",
    "sessions erase nobody --yes",
    "skills add ./nowhere --yes",
    "skills list",
    "skills remove nobody --yes",
    "skills update nobody --yes",
)
"""They need a whole config: that of the gateway, or of a file without a mistake."""
FINDS = "doctor", "status"
"""They print a mistake among their findings."""
TURN = "chat hello"
BACKUP = "backup"
NO_CONFIG = "init", "restore", "service status", "service uninstall"
MOST = ("pairing approve ABCD-EFGH", "turns list", "routes explain --channel web")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(GOOD, encoding="utf-8")
    return path


async def run(words: str, file: Path, **more: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    env = {"PATH": os.environ["PATH"], "HOME": str(file.parent), **ENV, **more}
    arguments = (*words.split(), "--config", str(file))
    process = await warm.start(GATEWAY, *arguments, env=env, stdout=PIPE, stderr=PIPE)
    async with asyncio.timeout(PATIENCE_SECONDS):
        output, errors = await process.communicate()
    return process.returncode or 0, output.decode(), errors.decode()


@asynccontextmanager
async def edited(file: Path, edit: str) -> AsyncIterator[None]:
    EDITS[edit](file)
    try:
        yield
    finally:
        file.with_suffix(".moved").unlink(missing_ok=True)
        file.write_text(GOOD)


def names(command: Any, before: str = "") -> Iterator[str]:
    beneath = getattr(command, "commands", None)
    if beneath is None:
        yield before
    for name, it in (beneath or {}).items():
        yield from names(it, f"{before} {name}".strip())


def test_running_config_matrix_has_every_command() -> None:
    listed = [*REFUSES, *STORED, *WHOLE, *FINDS, *NO_CONFIG, TURN, BACKUP]
    commands = sorted(names(get_command(app)))
    assert [it for it in commands if not any(f"{line} ".startswith(f"{it} ") for line in listed)] == []
    assert len(commands) == len(listed)


def mistake(edit: str) -> str:
    """The place that a message names, if the edit is one."""
    places = {"unparsable": "config.yaml:7:1", "unknown key": "config.yaml:6:1", "unset name": "config.yaml:6:11"}
    return places.get(edit, "config.yaml:1:1: cannot be read" if edit == "moved" else "")


def assert_refused(outcome: tuple[int, str, str], edit: str, words: str) -> None:
    code, output, errors = outcome
    assert code in (1, 2), (words, edit, outcome)
    assert mistake(edit) in errors + output, (words, edit, outcome)
    assert "warning" not in errors, (words, edit, outcome)


def assert_warned(outcome: tuple[int, str, str], good: tuple[int, str, str], edit: str, words: str, held: str) -> None:
    """The same outcome as without the mistake, and one line about it."""
    code, output, errors = outcome
    if mistake(edit):
        line, _, errors = errors.partition("\n")
        assert line.startswith("warning: "), (words, edit, outcome)
        assert mistake(edit) in line, (words, edit, outcome)
        assert held in line, (words, edit, outcome)
    assert (code, errors) == (good[0], good[2]), (words, edit, outcome, good)
    if words != "usage":  # its first line has the time
        assert output == good[1], (words, edit, outcome, good)


def record_of(file: Path) -> dict[str, Any]:
    (path,) = (file.parent / "data").glob("serving-*.json")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert ENV["A_KEY"] not in path.read_text()
    record: dict[str, Any] = json.loads(path.read_text())
    return record


async def beside(file: Path, edits: list[str], commands: tuple[str, ...], refusing: tuple[str, ...] = ()) -> None:
    """Each command on each edit of the file, beside a gateway that serves."""
    async with started(file, ENV):
        held = f"; version {record_of(file)['version']} is still in force"
        good = {words: await run(words, file) for words in commands}
        for edit in edits:
            async with edited(file, edit):
                for words in commands:
                    assert_warned(await run(words, file), good[words], edit, words, held)
                for words in refusing if mistake(edit) else ():
                    assert_refused(await run(words, file), edit, words)
        for edit in edits:  # only now, as it is one more turn
            async with edited(file, edit):
                code, output, _ = await run(TURN, file)
                assert (code, bool(output)) == (0, True), edit


async def without(file: Path, edits: list[str], commands: tuple[str, ...]) -> None:
    """The same where no gateway serves: a command that needs the database alone works if the file tells where it is."""
    good = {words: await run(words, file) for words in commands}
    for edit in edits:
        async with edited(file, edit):
            for words in commands:
                outcome = await run(words, file)
                works = not mistake(edit) or (words in STORED and edit in ("unknown key", "unset name"))
                if works:
                    assert_warned(outcome, good[words], edit, words, "")
                else:
                    assert_refused(outcome, edit, words)
            if mistake(edit):
                assert_refused(await run(TURN, file), edit, TURN)


async def test_running_config_is_used_when_the_file_is_broken_or_moved(file: Path) -> None:
    await beside(file, [it for it in EDITS if it != "good"], MOST)


async def test_broken_config_still_names_the_database_without_a_gateway(file: Path) -> None:
    async with started(file, ENV) as process:
        await process.end(signal.SIGKILL)
    assert [*(file.parent / "data").glob("serving-*.json")]
    await without(file, ["unparsable", "unknown key", "moved"], MOST)


@pytest.mark.long
async def test_running_config_is_used_by_every_command(file: Path) -> None:
    await beside(file, [*EDITS], (*STORED, *WHOLE), REFUSES)


@pytest.mark.long
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
async def test_broken_config_and_every_command_after_a_gateway(file: Path, end: signal.Signals) -> None:
    async with started(file, ENV) as process:
        await process.end(end)
    assert len([*(file.parent / "data").glob("serving-*.json")]) == (end == signal.SIGKILL)
    await without(file, [*EDITS], (*STORED, *WHOLE))


async def status(file: Path, **more: str) -> dict[str, dict[str, str]]:
    """The findings of `status`, by their check."""
    code, output, errors = await run("status --json", file, **more)
    assert errors == ""
    findings = {it["check"]: it for it in json.loads(output)}
    assert code == any(it["status"] != "ok" for it in findings.values())
    return findings


@pytest.mark.parametrize("edit", ["unparsable", "unknown key", "unset name", "moved"])
async def test_running_config_mistake_is_named_by_status_and_doctor(file: Path, edit: str) -> None:
    async with started(file, ENV) as process:
        before = await status(file)
        assert [it["status"] for it in before.values()] == ["ok"] * len(before)
        async with edited(file, edit):
            after = await status(file)
            code, output, _ = await run("doctor", file)
        assert f"ready at {process.url}" in after["gateway"]["message"]
        line = after.pop("config")
        assert mistake(edit) in line["message"]
        assert line["message"].endswith(f"; version {record_of(file)['version']} is still in force")
        assert after == {name: it for name, it in before.items() if name != "config"}
        assert code == 1
        assert re.search(rf"^error +config: .*{re.escape(mistake(edit))}.* is still in force", output, re.M), output
        assert f"ready at {process.url}" in output


async def test_running_config_names_a_change_that_needs_a_restart(file: Path) -> None:
    changed = GOOD.replace("port: 1", "port: 2").replace("clawgate.db", "another.db")
    async with started(file, ENV) as process:
        file.write_text(changed)
        await until(lambda: record_of(file)["text"] == changed)
        found = await status(file)
        assert f"ready at {process.url}" in found["gateway"]["message"]
        assert found["config"]["message"].endswith("needs a restart: database, server.port")
        assert found["database"]["message"].endswith("/clawgate.db")
        assert (await run("pairing list", file))[0] == 0
        _, output, _ = await run("doctor", file)
        assert "needs a restart: database, server.port" in output
    assert "start it: " in (await status(file))["gateway"]["fix"]


async def test_running_config_keys_missing_in_the_shell(file: Path) -> None:
    """A key that only the service has: what would delete by a path that the config names refuses, all else works."""
    async with started(file, ENV):
        found = await status(file, A_KEY="")
        assert "A_KEY is set but empty" in found["config"]["message"]
        code, output, errors = await run(TURN, file, A_KEY="")
        assert (code, bool(output)) == (0, True), errors
        for words in ("sessions erase nobody --yes", "skills remove nobody --yes", "pairing revoke telegram:1"):
            code, _, errors = await run(words, file, A_KEY="")
            assert (code, "A_KEY" in errors, "warning" in errors) == (1, True, False), errors


async def test_running_config_reports_a_stuck_gateway(file: Path) -> None:
    async with started(file, ENV) as process:
        os.kill(process.process.pid, signal.SIGSTOP)
        try:
            found = await status(file)
        finally:
            os.kill(process.process.pid, signal.SIGCONT)
        assert f"process {process.process.pid}, does not answer at {process.url}" in found["gateway"]["message"]


async def test_running_config_record_is_trusted_only_if_live_and_private(file: Path) -> None:
    async with started(file, ENV) as process:
        (path,) = (file.parent / "data").glob("serving-*.json")
        copy = path.with_name("serving-copied.json")
        copy.write_text(path.read_text().replace(f'"port": {record_of(file)["port"]}', '"port": 1'))
        copy.chmod(0o600)
        assert f"ready at {process.url}" in (await status(file))["gateway"]["message"], "no process holds the copy"
        copy.unlink()
        path.chmod(0o622)
        assert "no gateway serves at http://127.0.0.1:1" in (await status(file))["gateway"]["message"]
        path.chmod(0o600)
        await process.end(signal.SIGKILL)
    assert path.exists()
    async with started(file, ENV):
        assert record_of(file)["port"] != 1
        assert not path.exists(), "the next start removes what a killed one left"


async def test_running_config_record_is_found_with_data_elsewhere(tmp_path: Path) -> None:
    """The database may be anywhere: the broken file no longer says where."""
    folder = tmp_path / "etc"
    folder.mkdir()
    (tmp_path / "srv").mkdir()
    file = folder / "config.yaml"
    text = GOOD.replace("sqlite:///./data", f"sqlite:///{tmp_path}/srv")
    text = text.replace("demo/guide", f"demo/guide, workspaceDir: {tmp_path}/srv/w")
    text += f'tools: {{ files: {{ uploadsDir: "{tmp_path}/srv/uploads" }} }}\n'
    file.write_text(text)
    async with started(file, ENV) as process:
        found = [*tmp_path.rglob("serving-*.json")]
        assert (tmp_path / "srv") in {it.parent for it in found}
        assert len(found) == 2
        file.write_text("oops: [")
        assert f"ready at {process.url}" in (await status(file))["gateway"]["message"]
        assert (await run("turns list", file))[0] == 0
        assert await process.end(signal.SIGTERM) == 0
    assert [*tmp_path.rglob("serving-*.json")] == []


async def test_running_config_record_is_per_replica(file: Path, postgres_url: str) -> None:
    """Its password is in the environment, and in no record."""
    user, _, rest = postgres_url.removeprefix("postgresql://").partition("@")
    file.write_text(GOOD.replace("sqlite:///./data/clawgate.db", f"postgresql://${{DB_USER}}@{rest}"))
    env = ENV | {"DB_USER": user}
    async with started(file, env) as first, started(file, env) as second:
        assert len([*(file.parent / "data").glob("serving-*.json")]) == 2
        await second.end(signal.SIGKILL)
        file.write_text(GOOD)
        found = await status(file, DB_USER=user)
        assert f"ready at {first.url}" in found["gateway"]["message"]
        assert found["database"]["message"].startswith("postgresql://")
        assert (await run("pairing list", file, DB_USER=user))[0] == 0
        code, _, errors = await run("pairing list", file, DB_USER="nobody-knows")
        assert (code, "nobody-knows" in errors) == (1, True), "its own user, as the shell says"


@pytest.mark.parametrize("edit", ["unparsable", "moved"])
async def test_backup_of_a_broken_config_has_the_running_one(file: Path, edit: str) -> None:
    saved, folder = file.parent / "saved.tar.gz", file.parent / "restored"
    async with started(file, ENV), edited(file, edit):
        code, _, errors = await run(f"backup {saved}", file)
        assert (code, "is still in force" in errors) == (0, True), errors
    env = {"PATH": os.environ["PATH"], "HOME": str(file.parent), **ENV}
    arguments = ("restore", str(saved), str(folder))
    process = await warm.start(GATEWAY, *arguments, env=env, stdout=PIPE, stderr=PIPE)
    await process.communicate()
    assert (folder / "config.yaml").read_text() == GOOD
    assert [*(folder / "data").glob("serving-*.json")] == []
