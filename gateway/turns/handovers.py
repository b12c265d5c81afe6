"""Chats that a colleague answers instead of the agent: one row of `later` a conversation, and what is relayed.

Each step is one commit: the row in its next state, with the messages that follow from it. A message has a dedupe key made
from the number of the message that caused it, so a step that a crash repeats sends nothing twice. The row is due once
nobody has written for `handover.hours`.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Literal, TypeAlias

import structlog
from pydantic import TypeAdapter

from agents.attachments import actual_type
from agents.messages import AssistantMessage, message_json
from agents.prompt.inbound import spoken
from channels.abilities import DownloadsFiles, can
from channels.api.channel import ApiChannel
from channels.channel import Channel, DeliveryError
from channels.message import Chat, MessageContext, Origin, Place, StoredFile
from channels.plain import CHARS_MAX, plain
from gateway.approvals.display import name_of
from gateway.config.channels import kind_of, place_in
from gateway.config.root import route
from gateway.outbox.outbox import payload_json
from gateway.state.runtime import Runtime
from gateway.store.errors import StoreUnavailable
from gateway.store.inbound import HANDOVER_LINE, HANDOVER_NOTICE, SAY, Inbound, inbound_of
from gateway.store.later import HANDOVER, Change, Later
from gateway.store.records import Delivery
from gateway.store.sessions import (
    agent_of,
    chat_of,
    control_session,
    is_owner,
    is_saying,
    message_in,
    person_of,
    saying_session,
    sender_of,
    session_key,
    task_of,
)
from gateway.store.statements import NEVER
from gateway.turns.attachments import FETCH_SECONDS, FILES_AT_ONCE, FILES_MAX
from tools.handover import REASON_CHARS_MAX
from tools.tool import Call, ToolError

AGAIN_SECONDS = 60.0
"""Seconds until a chat that is to be given back is tried again, if the process died meanwhile."""
RECENT_TURNS, RECENT_MESSAGES, RECENT_CHARS = 4, 6, 300
"""The last messages that the notice shows."""
RELAYED_NOTE = "relayed this message to a colleague, who has the chat; you did not answer it.)"
HandoverState: TypeAlias = Literal["asked", "taken", "over"]
HandoverEnd: TypeAlias = Literal["needless", "colleague", "person", "owner", "unanswered", "idle", "config"]
"""The cause of the end. `needless`: pressed in the on-call chat; `unanswered`: nobody took over in time."""
log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True, slots=True)
class Handover:
    """A chat that is handed over. `number` is that of the message that asked for it. `context` is the chat and the user who
    asked, called `name`, without text. `by` is the colleague (`channel:id`) who took over; `ended_by` gave it back."""

    session: str
    number: int
    context: MessageContext
    name: str
    place: Place
    reason: str = ""
    state: HandoverState = "asked"
    by: str = ""
    by_name: str = ""
    end: HandoverEnd | None = None
    ended_by: str = ""
    ended_name: str = ""
    ended_turn: int = 0

    @property
    def id(self) -> str:
        return row_id(self.session)


@dataclass(frozen=True, kw_only=True, slots=True)
class HandoverEvent:
    """The content of the gateway's message about a handover: its state, and for the first notice the last messages."""

    handover: Handover
    recent: str = ""


handover_json: TypeAdapter[Handover] = TypeAdapter(Handover)
event_json: TypeAdapter[HandoverEvent] = TypeAdapter(HandoverEvent)
HandoverStep: TypeAlias = tuple[Handover, Sequence[Delivery]]


class Handovers:
    """`tools.handover.HandsOver`, and the steps of people. `serve` connects it to its gateway."""

    def serve(self, runtime: Runtime) -> "Handovers":
        self._runtime, self._store = runtime, runtime.store
        return self

    def place(self) -> Place | None:
        """Return the on-call chat of the config, by its current id."""
        config = self._runtime.setup.config
        try:
            place = place_in(config.channels, config.handover.to) if config.handover.to else None
        except ValueError:
            return None
        if place is None:
            return None
        context = message_in(place.channel, place.account, Chat(id=place.chat, kind="group"), "")
        return replace(place, chat=self._runtime.choices.after_migration(context).chat.id)

    async def of(self, session: str) -> Handover | None:
        """Return the handover of a conversation that a colleague has, or is to have. The database is read only if the config
        names an on-call chat. Raises StoreUnavailable."""
        if not self._runtime.setup.config.handover.to or task_of(session) is not None:
            return None
        found = await self.get(row_id(session))
        return found if found is not None and found.state != "over" else None

    async def get(self, id_: str) -> Handover | None:
        """Return the newest handover of a conversation, also if it is over."""
        return _read(next(iter(await self._store.later.of_id(id_)), None))

    async def open(self) -> Sequence[Handover]:
        return [it for row in await self._store.later.active(HANDOVER) if (it := _read(row)) is not None]

    async def hand_over(self, reason: str, call: Call) -> str:
        context, lane = call.message, self._runtime.control.lanes.get(call.session)
        if task_of(call.session) is not None or context.channel == ApiChannel.name or not context.sender.id:
            raise ToolError("UNSUPPORTED", "nobody waits here whom a colleague could answer; say it in your answer")
        if self.is_there(context):
            raise ToolError("UNSUPPORTED", "this is the colleagues' own chat; nothing was handed over")
        try:
            await self.ask(call.session, lane.number if lane else 0, context, reason)
        except StoreUnavailable as error:
            log.warning("handover_not_stored", error=repr(error))
            raise ToolError("UNAVAILABLE", "the database does not answer now", retryable=True) from error
        return "A colleague is called, and the gateway has told the person. End your turn now, without an answer."

    def is_there(self, context: MessageContext) -> bool:
        """Return whether a message is from the on-call chat, or from the direct chat with the person on call."""
        place, chats = self.place(), {context.chat.id}
        if context.chat.kind == "direct":
            chats.add(context.sender.id)
        return (
            place is not None
            and (place.channel, place.account) == (context.channel, context.account)
            and (place.chat in chats)
        )

    async def ask(self, session: str, number: int, context: MessageContext, reason: str) -> bool:
        """Call the colleagues. Idempotent per `number`; return False if the chat is handed over already."""
        place, channel = self.place(), self._runtime.setup.channel(context)
        if place is None:
            return False
        name = (await channel.enrich(context)).sender.name if channel else context.sender.name
        kept = context.message_id if context.chat.thread is not None else ""
        asked = Handover(
            session=session,
            number=number,
            context=replace(context.wordless, message_id=kept, press=None, origin=None, mentioned=False, links=()),
            name=name_of(name) or context.sender.id,
            place=place,
            reason=" ".join(reason[:REASON_CHARS_MAX].split()),
        )
        recent = await self._recent(session, number)

        def made(stored: Later | None) -> Change | None:
            before = _read(stored)
            if before is not None and (before.state != "over" or before.number == number):
                return None
            notice = self._notice(asked, "asked", recent)
            row = Later(
                id=asked.id,
                kind=HANDOVER,
                due=self._due(),
                owner=sender_of(context),
                place=chat_of(context),
                state="active",
                body=handover_json.dump_json(asked).decode(),
                since=self._runtime.now(),
            )
            return Change(row=row, deliveries=[notice, self._line(asked, "asked")])

        if changed := await self._commit(asked.id, made):
            log.info("chat_handed_over", session=session, number=number)
        return changed

    async def take(self, id_: str, number: int, message: MessageContext) -> Handover | None:
        """Have the sender take over if nobody has. Return the handover as it is then; None if there is none."""
        name = await self._name(message)

        def made(before: Handover, due: float) -> HandoverStep | None:
            if before.state != "asked":
                return None
            after = replace(before, state="taken", by=person_of(message), by_name=name)
            return after, [self._notice(after, "taken"), self._line(after, "taken")]

        if await self._step(id_, number, made):
            log.info("handover_taken", id=id_, by=person_of(message))
        found = await self.get(id_)
        return found if found is not None and found.number == number else None

    async def end(
        self, id_: str, number: int, end: HandoverEnd, message: MessageContext | None = None, turn: int = 0
    ) -> Handover | None:
        """Give the chat back to its agent. Return the handover as it is then; None if there is none. Idempotent."""
        name, by = (await self._name(message), person_of(message)) if message else ("", "")

        def made(before: Handover, due: float) -> HandoverStep | None:
            if end == "needless" and before.state != "asked":
                return None
            if end in ("idle", "unanswered") and due > self._runtime.now() + AGAIN_SECONDS:
                return None  # somebody has written meanwhile
            how: HandoverEnd = "unanswered" if end == "idle" and before.state == "asked" else end
            after = replace(before, state="over", end=how, ended_by=by, ended_name=name, ended_turn=turn)
            lines = [self._line(after, "over"), *([] if how == "needless" else [self._line(after, "over", there=True)])]
            return after, [self._notice(after, "over"), *lines]

        if await self._step(id_, number, made):
            log.info("handover_over", id=id_, end=end)
        found = await self.get(id_)
        return found if found is not None and found.number == number else None

    async def end_due(self, row: Later) -> None:
        """Give back a chat in which nobody has written for too long."""
        if (found := _read(row)) is not None:
            await self.end(row.id, found.number, "idle")

    async def adopt(self) -> None:
        """Give back the chats whose on-call chat the config does not name any more. Raises StoreUnavailable."""
        place = self.place()
        for it in await self.open():
            if place is None or replace(it.place, chat=place.chat) != place:
                await self.end(it.id, it.number, "config")

    async def relay(self, handover: Handover, number: int, context: MessageContext, channel: Channel) -> None:
        """Send message `number` to the on-call chat. Idempotent per number. Raises StoreUnavailable."""
        name = name_of(context.sender.name) or context.sender.id
        there = self._runtime.setup.channels.get((handover.place.channel, handover.place.account))
        files, lines = await self._carried(context, channel, there)
        notice = await self._store.approvals.sent(notice_key(handover.number))
        text = said_by(name, "\n".join(filter(None, (context.text, *lines))))
        relayed = self._there(handover, SAY, f"{number}:relayed", text=text, files=files, reply_to=notice)
        relayed = replace(relayed, dedupe=(f"gateway:handover:{number}:relayed",))
        await self._step(handover.id, handover.number, lambda before, due: (before, [relayed]))

    async def answer(self, handover: Handover, message: MessageContext, turn: int) -> None:
        """Send a colleague's message `turn` to the person. Idempotent per turn. Raises StoreUnavailable."""
        there, here = self._runtime.setup.channel(message), self._runtime.setup.channel(handover.context)
        files, lines = await self._carried(message, there, here)
        origin = Origin(
            kind="handover",
            id=handover.id,
            run=f"{handover.number}:{turn}",
            title=handover.by_name,
            tainted=not is_owner(self._runtime.setup.owners, message),
        )
        text = "\n".join(filter(None, (message.text, *lines)))
        context = replace(self._person(handover), text=text, origin=origin)
        agent = agent_of(handover.session)
        inbound = Inbound(agent=agent, context=context, command=SAY, arguments=handover.by, files=files)
        answer = Delivery.own(
            inbound, f"gateway:handover:{turn}:answered", sid=handover.session, at=self._runtime.now()
        )
        await self._step(handover.id, handover.number, lambda before, due: (before, [answer]))

    async def of_reply(self, context: MessageContext) -> tuple[str, int] | None:
        """Return the handover, by its id and number, to whose message in the on-call chat this one replies."""
        quote = context.reply_to
        if quote is None or not quote.message_id or context.press or not self.is_there(context):
            return None
        for sent in await self._store.sent_parts(ext_id=quote.message_id):
            payload = payload_json.validate_json(sent.payload)
            origin = inbound_of(sent.body).context.origin if sent.body else None
            here = (payload.channel, payload.account) == (context.channel, context.account)
            here = here and payload.part.target.chat in (context.chat.id, context.sender.id)
            if here and origin is not None and origin.kind == "handover" and is_saying(sent.sid):
                return origin.id, int(origin.run.partition(":")[0])
        return None

    async def _commit(self, id_: str, made: Callable[[Later | None], Change | None]) -> bool:
        changed = await self._store.later.change(id_, made)
        for delivery in changed.deliveries if changed else ():
            self._runtime.expect(delivery.sid)
        return changed is not None

    async def _step(self, id_: str, number: int, made: Callable[[Handover, float], HandoverStep | None]) -> bool:
        """Take a step of a handover that is not over. Return whether it was taken."""

        def changed(stored: Later | None) -> Change | None:
            before = _read(stored)
            if stored is None or before is None or before.state == "over" or before.number != number:
                return None
            if (step := made(before, stored.due or 0.0)) is None:
                return None
            after, deliveries = step
            is_over = after.state == "over"
            row = replace(stored, due=None if is_over else self._due(), state="done" if is_over else "active")
            kept = replace(after, reason="") if is_over else after
            return Change(row=replace(row, body=handover_json.dump_json(kept).decode()), deliveries=deliveries)

        return await self._commit(id_, changed)

    def _due(self) -> float:
        return self._runtime.now() + 3600 * self._runtime.setup.config.handover.hours

    async def _name(self, message: MessageContext) -> str:
        channel = self._runtime.setup.channel(message)
        name = (await channel.enrich(message.wordless)).sender.name if channel else message.sender.name
        return name_of(name) or message.sender.id

    async def _recent(self, session: str, number: int) -> str:
        """Return the last messages of a conversation as quoted lines, those of the running turn included."""
        work = await self._store.conversation(
            session, before=number + 1 if number else NEVER, history_turns=RECENT_TURNS, waiting_max=1
        )
        agent, lines = agent_of(session), list[str]()
        for row in (*work.history, *work.so_far):
            if row.kind in ("user", "steered", "assistant"):
                message = message_json.validate_json(row.content)
                text = spoken(message).strip()
                if text and isinstance(message, AssistantMessage):
                    text = f"{agent}: {text}"
                if text:
                    lines.append(plain(" ".join(text[: 4 * RECENT_CHARS].split())[:RECENT_CHARS]))
        return "\n".join(f"> {line}" for line in lines[-RECENT_MESSAGES:])

    async def _carried(
        self, context: MessageContext, channel: Channel | None, to: Channel | None
    ) -> tuple[tuple[StoredFile, ...], list[str]]:
        """Store the files of a message to send them on. Also return a line for each file that the other platform cannot
        get."""
        files, lines, size = list[StoredFile](), list[str](), self._runtime.setup.limits.file_bytes
        takes = to is not None and "media" in to.capabilities.directives
        for attachment in context.attachments:
            line = f"[{attachment.kind}: {attachment.name}]" if attachment.name else f"[{attachment.kind}]"
            if not takes or len(files) == FILES_MAX or channel is None or not can(channel, DownloadsFiles):
                lines.append(line)
                continue
            try:
                async with self._runtime.memory.hold(size, FILES_AT_ONCE * size), asyncio.timeout(FETCH_SECONDS):
                    file = await channel.fetch(attachment, bytes_max=size)
                    file = replace(file, type=actual_type(file.type, file.data))
                    files.append(await self._store.files.put(file, self._runtime.now()))
            except (DeliveryError, TimeoutError) as error:
                log.warning("file_not_relayed", channel=channel.name, kind=attachment.kind, error=repr(error))
                lines.append(line)
        return tuple(files), lines

    def _notice(self, handover: Handover, what: HandoverState, recent: str = "") -> Delivery:
        """Build the notice in the on-call chat, or the message that updates it."""
        event = event_json.dump_json(HandoverEvent(handover=handover, recent=recent)).decode()
        return self._there(handover, HANDOVER_NOTICE, what, arguments=event)

    def _line(self, handover: Handover, what: HandoverState, *, there: bool = False) -> Delivery:
        """Build the sentence for the person, or for the on-call chat."""
        event = event_json.dump_json(HandoverEvent(handover=replace(handover, reason=""))).decode()
        if there:
            return self._there(handover, HANDOVER_LINE, f"{what}:line", arguments=event)
        agent = agent_of(handover.session)
        inbound = Inbound(agent=agent, context=self._person(handover), command=HANDOVER_LINE, arguments=event)
        name = f"gateway:handover:{handover.number}:{what}:person"
        return Delivery.own(inbound, name, sid=control_session(handover.session), at=self._runtime.now())

    def _person(self, handover: Handover) -> MessageContext:
        context = self._runtime.choices.after_migration(handover.context)
        return replace(context, sent_at=datetime.fromtimestamp(self._runtime.now(), UTC))

    def _there(
        self,
        handover: Handover,
        command: str,
        what: str,
        *,
        text: str = "",
        files: tuple[StoredFile, ...] = (),
        arguments: str = "",
        reply_to: Sequence[str] = (),
    ) -> Delivery:
        """Build a message to the on-call chat, whose replies `of_reply` recognises."""
        config, place, now = self._runtime.setup.config, handover.place, self._runtime.now()
        chat = Chat(id=place.chat, kind=kind_of(config.channels, place), thread=place.thread)
        context = replace(
            message_in(place.channel, place.account, chat, ""),
            message_id=reply_to[-1] if reply_to else "",
            text=text,
            sent_at=datetime.fromtimestamp(now, UTC),
            language=config.language,
            origin=Origin(kind="handover", id=handover.id, run=f"{handover.number}:{what}"),
        )
        agent = route(config.routes, config.agents, context)
        inbound = Inbound(agent=agent, context=context, command=command, arguments=arguments, files=files)
        sid = saying_session(session_key(agent, context, "chat"))
        return Delivery.own(inbound, f"gateway:handover:{handover.number}:{what}", sid=sid, at=now)


def row_id(session: str) -> str:
    """Return the id of a conversation's row."""
    return "H-" + sha256(session.encode()).hexdigest()[:16]


def notice_key(number: int) -> str:
    """Return the dedupe key of the notice about the handover that message `number` asked for."""
    return f"gateway:handover:{number}:asked"


def said_by(name: str, text: str) -> str:
    """Return a person's text under their name, verbatim."""
    pieces = [text[first : first + CHARS_MAX] for first in range(0, len(text), CHARS_MAX)]
    return f"**{plain(name)}**: {''.join(plain(it) for it in pieces)}".rstrip()


def _read(row: Later | None) -> Handover | None:
    if row is None or row.kind != HANDOVER:
        return None
    try:
        return handover_json.validate_json(row.body)
    except ValueError:
        log.error("handover_unreadable", id=row.id)
        return None
