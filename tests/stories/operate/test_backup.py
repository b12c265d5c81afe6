"""`backup` next to a serving gateway, and `restore` into an empty folder. A hostile file is refused and leaves nothing."""

import asyncio
import contextlib
import gzip
import io
import json
import os
import re
import signal
import sqlite3
import stat
import tarfile
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from gateway.cli import app
from gateway.config.folders import mark_of, paths_of
from gateway.config.load import load
from gateway.config.reader import fields_of
from gateway.config.reference import all_models, documentation
from gateway.config.root import Config, DatabaseConfig
from gateway.operate.backup_file import FILES, MANIFEST
from gateway.store.opening import open_store
from tests.emulators.models.script import says
from tests.gateway.test_skills_command import DOCUMENT, git
from tests.held import Held
from tests.postgres import PostgresServer
from tests.running import ALICE, ALICE_CHAT, SECRETS, feishu_emulator, push, running
from tests.stories.at_work import NEVER, prompt, users, works
from tests.stories.process.test_process import ask, platforms, started
from tests.waiting import until

AGENTS = f"""
agents:
  list:
    - id: helper
      model: anthropic/claude-sonnet-4-6
      tools: {{ allow: [read, write, ls, memory_search, roll] }}
      skills: {{ allow: [greet, own] }}
owners: ["feishu:{ALICE}"]
"""
MORE = """
server: { adminToken: "${file:secrets/admin.token}" }
hooks: { ci: { secret: "${CI_HOOK_SECRET}", verify: token, to: "feishu:oc_960000000000000000000000000000", task: look } }
tools: { directories: [./tools.d] }
skills: { directories: [./my-skills] }
mcp: { servers: { clock: { command: [sh, ./serve.sh] } } }
"""
TOOL = 'async def roll(sides: int) -> str:\n    """Roll a die."""\n    return "4"\n'


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def database(engine: str, request: pytest.FixtureRequest) -> Iterator[Callable[[], str]]:
    """Addresses of databases without a table."""
    made: list[str] = []
    if engine == "sqlite":
        yield str
        return
    server: PostgresServer = request.getfixturevalue("postgres")

    def new() -> str:
        made.append(server.new_database())
        return made[-1]

    yield new
    for address in made:
        server.drop(address)


def called(*words: str, cwd: Path, env: Mapping[str, str] = SECRETS) -> tuple[int, str]:
    """The exit code of a command in that folder, and everything it wrote."""
    with contextlib.chdir(cwd):
        result = CliRunner().invoke(app, [*words], env={"HOME": str(cwd), **env})
    return result.exit_code, result.output


def write(path: Path, text: str, mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def furnish(folder: Path) -> None:
    """Everything that a config can name, next to the config."""
    write(folder / ".env", "CI_HOOK_SECRET='canary-hook-secret-91827'\n", 0o600)
    write(folder / "secrets" / "admin.token", "canary-admin-token-91827-0123456789\n", 0o600)
    write(folder / "tools.d" / "dice.py", TOOL)
    write(folder / "my-skills" / "own" / "SKILL.md", DOCUMENT.format(name="own"))
    write(folder / "data" / "mcp" / "clock" / "serve.sh", "exit 1\n", 0o755)
    write(folder / "data" / "mcp" / "clock" / "state.json", "{}")
    write(folder / "data" / "uploads" / "s" / "m" / "plan.pdf", "%PDF")
    write(folder / "data" / "workspaces" / "helper" / "deep" / "run.sh", "echo\n", 0o755)
    workspace = folder / "data" / "workspaces" / "helper"
    (workspace / "empty").mkdir()
    (workspace / "latest").symlink_to("deep/run.sh")
    (workspace / "away").symlink_to("/etc/hostname")
    os.mkfifo(workspace / "pipe")
    for place in (folder / "data", folder / "data" / "uploads", workspace):
        place.chmod(0o700)
    source = folder.parent / "published"
    write(source / "greet" / "SKILL.md", DOCUMENT.format(name="greet"))
    write(source / "greet" / "hello.sh", "echo hello\n", 0o755)
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "one")):
        git(source, *words)
    write(folder / "config.yaml", "agents: { list: [ { id: helper, model: demo/guide } ] }\n")
    assert called("skills", "add", str(source), "--yes", cwd=folder)[0] == 0


def tree(folder: Path, *without: str) -> dict[str, tuple[int, str]]:
    """Mode and content of everything beneath."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        name = str(path.relative_to(folder))
        if not name.startswith(without):
            content = (
                os.readlink(path)
                if path.is_symlink()
                else repr(path.read_bytes())
                if stat.S_ISREG(status.st_mode)
                else ""
            )
            found[name] = stat.S_IMODE(status.st_mode), content
    return found


async def test_backup_during_a_turn_restores_everything(
    tmp_path: Path, engine: str, database: Callable[[], str]
) -> None:
    bot, new, file = tmp_path / "bot", tmp_path / "new", tmp_path / "backup.tar.gz"
    bot.mkdir()
    furnish(bot)
    more = MORE + (f'database: {{ url: "{database()}" }}\n' if engine == "postgresql" else "")
    async with running(bot, script=[says("noted")], agents=AGENTS, more=more) as house:
        await house.say("the number is 4711")
        await house.replies(1)
        await house.say("/remember I like tea")
        await house.replies(2)
        await house.idle()
        house.line.hold()
        await house.say("a long story, please")
        await house.until(lambda: house.line.holding)
        code, output = await asyncio.to_thread(called, "backup", str(file), cwd=bot)
        assert (code, "written and verified" in output) == (0, True), output
        assert "ANTHROPIC_API_KEY" in output
        assert "91827" not in output
        house.anthropic.script = [says("once upon a time")]
        house.line.release()
        await house.replies(3)
        await house.idle()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [it.name for it in tmp_path.iterdir() if it.name.startswith(".")] == []
    _, before = called("check", cwd=bot)
    where = database() if engine == "postgresql" else ""
    option = ("--database-url", where) if where else ()
    code, output = called("restore", str(file), str(new), *option, cwd=tmp_path)
    assert code == 0, output
    assert "1 message, 0 reply parts: the gateway that served went on with them" in output
    assert "both would answer" in output
    passed_over = ("data/clawgate.db", "data/workspaces/helper/away", "data/workspaces/helper/pipe")
    there = tree(bot, *passed_over, "config.yaml")
    assert tree(new, *passed_over, "config.yaml") == there
    assert {"skills.lock", "skills.d/greet/hello.sh", "data/mcp/clock/state.json", "secrets/admin.token"} < there.keys()
    for name in (".env", "secrets/admin.token", *(["data/clawgate.db"] if not where else [])):
        assert stat.S_IMODE((new / name).stat().st_mode) == 0o600
    if where:
        text = (new / "config.yaml").read_text()
        (new / "config.yaml").write_text(text.replace(text.partition('url: "')[2].partition('"')[0], where))
        more = MORE + f'database: {{ url: "{where}" }}\n'
    code, after = called("check", cwd=new)
    named = 1 if where else 0  # the first line names the database
    assert (code, after.splitlines()[named:]) == (0, before.splitlines()[named:])
    code, output = called("dead-letters", "list", cwd=new)
    assert (code, "message-" in output) == (0, True), output
    async with running(new, script=[says("4711")], agents=AGENTS, more=more) as house:
        assert house.feishu.messages == []  # what was in flight is the original's to answer
        await house.say("which number?")
        await house.replies(1)
        spoken = [text.rpartition("\n")[2] for text in users(house.anthropic.requests[-1].body)]
        assert spoken == ["Alice: the number is 4711", "Alice: which number?"]
        assert all(f"<name>{it}</name>" in prompt(house) for it in ("greet", "own"))
        await house.idle()
        (rolled,) = await works(house, ("roll", {"sides": 6}))
        assert rolled == "4"
        await house.say("/remember")
        assert "I like tea" in (await house.replies(3))[-1]


def archive(path: Path, *, manifest: Any = None, files: Mapping[str, bytes] | None = None, **header: Any) -> Path:
    """A file such as `backup` writes, with other files and another manifest; `header` is of the first file."""
    with gzip.open(path, "wb") as packed, tarfile.open(fileobj=packed, mode="w:") as tar:
        for number, (name, content) in enumerate({**(files or {}), MANIFEST: json.dumps(manifest).encode()}.items()):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for key, value in header.items() if number == 0 else ():
                setattr(info, key, value)
            tar.addfile(info, io.BytesIO(content))
    return path


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The backup of a small bot that has no database yet."""
    folder = tmp_path_factory.mktemp("good")
    write(folder / "config.yaml", "agents: { list: [ { id: helper, model: demo/guide } ] }\n")
    write(folder / "data" / "workspaces" / "helper" / "notes.md", "notes")
    assert called("backup", "../good.tar.gz", cwd=folder)[0] == 0
    return folder.parent / "good.tar.gz"


def contents(path: Path) -> tuple[dict[str, bytes], dict[str, Any]]:
    with tarfile.open(path, "r:gz") as tar:
        found = {it.name: content.read() for it in tar if (content := tar.extractfile(it))}
    return found, json.loads(found.pop(MANIFEST))


NOTES = "data/workspaces/helper/notes.md"
LINK = {"path": "data/workspaces/helper/l", "target": "notes.md"}
PATHS = [
    "/etc/x",
    "../x",
    "a/../../x",
    "a//b",
    "a/./b",
    "",
    ".",
    "a\0b",
    "a\nb",
    "x" * 5_000,
    "config.yaml/x",
    "a/",
    "~/../x/..",
]
TARGETS = ["/etc/passwd", "../../../../x", "a/../../../../x", "..//x", "", "a\0", "notes.md/../../../../.."]


def renamed(name: str) -> Callable[[dict[str, bytes], dict[str, Any]], None]:
    def change(files: dict[str, bytes], manifest: dict[str, Any]) -> None:
        files[FILES + name] = files.pop(FILES + NOTES)
        next(it for it in manifest["files"] if it["path"] == NOTES)["path"] = name

    return change


def linked(**link: str) -> Callable[[dict[str, bytes], dict[str, Any]], None]:
    return lambda _, manifest: manifest.update(links=[LINK | link])


def told(**values: Any) -> Callable[[dict[str, bytes], dict[str, Any]], None]:
    return lambda _, manifest: manifest.update(values)


def filed(**values: Any) -> Callable[[dict[str, bytes], dict[str, Any]], None]:
    return lambda _, manifest: manifest["files"][0].update(values)


def added(files: dict[str, bytes], _: dict[str, Any]) -> None:
    files["files/more"] = b"more"


def lacking(files: dict[str, bytes], _: dict[str, Any]) -> None:
    del files[FILES + NOTES]


def changed(files: dict[str, bytes], _: dict[str, Any]) -> None:
    files[FILES + NOTES] = b"other"


def doubled(_: dict[str, bytes], manifest: dict[str, Any]) -> None:
    manifest["files"].append(manifest["files"][0])


def stored(content: bytes) -> Callable[[dict[str, bytes], dict[str, Any]], None]:
    """A database of these bytes, under their right hash."""

    def change(files: dict[str, bytes], manifest: dict[str, Any]) -> None:
        name = "data/clawgate.db"
        files[FILES + name] = content
        entry = {"path": name, "size": len(content), "sha256": sha256(content).hexdigest(), "mode": 0o600}
        manifest["files"].append(manifest["files"][0] | entry)
        manifest.update(database=name, revision="0026")

    return change


def foreign() -> bytes:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE alembic_version (version_num TEXT)")
        connection.execute("INSERT INTO alembic_version VALUES ('0000')")
        connection.commit()
        return connection.serialize()


HOSTILE = {
    "a database of bytes": stored(b"garbage" * 1_000),
    "an empty database": stored(b""),
    "a foreign database": stored(foreign()),
    **{f"path {name[:20]!r}": renamed(name) for name in PATHS},
    **{f"link to {target!r}": linked(target=target) for target in TARGETS},
    **{f"link at {name[:20]!r}": linked(path=name) for name in PATHS},
    "a link above a file": linked(path="data/workspaces/helper", target="elsewhere"),
    "a link over a file": linked(path=NOTES),
    "a folder over a file": told(folders=[{"path": NOTES, "mode": 0o700, "uid": 0, "gid": 0}]),
    "a folder outside": told(folders=[{"path": "../x", "mode": 0o700, "uid": 0, "gid": 0}]),
    "a newer database": told(revision="9999"),
    "a database from before 1.0.0": told(revision="0012"),
    "no such config": told(config="other.yaml"),
    "a config outside": told(config="../config.yaml"),
    "no such database": told(database="data/clawgate.db"),
    "a newer format": told(format=2),
    "an odd revision": told(revision="; DROP"),
    "an unknown key": told(more=1),
    "a special mode": filed(mode=0o4755),
    "another hash": filed(sha256="0" * 64),
    "another size": filed(size=1),
    "a negative size": filed(size=-1),
    "a file more": added,
    "a file less": lacking,
    "another content": changed,
    "a file twice": doubled,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_restore_refuses_a_hostile_backup_and_leaves_nothing(tmp_path: Path, good: Path, name: str) -> None:
    files, manifest = contents(good)
    HOSTILE[name](files, manifest)
    refused(archive(tmp_path / "bad.tar.gz", manifest=manifest, files=files), tmp_path)


@pytest.mark.parametrize(
    "header",
    [
        {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd", "size": 0},
        {"type": tarfile.LNKTYPE, "linkname": "files/config.yaml", "size": 0},
        {"type": tarfile.FIFOTYPE, "size": 0},
        {"type": tarfile.CHRTYPE, "size": 0},
        {"type": tarfile.DIRTYPE, "size": 0},
        {"type": tarfile.GNUTYPE_LONGNAME},
        {"pax_headers": {"path": "x" * 20_000_000}},
        {"pax_headers": {"GNU.sparse.map": "0,1", "GNU.sparse.size": "1"}},
    ],
    ids=lambda it: str(it)[:40],
)
def test_restore_refuses_an_archive_with_special_files(tmp_path: Path, good: Path, header: Any) -> None:
    files, manifest = contents(good)
    refused(archive(tmp_path / "bad.tar.gz", manifest=manifest, files=files, **header), tmp_path)


def test_restore_refuses_endless_tar_headers(tmp_path: Path) -> None:
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 2
    block = header.tobuf(tarfile.GNU_FORMAT) + b"a".ljust(tarfile.BLOCKSIZE, b"\0")
    (tmp_path / "bad.tar.gz").write_bytes(gzip.compress(block * 5_000))
    refused(tmp_path / "bad.tar.gz", tmp_path)


def refused(file: Path, folder: Path) -> None:
    before = tree(folder)
    code, output = called("restore", str(file), "new", cwd=folder)
    assert (code, output.count("\n")) == (1, 1), output[:2_000]
    new = folder / "new"
    assert tree(folder) == before | ({"new": (0o700, "")} if new.exists() else {})


@given(data=st.data())
def test_restore_refuses_a_damaged_backup(tmp_path_factory: pytest.TempPathFactory, good: Path, data: Any) -> None:
    whole = good.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    cut = data.draw(st.booleans())
    bad = whole[:at] if cut else whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :]
    folder = tmp_path_factory.mktemp("damaged")
    (folder / "bad.tar.gz").write_bytes(bad)
    code, output = called("restore", "bad.tar.gz", "new", cwd=folder)
    assert not (code and (folder / "new").exists() and [*(folder / "new").iterdir()]), output
    if code == 0:  # only what gzip says of itself had changed, such as its time
        assert (folder / "new" / NOTES).read_text() == "notes"


def test_restore_overwrites_nothing_and_names_the_obstacle(tmp_path: Path, good: Path) -> None:
    full = tmp_path / "full"
    write(full / "config.yaml", "mine")
    before = tree(tmp_path)
    code, output = called("restore", str(good), "full", cwd=tmp_path)
    assert (code, "has config.yaml, and a restore overwrites nothing" in output) == (1, True)
    code, output = called("restore", str(good), "full/config.yaml", cwd=tmp_path)
    assert (code, "is no folder" in output) == (1, True)
    code, output = called("restore", "nothing.tar.gz", "new", cwd=tmp_path)
    assert (code, output) == (1, "nothing.tar.gz: No such file or directory\n")
    assert tree(tmp_path) == before
    own = tmp_path / "own"
    own.mkdir()
    (own / "b.tar.gz").write_bytes(good.read_bytes())
    assert called("restore", "b.tar.gz", cwd=own)[0] == 0  # the backup itself is not in the way
    assert {it.name for it in own.iterdir()} == {"b.tar.gz", "config.yaml", "data"}


def test_backup_overwrites_nothing_and_never_contains_itself(tmp_path: Path) -> None:
    write(tmp_path / "config.yaml", "agents: { list: [ { id: helper, model: demo/guide } ] }\n")
    write(tmp_path / "data" / "x", "x")
    write(tmp_path / "data" / "serving-0a1b2c3d.json", "{}")
    before = tree(tmp_path)
    for name, why in (
        ("config.yaml", "is there already"),
        ("data/b.tar.gz", "choose another folder"),
        ("no/b", "No such file"),
    ):
        code, output = called("backup", name, cwd=tmp_path)
        assert (code, why in output, output.count("\n")) == (1, True, 1), output
    assert tree(tmp_path) == before
    (tmp_path / "backups").mkdir()
    code, output = called("backup", "backups", cwd=tmp_path)
    (file,) = (tmp_path / "backups").iterdir()
    assert (code, file.name.startswith("clawgate-"), "no database yet" in output) == (0, True, True)
    assert {"files/data/x", "files/config.yaml"} == contents(file)[0].keys()  # a process is in no backup


def test_backup_includes_files_outside_the_config_folder(
    tmp_path: Path,
) -> None:
    text = f"""
agents: {{ list: [ {{ id: helper, model: demo/guide, workspaceDir: "{tmp_path}/far/{{chat}}" }} ] }}
database: {{ url: "sqlite:///{tmp_path}/db/bot.db" }}
mcp: {{ servers: {{ notes: {{ command: [sh, ../../../serve.sh], readable: ["{tmp_path}/papers"] }} }} }}
"""
    bot = tmp_path / "bot"
    write(bot / "config.yaml", text)
    write(bot / "serve.sh", "exit 1\n")
    write(tmp_path / "far" / "web.local" / "a.md", "a")
    write(tmp_path / "papers" / "secret.txt", "not ours")
    asyncio.run(open_store(DatabaseConfig(url=f"sqlite:///{tmp_path}/db/bot.db")).close())
    code, output = called("backup", str(tmp_path / "b.tar.gz"), cwd=bot)
    assert (code, f"{tmp_path}/papers: mcp.servers.notes.readable" in output) == (0, True), output
    code, output = called("restore", "b.tar.gz", "new", cwd=tmp_path)
    assert (code, f"elsewhere{tmp_path}/far to {tmp_path}/far" in output) == (0, True), output
    new = tmp_path / "new"
    assert (new / f"elsewhere{tmp_path}/far/web.local/a.md").read_text() == "a"
    assert stat.S_IMODE((new / f"elsewhere{tmp_path}/db/bot.db").stat().st_mode) == 0o600
    assert (new / "serve.sh").is_file()
    assert not [*new.rglob("secret.txt")]


def test_backup_names_an_unreadable_file_and_exits_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "config.yaml", "agents: { list: [ { id: helper, model: demo/guide } ] }\n")
    write(tmp_path / "data" / "mine", "x")
    write(tmp_path / "data" / "theirs", "x")
    real = os.open

    def denied(path: Any, *more: Any, **names: Any) -> int:
        if path == "theirs":
            raise PermissionError(13, "Permission denied")
        return real(path, *more, **names)

    monkeypatch.setattr(os, "open", denied)
    code, output = called("backup", "b.tar.gz", cwd=tmp_path)
    assert (code, "not in it, and it should be: data/theirs: Permission denied" in output) == (1, True), output
    assert "files/data/mine" in contents(tmp_path / "b.tar.gz")[0]


@pytest.mark.slow
async def test_backup_of_a_stopped_gateway_answers_what_was_in_flight(tmp_path: Path) -> None:
    """A bot that moves to another machine loses nothing: what it had accepted is answered there."""
    bot = tmp_path / "bot"
    bot.mkdir()
    async with platforms(bot) as (feishu, anthropic, config):
        anthropic.script = [NEVER]
        async with started(config) as run:
            event = feishu.text_event("hello", sender=ALICE, chat=ALICE_CHAT)
            assert (await push(feishu, run.url, event)).status_code == 200
            await until(lambda: anthropic.requests)
            assert await run.end(signal.SIGKILL) == -signal.SIGKILL
        assert (await ask("backup", str(tmp_path / "b.tar.gz"), "--config", str(config), more=SECRETS))[0] == 0
        code, output = await ask("restore", str(tmp_path / "b.tar.gz"), str(tmp_path / "new"), more=SECRETS)
        assert (code, "dead letters" in output) == (0, False), output
        anthropic.script = [says("here I am")]
        async with started(tmp_path / "new" / "config.yaml"):
            (reply,) = await feishu.sent(1)
        assert reply.text == "here I am"


async def test_backup_turns_unsent_replies_into_dead_letters_replayed_once(
    tmp_path: Path,
) -> None:
    bot = tmp_path / "bot"
    bot.mkdir()
    emulator, held = feishu_emulator(), Held()
    emulator.app = cast("Any", held.before(emulator.app))
    held.hold("/reply")
    async with running(bot, script=[says("on its way")], emulator=emulator) as house:
        await house.say("hello")
        await house.until(lambda: held.holding)
        assert (await asyncio.to_thread(called, "backup", str(tmp_path / "b.tar.gz"), cwd=bot))[0] == 0
        held.release()
        await house.replies(1)
        await house.idle()
    code, output = called("restore", "b.tar.gz", "new", cwd=tmp_path)
    assert (code, "0 messages, 1 reply part" in output) == (0, True), output
    code, output = called("dead-letters", "list", cwd=tmp_path / "new")
    assert (code, "part-1" in output, "restored" in output) == (0, True, True), output
    assert called("dead-letters", "replay", "part-1", cwd=tmp_path / "new")[0] == 0
    async with running(tmp_path / "new", emulator=emulator) as house:
        await house.say("hello again")
        await house.replies(2)
        await house.idle()
        assert [it.text for it in house.feishu.messages].count("on its way") == 1  # its key is the same
    assert called("dead-letters", "list", cwd=tmp_path / "new") == (0, "0 dead letters\n")


def test_backup_covers_every_path_field() -> None:
    """A field is marked, or no backup has it, and its value depends on the working directory."""
    lost = []
    for model in all_models(Config):
        sentences = documentation(model)
        for name, field in fields_of(model).items():
            is_text = field.annotation in (str, tuple[str, ...], str | None, tuple[str, ...] | None)
            names = re.search(r"(?i)(dir|director(y|ies)|cwd|folders?|files?|paths?|readable)$", name)
            if is_text and (names or re.search(r"\bfolders?\b|sqlite:", sentences[name])) and mark_of(field) is None:
                lost.append(f"{model.__name__}.{name}")
    assert lost == []


def test_backup_paths_are_absolute_once_loaded(tmp_path: Path) -> None:
    mcp = "{ servers: { a: { command: [x], cwd: ./m, readable: [r] } } }"
    tools = "{ directories: [t], files: { uploadsDir: u } }"
    text = f"skills: {{ directories: [s], addedDir: a/d }}\ntools: {tools}\nmcp: {mcp}\n"
    write(tmp_path / "config.yaml", text + "agents: { list: [ { id: x, workspaceDir: w } ] }\n")
    found = paths_of(load(tmp_path / "config.yaml", {}).config)
    marked = {mark_of(field) for model in all_models(Config) for field in model.model_fields.values()} - {None}
    assert {it.how for it in found} == marked
    assert {it.path for it in found if not it.path.removeprefix("sqlite:///").startswith(f"{tmp_path}/")} == set()
