"""MCP servers and programs behind agents, for the operator: each is started for the command alone, independent of the
gateway.

Accepted tools are read from the database, if there is one; only `accept` writes.
"""

import asyncio
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from agents.acp.agent import AcpFailure
from agents.acp.agent import probe as probe_program
from agents.config import AgentConfig
from channels.bilingual import Bilingual, Finding
from channels.channel import DeliveryError
from channels.login import AppAccess
from channels.message import DocumentLink
from gateway.config.channels import Account, configured
from gateway.config.load import Loaded
from gateway.config.root import Config
from gateway.program import VERSION, OperatorError
from gateway.store.migrate import DatabaseUnusable
from gateway.store.opening import offline
from gateway.store.reviews import DatabaseReviews, reviewed
from tools.identity import NEEDS_PERSON
from tools.mcp.config import SCOPES, McpServerConfig, downloader
from tools.mcp.definition import Definition, ServerGone
from tools.mcp.server import Environment, McpServer, Review, reason_of
from tools.policy import SERVERS, foreign
from tools.sandbox.sandbox import Sandbox
from tools.tool import Call, Image, ToolError, ToolResult

COMMAND_LINE = "command line"


@dataclass(frozen=True)
class Seen:
    """Read-only access to the reviews of MCP tools."""

    config: Config

    async def of(self, server: str) -> Mapping[str, Review]:
        try:
            return await _reviews(self.config).of(server)
        except DatabaseUnusable:
            return {}

    async def record(self, server: str, listed: Mapping[str, str], at: float) -> Mapping[str, Review]:
        return await self.of(server)


class AppAlone:
    """Identities of a command: it acts as the app, and as nobody else. `granted` is what was found of each account's app."""

    def __init__(self, config: Config) -> None:
        self._accounts = {it.name: it for it in configured(config.channels) if it.kind.app_access}
        self.granted: dict[str, AppAccess] = {}

    def address(self, account: str) -> str:
        found = self._account(account)
        return found.kind.address(found.config)

    def links(self, account: str, text: str) -> tuple[DocumentLink, ...]:
        return ()

    async def app_token(self, account: str, refused: str = "") -> str:
        found = self._account(account)
        assert found.kind.app_access is not None
        try:
            access = self.granted[account] = await found.kind.app_access(found.config)
        except DeliveryError as error:
            raise ToolError("UNAVAILABLE", f"the app of the account {account!r} gets no token: {error}") from None
        return access.token

    async def token(self, call: Call, account: str, **_: Any) -> str:
        raise ToolError(NEEDS_PERSON, "a command acts as nobody")

    async def missing(self, call: Call, account: str, scopes: Sequence[str]) -> ToolError:
        return ToolError(NEEDS_PERSON, "a command acts as nobody")

    async def app_lacks(self, account: str, scopes: Sequence[str]) -> ToolError:
        return ToolError("APP_LACKS_SCOPE", f"the app lacks the permission {', '.join(scopes)}")

    def _account(self, name: str) -> Account:
        if name not in self._accounts:
            raise ToolError("UNAVAILABLE", f"no account {name!r} is configured")
        return self._accounts[name]


def seen_tools(config: Config, database: Connection | None) -> dict[str, list[str]]:
    """Return the last seen and accepted tools of each server that the gateway has reached."""
    tools: dict[str, list[str]] = {}
    for name, server in config.mcp.servers.items():
        reviews = {} if database is None else reviewed(database, name)
        taken = [Definition(name, tool, it.accepted) for tool, it in reviews.items() if it.accepted and not it.pending]
        if reviews:
            tools[name] = sorted(it.name for it in taken if server.takes(it.tool))
    return tools


async def listed(loaded: Loaded) -> list[dict[str, Any]]:
    """List each server with its tools: their names, which agents have them, and whether an owner accepted them."""
    servers = _servers(loaded)
    lists = await asyncio.gather(*map(_listed, servers.values()))
    return [
        {
            "server": server.name,
            "fault": fault,
            "tools": [_tool(loaded.config, it, server.known) for it in tools],
            "leftOut": dict(server.left_out),
        }
        for server, (tools, fault) in zip(servers.values(), lists, strict=True)
    ]


async def _listed(server: McpServer) -> tuple[list[Definition], str]:
    try:
        async with server.connected() as connection:
            return await server.listed_by(connection), ""
    except ToolError as error:
        return [], error.message
    except Exception as error:  # noqa: BLE001 - whatever a server does, the others are listed
        return [], reason_of(error)


def _tool(config: Config, tool: Definition, reviews: Mapping[str, Review]) -> dict[str, Any]:
    before = reviews.get(tool.tool, Review()).accepted
    state = "accepted" if not reviews or before == tool.text else "changed" if before else "new"
    agents = [it.id for it in config.agents.list if foreign(it.tools, (tool.name,))]
    facts = {"name": tool.name, "state": state, "agents": agents, "hash": tool.digest[:12]}
    old = {"before": Definition(tool.server, tool.tool, before).description} if state == "changed" else {}
    return facts | {"description": tool.description} | old


async def tried(loaded: Loaded, name: str, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
    """Call a tool and return its result. Raise OperatorError."""
    server = _servers(loaded, name)[name]
    if server.config.account and server.config.acts_as == "person":
        raise OperatorError(f"{name}: its calls need a person: ask your bot in the chat, or set as: app to try it")
    try:
        async with server.connected() as connection:
            tools = await server.listed_by(connection)
            entry = next((it for it in tools if tool in (it.tool, it.name)), None)
            if entry is None:
                raise OperatorError(f"no tool {tool} of {name}: it has {', '.join(it.tool for it in tools) or 'none'}")
            seconds = server.config.call_seconds
            return await connection.call(entry.tool, entry.parse(arguments), seconds=seconds, tell=lambda line: None)
    except ToolError as error:
        raise OperatorError(f"{name}: {error.code}: {error.message}") from None
    except OperatorError:
        raise
    except ServerGone as error:
        raise OperatorError(f"{name}: {error}") from None
    except Exception as error:  # noqa: BLE001 - whatever the server did is one line here
        raise OperatorError(f"{name}: {reason_of(error)}") from None


def shown(result: ToolResult) -> str:
    parts = (f"[picture, {it.media_type}]" if isinstance(it, Image) else it for it in result.content)
    return "".join(it for it in "\n".join(parts) if it.isprintable() or it in "\n\t")


async def accept(loaded: Loaded, name: str) -> list[str]:
    """Accept the pending tools as last seen by the gateway. Raise OperatorError."""
    _servers(loaded, name)
    return await _reviews(loaded.config).accept(name, by=COMMAND_LINE, at=time.time(), digest=None)


async def probe(loaded: Loaded, name: str) -> list[Finding]:
    """Return the findings of `doctor` about one server."""
    server = _servers(loaded, name)[name]
    check, config = f"mcp {name}", server.config
    tools, fault = await _listed(server)
    findings = [Finding(check, "warning", *UNCONFINED)] if config.command and config.sandbox == "off" else []
    if fault:
        return [*findings, Finding(check, "error", Bilingual(fault), _fix(config))]
    findings.append(Finding(check, "ok", Bilingual(f"{len(tools)} tools", f"{len(tools)} 个工具")))
    if reasons := "; ".join(f"{tool}: {reason}" for tool, reason in server.left_out.items()):
        message = Bilingual(
            f"tools that cannot be used are left out: {reasons}", f"以下工具无法使用，已略去：{reasons}"
        )
        fix = Bilingual("tell the makers of the server", "请告知该服务器的开发者")
        findings.append(Finding(check, "warning", message, fix))
    findings += _lacking(check, server, tools)
    waiting = [it.name for it in tools if server.known and server.known.get(it.tool, Review()).accepted != it.text]
    if waiting:
        message = Bilingual(
            f"withheld until an owner accepts them: {', '.join(waiting)}",
            f"待所有者确认，暂不提供：{'、'.join(waiting)}",
        )
        fix = Bilingual(
            f"look at them: mcp list; then: mcp accept {name}", f"请先查看：mcp list；再执行：mcp accept {name}"
        )
        findings.append(Finding(check, "warning", message, fix))
    named = [it for agent in loaded.config.agents.list for it in foreign(agent.tools, tuple(it.name for it in tools))]
    if not named:
        message = Bilingual("no agent has one of its tools", "没有智能体使用它的工具")
        fix = Bilingual(
            f"add {SERVERS}{name} to an agent's tools.allow", f"请在智能体的 tools.allow 中加入 {SERVERS}{name}"
        )
        findings.append(Finding(check, "warning", message, fix))
    return findings


def _lacking(check: str, server: McpServer, tools: Sequence[Definition]) -> Iterator[Finding]:
    """Yield what Feishu's documents server does not offer of the config's tools, and what people cannot grant."""
    config, found = server.config, getattr(server.environment.identities, "granted", {})
    if lost := sorted(set(config.tools) - {it.tool for it in tools}):
        message = Bilingual(f"it does not offer {', '.join(lost)}", f"该服务器不提供 {'、'.join(lost)}")
        fix = Bilingual("compare mcp.servers tools with Feishu's list", "请对照飞书的工具列表检查 tools")
        yield Finding(check, "warning", message, fix)
    needed = {scope for tool in config.tools for scope in SCOPES.get(tool, ())}
    access = found.get(config.feishu)
    if config.acts_as == "person" and access and (lacks := sorted(needed - access.scopes)):
        message = Bilingual(f"people cannot grant {', '.join(lacks)}", f"用户无法授予 {'、'.join(lacks)}")
        fix = Bilingual(
            f"add them to the app and publish a version: {access.link}", f"请为应用添加并发布版本：{access.link}"
        )
        yield Finding(check, "warning", message, fix)


def _fix(config: McpServerConfig) -> Bilingual:
    if config.feishu:
        return Bilingual(
            f"does the Feishu account {config.feishu} work? Else name its server in url",
            f"飞书账号 {config.feishu} 是否可用？否则请在 url 中写明其服务器",
        )
    if config.url:
        return Bilingual(f"is {config.url} right?", f"请检查地址 {config.url}")
    command = " ".join(config.command)
    if name := downloader(config):
        return Bilingual(
            f"{name} downloads the server: set network: true, or install it and name its program",
            f"{name} 需要下载该服务器：请设置 network: true，或先安装并写明其程序",
        )
    return Bilingual(
        f"try it by itself: {command}; if it runs there, name the folders that it needs in readable",
        f"请单独试运行：{command}；如可运行，请在 readable 中写明所需文件夹",
    )


async def probe_runner(loaded: Loaded, agent: AgentConfig) -> list[Finding]:
    """Start the program behind an agent, as a turn would, and end it again."""
    check, command = f"runner {agent.id}", " ".join(agent.runner.acp)
    try:
        title = await probe_program(agent, _environment(loaded))
    except (AcpFailure, ToolError, OSError) as error:
        reason = error.message if isinstance(error, ToolError) else str(error)
        fix = Bilingual(
            f"try it by itself: {command}; its key belongs in runner.env, folders that it needs in runner.readable",
            f"请单独试运行：{command}；密钥写在 runner.env，所需文件夹写在 runner.readable",
        )
        return [Finding(check, "error", Bilingual(reason, reason), fix)]
    return [Finding(check, "ok", Bilingual(f"{title} answers", f"{title} 有应答"))]


def _environment(loaded: Loaded) -> Environment:
    config, file = loaded.config, loaded.config.database.path
    return Environment(
        sandbox=Sandbox([Path(file)] if file else []),
        path=loaded.environment.get("PATH", os.defpath),
        web=config.tools.web.fetch,
        reviews=Seen(config),
        identities=AppAlone(config),
        version=VERSION,
        now=time.time,
    )


UNCONFINED = (
    Bilingual("runs without a sandbox (sandbox: off)", "在沙箱外运行（sandbox: off）"),
    Bilingual("it can read what the gateway can read; leave the key out", "它能读取网关可读的内容；请去掉该设置"),
)


def _servers(loaded: Loaded, *names: str) -> dict[str, McpServer]:
    config = loaded.config
    if unknown := set(names) - config.mcp.servers.keys():
        known = ", ".join(config.mcp.servers) or "none"
        raise OperatorError(f"no MCP server {', '.join(unknown)}: the config has {known}")
    environment = _environment(loaded)
    return {
        name: McpServer(name, it, environment) for name, it in config.mcp.servers.items() if not names or name in names
    }


def _reviews(config: Config) -> DatabaseReviews:
    return DatabaseReviews(read=offline(config.database), write=offline(config.database))
