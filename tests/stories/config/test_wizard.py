"""`init` as a person meets it: each question again until its answer will do, each secret tried where it is typed."""

import asyncio
import signal
import stat
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from gateway.cli import app
from gateway.cli.start import TEMPLATE, examples
from gateway.config.load import load
from tests import warm
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.models.anthropic.emulator import AnthropicEmulator
from tests.emulators.models.chat.emulator import ChatEmulator
from tests.emulators.telegram.chats import BOT
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.loopback import serve_on_loopback
from tests.running import APP_ID, SECRETS, client, feishu_emulator
from tests.stories.process.test_process import GATEWAY, Process

KEY = SECRETS["ANTHROPIC_API_KEY"]
EXAMPLE = """\
# yaml-language-server: $schema=../config.schema.json
# An example. Needs: TELEGRAM_BOT_TOKEN.
providers: { anthropic: { baseUrl: "${ANTHROPIC_BASE_URL}" } }
channels:
  web: {}
  telegram: { botToken: "${TELEGRAM_BOT_TOKEN}", apiRoot: "TELEGRAM_ROOT" }
server: { adminToken: "${CLAWGATE_ADMIN_TOKEN}" }
agents: { defaults: { model: "${CLAWGATE_MODEL:-auto}" }, list: [ { id: helper } ] }
"""


@dataclass
class Terminal:
    """A folder to write into, and the platforms that its answers are tried at."""

    folder: Path
    environment: dict[str, str]
    feishu: FeishuEmulator
    telegram: TelegramEmulator
    anthropic: AnthropicEmulator
    ollama: ChatEmulator
    ollama_url: str

    @property
    def config(self) -> Path:
        return self.folder / "config.yaml"

    @property
    def dotenv(self) -> Path:
        return self.folder / ".env"

    async def init(self, *answers: str, words: tuple[str, ...] = ()) -> tuple[int, str]:
        def run() -> tuple[int, str]:
            typed = "".join(f"{it}\n" for it in answers)
            result = CliRunner().invoke(app, ["init", "--config", str(self.config), *words], input=typed)
            return result.exit_code, result.output

        return await asyncio.to_thread(run)

    def check(self) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["check", "--config", str(self.config)])
        return result.exit_code, result.output


@pytest.fixture
async def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Terminal]:
    feishu, telegram = feishu_emulator(), TelegramEmulator()
    anthropic, ollama = AnthropicEmulator(api_key=KEY), ChatEmulator(vendor="ollama")
    ollama.models = ["gemma3:4b", "qwen3:8b"]
    async with (
        serve_on_loopback(feishu.app) as feishu_url,
        serve_on_loopback(telegram.app) as telegram_url,
        serve_on_loopback(anthropic.app) as anthropic_url,
        serve_on_loopback(ollama.app) as ollama_url,
    ):
        environment = {"ANTHROPIC_BASE_URL": anthropic_url, "CLAWGATE_PORT": "0", "FEISHU_BASE_URL": feishu_url}
        for module in ("options", "start"):
            monkeypatch.setattr(f"gateway.cli.{module}.environment", lambda: dict(environment))
        template = tmp_path / "template.yaml"
        text = TEMPLATE.read_text(encoding="utf-8")
        line = "    botToken: ${TELEGRAM_BOT_TOKEN:-}"
        assert text.count(line) == 1
        template.write_text(text.replace(line, f'    apiRoot: "{telegram_url}"\n{line}'), encoding="utf-8")
        monkeypatch.setattr("gateway.cli.start.TEMPLATE", template)
        docs = tmp_path / "docs" / "examples"
        docs.mkdir(parents=True)
        (docs / "family-telegram.yaml").write_text(EXAMPLE.replace("TELEGRAM_ROOT", telegram_url))
        monkeypatch.setattr("agents.runner.DOCS_DIR", docs.parent)
        yield Terminal(tmp_path / "bot", environment, feishu, telegram, anthropic, ollama, f"{ollama_url}/v1")


async def test_wizard_asks_again_after_a_wrong_answer(terminal: Terminal) -> None:
    code, output = await terminal.init(
        *("99", "anthropc", "1", "two words", "sk-ant-not-the-key", "n", KEY),
        *("perhaps", "y", "n", "abc", APP_ID, "not-the-secret", "n", APP_ID, SECRETS["FEISHU_APP_SECRET"]),
        *("y", "sk-deep", "123456789:AAabcdefghijklmnopqrstuvwxyz0123456", "n", terminal.telegram.token),
        *("Not An Id", "helper", "n"),
    )
    assert code == 0, output
    for said in (
        "“99” is not in the list. Type a number from 1 to 12.",
        "“anthropc” is not in the list",
        "it has blanks, quotes or letters that no key has",
        "✗ Anthropic (Claude) refuses it",
        "✓ key of Anthropic (Claude)",
        "Type y or n.",
        "it begins with cli_",
        "✓ the app id and secret are right; the bot is Helper Bot",
        "✗ That cannot be used: channels.telegram.botToken is no bot token",
        f"✓ the token is right; the bot is @{BOT['username']}",
        "An id has small letters",
        "Start now?",
    ):
        assert said in output, said
    assert "--provider" not in output
    assert [it for it in (KEY, terminal.telegram.token) if it in terminal.config.read_text()] == []
    loaded = load(terminal.config, terminal.environment).config
    assert (loaded.agents.list[0].id, loaded.agents.list[0].model) == ("helper", ("anthropic/claude-sonnet-4-6",))
    assert loaded.provider("anthropic").keys == (KEY,)
    assert terminal.dotenv.read_text().splitlines() == [
        f"ANTHROPIC_API_KEY='{KEY}'",
        f"FEISHU_APP_ID='{APP_ID}'",
        f"FEISHU_APP_SECRET='{SECRETS['FEISHU_APP_SECRET']}'",
        f"TELEGRAM_BOT_TOKEN='{terminal.telegram.token}'",
    ]
    assert stat.S_IMODE(terminal.dotenv.stat().st_mode) == 0o600
    assert terminal.check()[0] == 0


async def test_wizard_speaks_the_terminals_language(terminal: Terminal) -> None:
    terminal.environment |= {"LC_ALL": "", "LANG": "zh_CN.UTF-8"}
    code, output = await terminal.init("99", "1", KEY, "也许", "否", "是", terminal.telegram.token, "助手", "", "n")
    assert code == 0, output
    for said in (
        "使用哪家的模型？",
        "「99」不在列表中，请输入 1 到 12 的编号。",
        "✓ Anthropic (Claude) 的密钥有效",
        "请输入 y（是）或 n（否）。",
        f"✓ 令牌正确；机器人是 @{BOT['username']}",
        "id 只能用小写字母",
        "现在启动吗？",
        "config.yaml：已写入",
    ):
        assert said in output, said


async def test_wizard_accepts_untested_secrets_and_later(
    terminal: Terminal,
) -> None:
    code, output = await terminal.init("1", "sk-ant-mine", "y", "y", "n", "", "", "n", "", "n")
    assert code == 0, output
    assert "Feishu has to wait until all of them are set." in output
    assert "set FEISHU_APP_ID, FEISHU_APP_SECRET in the environment, or in" in output
    assert terminal.dotenv.read_text() == "ANTHROPIC_API_KEY='sk-ant-mine'\n"
    assert terminal.check()[0] == 0
    terminal.config.unlink()
    terminal.dotenv.unlink()
    code, output = await terminal.init("", "n", "n", "", "n")
    assert code == 0, output
    assert not terminal.dotenv.exists()
    assert "demo/guide" in terminal.check()[1]


async def test_wizard_left_early_writes_nothing(terminal: Terminal) -> None:
    code, output = await terminal.init("1", KEY, "n")
    assert code == 1, output
    assert not terminal.folder.exists()


async def test_wizard_appends_secrets_to_the_env_file(terminal: Terminal) -> None:
    terminal.folder.mkdir()
    terminal.dotenv.write_text(f"ANTHROPIC_API_KEY={KEY}\nMINE=1")
    terminal.environment |= {"ANTHROPIC_API_KEY": ""}  # as docker compose hands on what is not set
    code, output = await terminal.init("", "n", "y", terminal.telegram.token, "", "n")
    assert code == 0, output
    assert "✓ key of Anthropic (Claude)" in output
    kept = f"ANTHROPIC_API_KEY={KEY}\nMINE=1\nTELEGRAM_BOT_TOKEN='{terminal.telegram.token}'\n"
    assert terminal.dotenv.read_text() == kept
    assert stat.S_IMODE(terminal.dotenv.stat().st_mode) == 0o600


async def test_wizard_tries_what_is_set_and_does_not_ask(terminal: Terminal) -> None:
    terminal.environment |= {"ANTHROPIC_API_KEY": KEY, "TELEGRAM_BOT_TOKEN": terminal.telegram.token}
    code, output = await terminal.init("", "n", "y", "", "n")
    assert code == 0, output
    assert "✓ key of Anthropic" in output
    assert f"✓ the token is right; the bot is @{BOT['username']}" in output
    assert not terminal.dotenv.exists()


@pytest.mark.parametrize("choice", ["ollama", "own"])
async def test_wizard_lists_the_models_of_a_custom_server(terminal: Terminal, choice: str) -> None:
    key = [] if choice == "ollama" else ["a-key-of-mine"]
    code, output = await terminal.init(
        choice, "nonsense", terminal.ollama_url, *key, "qwen4", "n", "qwen3:8b", "n", "n", "", "n"
    )
    assert code == 0, output
    assert "That is no address." in output
    assert f"✓ {terminal.ollama_url} answers: gemma3:4b, qwen3:8b" in output
    assert "The server lists no “qwen4”." in output
    loaded = load(terminal.config, terminal.environment).config
    assert loaded.agents.list[0].model == (f"{choice}/qwen3:8b",)
    assert loaded.provider(choice).base_url == terminal.ollama_url
    assert loaded.provider(choice).keys == tuple(key)
    assert terminal.check()[0] == 0


async def test_wizard_goes_on_when_a_server_does_not_answer(terminal: Terminal) -> None:
    code, output = await terminal.init("ollama", "http://127.0.0.1:9/v1", "", "n", "n", "", "n")
    assert code == 0, output
    assert "✗ http://127.0.0.1:9/v1 cannot be reached" in output
    assert load(terminal.config, terminal.environment).config.agents.list[0].model == ("ollama/qwen3:8b",)


async def test_wizard_example_asks_for_its_needs(terminal: Terminal) -> None:
    code, output = await terminal.init(words=("--from", "family-telegran"))
    assert (code, 'did you mean "family-telegram"?' in output) == (1, True)
    words = ("--from", "family-telegram")
    code, output = await terminal.init("1", KEY, "sk-deep", terminal.telegram.token, "", "n", words=words)
    assert code == 0, output
    assert f"✓ the token is right; the bot is @{BOT['username']}" in output
    written = terminal.config.read_text()
    assert "yaml-language-server" not in written
    assert "CLAWGATE_ADMIN_TOKEN: made, and kept in .env" in output
    assert 'model: "' in written
    assert terminal.check()[0] == 0
    loaded = load(terminal.config, terminal.environment).config
    assert len(loaded.server.admin_token.get_secret_value()) == 48
    assert loaded.agents.list[0].model == ("anthropic/claude-sonnet-4-6",)


async def test_wizard_example_for_a_script_prints_what_to_set(terminal: Terminal) -> None:
    code, output = await terminal.init(words=("--yes", "--from", "family-telegram"))
    assert code == 0, output
    assert "set TELEGRAM_BOT_TOKEN, CLAWGATE_ADMIN_TOKEN in the environment, or in" in output
    assert not terminal.dotenv.exists()


@pytest.mark.parametrize("name", sorted(examples()))
def test_wizard_can_start_from_every_example(tmp_path: Path, name: str) -> None:
    config = tmp_path / "config.yaml"
    result = CliRunner().invoke(app, ["init", "--yes", "--from", name, "--config", str(config)])
    assert result.exit_code == 0, result.output
    assert config.is_file()


async def test_wizard_example_names_complete_in_the_shell(terminal: Terminal) -> None:
    command: Any = get_command(app)
    command = command.commands["init"]
    (option,) = [it for it in command.params if "--from" in it.opts]
    found = option.shell_complete(command.make_context("init", [], resilient_parsing=True), "fam")
    assert [it.value for it in found] == ["family-telegram"]


@pytest.mark.slow
async def test_wizard_starts_the_gateway_on_request(tmp_path: Path) -> None:
    config = tmp_path / "bot" / "config.yaml"
    env = {"HOME": str(tmp_path), "CLAWGATE_PORT": "0"}
    process = await warm.start(
        GATEWAY, "init", "--config", str(config), env=env, stdin=PIPE, stdout=PIPE, stderr=STDOUT
    )
    assert process.stdin is not None
    process.stdin.write(b"\nn\nn\n\ny\n")
    run = Process(process)
    try:
        await run.ready()
        async with client(run.url) as http:
            assert (await http.get("/")).status_code == 200
    finally:
        await run.end(signal.SIGTERM)
    assert "Start now? [Y/n]" in "".join(run.output)


async def scanned_by(terminal: Terminal, open_id: str) -> None:
    """Confirm the registration in Feishu as soon as one waits."""
    while not terminal.feishu.registrations.pending:
        await asyncio.sleep(0.02)
    terminal.feishu.registrations.confirm(APP_ID, SECRETS["FEISHU_APP_SECRET"], open_id)


async def test_wizard_qr_code_creates_a_feishu_app_with_its_owner(terminal: Terminal) -> None:
    scan = asyncio.create_task(scanned_by(terminal, "ou_scanner1"))
    code, output = await terminal.init("1", KEY, "y", "y", "n", "", "n")
    await scan
    assert code == 0, output
    link = f"{terminal.environment['FEISHU_BASE_URL']}/page/cli?user_code="
    assert "▄" in output
    assert link in output
    assert f"✓ app {APP_ID} created; you own the bot" in output
    assert "✓ the app id and secret are right" in output
    assert SECRETS["FEISHU_APP_SECRET"] not in output + terminal.config.read_text()
    config = load(terminal.config, terminal.environment).config
    assert config.owners == ("feishu:ou_scanner1",)
    assert config.channels.feishu is not None
    assert config.channels.feishu.app_id == APP_ID
    assert terminal.dotenv.read_text().splitlines()[1:] == [
        f"FEISHU_APP_ID='{APP_ID}'",
        f"FEISHU_APP_SECRET='{SECRETS['FEISHU_APP_SECRET']}'",
    ]
    assert terminal.feishu.registrations.refusals == []
    assert terminal.check()[0] == 0


@pytest.mark.parametrize(("error", "said"), [("access_denied", "declined"), ("expired_token", "expired")])
async def test_wizard_qr_code_that_fails_asks_for_the_keys(terminal: Terminal, error: str, said: str) -> None:
    async def ends() -> None:
        while not terminal.feishu.registrations.pending:
            await asyncio.sleep(0.02)
        terminal.feishu.registrations.end(error)

    ending = asyncio.create_task(ends())
    secret = SECRETS["FEISHU_APP_SECRET"]
    code, output = await terminal.init("1", KEY, "y", "y", APP_ID, secret, "n", "", "n")
    await ending
    assert code == 0, output
    assert said in output
    assert load(terminal.config, terminal.environment).config.owners == ()
    assert f"FEISHU_APP_ID='{APP_ID}'" in terminal.dotenv.read_text()
