"""`python -m gateway init`: a newcomer's answers become a config that can be used, and nothing of his is overwritten."""

import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli import app
from gateway.config.load import load

KEY = "sk-ant-REDACTED-91827"
DEEPSEEK = ("--model", "deepseek/deepseek-chat")


def init(config: Path, *words: str, typed: str = "") -> tuple[int, str]:
    result = CliRunner().invoke(app, ["init", "--config", str(config), *words], input=typed)
    return result.exit_code, result.output


@pytest.fixture(autouse=True)
def _nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.cli.options.environment", dict)
    monkeypatch.setattr("gateway.cli.init.environment", dict)


def test_answers_become_a_config_and_secrets_stand_beside_it(tmp_path: Path) -> None:
    config, dotenv = tmp_path / "new" / "config.yaml", tmp_path / "new" / ".env"
    answers = [
        "y",
        "n",
        "anthropic",
        "helper",
        KEY,
        "cli_0123456789abcdef",
        "the-app-secret",
        "",
    ]
    code, output = init(config, typed="\n".join(answers))
    assert code == 0, output
    loaded = load(config, {}).config
    (agent,) = loaded.agents.list
    assert (agent.id, agent.model) == ("helper", ("anthropic/claude-sonnet-4-6",))
    assert loaded.provider("anthropic").keys == (KEY,)
    assert loaded.channels.feishu
    assert loaded.channels.feishu.app_secret.get_secret_value() == "the-app-secret"
    assert KEY not in config.read_text(encoding="utf-8")
    assert stat.S_IMODE(dotenv.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "words", [(), ("--channel", "feishu", "--channel", "telegram"), ("--provider", "openai"), DEEPSEEK], ids=str
)
def test_a_script_asks_for_nothing_and_what_is_written_passes_check(tmp_path: Path, words: tuple[str, ...]) -> None:
    config = tmp_path / "config.yaml"
    assert init(config, "--yes", *words)[0] == 0
    checked = CliRunner().invoke(app, ["check", "--config", str(config)])
    assert checked.exit_code == 0, checked.output
    assert not (tmp_path / ".env").exists()


def test_nothing_that_is_there_is_overwritten(tmp_path: Path) -> None:
    config, dotenv, other = tmp_path / "config.yaml", tmp_path / ".env", tmp_path / "other.yaml"
    config.write_text("mine", encoding="utf-8")
    code, output = init(config, "--yes")
    assert (code, config.read_text()) == (1, "mine")
    assert "is there already" in output
    dotenv.write_text(f"ANTHROPIC_API_KEY={KEY}\nMINE=1", encoding="utf-8")
    assert init(other, "--yes", "--agent", "Not An Id")[0] == 1
    assert not other.exists()
    code, output = init(
        other, typed="n\ny\n\n\n123456789:AAabcdefghijklmnopqrstuvwxyz0123456\n"
    )  # the key is set, so nobody is asked for it
    assert code == 0, output
    written = f"ANTHROPIC_API_KEY={KEY}\nMINE=1\nTELEGRAM_BOT_TOKEN='123456789:AAabcdefghijklmnopqrstuvwxyz0123456'\n"
    assert dotenv.read_text() == written
    third = tmp_path / "third.yaml"
    code, output = init(third, typed="y\nn\n\n\ncli_1\n\n")  # half of a pair would be a mistake
    assert "FEISHU_APP_SECRET" in output
    assert dotenv.read_text() == written
    assert CliRunner().invoke(app, ["check", "--config", str(third)]).exit_code == 0
