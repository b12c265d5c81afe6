"""`python -m gateway check` as a person meets it: what is pasted from the documents, and what is pasted by mistake."""

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from agents.providers.config import WELL_KNOWN
from gateway.config.channels import CHANNEL_TYPES
from gateway.config.reader import known_keys
from gateway.config.root import Config
from tests.gateway.config.writing import data_of
from tests.stories.process.test_process import ROOT, ask

_DOCS = [it for it in ROOT.glob("docs/*.md") if ".zh-CN" not in it.name]  # test_house holds that theirs are the same
PAGES = sorted([*ROOT.glob("README*.md"), *_DOCS, *ROOT.glob("channels/*/README.md")])
VALUES = {
    "CLAWGATE_PUBLIC_URL": "https://bot.example.com",
    "CLAWGATE_MODEL": "anthropic/claude-sonnet-4-6",
    "FEISHU_APP_ID": "cli_0123456789abcdef",
    "TELEGRAM_BOT_TOKEN": "7000000001:AAExampleExampleExampleExampleExamp1",
}
"""What is more than any text."""
DUMMY = "a-dummy-of-24-characters"
KEYS = {variable: DUMMY for vendor in WELL_KNOWN for variable in vendor.variables}


def snippets(page: Path) -> list[str]:
    """Every block of YAML, without the indentation of the list that it stands in."""
    found = re.findall(r"^( *)```ya?ml\n(.*?)^\1```", page.read_text(encoding="utf-8"), re.M | re.S)
    return [textwrap.dedent(text) for _, text in found]


OWN_IDS = (
    (r"\b(ou|oc)_(?:0123456789abcdef|…)", r"\1_abcdef0123456789"),
    (r"\b1(23456789\b|001234567890\b)", r"2\1"),
)


def pasted(config: Any, text: str, page: Path) -> Any:
    """The config with a snippet put where it belongs: at the top, or among the keys of the page's channel. Its ids are
    replaced by a person's own, as an example's are refused."""
    for example, own in OWN_IDS:
        text = re.sub(example, own, text)
    snippet, channel = data_of(text), page.parent.name
    if channel in CHANNEL_TYPES and snippet.keys() <= set(known_keys(Config, ("channels", channel))):
        snippet = {"channels": {channel: snippet}}
    return joined(config, snippet)


def joined(there: Any, new: Any) -> Any:
    if isinstance(there, dict) and isinstance(new, dict):
        return there | {key: joined(there.get(key), value) for key, value in new.items()}
    if isinstance(there, list) and isinstance(new, list):
        return there + [item for item in new if item not in there]
    return new


@pytest.mark.parametrize(
    "page", [page for page in PAGES if snippets(page)], ids=lambda page: str(page.relative_to(ROOT))
)
async def test_check_accepts_every_snippet_of_the_docs(tmp_path: Path, page: Path) -> None:
    """One snippet after the other; a channel's page leads to whom to let in only at its end."""
    text, file = page.read_text(encoding="utf-8"), tmp_path / "config.yaml"
    exported = [name for line in re.findall(r"export (.+)", text) for name in re.findall(r"([A-Z0-9_]+)=", line)]
    others = tuple(f"{name.upper()}_" for name in CHANNEL_TYPES if f"{name}:" not in "".join(snippets(page)))
    named = {name for name in (*exported, *re.findall(r"\$\{([A-Z0-9_]+)\}", text)) if not name.startswith(others)}
    env = KEYS | {name: VALUES.get(name, f"{DUMMY}-{name}") for name in named}
    config = data_of((ROOT / "config.yaml").read_text(encoding="utf-8"))
    if page.name == "later.md":  # its places are in a bot that is there
        env["FEISHU_APP_SECRET"] = DUMMY
        config["channels"]["feishu"] = {
            "appId": VALUES["FEISHU_APP_ID"],
            "appSecret": "${FEISHU_APP_SECRET}",
            "mode": "websocket",
        }
    (tmp_path / "tools.d").mkdir()
    own = "".join(
        f'async def {name}() -> str:\n    """A."""\n    return ""\n' for name in ("switch_light", "count_words")
    )
    (tmp_path / "tools.d" / "own.py").write_text(own)
    for number, snippet in enumerate(snippets(page), start=1):
        config = pasted(config, snippet, page)
        file.write_text(yaml.safe_dump(config, allow_unicode=True), encoding="utf-8")
        if page.parent.name in CHANNEL_TYPES and number < len(snippets(page)):
            continue
        code, output = await ask("check", "--config", str(file), more=env)
        assert (code, re.findall(r"^warning: .*", output, re.M)) == (0, []), f"snippet {number}: {output}"


PASTED = """\
agents:
  list:
    - id: a
      sk-ant-api03-canary91827canary: x
      7000000001:AAcanary91827canary91827canary91827: x
      c4N91aR827yQ5w3E1r7T9y2U: x
      nmae: x
"""


@pytest.mark.parametrize("command", ["check", "serve"])
async def test_check_mistake_is_one_line_with_place_and_fix(tmp_path: Path, command: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(PASTED, encoding="utf-8")
    code, output = await ask(command, "--config", str(file))
    assert code == 1
    *pasted, misspelt = output.splitlines()
    places = [line.removeprefix(f"{file}:").split(" — ")[0] for line in pasted]
    assert places == [f"{line}:7: agents.list[0].***: unknown key" for line in (4, 5, 6)]
    assert misspelt == f'{file}:7:7: agents.list[0].nmae: unknown key — did you mean "name"?'


def test_check_finds_the_pages_with_snippets() -> None:
    counts = {str(page.relative_to(ROOT)): len(snippets(page)) for page in PAGES if snippets(page)}
    assert counts["README.md"] == counts["README.zh-CN.md"] > 0
    assert {
        "docs/add-an-agent.md",
        "docs/providers.md",
        *(f"channels/{name}/README.md" for name in CHANNEL_TYPES),
    } <= counts.keys()


@pytest.mark.parametrize("command", ["check", "doctor"])
async def test_check_names_an_env_file_that_is_not_utf8(tmp_path: Path, command: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        "channels: { web: {} }\nagents: { list: [ { id: helper, model: demo/guide } ] }\n", encoding="utf-8"
    )
    (tmp_path / ".env").write_bytes("# 我的密钥\r\nDEEPSEEK_API_KEY=sk-abc\r\n".encode("gbk"))
    _, output = await ask(command, "--config", str(file))
    assert ".env is not UTF-8 but GBK, so nothing of it is read" in output
    assert "save it in the encoding UTF-8" in output
