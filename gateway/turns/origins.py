"""Turns that no person's message began: how they are accepted, text sent as it is, the line above what comes late."""

from dataclasses import replace

from agents import sentences
from agents.language import language_for
from agents.messages import AssistantMessage, Text, UserMessage
from agents.prompt.inbound import SAID, own_note
from channels.moment import timestamp
from gateway.state.ending import Ending
from gateway.state.runtime import Runtime
from gateway.store.inbound import Inbound
from gateway.store.records import Delivery
from gateway.store.sessions import is_control, sender_behind, session_key
from gateway.turns.answering import reminder_in, spoken_in
from gateway.turns.batch import Batch
from gateway.turns.journal import entry


def origin_delivery(runtime: Runtime, inbound: Inbound, name: str) -> Delivery:
    """The delivery of a message with an `origin`, under its own dedupe key `name`. No limit of waiting messages keeps it
    out, and no rate counts it."""
    context = inbound.context
    scope = runtime.setup.session_rules(inbound.agent).scope
    sid = session_key(inbound.agent, runtime.choices.before_migration(context), scope)
    return Delivery.own(inbound, name, sid=sid, at=runtime.now(), sender=sender_behind(context))


async def say(runtime: Runtime, batch: Batch) -> Ending:
    """Sends the message's own text, without a request to a model. In the conversation a model finds it as what it said;
    beside a running turn it is only sent. Raises Fenced or Revised."""
    context, at = batch.inbound.context, runtime.now()
    foreign = context.origin is not None and context.origin.is_foreign
    ending = Ending(outcome="said", text=context.text, files=batch.inbound.files, external=foreign)
    ending = labelled(batch, ending)
    if is_control(batch.lease.sid) or context.origin is None:
        return ending
    if not batch.work.so_far:
        note = own_note(context.origin, SAID[context.origin.kind])
        content = (Text(text=f"[message_id: {context.message_id}]\n{note}"),)
        # The mark is the turn's: the text itself is what the bot has said.
        user = UserMessage(content=content, external="content" if foreign else "", timestamp=at)
        begun = replace(entry(batch.turn, user), spoken=[spoken_in(context, "said", 1), *reminder_in(context)])
        await runtime.store.append(batch.lease, [begun], revision=batch.work.revision)
    spoken = AssistantMessage(
        content=(Text(text=context.text),), provider="", model="", api="", stop_reason="end_turn", timestamp=at
    )
    return replace(ending, message=spoken)


def labelled(batch: Batch, ending: Ending) -> Ending:
    """The ending with a line above it if the gateway was not there when it was due."""
    context, zone = batch.inbound.context, batch.setup.config.server.zone
    if ending.text is None or context.origin is None or not context.origin.late:
        return ending
    missed = sentences.missed(timestamp(context.origin.due, zone), language_for(context))
    return replace(ending, text=f"{missed}\n\n{ending.text}")
