"""The way in that a config opens, and the agents that run commands."""

import hashlib
import hmac
import json

from agents.config import AgentConfig
from channels.web.admission import Way
from gateway.config.channels import Exposure
from gateway.config.root import Config
from gateway.config.server import filled
from gateway.observe.secrets import secrets_in
from tools.catalog import offered
from tools.config import ExecMode, effective_exec

PROOF_CHARS_MIN = 24
"""Fewer characters of secrets could be guessed from their proof."""


def exposure(config: Config) -> Exposure:
    asking = [it.id for it in config.agents.list if config.approvers(it) is None and exec_mode(config, it) == "ask"]
    return Exposure(server=config.server, way=way_in(config), commanding=commanding(config), unapproved=asking)


def way_in(config: Config) -> Way:
    """The way in. Without a token, people at this machine may enter only while no agent runs commands there."""
    has_token = bool(config.server.admin_token.get_secret_value() or filled(config.server.users))
    if config.server.is_open_here:
        return "link" if has_token or commanding(config) else "open"
    return "token" if has_token else "closed"


def commanding(config: Config) -> list[str]:
    """The agents that run commands unasked."""
    return [agent.id for agent in config.agents.list if exec_mode(config, agent) == "allow"]


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
