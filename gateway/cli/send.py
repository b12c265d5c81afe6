"""`send`: a message to a chat through the outbox, with or without a running gateway."""

import asyncio
import io
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

import typer

from gateway.cli.options import CONFIG, ConfigOption, load
from gateway.observe.terminal import print_text
from gateway.program import OperatorError

if TYPE_CHECKING:
    from channels.message import File, Place
    from gateway.config.load import Loaded
    from gateway.observe.secrets import Scrubber
    from gateway.outbox.messenger import Saying
    from gateway.store.sends import SendOutcome
    from gateway.store.store import Store

BUSY_SECONDS = 3
"""The longest wait for a database that another command uses: one that serves elsewhere finds the message there."""


class Misused(OperatorError):
    """The command line asks for what cannot be sent."""

    code = 2


def send(
    text: Annotated[str | None, typer.Argument(help="The text, in Markdown. Or from a pipe.")] = None,
    to: Annotated[
        str, typer.Option("--to", metavar="PLACE", help="channel[:account]:chat[#thread], such as feishu:oc_team.")
    ] = "",
    file: Annotated[list[Path] | None, typer.Option("--file", "-f", help="Send a file along; may be repeated.")] = None,
    reply_to: Annotated[str | None, typer.Option(metavar="ID", help="The message to reply to.")] = None,
    config: ConfigOption = CONFIG,
) -> None:
    """Send a message to a chat, with or without a running gateway, and print the platform's message id. Exit code 1
    if the platform rejected it or has not answered within 30 seconds, in which case it is retried; 2 if nothing was
    sent."""
    from gateway.config.channels import place_in
    from gateway.observe import logs
    from gateway.observe.secrets import Scrubber, secrets_of

    loaded = load(config)
    try:
        place = place_in(loaded.config.channels, to)
    except ValueError as error:
        raise Misused(f"--to {to}: {error}") from None
    files = _read(file or (), loaded.config.limits.file_bytes)
    if text is None and not sys.stdin.isatty():
        text = sys.stdin.buffer.read().decode(errors="replace").rstrip()
    if not (text or "").strip() and not files:
        raise Misused("the message is empty: give a text, a file, or both")
    if reply_to is not None and not (reply_to.isprintable() and reply_to):
        raise Misused("--reply-to: expected a message's id")
    scrubber = Scrubber(secrets_of(loaded.config))
    logs.configure(level="error", output="json", scrubber=scrubber, stream=io.StringIO())  # the last line says it
    outcome = _sent(loaded, scrubber, place, text or "", files, reply_to)
    for message_id in outcome.message_ids:
        print_text(message_id)
    if outcome.state == "refused":
        raise OperatorError(f"not sent: {outcome.reason}")
    if outcome.state == "waiting":
        minutes = loaded.config.limits.delivery_seconds / 60
        raise OperatorError(f"not sent yet: it is kept and tried for {minutes:.0f} minutes, while a gateway serves")


def _read(paths: Sequence[Path], bytes_max: int) -> "list[File]":
    """Raises Misused."""
    from gateway.outbox.messenger import file_of
    from gateway.turns.attachments import FILES_MAX

    if len(paths) > FILES_MAX:
        raise Misused(f"--file: a message has at most {FILES_MAX} files")
    files = []
    for path in paths:
        try:
            with path.open("rb") as file:
                data = file.read(bytes_max + 1)
        except OSError as error:
            raise Misused(f"--file {path}: {error.strerror}") from None
        if len(data) > bytes_max or not data:
            what = f"larger than {bytes_max:,} bytes (limits.fileBytes)" if data else "empty"
            raise Misused(f"--file {path}: it is {what}")
        files.append(file_of(path.name, data))
    return files


def _sent(
    loaded: "Loaded", scrubber: "Scrubber", place: "Place", text: str, files: "list[File]", reply_to: str | None
) -> "SendOutcome":
    from gateway.cli.terminal import free_store
    from gateway.outbox.messenger import sending
    from gateway.store.errors import StoreUnavailable
    from gateway.store.migrate import refused

    message = partial(sending, place, text, uuid4().hex, reply_to=reply_to)
    try:
        if store := free_store(loaded.config, BUSY_SECONDS):
            return asyncio.run(_by_itself(loaded, scrubber, store, message, files))
        return asyncio.run(_beside(loaded, message, files))
    except StoreUnavailable as error:
        raise refused(error, loaded.config.database.shown) from None


async def _by_itself(
    loaded: "Loaded", scrubber: "Scrubber", store: "Store", message: "Callable[..., Saying]", files: "list[File]"
) -> "SendOutcome":
    """Sends as a separate gateway, which does nothing else."""
    from gateway.app.gateway import Gateway
    from gateway.outbox.messenger import Sends

    gateway = Gateway(loaded.config, loaded.environment, store=store, scrubber=scrubber)
    try:
        await gateway.join()
        stored = [await store.files.put(it, time.time()) for it in files]
        return await Sends(gateway.runtime).send(message(files=stored))
    finally:
        await gateway.drain()
        await gateway.close()


async def _beside(loaded: "Loaded", message: "Callable[..., Saying]", files: "list[File]") -> "SendOutcome":
    """Leaves it to the gateway that serves, which is woken for it."""
    from gateway.config.exposure import operator_proof
    from gateway.http.reach import wake_at
    from gateway.outbox.messenger import outcome
    from gateway.store.files import DatabaseFiles
    from gateway.store.opening import offline
    from gateway.store.sends import DatabaseSends

    config, database = loaded.config, offline(loaded.config.database)
    kept, sends = DatabaseFiles(read=database, write=database), DatabaseSends(read=database, write=database)
    request = message(files=[await kept.put(it, time.time()) for it in files])
    await sends.queue(request.delivery(config, time.time()))
    await wake_at(config.server.address, operator_proof(config))
    return await outcome(lambda: sends.outcome(request.origin.key))
