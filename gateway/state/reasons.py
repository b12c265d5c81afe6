"""Explain how a message is handled: its agent, session, tools and access. Pure: the deciding functions are called
again, and the reasons are written here. `routes explain` and the layers of a turn show them. Also here: the policy
layers that remove tools, which `tools.policy` combines."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from agents.config import AgentConfig
from channels.access import NOT_PAIRED, AccessConfig, Switch, refusal
from channels.bilingual import Bilingual
from channels.message import MessageContext
from channels.section import ToolLists
from gateway.config.channels import configured
from gateway.config.problems import shown
from gateway.config.root import BindingConfig, Config, holding, specificity
from gateway.store.sessions import LOCAL_CHANNEL, is_owner, person_of, session_key
from tools.catalog import NAMES, offered
from tools.config import ExecMode, effective_exec
from tools.policy import foreign, layers_of, names_server, owners_layer, permitted

_REFUSED = {
    "dm-disabled": "dmPolicy is disabled",
    "dm-not-allowed": "dmPolicy is allowlist, and neither allowFrom nor owners has the sender",
    "group-disabled": "groupPolicy is disabled",
    "group-not-allowed": "groupPolicy is allowlist, and groupAllowFrom does not have the chat (or an owner sent /unlisten)",
    "sender-not-allowed": "neither groupSenders, the chat's senders nor owners has the sender",
}
_PAIRING = {
    "paired": "the sender was let in (pairing)",
    "waiting": "the sender waits with a code: pairing list",
    "silent": "the sender waits with a code and was reminded, or was turned away: pairing list",
    "new": "dmPolicy is pairing: the sender would get a code",
    "crowded": "dmPolicy is pairing, and three wait already: the sender would get no answer",
}


@dataclass(frozen=True, slots=True)
class Because:
    """A value with its reason. A bilingual reason keeps its Chinese, which `/why` shows in chats."""

    value: Any
    reason: str


def agent_reason(config: Config, context: MessageContext, agent: str, chosen: str) -> Because:
    if chosen == agent:
        return Because(agent, Bilingual("chosen for this chat with /agent", "在此聊天中用 /agent 选定"))
    more = Bilingual()
    if chosen:
        more = Bilingual(
            f"; {chosen} was chosen with /agent, but is not there for this chat any more",
            f"；用 /agent 选定的 {chosen} 在此聊天中已不可用",
        )
    if context.channel == LOCAL_CHANNEL:
        more = Bilingual(f"{more.en}; a page of the web chat may name another one", f"{more.zh}；网页聊天可另选智能体")
    if holding(config.routes, context):
        return Because(agent, Bilingual(f"the binding says so{more.en}", f"由绑定规则指定{more.zh}"))
    first = "first of agents.list, because no binding matches", "没有匹配的绑定规则，取 agents.list 的第一个"
    return Because(agent, Bilingual(f"{first[0]}{more.en}", f"{first[1]}{more.zh}"))


def binding_reason(config: Config, context: MessageContext) -> Because:
    binding = holding(config.routes, context)
    if not binding:
        return Because(None, f"none of {len(config.routes)} holds" if config.routes else "there are no bindings")
    best = max(binding, key=lambda it: specificity(it.match))
    others = f", the most specific of {len(binding)} that hold" if len(binding) > 1 else ""
    keys = ", ".join(
        f"{name}: {value}" for name, value in best.match.model_dump(by_alias=True, exclude_none=True).items()
    )
    return Because(_name_of(config, best), f"it matches {keys or 'everything'}{others}")


def _name_of(config: Config, binding: BindingConfig) -> str:
    index = next((index for index, it in enumerate(config.bindings) if it is binding), None)
    if index is not None:
        return f"bindings[{index}]"
    return f"channels.{binding.match.channel}: chats.{binding.match.chat}.agent of {binding.match.account}"


def session_reason(agent: AgentConfig, context: MessageContext) -> Because:
    scope, direct = agent.session.scope, context.chat.kind == "direct"
    whose = "a direct chat is one" if direct else f"session.scope is {scope}"
    topic = ", and a topic has its own" if context.chat.thread else ""
    return Because(session_key(agent.id, context, scope), f"{whose}{topic}")


def tools_reason(
    config: Config,
    owners: Collection[str],
    agent: AgentConfig,
    context: MessageContext,
    servers: Mapping[str, Sequence[str]],
) -> Because:
    """Explain the tools. `servers` has the tools of each MCP server that has listed some."""
    foreign_names = foreign(agent.tools, [name for names in servers.values() for name in names])
    has = offered(config.tools, agent.tools, off=config.tools_off)
    has += permitted(layers_of(config.tools, agent.tools), foreign_names)
    layers = ToolLayers(config, owners).written(context)
    left = permitted(tuple(layers), has)
    lost = {key: [it for it in has if it not in permitted((lists,), has)] for lists, key in layers.items()}
    taken = "; ".join(f"{key} takes {', '.join(names)}" for key, names in lost.items() if names)
    unknown = [it for it in config.mcp.servers if it not in servers and names_server(agent.tools, it)]
    later = f"; what {', '.join(unknown)} has is known once it was reached" if unknown else ""
    return Because(list(left), f"those of agent {agent.id}{f', of which {taken}' if taken else ''}{later}")


def access_reason(
    access: object,
    owners: Collection[str],
    context: MessageContext,
    *,
    switch: Switch | None,
    pairing_state: Callable[[], str],
) -> Because:
    """Explain the access decision. `switch` is an owner's switch for the group; `pairing_state` looks up the
    sender's pairing."""
    owner = is_owner(owners, context)
    if not isinstance(access, AccessConfig):
        return Because("allowed", "everybody who is signed in to the web chat may write")
    refused = refusal(access, context, is_owner=owner, switch=switch)
    if refused == NOT_PAIRED:
        state = pairing_state()
        return Because("allowed" if state == "paired" else refused, _PAIRING[state])
    if refused is not None:
        return Because(refused, _REFUSED.get(refused, refused))
    if refusal(access, replace(context, mentioned=False), is_owner=owner, switch=switch) == "not-mentioned":
        return Because("allowed", "if the message mentions the bot (requireMention); otherwise it is not answered")
    if switch and context.chat.kind == "group":
        return Because("allowed", f"an owner switched the group on with /listen{' for owners' * (switch == 'owners')}")
    if owner:
        return Because("allowed", "the sender is one of owners")
    policy = access.dm_policy if context.chat.kind == "direct" else access.group_policy
    key = "dmPolicy" if context.chat.kind == "direct" else "groupPolicy"
    return Because("allowed", f"{key} is {policy}{', and the list has it' if policy != 'open' else ''}")


def model_reason(agent: AgentConfig, chosen: str | None, why: str = "") -> Because:
    """Explain the model. `chosen` is a config model that a user set; `why` is the reason for the agent's own."""
    if chosen:
        return Because(chosen, "it was chosen for this session with /model; it has no fallbacks")
    first, *others = agent.model
    fallbacks = f"; if it fails, {', then '.join(others)}" if others else ""
    return Because(first, (why or f"model of agent {agent.id}") + fallbacks)


_ALL = ToolLists()
KEPT_BACK = ("task", "schedule")
"""The tools that no task gets."""


class ToolLayers:
    """The tool lists that one config applies to an agent, by the message's chat and sender."""

    def __init__(self, config: Config, owners: Collection[str]) -> None:
        self._accounts = {(it.kind.name, it.name): it for it in configured(config.channels)}
        self._tools = config.tools
        self._agents = {it.id: it.tools for it in config.agents.list}
        self._senders = config.tools.senders
        self._owners = owners
        self._owned = owners_layer(config.tools, has_owners=True)
        self._unowned = owners_layer(config.tools, has_owners=False)

    def of(self, *contexts: MessageContext) -> tuple[ToolLists, ...]:
        """Return the layers for messages answered together: only tools that each of their senders may use."""
        return tuple(self.written(*contexts))

    def of_task(self, agent: str, asker: str) -> tuple[ToolLists, ...]:
        """Return the layers for a task that `asker` hands to `agent`: the asker's own tools, without those that
        would be more powerful in the other agent, delegate further or defer."""
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
        # `*` means the built-in tools; others belong to the asker only if it names them.
        named = ToolLists(allow=(*NAMES, *(it for it in lent.allow or () if it != "*")))
        return (*layers_of(self._tools, lent), named, ToolLists(deny=tuple(taken)))

    def written(self, *contexts: MessageContext) -> dict[ToolLists, str]:
        """Return the lists of `of` with the config key of each; of equal lists the first."""
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
        """Return every layer that applies to some chat or sender, with its config key."""
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
    """Return whether pairing alone admits the sender: it grants access to chat, never an owner's rights."""
    if context.chat.kind != "direct" or getattr(account, "dm_policy", "") != "pairing":
        return False
    return {context.sender.id, "*"}.isdisjoint(account.allow_from)
