"""The first run: the shipped config as it is, with nothing in the environment, or with one key and nothing else."""

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agents.providers.config import WELL_KNOWN
from gateway.cli import app
from gateway.cli.start import TEMPLATE
from gateway.cli.wizard import other_port, with_port
from gateway.config.load import load
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.models.chat.emulator import ChatEmulator
from tests.emulators.models.script import says
from tests.loopback import serve_on_loopback
from tests.running import APP_ID, FEISHU, SECRETS, client, feishu_emulator
from tests.stories.process.test_process import ROOT, Process, ask, real, say, started

pytestmark = pytest.mark.slow  # it starts processes

KEY = "canary-deepseek-key-91827"
FEISHU_SECRETS = {name: value for name, value in SECRETS.items() if name.startswith("FEISHU_")}
OFFERED = [
    (variable, vendor.model_of(vendor.names[0]))
    for vendor in WELL_KNOWN
    if vendor.default_model
    for variable in vendor.variables
]


def test_first_run_needs_any_one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, model in OFFERED:
        monkeypatch.setattr("gateway.cli.options.environment", lambda variable=variable: {variable: KEY})
        result = CliRunner().invoke(app, ["check", "--config", str(ROOT / "config.yaml")])
        assert result.exit_code == 0
        assert f"agent assistant: {model} (auto: {variable} is set);" in result.output
        assert f"provider {model.partition('/')[0]}: key set ({variable})" in result.output
        assert [word for word in ("demo/guide", "warning", KEY) if word in result.output] == []


def shipped(folder: Path, feishu_url: str) -> Path:
    """The shipped config, with an emulated Feishu in whose direct chats everybody may write."""
    text = (ROOT / "config.yaml").read_text(encoding="utf-8")
    for written, now in (
        ("${FEISHU_BASE_URL:-https://open.feishu.cn}", feishu_url),
        ("dmPolicy: pairing", "dmPolicy: open"),
    ):
        assert text.count(written) == 1
        text = text.replace(written, now)
    config = folder / "config.yaml"
    config.write_text(text, encoding="utf-8")
    return config


async def reply_to(feishu: FeishuEmulator, config: Path, env: dict[str, str], text: str) -> tuple[str, str, int]:
    """What a person is answered, everything that the gateway wrote meanwhile, and the status of its page."""
    async with started(config, {**FEISHU_SECRETS, "FEISHU_APP_ID": APP_ID, **env}) as run, client(run.url) as http:
        await say(run, feishu, text)
        (reply,) = await feishu.sent(1)
        page = await http.get("/api/chats")
    return reply.text, "".join(run.output), page.status_code


async def test_first_run_without_a_key_answers_with_the_demo_model(tmp_path: Path) -> None:
    feishu = feishu_emulator()
    async with serve_on_loopback(feishu.app) as url:
        reply, output, page = await reply_to(feishu, shipped(tmp_path, url), {}, "你好")
    assert page == 200, "no agent of it runs commands, so it is open without a token"
    assert "demo/guide" in reply
    assert "OPENAI_API_KEY" in reply
    assert "无需重启" in reply
    before_the_log = output.partition("\n{")[0].splitlines()
    assert len(before_the_log) <= 9
    assert before_the_log[0].startswith("Clawgate ")
    assert "  feishu     app " in output
    assert "#sign-in=" not in output
    assert "  agent      assistant: demo/guide, a script; set ANTHROPIC_API_KEY, OPENAI_API_KEY or" in output


async def test_first_run_with_a_key_asks_that_vendor(tmp_path: Path) -> None:
    feishu, deepseek = feishu_emulator(), ChatEmulator([says("I am real")], vendor="deepseek", api_key=KEY)
    async with serve_on_loopback(feishu.app) as url, serve_on_loopback(deepseek.app) as model_url:
        config = tmp_path / "config.yaml"
        config.write_text(
            f'logging: {{ level: debug }}\nproviders: {{ deepseek: {{ baseUrl: "{model_url}/v1" }} }}\n'
            f'channels:\n  feishu:\n    baseUrl: "{url}"\n{FEISHU}\nagents: {{ list: [ {{ id: helper }} ] }}\n',
            encoding="utf-8",
        )
        reply, output, _ = await reply_to(feishu, config, {"DEEPSEEK_API_KEY": f" {KEY}\n"}, "who are you?")
    assert reply == "I am real"
    (received,) = deepseek.requests
    assert received.refusal is None
    assert received.headers["authorization"] == f"Bearer {KEY}"
    assert received.body["model"] == "deepseek-v4-pro"
    assert "  agent      helper: deepseek/deepseek-v4-pro (auto: DEEPSEEK_API_KEY is set)" in output
    assert "91827" not in output


@pytest.fixture
def taken() -> Iterator[None]:
    """8080 is taken: by this test, unless somebody else has it."""
    with suppress(OSError), socket.create_server(("127.0.0.1", 8080)):
        yield
        return
    yield


@pytest.mark.usefixtures("taken")
async def test_first_run_picks_another_port_when_taken(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    run = Process(await real((), env, cwd=tmp_path))
    try:
        await run.ready()
        port = int(run.url.rpartition(":")[2])
        assert port > 8080
        assert f"port 8080 is taken on this machine: the new config has {port} (server.port)\n" in run.output
        assert load(config, {}).config.server.port == port, "the next start has the same"
        assert load(config, {"CLAWGATE_PORT": "9000"}).config.server.port == 9000
        code, output = await ask("status", cwd=tmp_path, more={"PYTHONPATH": str(ROOT)})
        assert (code, f"ready at {run.url}" in output) == (0, True)
    finally:
        await run.end(signal.SIGTERM)


@pytest.mark.usefixtures("taken")
async def test_first_run_keeps_a_requested_port(tmp_path: Path) -> None:
    more = {"PYTHONPATH": str(ROOT), "CLAWGATE_PORT": "8080"}
    code, output = await ask(cwd=tmp_path, more=more)
    assert (code, "cannot listen on 127.0.0.1:8080" in output) == (1, True)
    del more["CLAWGATE_PORT"]
    code, output = await ask(cwd=tmp_path, more=more)
    assert (code, "cannot listen on 127.0.0.1:8080" in output) == (1, True), "the config was there before"


@pytest.mark.usefixtures("taken")
def test_first_run_by_wizard_picks_a_free_port() -> None:
    shipped, of_its_own = TEMPLATE.read_text(encoding="utf-8"), "server: { port: 8080 }\nagents: {}\n"
    port = other_port(shipped, {})
    assert f"port: ${{CLAWGATE_PORT:-{port}}}" in with_port(shipped, port)
    assert with_port("# first\nagents: {}\n", 8081) == "# first\nserver:\n  port: 8081\n\nagents: {}\n"
    assert other_port(of_its_own, {}) == other_port(shipped, {"CLAWGATE_PORT": "8080"}) == 0
