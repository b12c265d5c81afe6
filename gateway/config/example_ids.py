"""The ids of the documentation's examples, where a config still has them: each is an error where it grants something.

Such an id may belong to somebody. As an owner it would give that person the bot, and no claim code would be printed. Where
an id only matches or addresses a chat, it is a warning.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from channels.access import AccessConfig
from channels.bilingual import Bilingual
from channels.message import ChatKind
from gateway.config.channels import ChannelsConfig, named_accounts
from gateway.config.problems import Findings, Key, Warned, keyed
from gateway.config.root import Config

CLAIM = "remove it and /claim the bot with the code that the start prints, or name your own: /whoami prints it"
LISTEN = "remove it, and send /listen in your group"
LET_IN = "remove it: a person who writes gets a code, and you let them in"
YOUR_OWN = "name your own, or remove it"


def is_example(channels: ChannelsConfig, name: str, *kinds: ChatKind) -> bool:
    """Return whether the last part of `channel:id` or `channel:account:id` is an example's, of one of these kinds."""
    channel, _, rest = name.partition("#")[0].partition(":")
    kind = channels.kinds.get(channel)
    return kind is not None and kind.example(rest.rpartition(":")[2]) in (kinds or ("direct", "group"))


def refuse_examples(config: Config, findings: Findings) -> None:
    for key, name, fix in _granted(config):
        if is_example(config.channels, name):
            findings.add(key, f"is the example's id — {fix}")
    for key, place in _addressed(config):
        if is_example(config.channels, place, "direct"):
            findings.add(key, f"is the example's id, which may be a stranger's — {YOUR_OWN}")


def example_warnings(config: Config) -> Warned:
    for key, place in (*_matched(config), *_addressed(config)):
        if is_example(config.channels, place):
            message = Bilingual("is the example's id", "是示例中的 ID")
            fix = Bilingual(
                f"{YOUR_OWN}: `sessions list` shows your chats", "请换成你自己的（见 `sessions list`），或删除"
            )
            yield key, keyed(key, message), fix


def _granted(config: Config) -> Iterator[tuple[Key, str, str]]:
    """Yield the ids that a right goes with, as `channel:id`, each with its key and the fix."""
    people: dict[Key, Iterable[str] | None] = {
        ("owners",): config.owners,
        ("approvals", "approvers"): config.approvals.approvers,
    }
    for index, agent in enumerate(config.agents.list):
        people["agents", "list", index, "approvals", "approvers"] = agent.approvals.approvers
        for number, target in enumerate(agent.tools.message.targets):
            yield ("agents", "list", index, "tools", "message", "targets", number), target, YOUR_OWN
    for key, names in people.items():
        for index, name in enumerate(names or ()):
            yield (*key, index), name, CLAIM
    for key, channel, account in _accounts(config.channels):
        lists: list[tuple[Key, Iterable[str] | None, str]] = [
            (("allowFrom",), account.allow_from, LET_IN),
            (("groupAllowFrom",), account.group_allow_from, LISTEN),
            (("groupSenders",), account.group_senders, YOUR_OWN),
            *((("chats", chat, "senders"), it.senders, YOUR_OWN) for chat, it in account.chats.items()),
        ]
        for place, ids, fix in lists:
            yield from (((*key, *place, index), f"{channel}:{it}", fix) for index, it in enumerate(ids or ()))


def _matched(config: Config) -> Iterator[tuple[Key, str]]:
    """Yield the ids that only choose what is done with a message."""
    for index, binding in enumerate(config.bindings):
        channels = [binding.match.channel] if binding.match.channel else [*config.channels.kinds]
        for name in ("chat", "sender"):
            yield from ((("bindings", index, "match", name), f"{it}:{getattr(binding.match, name)}") for it in channels)
    yield from ((("tools", "senders", sender), sender) for sender in config.tools.senders)
    for key, channel, account in _accounts(config.channels):
        yield from (((*key, "chats", chat), f"{channel}:{chat}") for chat in account.chats)


def _addressed(config: Config) -> Iterator[tuple[Key, str]]:
    """Yield the places that something is sent to."""
    yield from ((("hooks", name, "to"), hook.to) for name, hook in config.hooks.items())
    yield from ((("schedules", index, "to"), it.to) for index, it in enumerate(config.schedules))
    yield from ((("approvals", "surfaces", index), it) for index, it in enumerate(config.approvals.surfaces))


def _accounts(channels: ChannelsConfig) -> Iterator[tuple[Key, str, AccessConfig]]:
    """Yield every account, whether in use or not."""
    for name in channels.kinds:
        section = getattr(channels, name)
        accounts: Mapping[Key, Any] = {("channels", name): section} | {
            ("channels", name, "accounts", it): account for it, account in named_accounts(section).items()
        }
        yield from ((key, name, it) for key, it in accounts.items() if isinstance(it, AccessConfig))
