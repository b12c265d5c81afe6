"""The web chat as a channel: messages from its page arrive like any platform's events, and replies are stored.

It is its own platform, so a send is a write to its archive, deduplicated by its key. Live state (a growing answer, the
tools) goes to connected pages and is not stored, except for the list of tools, which stays with the answer.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import structlog
from pydantic import BaseModel, Field, StringConstraints, ValidationError

from channels.abilities import Progress
from channels.access import AccessConfig
from channels.channel import Arrived, Capabilities, Gone, Rejected, WebhookRequest, stored_file
from channels.message import (
    BUTTON_TOKEN,
    FORM_OPTIONS_MAX,
    FORM_TEXT_CHARS_MAX,
    Attachment,
    Chat,
    File,
    MessageContext,
    Outbound,
    Press,
    Sender,
    Target,
)
from channels.web.admission import OPERATOR, Admission, Headers
from channels.web.archive import ChatHistory, Files, Kept, MessageBody, Unkept, WebConversation, attachment_of
from channels.web.config import WebConfig
from channels.web.live import LiveTurns, Watcher
from channels.web.views import ALIVE, Renderings, conversation_view, event, fitting, written

FILES_MAX = 10
ALIVE_SECONDS = 15.0
MISSED_MAX = 500
MISSED_BYTES_MAX = 2 * 1_048_576
"""Missed messages and bytes beyond which the page reloads."""

NO_FAULTS: Mapping[str, Any] = {"text": "", "database": None, "channels": []}

_Id = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{8,64}$")]

log = structlog.get_logger()


class _Pressed(BaseModel, extra="forbid", strict=True):
    token: Annotated[str, StringConstraints(pattern=rf"^{BUTTON_TOKEN.pattern}$")]
    message: _Id
    picked: Annotated[tuple[Annotated[int, Field(ge=1, le=FORM_OPTIONS_MAX)], ...], Field(strict=False)] = ()
    text: Annotated[str, StringConstraints(max_length=FORM_TEXT_CHARS_MAX)] = ""
    """The ticked options and the text of a form."""


class _Posted(BaseModel, extra="forbid", strict=True):
    id: _Id
    chat: _Id
    agent: Annotated[str, StringConstraints(min_length=1, max_length=64)] | None = None
    text: str = ""
    files: Annotated[tuple[_Id, ...], Field(max_length=FILES_MAX, strict=False)] = ()
    press: _Pressed | None = None
    language: Literal["en", "zh"] | None = None
    instead: _Id | None = None
    """The person's message of which this is a new version."""


def _press(pressed: _Pressed) -> Press:
    return Press(
        token=pressed.token, message_id=pressed.message, picked=pressed.picked, typed=_well_formed(pressed.text)
    )


class WebChannel:
    """`channels.channel.Channel`, `OwnPlatform`, `DownloadsFiles` and `ShowsProgress`."""

    name = "web"
    account = "default"
    access = AccessConfig(dmPolicy="open", groupPolicy="disabled")
    """Access was checked by `Admission`."""
    capabilities = Capabilities(
        names=("markdown", "files"),
        directives=("media",),
        actions=("send", "edit", "buttons"),
        marks_dropped=True,
        buttons=True,
        forms=True,
        repeat_seconds=float("inf"),
    )
    resend_ambiguous = True

    def __init__(
        self,
        config: WebConfig,
        *,
        admission: Admission,
        archive: ChatHistory,
        files: Files,
        live: LiveTurns,
        now: Callable[[], float],
    ) -> None:
        self.admission = admission
        self.archive = archive
        self.files = files
        self.live = live
        self.renderings = Renderings(archive)
        self._keeping: set[asyncio.Task[None]] = set()
        self.queue = config.queue
        self._versions_max = config.versions
        self.faults: Mapping[str, Any] = NO_FAULTS
        self._now = now

    async def admit(self, headers: Headers) -> str:
        return await self.admission.identify(headers, changes=True)

    def receive(self, request: WebhookRequest, now: datetime) -> Arrived:
        """Read a message of an admitted sender. Raises Rejected."""
        try:
            posted = _Posted.model_validate_json(request.body)
        except ValidationError as error:
            place = ".".join(str(part) for part in error.errors()[0]["loc"])
            raise Rejected(
                "malformed", status=400, sentence=f"The message cannot be read: {place or 'no JSON'}."
            ) from None
        if posted.press and (posted.text or posted.files or posted.instead):
            raise Rejected("malformed", status=400, sentence="A press of a button says nothing besides.")
        if not posted.text.strip() and not posted.files and not posted.press:
            raise Rejected("empty", status=400, sentence="The message is empty.")
        person, language = request.person or OPERATOR, (request.header("accept-language") or "")[:2] or None
        context = MessageContext(
            channel=self.name,
            account=self.account,
            chat=Chat(id=posted.chat, kind="direct"),
            message_id=posted.id,
            sender=Sender(id=person, name="User" if person == OPERATOR else person, language=language),
            text=_well_formed(posted.text),
            sent_at=now.astimezone(UTC),
            mentioned=True,
            attachments=tuple(Attachment(kind="file", key=key) for key in posted.files),
            press=_press(posted.press) if posted.press else None,
            language=posted.language,
            instead=posted.instead,
        )
        return Arrived(
            context=context,
            dedupe=(f"{posted.chat}:{posted.id}",),
            agent=_well_formed(posted.agent) if posted.agent else None,
            event=posted.model_dump(exclude_none=True),
        )

    async def keep(self, context: MessageContext, agent: str, *, names: bool) -> MessageContext:
        """Raises Rejected if a file does not exist, or the conversation is another person's."""
        chat, person = context.chat.id, context.sender.id
        if context.press:
            pressed = await self.archive.conversation(chat)
            if pressed is None or pressed.owner != person:
                raise _no_such_chat()
            return context
        ids = [attachment.key for attachment in context.attachments]
        files = await self.files.find(ids, person) if ids else ()
        if len(files) < len(ids):
            raise Rejected("unknown file", status=400, sentence="A file is no longer there. Attach it again.")
        words = MessageBody(text=context.text, agent=agent, files=tuple(files), instead=context.instead)
        stored = await self.archive.keep(
            chat, context.message_id, words, self._now(), owner=person, names=names, versions_max=self._versions_max
        )
        if not isinstance(stored, Kept):
            raise self._refusal(stored)
        self.tell(stored.conversation)
        self.live.announce(None)
        branch: Literal["begins", "goes on"] = "begins" if stored.begins else "goes on"
        attachments = tuple(map(attachment_of, files))
        return replace(context, attachments=attachments, branch=branch if stored.conversation.branch else None)

    def _refusal(self, why: Unkept) -> Rejected:
        if why == "not theirs":
            return _no_such_chat()
        if why == "gone":
            sentence = "The message that this is another version of is not there any more."
            return Rejected("no such message", status=404, sentence=sentence, code="no-such-message")
        many = f"Of this message there are {self._versions_max} versions, as many as may be (channels.web.versions)."
        return Rejected("too many versions", status=409, sentence=many, code="too-many-versions")

    async def fetch(self, attachment: Attachment, *, bytes_max: int) -> File:
        return await stored_file(self.files.load, attachment, bytes_max)

    def split(self, text: str) -> list[str]:
        """Return one part: a page shows any length."""
        return [text]

    async def send(self, part: Outbound, key: str) -> str:
        """Store an answer for the page. Raises Gone if its conversation was deleted."""
        chat, reply_to = part.target.chat, part.target.reply_to
        conversation = await self.archive.conversation(chat)
        if conversation is None or (part.dropped and chat in self.live.leaving):
            raise Gone("the conversation was deleted", code="deleted")
        if part.replaces is not None:
            if not await self.archive.replace(chat, part.replaces, part.text, part.buttons):
                raise Gone("the message is no longer there", code="deleted")
            self.live.announce(None)
            return part.replaces
        tools = self.live.tools((chat, reply_to)) if reply_to else ()
        words = MessageBody(
            text=part.text,
            agent=conversation.agent,
            reply_to=reply_to,
            files=part.files,
            tools=tools,
            dropped=part.dropped,
            buttons=part.buttons,
            folded=part.folded,
            form=part.form,
            turn=part.turn,
        )
        if not await self.archive.answer(chat, key, words, self._now()):
            raise Gone("the conversation was deleted", code="deleted")
        self.live.announce(None)
        return key

    def show(self, progress: Progress) -> None:
        """Show the state, and store the text of a stopped turn. An interrupted turn will repeat it."""
        self.live.show(progress)
        chat, reply_to = progress.context.chat.id, progress.context.message_id
        if progress.outcome != "stopped" or chat in self.live.leaving:
            return
        if text := self.live.text((chat, reply_to)).strip():
            keeping = asyncio.create_task(self._keep_stopped(Target(chat=chat, reply_to=reply_to), text))
            self._keeping.add(keeping)
            keeping.add_done_callback(self._keeping.discard)

    async def _keep_stopped(self, target: Target, text: str) -> None:
        try:
            await self.send(Outbound(target=target, text=f"{text} …"), f"stopped {target.reply_to}")
        except Exception as error:  # noqa: BLE001 - whatever the memory says: the turn has ended without it
            log.warning("stopped_text_not_kept", error=repr(error))

    def report(self, faults: Mapping[str, Any]) -> None:
        """Show faults on the operator's pages: the config's error as `text`, and `channels` with state, reason and fix."""
        if faults != self.faults:
            self.faults = faults
            self.live.announce(event("fault", faults), OPERATOR)

    def tell(self, conversation: WebConversation) -> None:
        self.live.announce(self._chat_event(conversation), conversation.owner)

    def _chat_event(self, conversation: WebConversation) -> bytes:
        return event("chat", conversation_view(conversation, running=self.live.running(conversation.id)))

    async def events(self, watcher: Watcher, after: int) -> AsyncIterator[bytes]:
        """Yield the event stream of one page: the current state, the messages it has missed, then live events."""
        last = await self.archive.last()
        yield event("hello", {"after": last})
        if self.faults != NO_FAULTS and watcher.person == OPERATOR:
            yield event("fault", self.faults)
        for notice in self.live.state(watcher.person):
            yield notice
        if after > last:  # from another database
            after = last
            yield event("reset", {})
        ids: set[str] = set()
        news: bytes | None = None
        while not watcher.lost:
            self.live.watched()
            if news is None:
                missed = await self.archive.since(
                    after, watcher.person, limit=MISSED_MAX + 1, bytes_max=MISSED_BYTES_MAX
                )
                if len(missed) > MISSED_MAX or sum(it.bytes for it in missed) > MISSED_BYTES_MAX:
                    missed, after = [], await self.archive.last()
                    yield event("reset", {})
                while numbers := fitting(missed):
                    missed = missed[len(numbers) :]
                    for message in await self.renderings.of(numbers):
                        if message.chat not in ids and (begun := await self.archive.conversation(message.chat)):
                            ids.add(message.chat)  # may have started at another replica
                            yield self._chat_event(begun)
                        yield written("message", message.json, number=message.number)
                    after = numbers[-1]
            else:
                yield news
            news = ALIVE
            with suppress(TimeoutError):
                async with asyncio.timeout(ALIVE_SECONDS):
                    news = await watcher.next()

    async def learn_identity(self, timeout_seconds: float) -> None:
        """No-op: there is no platform to ask."""

    async def enrich(self, context: MessageContext) -> MessageContext:
        return context

    async def close(self) -> None:
        if self._keeping:
            await asyncio.wait(self._keeping)


def _no_such_chat() -> Rejected:
    return Rejected("not their conversation", status=404, sentence="There is no such conversation.")


def _well_formed(text: str) -> str:
    return re.sub("[\ud800-\udfff\x00]", "�", text)
