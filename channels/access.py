"""Who may talk to the bot: decided from immutable ids alone, before anything costly happens.

Names, quotes and buttons carry no authority. An empty list means nobody; `*` in a list means everybody, spelt out.
An unknown kind of chat is treated as a group, the stricter of the two.
"""

from typing import Literal, TypeAlias, assert_never

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from channels.message import MessageContext

Policy: TypeAlias = Literal["open", "allowlist", "disabled"]


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
