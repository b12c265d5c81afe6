"""Files between a channel and an agent: fetched with a message before its turn, kept with a reply after it.

A file that cannot be fetched or sent never fails the turn: a note tells the model of the one, the person of the other.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import structlog

from agents import sentences
from agents.attachments import Missing, Received
from agents.runner import AgentRunner
from agents.transcription import Transcript, transcribe
from agents.turn import Turn
from channels.abilities import DownloadsFiles
from channels.channel import Channel, DeliveryError, NotHandedOut, TooLarge
from channels.message import File, MessageContext, StoredFile
from gateway.runtime import Runtime
from tools.tool import ToolError

FILES_MAX = 10
"""Of one message, and of one reply."""
FETCH_SECONDS = 60.0
SPOKEN = ("audio", "video", "file")
"""What may hold speech; the bytes say whether it does."""

log = structlog.get_logger()


class Attachments:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def receive(self, runner: AgentRunner, channel: Channel, context: MessageContext, session: str) -> Received:
        """The files of a message and of the one that it answers."""
        attachments = context.attachments + (context.reply_to.attachments if context.reply_to else ())
        if not attachments or not isinstance(channel, DownloadsFiles):
            return Received()
        files: list[File] = []
        spoken: list[bool] = []
        missing: list[Missing] = []
        for number, attachment in enumerate(attachments[:FILES_MAX]):
            try:
                async with asyncio.timeout(FETCH_SECONDS):
                    file = await channel.fetch(attachment, bytes_max=self._runtime.setup.limits.file_bytes)
            except (DeliveryError, TimeoutError) as error:
                log.warning("attachment_not_fetched", channel=channel.name, kind=attachment.kind, error=repr(error))
                reason = "could not be fetched"
                if isinstance(error, NotHandedOut):
                    reason = f"not fetched: {error}" if isinstance(error, TooLarge) else f"{reason}: {error}"
                missing.append(Missing(name=attachment.name or attachment.kind, reason=reason))
            else:
                quoted = number >= len(context.attachments)
                files.append(replace(file, name=f"quoted-{file.name}") if quoted else file)
                spoken.append(attachment.kind in SPOKEN)
        reason = f"not fetched: of one message only {FILES_MAX} files are"
        beyond = attachments[FILES_MAX:]
        missing += [Missing(name=it.name or it.kind, reason=reason) for it in beyond[:FILES_MAX]]
        missing += (
            [Missing(name="others", reason=f"{more} more {reason}")] if (more := len(beyond) - FILES_MAX) > 0 else []
        )
        transcripts = await asyncio.gather(*map(self._transcript, files, spoken))
        return await asyncio.to_thread(runner.receive, context, session, files, missing, transcripts)

    async def _transcript(self, file: File, spoken: bool) -> Transcript | None:
        return await transcribe(self._runtime.setup.config.transcription, file) if spoken else None

    async def send(
        self, runner: AgentRunner, channel: Channel, turn: Turn, wanted: Sequence[str]
    ) -> tuple[tuple[StoredFile, ...], str]:
        """Keep the files that an answer names; the text is a note for the person on those that cannot be sent."""
        kept: list[StoredFile] = []
        lines: list[str] = []
        context = turn.context
        for path in wanted:
            if path.startswith(("http://", "https://")):
                lines.append(f"<{path}>")
            elif len(kept) >= FILES_MAX or "media" not in channel.capabilities.directives:
                lines.append(sentences.not_attached(path, context.text))
            else:
                try:
                    limit = self._runtime.setup.limits.file_bytes
                    read = partial(runner.attachment, layers=turn.layers, bytes_max=limit)
                    file = await asyncio.to_thread(read, path, context, turn.session)
                    file = await asyncio.to_thread(self._runtime.scrubber.scrub_file, file)
                except ToolError as error:
                    log.warning("attachment_not_sent", code=error.code)
                    lines.append(sentences.not_attached(path, context.text))
                else:
                    kept.append(await self._runtime.store.archive.put(file, self._runtime.now()))
        return tuple(kept), "\n".join(lines)
