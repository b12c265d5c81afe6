"""From a verified message to a row in the inbox: who may speak, which agent answers, which chat it belongs to."""

from collections.abc import Callable, Mapping

import structlog

from agents.sentences import too_many
from channels.access import refusal
from channels.channel import Arrived, Channel
from gateway.config.root import Config
from gateway.inbound import Inbound, inbound_json
from gateway.lanes import Lanes
from gateway.outbound import reply_parts
from gateway.routing import route, session_key
from gateway.store.store import Delivery

log = structlog.get_logger()


class Intake:
    """Decides and stores. Nothing here talks to a platform."""

    def __init__(
        self, *, config: Config, channels: Mapping[tuple[str, str], Channel], lanes: Lanes, now: Callable[[], float]
    ) -> None:
        self._config = config
        self._channels = channels
        self._lanes = lanes
        self._now = now

    async def take(self, channel: Channel, arrived: Arrived) -> str:
        """What became of the message: `accepted`, `duplicate`, `overflow`, or `ignored: …` with the access rule.

        Raises StoreUnavailable; then nothing is stored and the platform must deliver it again.
        """
        context = arrived.context
        facts = {"channel": context.channel, "account": context.account, "message_id": context.message_id}
        if reason := refusal(channel.access, context):
            log.info("message_not_admitted", reason=reason, sender=context.sender.id, chat=context.chat.id, **facts)
            return f"ignored: {reason}"
        agent = route(self._config.bindings, self._config.agents, context)
        sid = session_key(agent, context)
        sentence = too_many(context.text, self._config.limits.pending_per_session)
        (note,) = reply_parts(context, [sentence], purpose="overflow")
        scope = f"{context.channel}:{context.account}:"
        acceptance = await self._lanes.accept(
            Delivery(
                sid=sid,
                dedupe=tuple(scope + key for key in arrived.dedupe),
                body=inbound_json.dump_json(Inbound(agent=agent, context=context)).decode(),
                at=self._now(),
                overflow=note,
            )
        )
        outcome = "overflow" if acceptance.overflow else "accepted"
        if acceptance.turn is None:
            outcome = "duplicate"
        log.info("message_" + outcome, turn=acceptance.turn, session=sid, **facts)
        return outcome
