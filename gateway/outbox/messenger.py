"""`tools.message.Messenger` over the configured channel accounts, and sends by programs, operators and events.

The turn waits for a send, because the message id is the tool's result. The journal holds the call, so a crash repeats
it under the same keys. Sent messages are outbox rows like reply parts: they identify the bot's own messages, button
presses and poll votes.
"""

import asyncio
import mimetypes
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeVar

import structlog

from agents.prompt.reply import without_internals
from channels import marks
from channels.abilities import ActsOnMessages, SendsPolls
from channels.channel import Channel, DeliveryError, RateLimited, Unreachable, Voted
from channels.message import (
    UNKNOWN_TYPE,
    Action,
    Button,
    Chat,
    File,
    MessageContext,
    Origin,
    Outbound,
    Place,
    Press,
    Quote,
    StoredFile,
    Target,
)
from gateway.config.channels import kind_of
from gateway.config.root import Config, route
from gateway.observe.metrics import Metrics
from gateway.observe.secrets import Scrubber
from gateway.outbox.outbox import OutboxPayload, idempotency_key, may_repeat, payload_json
from gateway.outbox.reply import arranged
from gateway.state.queues import BUTTON
from gateway.state.runtime import Runtime
from gateway.store.errors import StoreUnavailable
from gateway.store.inbound import SAY, Inbound, inbound_of
from gateway.store.records import Delivery, NewPart, SentPart
from gateway.store.sends import SendOutcome
from gateway.store.sessions import message_in, saying_session, session_key
from gateway.store.store import Store
from tools.message import Post
from tools.tool import Call, ToolError

log = structlog.get_logger()


ATTEMPTS_MAX = 3
WAIT_SECONDS_MAX = 5.0
IN_DOUBT = "it may have arrived, so do not send it again unasked"
QUOTED_CHARS_MAX = 500

T = TypeVar("T")


@dataclass(kw_only=True)
class ChannelMessenger:
    channels: Mapping[tuple[str, str], Channel]
    scrubber: Scrubber
    store: Store
    metrics: Metrics
    file_bytes: int
    now: Callable[[], float]

    async def send(self, to: Place, post: Post, call: Call) -> str:
        action: Action = "poll" if post.options else "edit" if post.edits else "buttons" if post.buttons else "send"
        carrier = self._carrier(to, action)
        if post.edits:
            await self._check_is_own(to, post.edits, call.session)
        if post.reply_to:
            await self._check_is_here(to, post.reply_to, call)
        parts = await self._parts(carrier, to, post, call.key)
        sent: list[str] = []
        for number, (part, key) in enumerate(parts):
            try:
                sent.append(await self._sent(carrier, to, part, key, call))
            except ToolError as error:
                if number:
                    message = f"the first {number} of {len(parts)} parts were sent; of the next: {error.message}"
                    raise ToolError(error.code, message) from error
                raise
        return sent[0]

    async def delete(self, at: Place, message_id: str, call: Call) -> None:
        carrier = self._carrier(at, "delete")
        await self._check_is_own(at, message_id, call.session)
        assert isinstance(carrier, ActsOnMessages)
        await self._attempted(carrier, lambda: carrier.delete(at.chat, message_id), repeats=True)

    async def react(self, at: Place, message_id: str, emoji: str, call: Call) -> None:
        carrier = self._carrier(at, "react")
        await self._check_is_here(at, message_id, call)
        assert isinstance(carrier, ActsOnMessages)
        await self._attempted(carrier, lambda: carrier.react(at.chat, message_id, emoji), repeats=True)

    def _carrier(self, to: Place, action: Action) -> Channel:
        carrier = self.channels.get((to.channel, to.account))
        if carrier is None:
            names = ", ".join(f"{name}:{account}" for name, account in sorted(self.channels))
            raise ToolError("UNKNOWN_CHANNEL", f"there is no channel {to.channel}:{to.account}; there is: {names}")
        if action not in carrier.capabilities.actions:
            raise ToolError("UNSUPPORTED", f"{to.channel} has no {action}; nothing was done")
        return carrier

    async def _parts(self, carrier: Channel, to: Place, post: Post, key: str) -> list[tuple[Outbound, str]]:
        """Return the outgoing messages with their keys; the last one has the buttons."""
        text = self._clean(post.text)
        texts = [text] if post.options else carrier.split(text)
        if post.edits and len(texts) != 1:
            raise ToolError("INVALID_ARGUMENT", "'message' is too long for one message; send another one instead")
        if post.files and "media" not in carrier.capabilities.directives:
            raise ToolError("UNSUPPORTED", f"{to.channel} takes no files; nothing was sent")
        messages = arranged(texts, await self._kept(post), carrier)
        target = Target(chat=to.chat, thread=to.thread, reply_to=post.reply_to)
        parts = []
        for number, (words, files) in enumerate(messages):
            part_key, is_last = idempotency_key(key, str(number)), number == len(messages) - 1
            part = Outbound(target=target, text=words, files=files, voice=post.voice and bool(files))
            labels = post.buttons if is_last else ()
            buttons = tuple(
                Button(label=self._clean(label), token=f"{BUTTON}{part_key}:{place}")
                for place, label in enumerate(labels)
            )
            options = tuple(map(self._clean, post.options))
            parts.append((replace(part, buttons=buttons, options=options, replaces=post.edits), part_key))
            if carrier.capabilities.quotes != "all":
                target = replace(target, reply_to=None)
        return parts

    def _clean(self, text: str) -> str:
        return self.scrubber.scrub(without_internals(text))

    async def _kept(self, post: Post) -> tuple[StoredFile, ...]:
        files = []
        for file in post.files:
            clean = await asyncio.to_thread(self.scrubber.scrub_file, file)
            files.append(await self.store.files.put(clean, self.now()))
        return tuple(files)

    async def _sent(self, carrier: Channel, to: Place, part: Outbound, key: str, call: Call) -> str:
        repeats = part.replaces is not None  # an edit is idempotent
        if call.begun_at is not None and not repeats:
            if known := next((it.ext_id for it in await self.store.sent_parts(key=key) if it.ext_id), None):
                return known
            if not may_repeat(carrier, self.now() - call.begun_at):
                self.metrics.ambiguous.labels(carrier.name).inc()
                raise ToolError("INTERRUPTED", f"a restart interrupted the sending: {IN_DOUBT}")
        payload = OutboxPayload(channel=to.channel, account=to.account, part=part)
        row = NewPart(key=key, payload=payload_json.dump_json(payload).decode())
        if part.buttons:  # they must be stored before anybody can press them
            await self.store.keep_sent(call.session, row, None, self.now())
        sent, poll = await self._attempted(carrier, lambda: _send(carrier, part, key), repeats=repeats)
        try:
            await self.store.keep_sent(call.session, row, sent, self.now(), poll=poll)
        except StoreUnavailable as error:  # it was sent, and the turn's journal records the result next
            log.error("sent_unrecorded", channel=to.channel, message_id=sent, error=repr(error))
        log.info("message_sent", channel=to.channel, account=to.account, message_id=sent)
        return sent

    async def _attempted(self, carrier: Channel, attempt: Callable[[], Awaitable[T]], *, repeats: bool) -> T:
        """Retry a few times. Raises ToolError. `repeats`: the attempt is idempotent."""
        in_doubt, began = False, self.now()
        for number in range(1, ATTEMPTS_MAX + 1):
            try:
                return await attempt()
            except (RateLimited, Unreachable) as error:
                in_doubt = in_doubt or (isinstance(error, Unreachable) and error.maybe_arrived and not repeats)
                retry_after = error.retry_after_seconds if isinstance(error, RateLimited) else None
                wait = retry_after if retry_after is not None else float(2 ** (number - 1))
                lost = in_doubt and not may_repeat(carrier, self.now() - began)
                if lost or number == ATTEMPTS_MAX or wait > WAIT_SECONDS_MAX:
                    if in_doubt:
                        self.metrics.ambiguous.labels(carrier.name).inc()
                    message = IN_DOUBT if in_doubt else "the platform cannot be reached now"
                    raise ToolError("NOT_DELIVERED", message, retryable=not in_doubt) from error
                await asyncio.sleep(wait)
            except DeliveryError as error:
                raise ToolError("NOT_DELIVERED", f"the platform refused it ({error.code or 'no code'})") from error
        raise AssertionError("unreachable")

    async def _check_is_own(self, at: Place, message_id: str, session: str = "") -> None:
        """Raise ToolError if the bot did not send it to this chat. With `session`, it must be of that conversation:
        the agent must not change other conversations' messages or the gateway's, such as an approval request."""
        for sent in await self.store.sent_parts(ext_id=message_id) if message_id else ():
            if _is_in(sent, at) and session in ("", sent.sid):
                return
        raise ToolError("NOT_FOUND", "that is not one of your own messages in this chat; nothing was changed")

    async def _check_is_here(self, at: Place, message_id: str, call: Call) -> None:
        """Raise ToolError if the id belongs to another chat: a reply would appear there."""
        here = call.message
        met = {here.message_id, here.reply_to.message_id if here.reply_to else "", here.press and here.press.message_id}
        if (at.channel, at.chat) == (here.channel, here.chat.id) and message_id and message_id in met:
            return
        scope = f"{at.channel}:{at.account}:message:"
        bodies = await self.store.accepted(f"{scope}{message_id}", f"{scope}{at.chat}:{message_id}")
        if not any(inbound_of(it).context.chat.id == at.chat for it in bodies):
            await self._check_is_own(at, message_id)


async def _send(carrier: Channel, part: Outbound, key: str) -> tuple[str, str]:
    """Return the ids of the message and of its poll, if any."""
    if part.options:
        assert isinstance(carrier, SendsPolls)
        return await carrier.send_poll(part, key)
    return await carrier.send(part, key), ""


def _is_in(sent: SentPart, at: Place) -> bool:
    payload = payload_json.validate_json(sent.payload)
    return (payload.channel, payload.account, payload.part.target.chat) == (at.channel, at.account, at.chat)


async def pressed(store: Store, context: MessageContext, press: Press) -> tuple[str, Inbound] | None:
    """Return the session of an agent's button, and the press as a message to it. Return None if the press does not
    match the button: another message, another chat, or an unknown label."""
    key = press.token.removeprefix(BUTTON).rpartition(":")[0]
    if not press.token.startswith(BUTTON) or not key or not (parts := await store.sent_parts(key=key)):
        return None
    sent, part = parts[0], payload_json.validate_json(parts[0].payload)
    button = next((it for it in part.part.buttons if it.token == press.token), None)
    answered = inbound_of(sent.body) if sent.body else None
    at = Place(channel=context.channel, account=context.account, chat=context.chat.id)
    fits = _is_in(sent, at) and sent.ext_id in (None, press.message_id)
    if button is None or answered is None or not fits or answered.context.chat.id != context.chat.id:
        return None
    chat = replace(context.chat, kind=answered.context.chat.kind, thread=answered.context.chat.thread)
    message = replace(
        context,
        chat=chat,
        text=f"{marks.BUTTON}: {button.shown}]",
        mark=f"{marks.BUTTON}: {button.shown}]",
        press=replace(press, placed=True, label=button.shown),
        reply_to=Quote(message_id=press.message_id, text=part.part.text[:QUOTED_CHARS_MAX]),
    )
    return sent.sid, Inbound(agent=answered.agent, context=message)


async def voted(store: Store, vote: Voted) -> tuple[str, Inbound] | None:
    """Return the session of an agent's poll and the vote as a message to it, in the poll's chat. Return None for a poll of
    another bot or account, of an erased or recalled turn, or that was sent to another chat than its conversation's."""
    context = vote.arrived.context
    for sent in await store.sent_parts(poll=vote.poll):
        payload = payload_json.validate_json(sent.payload)
        if (payload.channel, payload.account) == (context.channel, context.account):
            break
    else:
        return None
    part, answered = payload.part, inbound_of(sent.body) if sent.body else None
    if answered is None or sent.ext_id is None or answered.context.chat.id != part.target.chat:
        return None
    if any(it >= len(part.options) for it in vote.options) or not part.options:
        return None
    chosen = ", ".join(" ".join(part.options[it].split()) for it in vote.options)
    mark = f"{marks.VOTE}: {chosen}]" if chosen else f"{marks.VOTE} revoked]"
    message = replace(
        context,
        chat=answered.context.chat,
        text=mark,
        mark=mark,
        press=Press(token="", message_id=sent.ext_id, label=chosen or "revoked"),
        reply_to=Quote(message_id=sent.ext_id, text=part.text[:QUOTED_CHARS_MAX]),
    )
    return sent.sid, Inbound(agent=answered.agent, context=message)


WAIT_SECONDS = 30.0
FIRST_PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.02, 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Saying:
    """Markdown text and files for a chat. `origin` is its cause; its key identifies the message."""

    place: Place
    text: str
    origin: Origin
    files: tuple[StoredFile, ...] = ()
    reply_to: str | None = None

    def delivery(self, config: Config, at: float) -> Delivery:
        place = self.place
        chat = Chat(id=place.chat, kind=kind_of(config.channels, place), thread=place.thread)
        context = replace(
            message_in(place.channel, place.account, chat, ""),
            message_id=self.reply_to or "",
            text=self.text,
            origin=self.origin,
            sent_at=datetime.fromtimestamp(at, UTC),
        )
        agent = route(config.routes, config.agents, context)
        inbound = Inbound(agent=agent, context=context, command=SAY, files=self.files)
        sid = saying_session(session_key(agent, context, "chat"))
        return Delivery.own(inbound, self.origin.key, sid=sid, at=at)


def sending(place: Place, text: str, key: str, files: Sequence[StoredFile] = (), reply_to: str | None = None) -> Saying:
    """Build the message of `clawgate send` or of a program. Idempotent per key."""
    return Saying(
        place=place, text=text, origin=Origin(kind="send", id=key, by_operator=True), files=(*files,), reply_to=reply_to
    )


def file_of(name: str, data: bytes) -> File:
    return File(name=name, type=mimetypes.guess_type(name)[0] or UNKNOWN_TYPE, data=data)


class Sends:
    """Sends through a running gateway."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def send(self, saying: Saying) -> SendOutcome:
        """Store it and wait a while for the platform's answer. Raises StoreUnavailable if it is not stored."""
        await self._runtime.accept(saying.delivery(self._runtime.setup.config, self._runtime.now()))
        return await outcome(lambda: self._runtime.store.sends.outcome(saying.origin.key))


async def outcome(look: Callable[[], Awaitable[SendOutcome]]) -> SendOutcome:
    """Poll until it is sent or refused, at most `WAIT_SECONDS`."""
    clock = asyncio.get_running_loop().time
    end, pause = clock() + WAIT_SECONDS, FIRST_PAUSE_SECONDS
    while (send := await look()).state == "waiting" and clock() < end:
        await asyncio.sleep(pause)
        pause = min(2 * pause, PAUSE_SECONDS_MAX)
    return send
