"""One turn from the inbox row to the finished reply: the agent runner between two durable ends.

Every step is journaled before the next one; what a crash leaves behind is enough to go on from. However a turn goes, it
is finished with a reply, a recorded silence, or a sentence that says what went wrong: never with nothing.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import assert_never

import structlog

from agents import sentences
from agents.events import Emit
from agents.messages import AssistantMessage, ToolResultMessage, UserMessage, message_json
from agents.outcome import Answered, Declined, LimitReached, ModelFailed, Outcome
from agents.prompt.reply import visible
from agents.runner import AgentRunner
from agents.turn import Surface, Turn
from channels.channel import Channel
from gateway.inbound import Inbound, inbound_json
from gateway.lanes import Drained
from gateway.metrics import Metrics
from gateway.outbound import reply_parts
from gateway.store.store import Entry, Fenced, Lease, Store, StoreUnavailable, Work
from gateway.transcript import turns_of

ATTEMPTS_MAX = 3
"""A message whose turn has brought its process down this often is closed with an apology."""

log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """How a turn ended, as its `final` row says it. `text` is None for a chosen silence."""

    outcome: str
    text: str | None
    message: AssistantMessage | None = None
    reason: str = ""


class TurnService:
    """Runs the messages of every lane."""

    def __init__(
        self,
        *,
        store: Store,
        runners: Mapping[str, AgentRunner],
        channels: Mapping[tuple[str, str], Channel],
        reply_parts_max: int,
        draining: Callable[[], bool],
        emit: Emit,
        metrics: Metrics,
        now: Callable[[], float],
    ) -> None:
        self._store = store
        self._runners = runners
        self._channels = channels
        self._reply_parts_max = reply_parts_max
        self._draining = draining
        self._emit = emit
        self._metrics = metrics
        self._now = now

    async def run(self, lease: Lease, work: Work) -> None:
        """Finish the message. Raises Fenced, Drained or StoreUnavailable where it is not this process that will."""
        inbound = inbound_json.validate_json(work.body)
        with structlog.contextvars.bound_contextvars(turn=work.turn, session=lease.sid, agent=inbound.agent):
            began = self._now()
            log.info("turn_started", attempt=work.attempts + 1, resumed=bool(work.so_far))
            try:
                ending = await self._run(lease, work, inbound)
            except (Fenced, Drained, StoreUnavailable):
                raise
            except Exception as error:  # the worker's edge: our own fault becomes a sentence to the user
                log.error("turn_failed", exc_info=error)
                text = sentences.internal_error(inbound.context.text)
                ending = Ending(outcome="failed", reason="internal", text=text)
            await self._finish(lease, work, inbound, ending)
            seconds = self._now() - began
            self._metrics.turn(inbound.agent, ending.outcome, seconds)
            log.info("turn_finished", outcome=ending.outcome, reason=ending.reason, seconds=round(seconds, 3))

    async def _run(self, lease: Lease, work: Work, inbound: Inbound) -> Ending:
        asked = inbound.context.text
        if work.attempts >= ATTEMPTS_MAX:
            return Ending(outcome="failed", reason="attempts", text=sentences.gave_up(asked))
        runner = self._runners.get(inbound.agent)
        channel = self._channels.get((inbound.context.channel, inbound.context.account))
        if runner is None or channel is None:
            return Ending(outcome="failed", reason="not configured", text=sentences.unknown_agent(asked))
        finished = turns_of(work.history)
        so_far = [message_json.validate_json(entry.content) for entry in work.so_far if entry.kind != "drained"]
        context = inbound.context
        if not so_far:
            context = await channel.enrich(context)
            so_far = [runner.user_message(context)]
            await self._store.append(lease, _entry(work.turn, so_far[0]))
        user, *journaled = so_far
        if not isinstance(user, UserMessage):
            raise TypeError("a transcript's turn begins with its user message")
        turn = Turn(
            context=context,
            session=lease.sid,
            surface=Surface(
                channel=channel.name,
                capabilities=channel.capabilities.names,
                directives=channel.capabilities.directives,
            ),
            history=finished,
            user=user,
            so_far=journaled,
            interrupted=bool(work.so_far) and work.so_far[-1].kind != "drained",
        )
        journal = TurnJournal(self._store, lease, work.turn, self._draining)
        return _ending(await runner.run(turn, journal=journal, emit=self._emit), asked)

    async def _finish(self, lease: Lease, work: Work, inbound: Inbound, ending: Ending) -> None:
        texts: list[str] = []
        channel = self._channels.get((inbound.context.channel, inbound.context.account))
        if ending.text is not None and channel is not None:
            texts = channel.split(ending.text)
        if len(texts) > self._reply_parts_max:
            texts = [*texts[: self._reply_parts_max - 1], sentences.cut_short(inbound.context.text)]
        final = Entry(
            turn=work.turn,
            kind="final",
            content=json.dumps({"outcome": ending.outcome, "reason": ending.reason, "parts": len(texts)}),
        )
        entries = [_entry(work.turn, ending.message), final] if ending.message else [final]
        await self._store.finish(lease, entries, reply_parts(inbound.context, texts), at=self._now())


class TurnJournal:
    """`agents.loop.Journal` on the store: the step is durable, then, if the gateway stops, the turn is laid down."""

    def __init__(self, store: Store, lease: Lease, turn: int, draining: Callable[[], bool]) -> None:
        self._store = store
        self._lease = lease
        self._turn = turn
        self._draining = draining

    async def append(self, message: AssistantMessage | ToolResultMessage) -> None:
        await self._store.append(self._lease, _entry(self._turn, message))
        if self._draining():
            await self._store.append(self._lease, Entry(turn=self._turn, kind="drained", content="{}"))
            raise Drained


def _ending(outcome: Outcome, asked: str) -> Ending:
    """What the user sees of an outcome."""
    match outcome:
        case Answered(message=message, cut=cut):
            if (text := visible(message.text)) is None:
                return Ending(outcome="silent", text=None, message=message)
            if not text.strip():
                return Ending(outcome="failed", reason="empty", text=sentences.failure(outcome, asked), message=message)
            return Ending(
                outcome="replied",
                reason="cut" if cut else "",
                text=f"{text}\n\n{sentences.cut_short(asked)}" if cut else text,
                message=message,
            )
        case Declined():
            return Ending(outcome="declined", text=sentences.failure(outcome, asked))
        case ModelFailed(error=error):
            log.error("model_failed", kind=error.kind, summary=error.summary)
            return Ending(outcome="failed", reason=error.kind, text=sentences.failure(outcome, asked))
        case LimitReached(limit=limit):
            return Ending(outcome="failed", reason=limit, text=sentences.failure(outcome, asked))
        case _:
            assert_never(outcome)


def _entry(turn: int, message: UserMessage | AssistantMessage | ToolResultMessage) -> Entry:
    return Entry(turn=turn, kind=message.role, content=message_json.dump_json(message).decode())
