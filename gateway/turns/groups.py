"""The groups that the config has the bot remember: who may read their messages, and what the tool reads."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo

import structlog

from agents.prompt.fences import harmless, speaker
from channels.abilities import KnowsMembers, can
from channels.channel import Channel, DeliveryError
from channels.message import MessageContext
from gateway.store.chatter import message_json
from gateway.store.records import KeptLine
from gateway.store.store import Store
from tools.groups import Line
from tools.tool import Call, line_source

MEMBERSHIP_SECONDS = 300.0
MEMBERSHIPS_MAX = 10_000
NAME_CHARS_MAX = 64
OWN_NAME = "you (the bot)"

log = structlog.get_logger()


@dataclass(kw_only=True)
class KeptGroups:
    """`tools.groups.Groups`, for the channels of one config."""

    store: Store
    channels: Mapping[tuple[str, str], Channel]
    zone: tzinfo
    now: Callable[[], float]
    _members: dict[tuple[str, str, str, str], tuple[bool, float]] = field(default_factory=dict)
    """Memberships of people in groups, each with the time until which it holds."""

    async def open_to(self, message: MessageContext) -> tuple[str, ...]:
        context, channel = message, self.channels.get((message.channel, message.account))
        if channel is None or not (groups := tuple(channel.access.remembered)):
            return ()
        if context.chat.kind == "group":
            return tuple(it for it in groups if it == context.chat.id)
        if not context.sender.id or not can(channel, KnowsMembers):
            return ()
        return tuple([it for it in groups if await self._is_member(channel, it, context.sender.id)])

    async def lines(self, group: str, since: float, until: float, call: Call) -> Sequence[Line]:
        message = call.message
        kept = await self.store.chatter.lines(f"{message.channel}:{message.account}:{group}", since, until)
        said = [(it, message_json.validate_json(it.body)) for it in kept]
        names = await self._names([context for _, context in said])
        return [_line(row, context, names) for row, context in said]

    async def _is_member(self, channel: KnowsMembers, group: str, person: str) -> bool:
        key, now = (channel.name, channel.account, group, person), self.now()
        is_in, until = self._members.get(key, (False, 0.0))
        if until <= now:
            try:
                is_in = await channel.is_member(group, person)
            except DeliveryError as error:
                log.info("membership_not_read", channel=channel.name, chat=group, error=str(error), code=error.code)
                is_in = False
            if len(self._members) >= MEMBERSHIPS_MAX:
                self._members.clear()
            self._members[key] = is_in, now + MEMBERSHIP_SECONDS
        return is_in

    async def _names(self, contexts: Sequence[MessageContext]) -> Mapping[str, str]:
        """Return the people's names by id, as the channel has them now."""
        names = dict[str, str]()
        for context in {it.sender.id: it for it in contexts if it.sender.id}.values():
            channel = self.channels.get((context.channel, context.account))
            bare = replace(context, text="", attachments=(), reply_to=None)
            sender = (await channel.enrich(bare) if channel else bare).sender
            names[sender.id] = speaker(sender.name or "")[:NAME_CHARS_MAX] or speaker(sender.id)
        return names


def _line(row: KeptLine, context: MessageContext, names: Mapping[str, str]) -> Line:
    by = context.sender.id
    files = ", ".join(f"{it.kind} {it.name}" if it.name else it.kind for it in context.attachments)
    text = f"{context.text} (attached: {files})".strip() if files else context.text
    of_person = (line_source(row.chat, row.message), line_source(row.chat, row.sender)) if by else (row.sender,)
    return Line(
        at=row.at,
        name=names.get(by, by) if by else OWN_NAME,
        by=by,
        text=harmless(text),
        message=row.message,
        thread=context.chat.thread or "",
        quotes=context.reply_to.message_id if context.reply_to else "",
        sources=of_person,
    )
