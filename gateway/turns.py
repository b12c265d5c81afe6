"""One turn from the inbox row to the finished reply: the agent runner between two durable ends.

Every step is journaled before the next one; what a crash leaves behind is enough to go on from. However a turn goes, it
is finished with a reply, a recorded silence, or a sentence that says what went wrong: never with nothing.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

import structlog

from agents import sentences
from agents.events import Emit
from agents.messages import UserMessage, message_json
from agents.runner import AgentRunner
from agents.turn import Surface, Turn
from channels.channel import Channel, Live, Progress
from gateway.attachments import Attachments
from gateway.ending import Ending, ending_of
from gateway.inbound import Inbound, inbound_json
from gateway.journal import TurnJournal, entry
from gateway.lanes import Drained, Stopped
from gateway.metrics import Metrics
from gateway.outbound import reply_parts
from gateway.queue import Queue, Queues
from gateway.routing import is_aside, main_session
from gateway.store.store import Entry, Fenced, Lease, Part, Store, StoreUnavailable, Waiting, Work
from gateway.transcript import turns_of
from gateway.watch import Watch

ATTEMPTS_MAX = 3
"""A message whose turn has brought its process down this often is closed with an apology."""

MORE = '"more":true'
"""What the body of a message says that is a part of something; what people write has its quotes escaped."""

log = structlog.get_logger()


class TurnService:
    """Runs the messages of every lane."""

    def __init__(
        self,
        *,
        store: Store,
        runners: Mapping[str, AgentRunner],
        channels: Mapping[tuple[str, str], Channel],
        queues: Queues,
        attachments: Attachments,
        reply_parts_max: int,
        draining: Callable[[], bool],
        stop: Callable[[str, int], Awaitable[int]],
        emit: Emit,
        metrics: Metrics,
        now: Callable[[], float],
    ) -> None:
        self._store = store
        self._runners = runners
        self._channels = channels
        self._queues = queues
        self._attachments = attachments
        self._reply_parts_max = reply_parts_max
        self._draining = draining
        self._stop = stop
        self._emit = emit
        self._metrics = metrics
        self._now = now

    def wait_seconds(self, work: Work, *, came_during: bool) -> float:
        """What is collected during a turn waits until the chat has been quiet for a moment, and a part of something
        for the rest of it; a turn that has begun waits for nothing."""
        if work.so_far or not (came_during or MORE in work.waiting[-1].body):
            return 0.0
        last = inbound_json.validate_json(work.waiting[-1].body)
        queue, now = self._queues.of(last.agent, last.context), self._now()
        hold = queue.hold(last.context, work.waiting, now)
        return max(hold, queue.debounce(work.waiting, now)) if came_during else hold

    async def run(self, lease: Lease, work: Work) -> Sequence[Part]:
        """Finish the work's first turn. Raises Fenced, Drained, Stopped or StoreUnavailable where it is not this run
        that does."""
        inbound = inbound_json.validate_json(work.waiting[0].body)
        queue = self._queues.of(inbound.agent, inbound.context)
        if stopped := _stopped(work):
            return await self._end_all(lease, stopped, Ending(outcome="stopped", text=None))
        batch = work.waiting[:1] if is_aside(lease.sid) else self._batch(queue, work)
        message = batch[-1]
        inbound = inbound_json.validate_json(message.body)
        with (
            structlog.contextvars.bound_contextvars(turn=message.turn, session=lease.sid, agent=inbound.agent),
            self._watch(lease, inbound) as watch,
        ):
            began = self._now()
            log.info("turn_started", attempt=message.attempts + 1, resumed=bool(work.so_far), messages=len(batch))
            try:
                ending = await self._ending(lease, work, batch, inbound, queue, watch.tell)
            except (Fenced, Drained, Stopped, StoreUnavailable):
                raise
            except Exception as error:  # the worker's edge: our own fault becomes a sentence to the user
                log.error("turn_failed", exc_info=error)
                text = sentences.internal_error(inbound.context.text)
                ending = Ending(outcome="failed", reason="internal", text=text, dead=True)
            parts = await self._finish(lease, message.turn, inbound, ending, began)
            watch.outcome = ending.outcome
            return parts

    def _watch(self, lease: Lease, inbound: Inbound) -> Watch:
        """Who is shown the turn while it runs: people, where the channel can."""
        channel = (
            None if is_aside(lease.sid) else self._channels.get((inbound.context.channel, inbound.context.account))
        )
        return Watch(channel if isinstance(channel, Live) else None, inbound.context, self._emit)

    def _batch(self, queue: Queue, work: Work) -> Sequence[Waiting]:
        """The messages of the next turn; the parts of one thing stay together in every mode."""
        batch = queue.batch(work.waiting, begun=bool(work.so_far))
        while len(batch) < len(work.waiting) and not work.so_far and _has_more(batch[-1]):
            batch = work.waiting[: len(batch) + 1]
        return batch

    async def end_stopped(self, lease: Lease, work: Work) -> Sequence[Part]:
        """What was begun ends here, silently: whoever stopped it has been told. What was not begun is looked at anew."""
        if not (begun := await self._begun(lease)):
            return []
        parts = await self._end_all(lease, [begun], Ending(outcome="stopped", text=None))
        context = inbound_json.validate_json(begun.body).context
        channel = self._channels.get((context.channel, context.account))
        if isinstance(channel, Live):
            channel.show(Progress(context=context, outcome="stopped"))
        return parts

    async def end_stuck(self, lease: Lease, work: Work) -> Sequence[Part]:
        message = await self._begun(lease) or work.waiting[0]
        inbound = inbound_json.validate_json(message.body)
        text = sentences.internal_error(inbound.context.text)
        ending = Ending(outcome="failed", reason="stuck", text=text, dead=True)
        return await self._finish(lease, message.turn, inbound, ending, self._now())

    async def _begun(self, lease: Lease) -> Waiting | None:
        """The message whose turn has begun, as the journal has it."""
        work = (await self._store.look(lease, history_turns=1, waiting_max=1)).work
        return work.waiting[0] if work is not None and work.so_far else None

    async def _ending(
        self, lease: Lease, work: Work, batch: Sequence[Waiting], inbound: Inbound, queue: Queue, emit: Emit
    ) -> Ending:
        context, message = inbound.context, batch[-1]
        if is_aside(lease.sid):
            return await self._aside(lease, message, inbound)
        if max(waiting.attempts for waiting in batch) >= ATTEMPTS_MAX:
            return Ending(outcome="failed", reason="attempts", text=sentences.gave_up(context.text), dead=True)
        runner = self._runners.get(inbound.agent)
        channel = self._channels.get((context.channel, context.account))
        if runner is None or channel is None:
            return Ending(outcome="failed", reason="not configured", text=sentences.unknown_agent(context.text))
        late = queue.lateness(context, message.at, self._now())
        if late is not None and queue.stale == "drop":
            return Ending(outcome="stale", reason=f"{late:.0f} s late", text=None)
        ending = await self._answer(lease, work, batch, inbound, channel, runner, queue, emit)
        if late is not None and queue.stale == "label" and ending.text is not None:
            return replace(ending, text=f"{sentences.late(late, context.text)}\n\n{ending.text}")
        return ending

    async def _answer(
        self,
        lease: Lease,
        work: Work,
        batch: Sequence[Waiting],
        inbound: Inbound,
        channel: Channel,
        runner: AgentRunner,
        queue: Queue,
        emit: Emit,
    ) -> Ending:
        turn_number, context = batch[-1].turn, inbound.context
        journal = TurnJournal(
            self._store,
            lease,
            turn_number,
            mode=queue.mode,
            draining=self._draining,
            tell=self._teller(runner, channel),
        )
        told = [message_json.validate_json(row.content) for row in work.so_far if row.kind != "drained"]
        if not told:
            earlier = [inbound_json.validate_json(message.body).context for message in batch[:-1]]
            contexts = [await channel.enrich(said) for said in (*earlier, context)]
            context = contexts[-1]
            came = [await self._attachments.receive(runner, channel, said) for said in contexts]
            told = [runner.user_message(*contexts, received=came)]
            await journal.begin(told[0], joined=[message.turn for message in batch[:-1]])
        user, *journaled = told
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
            history=turns_of(work.history),
            user=user,
            so_far=journaled,
            interrupted=bool(work.so_far) and work.so_far[-1].kind != "drained",
        )
        answer = await runner.run(turn, journal=journal, emit=emit)
        ending = ending_of(answer.outcome, context.text)
        if ending.media and ending.text is not None:
            files, note = await self._attachments.send(runner, channel, ending.media, context.text)
            ending = replace(ending, text=f"{ending.text}\n\n{note}".strip() if note else ending.text, files=files)
        return replace(ending, spent=answer.spent)

    def _teller(self, runner: AgentRunner, channel: Channel) -> Callable[[Waiting], Awaitable[UserMessage]]:
        async def tell(message: Waiting) -> UserMessage:
            context = await channel.enrich(inbound_json.validate_json(message.body).context)
            return runner.user_message(context, received=[await self._attachments.receive(runner, channel, context)])

        return tell

    async def _aside(self, lease: Lease, message: Waiting, inbound: Inbound) -> Ending:
        """What is said beside the conversation: the answer to a command, and the note that there is too much to do."""
        text = inbound.context.text
        if inbound.command is None:
            return Ending(outcome="too-many", text=sentences.too_many(text))
        concerned = await self._stop(main_session(lease.sid), message.turn)
        return Ending(outcome=inbound.command, text=sentences.stopped(concerned, text))

    async def _end_all(self, lease: Lease, messages: Sequence[Waiting], ending: Ending) -> Sequence[Part]:
        for message in messages:
            inbound = inbound_json.validate_json(message.body)
            await self._finish(lease, message.turn, inbound, ending, self._now())
        return []

    async def _finish(self, lease: Lease, turn: int, inbound: Inbound, ending: Ending, began: float) -> Sequence[Part]:
        texts: list[str] = []
        channel = self._channels.get((inbound.context.channel, inbound.context.account))
        if ending.text is not None and channel is not None:
            texts = channel.split(ending.text)
        if len(texts) > self._reply_parts_max:
            texts = [*texts[: self._reply_parts_max - 1], sentences.cut_short(inbound.context.text)]
        final = Entry(turn=turn, kind="final", content=ending.record(len(texts)))
        entries = [entry(turn, ending.message), final] if ending.message else [final]
        purpose = "aside" if is_aside(lease.sid) else "reply"
        if inbound.replays:
            purpose = f"{purpose} {inbound.replays}"
        once = channel is not None and channel.capabilities.quotes_once
        parts = reply_parts(inbound.context, texts, files=ending.files, purpose=purpose, quotes_once=once)
        queued = await self._store.finish(lease, entries, parts, at=self._now(), dead=ending.dead)
        seconds = self._now() - began
        self._metrics.turn(inbound.agent, ending.outcome, seconds)
        for spent in ending.spent:
            self._metrics.spent(spent.model, spent.usage, spent.cost)
        if ending.dead:
            self._metrics.dead("message")
        log.info(
            "turn_finished",
            turn=turn,
            outcome=ending.outcome,
            reason=ending.reason,
            seconds=round(seconds, 3),
            **ending.bill(),
        )
        return queued


def _has_more(message: Waiting) -> bool:
    return MORE in message.body and inbound_json.validate_json(message.body).context.more


def _stopped(work: Work) -> Sequence[Waiting]:
    """The messages that a stop concerns. One that interrupts stops what has begun, and takes over what has not."""
    first = work.waiting[0]
    if first.turn >= work.stopped:
        return []
    if work.so_far:
        return [first]
    if work.superseded:
        return []
    return [message for message in work.waiting if message.turn < work.stopped]
