"""Which layers hold for a message: of the person who wrote it, where he wrote it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.config import AgentConfig
from channels.access import AccessConfig, ChatConfig, Policy
from channels.message import Chat, ChatKind, Sender
from channels.section import ToolLists
from gateway.approvals.gate import TurnGate
from gateway.config.channels import CHANNEL_TYPES, Account
from gateway.config.root import AgentsConfig, Config
from gateway.state.reasons import ToolLayers
from tests.channels.contexts import context
from tests.gateway.config.writing import loaded
from tools.catalog import NAMES
from tools.config import (
    AgentExecConfig,
    AgentToolsConfig,
    ExecMode,
    MessageConfig,
    ToolsConfig,
    effective_approval,
    effective_exec,
)
from tools.policy import GROUPS, foreign, holds, layers_of, permitted
from tools.tool import Call

AGENTS = "agents: { list: [ { id: a, model: demo/guide } ] }"
RUNTIME = ToolLists(deny=("group:runtime",))


@pytest.mark.parametrize(
    ("more", "policy", "sender", "kind", "gone"),
    [
        ("", "pairing", "ou_stranger", "direct", True),
        ("", "pairing", "ou_listed", "direct", False),
        ("", "pairing", "ou_stranger", "group", False),
        ("", "open", "ou_stranger", "direct", False),
        ("tools: { ownerOnly: [] }", "pairing", "ou_stranger", "direct", False),
        ("owners: ['feishu:ou_owner']", "pairing", "ou_owner", "direct", False),
        ("owners: ['feishu:ou_owner']", "pairing", "ou_listed", "direct", True),
        ("owners: ['feishu:ou_owner']", "open", "ou_owner", "group", False),
        ("owners: ['feishu:ou_owner']", "open", "ou_stranger", "group", True),
        ("owners: ['telegram:ou_owner']", "open", "ou_owner", "direct", True),
    ],
)
def test_commands_are_the_owners(
    tmp_path: Path, more: str, policy: Any, sender: str, kind: ChatKind, gone: bool
) -> None:
    config = loaded(tmp_path, f"{AGENTS}\n{more}\n").config
    layers = ToolLayers(config, config.owners)
    access = AccessConfig.model_construct(dm_policy=policy, allow_from=("ou_listed",))
    account = Account(kind=CHANNEL_TYPES["feishu"], name="default", config=access, key=("channels", "feishu"))
    layers._accounts = {("feishu", "default"): account}
    found = layers.of(context("feishu", Chat(id="oc_1", kind=kind), sender=Sender(id=sender)))
    assert found == ((RUNTIME,) if gone else ())


@pytest.mark.parametrize(
    ("laxer", "kept"),
    [({}, True), ({"mode": "allow"}, False), ({"network": True}, False), ({"sandbox": "off"}, False)],
)
def test_a_task_has_no_commands_that_would_do_more_than_its_askers(laxer: dict[str, Any], kept: bool) -> None:
    tools = (AgentToolsConfig(allow=("*",)), AgentToolsConfig(allow=("*",), exec=AgentExecConfig(**laxer)))
    agents = tuple(AgentConfig(id=id_, tools=it) for id_, it in zip(("asker", "clerk"), tools, strict=True))
    task = permitted(ToolLayers(Config(agents=AgentsConfig(list=agents)), ()).of_task("clerk", "asker"), NAMES)
    assert ("exec" in task, "process" in task) == (kept, kept)


FOREIGN = ("git__log", "git__push", "jira__find")
NAMED = st.lists(st.sampled_from([*NAMES, *GROUPS, "*", "mcp:*", "mcp:git", *FOREIGN]), max_size=4).map(tuple)
LISTS = st.builds(
    ToolLists.model_construct,
    profile=st.none() | st.sampled_from(["minimal", "messaging", "coding", "full"]),
    allow=st.none() | NAMED,
    deny=NAMED,
)
EXEC = st.builds(
    AgentExecConfig.model_construct,
    mode=st.none() | st.sampled_from(["deny", "ask", "allow"]),
    sandbox=st.none() | st.sampled_from(["auto", "off"]),
    network=st.none() | st.booleans(),
)
TARGETS = st.lists(st.sampled_from(["feishu:oc_2", "feishu:oc_3"]), max_size=2).map(tuple)
AGENT = st.builds(
    lambda lists, shell, targets, approval, taint: AgentToolsConfig.model_construct(
        **dict(lists), exec=shell, message=MessageConfig(targets=targets), approval=approval, taint=taint
    ),
    lists=LISTS,
    shell=EXEC,
    targets=TARGETS,
    approval=NAMED,
    taint=st.none() | NAMED,
)


@settings(max_examples=4 * settings().max_examples, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    agents=st.tuples(AGENT, AGENT) | AGENT.map(lambda it: (it, it)),
    everywhere=LISTS,
    account=LISTS,
    chat=st.none() | LISTS,
    senders=st.dictionaries(st.sampled_from(["feishu:ou_1", "telegram:1"]), LISTS, max_size=2),
    owner_only=st.none() | NAMED,
    owners=st.sets(st.sampled_from(["feishu:ou_1", "telegram:1", "web:local"]), max_size=2),
    channel=st.sampled_from(["feishu", "telegram", "web"]),
    person=st.sampled_from(["ou_1", "1", "local", "ou_2"]),
    kind=st.sampled_from(["direct", "group"]),
    dm_policy=st.sampled_from(["open", "pairing"]),
    tainted=st.booleans(),
)
def test_what_a_task_may_do_its_asker_may_do_for_this_person_in_this_chat(
    agents: tuple[AgentToolsConfig, AgentToolsConfig],
    everywhere: ToolLists,
    account: ToolLists,
    chat: ToolLists | None,
    senders: dict[str, ToolLists],
    owner_only: tuple[str, ...] | None,
    owners: set[str],
    channel: str,
    person: str,
    kind: ChatKind,
    dm_policy: Policy,
    tainted: bool,
) -> None:
    lent, own = agents
    tools = ToolsConfig.model_construct(**dict(everywhere), senders=senders, owner_only=owner_only, taint=("exec",))
    listed = (AgentConfig.model_construct(id="asker", tools=lent), AgentConfig.model_construct(id="clerk", tools=own))
    config = Config.model_construct(tools=tools, agents=AgentsConfig.model_construct(list=listed))
    layers = ToolLayers(config, owners)
    configured = AccessConfig.model_construct(
        dm_policy=dm_policy,
        allow_from=(),
        tools=account,
        chats={"oc_1": ChatConfig.model_construct(tools=chat)} if chat else {},
    )
    layers._accounts = {
        (channel, "default"): Account(kind=CHANNEL_TYPES["feishu"], name="default", config=configured, key=())
    }
    message = context(channel, Chat(id="oc_1", kind=kind), sender=Sender(id=person))
    there, given = (*NAMES, *foreign(lent, FOREIGN)), (*NAMES, *foreign(own, FOREIGN))
    asker = permitted((*layers_of(tools, lent), *layers.of(message)), there)
    task = permitted((*layers_of(tools, own), *layers.of(message), *layers.of_task("clerk", "asker")), given)
    assert {*task} <= {*asker} - {"task"}
    if "exec" in task or "process" in task:
        mine, theirs = effective_exec(tools.exec, own), effective_exec(tools.exec, lent)
        order = get_args(ExecMode)
        assert order.index(mine.mode) <= order.index(theirs.mode)
        assert mine.network <= theirs.network
        assert mine.sandbox == "auto" or theirs.sandbox == "off"
    if "message" in task:
        assert {*own.message.targets} <= {*lent.message.targets}
    call = Call(id="1", key="k", message=message, tainted=tainted)
    gates: Any = [Gated(effective_approval(tools, it)) for it in (own, lent)]
    gate = TurnGate(approvals=gates, runner=gates[0], session="", turn=1, people=(), asker=gates[1])
    for name in task:
        always, after = gates[1].approval
        assert gate.demands(name, call) or not (holds(always, name) or (tainted and holds(after, name)))


@dataclass
class Gated:
    approval: tuple[tuple[str, ...], tuple[str, ...]]


def test_a_task_has_the_tools_of_servers_only_if_its_asker_names_them(tmp_path: Path) -> None:
    more = """agents: { list: [
  { id: asker, model: demo/guide, tools: { allow: ["*"] } },
  { id: named, model: demo/guide, tools: { allow: ["*", "mcp:git"] } },
] }
mcp: { servers: { git: { command: ["true"] } } }
"""
    layers = ToolLayers(loaded(tmp_path, more).config, ())
    assert permitted(layers.of_task("named", "asker"), FOREIGN) == ()
    assert permitted(layers.of_task("asker", "named"), FOREIGN) == ("git__log", "git__push")


def test_an_agent_that_is_gone_lends_nothing(tmp_path: Path) -> None:
    config = loaded(tmp_path, f"{AGENTS}\n").config
    assert permitted(ToolLayers(config, ()).of_task("a", "gone"), NAMES) == ()
    assert permitted(ToolLayers(config, ()).of_task("a", "a"), NAMES) == (
        "read",
        "ls",
        "message",
        "ask",
        "handover",
        "group_history",
    )
