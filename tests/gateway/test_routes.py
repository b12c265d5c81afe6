"""`routes explain`: what would become of a message, with its reasons, by the functions that decide it for a real one."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from channels.message import ChatKind
from gateway.config.load import load
from gateway.operate.contacts import approve
from gateway.operate.report import lines, report
from gateway.operate.routes import NoSuchPlace, as_json, explained, message_to
from tests.running import ALICE, ALICE_CHAT, BOB, FEISHU, GROUP, SECRETS, config_text, running
from tests.stories.process.test_process import ask

AGENTS = """
agents:
  list:
    - { id: helper, model: [anthropic/claude-sonnet-4-6, anthropic/claude-haiku-4-5], tools: { allow: [read, exec] } }
    - { id: coder, model: demo/guide, session: { scope: sender }, skills: { allow: [translate] }, tools: { allow: [ls] } }
"""
SECTION = FEISHU.replace("dmPolicy: open", "dmPolicy: pairing").replace("groupPolicy: open", "groupPolicy: allowlist")
SECTION += f"""
    groupAllowFrom: [{GROUP}]
    groupSenders: [{BOB}]
    tools: {{ deny: [write] }}
    chats: {{ {GROUP}: {{ tools: {{ deny: [read] }} }}, oc_2: {{ agent: coder, requireMention: false }} }}
  web: {{}}
"""
MORE = f"""
owners: ["feishu:{ALICE}"]
bindings:
  - {{ agent: coder, match: {{ channel: feishu }} }}
  - {{ agent: helper, match: {{ channel: feishu, chat: {GROUP} }} }}
"""
CASES: list[tuple[str, str | None, ChatKind | None, str | None, str | None, dict[str, tuple[Any, str]]]] = [
    ("feishu", GROUP, None, None, BOB, {
        "agent": ("helper", "the binding says so"),
        "binding": ("bindings[1]", "it matches channel: feishu, chat: GROUP, the most specific of 2 that hold"),
        "session": ("agent:helper:feishu:default:GROUP", "session.scope is chat"),
        "access": ("allowed", "if the message mentions the bot (requireMention); otherwise it is not answered"),
        "model": ("anthropic/claude-sonnet-4-6", "model of agent helper; if it fails, anthropic/claude-haiku-4-5"),
        "tools": ([], "channels.feishu.chats.GROUP.tools takes read; tools.ownerOnly takes exec"),
    }),
    ("feishu", GROUP, None, "omt_1", ALICE, {
        "session": ("agent:helper:feishu:default:GROUP:thread:omt_1", "a topic has its own"),
        "tools": (["exec"], "channels.feishu.chats.GROUP.tools takes read"),
    }),
    ("feishu", "oc_2", None, None, BOB, {
        "agent": ("coder", "the binding says so"),
        "binding": ("channels.feishu: chats.oc_2.agent of default", "the most specific of 2"),
        "session": (f"agent:coder:feishu:default:oc_2:sender:{BOB}", "session.scope is sender"),
        "access": ("group-not-allowed", "groupAllowFrom does not have the chat"),
        "skills": (["translate"], "skills of agent coder"),
    }),
    ("feishu", GROUP, None, None, None, {"access": ("sender-not-allowed", "groupSenders")}),
    ("feishu", None, None, None, ALICE, {"access": ("allowed", "the sender is one of owners")}),
    ("feishu", ALICE_CHAT, "direct", None, BOB, {
        "access": ("dm-not-paired", "would get a code"),
        "session": (f"agent:coder:feishu:default:{ALICE_CHAT}", "a direct chat is one"),
    }),
    ("web", "c1", None, None, None, {
        "agent": ("helper", "first of agents.list, because no binding matches; a page of the web chat may name another one"),
        "binding": (None, "none of 3 holds"),
        "access": ("allowed", "signed in"),
    }),
]  # fmt: skip


@pytest.mark.parametrize(("channel", "chat", "kind", "thread", "sender", "expected"), CASES)
def test_each_answer_has_its_reason(
    tmp_path: Path,
    channel: str,
    chat: str | None,
    kind: ChatKind | None,
    thread: str | None,
    sender: str | None,
    expected: dict[str, tuple[Any, str]],
) -> None:
    file = tmp_path / "config.yaml"
    url = "http://127.0.0.1:1"
    file.write_text(config_text(feishu_url=url, anthropic_url=url, agents=AGENTS, feishu=SECTION, more=MORE), "utf-8")
    loaded = load(file, SECRETS)
    context = message_to(loaded.config, channel, "default", chat, kind, thread, sender)
    found = as_json(explained(loaded, context, time.time()))
    assert list(found) == ["agent", "session", "binding", "access", "model", "tools", "skills"]
    for key, (value, reason) in expected.items():
        wanted = value.replace("GROUP", GROUP) if isinstance(value, str) else value
        assert found[key]["value"] == wanted, key
        assert reason.replace("GROUP", GROUP) in found[key]["reason"], key
    assert all(it["reason"] for it in found.values())
    assert not (tmp_path / "data").exists()


def test_a_place_that_there_is_not_is_named(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(config_text(feishu_url="http://127.0.0.1:1", anthropic_url="http://127.0.0.1:1"), "utf-8")
    config = load(file, SECRETS).config
    with pytest.raises(NoSuchPlace, match='did you mean "feishu:default"'):
        message_to(config, "feishu", "defualt", "oc_1", None, None, None)
    with pytest.raises(NoSuchPlace, match="configured here: feishu:default"):
        message_to(config, "telegram", "default", "1", None, None, None)
    with pytest.raises(NoSuchPlace, match="--chat"):
        message_to(config, "feishu", "default", None, None, None, None)


async def test_routes_explain_counts_choices_and_pairings(tmp_path: Path, database_url: str) -> None:
    more = MORE.partition("bindings")[0] + f'database: {{ url: "{database_url}" }}'
    alice = {"sender": ALICE, "chat": ALICE_CHAT}
    async with running(tmp_path, agents=AGENTS, feishu=SECTION, more=more) as house:
        loaded = load(tmp_path / "config.yaml", SECRETS)
        context = message_to(loaded.config, "feishu", "default", ALICE_CHAT, "direct", None, ALICE)
        assert explained(loaded, context, time.time())["agent"].value == "helper"
        await house.say("/model anthropic/claude-haiku-4-5", **alice)
        await house.replies(1)
        model = explained(loaded, context, time.time())["model"]
        assert (model.value, "/model" in model.reason) == ("anthropic/claude-haiku-4-5", True)
        await house.say("/new", **alice)
        await house.replies(2)
        assert explained(loaded, context, time.time())["model"].value == "anthropic/claude-sonnet-4-6"
        await house.say("/agent coder", **alice)
        await house.replies(3)
        agent = explained(loaded, context, time.time())["agent"]
        assert (agent.value, "/agent" in agent.reason) == ("coder", True)
        bob = message_to(loaded.config, "feishu", "default", None, None, None, BOB)
        assert explained(loaded, bob, time.time())["access"].value == "dm-not-paired"
        approve(loaded.config, f"feishu:{BOB}")
        assert explained(loaded, bob, time.time())["access"].value == "allowed"


async def test_tools_of_servers_are_those_that_the_gateway_has_seen(tmp_path: Path, database_url: str) -> None:
    """Without a database, and before the server was reached, a line says so."""
    agents = """agents:
  list:
    - { id: helper, model: demo/guide, tools: { allow: [read, "mcp:tracker"] } }
    - { id: other, model: demo/guide, tools: { allow: [read] } }
"""
    section = f"{FEISHU}    tools: {{ deny: [tracker__delete] }}\n"
    more = f"""database: {{ url: "{database_url}" }}
mcp: {{ servers: {{ tracker: {{ url: "http://127.0.0.1:1/mcp", allow: [get, delete, changed] }} }} }}"""
    async with running(tmp_path, agents=agents, feishu=section, more=more) as house:
        loaded = load(tmp_path / "config.yaml", SECRETS)
        context = message_to(loaded.config, "feishu", "default", GROUP, None, None, ALICE)
        before = explained(loaded, context, time.time())["tools"]
        assert (before.value, before.reason) == (
            ["read"], "those of agent helper; what tracker has is known once it was reached"
        )  # fmt: skip
        assert "mcp tracker: its tools are known once it was reached" in lines(report(loaded))
        reviews = house.gateway.runtime.store.reviews
        said = dict.fromkeys(["get", "delete", "changed", "unwanted"], '{"description":"","inputSchema":{}}')
        await reviews.record("tracker", said, 0)
        await reviews.record("tracker", said | {"changed": '{"description":"Other.","inputSchema":{}}'}, 1)
        after = explained(loaded, context, time.time())["tools"]
        assert (after.value, after.reason) == (
            ["read", "tracker__get"],
            "those of agent helper, of which channels.feishu.tools takes tracker__delete",
        )
        assert "mcp tracker: tracker__delete tracker__get" in lines(report(loaded))


@pytest.mark.slow
async def test_the_command_says_it_in_lines_and_in_json(tmp_path: Path) -> None:
    url = "http://127.0.0.1:1"
    file = tmp_path / "config.yaml"
    file.write_text(config_text(feishu_url=url, anthropic_url=url), "utf-8")
    command = ["routes", "explain", "--channel", "feishu", "--sender", BOB, "--config", str(file)]
    code, output = await ask(*command, "--json", more=SECRETS)
    assert (code, json.loads(output)["agent"]["value"]) == (0, "helper")
    code, output = await ask(*command, more=SECRETS)
    assert (code, output.startswith("agent    helper — ")) == (0, True)
    code, output = await ask("routes", "explain", "--channel", "feishu", "--config", str(file), more=SECRETS)
    assert (code, output) == (1, "say where: --chat, or --sender for a direct chat\n")
