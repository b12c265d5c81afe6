"""A fourth channel, built as the page "Add a channel" says: it goes through the real door, and what it cost is counted."""

import hashlib
import hmac
import importlib.util
import re
import tomllib
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from channels.channel import AnsweredAtOnce, Channel, Rejected, WebhookRequest
from gateway.config.channels import CHANNEL_TYPES, ChannelsConfig
from gateway.config.load import load
from gateway.config.problems import ConfigErrors
from gateway.config.root import Config
from gateway.operate.report import greeting, lines, report
from tests.channels.notes import NOTE_CHARS, NOTES, NotesChannel, NotesToo, Root
from tests.emulators.models.script import calls, says
from tests.loopback import serve_on_loopback
from tests.running import FEISHU, SECRETS, Running, running

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "add-a-channel.md").read_text(encoding="utf-8")
PAD = ROOT / "tests" / "channels" / "notes.py"
SECRET = "canary-notes-secret-91827"
LINES_MAX = 150


@dataclass
class Pad:
    """The platform: it takes short notes, each once by its key, from whoever knows the secret."""

    notes: list[dict[str, Any]] = field(default_factory=list)
    fails: list[int] = field(default_factory=list)

    @property
    def app(self) -> Starlette:
        return Starlette(routes=[Route("/notes", self._take, methods=["POST"])])

    async def _take(self, request: Request) -> Response:
        if request.headers.get("x-notes-token") != SECRET:
            return Response(status_code=401)
        if self.fails:
            return Response(status_code=self.fails.pop(0))
        note = orjson.loads(await request.body())
        if set(note) != {"to", "answers", "text", "key"} or not 0 < len(note["text"]) <= NOTE_CHARS:
            return Response(status_code=422)
        if note["key"] not in [known["key"] for known in self.notes]:
            self.notes.append(note)
        return JSONResponse({"id": f"n-{note['key']}"})


async def post(house: Running, message: str, *, writer: str = "ann", text: str = "hello", secret: str = SECRET) -> int:
    body = orjson.dumps({"id": message, "writer": writer, "text": text})
    signature = hmac.digest(secret.encode(), body, hashlib.sha256).hex()
    async with httpx.AsyncClient(trust_env=False) as client:
        url = f"{house.url}/webhooks/notes/default"
        return (await client.post(url, content=body, headers={"x-notes-signature": signature})).status_code


async def test_everything_the_gateway_promises_holds_there_as_well(tmp_path: Path) -> None:
    long = " ".join(f"word{number}" for number in range(150))
    writes = calls(("write", {"file_path": "list.txt", "content": "milk"}))
    script = [writes, says("Noted."), says(long), says("by feishu"), says("never said", pause_seconds=60)]
    bound = "bindings:\n  - { agent: helper, match: { channel: notes, account: default } }"
    pad = Pad()
    async with serve_on_loopback(pad.app) as url:
        section = f'\n  notes: {{ apiUrl: "{url}", secret: {SECRET}, allowFrom: [ann], dmPolicy: allowlist }}\n'
        async with running(tmp_path, script=script, feishu=FEISHU + section, more=bound, root=Root) as house:
            assert await post(house, "1", text="milk, please") == 200
            await house.until(lambda: bool(pad.notes))
            assert [(note["to"], note["answers"], note["text"]) for note in pad.notes] == [("ann", "1", "Noted.")]
            assert (house.workspace() / "list.txt").read_text() == "milk"
            assert "milk, please" in str(house.anthropic.requests[0].body["messages"])
            pad.fails = [503]
            posts = [("2", "ann", "wrong"), ("3", "eve", SECRET), ("4", "ann", SECRET), ("4", "ann", SECRET)]
            statuses = [await post(house, name, writer=writer, secret=secret) for name, writer, secret in posts]
            assert statuses == [401, 200, 200, 200]
            await house.until(lambda: len(pad.notes) > 2)
            await house.idle()
            assert "".join(note["text"] for note in pad.notes[1:]) == long
            assert len(house.anthropic.requests) == 3
            await house.say("hello")
            assert await house.replies(1) == ["by feishu"]
            await post(house, "5", text="think hard")
            await house.requested(5)
            await post(house, "6", text="/stop")
            await house.until(lambda: pad.notes[-1]["text"].startswith("Stopped."))


class CheckedNotes(NotesChannel):
    """A pad that checks an address by a GET, and signs by its parameters."""

    def answer_get(self, request: WebhookRequest, now: datetime) -> AnsweredAtOnce:
        given = dict(request.query)
        if request.body or not hmac.compare_digest(given.get("signature", ""), SECRET):
            raise Rejected("signature wrong or missing", guess=True)
        return AnsweredAtOnce(body=given["echo"].encode(), type="text/plain")


async def test_an_address_is_checked_by_a_get_where_a_channel_answers_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def asked(house: Running, signature: str) -> tuple[int, str, str]:
        async with httpx.AsyncClient(trust_env=False) as client:
            parameters = {"signature": signature, "echo": "a+b 你好"}
            answer = await client.get(f"{house.url}/webhooks/notes/default", params=parameters)
            return answer.status_code, answer.headers.get("content-type", ""), answer.text

    section = f"\n  notes: {{ secret: {SECRET}, allowFrom: [ann] }}\n"
    async with running(tmp_path, feishu=FEISHU + section, root=Root) as house:
        assert (await asked(house, SECRET))[0] == 405
    checked = replace(NOTES, channel=lambda account, name, _: CheckedNotes(account))
    monkeypatch.setattr(NotesToo, "kinds", {**NotesToo.kinds, "notes": checked})
    (tmp_path / "checked").mkdir()
    async with running(tmp_path / "checked", feishu=FEISHU + section, root=Root) as house:
        assert await asked(house, SECRET) == (200, "text/plain; charset=utf-8", "a+b 你好")
        assert (await asked(house, "wrong"))[0] == 401
        assert await post(house, "1", text="stored", writer="eve") == 200


def config_lines(folder: Path, section: str, *, root: type[Config] = Root) -> list[str]:
    """What start-up and `check` print of a config with this section `channels`, or its mistakes."""
    file = folder / "config.yaml"
    agents = "agents: { list: [ { id: a, model: demo/guide, tools: { message: { targets: ['notes:ann'] } } } ] }"
    server = "server: { publicUrl: https://bot.example.com }"
    file.write_text(f"channels: {section}\n{server}\n{agents}\n", encoding="utf-8")
    try:
        loaded = load(file, SECRETS, root=root)
        return [*greeting(loaded), *lines(report(loaded))]
    except ConfigErrors as errors:
        return [str(problem).replace(f"{folder}/", "") for problem in errors.problems]


def test_its_config_is_checked_and_reported_like_any_other(tmp_path: Path) -> None:
    found = config_lines(tmp_path, f"{{ notes: {{ secret: {SECRET} }} }}")
    assert "notes default: webhook https://bot.example.com/webhooks/notes/default" in found
    assert "  notes      webhook https://bot.example.com/webhooks/notes/default" in found
    assert "  notes      off: add secret under channels.notes (channels/notes/README.md)" in config_lines(
        tmp_path, "{}"
    )
    (mistake,) = config_lines(tmp_path, "{ notes: { secrte: x } }")
    assert mistake == 'config.yaml:1:22: channels.notes.secrte: unknown key — did you mean "secret"?'
    unknown = config_lines(tmp_path, "{ notes: { secret: x } }", root=Config)
    assert [line.split(" — ")[0] for line in unknown] == [
        "config.yaml:1:13: channels.notes: unknown key",
        'config.yaml:3:77: agents.list[0].tools.message.targets[0]: unknown channel "notes"',
    ]


def test_a_channel_has_the_members_of_the_port_and_needs_no_others() -> None:
    made = {name for name in dir(NotesChannel) if not name.startswith("_")} | {"access", "queue"}
    assert made == {name for name in (*vars(Channel), *Channel.__annotations__) if not name.startswith("_")}
    assert len(made) == 12
    assert [member for member in made if f"`{member}`" not in PAGE] == []


def test_what_an_addition_costs() -> None:
    lines = len(PAD.read_text(encoding="utf-8").splitlines())
    assert lines <= LINES_MAX
    (cost,) = re.findall(r"(\d+) lines with its config", PAGE)
    assert int(cost) == lines


def test_the_channels_there_are_were_added_in_the_same_places() -> None:
    found = {path.parent.name for path in ROOT.glob("channels/*/channel.py")}
    folders = found - {"api"}  # programs are no platform: it has no account and no section
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (independent,) = [contract for contract in contracts if contract["type"] == "independence"]
    assert folders == set(CHANNEL_TYPES) == {kind.name for kind in CHANNEL_TYPES.values()}
    assert folders == set(ChannelsConfig.model_fields)
    assert found == {module.removeprefix("channels.") for module in independent["modules"]}
    assert [name for name in folders if not (ROOT / "channels" / name / "README.md").is_file()] == []


def test_the_rest_of_the_gateway_names_no_platform() -> None:
    """The web chat is a page of our own as well, and programs are no platform, so they are left out here."""
    imported = re.compile(r"^(?:from|import) channels\.(?!web\b|api\b)\w+\.", re.M)
    sources = [path for folder in ("gateway", "agents", "tools", "skills") for path in (ROOT / folder).rglob("*.py")]
    found = {str(path.relative_to(ROOT)) for path in sources if imported.search(path.read_text(encoding="utf-8"))}
    assert found == {"gateway/config/channels.py"}


SOURCES = (
    "channels/channel.py",
    "channels/abilities.py",
    "channels/login.py",
    "channels/message.py",
    "gateway/config/channels.py",
    "channels/access.py",
    "channels/feishu/config.py",
)
WORDS = {*re.findall(r"\w+", "".join((ROOT / path).read_text(encoding="utf-8") for path in SOURCES))}


@pytest.mark.parametrize("named", sorted(set(re.findall(r"`([^`]+)`", PAGE)) - {"make demo", "uploads/"}))
def test_whatever_the_page_names_exists(named: str) -> None:
    slices = [ROOT / "channels" / "feishu", ROOT / "channels" / "telegram"]
    if named.startswith("python -m "):
        assert importlib.util.find_spec(named.split()[2]) is not None
    elif "/" in named or named.endswith((".py", ".md", ".toml")):
        assert (ROOT / named).exists() or all(
            (folder / named).exists() or (ROOT / named.replace("<name>", folder.name)).exists() for folder in slices
        )
    elif named.startswith(("channels.", "gateway.")):
        module, _, member = named.rpartition(".")
        assert hasattr(importlib.import_module(module), member)
    else:
        assert set(re.findall(r"\w+", named.partition("(")[0])) <= WORDS
