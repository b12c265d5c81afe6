"""What `check` says, and what start-up says: what is configured, what is missing, and the next step."""

from pathlib import Path

import pytest

from gateway.config.exposure import way_in
from gateway.config.load import load
from gateway.operate.report import greeting, lines, report
from gateway.program import VERSION
from tests.gateway.config.writing import cases, loaded

ROOT = Path(__file__).resolve().parents[3]
TOKEN = "7000000001:" + "A" * 35
WORDS = {
    "KEYS": "appSecret: s, encryptKey: k, allowFrom: ['*'], groupAllowFrom: ['*']",
    "TOKEN": TOKEN,
    "ADMIN": "adminToken: a-token-of-16-chars",
    "CLOSED": "closed, as the server can be reached from elsewhere — set server.adminToken (CLAWGATE_ADMIN_TOKEN)",
    "LINK": "with the sign-in link of the start, as a model can reach this machine, too: commands of coder",
    "RUNS": "tools: { exec: { mode: allow } }",
    "ASKS": "agents: { list: [ { id: coder, tools: { allow: [exec], exec: { mode: ask",
    "HERE": "with the sign-in link of the start, as a model can reach this machine, too:",
}
SKILL = "skills: { allow: [create-python-script] }"
AGENT = f"agents: {{ list: [ {{ id: a, {SKILL} }} ] }}\n"
SCRIPTED = AGENT.replace("id: a,", "id: a, model: demo/guide,")
KEYS = "set ANTHROPIC_API_KEY, OPENAI_API_KEY or DEEPSEEK_API_KEY for a real model"


def printed(folder: Path, text: str, env: dict[str, str] | None = None) -> list[str]:
    (folder / "config.yaml").touch(mode=0o600)
    return [line.replace(f"{folder}/", "") for line in lines(report(loaded(folder, text, env)))]


def greeted(folder: Path, text: str, env: dict[str, str] | None = None) -> list[str]:
    (folder / "config.yaml").touch(mode=0o600)
    config = loaded(folder, text, env)
    return greeting(config.listening(config.config.server.host, 4711))


def test_a_config_with_nothing_in_it_says_what_to_do_next(tmp_path: Path) -> None:
    assert printed(tmp_path, AGENT) == [
        "server: http://127.0.0.1:8080, no publicUrl, database data/clawgate.db",
        "agent a: demo/guide (auto: no key is set); tools read ls message ask; skills create-python-script; "
        "workspace data/workspaces/a",
        f"model demo/guide: a script, not a model, answers as a — {KEYS}",
    ]


def test_a_working_config_says_what_serves_where(tmp_path: Path) -> None:
    keys = WORDS["KEYS"]
    text = f"""\
    server: {{ host: "::1", port: 9, publicUrl: https://bot.example.com/ }}
    providers: {{ anthropic: {{ apiKey: key }}, openai: {{ apiKey: key }} }}
    channels: {{ feishu: {{ appId: cli_1, {keys}, accounts: {{ sales: {{ appId: cli_2, {keys} }} }} }} }}
    agents:
      list:
        - {{ id: a, model: [openai/gpt-5.5, demo/guide], tools: {{ allow: [] }}, {SKILL} }}
        - {{ id: b, model: anthropic/claude-opus-4-8, tools: {{ allow: ["*"], deny: [exec] }}, skills: {{ allow: [] }} }}
    """
    step = "enter it as the request URL in the developer console"
    assert printed(tmp_path, text) == [
        "server: http://[::1]:9, https://bot.example.com, database data/clawgate.db",
        f"feishu default: app cli_1, webhook https://bot.example.com/webhooks/feishu/default — {step}",
        "feishu default, who may talk: everybody in direct chats; in every group",
        f"feishu sales: app cli_2, webhook https://bot.example.com/webhooks/feishu/sales — {step}",
        "feishu sales, who may talk: everybody in direct chats; in every group",
        "provider anthropic: key set",
        "provider openai: key set",
        "agent a: openai/gpt-5.5, then demo/guide; tools none; skills create-python-script; workspace data/workspaces/a",
        "agent b: anthropic/claude-opus-4-8; tools read write edit ls message memory_search memory_get grep find "
        "web_fetch task schedule ask; skills none; workspace data/workspaces/b",
    ]
    assert greeted(tmp_path, text)[2:5] == [
        f"  feishu     app cli_1, webhook https://bot.example.com/webhooks/feishu/default — {step}",
        "             who may talk: everybody in direct chats; in every group",
        f"  feishu     sales: app cli_2, webhook https://bot.example.com/webhooks/feishu/sales — {step}",
    ]


def test_the_shipped_config_says_on_one_screen_what_is_missing() -> None:
    assert greeting(load(ROOT / "config.yaml", {}).listening("127.0.0.1", 4711)) == [
        f"Clawgate {VERSION} listens on http://127.0.0.1:4711",
        "  web        http://127.0.0.1:4711/; until the bot is claimed, you approve commands of assistant on this page; "
        "then its owners do",
        "  feishu     off: set FEISHU_APP_ID, FEISHU_APP_SECRET (channels/feishu/README.md)",
        "  telegram   off: set TELEGRAM_BOT_TOKEN (channels/telegram/README.md)",
        f"  agent      assistant: demo/guide, a script; {KEYS}",
        "  stop       Ctrl-C",
    ]


REPORTED = """
channels: { feishu: { appId: cli_1, appSecret: s } }
> feishu default: app cli_1, long connection — choose 使用长连接接收事件 in the developer console
channels: { feishu: { appId: cli_1, mode: webhook, KEYS } }
> feishu default: app cli_1, webhook <publicUrl>/webhooks/feishu/default — set server.publicUrl to the address under
> which Feishu reaches this server
channels: { telegram: { botToken: 'TOKEN' } }
> telegram default: bot 7000000001, polling
channels: { telegram: { botToken: 'TOKEN', mode: webhook, webhookSecret: s } }
> telegram default: bot 7000000001, webhook <publicUrl>/webhooks/telegram/default — set server.publicUrl, or
> mode: polling, which needs none
providers: { anthropic: { apiKey: '${K:-}' } }
> providers anthropic: no key, and no agent uses them
providers: { ollama: {}, openai: { apiKey: a, apiKeys: [b] } }
> provider ollama: needs no key, at its usual address (no agent uses it)
providers: { ollama: {}, openai: { apiKey: a, apiKeys: [b] } }
> provider openai: 2 keys set (no agent uses it)
server: {}
> model demo/guide: a script, not a model, answers as a — for a real model say model: auto, or name one
channels: { feishu: { enabled: false, appId: x } }
>   feishu     off: channels.feishu.enabled is false
server: {}
>   feishu     off: add appId and appSecret under channels.feishu (channels/feishu/README.md)
server: {}
>   agent      a: demo/guide, a script; for a real model say model: auto, or name one
providers: { openai: { apiKey: '${MINE:-}' } }
agents: { list: [ { id: a } ] }
>   agent      a: demo/guide, a script; set ANTHROPIC_API_KEY, MINE or DEEPSEEK_API_KEY for a real model
providers: { openai: { apiKey: '' }, anthropic: {} }
agents: { list: [ { id: a } ] }
>   agent      a: demo/guide, a script; set ANTHROPIC_API_KEY or DEEPSEEK_API_KEY for a real model
"""


@pytest.mark.parametrize(("text", "line"), cases(REPORTED, WORDS))
def test_what_is_missing_names_the_next_step(tmp_path: Path, text: str, line: str) -> None:
    text += "" if "agents" in text else SCRIPTED
    assert line in [*printed(tmp_path, text), *greeted(tmp_path, text)]


WEB = """
server: { host: 127.0.0.1 }
> http://127.0.0.1:4711/
server: { host: 0.0.0.0 }
> CLOSED
server: { host: '::', ADMIN }
> http://[::1]:4711/, with the admin token
server: { host: box.example, ADMIN }
> http://box.example:4711/, with the admin token
server: { ADMIN }
> http://127.0.0.1:4711/, with the admin token or the sign-in link of the start
server: { publicUrl: 'https://b.example', ADMIN }
> https://b.example/, with the admin token
server: { publicUrl: 'https://b.example' }
> CLOSED
RUNS
agents: { list: [ { id: quiet }, { id: coder, tools: { allow: [read, ls] } } ] }
> http://127.0.0.1:4711/
RUNS
agents: { list: [ { id: quiet }, { id: coder, tools: { allow: [exec], exec: { mode: deny } } } ] }
> http://127.0.0.1:4711/
RUNS
agents: { list: [ { id: quiet }, { id: coder, tools: { allow: ['*'] } } ] }
> http://127.0.0.1:4711/, LINK
server: { publicUrl: 'https://b.example' }
RUNS
agents: { list: [ { id: quiet }, { id: coder, tools: { allow: [exec] } } ] }
> CLOSED
ASKS, sandbox: off } } } ] }
owners: ["feishu:ou_1"]
> http://127.0.0.1:4711/, LINK
ASKS, network: true } } } ] }
owners: ["feishu:ou_1"]
> http://127.0.0.1:4711/
ASKS, network: true } } } ] }
owners: ["feishu:ou_1"]
tools: { web: { fetch: { allowPrivate: [wiki.internal] } } }
> http://127.0.0.1:4711/, HERE tools.web.fetch.allowPrivate
tools: { web: { fetch: { allowPrivate: [wiki.internal, 10.0.0.0/8, "fc00::/7"] } } }
> http://127.0.0.1:4711/
tools: { web: { fetch: { allowPrivate: [10.0.0.0/8, "localhost:9090"] } } }
> http://127.0.0.1:4711/
tools: { web: { fetch: { allowPrivate: [127.0.0.1] } } }
> http://127.0.0.1:4711/, HERE tools.web.fetch.allowPrivate
tools: { web: { fetch: { allowPrivate: [0.0.0.0/0] } } }
> http://127.0.0.1:4711/, HERE tools.web.fetch.allowPrivate
tools: { web: { fetch: { allowPrivate: ["::/0"] } } }
> http://127.0.0.1:4711/, HERE tools.web.fetch.allowPrivate
tools: { directories: [./tools.d] }
> http://127.0.0.1:4711/, HERE the tools of tools.directories
mcp: { servers: { one: { command: [one] }, two: { url: "https://mcp.example.com/mcp" } } }
> http://127.0.0.1:4711/
mcp: { servers: { one: { command: [one], sandbox: off }, two: { url: "http://localhost:9000/mcp" } } }
> http://127.0.0.1:4711/, HERE MCP server one, MCP server two
mcp: { servers: { two: { url: "https://box.internal/mcp", allowPrivate: [box.internal] } } }
> http://127.0.0.1:4711/, HERE MCP server two
mcp: { servers: { one: { command: [one], network: true } } }
tools: { web: { fetch: { allowPrivate: [wiki.internal] } } }
> http://127.0.0.1:4711/, HERE tools.web.fetch.allowPrivate
"""


@pytest.mark.parametrize(("text", "line"), cases(WEB, WORDS))
def test_the_web_chat_says_where_to_open_it_and_with_what(tmp_path: Path, text: str, line: str) -> None:
    """Whatever a model can reach this machine with closes the page to users who are merely at it."""
    text = f"channels: {{ web: {{}} }}\n{text}{'' if 'agents' in text else AGENT}"
    assert greeted(tmp_path, text)[1] == f"  web        {line}"
    assert f"web default: {line}".replace("4711", "8080") in printed(tmp_path, text)


@pytest.mark.parametrize(("port", "way"), [(9090, "link"), (9091, "open")])
def test_a_host_with_its_own_port_is_opened_at_that_port_alone(tmp_path: Path, port: int, way: str) -> None:
    fetch = "tools: { web: { fetch: { allowPrivate: ['localhost:9090'] } } }"
    assert way_in(loaded(tmp_path, f"{AGENT}server: {{ port: {port} }}\n{fetch}\n").config) == way


def test_many_agents_stay_on_one_screen(tmp_path: Path) -> None:
    for count, last in ((4, "agent      a3: demo/guide"), (5, "agents     2 more"), (50, "agents     47 more")):
        agents = ", ".join(f"{{ id: a{number}, model: demo/guide }}" for number in range(count))
        lines = [it for it in greeted(tmp_path, f"agents: {{ list: [ {agents} ] }}\n") if it.startswith("  agent")]
        assert len(lines) == 4
        assert lines[-1].startswith(f"  {last}")


def test_a_hidden_skill_says_what_it_needs(tmp_path: Path) -> None:
    skill = tmp_path / "more" / "deploy"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nrequires: { bins: [no-such-program] }\n---\n# Deploy\nNow.\n")
    text = "skills: { directories: [more] }\nagents: { list: [ { id: a } ] }\n"
    assert "skill deploy: hidden — it needs the program no-such-program" in printed(tmp_path, text)


def test_warnings_come_last_one_a_line(tmp_path: Path) -> None:
    text = "agents: { list: [ { id: a, model: [anthropic/claude-sonnet-4-6, qwen/qwen3-max] } ] }\n"
    warnings = [
        f"warning: providers.{name}.apiKey: is empty, so a cannot answer with {name} — set {variable} in the environment"
        for name, variable in (("anthropic", "ANTHROPIC_API_KEY"), ("qwen", "DASHSCOPE_API_KEY"))
    ]
    assert greeted(tmp_path, text)[-3:] == ["  stop       Ctrl-C", *warnings]
    assert printed(tmp_path, text)[-2:] == warnings


BOT = f"botToken: '{TOKEN}'"
OTHER = BOT.replace("01:", "02:")
WRITES = "agents: { list: [ { id: a, tools: { allow: [read, write] } } ] }\n"
SHARED = (
    "warning: agent a: everybody it serves shares one workspace, and can read and change others' files — "
    "end workspaceDir with /{chat} or /{sender}, or take write out of tools.allow"
)


def about_sharing(folder: Path, access: str, agents: str = WRITES) -> list[str]:
    text = f"channels: {{ web: {{}}, telegram: {{ {BOT}, {access} }} }}\n{agents}"
    return [line for line in printed(folder, text) if "shares one workspace" in line]


@pytest.mark.parametrize(
    ("access", "shared"),
    [
        ("allowFrom: ['1', '2']", True),
        ("allowFrom: ['*']", True),
        ("dmPolicy: open", True),
        ("groupPolicy: open", True),
        ("groupAllowFrom: ['-1', '-2']", True),
        (f"allowFrom: ['1'], accounts: {{ b: {{ {OTHER}, allowFrom: ['2'] }} }}", True),
        ("allowFrom: []", False),
        ("allowFrom: ['1'], groupAllowFrom: ['-1']", False),
        ("allowFrom: ['1', '2'], dmPolicy: disabled", False),
        ("groupAllowFrom: ['-1', '-2'], groupPolicy: disabled", False),
    ],
)
def test_several_people_or_groups_who_share_a_workspace_are_a_warning(
    tmp_path: Path, access: str, shared: bool
) -> None:
    assert about_sharing(tmp_path, access) == [SHARED] * shared


def test_no_warning_where_each_has_a_workspace_or_nothing_writes(tmp_path: Path) -> None:
    runs = WRITES.replace("[read, write]", "[read, exec], exec: { mode: allow }")
    assert about_sharing(tmp_path, "dmPolicy: open", runs) == [SHARED.replace("write", "exec")]
    for safe in (
        WRITES.replace("id: a,", "id: a, workspaceDir: './w/{agent}/{chat}',"),
        WRITES.replace("id: a,", "id: a, workspaceDir: './w/{agent}/{sender}',"),
        WRITES.replace(", write", ", exec"),
    ):
        assert about_sharing(tmp_path, "dmPolicy: open", safe) == []


TWO = WRITES.replace("] }\n", ", { id: b, tools: { allow: [write] } } ] }\n")


@pytest.mark.parametrize(
    ("access", "match", "sharing"),
    [
        ("allowFrom: ['1', '2']", "sender: '2'", []),
        ("allowFrom: ['1', '2', '3']", "sender: '2'", ["a"]),
        ("dmPolicy: open", "channel: telegram", ["b"]),
        ("groupPolicy: open, dmPolicy: disabled", "chat: '-1'", ["a"]),
    ],
)
def test_who_shares_is_told_by_the_bindings(tmp_path: Path, access: str, match: str, sharing: list[str]) -> None:
    bound = f"{TWO}bindings: [ {{ agent: b, match: {{ {match} }} }} ]\n"
    assert about_sharing(tmp_path, access, bound) == [SHARED.replace("agent a", f"agent {it}") for it in sharing]
