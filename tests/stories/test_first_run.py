"""The first run: the shipped config as it is, with nothing in the environment, or with one key and nothing else."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from agents.providers.config import WELL_KNOWN
from gateway.cli import app
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.models.chat.emulator import ChatEmulator
from tests.emulators.models.script import says
from tests.loopback import serve_on_loopback
from tests.running import APP_ID, FEISHU, SECRETS, client, feishu_emulator
from tests.stories.test_process import ROOT, say, started

pytestmark = pytest.mark.slow  # it starts processes

KEY = "canary-deepseek-key-91827"
FEISHU_SECRETS = {name: value for name, value in SECRETS.items() if name.startswith("FEISHU_")}
OFFERED = [
    (variable, vendor.model_of(vendor.names[0]))
    for vendor in WELL_KNOWN
    if vendor.default_model
    for variable in vendor.variables
]


def test_any_one_key_is_all_that_the_shipped_config_needs(monkeypatch: pytest.MonkeyPatch) -> None:
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
        ("feishu:  ", f'feishu:\n    baseUrl: "{feishu_url}"\n    #'),
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


async def test_without_any_key_the_script_answers_and_says_how_to_set_one(tmp_path: Path) -> None:
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


async def test_with_one_key_in_the_environment_the_vendor_is_really_asked_with_it(tmp_path: Path) -> None:
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
