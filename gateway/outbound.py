"""What the outbox holds of a reply part, and how a reply becomes parts.

A key is made once, from the message that is answered and the part's number, never per attempt: the platform that
honours it shows the part once however often we ask. It does not depend on the database, which may be set up anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import NAMESPACE_URL, uuid5

from pydantic import TypeAdapter

from channels.message import MessageContext, Outbound, StoredFile, Target
from gateway.store.store import NewPart

_KEYS = uuid5(NAMESPACE_URL, "clawgate:outbox")


@dataclass(frozen=True, kw_only=True, slots=True)
class OutboxPayload:
    """One part and the channel account that carries it."""

    channel: str
    account: str
    part: Outbound


payload_json: TypeAdapter[OutboxPayload] = TypeAdapter(OutboxPayload)


def idempotency_key(*names: str) -> str:
    """36 characters, the same for the same names."""
    return str(uuid5(_KEYS, "\x1f".join(names)))


def reply_parts(
    context: MessageContext,
    texts: Sequence[str],
    *,
    files: tuple[StoredFile, ...] = (),
    purpose: str = "reply",
    quotes_once: bool = False,
) -> list[NewPart]:
    """The parts of a reply to `context`, in order; the last one brings the files. `purpose` keeps the keys of a note and
    of a reply apart; with `quotes_once` only the first one shows what it answers."""
    target = Target(chat=context.chat.id, thread=context.chat.thread, reply_to=context.message_id)
    parts = []
    for number, text in enumerate(texts):
        if number and quotes_once:
            target = replace(target, reply_to=None)
        part = Outbound(target=target, text=text, files=files if number == len(texts) - 1 else ())
        payload = OutboxPayload(channel=context.channel, account=context.account, part=part)
        names = (context.channel, context.account, context.chat.id, context.message_id)
        key = idempotency_key(purpose, *names, str(number))
        parts.append(NewPart(key=key, payload=payload_json.dump_json(payload).decode()))
    return parts
