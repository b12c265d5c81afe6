"""Agents that serve several people from one workspace, as far as a config tells: by routing what could arrive.

The web chat is the operator's own and does not count. One person and one group may well be he and his team.
"""

from collections.abc import Iterator
from datetime import UTC, datetime

from agents.workspaces import is_template
from channels.access import AccessConfig, refusal
from channels.message import Chat, ChatKind, MessageContext, Sender
from gateway.config.channels import Account, configured
from gateway.config.root import Config
from gateway.routing import route
from tools.catalog import NAMES
from tools.config import allowed, effective_exec

ANYBODY = "*"


def shared_workspaces(config: Config) -> Iterator[str]:
    """A warning for each: one member can have the agent leave there what it reads for another."""
    for agent in config.agents.list:
        runs = effective_exec(config.tools.exec, agent.tools).mode == "allow"
        changing = [it for it in allowed(agent.tools, NAMES) if it in ("write", "edit") or (it == "exec" and runs)]
        if changing and not is_template(agent.workspace_dir) and _serves_several(config, agent.id):
            yield (
                f"agent {agent.id}: everybody it serves shares one workspace, and can have it read and change what others "
                f"left there — end workspaceDir with /{{chat}} or /{{sender}}, or take {' and '.join(changing)} out of "
                "tools.allow"
            )


def _serves_several(config: Config, agent: str) -> bool:
    """Two people, two groups, or whoever comes."""
    people: set[tuple[str, str]] = set()
    groups: set[tuple[str, str]] = set()
    for account in configured(config.channels):
        if isinstance(account.config, AccessConfig):
            for context in _possible(config, account):
                if route(config.bindings, config.agents, context) == agent:
                    direct = context.chat.kind == "direct"
                    one = context.sender.id if direct else context.chat.id
                    (people if direct else groups).add((account.kind.name, one))
    return len(people) > 1 or len(groups) > 1 or any(one == ANYBODY for _, one in people | groups)


def _possible(config: Config, account: Account) -> Iterator[MessageContext]:
    """A message of everybody who is named anywhere, and of somebody who is not; those that access lets in."""
    access = account.config
    matches = [binding.match for binding in config.bindings]
    people = {ANYBODY, *access.allow_from, *(match.sender for match in matches if match.sender)}
    groups = {ANYBODY, *access.group_allow_from, *(match.chat for match in matches if match.chat)}
    contexts = [
        *(_message(account, "direct", sender=it, chat=ANYBODY) for it in people),
        *(_message(account, "group", sender=ANYBODY, chat=it) for it in groups),
    ]
    return (it for it in contexts if refusal(access, it) is None)


def _message(account: Account, kind: ChatKind, *, sender: str, chat: str) -> MessageContext:
    return MessageContext(
        channel=account.kind.name,
        account=account.name,
        chat=Chat(id=chat, kind=kind),
        message_id="",
        sender=Sender(id=sender),
        text="",
        sent_at=datetime.fromtimestamp(0, UTC),
        mentioned=True,
    )
