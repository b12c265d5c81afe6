"""`python -m gateway init --yes`: a config that can be used, and nothing that is there is overwritten."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli import app
from gateway.cli.start import TEMPLATE
from gateway.config.load import load

ROOT = Path(__file__).resolve().parents[3]
KEY = "sk-ant-REDACTED-91827"
DEEPSEEK = ("--model", "deepseek/deepseek-chat")


def init(config: Path, *words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["init", "--config", str(config), *words])
    return result.exit_code, result.output


@pytest.fixture(autouse=True)
def _nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.cli.options.environment", dict)
    monkeypatch.setattr("gateway.cli.start.environment", dict)


@pytest.mark.parametrize(
    "words", [(), ("--channel", "feishu", "--channel", "telegram"), ("--provider", "openai"), DEEPSEEK], ids=str
)
def test_init_yes_asks_nothing_and_passes_check(tmp_path: Path, words: tuple[str, ...]) -> None:
    config = tmp_path / "config.yaml"
    assert init(config, "--yes", *words)[0] == 0
    checked = CliRunner().invoke(app, ["check", "--config", str(config)])
    assert checked.exit_code == 0, checked.output
    assert not (tmp_path / ".env").exists()


def test_init_ignores_the_checkouts_edited_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the checkout's `config.yaml` has become, or where it has gone."""
    code = tmp_path / "checkout" / "gateway" / "cli"
    shutil.copytree(ROOT / "gateway" / "cli", code)
    shipped, gone, own = tmp_path / "checkout" / "config.yaml", tmp_path / "gone.yaml", tmp_path / "own.yaml"
    command = f"""
import gateway, pathlib
gateway.__path__.insert(0, {str(code.parent)!r})
from gateway.cli import app
app(["init", "--yes", "--config", {str(gone)!r}], standalone_mode=False)
pathlib.Path({str(shipped)!r}).write_text("agents: {{ list: [ {{ id: mine, name: My own name }} ] }}\\n")
app(["init", "--yes", "--config", {str(own)!r}], standalone_mode=False)
"""
    made = subprocess.run([sys.executable, "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert (made.returncode, made.stderr) == (0, "")
    for config in (gone, own):
        assert "My own name" not in config.read_text(encoding="utf-8")
        assert load(config, {}).config.agents.list[0].id == "assistant"


def test_init_config_matches_the_shipped_one() -> None:
    """The words differ where the place does: the shipped one names the schema of its checkout."""
    shipped, new = (path.read_text(encoding="utf-8") for path in (ROOT / "config.yaml", TEMPLATE))
    assert shipped == f"# yaml-language-server: $schema=docs/config.schema.json\n{new}"


def test_init_overwrites_nothing(tmp_path: Path) -> None:
    config, dotenv, other = tmp_path / "config.yaml", tmp_path / ".env", tmp_path / "other.yaml"
    config.write_text("mine", encoding="utf-8")
    code, output = init(config, "--yes")
    assert (code, config.read_text()) == (1, "mine")
    assert "already exists" in output
    dotenv.write_text(f"ANTHROPIC_API_KEY={KEY}\nMINE=1", encoding="utf-8")
    assert init(other, "--yes", "--agent", "Not An Id")[0] == 1
    assert not other.exists()
    assert dotenv.read_text() == f"ANTHROPIC_API_KEY={KEY}\nMINE=1"
