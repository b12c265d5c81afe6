"""The way in that a config opens, the agents that run commands, and what a model can reach this machine with."""

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
"""The addresses that are always this machine; connecting to the unspecified one connects to loopback."""
PROOF_CHARS_MIN = 24
"""Fewer characters of secrets could be guessed from their proof."""


def exposure(config: Config) -> Exposure:
    asking = [it.id for it in config.agents.list if config.approvers(it) is None and exec_mode(config, it) == "ask"]
    return Exposure(server=config.server, way=way_in(config), present=[*present(config)], unapproved=asking)


def way_in(config: Config) -> Way:
    """Return the way in. Without a token, users at this machine may enter only while nothing a model drives is there."""
    has_token = bool(config.server.admin_token.get_secret_value() or filled(config.server.users))
    if config.server.is_open_here:
        return "link" if has_token or any(present(config)) else "open"
    return "token" if has_token else "closed"


def openable(config: Config, channel: str) -> str | None:
    """Return the page's address as a person who reads it in this channel can open it; None if they cannot. A phone opens no
    address of this machine; whoever reads it on the page is there."""
    public = config.server.public_url
    if not has_page(config):
        return None
    if channel == "web":
        return public or config.server.address
    return public if public and not is_loopback(urlsplit(public).hostname or "") else None


def has_page(config: Config) -> bool:
    """Return whether the web chat is on and somebody can come in."""
    return bool(config.channels.web and config.channels.web.enabled) and way_in(config) != "closed"


def present(config: Config) -> Iterator[Bilingual]:
    """Name what can send requests from this machine, outside of the sandbox, because a model asks for it."""
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
    """Return True for a program without a sandbox, and for an address that may be this machine's. Without `allowPrivate`
    only public addresses are connected to."""
    if server.command:
        return server.sandbox == "off"
    return bool(server.allow_private) or is_loopback(urlsplit(server.url).hostname or "")


def _opens_loopback(config: Config) -> bool:
    """Return True if `allowPrivate` opens an address of this machine. `web_fetch` sends a host's own name, which the page
    refuses unless it is this machine's; through the proxy of a sandbox a command sends what it likes. A host with its own
    port is opened at that port alone."""
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
    """List the agents whose commands run unasked, or outside of the sandbox once they are approved."""
    agents = ((it.id, exec_mode(config, it), effective_exec(config.tools.exec, it.tools)) for it in config.agents.list)
    return [name for name, mode, found in agents if mode == "allow" or (mode == "ask" and found.sandbox == "off")]


def sandboxed(config: Config) -> list[str]:
    """The agents whose commands run in a sandbox, or not at all."""
    agents = [agent for agent in config.agents.list if exec_mode(config, agent) in ("ask", "allow")]
    return [it.id for it in agents if effective_exec(config.tools.exec, it.tools).sandbox == "auto"]


def exec_mode(config: Config, agent: AgentConfig) -> ExecMode | None:
    """The agent's mode; None if it runs no commands."""
    runs = {"exec", "process"} & {*offered(config.tools, agent.tools)}
    return effective_exec(config.tools.exec, agent.tools).mode if runs else None


def operator_proof(config: Config) -> str:
    """The proof that the caller has read the config's secrets, and so runs this gateway: the command line shows it beside
    a gateway, and no secret with it. Empty if there are too few secrets to prove anything."""
    found = sorted((repr(key), secret) for key, secret in secrets_in(config) if secret.strip() and key[0] != "database")
    if sum(len(secret) for _, secret in found) < PROOF_CHARS_MIN:
        return ""
    return hmac.new(json.dumps(found).encode(), b"clawgate operator", hashlib.sha256).hexdigest()
