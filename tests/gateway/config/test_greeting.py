"""What start-up says to somebody who has just typed `make run`: short, aligned, with the next step."""

import re
from pathlib import Path

import pytest

from gateway.config.load import load
from gateway.config.report import VERSION, greeting, report
from tests.gateway.config.writing import loaded

SHIPPED = Path(__file__).resolve().parents[3] / "config.yaml"
TOKEN = "7000000001:" + "A" * 35
CLOSED = "closed, as the server can be reached from elsewhere — set server.adminToken (CLAWGATE_ADMIN_TOKEN)"
COMMANDED = "http://127.0.0.1:4711/, with the sign-in link of the start, as commands of coder run on this machine, too"
KEYS = "appSecret: s, encryptKey: k, allowFrom: ['*'], groupAllowFrom: ['*']"


def printed(folder: Path, text: str, env: dict[str, str] | None = None) -> list[str]:
    (folder / "config.yaml").touch(mode=0o600)
    return greeting(loaded(folder, text, env).listening("127.0.0.1", 4711))


def test_the_shipped_config_says_on_one_screen_what_is_missing() -> None:
    assert greeting(load(SHIPPED, {}).listening("127.0.0.1", 4711)) == [
        f"Clawgate {VERSION} listens on http://127.0.0.1:4711",
        "  web        http://127.0.0.1:4711/",
        "  feishu     off: set FEISHU_APP_ID, FEISHU_APP_SECRET, FEISHU_ENCRYPT_KEY (channels/feishu/README.md)",
        "  telegram   off: set TELEGRAM_BOT_TOKEN (channels/telegram/README.md)",
        "  agent      assistant: demo/guide, a script; "
        "set ANTHROPIC_API_KEY, OPENAI_API_KEY or DEEPSEEK_API_KEY for a real model",
        "  stop       Ctrl-C",
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("channels: { feishu: { enabled: false, appId: x } }", "feishu     off: channels.feishu.enabled is false"),
        ("", "feishu     off: add appId, appSecret and encryptKey under channels.feishu (channels/feishu/README.md)"),
        (f"channels: {{ telegram: {{ botToken: '{TOKEN}' }} }}", "telegram   bot 7000000001, polling"),
        (
            f"server: {{ publicUrl: 'https://b.example' }}\n"
            f"channels: {{ feishu: {{ accounts: {{ sales: {{ appId: cli_2, {KEYS} }} }} }} }}",
            "feishu     sales: app cli_2, webhook https://b.example/webhooks/feishu/sales — "
            "enter it as the request URL in the developer console",
        ),
    ],
)
def test_each_channel_has_a_line(tmp_path: Path, text: str, line: str) -> None:
    assert f"  {line}" in printed(tmp_path, f"{text}\nagents: {{ list: [ {{ id: a }} ] }}\n")


@pytest.mark.parametrize(
    ("host", "more", "line"),
    [
        ("127.0.0.1", "", "http://127.0.0.1:4711/"),
        ("::1", "", "http://[::1]:4711/"),
        (
            "0.0.0.0",
            "",
            CLOSED,
        ),
        ("0.0.0.0", "adminToken: a-token-of-16-chars", "http://127.0.0.1:4711/, with the admin token"),
        ("::", "adminToken: a-token-of-16-chars", "http://[::1]:4711/, with the admin token"),
        ("box.example", "adminToken: a-token-of-16-chars", "http://box.example:4711/, with the admin token"),
        (
            "127.0.0.1",
            "adminToken: a-token-of-16-chars",
            "http://127.0.0.1:4711/, with the admin token or the sign-in link of the start",
        ),
        (
            "127.0.0.1",
            "publicUrl: 'https://b.example', adminToken: a-token-of-16-chars",
            "https://b.example/, with the admin token",
        ),
        (
            "127.0.0.1",
            "publicUrl: 'https://b.example'",
            CLOSED,
        ),
    ],
)
def test_the_web_chat_says_where_to_open_it_and_with_what(tmp_path: Path, host: str, more: str, line: str) -> None:
    text = f"server: {{ {more} }}\nchannels: {{ web: {{}} }}\nagents: {{ list: [ {{ id: a }} ] }}\n"
    assert greeting(loaded(tmp_path, text).listening(host, 4711))[1] == f"  web        {line}"


@pytest.mark.parametrize(
    ("agent", "env", "line"),
    [
        ("id: a", {"DEEPSEEK_API_KEY": "k"}, "a: deepseek/deepseek-v4-pro (auto: DEEPSEEK_API_KEY is set)"),
        ("id: a, model: [openai/x, qwen/y]", {"OPENAI_API_KEY": "k", "DASHSCOPE_API_KEY": "k"}, "a: openai/x, then qwen/y"),
        ("id: a, model: demo/guide", {}, "a: demo/guide, a script; for a real model say model: auto, or name one"),
    ],
)  # fmt: skip
def test_each_agent_has_a_line_with_its_model_and_why(
    tmp_path: Path, agent: str, env: dict[str, str], line: str
) -> None:
    assert f"  agent      {line}" in printed(tmp_path, f"agents: {{ list: [ {{ {agent} }} ] }}\n", env)


@pytest.mark.parametrize(
    ("providers", "expected"),
    [
        ("", "set ANTHROPIC_API_KEY, OPENAI_API_KEY or DEEPSEEK_API_KEY for a real model"),
        ("openai: { apiKey: '${MINE:-}' }", "set ANTHROPIC_API_KEY, MINE or DEEPSEEK_API_KEY for a real model"),
        ("openai: { apiKey: '' }, anthropic: {}", "set ANTHROPIC_API_KEY or DEEPSEEK_API_KEY for a real model"),
    ],
)
def test_only_variables_that_would_help_are_named(tmp_path: Path, providers: str, expected: str) -> None:
    (line,) = [line for line in printed(tmp_path, f"providers: {{ {providers} }}\nagents: {{ list: [ {{ id: a }} ] }}\n")
               if "a script" in line]  # fmt: skip
    assert line.endswith(f"; {expected}")


def test_many_agents_stay_on_one_screen(tmp_path: Path) -> None:
    for count, expected in ((4, 4), (5, 4), (50, 4)):
        agents = ", ".join(f"{{ id: a{number}, model: demo/guide }}" for number in range(count))
        lines = [
            line for line in printed(tmp_path, f"agents: {{ list: [ {agents} ] }}\n") if line.startswith("  agent")
        ]
        assert len(lines) == expected
    assert lines[-1] == "  agents     47 more: python -m gateway check"


def test_warnings_come_last_one_a_line(tmp_path: Path) -> None:
    lines = printed(tmp_path, "agents: { list: [ { id: a, model: [anthropic/claude-sonnet-4-6, qwen/qwen3-max] } ] }\n")
    assert lines[-3] == "  stop       Ctrl-C"
    assert lines[-2:] == [
        f"warning: providers.{name}.apiKey: is empty, so a cannot answer with {name} — set {variable} in the environment"
        for name, variable in (("anthropic", "ANTHROPIC_API_KEY"), ("qwen", "DASHSCOPE_API_KEY"))
    ]


def test_no_secret_is_said(tmp_path: Path) -> None:
    lines = printed(tmp_path, "agents: { list: [ { id: a } ] }\n", {"QWEN": "x", "DASHSCOPE_API_KEY": "canary-1234567"})
    assert "canary" not in "\n".join(lines)


def test_the_version_is_the_projects() -> None:
    project = (SHIPPED.parent / "pyproject.toml").read_text(encoding="utf-8")
    assert re.findall(r'^version = "(.+)"$', project, re.MULTILINE) == [VERSION]


@pytest.mark.parametrize(
    ("tools", "more", "line"),
    [
        ("allow: [read, ls]", "", "http://127.0.0.1:4711/"),
        ("allow: ['*'], deny: [exec]", "", "http://127.0.0.1:4711/"),
        ("allow: [exec], exec: { mode: ask }", "", "http://127.0.0.1:4711/"),
        ("allow: [exec], exec: { mode: deny }", "", "http://127.0.0.1:4711/"),
        ("allow: [exec]", "", COMMANDED),
        ("allow: ['*']", "", COMMANDED),
        ("allow: [exec]", "publicUrl: 'https://b.example'", CLOSED),
    ],
)
def test_an_agent_that_runs_commands_closes_the_page_to_whoever_is_at_this_machine(
    tmp_path: Path, tools: str, more: str, line: str
) -> None:
    text = (
        f"server: {{ {more} }}\nchannels: {{ web: {{}} }}\ntools: {{ exec: {{ mode: allow }} }}\n"
        f"agents: {{ list: [ {{ id: quiet }}, {{ id: coder, tools: {{ {tools} }} }} ] }}\n"
    )
    config = loaded(tmp_path, text).listening("127.0.0.1", 4711)
    assert greeting(config)[1] == f"  web        {line}"
    assert f"web default: {line}" in report(config)


def test_the_link_stands_where_it_can_be_clicked_and_says_how_long(tmp_path: Path) -> None:
    text = "server: { signInLinkSeconds: 300 }\nchannels: { web: {} }\nagents: { list: [ { id: a } ] }\n"
    lines = greeting(loaded(tmp_path, text).listening("::1", 4711), link="once-x")
    assert "  sign in    http://[::1]:4711/#sign-in=once-x (once, within 5 min)" in lines
