"""The configs of docs/examples as a person takes them: each says what it needs, passes `check`, and starts."""

import re
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import yaml

from gateway.config.channels import ChannelsConfig
from gateway.config.checks import is_example
from gateway.config.load import load
from gateway.operate.report import report
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.gateway.config.writing import data_of, lines
from tests.loopback import serve_on_loopback
from tests.running import feishu_emulator
from tests.stories.config.test_check import DUMMY, PAGES, VALUES
from tests.stories.process.test_process import ROOT, ask, started

EXAMPLES = sorted((ROOT / "docs/examples").glob("*.yaml"))
MORE = {
    "TRACKER_URL": "https://mcp.example.com/mcp",
    "DATABASE_URL": "postgresql://user:password@127.0.0.1/clawgate",
    "ANTHROPIC_API_KEY": DUMMY,
}
YOURS = [".to: is the example's id"]
GROUP = ["is the example's id", "has no effect, as groupAllowFrom"]
MEANT = {"public-bot": ["dmPolicy: open"], "ci-to-a-group": YOURS, "monday-report": GROUP, "watch-a-page": YOURS}
MEANT["support-desk"] = YOURS
"""The warnings that an example is about, or that say what is left to fill in."""


def variables(text: str) -> set[str]:
    """The names that a config cannot do without."""
    return set(re.findall(r"\$\{([A-Z0-9_]+)\}", text))


def values(needed: set[str]) -> dict[str, str]:
    return MORE | {name: VALUES.get(name) or MORE.get(name) or f"{DUMMY}-{name}-of-48" for name in needed}


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_example_config_passes_check_and_names_its_needs(tmp_path: Path, file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    needed = variables(text)
    head = text.partition("\n\n")[0]
    assert {name for name in needed if name not in head} == set()
    copy = tmp_path / "config.yaml"
    copy.write_text(text, encoding="utf-8")
    copytree(file.parent / "tools.d", tmp_path / "tools.d")
    warnings = [str(it) for it in report(load(copy, values(needed))) if it.status == "warning"]
    assert [line for line in warnings if not any(words in line for words in MEANT.get(file.stem, ()))] == []


A_PERIOD = re.compile(
    r"\b(?:last|past|this|whole) (?:week|month|day|night|weekend)|\byesterday|[上本这]周|昨天|[上本这]个?月", re.I
)
BLOCKS = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)


def tasks_in(file: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """The configs of a page, or the one that a file is, with each task of their schedules."""
    text = file.read_text(encoding="utf-8")
    for block in [text] if file.suffix == ".yaml" else BLOCKS.findall(text):
        config = yaml.safe_load(block)
        for it in config.get("schedules", ()) if isinstance(config, dict) else ():
            if "task" in it:
                yield config, it["task"]


def test_example_config_asks_no_more_history_than_it_reads() -> None:
    """A turn reads the last messages since the bot's last answer, whenever that was: no week, no day, without the tool that
    reads what a group said."""
    pages = [*EXAMPLES, ROOT / "config.yaml", *(ROOT / "docs").glob("*.md"), *ROOT.glob("README*.md")]
    found = [(file.name, config, task) for file in pages for config, task in tasks_in(file)]
    assert {"monday-report.yaml", "later.md"} <= {name for name, _, _ in found}
    assert [(name, task) for name, _, task in found if A_PERIOD.search(task) and "group_history" not in task] == []
    for name, config, task in found:
        if "channels" in config and "group" in task:
            assert "'remember': " in str(config) if "group_history" in task else "'history': " in str(config), name


def test_example_configs_are_each_in_the_cookbook_once() -> None:
    table = re.findall(
        r"^\| .* \| \[(\S+)\]\(examples/(\S+)\) \|$", (ROOT / "docs/cookbook.md").read_text("utf-8"), re.M
    )
    assert sorted(table) == [(file.name, file.name) for file in EXAMPLES]
    assert len(EXAMPLES) >= 10


@pytest.mark.slow
@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
async def test_example_config_starts_with_a_claim_code(tmp_path: Path, file: Path) -> None:
    """Nobody but those who run it own it: the one that names owners names users of its page, who have their tokens."""
    text = file.read_text(encoding="utf-8")
    config, channels = data_of(text), {"feishu": "baseUrl", "telegram": "apiRoot"}
    feishu, telegram = feishu_emulator(), TelegramEmulator()
    async with serve_on_loopback(feishu.app) as feishu_url, serve_on_loopback(telegram.app) as telegram_url:
        for name, url in (("feishu", feishu_url), ("telegram", telegram_url)):
            if name in config["channels"]:
                config["channels"][name][channels[name]] = url
        (tmp_path / "config.yaml").write_text(yaml.safe_dump(config, allow_unicode=True), encoding="utf-8")
        copytree(file.parent / "tools.d", tmp_path / "tools.d")
        local = {"DATABASE_URL": "sqlite:///./data/clawgate.db", "TRACKER_URL": "http://127.0.0.1:9/mcp"}
        async with started(tmp_path / "config.yaml", values(variables(text)) | local) as run:
            claim = re.findall(r"send it /claim ([A-Z0-9]{4}-[A-Z0-9]{4}) in a direct chat", "".join(run.output))
    assert len(claim) == (file.stem != "web-team")
    assert ("# First step: claim it." in text.partition("\n\n")[0]) == bool({*channels} & config["channels"].keys())


GRANTS = (
    'owners: ["PLATFORM:PERSON"]',
    'approvals: { approvers: ["PLATFORM:PERSON"] }',
    'channels: { PLATFORM: { allowFrom: ["PERSON"] } }',
    'channels: { PLATFORM: { groupAllowFrom: ["GROUP"] } }',
    'channels: { PLATFORM: { groupSenders: ["PERSON"] } }',
    'channels: { PLATFORM: { accounts: { sales: { allowFrom: ["PERSON"] } } } }',
    'channels: { PLATFORM: { chats: { "-7": { senders: ["PERSON"] } } } }',
    'agents: { list: [ { id: helper, approvals: { approvers: ["PLATFORM:PERSON"] } } ] }',
    'agents: { defaults: { tools: { message: { targets: ["PLATFORM:GROUP"] } } }, list: [ { id: helper } ] }',
)
MATCHES = (
    'bindings: [ { agent: helper, match: { channel: PLATFORM, chat: "GROUP" } } ]',
    'bindings: [ { agent: helper, match: { sender: "PERSON" } } ]',
    'tools: { senders: { "PLATFORM:PERSON": { deny: [exec] } } }',
    'approvals: { surfaces: [dm, "PLATFORM:GROUP"] }',
)
EXAMPLE_IDS = (
    ("telegram", "123456789", "-1001234567890"),
    ("feishu", "ou_0123456789abcdef", "oc_0123456789abcdef"),
    ("feishu", "ou_0123456789abcdef0123456789abcdef", "oc_0123456789abcdef02"),
    ("feishu", "ou_…", "oc_…"),
)
OTHER_IDS = (
    ("telegram", "1234567890", "-100123456789"),
    ("feishu", "ou_0123456789abcde", "oc_7654321098765432109876543210"),
)


def written(setting: str, platform: str, person: str, group: str) -> str:
    text = setting.replace("PLATFORM", platform).replace("PERSON", person).replace("GROUP", group)
    return text if "agents:" in text else f"{text}\nagents: {{ list: [ {{ id: helper }} ] }}\n"


@pytest.mark.parametrize("ids", EXAMPLE_IDS, ids=lambda ids: ids[1])
def test_example_id_is_refused_where_it_grants_rights(tmp_path: Path, ids: tuple[str, str, str]) -> None:
    for setting in GRANTS:
        found = [it for it in lines(tmp_path, written(setting, *ids)) if "example's id — " in it]
        assert len(found) == 1, setting
        assert ids[1] not in found[0]
    for setting in MATCHES:
        (tmp_path / "config.yaml").write_text(written(setting, *ids), encoding="utf-8")
        warnings = [it("en") for it in load(tmp_path / "config.yaml", {}).warnings]
        assert [it for it in warnings if "is the example's id — name your own, or remove it" in it], setting


@pytest.mark.parametrize("ids", OTHER_IDS, ids=lambda ids: ids[1])
def test_example_id_lookalike_is_accepted(tmp_path: Path, ids: tuple[str, str, str]) -> None:
    for setting in (*GRANTS, *MATCHES):
        (tmp_path / "config.yaml").write_text(written(setting, *ids), encoding="utf-8")
        found = [*lines(tmp_path, written(setting, *ids)), *map(str, load(tmp_path / "config.yaml", {}).warnings)]
        assert [it for it in found if "example" in it] == [], setting


@pytest.mark.slow
async def test_example_id_is_refused_by_check_serve_and_pairing(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    telegram = f'channels: {{ telegram: {{ botToken: "{VALUES["TELEGRAM_BOT_TOKEN"]}" }} }}\n'
    config.write_text(f'owners: ["telegram:123456789"]\n{telegram}agents: {{ list: [ {{ id: helper }} ] }}\n')
    for command in (("check",), ("serve", "--port", "0")):
        code, output = await ask(*command, "--config", str(config))
        assert (code, output.count("\n")) == (1, 1), output
        assert "config.yaml:1:10: owners[0]: is the example's id — remove it and /claim the bot" in output
    config.write_text(config.read_text().replace('owners: ["telegram:123456789"]\n', ""))
    code, output = await ask("pairing", "approve", "telegram:123456789", "--config", str(config))
    assert (code, "is the example's id" in output) == (1, True), output


IDS = re.compile(
    r"""
    \b(?P<feishu>(?:ou|oc)_[\w…]*)
    | telegram:(?:[a-z]+:)?(?P<place>-?[\d…]+)
    | --sender\ (?P<sender>\d+)
    | ["'](?P<quoted>-?\d{6,})["']
    """,
    re.VERBOSE,
)


@pytest.mark.parametrize(
    "page",
    sorted([*PAGES, *ROOT.glob("docs/*.zh-CN.md"), *EXAMPLES, ROOT / "config.yaml", ROOT / "ARCHITECTURE.md"]),
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_example_ids_of_every_page_are_refused(page: Path) -> None:
    """Whoever pastes it gives nothing to a stranger."""
    channels = ChannelsConfig()
    found = [
        next((k, it) for k, it in match.groupdict().items() if it) for match in IDS.finditer(page.read_text("utf-8"))
    ]
    names = [f"{'feishu' if kind == 'feishu' else 'telegram'}:{name}" for kind, name in found]
    assert [name for name in names if not is_example(channels, name)] == []
