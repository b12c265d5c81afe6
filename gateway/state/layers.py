"""The tools that are left to an agent for a message, by its place and its sender: the layers that `tools.policy` joins."""

from collections.abc import Collection
from typing import Any, get_args

from channels.message import MessageContext
from channels.section import ToolLists
from gateway.config.channels import configured
from gateway.config.problems import shown
from gateway.config.root import Config
from gateway.store.sessions import is_owner, person_of
from tools.catalog import NAMES
from tools.config import ExecMode, effective_exec
from tools.policy import layers_of, owners_layer

_ALL = ToolLists()
KEPT_BACK = ("task", "schedule")
"""The tools that no task has."""


class ToolLayers:
    """The layers of one config."""

    def __init__(self, config: Config, owners: Collection[str]) -> None:
        self._accounts = {(it.kind.name, it.name): it for it in configured(config.channels)}
        self._tools = config.tools
        self._agents = {it.id: it.tools for it in config.agents.list}
        self._senders = config.tools.senders
        self._owners = owners
        self._owned = owners_layer(config.tools, has_owners=True)
        self._unowned = owners_layer(config.tools, has_owners=False)

    def of(self, *contexts: MessageContext) -> tuple[ToolLists, ...]:
        """The tools for messages that are answered together: those that every one of their senders may have."""
        return tuple(self.written(*contexts))

    def of_task(self, agent: str, asker: str) -> tuple[ToolLists, ...]:
        """The tools for a task that `asker` has handed to `agent`: the asker's own, and of them none that would do more in
        the other's hands, or that hands on or puts off."""
        own, lent = self._agents.get(agent), self._agents.get(asker)
        if own is None or lent is None:
            return (ToolLists(allow=()),)
        taken = [*KEPT_BACK]
        of_agent, of_asker = (effective_exec(self._tools.exec, it) for it in (own, lent))
        modes = get_args(ExecMode)
        is_laxer = modes.index(of_agent.mode) > modes.index(of_asker.mode) or of_agent.network > of_asker.network
        if is_laxer or (of_agent.sandbox == "off" and of_asker.sandbox != "off"):
            taken += ["exec", "process"]
        if not set(own.message.targets) <= set(lent.message.targets):
            taken.append("message")
        # `*` means the tools that are built in: others are the asker's only if it names them.
        named = ToolLists(allow=(*NAMES, *(it for it in lent.allow or () if it != "*")))
        return (*layers_of(self._tools, lent), named, ToolLists(deny=tuple(taken)))

    def written(self, *contexts: MessageContext) -> dict[ToolLists, str]:
        """The lists of `of`, each with the config key that says it; of equal ones with the first."""
        lists: dict[ToolLists, str] = {}
        for context in contexts:
            others = self._owned if self._owners else self._unowned
            if account := self._accounts.get((context.channel, context.account)):
                others = self._owned if _is_paired(account.config, context) else others
                lists.setdefault(account.config.tools, f"{shown(account.key)}.tools")
                if chat := getattr(account.config, "chats", {}).get(context.chat.id):
                    lists.setdefault(chat.tools, f"{shown(account.key)}.chats.{context.chat.id}.tools")
            who = person_of(context)
            if sender := self._senders.get(who):
                lists.setdefault(sender, f"tools.senders.{who}")
            if others and not is_owner(self._owners, context):
                lists.setdefault(others, "tools.ownerOnly")
        lists.pop(_ALL, None)
        return lists

    def all(self) -> dict[ToolLists, str]:
        """Every layer that holds in some chat or for some sender, each with the config key that says it."""
        found: dict[ToolLists, str] = {}
        for account in self._accounts.values():
            found.setdefault(account.config.tools, f"{shown(account.key)}.tools")
            for chat, config in getattr(account.config, "chats", {}).items():
                found.setdefault(config.tools, f"{shown(account.key)}.chats.{chat}.tools")
        for who, sender in self._senders.items():
            found.setdefault(sender, f"tools.senders.{who}")
        if others := self._owned if self._owners else self._unowned:
            found.setdefault(others, "tools.ownerOnly")
        found.pop(_ALL, None)
        return found


def _is_paired(account: Any, context: MessageContext) -> bool:
    """True if pairing alone lets the sender in: it grants the right to talk, never what is the owners'."""
    if context.chat.kind != "direct" or getattr(account, "dm_policy", "") != "pairing":
        return False
    return {context.sender.id, "*"}.isdisjoint(account.allow_from)
