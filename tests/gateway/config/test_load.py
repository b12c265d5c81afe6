"""A config that can be used: defaults merged, paths settled, empty blocks harmless, warnings where they are due."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.providers.config import WELL_KNOWN
from gateway.config.load import load
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


def test_references_work_inside_braces_too(tmp_path: Path) -> None:
    text = """\
    server:    { host: 127.0.0.1, port: ${PORT:-8080}, publicUrl: null, adminToken: ${ADMIN_TOKEN:-} }
    database:  { url: sqlite:///./data/clawgate.db }            # a comment
    providers:
      anthropic: { apiKey: ${API_KEY:-}, baseUrl: https://api.anthropic.com }
    channels:
      feishu: { appId: ${APP_ID}, appSecret: ${SECRET:-s, t}, encryptKey: k, mode: webhook, allowFrom: [ou_1, ${WHO:-ou_2}] }
    agents:
      defaults: { model: anthropic/claude-sonnet-4-6, workspaceDir: ./data/workspaces/{agent} }
      list:
        - { id: coder, name: 代码助手, skills: { allow: [create-python-script] } }
    bindings:
      - { agent: coder, match: { channel: feishu, account: default, chatType: group, chat: oc_1, thread: t, sender: ou_1 } }
    """
    config = loaded(tmp_path, text, {"APP_ID": "cli_1"}).config
    feishu = config.channels.feishu
    assert feishu is not None
    assert (feishu.app_id, feishu.allow_from) == ("cli_1", ("ou_1", "ou_2"))
    assert feishu.app_secret.get_secret_value() == "s, t"
    assert config.agents.list[0].workspace_dir == f"{tmp_path}/data/workspaces/coder"


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


def test_paths_do_not_depend_on_where_it_was_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "c.yaml").write_text(AGENT)
    monkeypatch.chdir(tmp_path)
    assert load(Path("etc/c.yaml"), {}).config.database.path == f"{tmp_path}/etc/data/clawgate.db"


def test_a_mounted_config_that_is_a_link_keeps_the_folder_of_the_link(tmp_path: Path) -> None:
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data" / "config.yaml").write_text(AGENT)
    (tmp_path / "config.yaml").symlink_to("..data/config.yaml")
    assert load(tmp_path / "config.yaml", {}).config.database.path == f"{tmp_path}/data/clawgate.db"


def test_a_link_cannot_smuggle_two_agents_into_one_workspace(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").symlink_to("one")
    found = lines(tmp_path, "agents: { defaults: { workspaceDir: ./{agent} }, list: [ { id: one }, { id: two } ] }\n")
    assert len(found) == 1
    assert 'overlaps the workspace of agent "one"' in found[0]


def test_a_whole_home_folder_is_no_workspace(tmp_path: Path) -> None:
    text = "agents: { list: [ { id: a, workspaceDir: ~ }, { id: b, workspaceDir: '~' } ] }\n"
    found = lines(tmp_path, text.replace("~ }", "./x }"), {"HOME": str(tmp_path / "home")})
    assert [line.split(": ", 1)[1] for line in found] == [
        "agents.list[1].workspaceDir: a folder of the system or a whole home folder cannot be a workspace"
    ]


@pytest.mark.parametrize(
    "text",
    [
        "server:\nproviders:\nchannels:\nbindings:\ntools:\nskills:\nlimits:\nlogging:\ndatabase:\n",
        "channels:\n  feishu:\n",
        "providers:\n  anthropic:\n",
        "bindings:\n  - agent: a\n    match:\n",
    ],
)
def test_a_block_whose_lines_are_all_commented_out_is_no_mistake(tmp_path: Path, text: str) -> None:
    loaded(tmp_path, text + "agents:\n  defaults:\n  list:\n    - id: a\n      tools:\n      skills:\n")


def test_a_skill_of_the_workspace_and_of_a_named_folder_is_known(tmp_path: Path) -> None:
    for folder in ("data/workspaces/a/skills/mine", "more/ours", "more/theirs"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "SKILL.md").write_text("# Title\nA sentence.\n")
    (tmp_path / "more" / "theirs" / "SKILL.md").write_text("---\nrequires: { bins: [no-such-program] }\n---\n# T\nS.\n")
    text = "skills: { directories: [more] }\nagents: { list: [ { id: a, skills: { allow: [mine, ours, theirs] } } ] }\n"
    found = loaded(tmp_path, text)
    assert [skill.name for skill in found.skills["a"]] == ["mine", "ours"]
    assert [(skill.name, skill.missing) for skill in found.hidden_skills["a"]] == [
        ("theirs", ("the program no-such-program",))
    ]


def test_known_providers_need_no_block(tmp_path: Path) -> None:
    config = loaded(tmp_path, AGENT).config
    assert config.provider("demo").keys == ()
    assert config.provider("anthropic").base_url is None
    assert config.provider("deepseek").keys == ()
    with pytest.raises(KeyError):
        config.provider("somebody")


def test_nothing_to_warn_about_in_a_tidy_config(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").touch(mode=0o600)
    assert loaded(tmp_path, QUIET + AGENT).warnings == ()


WARNINGS = """
agents: { list: [ { id: a, model: [demo/guide, OPUS] }, { id: b, model: OPUS } ] }
> providers.anthropic.apiKey: is empty, so a, b cannot answer with anthropic — set ANTHROPIC_API_KEY in the environment
providers: { anthropic: { apiKey: '' } }
agents: { list: [ { id: a, model: OPUS } ] }
> providers.anthropic.apiKey: is empty, so a cannot answer with anthropic — set providers.anthropic.apiKey
providers: { anthropic: { apiKey: '${MY_KEY:-}' } }
agents: { list: [ { id: a, model: OPUS } ] }
> providers.anthropic.apiKey: is empty, so a cannot answer with anthropic — set MY_KEY in the environment
agents: { list: [ { id: a, tools: { allow: [exec] } } ] }
> agent a: exec refuses every command, since approvals are not in this release — set tools.exec.mode: allow
> to run them, or leave exec out of tools.allow
tools: { exec: { mode: allow } }
agents: { list: [ { id: a, tools: { allow: ['*'] } } ] }
> agent a: exec runs every command the model gives, without asking (tools.exec.mode: allow)
server: { host: 0.0.0.0 }
> server.host: open to the network — put a proxy that ends TLS in front, and name your host in server.allowedHosts
channels: { feishu: { appSecret: s } }
> channels.feishu.appId: is empty although appSecret is set, so Feishu stays off — set channels.feishu.appId
channels: { feishu: { FEISHU, allowFrom: ['*'], groupAllowFrom: ['*'], dmPolicy: open } }
> channels.feishu: dmPolicy: open — everybody in the tenant can write to the bot and use its tools
skills: { directories: [none] }
> skills.directories[0]: there is no such folder yet
bindings: [ { agent: a, match: { chat: x } }, { agent: a, match: { chat: x } } ]
> bindings[1]: never used — bindings[0] matches the same messages and stands before it
bindings: [ { agent: a } ]
> bindings[0]: matches everything, as the first agent of the list does without any binding
skills: { directories: [w/s] }
agents: { list: [ { id: a, workspaceDir: w } ] }
> skills.directories[0]: lies in the workspace of agent a, whose tools can change it for every agent — move it out
"""


@pytest.mark.parametrize(("text", "warning"), cases(WARNINGS, {"OPUS": OPUS, "FEISHU": FEISHU}))
def test_what_works_but_deserves_a_look_is_a_warning(tmp_path: Path, text: str, warning: str) -> None:
    (tmp_path / "w" / "s").mkdir(parents=True)
    (tmp_path / "config.yaml").touch(mode=0o600)
    assert loaded(tmp_path, text + ("" if "agents:" in text else AGENT)).warnings == (warning,)


@pytest.mark.parametrize(
    ("model", "providers", "near"),
    [
        ("anthropic/claude-sonet-4-6", "", ' — did you mean "claude-sonnet-4-6"? Otherwise'),
        ("openai/gpt5.5", "", ' — did you mean "gpt-5.5"? Otherwise'),
        ("openai/gtp-5.5", "openai: { api: openai-chat, apiKey: k }", ' — did you mean "gpt-5.5"? Otherwise'),
        ("kimi/kimi-k2-6", "", ' — did you mean "kimi-k2.6"? Otherwise'),
        ("google/gemni-3-flash", "", ' — did you mean "gemini-3-flash"? Otherwise'),
        ("deepseek/r7", "deepseek: { apiKey: k, baseUrl: 'https://api.deepseek.com/v1' }", " —"),
        ("mine/deepseek-v9", "mine: { api: openai-chat, apiKey: k, baseUrl: 'https://api.deepseek.com/v1' }",
         ' — did you mean "deepseek-v4-pro"? Otherwise'),
    ],
)  # fmt: skip
def test_a_model_that_nobody_knows_is_a_warning_with_the_likely_one(
    tmp_path: Path, model: str, providers: str, near: str
) -> None:
    (tmp_path / "config.yaml").touch(mode=0o600)
    agents = f"{{ defaults: {{ model: {model} }}, list: [ {{ id: a }}, {{ id: b }} ] }}"
    text = f"providers: {{ {providers} }}\nagents: {agents}\n"
    name = model.partition("/")[2]
    step = "a line under models: makes it known (docs/providers.md)"
    assert loaded(tmp_path, text, EVERY_KEY).warnings == (
        f'agents.defaults.model: unknown model "{name}"{near} {step}',
    )
    for known in (model, name):
        assert loaded(tmp_path, f"{text}models: {{ {known}: {{ window: 64000 }} }}\n", EVERY_KEY).warnings == ()


@pytest.mark.parametrize(
    ("model", "providers"),
    [
        ("openrouter/some/model", ""),
        ("ollama/gemma-of-mine", ""),
        ("azure/my-deployment", "azure: { baseUrl: 'https://team.openai.azure.com/openai/v1' }"),
        ("openai/my-deployment", "openai: { api: openai-chat, baseUrl: 'https://team.openai.azure.com/openai/v1' }"),
        ("anthropic/claude-of-ours", "anthropic: { baseUrl: 'https://proxy.example.com' }"),
        ("mine/some-model", "mine: { api: openai-chat, baseUrl: 'https://models.example.com/v1' }"),
        ("anthropic/claude-sonnet-4-6-20260101", ""),
        ("mistral/mistral-large-latest", ""),
    ],
)
def test_models_of_services_that_may_have_any_and_known_ones_are_no_warning(
    tmp_path: Path, model: str, providers: str
) -> None:
    text = f"providers: {{ {providers} }}\nagents: {{ list: [ {{ id: a, model: {model} }} ] }}\n"
    assert [line for line in loaded(tmp_path, text, EVERY_KEY).warnings if "model" in line] == []


def test_exec_that_is_denied_or_not_offered_needs_no_warning(tmp_path: Path) -> None:
    text = "agents: { list: [ { id: a, tools: { allow: [exec], exec: { mode: deny } } }, { id: b } ] }\n"
    assert loaded(tmp_path, text).warnings == ()


def test_a_secret_in_a_file_that_others_can_read_is_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    keys = ("providers.qwen.apiKeys[1]", "channels.feishu.appSecret", "channels.feishu.encryptKey")
    text = f"providers: {{ qwen: {{ apiKeys: ['${{K}}', inline] }} }}\n{QUIET}{AGENT}"
    for mode, expected in ((0o600, ()), (0o644, keys)):
        file.touch()
        file.chmod(mode)
        found = loaded(tmp_path, text, {"K": "k"}).warnings
        step = ": a secret in a file that others can read — use ${NAME}, or chmod 600 the file"
        assert found == tuple(key + step for key in expected)


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
@settings(max_examples=150, deadline=None)
def test_whatever_a_file_says_it_loads_or_has_its_problems_listed(
    data: dict[str, Any], agents: list[Any], defaults: dict[str, Any]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        text = json.dumps({**data, "agents": {"defaults": defaults, "list": agents}})
        complaints = lines(Path(folder), text, {"A": "1"})
        assert complaints or loaded(Path(folder), text, {"A": "1"}).config.agents.list
    assert all("\n" not in complaint for complaint in complaints)
