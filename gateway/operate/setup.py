"""The current config and agents, for the operator's console.

Each agent has its models, its skills, and for each tool whether the agent has it and why. Every reason is a config key
and its effect; the layers come from the code that hands out the tools, so a reason cannot contradict a turn. The config
is YAML without its secrets, protected in three steps: secrets are masked by type, URLs lose their credentials, and the
scrubber redacts anything left of a configured secret. Provider headers are masked entirely.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from agents.config import AgentConfig
from channels.bilingual import Bilingual
from channels.section import ToolLists
from gateway.config.root import Config
from gateway.observe.secrets import REDACTED, Scrubber, redacted
from gateway.operate.clipped import brief
from gateway.state.runtime import Setup
from skills.catalog import visible
from tools.catalog import NAMES
from tools.policy import DEFAULT_PROFILE, foreign, layers_of, permitted

_CREDENTIALS = re.compile(r"(://)[^/\s@]+@")
_STARS = re.compile(r"\*{4,}")
VALUE_CHARS, TEXT_CHARS = 2_000, 100_000
"""Characters of one value, and of the whole; the file has the rest."""


def agents_view(setup: Setup) -> list[dict[str, Any]]:
    return [_agent(setup, number, agent) for number, agent in enumerate(setup.config.agents.list)]


def _agent(setup: Setup, number: int, agent: AgentConfig) -> dict[str, Any]:
    runner = setup.runners[agent.id]
    skills, hidden = _skills(setup, agent)
    facts = {"id": agent.id, "name": agent.name, "description": agent.description, "models": list(agent.model)}
    facts |= {"exec": runner.exec_config.mode, "workspace": agent.workspace_dir}
    facts |= {"approvers": setup.config.approvers(agent, setup.owners) or (), "scope": runner.config.session.scope}
    return facts | {
        "tools": [_tool(setup, number, agent, it) for it in _names(setup, agent)],
        "skills": skills,
        "hidden": hidden,
    }


def _skills(setup: Setup, agent: AgentConfig) -> tuple[list[str], list[dict[str, Any]]]:
    runner, workspace = setup.runners[agent.id], Path(agent.workspace_dir)
    catalog = runner.catalog
    hidden = visible(catalog.hidden(workspace), agent.skills)
    return (
        [it.name for it in visible(catalog.scan(workspace), agent.skills, runner.names)],
        [{"name": it.name, "needs": list(it.missing)} for it in hidden],
    )


def _names(setup: Setup, agent: AgentConfig) -> list[str]:
    """The tools that are built in, and those of MCP servers that the agent names."""
    servers = setup.mcp.servers.values()
    listed = tuple(it.name for server in servers for it in (*server.offered, *server.withheld))
    return [*NAMES, *foreign(agent.tools, listed)]


def _tool(setup: Setup, number: int, agent: AgentConfig, name: str) -> dict[str, Any]:
    """`state`: `off` if nobody gets it, `some` if not every user does, `ask` if its calls need an approval, else
    `on`."""
    lost = [*_lost(setup, number, agent, name)]
    if lost:
        return _view(name, "off", lost)
    missing = [*_lost_to_some(setup, name)]
    asked = [*_asked(setup, agent, name)]
    state = "some" if missing else "ask" if asked else "on"
    return _view(name, state, [*missing, *asked])


def _view(name: str, state: str, reasons: list[Bilingual]) -> dict[str, Any]:
    return {"name": name, "state": state, "reasons": [{"en": it.en, "zh": it.zh} for it in reasons]}


def _lost(setup: Setup, number: int, agent: AgentConfig, name: str) -> Iterator[Bilingual]:
    """The reasons why the agent does not have it in any chat."""
    if name in (it.name for server in setup.mcp.servers.values() for it in server.withheld):
        yield Bilingual(
            "an owner has yet to see what it says of itself: clawgate mcp accept",
            "所有者尚未查看它的说明：clawgate mcp accept",
        )
    if name == "web_search" and not setup.config.tools.web.search.provider:
        yield Bilingual("tools.web.search.provider is not set", "未设置 tools.web.search.provider")
    if name == "feishu" and not setup.config.tools.feishu.areas:
        yield Bilingual("tools.feishu.areas is empty", "tools.feishu.areas 为空")
    everybody, own = layers_of(setup.config.tools, agent.tools)
    for layer, key in ((everybody, "tools"), (own, f"agents.list[{number}].tools")):
        if not permitted((layer,), (name,)):
            yield _taken(layer, key, implied=agent.tools.profile is None and layer is own)


def _taken(layer: ToolLists, key: str, *, implied: bool = False) -> Bilingual:
    if implied and layer.profile == DEFAULT_PROFILE:
        return Bilingual(
            f"{key} names neither profile nor allow, so the profile {DEFAULT_PROFILE} holds",
            f"{key} 未设置 profile 或 allow，因此按 {DEFAULT_PROFILE} 配置",
        )
    written = [it for it in ("profile", "allow", "deny") if getattr(layer, it) not in (None, ())]
    lists = ", ".join(f"{key}.{it}" for it in written)
    return Bilingual(f"taken away by {lists}", f"由 {lists} 去除")


def _lost_to_some(setup: Setup, name: str) -> Iterator[Bilingual]:
    """The reasons why some chats or senders do not have it."""
    for layer, key in setup.layers.all().items():
        if permitted((layer,), (name,)):
            continue
        if key == "tools.ownerOnly":
            yield Bilingual("only for owners (tools.ownerOnly)", "仅限所有者（tools.ownerOnly）")
        else:
            yield Bilingual(f"not by {key}", f"{key} 中没有")


def _asked(setup: Setup, agent: AgentConfig, name: str) -> Iterator[Bilingual]:
    """The reasons why a person approves its calls, or why its calls are refused."""
    runner = setup.runners[agent.id]
    always, tainted = runner.approval
    if name in ("exec", "process") and runner.exec_config.mode == "deny":
        yield Bilingual("tools.exec.mode is deny: every call is refused", "tools.exec.mode 为 deny：拒绝所有调用")
    elif (name in ("exec", "process") and runner.exec_config.mode == "ask") or name in always:
        yield Bilingual("a person approves each call", "每次调用都需审批")
    elif name in tainted:
        yield Bilingual("a person approves calls after text of strangers", "读到陌生人的文字后，调用需审批")


def config_view(config: Config, scrubber: Scrubber) -> dict[str, str]:
    """`written` has what differs from the defaults, `whole` everything."""
    return {it: _yaml(config, scrubber, exclude_defaults=it == "written") for it in ("written", "whole")}


def _yaml(config: Config, scrubber: Scrubber, *, exclude_defaults: bool) -> str:
    tree: dict[str, Any] = config.model_dump(mode="json", by_alias=True, exclude_defaults=exclude_defaults)
    for provider in tree.get("providers", {}).values():
        if headers := provider.get("headers"):
            headers.update(dict.fromkeys(headers, REDACTED))
    text = yaml.safe_dump(brief(tree, VALUE_CHARS), sort_keys=False, allow_unicode=True, width=10_000)
    text = _CREDENTIALS.sub(rf"\1{REDACTED}@", _STARS.sub(REDACTED, text))
    return str(brief(redacted(scrubber.scrub(text)), TEXT_CHARS))
