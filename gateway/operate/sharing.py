"""The agents that serve several people from one workspace: routing every message that could arrive finds them.

The web chat is the operator's own and does not count; one person and one group may well be the operator and their team.
"""

from collections.abc import Iterator

from agents.workspaces import is_template
from channels.access import ANYBODY, AccessConfig, refusal
from channels.bilingual import Bilingual, Finding
from channels.message import Chat, MessageContext
from gateway.config.bindings import route
from gateway.config.channels import Account, configured
from gateway.config.exposure import exec_mode
from gateway.config.root import Config
from gateway.store.sessions import message_in
from tools.catalog import offered


def shared_workspaces(config: Config) -> Iterator[Finding]:
    """Warns of each agent whose workspace several people share: it may leave there for one what it reads for another."""
    for agent in config.agents.list:
        runs = exec_mode(config, agent) == "allow"
        names = {"write", "edit"} | ({"exec", "process"} if runs else set())
        changing = [it for it in offered(config.tools, agent.tools) if it in names]
        if changing and not is_template(agent.workspace_dir) and _serves_several(config, agent.id):
            message = Bilingual(
                f"agent {agent.id}: everybody it serves shares one workspace, and can read and change others' files",
                f"智能体 {agent.id}：它服务的所有人共用一个工作目录，可以读取和改动他人的文件",
            )
            fix = Bilingual(
                f"end workspaceDir with /{{chat}} or /{{sender}}, or take {' and '.join(changing)} out of tools.allow",
                f"请让 workspaceDir 以 /{{chat}} 或 /{{sender}} 结尾，或从 tools.allow 中去掉 {' 和 '.join(changing)}",
            )
            yield Finding("config", "warning", message, fix)


def _serves_several(config: Config, agent: str) -> bool:
    """True for two people, two groups, or anybody."""
    people: set[tuple[str, str]] = set()
    groups: set[tuple[str, str]] = set()
    for account in configured(config.channels):
        if isinstance(account.config, AccessConfig):
            for context in _possible(config, account):
                if route(config.routes, config.agents, context) == agent:
                    direct = context.chat.kind == "direct"
                    one = context.sender.id if direct else context.chat.id
                    (people if direct else groups).add((account.kind.name, one))
    return len(people) > 1 or len(groups) > 1 or any(one == ANYBODY for _, one in people | groups)


def _possible(config: Config, account: Account) -> Iterator[MessageContext]:
    """Yields a message of each person named anywhere and of a stranger, if access lets it in."""
    access = account.config
    matches = [binding.match for binding in config.routes]
    people = {ANYBODY, *access.allow_from, *(match.sender for match in matches if match.sender)}
    groups = {ANYBODY, *access.group_allow_from, *(match.chat for match in matches if match.chat)}
    places = [(Chat(id=ANYBODY, kind="direct"), it) for it in people]
    places += [(Chat(id=it, kind="group"), ANYBODY) for it in groups]
    for chat, sender in places:
        context = message_in(account.kind.name, account.name, chat, sender)
        if refusal(access, context, is_owner=chat.kind == "group") is None:  # some sender will be listed
            yield context
