"""What `check` says: what is configured, what is missing, and the next step."""

import re
from pathlib import Path

import pytest

from gateway.config.report import report
from tests.gateway.config.writing import loaded

SKILL = "skills: { allow: [create-python-script] }"
AGENT = f"agents: {{ list: [ {{ id: a, {SKILL} }} ] }}\n"
SCRIPTED = AGENT.replace("id: a,", "id: a, model: demo/guide,")
TOKEN = "7000000001:" + "A" * 35
KEYS = "appSecret: s, encryptKey: k, allowFrom: ['*'], groupAllowFrom: ['*']"
WEB_OFF = "web: not configured — add web: {} under channels; channels/web/README.md shows where to find it"
GUIDE = (
    "model demo/guide: a script, not a model, answers as a — "
    "set ANTHROPIC_API_KEY, OPENAI_API_KEY or DEEPSEEK_API_KEY for a real model"
)


def printed(folder: Path, text: str, env: dict[str, str] | None = None) -> list[str]:
    (folder / "config.yaml").touch(mode=0o600)
    return [line.replace(f"{folder}/", "") for line in report(loaded(folder, text, env))]


def test_a_config_with_nothing_in_it_says_what_to_do_next(tmp_path: Path) -> None:
    assert printed(tmp_path, AGENT) == [
        "server: http://127.0.0.1:8080, no publicUrl, database data/clawgate.db",
        WEB_OFF,
        "feishu: not configured — add appId, appSecret and encryptKey under channels.feishu; "
        "channels/feishu/README.md shows where to find it",
        "telegram: not configured — add botToken under channels.telegram; "
        "channels/telegram/README.md shows where to find it",
        "agent a: demo/guide (auto: no key is set); tools read ls message; skills create-python-script; "
        "workspace data/workspaces/a",
        GUIDE,
    ]


def test_a_working_config_says_what_serves_where(tmp_path: Path) -> None:
    text = f"""\
    server: {{ host: "::1", port: 9, publicUrl: https://bot.example.com/ }}
    providers: {{ anthropic: {{ apiKey: key }}, openai: {{ apiKey: key }} }}
    channels: {{ feishu: {{ appId: cli_1, {KEYS}, accounts: {{ sales: {{ appId: cli_2, {KEYS} }} }} }} }}
    agents:
      list:
        - {{ id: a, model: [openai/gpt-5.5, demo/guide], tools: {{ allow: [] }}, {SKILL} }}
        - {{ id: b, model: anthropic/claude-opus-4-8, tools: {{ allow: ["*"], deny: [exec] }}, skills: {{ allow: [] }} }}
    """
    step = "enter it as the request URL in the developer console"
    assert printed(tmp_path, text) == [
        "server: http://[::1]:9, https://bot.example.com, database data/clawgate.db",
        WEB_OFF,
        f"feishu default: app cli_1, webhook https://bot.example.com/webhooks/feishu/default — {step}",
        f"feishu sales: app cli_2, webhook https://bot.example.com/webhooks/feishu/sales — {step}",
        "telegram: not configured — add botToken under channels.telegram; "
        "channels/telegram/README.md shows where to find it",
        "provider anthropic: key set",
        "provider openai: key set",
        "agent a: openai/gpt-5.5, then demo/guide; tools none; skills create-python-script; workspace data/workspaces/a",
        "agent b: anthropic/claude-opus-4-8; tools read write edit ls message; skills none; workspace data/workspaces/b",
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "channels: { feishu: { appId: '${APP:-}', appSecret: '${SECRET:-}', encryptKey: '${KEY:-}' } }\n",
            "feishu: not configured — set APP, SECRET, KEY; channels/feishu/README.md shows where to find it",
        ),
        ("channels: { feishu: { enabled: false, appId: x } }\n", "feishu: switched off (channels.feishu.enabled)"),
        (
            f"channels: {{ feishu: {{ appId: cli_1, {KEYS} }} }}\n",
            "feishu default: app cli_1, webhook <publicUrl>/webhooks/feishu/default — set server.publicUrl to the "
            "address under which Feishu reaches this server",
        ),
        (
            "channels: { telegram: { botToken: '${APP:-}' } }\n",
            "telegram: not configured — set APP; channels/telegram/README.md shows where to find it",
        ),
        (f"channels: {{ telegram: {{ botToken: '{TOKEN}' }} }}\n", "telegram default: bot 7000000001, polling"),
        (
            f"channels: {{ telegram: {{ botToken: '{TOKEN}', mode: webhook, webhookSecret: s }} }}\n",
            "telegram default: bot 7000000001, webhook <publicUrl>/webhooks/telegram/default — set server.publicUrl, or "
            "mode: polling, which needs none",
        ),
        (
            "providers: { anthropic: { apiKey: '${K:-}' } }\n",
            "providers anthropic: no key, and no agent uses them",
        ),
        (
            "providers: { ollama: {}, openai: { apiKey: a, apiKeys: [b] } }\n",
            "provider ollama: needs no key, at its usual address (no agent uses it)",
        ),
        (
            "providers: { ollama: {}, openai: { apiKey: a, apiKeys: [b] } }\n",
            "provider openai: 2 keys set (no agent uses it)",
        ),
        (
            "providers: { claude: { api: anthropic-messages, apiKey: x } }\n",
            "provider claude: key set (no agent uses it)",
        ),
        (
            "",
            "model demo/guide: a script, not a model, answers as a — for a real model say model: auto, or name one",
        ),
    ],
)
def test_what_is_missing_names_the_next_step(tmp_path: Path, text: str, line: str) -> None:
    assert line in printed(tmp_path, text + SCRIPTED)


def test_a_key_from_the_environment_is_named_by_its_variable_and_the_choice_by_its_reason(tmp_path: Path) -> None:
    lines = printed(tmp_path, AGENT, {"DEEPSEEK_API_KEY": "sk-1"})
    assert "provider deepseek: key set (DEEPSEEK_API_KEY)" in lines
    assert [line.partition(";")[0] for line in lines if line.startswith("agent ")] == [
        "agent a: deepseek/deepseek-v4-pro (auto: DEEPSEEK_API_KEY is set)"
    ]


def test_a_hidden_skill_says_what_it_needs(tmp_path: Path) -> None:
    skill = tmp_path / "more" / "deploy"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nrequires: { bins: [no-such-program], env: [NO_SUCH] }\n---\n# Deploy\nNow.\n")
    text = "skills: { directories: [more] }\nagents: { list: [ { id: a } ] }\n"
    without, with_it = printed(tmp_path, text), printed(tmp_path, text, {"NO_SUCH": "1"})
    (line,) = [line for line in without if line.startswith("skill deploy: hidden — it needs ")]
    assert "no-such-program" in line
    assert "NO_SUCH" in line
    assert "skill deploy: hidden — it needs the program no-such-program" in with_it


def test_warnings_come_last(tmp_path: Path) -> None:
    lines = printed(tmp_path, "agents: { list: [ { id: a, model: anthropic/claude-opus-5 } ] }\n")
    assert lines[-1].startswith("warning: providers.anthropic.apiKey: is empty, so a cannot answer with anthropic")


BOT = "botToken: '7000000001:AAExampleExampleExampleExampleExamp1'"
OTHER = BOT.replace("01:", "02:")
WRITES = "agents: { list: [ { id: a, tools: { allow: [read, write] } } ] }\n"
SHARED = (
    "agent a: everybody it serves shares one workspace, and can have it read and change what others left there — "
    "end workspaceDir with /{chat} or /{sender}, or take write out of tools.allow"
)


def about_sharing(folder: Path, access: str, agents: str = WRITES) -> list[str]:
    text = f"channels: {{ web: {{}}, telegram: {{ {BOT}, {access} }} }}\n{agents}"
    return [line.removeprefix("warning: ") for line in printed(folder, text) if "shares one workspace" in line]


@pytest.mark.parametrize(
    "access",
    [
        "allowFrom: ['1', '2']",
        "allowFrom: ['*']",
        "dmPolicy: open",
        "groupPolicy: open",
        "groupAllowFrom: ['-1', '-2']",
        f"allowFrom: ['1'], accounts: {{ b: {{ {OTHER}, allowFrom: ['2'] }} }}",
    ],
)
def test_people_who_share_a_workspace_that_is_written_to_are_a_warning(tmp_path: Path, access: str) -> None:
    assert about_sharing(tmp_path, access) == [SHARED]
    for place in ("{agent}/{chat}", "{agent}/{sender}"):
        apart = WRITES.replace("id: a,", f"id: a, workspaceDir: './w/{place}',")
        assert about_sharing(tmp_path, access, apart) == []
    assert about_sharing(tmp_path, access, WRITES.replace(", write", ", exec")) == []
    runs = WRITES.replace("[read, write]", "[read, exec], exec: { mode: allow }")
    assert about_sharing(tmp_path, access, runs) == [SHARED.replace("write", "exec")]
    assert about_sharing(tmp_path, access, WRITES.replace(", write", "")) == []


@pytest.mark.parametrize(
    "access",
    [
        "allowFrom: []",
        "allowFrom: ['1'], groupAllowFrom: ['-1']",
        "allowFrom: ['1', '2'], dmPolicy: disabled",
        "groupAllowFrom: ['-1', '-2'], groupPolicy: disabled",
    ],
)
def test_one_person_and_his_group_share_nothing_that_deserves_a_warning(tmp_path: Path, access: str) -> None:
    assert about_sharing(tmp_path, access) == []


def test_who_shares_is_told_by_the_bindings(tmp_path: Path) -> None:
    two = WRITES.replace("] }\n", ", { id: b, tools: { allow: [write] } } ] }\n")
    bound = f"{two}bindings: [ {{ agent: b, match: {{ sender: '2' }} }} ]\n"
    assert about_sharing(tmp_path, "allowFrom: ['1', '2']", bound) == []
    assert about_sharing(tmp_path, "allowFrom: ['1', '2', '3']", bound) == [SHARED]
    everything = f"{two}bindings: [ {{ agent: b, match: {{ channel: telegram }} }} ]\n"
    assert about_sharing(tmp_path, "dmPolicy: open", everything) == [SHARED.replace("agent a", "agent b")]
    one_group = f"{two}bindings: [ {{ agent: b, match: {{ chat: '-1' }} }} ]\n"
    assert about_sharing(tmp_path, "groupPolicy: open, dmPolicy: disabled", one_group) == [SHARED]


@pytest.mark.parametrize("page", ["README.md", "docs/add-an-agent.md", "channels/feishu/README.md"])
def test_neither_the_shipped_config_nor_what_a_page_shows_warns_of_people_who_share(tmp_path: Path, page: str) -> None:
    root = Path(__file__).resolve().parents[3]
    text = (root / "config.yaml").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^ *(allowFrom|groupAllowFrom): (\[[^\]]*\])", (root / page).read_text("utf-8"), re.M))
    for key, value in shown.items():
        text = re.sub(rf"\b{key}: \[\]", f"{key}: {value}", text, count=1)
    env = {"FEISHU_APP_ID": "cli_1", "FEISHU_APP_SECRET": "s", "FEISHU_ENCRYPT_KEY": "k"}
    assert [line for line in printed(tmp_path, text, env) if "shares one workspace" in line] == []
