"""Files between a channel and an agent: downloaded with a message before its turn, stored with a reply after it.

A file that cannot be downloaded or sent never fails the turn. The model gets a note about a failed download; the sender
gets one about either.
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal
from urllib.parse import quote

import structlog

from agents import sentences
from agents.attachments import NO_DOCUMENT, Received, Receiver, Untaken
from agents.language import Language, language_for
from agents.runner import AgentRunner, Asks
from agents.transcription import transcribe
from agents.turn import Turn
from channels.abilities import DownloadsFiles, can
from channels.channel import Channel, DeliveryError, NotHandedOut, TooLarge
from channels.message import Attachment, MessageContext, StoredFile
from gateway.state.runtime import Runtime
from tools.tool import ToolError
from tools.workspace import QUOTED

FILES_MAX = 10
"""Most files of one message, and of one reply."""
FILES_AT_ONCE = 4
"""Memory limit for files of all chats, as a multiple of the largest allowed file."""
FETCH_SECONDS = 60.0
"""Timeout in seconds for one file of a message, and for all URLs of an answer together."""
SPOKEN = ("audio", "video", "file")
"""Kinds of files that may hold speech; the content decides whether one does."""

log = structlog.get_logger()


class Attachments:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def receive(self, runner: AgentRunner, channel: Channel, context: MessageContext, session: str) -> Received:
        """Download the files of a message and of the message it quotes."""
        attachments = context.attachments + (context.reply_to.attachments if context.reply_to else ())
        if not attachments or not can(channel, DownloadsFiles):
            return Received()
        receiver = await asyncio.to_thread(runner.files.receiver, context, session)
        untaken: list[Untaken] = []
        has_quoted = len(attachments) > len(context.attachments)
        for number, attachment in enumerate(attachments[:FILES_MAX]):
            missed: Untaken | None
            try:
                quoted = QUOTED if number >= len(context.attachments) else ""
                missed = await self._fetch(receiver, runner, channel, attachment, quoted)
            except (DeliveryError, TimeoutError) as error:
                log.warning("attachment_not_fetched", channel=channel.name, kind=attachment.kind, error=repr(error))
                reason = "could not be fetched"
                if isinstance(error, NotHandedOut):
                    reason = f"not fetched: {error}" if isinstance(error, TooLarge) else f"{reason}: {error}"
                receiver.miss(attachment.name or attachment.kind, reason)
                missed = _missed(attachment, error)
                if number >= len(context.attachments) and not isinstance(error, NotHandedOut):
                    has_quoted = False  # a later quote may bring it
            if missed and number < len(context.attachments):
                untaken.append(missed)
        reason, beyond = f"not fetched: of one message only {FILES_MAX} files are", attachments[FILES_MAX:]
        for attachment in beyond[:FILES_MAX]:
            receiver.miss(attachment.name or attachment.kind, reason)
        if (more := len(beyond) - FILES_MAX) > 0:
            receiver.miss("others", f"{more} more {reason}")
        if beyond and len(context.attachments) > FILES_MAX:
            untaken.append(Untaken(reason="many", kind=beyond[0].kind, name=beyond[0].name or ""))
        return replace(receiver.received(), untaken=tuple(untaken), has_quoted=has_quoted)

    async def _fetch(
        self, receiver: Receiver, runner: AgentRunner, channel: DownloadsFiles, attachment: Attachment, prefix: str
    ) -> Untaken | None:
        """Download a file and store it once memory is available. Return a recording that could not be transcribed.
        Raises DeliveryError, TimeoutError."""
        setup = self._runtime.setup
        size = setup.limits.file_bytes
        async with self._runtime.memory.hold(size, FILES_AT_ONCE * size) as keep:
            async with asyncio.timeout(FETCH_SECONDS):
                file = await channel.fetch(attachment, bytes_max=size)
            keep(len(file.data))
            file = replace(file, name=prefix + file.name)
            is_spoken = attachment.kind in SPOKEN
            transcript = await transcribe(setup.config.transcription, file) if is_spoken else None
            wanted = receiver.keeps or receiver.native
            document = await runner.documents.glance(file.data, file.name) if wanted else NO_DOCUMENT
            await asyncio.to_thread(receiver.store, file, transcript, document)
        if attachment.kind != "audio" or transcript is None or not transcript.failed:
            return None
        reason: Literal["unheard", "untranscribed"] = "untranscribed" if setup.config.transcription.model else "unheard"
        return Untaken(reason=reason, kind=attachment.kind, name=attachment.name or "")

    async def send(
        self, runner: AgentRunner, channel: Channel, turn: Turn, wanted: Sequence[str], asks: Asks
    ) -> tuple[tuple[StoredFile, ...], str]:
        """Store the files that an answer names. Also return a note for the user about files that cannot be sent.
        `asks`: whether a tool call would need an approval now; an answer does not wait for one."""
        kept: list[StoredFile] = []
        lines: list[str] = []
        takes_files, deadline = "media" in channel.capabilities.directives, asyncio.get_running_loop().time()
        deadline += FETCH_SECONDS
        for named in wanted:
            try:
                if len(kept) >= FILES_MAX or not takes_files:
                    raise ToolError("MANY" if takes_files else "NOT_ALLOWED", "no more files go with this answer")
                async with asyncio.timeout_at(deadline if _is_address(named) else None):
                    kept.append(await self._kept(runner, turn, named, asks))
            except (ToolError, TimeoutError) as error:
                code = error.code if isinstance(error, ToolError) else "FETCH_TIMEOUT"
                log.warning("attachment_not_sent", code=code)
                lines.append(self._not_attached(named, code, language_for(turn.context)))
        return tuple(kept), "\n".join(lines)

    async def _kept(self, runner: AgentRunner, turn: Turn, named: str, asks: Asks) -> StoredFile:
        """Read or download the file, scrub it and store it. Raises ToolError, TimeoutError."""
        runtime, bytes_max = self._runtime, self._runtime.setup.limits.file_bytes
        if not _is_address(named):
            file = await asyncio.to_thread(runner.files.attachment, named, turn, asks, bytes_max=bytes_max)
            file = await asyncio.to_thread(runtime.scrubber.scrub_file, file)
            return await runtime.store.files.put(file, runtime.now())
        if runtime.scrubber.scrub(named) != named:
            raise ToolError("FETCH_BLOCKED", "the address holds a secret")
        async with runtime.memory.hold(bytes_max, FILES_AT_ONCE * bytes_max) as keep:
            file = await runner.files.web_attachment(named, turn, asks, bytes_max=bytes_max)
            keep(len(file.data))
            file = await asyncio.to_thread(runtime.scrubber.scrub_file, file)
            return await runtime.store.files.put(file, runtime.now())

    def _not_attached(self, named: str, code: str, language: Language) -> str:
        if not _is_address(named):
            return sentences.not_attached(named, language)
        sentence = sentences.not_fetched(code, self._runtime.setup.limits.file_bytes, language)
        return f"{sentence} {_link(named)}"


def _is_address(named: str) -> bool:
    return named.lower().startswith(("http://", "https://"))


def _missed(attachment: Attachment, error: Exception) -> Untaken:
    bytes_max = error.bytes_max if isinstance(error, TooLarge) else 0
    reason: Literal["large", "fetch"] = "large" if bytes_max else "fetch"
    return Untaken(reason=reason, kind=attachment.kind, name=attachment.name or "", bytes_max=bytes_max)


def _link(address: str) -> str:
    """Return the URL as plain text, which every client turns into a link; characters with a meaning in Markdown are
    encoded."""
    quoted = quote(address, safe=":/?#@!$&'()+,;=%")
    return re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", "%5F", quoted)
