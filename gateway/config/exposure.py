"""The exposure of the web chat, the agents that run commands, and what a model can reach this machine with."""

import hashlib
import hmac
import ipaddress
import json
from collections.abc import Iterator
from urllib.parse import urlsplit

from agents.config import AgentConfig
from channels.bilingual import Bilingual
from channels.web.admission import Way, is_loopback
from gateway.config.channels import Exposure
from gateway.config.root import Config
from gateway.config.server import filled
from gateway.observe.secrets import secrets_in
from tools.catalog import offered
from tools.config import ExecMode, effective_exec, private
from tools.mcp.config import McpServerConfig

_HERE = tuple(map(ipaddress.ip_network, ("127.0.0.0/8", "0.0.0.0/32", "::/127")))
"""Loopback, and the unspecified address, which connects to loopback."""
PROOF_CHARS_MIN = 24
"""Fewer characters of secrets would let the proof be brute-forced."""


def exposure(config: Config) -> Exposure:
    asking = [it.id for it in config.agents.list if config.approvers(it) is None and exec_mode(config, it) == "ask"]
    return Exposure(server=config.server, way=way_in(config), present=[*present(config)], unapproved=asking)


def way_in(config: Config) -> Way:
    """Return how users sign in. Without a token, the page is open on this machine only if no model can reach it."""
    has_token = bool(config.server.admin_token.get_secret_value() or filled(config.server.users))
    if config.server.is_open_here:
        return "link" if has_token or any(present(config)) else "open"
    return "token" if has_token else "closed"


def openable(config: Config, channel: str) -> str | None:
    """Return the page's URL for a reader in this channel, or None if they cannot open it: a local address is only for
    readers of the web chat."""
    public = config.server.public_url
    if not has_page(config):
        return None
    if channel == "web":
        return public or config.server.address
    return public if public and not is_loopback(urlsplit(public).hostname or "") else None


def has_page(config: Config) -> bool:
    """Return whether the web chat is enabled and someone can sign in."""
    return bool(config.channels.web and config.channels.web.enabled) and way_in(config) != "closed"


def present(config: Config) -> Iterator[Bilingual]:
    """Yield whatever lets a model send requests from this machine, outside the sandbox."""
    if agents := commanding(config):
        yield Bilingual(f"commands of {', '.join(agents)}", f"{'、'.join(agents)} 的命令")
    if config.tools.directories:  # their code runs in the gateway's process and opens what sockets it likes
        yield Bilingual("the tools of tools.directories", "tools.directories 中的工具")
    for name, server in config.mcp.servers.items():
        if _is_outside(server):
            yield Bilingual(f"MCP server {name}", f"MCP 服务器 {name}")
    if _opens_loopback(config):
        yield Bilingual("tools.web.fetch.allowPrivate")


def _is_outside(server: McpServerConfig) -> bool:
    if server.command:
        return server.sandbox == "off"
    # Without `allowPrivate` only public addresses are connected to.
    return bool(server.allow_private) or is_loopback(urlsplit(server.url).hostname or "")


def _opens_loopback(config: Config) -> bool:
    """Return whether `allowPrivate` opens an address of this machine. `web_fetch` sends the host's real name, which the page
    rejects unless it is local; a sandboxed command can send any name through the proxy."""
    places = [private(it) for it in config.tools.web.fetch.allow_private]
    networks = [it for it in places if not isinstance(it, tuple)]
    if any(it.version == here.version and it.overlaps(here) for it in networks for here in _HERE):
        return True
    hosts = [it[0] for it in places if isinstance(it, tuple) and it[1] in (None, config.server.port)]
    proxied = [
        effective_exec(config.tools.exec, it.tools).network for it in config.agents.list if exec_mode(config, it)
    ]
    is_proxied = any((*proxied, *(it.network for it in config.mcp.servers.values())))
    return any(is_proxied or is_loopback(it) for it in hosts)


def commanding(config: Config) -> list[str]:
    """List the agents whose commands run without approval, or outside the sandbox once approved."""
    agents = ((it.id, exec_mode(config, it), effective_exec(config.tools.exec, it.tools)) for it in config.agents.list)
    return [name for name, mode, found in agents if mode == "allow" or (mode == "ask" and found.sandbox == "off")]


def sandboxed(config: Config) -> list[str]:
    """List the agents whose commands run only in a sandbox."""
    agents = [agent for agent in config.agents.list if exec_mode(config, agent) in ("ask", "allow")]
    return [it.id for it in agents if effective_exec(config.tools.exec, it.tools).sandbox == "auto"]


def exec_mode(config: Config, agent: AgentConfig) -> ExecMode | None:
    """Return the agent's exec mode; None if it has no tool that runs commands."""
    runs = {"exec", "process"} & {*offered(config.tools, agent.tools, off=config.tools_off)}
    return effective_exec(config.tools.exec, agent.tools).mode if runs else None


def operator_proof(config: Config) -> str:
    """Return an HMAC of the config's secrets, by which the command line proves to the gateway that it is the operator's.
    Empty if there are too few secrets."""
    found = sorted((repr(key), secret) for key, secret in secrets_in(config) if secret.strip() and key[0] != "database")
    if sum(len(secret) for _, secret in found) < PROOF_CHARS_MIN:
        return ""
    return hmac.new(json.dumps(found).encode(), b"clawgate operator", hashlib.sha256).hexdigest()
