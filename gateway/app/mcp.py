"""Watch the MCP servers: notify owners of tools withheld from agents, and of servers that stay unreachable."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping

from gateway.approvals.display import value
from gateway.approvals.notices import OWN, Choice, Notice
from gateway.observe.logs import logged
from gateway.state.runtime import Runtime
from gateway.store.reviews import digest_of
from tools.mcp.definition import Definition
from tools.mcp.server import McpServer, Review

LOOK_SECONDS = 2.0
LASTING_SECONDS = 60.0
"""Seconds before owners are notified of an unreachable server."""
SHOWN_MAX = 3
SHOWN_CHARS = 300


class ServerWatch:
    def __init__(self, runtime: Runtime, tell: Callable[[Notice], Awaitable[None]]) -> None:
        self._runtime = runtime
        self._tell = tell

    async def run(self) -> None:
        while True:
            with logged("mcp_servers_not_looked_at"):
                for notice in self.due():
                    await self._tell(notice)
            await asyncio.sleep(LOOK_SECONDS)

    def due(self) -> Iterator[Notice]:
        """Yield the notices that apply now; `tell` limits each cause to one an hour."""
        for server in self._runtime.setup.mcp.servers.values():
            if server.fault and self._runtime.now() - server.since >= LASTING_SECONDS:
                yield _down(server)
            elif any(it.pending for it in server.known.values()) and server.withheld:
                yield _withheld(server)


def _down(server: McpServer) -> Notice:
    return Notice(
        cause=f"mcp {server.name}",
        en=f"The MCP server `{server.name}` cannot be used: {value(server.fault)}. I will keep trying.",
        zh=f"MCP 服务器 `{server.name}` 无法使用：{value(server.fault)}。我会继续重试。",
    )


def _withheld(server: McpServer) -> Notice:
    digest = digest_of(server.known)
    waiting = server.withheld
    tools = ", ".join(f"`{it.name}`" for it in waiting[:10]) + (" …" if len(waiting) > 10 else "")
    return Notice(
        cause=f"mcp {server.name} {digest}",
        en=f"Tools of the MCP server `{server.name}` are new or have changed "
        f"since you last saw them. They stay disabled until you accept them: "
        f"{tools}.{''.join(_change(it, server.known, zh=False) for it in waiting[:SHOWN_MAX])}",
        zh=f"MCP 服务器 `{server.name}` 有新增或已更改的工具，在你接受之前不会启用：{tools}。"
        + "".join(_change(it, server.known, zh=True) for it in waiting[:SHOWN_MAX]),
        choices=(Choice(token=f"{OWN}mcp:{server.name}:{digest}", en="Accept", zh="接受"),),
        typed=f"/approve mcp {server.name} {digest}",
    )


def _change(tool: Definition, reviews: Mapping[str, Review], *, zh: bool) -> str:
    before = reviews.get(tool.tool, Review()).accepted
    old = Definition(tool.server, tool.tool, before).description if before else ""
    name, now = f"\n- `{tool.name}`", value(tool.description[:SHOWN_CHARS])
    if not before:
        return f"{name}{'（新增）：' if zh else ' (new): '}{now}"
    if old == tool.description:
        return f"{name}{'：参数有变化' if zh else ': arguments changed'}"
    then = value(old[:SHOWN_CHARS])
    return f"{name}：{now}（之前：{then}）" if zh else f"{name}: {now} (before: {then})"
