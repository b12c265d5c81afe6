"""A config that can be used: defaults merged, paths settled, empty blocks harmless, warnings where they are due."""

import json
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.providers.config import WELL_KNOWN
from channels.bilingual import Finding
from gateway.config.load import append, load
from gateway.config.problems import ConfigErrors
from gateway.config.reader import fields_of
from gateway.config.reference import all_models
from gateway.config.root import Config
from tests.gateway.config.writing import cases, lines, loaded

OPUS = "anthropic/claude-opus-5"
AGENT = "agents: { list: [ { id: a } ] }\n"
FEISHU = "appId: cli_1, appSecret: s, encryptKey: k"
QUIET = f"channels: {{ feishu: {{ {FEISHU}, allowFrom: ['*'], groupAllowFrom: ['*'] }} }}\n"
EVERY_KEY = {variable: "k" for vendor in WELL_KNOWN for variable in vendor.variables}


def test_each_agent_is_the_defaults_with_its_own_keys_on_top(tmp_path: Path) -> None:
    text = """\
    agents:
      defaults:
        model: anthropic/claude-sonnet-4-6
        systemPrompt: Be brief.
        maxTokens: 50
        tools: { allow: [read, exec], exec: { mode: allow, timeoutSeconds: 5 } }
      list:
        - { id: first, model: [demo/guide, anthropic/claude-sonnet-4-6], maxTokens: 100 }
        - { id: second, name: Zwei, maxTokens: null, tools: { allow: ["*"], exec: { timeoutSeconds: 7 } } }
        - { id: third, tools: }
        - { id: fourth, tools: { allow: [], exec: } }
    """
    first, second, third, fourth = loaded(tmp_path, text).config.agents.list
    assert first.model == ("demo/guide", "anthropic/claude-sonnet-4-6")
    assert (first.system_prompt, first.max_tokens, first.tools.allow) == ("Be brief.", 100, ("read", "exec"))
    assert second.model == ("anthropic/claude-sonnet-4-6",)
    assert (second.name, second.max_tokens, second.tools.allow) == ("Zwei", None, ("*",))
    assert (second.tools.exec.mode, second.tools.exec.timeout_seconds) == ("allow", 7)
    assert third.tools == first.tools
    assert (fourth.tools.allow, fourth.tools.exec, fourth.max_tokens) == ((), first.tools.exec, 50)


def test_an_env_file_beside_the_config_is_read_and_the_environment_wins(tmp_path: Path) -> None:
    env_file = tmp_path / ".env"
    env_file.write_text(
        "# ours\nexport PROMPT='Be ${brief}.'\nNAME=from-the-file # a comment\nBARE\n", encoding="utf-8"
    )
    env_file.chmod(0o644)
    text = 'agents: { list: [ { id: a, name: "${NAME}", systemPrompt: "${PROMPT}", greeting: "${BARE:-none}" } ] }\n'
    found = loaded(tmp_path, text, {"NAME": "from-the-environment"})
    (agent,) = found.config.agents.list
    assert (agent.name, agent.system_prompt, agent.greeting) == ("from-the-environment", "Be ${brief}.", "none")
    assert any(".env can be read by others" in str(warning) for warning in found.warnings)
    env_file.chmod(0o600)
    assert not any(".env" in str(warning) for warning in loaded(tmp_path, text, {"NAME": "n"}).warnings)


DOTENVS = {
    "utf-16": ("# 我的密钥\r\nNAME=n\r\n".encode("utf-16"), ".env is not UTF-8 but UTF-16, so nothing of it is read"),
    "gbk": ("# 我的密钥\r\nNAME=n\r\n".encode("gbk"), ".env is not UTF-8 but GBK, so nothing of it is read"),
    "a broken byte": (b"# \xff\nNAME=n\n", ".env is not UTF-8, so nothing of it is read"),
    "a line": (b"NAME=n\nthese are words\n", ".env: line 2 is not NAME=value, so it is passed over"),
    "an open quote": (b'NAME=n\nKEY="sk\n', ".env: line 2 is not NAME=value, so it is passed over"),
    "sound": ("\ufeff# 密钥\r\nexport NAME='n' # mine\r\n\r\nBARE\r\n".encode(), ""),
}


@pytest.mark.parametrize("kind", DOTENVS)
def test_load_env_file_not_read_whole_is_a_warning(tmp_path: Path, kind: str) -> None:
    data, words = DOTENVS[kind]
    (tmp_path / ".env").write_bytes(data)
    (tmp_path / ".env").chmod(0o600)
    warned = [str(it) for it in loaded(tmp_path, AGENT).warnings if ".env" in str(it)]
    assert [it for it in warned if words in it] == (warned if words else [])
    assert len(warned) == bool(words)
    text = AGENT.replace("id: a", 'id: a, name: "${NAME}", greeting: "${LACKING}"')
    with pytest.raises(ConfigErrors) as error:
        loaded(tmp_path, text)
    told = [str(it) for it in error.value.problems]
    assert any("LACKING is not set" in it for it in told)
    assert any(words in it for it in told if ".env" in it) == bool(words)
    assert any("NAME is not set" in it for it in told) == ("nothing of it" in words)


def test_a_secret_is_not_put_into_an_env_file_that_nobody_could_read(tmp_path: Path) -> None:
    data, _ = DOTENVS["utf-16"]
    (tmp_path / ".env").write_bytes(data)
    with pytest.raises(OSError, match="not UTF-8"):
        append(tmp_path / ".env", {"KEY": "sk-abc"})
    assert (tmp_path / ".env").read_bytes() == data


def test_an_empty_variable_hides_nothing_of_the_env_file(tmp_path: Path) -> None:
    """docker compose hands on what is not set as empty."""
    env_file = tmp_path / ".env"
    env_file.write_text("NAME=from-the-file\nEMPTY=\n")
    env_file.chmod(0o600)
    text = 'agents: { list: [ { id: a, name: "${NAME}", greeting: "${EMPTY:-none}" } ] }\n'
    (agent,) = loaded(tmp_path, text, {"NAME": "", "EMPTY": ""}).config.agents.list
    assert (agent.name, agent.greeting) == ("from-the-file", "none")


def test_paths_count_from_the_folder_of_the_file(tmp_path: Path) -> None:
    text = """\
    database: { url: sqlite:///./var/c.db }
    skills: { directories: [more, /srv/skills] }
    tools: { files: { uploadsDir: sent } }
    agents:
      defaults: { workspaceDir: ./work/{agent}/files }
      list: [ { id: a }, { id: b, workspaceDir: ~/b }, { id: c, workspaceDir: "/srv/work/c/{chat}" } ]
    """
    config = loaded(tmp_path, text, {"HOME": "/home/someone"}).config
    assert config.database.path == f"{tmp_path}/var/c.db"
    assert config.database.url == f"sqlite:///{tmp_path}/var/c.db"
    assert config.skills.directories == (f"{tmp_path}/more", "/srv/skills")
    workspaces = [agent.workspace_dir for agent in config.agents.list]
    assert workspaces == [f"{tmp_path}/work/a/files", "/home/someone/b", "/srv/work/c/{chat}"]
    assert config.tools.files.uploads_dir == f"{tmp_path}/sent"
    assert loaded(tmp_path, f"database: {{ url: 'sqlite:////srv/c.db' }}\n{AGENT}").config.database.path == "/srv/c.db"


def test_load_paths_are_relative_to_a_mounted_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "etc" / "..data").mkdir(parents=True)
    (tmp_path / "etc" / "..data" / "c.yaml").write_text(AGENT)
    (tmp_path / "etc" / "c.yaml").symlink_to("..data/c.yaml")
    monkeypatch.chdir(tmp_path)
    assert load(Path("etc/c.yaml"), {}).config.database.path == f"{tmp_path}/etc/data/clawgate.db"


def test_a_link_cannot_smuggle_two_agents_into_one_workspace(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").symlink_to("one")
    found = lines(tmp_path, "agents: { defaults: { workspaceDir: ./{agent} }, list: [ { id: one }, { id: two } ] }\n")
    assert len(found) == 1
    assert 'overlaps the workspace of agent "one"' in found[0]


@pytest.mark.parametrize(
    "text",
    [
        "server:\nproviders:\nchannels:\nbindings:\ntools:\nskills:\nlimits:\nlogging:\ndatabase:\n",
        "providers:\n  anthropic:\nchannels:\n  feishu:\nbindings:\n  - agent: a\n    match:\n",
    ],
)
def test_a_block_whose_lines_are_all_commented_out_is_no_mistake(tmp_path: Path, text: str) -> None:
    config = loaded(tmp_path, text + "agents:\n  defaults:\n  list:\n    - id: a\n      tools:\n      skills:\n").config
    assert config.provider("anthropic").base_url is None
    with pytest.raises(KeyError):
        config.provider("somebody")


def test_a_skill_of_the_workspace_and_of_a_named_folder_is_known(tmp_path: Path) -> None:
    for folder in ("data/workspaces/a/skills/mine", "more/ours"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "SKILL.md").write_text("# Title\nA sentence.\n")
    text = "skills: { directories: [more] }\nagents: { list: [ { id: a, skills: { allow: [mine, ours] } } ] }\n"
    assert [skill.name for skill in loaded(tmp_path, text).skills["a"]] == ["mine", "ours"]


WARNINGS = """
agents: { list: [ { id: a, model: [demo/guide, OPUS] }, { id: b, model: OPUS } ] }
> providers.anthropic.apiKey: is empty, so a, b cannot answer with anthropic — set ANTHROPIC_API_KEY in the environment
providers: { anthropic: { apiKey: '' } }
agents: { list: [ { id: a, model: OPUS } ] }
> providers.anthropic.apiKey: is empty, so a cannot answer with anthropic — set providers.anthropic.apiKey
agents: { list: [ { id: a, tools: { allow: [exec] } }, { id: b, tools: { allow: [exec], exec: { mode: deny } } } ] }
> agent a: nobody can approve its commands, so exec refuses them all — name people in approvals.approvers, or in owners
tools: { exec: { mode: allow } }
agents: { list: [ { id: a, tools: { allow: ['*'] } } ] }
> agent a: exec runs every command unasked — tools.exec.mode: ask has people approve them
agents: { list: [ { id: a, tools: { allow: [web_search] } } ] }
> agent a: web_search is off — name a provider in tools.web.search, or take it out of tools.allow
mcp: { servers: { files: { command: [x], sandbox: off } } }
> MCP server files: its program runs without a sandbox, and can read what the gateway can read — leave sandbox out, and
> name what it needs in readable
logging: { content: true }
> logging.content: messages and answers are logged — set it to false when you are done
server: { allowedHosts: ['*'] }
> server.allowedHosts: any host name is accepted, also one that a stranger points here — name your hosts
channels: { telegram: { botToken: '7000000001:AAExampleExampleExampleExampleExamp1', allowFrom: ['1'] } }
database: { url: 'postgresql://a@b/c' }
> channels.telegram: polling needs a single replica — run one, or set mode: webhook
server: { host: 0.0.0.0 }
> server.host: open to the network — put a proxy that ends TLS in front, and name your host in server.allowedHosts
channels: { feishu: { appSecret: s } }
> channels.feishu.appId: is empty although appSecret is set, so Feishu stays off — set channels.feishu.appId
channels: { feishu: { FEISHU, allowFrom: ['*'], groupAllowFrom: ['*'], dmPolicy: open } }
> channels.feishu: dmPolicy: open lets everybody in the tenant write to the bot and use its tools — allow only those you
> know
skills: { directories: [none] }
> skills.directories[0]: there is no such folder — make it, or take it out of the list
bindings: [ { agent: a, match: { chat: x } }, { agent: a, match: { chat: x } } ]
> bindings[1]: never used, as bindings[0] matches the same messages — remove one of the two
bindings: [ { agent: a } ]
> bindings[0]: matches everything — remove it and list its agent first: that one answers by default
skills: { directories: [w/s] }
agents: { list: [ { id: a, workspaceDir: w } ] }
> skills.directories[0]: lies in the workspace of agent a, whose tools can change it for every agent — move it out
"""


def unplaced(finding: Finding) -> str:
    return re.sub(r"^\S*config\.yaml:\d+:\d+: ", "", str(finding))


def test_a_warning_stands_where_its_key_does_or_should(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").touch(mode=0o600)
    text = """\
channels:
  telegram:
    botToken: "7000000001:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw0"
    dmPolicy: open
agents:
  defaults: { model: openai/gtp-5.5 }
  list:
    - { id: a }
"""
    found = [str(it) for it in loaded(tmp_path, text, {}).warnings]
    assert [it.removeprefix(str(tmp_path)).partition(" — ")[0][:60] for it in found] == [
        "/config.yaml:2:3: channels.telegram: dmPolicy: open lets eve",
        "providers.openai.apiKey: is empty, so a cannot answer with o",
        '/config.yaml:6:15: agents.defaults.model: unknown model "gtp',
    ]


@pytest.mark.parametrize(("text", "warning"), cases(WARNINGS, {"OPUS": OPUS, "FEISHU": FEISHU}))
def test_what_works_but_deserves_a_look_is_a_warning(tmp_path: Path, text: str, warning: str) -> None:
    (tmp_path / "w").mkdir(mode=0o700)
    (tmp_path / "w" / "s").mkdir()
    (tmp_path / "config.yaml").touch(mode=0o600)
    found = loaded(tmp_path, text + ("" if "agents:" in text else AGENT)).warnings
    assert [*map(unplaced, found)] == [warning]
    assert all(it.fix for it in found)


@pytest.mark.parametrize(
    ("model", "providers", "near"),
    [
        ("openai/gtp-5.5", "openai: { api: openai-chat, apiKey: k }", ' — did you mean "gpt-5.5"? Otherwise'),
        ("kimi/kimi-k2-6", "", ' — did you mean "kimi-k2.6"? Otherwise'),
        ("deepseek/r7", "deepseek: { apiKey: k, baseUrl: 'https://api.deepseek.com/v1' }", " —"),
        ("mine/deepseek-v9", "mine: { api: openai-chat, apiKey: k, baseUrl: 'https://api.deepseek.com/v1' }",
         ' — did you mean "deepseek-v4-pro"? Otherwise'),
        # whoever serves may serve any model
        ("openrouter/some/model", "", ""),
        ("ollama/gemma-of-mine", "", ""),
        ("azure/my-deployment", "azure: { baseUrl: 'https://team.openai.azure.com/openai/v1' }", ""),
        ("anthropic/claude-of-ours", "anthropic: { baseUrl: 'https://proxy.example.com' }", ""),
        ("mine/some-model", "mine: { api: openai-chat, apiKey: k, baseUrl: 'https://models.example.com/v1' }", ""),
        ("anthropic/claude-sonnet-4-6-20260101", "", ""),
        ("mistral/mistral-large-latest", "", ""),
    ],
)  # fmt: skip
def test_load_unknown_model_warns_with_a_suggestion(tmp_path: Path, model: str, providers: str, near: str) -> None:
    (tmp_path / "config.yaml").touch(mode=0o600)
    agents = f"{{ defaults: {{ model: {model} }}, list: [ {{ id: a }}, {{ id: b }} ] }}"
    text = f"providers: {{ {providers} }}\nagents: {agents}\n"
    name = model.partition("/")[2]
    step = "a line under models: makes it known (docs/providers.md)"
    warning = f'agents.defaults.model: unknown model "{name}"{near} {step}'
    assert [*map(unplaced, loaded(tmp_path, text, EVERY_KEY).warnings)] == ([warning] if near else [])
    for known in (model, name):
        assert loaded(tmp_path, f"{text}models: {{ {known}: {{ window: 64000 }} }}\n", EVERY_KEY).warnings == ()


def test_a_secret_in_a_file_that_others_can_read_is_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    keys = ("providers.qwen.apiKeys[1]", "channels.feishu.appSecret", "channels.feishu.encryptKey")
    text = f"providers: {{ qwen: {{ apiKeys: ['${{K}}', inline] }} }}\n{QUIET}{AGENT}"
    for mode, expected in ((0o600, ()), (0o644, keys)):
        file.touch()
        file.chmod(mode)
        found = loaded(tmp_path, text, {"K": "k"}).warnings
        step = ": a secret in a file that others can read — use ${NAME}, or chmod 600 the file"
        assert [*map(unplaced, found)] == [key + step for key in expected]


def test_a_folder_with_data_of_people_that_others_can_read_is_a_warning(tmp_path: Path) -> None:
    for name in ("w", "data", "sent"):
        (tmp_path / name).mkdir(mode=0o700)
    text = "tools: { files: { uploadsDir: sent } }\nagents: { list: [ { id: a, workspaceDir: w } ] }\n"
    for name in ("w", "data", "sent"):
        (tmp_path / name).chmod(0o740)
        found = [str(it) for it in loaded(tmp_path, text).warnings if "others on this machine" in it.message]
        (tmp_path / name).chmod(0o700)
        assert found == [f"{tmp_path}/{name}: can be read by others on this machine — chmod 700 it"]


@pytest.mark.parametrize("name", ["config.yaml", ".env", "."])
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o620, 0o602, 0o666, 0o777])
def test_what_decides_what_runs_and_can_be_written_by_others_is_a_warning(
    tmp_path: Path, name: str, mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = (tmp_path / name).resolve()
    for file in ("config.yaml", ".env"):
        (tmp_path / file).touch(0o600)
        (tmp_path / file).chmod(0o600)
    tmp_path.chmod(0o700)
    path.chmod(mode | 0o500 if path.is_dir() else mode)
    for own_group in (True, False):
        monkeypatch.setattr("gateway.config.warnings._own_group", lambda status, own=own_group: own)
        every = map(str, loaded(tmp_path, QUIET + AGENT, EVERY_KEY).warnings)
        found = [it for it in every if "can write" in it]
        expected = bool(mode & 0o002 or (mode & 0o020 and not own_group))
        assert (
            found
            == [f"{path}: others on this machine can write it, and so decide what runs here — chmod go-w it"] * expected
        )


_keys = st.sampled_from(
    sorted({name for model in all_models(Config) for name in fields_of(model)} | {"anthropic", "b"})
)
_NAMES = ["", "a", "*", "${A}", "${B:-7}", "auto", "demo/guide", "anthropic/claude-sonnet-4-6", "x/y"]
_values = st.sampled_from([None, True, 0, 1, -1, 1.5, *_NAMES])
_deep = _values | st.lists(_values, max_size=3) | st.dictionaries(_keys, _values, max_size=4)
_data: st.SearchStrategy[Any] = _deep | st.lists(_deep, max_size=3) | st.dictionaries(_keys, _deep, max_size=4)
_agent = st.dictionaries(_keys, _data, max_size=4).map(lambda extra: {"id": "a", **extra})


@given(
    st.dictionaries(_keys, _data, max_size=5), st.lists(_agent, max_size=2), st.dictionaries(_keys, _data, max_size=3)
)
def test_whatever_a_file_says_it_loads_or_has_its_problems_listed(
    data: dict[str, Any], agents: list[Any], defaults: dict[str, Any]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        text = json.dumps({**data, "agents": {"defaults": defaults, "list": agents}})
        complaints = lines(Path(folder), text, {"A": "1"})
        assert complaints or loaded(Path(folder), text, {"A": "1"}).config.agents.list
    assert all("\n" not in complaint for complaint in complaints)
