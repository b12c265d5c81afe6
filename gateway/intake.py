"""From a verified message to a row in the inbox: who may speak, which agent answers, which chat it belongs to."""

from collections.abc import Sequence
from typing import assert_never

import structlog

from channels.access import refusal
from channels.channel import Answered, Arrived, Channel, Ignored, Receipt, StoresInbound
from channels.message import MessageContext
from gateway.commands import command_of
from gateway.lanes import Lanes
from gateway.queue import Inbound, inbound_json
from gateway.routing import control_session, route, session_key
from gateway.runtime import Runtime
from gateway.store.store import Acceptance, Delivery

log = structlog.get_logger()


class Intake:
    """Decides and stores. Nothing here talks to a platform."""

    def __init__(self, runtime: Runtime, lanes: Lanes) -> None:
        self._runtime = runtime
        self._lanes = lanes

    async def take(self, channel: Channel, receipt: Receipt) -> str:
        """What became of what a channel has received: `answered`, `accepted`, `duplicate`, `overflow`, or `ignored: …` with
        the access rule or the channel's reason.

        Raises StoreUnavailable; then the platform must deliver it again. Raises Rejected where the channel cannot keep it.
        """
        match receipt:
            case Answered():
                return "answered"
            case Ignored(kind=kind, reason=reason):
                log.info("event_ignored", channel=channel.name, account=channel.account, kind=kind, reason=reason)
                return f"ignored: {reason}"
            case Arrived():
                return await self._take(channel, receipt)
            case _:
                assert_never(receipt)

    async def _take(self, channel: Channel, arrived: Arrived) -> str:
        context = arrived.context
        facts = {"channel": context.channel, "account": context.account, "message_id": context.message_id}
        if reason := refusal(channel.access, context):
            log.info("message_not_admitted", reason=reason, sender=context.sender.id, chat=context.chat.id, **facts)
            return f"ignored: {reason}"
        config = self._runtime.setup.config
        agent = arrived.agent or route(config.bindings, config.agents, context)
        if isinstance(channel, StoresInbound):
            context = await channel.keep(context, agent)
        acceptance = await self.accept(context, agent, dedupe=arrived.dedupe)
        outcome = "overflow" if acceptance.overflow else "accepted"
        if acceptance.turn is None:
            outcome = "duplicate"
        log.info("message_" + outcome, turn=acceptance.turn, session=session_key(agent, context), **facts)
        return outcome

    async def accept(self, context: MessageContext, agent: str, *, dedupe: Sequence[str]) -> Acceptance:
        """Store a message for an agent, whoever wrote it. `dedupe` are names of the message within its channel account.

        Raises StoreUnavailable."""
        sid = session_key(agent, context)
        command, arguments = command_of(context.text) or (None, "")
        inbound = Inbound(agent=agent, context=context, command=command, arguments=arguments)
        scope = f"{context.channel}:{context.account}:"
        interrupts = command is None and self._runtime.setup.queues.of(agent, context).mode == "interrupt"
        return await self._lanes.accept(
            Delivery(
                sid=control_session(sid) if command else sid,
                control=control_session(sid),
                dedupe=tuple(scope + key for key in dedupe),
                body=inbound_json.dump_json(inbound).decode(),
                at=self._runtime.now(),
                sender=scope + context.sender.id,
                interrupts=interrupts,
            )
        )
