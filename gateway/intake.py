"""From a verified message to a row in the inbox: who may speak, which agent answers, which chat it belongs to."""

from collections.abc import Callable

import structlog

from channels.access import refusal
from channels.channel import Arrived, Channel, Keeping
from gateway.config.root import Config
from gateway.inbound import COMMANDS, Inbound, inbound_json
from gateway.lanes import Lanes
from gateway.queue import Queues
from gateway.routing import aside, route, session_key
from gateway.store.store import Delivery

log = structlog.get_logger()


class Intake:
    """Decides and stores. Nothing here talks to a platform."""

    def __init__(self, *, config: Config, queues: Queues, lanes: Lanes, now: Callable[[], float]) -> None:
        self._config = config
        self._queues = queues
        self._lanes = lanes
        self._now = now

    async def take(self, channel: Channel, arrived: Arrived) -> str:
        """What became of the message: `accepted`, `duplicate`, `overflow`, or `ignored: …` with the access rule.

        Raises StoreUnavailable; then the platform must deliver it again. Raises Rejected where the channel cannot keep it.
        """
        context = arrived.context
        facts = {"channel": context.channel, "account": context.account, "message_id": context.message_id}
        if reason := refusal(channel.access, context):
            log.info("message_not_admitted", reason=reason, sender=context.sender.id, chat=context.chat.id, **facts)
            return f"ignored: {reason}"
        agent = arrived.agent or route(self._config.bindings, self._config.agents, context)
        if isinstance(channel, Keeping):
            context = await channel.keep(context, agent)
        sid = session_key(agent, context)
        command = COMMANDS.get(context.text.strip().lower())
        scope = f"{context.channel}:{context.account}:"
        acceptance = await self._lanes.accept(
            Delivery(
                sid=aside(sid) if command else sid,
                aside=aside(sid),
                dedupe=tuple(scope + key for key in arrived.dedupe),
                body=inbound_json.dump_json(Inbound(agent=agent, context=context, command=command)).decode(),
                at=self._now(),
                sender=scope + context.sender.id,
                interrupts=command is None and self._queues.of(agent, context).mode == "interrupt",
            )
        )
        outcome = "overflow" if acceptance.overflow else "accepted"
        if acceptance.turn is None:
            outcome = "duplicate"
        log.info("message_" + outcome, turn=acceptance.turn, session=sid, **facts)
        return outcome
