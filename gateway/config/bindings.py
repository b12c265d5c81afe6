"""The agent that answers a message, by the config's bindings. Pure: config and message in, a name out."""

from collections.abc import Sequence

from channels.message import MessageContext
from gateway.config.root import AgentsConfig, BindingConfig, MatchConfig

_STRONGEST_FIRST = ("sender", "thread", "chat", "chat_type", "account", "channel")


def route(bindings: Sequence[BindingConfig], agents: AgentsConfig, context: MessageContext) -> str:
    """The id of the agent that answers: the one of the most specific binding that holds, else the first agent. A key
    outweighs all weaker ones together, so adding a key to a binding that holds never makes it lose. Of equally specific
    bindings the first in the file wins."""
    found = holding(bindings, context)
    return max(found, key=lambda binding: specificity(binding.match)).agent if found else agents.list[0].id


def holding(bindings: Sequence[BindingConfig], context: MessageContext) -> Sequence[BindingConfig]:
    facts = {
        "sender": context.sender.id,
        "thread": context.chat.thread,
        "chat": context.chat.id,
        "chat_type": context.chat.kind,
        "account": context.account,
        "channel": context.channel,
    }
    return [
        binding
        for binding in bindings
        if all(wanted in (None, facts[key]) for key in _STRONGEST_FIRST for wanted in [getattr(binding.match, key)])
    ]


def specificity(match: MatchConfig) -> int:
    """A bit for each key that is given, the strongest in front."""
    return sum(1 << place for place, key in enumerate(reversed(_STRONGEST_FIRST)) if getattr(match, key) is not None)
