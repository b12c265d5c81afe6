"""Who may talk to the bot: decided from immutable ids alone, before anything costly happens.

Names, quotes and buttons carry no authority. An empty list means nobody; `*` in a list means everybody, spelt out.
An unknown kind of chat is treated as a group, the stricter of the two.
"""

import re
from collections.abc import Iterator
from typing import Literal, TypeAlias, assert_never
from urllib.parse import urlsplit

from pydantic import BaseModel, SecretStr
from pydantic.alias_generators import to_camel

from channels.message import MessageContext
from channels.tools import ToolLists

Policy: TypeAlias = Literal["open", "allowlist", "disabled"]


class ChatConfig(BaseModel, extra="forbid", strict=True, frozen=True, alias_generator=to_camel):
    """What holds in one chat."""

    tools: ToolLists = ToolLists()
    """What is left of the agent's tools in this chat."""


class AccessConfig(BaseModel, extra="forbid", strict=True, frozen=True, alias_generator=to_camel):
    """The access keys every channel account has."""

    dm_policy: Policy = "allowlist"
    """Who may write in a direct chat: `allowlist` (only `allowFrom`), `open` (everybody) or `disabled`."""
    group_policy: Policy = "allowlist"
    """In which groups the bot listens: `allowlist` (only `groupAllowFrom`), `open` (every group) or `disabled`."""
    allow_from: tuple[str, ...] = ()
    """Ids of the people who may write in a direct chat. Ids only, never names; `*` means everybody."""
    group_allow_from: tuple[str, ...] = ()
    """Ids of the groups in which the bot listens; `*` means every group."""
    require_mention: bool = True
    """In groups, answer only messages that mention the bot."""
    tools: ToolLists = ToolLists()
    """What is left of the agents' tools in all chats of this account."""
    chats: dict[str, ChatConfig] = {}
    """What holds in single chats, by their ids."""


def refusal(access: AccessConfig, context: MessageContext) -> str | None:
    """Why this message starts no turn, in one of few words for log and metrics; None where it may.

    The words: `bot`, `dm-disabled`, `dm-not-allowed`, `group-disabled`, `group-not-allowed`, `not-mentioned`.
    """
    if context.sender.is_bot:
        return "bot"
    if context.chat.kind == "direct":
        return _judge("dm", access.dm_policy, context.sender.id, access.allow_from)
    refused = _judge("group", access.group_policy, context.chat.id, access.group_allow_from)
    if refused is None and access.require_mention and not context.mentioned:
        return "not-mentioned"
    return refused


def _judge(where: Literal["dm", "group"], policy: Policy, subject: str, listed: tuple[str, ...]) -> str | None:
    match policy:
        case "open":
            return None
        case "disabled":
            return f"{where}-disabled"
        case "allowlist":
            return None if subject in listed or "*" in listed else f"{where}-not-allowed"
        case _:
            assert_never(policy)


def id_problems(access: AccessConfig, *, person: tuple[str, str], group: tuple[str, str]) -> Iterator[tuple[str, str]]:
    """The listed ids that cannot be any: (key, sentence). `person` and `group` are what an id looks like, as a pattern
    and in words."""
    lists = (("allowFrom", access.allow_from, person), ("groupAllowFrom", access.group_allow_from, group))
    for key, ids, (pattern, words) in lists:
        for index, listed in enumerate(ids):
            if listed != "*" and not re.fullmatch(pattern, listed):
                yield f"{key}[{index}]", f"must be {words}"


def access_warnings(access: AccessConfig, *, person: str, group: str, place: str, added: str) -> Iterator[str]:
    """Who lets everybody in, or nobody yet. `person` and `group` say where their id is in the log line."""
    if access.dm_policy == "open":
        yield f"dmPolicy: open — everybody {place} can write to the bot and use its tools"
    if access.group_policy == "open":
        yield f"groupPolicy: open — the bot answers in every group {added}"
    step = "from the log line message_not_admitted, and add it to"
    if access.dm_policy == "allowlist" and not access.allow_from:
        yield f"nobody may write in direct chats yet: write to the bot, take {person} {step} allowFrom"
    if access.group_policy == "allowlist" and not access.group_allow_from:
        yield f"no group is listened to yet: mention the bot there, take {group} {step} groupAllowFrom"


def is_blank(secret: SecretStr) -> bool:
    return not secret.get_secret_value().strip()


def is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
