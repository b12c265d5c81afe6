"""From a verified message to a row in the inbox: who may speak, which agent answers, which chat it belongs to."""

from collections.abc import Sequence

import structlog

from channels.access import refusal
from channels.channel import AnsweredAtOnce, Channel, Ignored, Receipt, StoresInbound
from channels.message import MessageContext
from gateway.approvals.approvals import PRESSED
from gateway.commands.catalog import command_of
from gateway.lanes import Lanes
from gateway.queue import Inbound, inbound_json
from gateway.routing import control_session, route, session_key
from gateway.runtime import Runtime
from gateway.store.records import Acceptance, Delivery

log = structlog.get_logger()


class Intake:
    def __init__(self, runtime: Runtime, lanes: Lanes) -> None:
        self._runtime = runtime
        self._lanes = lanes

    async def take(self, channel: Channel, receipt: Receipt) -> str:
        """What became of what a channel has received: `answered`, `accepted`, `duplicate`, `overflow`, or `ignored: …` with
        the access rule or the channel's reason.

        Raises StoreUnavailable; then the platform must deliver it again. Raises Rejected where the channel cannot keep it.
        """
        if isinstance(receipt, AnsweredAtOnce):
            return "answered"
        if isinstance(receipt, Ignored):
            facts = {"channel": channel.name, "account": channel.account, "reason": receipt.reason}
            log.info("event_ignored", kind=receipt.kind, **facts)
            return f"ignored: {receipt.reason}"
        context = receipt.context
        facts = {"channel": context.channel, "account": context.account, "message_id": context.message_id}
        if reason := refusal(channel.access, context):
            log.info("message_not_admitted", reason=reason, sender=context.sender.id, chat=context.chat.id, **facts)
            return f"ignored: {reason}"
        setup = self._runtime.setup
        agent = self._runtime.choices.agent(context)
        if agent not in setup.runners:
            agent = receipt.agent or route(setup.config.bindings, setup.config.agents, context)
        if isinstance(channel, StoresInbound):
            context = await channel.keep(context, agent)
        acceptance = await self.accept(context, agent, receipt.dedupe)
        outcome = "duplicate" if acceptance.turn is None else "overflow" if acceptance.overflow else "accepted"
        log.info("message_" + outcome, turn=acceptance.turn, session=self._session(agent, context), **facts)
        return outcome

    async def accept(self, context: MessageContext, agent: str, dedupe: Sequence[str]) -> Acceptance:
        """A message for an agent, whoever brings it: nothing is asked of a channel. `dedupe` are names of the message within
        its channel account. Raises StoreUnavailable."""
        sid = self._session(agent, context)
        command, arguments = (PRESSED, "") if context.press else command_of(context) or (None, "")
        scope = f"{context.channel}:{context.account}:"
        delivery = Delivery(
            sid=control_session(sid) if command else sid,
            control=control_session(sid),
            dedupe=tuple(scope + key for key in dedupe),
            body=inbound_json.dump_json(
                Inbound(agent=agent, context=context, command=command, arguments=arguments)
            ).decode(),
            at=self._runtime.now(),
            sender=scope + context.sender.id,
            chat=scope + context.chat.id,
            rates={} if command else self._runtime.setup.config.rates.by_whom,
            interrupts=command is None and self._queue_mode(sid, agent, context) == "interrupt",
        )
        acceptance = await self._lanes.accept(delivery)
        if acceptance.beyond:
            self._runtime.metrics.refusals.labels(f"{acceptance.beyond}-rate").inc()
        return acceptance

    def _queue_mode(self, sid: str, agent: str, context: MessageContext) -> str:
        return self._runtime.choices.queue(sid) or self._runtime.setup.queues.of(agent, context).mode

    def _session(self, agent: str, context: MessageContext) -> str:
        return session_key(agent, context, self._runtime.setup.session_rules(agent).scope)
