"""One turn from the inbox row to the finished reply: the agent runner between two durable ends.

Every step is journaled before the next one; what a crash leaves behind is enough to go on from. However a turn goes, it
is finished with a reply, a recorded silence, or a sentence that says what went wrong: never with nothing.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import structlog

from agents import sentences
from agents.turn import Emit, OverBudget
from channels.abilities import Progress, ShowsProgress
from gateway import pairing
from gateway.answering import AgentRun
from gateway.batch import Batch, batch_of, stopped_of
from gateway.budgets import Account, account_of
from gateway.commands.catalog import run
from gateway.drafts import Draft, draft_of
from gateway.journal import Ending, entry, stopped
from gateway.pairing import REQUESTED
from gateway.queue import Inbound, inbound_json, inbound_of
from gateway.reply import reply
from gateway.routing import conversation, is_control
from gateway.runtime import Drained, Gate, Runtime, Stopped
from gateway.store.contacts import APPROVED
from gateway.store.records import Delivery, Entry, Lease, Mark, Part, Waiting, Work
from gateway.store.store import Fenced, StoreUnavailable
from gateway.watch import Watch

ATTEMPTS_MAX = 3
"""A message whose turn has brought its process down this often is closed with an apology."""

log = structlog.get_logger()


class Turns:
    """Runs the messages of every lane. Each method but the first finishes a turn durably and returns its reply parts."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._gate = Gate()

    def wait_seconds(self, lease: Lease, work: Work, *, during_turn: bool) -> float:
        """How long to wait for more messages. `during_turn`: these arrived while one ran; then the chat has been quiet for a
        moment before they are answered. A part of something waits for the rest of it, a turn that has begun for nothing."""
        last = inbound_of(work.waiting[-1].body)
        if work.so_far or not (during_turn or last.context.more):
            return 0.0
        queue, now = self._runtime.queue(lease.sid, last.agent, last.context), self._runtime.now()
        hold = queue.hold(last.context, work.waiting, now)
        return max(hold, queue.debounce(work.waiting, now)) if during_turn else hold

    async def run(self, lease: Lease, work: Work) -> Sequence[Part]:
        """Finish the work's first turn. Raises Fenced, Drained, Stopped or StoreUnavailable where it is not this run
        that does."""
        begun = bool(work.so_far)
        if concerned := stopped_of(work):
            ending = stopped(work.stopped, begun=begun)
            return await self._end_all(lease, concerned, ending, begun=work if begun else None)
        if not begun and (recalled := [it for it in work.waiting if inbound_of(it.body).recalled]):
            return await self._end_all(lease, recalled, Ending(outcome="recalled", text=None))
        batch = batch_of(self._runtime, lease, work)
        with (
            self._runtime.using(batch.setup),
            structlog.contextvars.bound_contextvars(turn=batch.turn, session=lease.sid, agent=batch.inbound.agent),
            self._traced(batch) as emit,
            self._watch(batch, draft := await draft_of(self._runtime, batch), emit) as watch,
        ):
            began = self._runtime.now()
            async with draft or nullcontext():
                ending = await self._ending(batch, watch.tell)
            replaces = draft.handle if draft else None
            parts = await self._finish(lease, batch.turn, batch.inbound, ending, began, replaces or None)
            watch.outcome = ending.outcome
            if self._runtime.tracing:
                self._runtime.tracing.ended(batch.turn, ending.outcome, ending.reason)
            return parts

    def _traced(self, batch: Batch) -> AbstractContextManager[Emit]:
        tracing, emit = self._runtime.tracing, self._runtime.emit
        return tracing.turn(batch.inbound.agent, batch.lease.sid, batch.turn, emit) if tracing else nullcontext(emit)

    def _watch(self, batch: Batch, draft: Draft | None, emit: Emit) -> Watch:
        """Shows the turn while it runs to the people in its chat, where the channel can."""
        context = batch.inbound.context
        channel = batch.setup.channel(context)
        shows: list[Callable[[Progress], None]] = [draft.show] if draft else []
        if isinstance(channel, ShowsProgress) and not is_control(batch.lease.sid):
            shows.append(channel.show)
        resumed = bool(batch.work.so_far) or batch.messages[-1].attempts > 0
        return Watch(shows, context, emit, self._runtime.scrubber, resumed=resumed)

    async def end_stopped(self, lease: Lease, work: Work) -> Sequence[Part]:
        """End what was begun, silently: the stop's own reply says so. What was not begun is loaded anew."""
        if not (now := await self._begun(lease)):
            return []
        parts = await self._end_all(lease, now.waiting, stopped(now.stopped, begun=True), begun=now)
        context = inbound_of(now.waiting[0].body).context
        channel = self._runtime.setup.channel(context)
        if isinstance(channel, ShowsProgress):
            channel.show(Progress(context=context, outcome="stopped"))
        return parts

    async def end_stuck(self, lease: Lease, work: Work) -> Sequence[Part]:
        """End with an apology what would not end by itself."""
        work = await self._begun(lease) or work
        text = sentences.internal_error(inbound_of(work.waiting[0].body).context.text)
        ending = Ending(outcome="failed", reason="stuck", text=text, dead=True)
        return await self._end_all(lease, work.waiting[:1], ending, begun=work)

    async def _begun(self, lease: Lease) -> Work | None:
        """The message whose turn has begun, as the journal has it, alone."""
        work = (await self._store.load(lease, history_turns=1, waiting_max=1)).work
        return work if work is not None and work.so_far else None

    async def _ending(self, batch: Batch, emit: Emit) -> Ending:
        """With what it cost. Our own fault becomes a sentence to the user."""
        inbound, work = batch.inbound, batch.work
        text = inbound.context.text
        account = account_of(self._runtime, batch.setup.config, inbound.agent, inbound.context, turn=batch.turn)
        if account and work.made:
            account.take_up(work.made.answers, counted=work.steps > work.made.steps)
        attempt, resumed = batch.messages[-1].attempts + 1, bool(work.so_far)
        spoken = {"text": text} if batch.setup.config.logging.content else {}
        log.info("turn_started", attempt=attempt, resumed=resumed, messages=len(batch.messages), **spoken)
        try:
            if is_control(batch.lease.sid):
                ending = await self._control(batch, account)
            else:
                ending = await self._agent(batch, emit, account)
            if account and ending.outcome == "replied" and not inbound.asked:
                ending = replace(ending, notes=(*ending.notes, *await account.warnings(text)))
        except (Fenced, Drained, Stopped, StoreUnavailable):
            raise
        except Exception as error:  # the worker's edge
            log.error("turn_failed", exc_info=error)
            ending = Ending(outcome="failed", reason="internal", text=sentences.internal_error(text), dead=True)
        if account and is_control(batch.lease.sid):
            account.answers += ending.answers
        return replace(ending, spent=account.spent()) if account else ending

    async def _agent(self, batch: Batch, emit: Emit, account: Account | None) -> Ending:
        """The agent's answer, unless it is not asked."""
        inbound, context = batch.inbound, batch.inbound.context
        if max(waiting.attempts for waiting in batch.messages) >= ATTEMPTS_MAX:
            return Ending(outcome="failed", reason="attempts", text=sentences.gave_up(context.text), dead=True)
        runner, channel = batch.setup.runners.get(inbound.agent), batch.setup.channel(context)
        if runner is None or channel is None:
            return Ending(outcome="failed", reason="not configured", text=sentences.unknown_agent(context.text))
        late = batch.queue.lateness(context, batch.messages[-1].at, self._runtime.now())
        if late is not None and batch.queue.stale == "drop":
            return Ending(outcome="stale", reason=f"{late:.0f} s late", text=None)
        if account and not batch.work.so_far and (spent := await account.refusal()):
            return await self._refuse(batch, spent)
        if not batch.work.so_far and batch.is_over():
            batch = replace(batch, work=await self._begin_anew(batch))
        ending = await AgentRun(
            runtime=self._runtime, batch=batch, channel=channel, runner=runner, account=account, gate=self._gate
        ).ending(emit)
        if late is not None and batch.queue.stale == "label" and ending.text is not None:
            return replace(ending, text=f"{sentences.late(late, context.text)}\n\n{ending.text}")
        return ending

    async def _refuse(self, batch: Batch, spent: OverBudget) -> Ending:
        """One sentence for all messages of the batch that it concerns; others of a chat stay for a turn of their own."""
        sender = batch.inbound.context.sender.id
        concerned = [
            message
            for message in batch.messages[:-1]
            if spent.whose != "sender" or inbound_of(message.body).context.sender.id == sender
        ]
        await self._end_all(batch.lease, concerned, Ending(outcome="over-budget", reason=spent.whose, text=None))
        text = sentences.over_budget(spent, batch.inbound.context.text)
        return Ending(outcome="over-budget", reason=spent.whose, text=text)

    async def _begin_anew(self, batch: Batch) -> Work:
        """End the session behind its last turn; what was chosen since then, such as a model, holds."""
        sid, ended = batch.lease.sid, batch.work.history[-1].turn
        await self._runtime.choices.choose_queue(sid, "", turn=ended, at=self._runtime.now())
        await self._store.mark(sid, Mark(turn=ended, kind="new", at=self._runtime.now()))
        log.info("session_begun_anew", ended=ended)
        return await self._store.conversation(sid, before=batch.turn, history_turns=1, waiting_max=1)

    async def _control(self, batch: Batch, account: Account | None) -> Ending:
        """The answer to a command, or the note that too many messages wait."""
        inbound = batch.inbound
        if inbound.command is None:
            return await self._note(batch)
        if inbound.command in (REQUESTED, APPROVED):
            return await pairing.ending(self._runtime, batch.turn, inbound)
        if inbound.command == "compact" and account and (spent := await account.refusal()):
            return await self._refuse(batch, spent)
        return await run(self._runtime, conversation(batch.lease.sid), batch.turn, inbound)

    async def _note(self, batch: Batch) -> Ending:
        """Why the message is not answered: too many wait, or come."""
        text, rates = batch.inbound.context.text, batch.setup.config.rates.by_whom
        beyond = await self._store.beyond(batch.turn, {it: rate.count for it, rate in rates.items()}) if rates else None
        if beyond is None:
            return Ending(outcome="too-many", text=sentences.too_many(text))
        whose, oldest = beyond
        seconds = oldest + rates[whose].seconds - self._runtime.now()
        return Ending(outcome="too-fast", reason=whose, text=sentences.too_fast(whose, seconds, text))

    async def _end_all(
        self, lease: Lease, messages: Sequence[Waiting], ending: Ending, *, begun: Work | None = None
    ) -> Sequence[Part]:
        """`begun`: the one message's turn so far. An unfinished answer may stand there, which is taken away."""
        parts: list[Part] = []
        for message in messages:
            opened = await self._store.draft(lease.sid, message.turn) if begun else None
            inbound, now = inbound_of(message.body), self._runtime.now()
            if begun:
                await self._keep_others(lease, message.turn)
                ending = self._with_bill(ending, inbound, begun)
            parts += await self._finish(lease, message.turn, inbound, ending, now, opened)
        return parts

    async def _keep_others(self, lease: Lease, turn: int) -> None:
        """Where a recalled message ends the turn that answers others as well, they get one of their own."""
        together = [inbound_of(body) for body in (await self._store.bodies(lease.sid, turn)).values()]
        others = [it for it in together if not it.recalled]
        if len(others) in (0, len(together)):
            return
        contexts = tuple(context for it in others for context in it.contexts)
        inbound = replace(
            others[-1], context=contexts[-1], together=contexts if len(contexts) > 1 else (), replays=turn
        )
        delivery = Delivery(
            sid=lease.sid,
            dedupe=(f"{inbound.context.channel}:{inbound.context.account}:recalled:{turn}",),
            body=inbound_json.dump_json(inbound).decode(),
            at=self._runtime.now(),
            internal=True,
        )
        await self._runtime.accept(delivery)

    def _with_bill(self, ending: Ending, inbound: Inbound, work: Work) -> Ending:
        """With what the turn's summary took, which is still to be counted where no step was journaled behind it."""
        if (made := work.made) is None:
            return ending
        account = account_of(self._runtime, self._runtime.setup.config, inbound.agent, inbound.context, turn=made.by)
        if account:
            account.take_up(made.answers, counted=work.steps > made.steps)
        return replace(ending, answers=made.answers, spent=account.spent() if account else None)

    async def _finish(
        self, lease: Lease, turn: int, inbound: Inbound, ending: Ending, began: float, replaces: str | None
    ) -> Sequence[Part]:
        """`replaces`: the handle of the unfinished answer."""
        seconds, aside = self._runtime.now() - began, is_control(lease.sid)
        parts = await reply(self._runtime, inbound, ending, turn=turn, aside=aside, seconds=seconds, replaces=replaces)
        at = self._runtime.now()
        final = Entry(turn=turn, kind="final", content=ending.record(len(parts), at), spent=ending.spent)
        entries = [entry(turn, ending.message), final] if ending.message else [final]
        queued = await self._store.finish(lease, entries, parts, at=at, dead=ending.dead)
        self._report(turn, inbound.agent, ending, self._runtime.now() - began)
        return queued

    def _report(self, turn: int, agent: str, ending: Ending, seconds: float) -> None:
        """To the log and the metrics."""
        metrics = self._runtime.metrics
        metrics.turns.labels(agent, ending.outcome).inc()
        metrics.turn_seconds.observe(seconds)
        for answer in ending.answers:
            metrics.count_request(answer)
        for result in ending.results:
            metrics.count_tool(result)
        if ending.outcome == "failed":
            metrics.failures.labels(ending.reason).inc()
        if ending.dead:
            metrics.dead.labels("message").inc()
        spoken = {"reply": ending.shown} if self._runtime.setup.config.logging.content else {}
        log.info(
            "turn_finished",
            turn=turn,
            outcome=ending.outcome,
            reason=ending.reason,
            seconds=round(seconds, 3),
            models=[*dict.fromkeys(answer.reference for answer in ending.answers)],
            tools=[result.tool[:64] + (" failed" if result.is_error else "") for result in ending.results],
            **spoken,
            **ending.bill(),
        )
