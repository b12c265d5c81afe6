"""A config that cannot be used: every mistake is one line with the place, the key and the fix, and all come at once."""

import re
from pathlib import Path

import pytest

from agents.providers.config import APIS
from gateway.config.load import load
from gateway.config.problems import ConfigErrors
from tests.gateway.config.writing import cases, lines
from tools.catalog import NAMES
from tools.policy import GROUPS

AGENT = "agents: { list: [ { id: a } ] }\n"
WORDS = {
    "FEISHU": "appId: cli_1, appSecret: s, encryptKey: k",
    "CODE": str(Path(__file__).resolve().parents[3] / "skills"),
    "EXAMPLE": "add at least one agent: agents: { list: [ { id: assistant } ] }",
    "KNOWN": f"known here: {', '.join((*NAMES, *GROUPS))}",
    "OVERLAP": 'overlaps the workspace of agent "a" — {agent} in the path keeps them apart',
    "ALONE": "auto is one model, chosen at the start, and has no fallbacks — a fallback list names its models",
}

ONE_MISTAKE = """
logging: { colour: blue }
> 2:12: logging.colour: unknown key — known here: level, format, content
agents: { defaults: { modle: x/y }, list: [ { id: a }, { id: b } ] }
> 1:23: agents.defaults.modle: unknown key — did you mean "model"?
server:
　　port: 1
> 3:1: ["\\u3000\\u3000port"]: the space before the key is a wide or special one — indent with plain spaces
agents: { list: [ { id: a, MAXTOKENS: 9 } ] }
> 1:28: agents.list[0].MAXTOKENS: unknown key — did you mean "maxTokens"?
server: { port: 'abc' }
> 2:17: server.port: expected a whole number, got a string — write it without quotes, in digits
server: { port: 1.5 }
> 2:17: server.port: expected a whole number, got a number
server: { host: 1 }
> 2:17: server.host: expected a string, got a number — put it in quotes
channels: { feishu: { requireMention: yes } }
> 2:39: channels.feishu.requireMention: expected true or false, got a string — write true
limits: { rounds: true }
> 2:19: limits.rounds: expected a whole number, got true or false
channels: { feishu: { allowFrom: ou_1 } }
> 2:34: channels.feishu.allowFrom: expected a list, got a string — write [ ] around it
agents: { list: [ { id: a, tools: { allow: } } ] }
> 1:43: agents.list[0].tools.allow: expected a list, got nothing — write [] for an empty list
server: [1]
> 2:9: server: expected a mapping, got a list
commands: { undo: off, modle: owner }
> 2:24: commands.modle: unknown command "modle" — did you mean "model"?
commands: { model: nobody }
> 2:20: commands.model: expected everyone or owner or off
commands: { pair: everyone }
> 2:19: commands.pair: is never for everyone — expected owner or off
transcription: { language: en }
> 2:16: transcription.model: missing: such as whisper-1, or remove the section
channels: { web: {} }
schedules: [ { id: x, at: every 1h, to: 'web:c', say: hi }, { id: x, at: every 1h, to: 'web:c', say: hi } ]
> 3:67: schedules[1].id: two schedules have the id "x" — each needs its own
channels: { web: {} }
schedules: [ { id: x, at: every 1h, to: 'web:c', say: hi, timezone: Mars } ]
> 3:69: schedules[0].timezone: is no time zone — expected a name such as Europe/Berlin
owners: [ 'telegram:*' ]
> 2:11: owners[0]: owners are named one by one, as channel:id
owners: [ 'web:local', 'telegrom:1' ]
> 2:24: owners[1]: unknown channel "telegrom" — did you mean "telegram"?
bindings: x
> 2:11: bindings: expected a list: lines that begin with -
limits: { rounds: 0 }
> 2:19: limits.rounds: must be at least 1
server: { port: 65536 }
> 2:17: server.port: must be at most 65,535
limits: { turnSeconds: 0 }
> 2:24: limits.turnSeconds: must be more than 0
logging: { level: warn }
> 2:19: logging.level: expected debug or info or warning or error — did you mean "warning"?
bindings: [ { agent: a, match: { chat: '' } } ]
> 2:40: bindings[0].match.chat: must not be empty
agents: { list: [ coder ] }
> 1:19: agents.list[0]: expected a mapping with at least an id, such as { id: assistant }
agents: { list: [ { id: Coder } ] }
> 1:25: agents.list[0].id: expected lower-case letters, digits, - and _, at most 64, a letter or digit first
agents: { list: [ { id: a, model: gpt } ] }
> 1:35: agents.list[0].model: expected auto or provider/model, such as anthropic/claude-sonnet-4-6
agents: { list: [ { id: a, model: [auto, deepseek/x] } ] }
> 1:36: agents.list[0].model[0]: ALONE
agents: { defaults: { model: [anthropic/x, auto] }, list: [ { id: a }, { id: b } ] }
> 1:44: agents.defaults.model[1]: ALONE
agents: { list: [ { id: a, model: [] } ] }
> 1:35: agents.list[0].model: needs at least one entry
agents:
> 1:8: agents: missing — EXAMPLE
agents: { list: [] }
> 1:17: agents.list: missing or empty — EXAMPLE
agents: []
> 1:9: agents: expected a mapping — EXAMPLE
- agents
> 1:1: expected keys and values, such as agents:
agents: { list: [ { id: a }, { id: b }, { id: a, workspaceDir: ./x } ] }
> 1:47: agents.list[2].id: two agents have the id "a" — each needs its own
agents: { defaults: { tools: { deny: [x] } }, list: [ { id: a }, { id: b } ] }
> 1:39: agents.defaults.tools.deny[0]: unknown tool "x" — KNOWN
agents: { list: [ { id: a, skills: { allow: [create-python] } } ] }
> 1:46: agents.list[0].skills.allow[0]: unknown skill "create-python" — did you mean "create-python-script"?
providers: { mine: { api: openai-chat } }
> 2:14: providers.mine: add "baseUrl:", such as https://models.example.com/v1
providers: { mine: { api: openai-chat, baseUrl: 'http://h/v1', dialect: deepsek } }
> 2:73: providers.mine.dialect: unknown dialect 'deepsek': this release knows openai, mistral, azure, deepseek, deepseek-r1,
> moonshot, zhipu, qwen, openrouter, ollama, vllm, lmstudio, clawdbot, generic
agents: { list: [ { id: a, thinking: hard } ] }
> 1:38: agents.list[0].thinking: expected off or minimal or low or medium or high or xhigh or max
agents: { list: [ { id: a, toolChoice: exec } ] }
> 1:40: agents.list[0].toolChoice: expected auto, none, required or a tool the agent has — known here: auto, none,
> required, read, ls, message, ask
agents: { list: [ { id: a, toolChoice: required, tools: { allow: [] } } ] }
> 1:40: agents.list[0].toolChoice: the agent has no tool that it could be required to call
agents: { list: [ { id: a, tools: { message: { targets: [oc_1] } } } ] }
> 1:58: agents.list[0].tools.message.targets[0]: expected channel:chat or channel:account:chat, such as
> feishu:oc_0123456789abcdef
agents: { list: [ { id: a, tools: { message: { targets: ['feishu:sales:oc_1'] } } } ] }
> 1:58: agents.list[0].tools.message.targets[0]: unknown account "sales" — known here: default
bindings: [ { agent: a, match: { channel: feishu, account: x } } ]
> 2:60: bindings[0].match.account: unknown account "x" — known here: default
database: { url: 'postgresql://me:pw@db:x/x' }
> 2:18: database.url: the port is not a number; expected postgresql://user:password@host:5432/name
database: { url: 'mysql://db/x' }
> 2:18: database.url: expected sqlite:///./data/clawgate.db, or postgresql://user:password@host/name
database: { url: 'sqlite:///:memory:' }
> 2:18: database.url: the database must be a plain file, or nothing accepted would survive a restart
server: { adminToken: hunter2 }
> 2:23: server.adminToken: too short: at least 16 characters, or empty
server: { adminToken: sixteen characters }
> 2:23: server.adminToken: only plain ASCII characters without spaces can be sent in a header
server: { adminToken: 0123456789abcdef, users: { ann: 0123456789abcdef } }
> 2:9: server: adminToken is the token of one of users: the operator needs their own
server: { users: { ann: 0123456789abcdef, ben: 0123456789abcdef } }
> 2:18: server.users: two of them have the same token: each needs its own
server: { users: { local: 0123456789abcdef } }
> 2:18: server.users: local is the person with server.adminToken; choose another name
server: { trustedProxies: [proxy.example] }
> 2:27: server.trustedProxies: each is an IP address or a network, such as 127.0.0.1 or 10.0.0.0/8
server: { timezone: Mars }
> 2:21: server.timezone: is no time zone; expected a name such as Asia/Shanghai or UTC
server: { publicUrl: bot.example.com }
> 2:22: server.publicUrl: expected an http:// or https:// address, such as https://bot.example.com
server: { allowedHosts: ['localhost:8080'] }
> 2:25: server.allowedHosts: each is a host name without port or path, such as bot.example.com or *.example.com
channels: { feishu: { FEISHU, accounts: { b: { FEISHU } } } }
> 2:90: channels.feishu.accounts.b.appId: the same app as account "default" — each bot needs its own
channels: { feishu: { FEISHU, accounts: { default: { appId: cli_2, appSecret: s, encryptKey: k } } } }
> 2:78: channels.feishu.accounts.default: the keys directly under feishu are the account default already — give this
> one another name
channels: { feishu: { FEISHU, allowFrom: [ou_1, Ann] } }
> 2:84: channels.feishu.allowFrom[1]: must be a person's open id, ou_…: ids only, never names
agents: { defaults: { workspaceDir: ./w }, list: [ { id: a }, { id: b } ] }
> 1:37: agents.defaults.workspaceDir: OVERLAP
agents: { list: [ { id: a, workspaceDir: ./w }, { id: b, workspaceDir: ./v/../w/b } ] }
> 1:72: agents.list[1].workspaceDir: OVERLAP
agents: { list: [ { id: a, workspaceDir: './w/{chat}' }, { id: b, workspaceDir: ./w/b } ] }
> 1:81: agents.list[1].workspaceDir: OVERLAP
agents: { list: [ { id: a, workspaceDir: './w/x-{chat}' } ] }
> 1:42: agents.list[0].workspaceDir: {chat} and {sender} are each a whole folder name, such as
> ./data/workspaces/{agent}/{chat}
agents: { list: [ { id: a, workspaceDir: './w/{user}' } ] }
> 1:42: agents.list[0].workspaceDir: only {agent}, {chat} and {sender} are replaced
tools: { files: { uploadsDir: ./w/sent } }
agents: { list: [ { id: a, workspaceDir: ./w } ] }
> 2:42: agents.list[0].workspaceDir: overlaps tools.files.uploadsDir, where the files that people send are kept — keep
> them apart
tools: { files: { writable: [AGENT.md] } }
> 2:30: tools.files.writable[0]: expected AGENTS.md or SOUL.md or IDENTITY.md or USER.md or TOOLS.md — did you mean
> "AGENTS.md"?
agents: { list: [ { id: a, workspaceDir: 'CODE' } ] }
> 1:42: agents.list[0].workspaceDir: the workspace would hold Clawgate's own code — choose another folder
agents: { list: [ { id: a, workspaceDir: /etc/clawgate } ] }
> 1:42: agents.list[0].workspaceDir: a folder of the system or a whole home folder cannot be a workspace
agents: { list: [ { id: a, workspaceDir: . } ] }
> 1:42: agents.list[0].workspaceDir: the workspace would hold the config file — choose another folder
agents: { list: [ { id: a, workspaceDir: ./data } ] }
> 1:42: agents.list[0].workspaceDir: the workspace would hold the database — choose another folder
database: { url: "postgresql://localhost/clawgate" }
tools: { files: { uploadsDir: ./sent } }
agents: { list: [ { id: a, workspaceDir: ./data } ] }
> 3:42: agents.list[0].workspaceDir: the workspace would hold what the gateway leaves for its commands — choose a folder
> inside it
"""


@pytest.mark.parametrize(("text", "expected"), cases(ONE_MISTAKE, WORDS))
def test_one_mistake_is_one_line(tmp_path: Path, text: str, expected: str) -> None:
    assert lines(tmp_path, text if "agents" in text else AGENT + text) == [f"config.yaml:{expected}"]


@pytest.mark.parametrize("text", ["", "server: {}\n"])
def test_a_file_without_agents_says_how_to_add_one(tmp_path: Path, text: str) -> None:
    assert lines(tmp_path, text) == [f"config.yaml:1:1: agents: missing — {WORDS['EXAMPLE']}"]


@pytest.mark.parametrize(
    ("account", "keys"),
    [
        ("mode: webhook, appId: cli_1", ["2:21: channels.feishu.appSecret", "2:21: channels.feishu.encryptKey"]),
        ("mode: webhook, appId: cli_1, appSecret: s", ["2:21: channels.feishu.encryptKey"]),
        ("mode: webhook, appId: cli_1, appSecret: s, encryptKey: ' '", ["2:78: channels.feishu.encryptKey"]),
        ("mode: webhook, appId: cli_1, appSecret: s, verification: token", ["2:21: channels.feishu.verificationToken"]),
        ("accounts: { b: { mode: webhook, appId: cli_1, appSecret: s } }", ["2:38: channels.feishu.accounts.b.encryptKey"]),
        ("appId: cli_1, appSecret: s", []),
        ("mode: websocket, appId: cli_1", ["2:21: channels.feishu.appSecret"]),
        ("enabled: false, appId: cli_1", []),
        ("appId: ''", []),
        ("", []),
    ],
)  # fmt: skip
def test_a_webhook_account_without_its_secret_is_refused(tmp_path: Path, account: str, keys: list[str]) -> None:
    found = lines(tmp_path, f"{AGENT}channels: {{ feishu: {{ {account} }} }}\n")
    assert [line.removeprefix("config.yaml:").rsplit(": missing", 1)[0] for line in found] == keys


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ("hours: 4", "to: missing: the on-call chat, such as feishu:oc_team, or remove the section"),
        ("to: 'web:x'", "to: expected a chat on Feishu or Telegram, such as feishu:oc_team"),
        ("to: 'telegram:-1'", "to: no channel 'telegram' is configured; there is: feishu, web"),
        ("to: 'feishu:ou_0123456789abcdef0123456789abcdef'", "to: is the example's id, which may be a stranger's"),
    ],
)
def test_an_on_call_chat_that_nobody_could_answer_in_is_refused(tmp_path: Path, section: str, problem: str) -> None:
    channels = "channels: { web: {}, feishu: { appId: cli_1, appSecret: s } }"
    (found,) = lines(tmp_path, f"{AGENT}{channels}\nhandover: {{ {section} }}\n")
    assert found.partition(" handover.")[2].startswith(problem), found


def test_all_mistakes_come_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = """\
    server: { port: high, bogus: 1 }
    agents:
      defaults: { tools: { allow: [raed] } }
      list:
        - id: coder
          nmae: x
          model: opnai/gpt
          model: demo/guide
        - name: y
          toolChoice: exec
        - id: writer
          systemPrompt: ${UNSET}
          tools: { allow: [*x, write], deny: 3 }
    bindings:
      - { agent: wirter, match: { chat: 5 } }
      - { agent: coder, match: { channel: telegrom } }
    channels: { feishu: { mode: webhook, appId: a, accounts: { b: { appSecrte: x } } } }
    providers: { foo: {} }
    """
    found = [
        re.split(" — (?!did)|(?<=missing):", line.removeprefix("config.yaml:"))[0] for line in lines(tmp_path, text)
    ]
    assert found == [
        "1:17: server.port: expected a whole number, got a string",
        "1:23: server.bogus: unknown key",
        '3:32: agents.defaults.tools.allow[0]: unknown tool "raed" — did you mean "read"?',
        '6:7: agents.list[0].nmae: unknown key — did you mean "name"?',
        '7:14: agents.list[0].model: unknown provider "opnai" — did you mean "openai"?',
        "8:7: agents.list[0].model: duplicate key",
        "9:7: agents.list[1].id: missing",
        "10:19: agents.list[1].toolChoice: expected auto, none, required or a tool the agent has",
        "12:21: agents.list[2].systemPrompt: UNSET is not set in the environment",
        "13:24: agents.list[2].tools.allow[0]: there is no anchor (&…) of this name above",
        "13:42: agents.list[2].tools.deny: expected a list, got a number",
        "15:37: bindings[0].match.chat: expected a string, got a number",
        '16:39: bindings[1].match.channel: unknown channel "telegrom" — did you mean "telegram"?',
        "17:21: channels.feishu.appSecret: missing",
        "17:21: channels.feishu.encryptKey: missing",
        '17:65: channels.feishu.accounts.b.appSecrte: unknown key — did you mean "appSecret"?',
        f'18:14: providers.foo: add "api:", one of {", ".join(APIS)}',
    ]


def test_a_file_that_is_not_there_is_one_line_too(tmp_path: Path) -> None:
    with pytest.raises(ConfigErrors) as raised:
        load(tmp_path / "none.yaml", {})
    reason = "cannot be read: No such file or directory — name another with --config"
    assert list(map(str, raised.value.problems)) == [f"{tmp_path}/none.yaml:1:1: {reason}"]
    with pytest.raises(ConfigErrors, match="Is a directory"):
        load(tmp_path, {})


def test_the_file_is_named_as_the_user_named_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.yaml").write_text("agents:\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigErrors, match=r"^mine\.yaml:1:8: agents: "):
        load(Path("mine.yaml"), {})


def test_the_model_of_summaries_needs_a_provider_too(tmp_path: Path) -> None:
    text = "agents: { list: [{ id: a, model: demo/guide, compaction: { model: opnai/gpt-5.5 } }] }"
    (line,) = [it for it in lines(tmp_path, text) if "provider" in it]
    assert 'agents.list[0].compaction.model: unknown provider "opnai" — did you mean "openai"?' in line
