"""A message with buttons, sent by a running gateway as its outbox sends it, and the presses that reached its inbox.

Who asked for it is made up: a message of somebody in the chat, whose turn ends with these parts.
"""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from sqlalchemy import create_engine, text

from channels.channel import DeliveryError
from channels.message import Button, Chat, MessageContext, Outbound, Sender, Target
from gateway.app.gateway import Gateway
from gateway.outbox.outbox import Outbox, OutboxPayload, payload_json
from gateway.store.inbound import PRESSED, Inbound, inbound_json
from gateway.store.records import Delivery, Entry, NewPart
from gateway.store.sessions import control_session, session_key
from tests.channels.contexts import context

ALLOW = Button(label="Allow once", token="ap_allow:1", style="primary")
DENY = Button(label="拒绝 🚫", token="ap_deny:1", style="danger")
BUTTONS = (ALLOW, DENY)
COMMAND = "May I run this?\n\n```\nrm -rf ./build  # **not** <at id=all></at>\n```\n\n/approve K7QF-2M9X-D3TA deny"


async def offered(
    gateway: Gateway,
    channel: str,
    chat: Chat,
    *,
    buttons: Sequence[Button] = BUTTONS,
    said: str = COMMAND,
    replaces: str | None = None,
    to: str | None = None,
    reply_to: str | None = None,
) -> str:
    """The platform's id of the message. Raises DeliveryError where the outbox gave it up."""
    store, now, name = gateway.runtime.store, gateway.runtime.now(), f"m_{uuid4().hex}"
    asked = context(channel, chat, message_id=name, sender=Sender(id="whoever"))
    session = control_session(session_key("helper", asked, "chat"))
    delivery = Delivery(
        sid=session,
        dedupe=(name,),
        body=inbound_json.dump_json(Inbound(agent="helper", context=asked)).decode(),
        at=now,
    )
    accepted = await store.accept(delivery, pending_max=9, sender_max=9, claim=True)
    assert accepted.turn is not None
    assert accepted.lease is not None
    target = Target(chat=to or chat.id, thread=chat.thread, reply_to=reply_to)
    part = Outbound(target=target, text=said, buttons=tuple(buttons), replaces=replaces)
    payload = payload_json.dump_json(OutboxPayload(channel=channel, account="default", part=part)).decode()
    final = Entry(turn=accepted.turn, kind="final", content='{"outcome": "replied"}')
    (queued,) = await store.finish(accepted.lease, [final], [NewPart(key=name[2:], payload=payload)], at=now)
    assert await Outbox(gateway.runtime).deliver(accepted.lease, queued)
    if (sent := (await store.sent_parts(key=name[2:]))[0].ext_id) is None:
        raise DeliveryError("given up")
    return sent


def presses(gateway: Gateway) -> list[tuple[str, MessageContext]]:
    """The presses in the inbox: which session each went to, and what it says."""
    engine = create_engine(gateway.runtime.setup.config.database.url)
    with engine.connect() as connection:
        rows: list[Any] = list(connection.execute(text("SELECT sid, body FROM inbox WHERE body <> '' ORDER BY id")))
    engine.dispose()
    found = [(row.sid, inbound_json.validate_json(row.body)) for row in rows]
    assert [inbound.arguments for _, inbound in found if inbound.context.press] == [
        inbound.context.press.token for _, inbound in found if inbound.context.press
    ]
    return [(sid, inbound.context) for sid, inbound in found if inbound.command == PRESSED]
