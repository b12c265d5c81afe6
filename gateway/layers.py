"""What is left of an agent's tools for a message, by where it was written and by whom: the layers that `tools.policy`
puts together."""

from typing import Any

from channels.message import MessageContext
from channels.tools import ToolLists
from gateway.config.channels import configured
from gateway.config.root import Config
from gateway.routing import is_owner
from tools.policy import owners_layer

_ALL = ToolLists()


class ToolLayers:
    """Of one config."""

    def __init__(self, config: Config) -> None:
        self._accounts = {(it.kind.name, it.name): it.config for it in configured(config.channels)}
        self._senders = config.tools.senders
        self._owners = config.owners
        self._others = owners_layer(config.tools, has_owners=bool(config.owners))
        self._paired = owners_layer(config.tools, has_owners=True)

    def of(self, *contexts: MessageContext) -> tuple[ToolLists, ...]:
        """Of messages that are answered together: what every one of their senders may have."""
        found: dict[ToolLists, None] = {}
        for context in contexts:
            others = self._others
            if account := self._accounts.get((context.channel, context.account)):
                others = self._paired if _is_paired(account, context) else others
                chat = getattr(account, "chats", {}).get(context.chat.id)
                found |= dict.fromkeys((account.tools, *((chat.tools,) if chat else ())))
            if sender := self._senders.get(f"{context.channel}:{context.sender.id}"):
                found[sender] = None
            if others and not is_owner(self._owners, context):
                found[others] = None
        found.pop(_ALL, None)
        return tuple(found)


def _is_paired(account: Any, context: MessageContext) -> bool:
    """Whether pairing alone lets him in: it grants him to talk, and never what is the owners'."""
    if context.chat.kind != "direct" or getattr(account, "dm_policy", "") != "pairing":
        return False
    return {context.sender.id, "*"}.isdisjoint(account.allow_from)
