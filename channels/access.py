"""Access control: decide by immutable ids who may talk to the bot, before any costly step.

Names, quotes and buttons carry no authority. An empty list means nobody; `*` means everybody. An unknown kind of chat is
treated as a group, the stricter of the two. Direct chats and groups have separate lists. People approved by pairing are in
the database: `gateway.approvals.pairing`.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Annotated, Any, Literal, TypeAlias, assert_never
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr

from channels.bilingual import NO_WORDS, Bilingual
from channels.message import MessageContext
from channels.moment import SPAN_PATTERN, span_seconds
from channels.section import Section, ToolLists

GroupPolicy: TypeAlias = Literal["open", "allowlist", "disabled"]
Policy: TypeAlias = Literal["pairing", "open", "allowlist", "disabled"]
Switch: TypeAlias = Literal["on", "owners", "off"]
"""An owner's setting of a group, which overrides `groupAllowFrom`: listen, listen only to owners, or do not listen."""
Streaming: TypeAlias = Literal["off", "partial", "progress"]
Quotes: TypeAlias = Literal["all", "first", "off"]
Mistake: TypeAlias = tuple[tuple[str | int, ...], str]
"""The account's key to fix, and the message."""
BOT = "bot"
NOT_PAIRED = "dm-not-paired"
NOT_MENTIONED = "not-mentioned"
GROUP_DISABLED, GROUP_NOT_ALLOWED = "group-disabled", "group-not-allowed"
ANYBODY = "*"
PATTERN_CHARS_MAX = 200
HISTORY_MAX = 20


def _mention_pattern(pattern: str) -> str:
    try:
        matches_all = _compiled(pattern).search("") is not None
    except Exception as error:  # noqa: BLE001 - re2 has an exception type for each kind of mistake
        raise ValueError(f"is no pattern that RE2 takes (no backreferences, no look-around): {error}") from None
    if matches_all:
        raise ValueError("would match every message")
    return pattern


MentionPattern = Annotated[str, Field(max_length=PATTERN_CHARS_MAX), AfterValidator(_mention_pattern)]


class ChatConfig(Section):
    """Settings of one group or one person's chat. `groupPolicy` and `dmPolicy` alone decide whether the bot listens
    there."""

    senders: tuple[str, ...] | None = None
    """Ids of the people it answers there, instead of `groupSenders`; `*` means everybody, an empty list nobody."""
    require_mention: bool | None = None
    """True if it answers only messages that mention it, instead of the account's `requireMention`."""
    topic_mention: bool | None = None
    """The account's `topicMention`, for this chat."""
    bots_from: tuple[str, ...] | None = None
    """The account's `botsFrom`, for this chat."""
    agent: str | None = None
    """The `id` of the agent that answers there: the same as a binding of this chat."""
    tools: ToolLists = ToolLists()
    """Restrict the agent's tools in this chat."""
    streaming: Streaming | None = None
    """The account's `streaming`, for this chat."""
    history: Annotated[int, Field(ge=0, le=HISTORY_MAX)] | None = None
    """The account's `history`, for this chat."""
    remember: Annotated[str, Field(pattern=SPAN_PATTERN)] | None = None
    """The time for which the bot keeps what is said in this group, such as `30d` or `12h`. The tool `group_history` reads it
    there, and in direct chats with members. Unset: nothing is kept. The platform must deliver the messages, as for
    `history`."""


class AccessConfig(Section):
    """The access keys of every channel account."""

    dm_policy: Policy = "pairing"
    """Access to direct chats: `pairing` (`allowFrom`, and people you approve; unknown senders get a code), `allowlist`
    (only `allowFrom`), `open` (everybody) or `disabled` (nobody). Owners have access unless it is `disabled`."""
    group_policy: GroupPolicy = "allowlist"
    """The groups in which the bot listens: `allowlist` (only `groupAllowFrom`), `open` (every group) or `disabled`."""
    allow_from: tuple[str, ...] = ()
    """Ids of the people who may write in a direct chat. Ids only, never names; `*` means everybody."""
    group_allow_from: tuple[str, ...] = ()
    """Ids of the groups in which the bot listens; `*` means every group."""
    group_senders: tuple[str, ...] | None = None
    """Ids of the people whom the bot answers in groups, in addition to owners. If unset, everybody in a group that it
    listens in; an empty list means nobody."""
    require_mention: bool = True
    """True if it answers only messages that mention the bot, in groups."""
    topic_mention: bool = True
    """`false`: in a topic of a group that the bot has answered in, further messages need no mention. The platform must
    deliver them: Feishu with the scope `im:message.group_msg`, Telegram with privacy mode off."""
    bots_from: tuple[str, ...] = ()
    """Ids of other bots that it answers in groups if they mention it; `*` means every bot. The bots of this gateway are
    answered wherever everybody is, without being listed. `limits.botRounds` bounds both."""
    mention_patterns: Annotated[tuple[MentionPattern, ...], Field(max_length=20)] = ()
    """Words that count as a mention in groups, such as `["helper", "小助手"]`, in any case; or patterns in RE2's syntax."""
    tools: ToolLists = ToolLists()
    """Restrict the agents' tools in all chats of this account."""
    chats: dict[str, ChatConfig] = {}
    """Settings of single chats, by chat id."""
    streaming: Streaming = "partial"
    """The form of an answer that takes over a second, if the channel can: `partial` shows it as it grows, `progress`
    shows only what the agent does until it is whole, `off` only the whole answer."""

    introduction: Annotated[str, Field(max_length=2_000)] = ""
    """The bot's message when it is added to a group in which it listens; empty for none. Feishu must deliver the event
    `im.chat.member.bot.added_v1`."""
    history: Annotated[int, Field(ge=0, le=HISTORY_MAX)] = 0
    """The number of group messages without a mention that the agent gets once it is mentioned: those since its last
    answer, as untrusted text. If there were more, the agent is informed how many earlier ones are missing. 0 stores none.
    The platform must deliver them: Feishu with the scope `im:message.group_msg`, Telegram with privacy mode off."""

    @property
    def hears_unmentioned(self) -> bool:
        """True if some message of a group without a mention of its id may be answered."""
        chats = self.chats.values()
        keys = (self.require_mention, self.topic_mention, *(it.require_mention for it in chats))
        return False in (*keys, *(it.topic_mention for it in chats)) or bool(self.mention_patterns)

    def follows_topics(self, chat: str) -> bool:
        """Return True if an answered topic of the group needs no further mention."""
        own = self.chats.get(chat)
        return not (self.topic_mention if own is None or own.topic_mention is None else own.topic_mention)

    def history_in(self, chat: str) -> int:
        own = self.chats.get(chat)
        return self.history if own is None or own.history is None else own.history

    @property
    def remembered(self) -> dict[str, float]:
        """The groups whose messages are kept, each with the seconds."""
        return {chat: span_seconds(it.remember) for chat, it in self.chats.items() if it.remember}

    def remembers(self, chat: str) -> bool:
        own = self.chats.get(chat)
        return own is not None and own.remember is not None

    def streaming_in(self, chat: str) -> Streaming:
        own = self.chats.get(chat)
        return own.streaming if own and own.streaming else self.streaming

    def mentions(self, text: str) -> bool:
        """Return True if a mention pattern matches, in linear time."""
        return any(_compiled(pattern).search(text) for pattern in self.mention_patterns)


@cache
def _compiled(pattern: str) -> Any:
    import re2  # loaded only if there is a pattern

    options = re2.Options()
    options.case_sensitive = options.log_errors = False
    # A plain word matches only as a whole word.
    is_word = re.fullmatch(r"[a-zA-Z0-9_]+", pattern)
    return re2.compile(rf"\b{pattern}\b" if is_word else pattern, options)


def group_refusal(access: AccessConfig, chat: str, switch: Switch | None = None) -> str | None:
    """Return why the bot does not listen in a group; None if it does."""
    if switch and access.group_policy != "disabled":
        return GROUP_NOT_ALLOWED if switch == "off" else None
    return _policy_refusal("group", access.group_policy, chat, access.group_allow_from)


def refusal(
    access: AccessConfig, context: MessageContext, *, is_owner: bool = False, switch: Switch | None = None
) -> str | None:
    """Return why a message starts no turn, as a label for log and metrics; None if it may.

    Labels: `bot`, `dm-disabled`, `dm-not-allowed`, `dm-not-paired` (the sender may be approved in the database),
    `group-disabled`, `group-not-allowed`, `sender-not-allowed`, `not-mentioned`."""
    if context.sender.is_bot:
        return _bot_refusal(access, context, switch)
    if context.chat.kind == "direct":
        passes = is_owner and access.dm_policy != "disabled"
        return None if passes else _policy_refusal("dm", access.dm_policy, context.sender.id, access.allow_from)
    if reason := group_refusal(access, context.chat.id, switch):
        return reason
    return _refusal_within(access, context, is_owner=is_owner, owners_alone=switch == "owners")


def _bot_refusal(access: AccessConfig, context: MessageContext, switch: Switch | None) -> str | None:
    """A bot of this gateway is answered where everybody is: where senders are listed, others could act through it."""
    chat = access.chats.get(context.chat.id, ChatConfig())
    listed = access.bots_from if chat.bots_from is None else chat.bots_from
    senders = access.group_senders if chat.senders is None else chat.senders
    is_peer = context.sender.is_peer and (senders is None or ANYBODY in senders)
    if context.chat.kind == "direct" or not context.mentioned or not (is_peer or _is_listed(context.sender.id, listed)):
        return BOT
    return group_refusal(access, context.chat.id, switch) or ("sender-not-allowed" if switch == "owners" else None)


def _refusal_within(access: AccessConfig, context: MessageContext, *, is_owner: bool, owners_alone: bool) -> str | None:
    chat = access.chats.get(context.chat.id, ChatConfig())
    senders = access.group_senders if chat.senders is None else chat.senders
    senders = () if owners_alone else senders
    if senders is not None and not is_owner and not _is_listed(context.sender.id, senders):
        return "sender-not-allowed"
    required = access.require_mention if chat.require_mention is None else chat.require_mention
    addressed = context.mentioned or context.press is not None  # a press is always of the bot's own button
    return NOT_MENTIONED if required and not addressed and not access.mentions(context.text) else None


def _policy_refusal(where: Literal["dm", "group"], policy: Policy, subject: str, listed: tuple[str, ...]) -> str | None:
    match policy:
        case "open":
            return None
        case "disabled":
            return f"{where}-disabled"
        case "allowlist":
            return None if _is_listed(subject, listed) else f"{where}-not-allowed"
        case "pairing":
            return None if _is_listed(subject, listed) else NOT_PAIRED
        case _:
            assert_never(policy)


def _is_listed(subject: str, listed: tuple[str, ...]) -> bool:
    return subject in listed or ANYBODY in listed


def id_problems(
    access: AccessConfig, *, person: tuple[str, str], group: tuple[str, str], direct: str = ""
) -> Iterator[Mistake]:
    """Yield listed ids with an impossible form. `person` and `group` have the pattern of an id and its description;
    `direct` is the pattern of a direct chat's id, if different."""
    lists: list[tuple[tuple[str, ...], Sequence[str], tuple[str, str]]] = [
        (("allowFrom",), access.allow_from, person),
        (("groupAllowFrom",), access.group_allow_from, group),
        (("groupSenders",), access.group_senders or (), person),
        (("botsFrom",), access.bots_from, person),
        *((("chats", chat, "botsFrom"), it.bots_from or (), person) for chat, it in access.chats.items()),
        *((("chats", chat, "senders"), it.senders or (), person) for chat, it in access.chats.items()),
    ]
    for key, ids, (pattern, words) in lists:
        for index, listed in enumerate(ids):
            if listed != ANYBODY and not re.fullmatch(pattern, listed):
                yield (*key, index), f"must be {words}"
    for chat in access.chats:
        if not re.fullmatch(group[0], chat) and not (direct and re.fullmatch(direct, chat)):
            yield ("chats",), f"{chat!r} must be {group[1]}"
        elif access.remembers(chat) and not re.fullmatch(group[0], chat):
            yield ("chats", chat, "remember"), "is for groups: remove it from this direct chat"


def who_may_talk(access: AccessConfig) -> Bilingual:
    """Describe the admitted people, for the start and for `check`."""
    count = len(access.allow_from)
    listed = Bilingual(f"{count} listed", f"名单上的 {count} 人") if count else NO_WORDS
    all_listed = ANYBODY in access.allow_from and access.dm_policy != "disabled"
    people = {
        "pairing": Bilingual(
            " and ".join(filter(None, ("whom you approve", listed))),
            "和".join(filter(None, ("经你批准的人", listed.zh))),
        ),
        "allowlist": listed or Bilingual("only owners", "只有所有者"),
        "open": Bilingual("everybody", "所有人"),
        "disabled": Bilingual("nobody", "无人"),
    }["open" if all_listed else access.dm_policy]
    count = len(access.group_allow_from)
    every_group, no_group = Bilingual("every group", "在所有群聊中回答"), Bilingual("no group", "不在群聊中回答")
    groups = Bilingual("no group but those switched on with /listen", "只在用 /listen 启用的群聊中回答")
    if count:
        added = "group" if count == 1 else "groups"
        groups = Bilingual(
            f"{count} {added} and those switched on with /listen", f"在 {count} 个群聊和用 /listen 启用的群聊中回答"
        )
    is_every = access.group_policy == "open" or ANYBODY in access.group_allow_from
    groups = no_group if access.group_policy == "disabled" else every_group if is_every else groups
    return Bilingual(f"{people} in direct chats; in {groups}", f"{people.zh}可以私聊；{groups.zh}")


def access_warnings(
    access: AccessConfig, *, person: Bilingual, place: Bilingual, added: str, direct: str = ""
) -> Iterator[tuple[Bilingual, Bilingual]]:
    """Warn, with a fix, if everybody is admitted, or nobody yet.

    `person` says where the log line has the sender's id; `direct` is the pattern of a direct chat's id, if it differs from
    a group's. A bot without groups is no problem."""
    if access.dm_policy == "open":
        yield (
            Bilingual(
                f"dmPolicy: open lets everybody {place} write to the bot and use its tools",
                f"dmPolicy: open 会让{place.zh}的所有人都能给机器人发消息并使用它的工具",
            ),
            Bilingual("allow only those you know", "只允许你认识的人"),
        )
    if access.group_policy == "open":
        yield (
            Bilingual(
                f"groupPolicy: open has the bot answer in every group {added}",
                "groupPolicy: open 会让机器人在它加入的每个群聊中回答",
            ),
            Bilingual("allow only the groups you know", "只允许你了解的群聊"),
        )
    if access.dm_policy == "allowlist" and not access.allow_from:
        yield (
            Bilingual("nobody may write in direct chats yet", "目前还没有人可以私聊机器人"),
            Bilingual(
                f"write to the bot, and add {person} from the log line message_not_admitted to allowFrom",
                f"给机器人发一条消息，再把日志行 message_not_admitted 中的{person.zh}加入 allowFrom",
            ),
        )
    for chat in (it for it in access.chats if not (direct and re.fullmatch(direct, it))):
        if access.group_policy == "allowlist" and not _is_listed(chat, access.group_allow_from):
            yield (
                Bilingual(
                    f"chats.{chat}: has no effect, as groupAllowFrom does not have it",
                    f"chats.{chat}：不起作用，因为 groupAllowFrom 中没有它",
                ),
                Bilingual("add it there", "请加进去"),
            )


def is_blank(secret: SecretStr) -> bool:
    return not secret.get_secret_value().strip()


def is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
