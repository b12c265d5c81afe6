"""`mcp list | try | accept`: the servers whose tools agents may have."""

from typing import Annotated, Any

import typer

from gateway.cli.options import CONFIG, AsJson, ConfigOption, language, load
from gateway.observe.terminal import print_json, print_text
from gateway.program import OperatorError

mcp_app = typer.Typer(
    no_args_is_help=True, help="MCP servers: list their tools, try one, accept what has changed; also while it serves."
)
ServerArgument = Annotated[str, typer.Argument(metavar="NAME", help="A server of mcp.servers.")]
SHOWN_CHARS = 100
_STATES = {"accepted": "已接受", "changed": "有变化", "new": "新增"}


@mcp_app.command("list")
def list_servers(as_json: AsJson = False, config: ConfigOption = CONFIG) -> None:
    """Start each server and list its tools: which agents have them, and what an owner has not reviewed in its
    current form."""
    import asyncio

    from gateway.operate.mcp import listed

    servers = asyncio.run(listed(load(config)))
    if as_json:
        print_json(servers)
        return
    for server in servers:
        tools, zh = len(server["tools"]), language(config) == "zh"
        counted = _line(server["fault"]) or (f"{tools} 个工具" if zh else f"{tools} tools")
        print_text(f"{server['server']}{'：' if zh else ': '}{counted}")
        for tool in server["tools"]:
            state = _STATES.get(tool["state"], tool["state"]) if zh else tool["state"]
            print_text(f"  {tool['name']}  {state}  {', '.join(tool['agents']) or '-'}  {_said(tool, zh=zh)}")
        for tool, reason in server["leftOut"].items():
            print_text(f"  {_line(tool)}  {'未采用：' if zh else 'left out: '}{reason}")


def _said(tool: dict[str, Any], *, zh: bool) -> str:
    if tool["state"] != "changed":
        return _line(tool["description"])[: None if tool["state"] == "new" else SHOWN_CHARS]
    now, before = _line(tool["description"]), _line(tool["before"])
    return f"{now}（之前：{before}）" if zh else f"{now} (before: {before})"


def _line(text: str) -> str:
    return "".join(it for it in " ".join(text.split()) if it.isprintable())


@mcp_app.command("try")
def try_tool(
    name: ServerArgument,
    tool: Annotated[str, typer.Argument(help="One of its tools.")],
    arguments: Annotated[str, typer.Argument(metavar="JSON", help='Its arguments: \'{"timezone": "UTC"}\'.')] = "{}",
    config: ConfigOption = CONFIG,
) -> None:
    """Start the server, call one of its tools, and print the result as a model gets it, without the fences."""
    import asyncio
    import json

    from gateway.operate.mcp import shown, tried

    try:
        call = json.loads(arguments)
    except ValueError:
        call = None
    if not isinstance(call, dict):
        raise OperatorError(f"{arguments}: expected a JSON object")
    result = asyncio.run(tried(load(config), name, tool, call))
    print_text(shown(result))
    if result.is_error:
        raise typer.Exit(1)


@mcp_app.command("accept")
def accept_tools(name: ServerArgument, config: ConfigOption = CONFIG) -> None:
    """Accept the new and changed tools of a server, as the gateway sees them now."""
    import asyncio

    from gateway.operate.mcp import accept

    for tool in asyncio.run(accept(load(config), name)) or ["nothing waits"]:
        print_text(f"{name}: {_line(tool)}")
