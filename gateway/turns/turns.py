"""Run one turn from the inbox row to the finished reply: the agent runner between two durable ends.

Each step is journaled before the next one, so a crash leaves enough to continue. Every turn ends with a reply, a
recorded silence, or a sentence that says what went wrong.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TypeAlias

import structlog

from agents import sentences
from agents.config import AgentConfig
from agents.language import language_for
from agents.runner import AgentRunner
from agents.speech import speakable
from agents.turn import Emit, OverBudget
from channels.abilities import Progress, ShowsDrafts, ShowsProgress, can
from channels.channel import Channel
from channels.marks import NOTE
from gateway.approvals import pairing
from gateway.approvals.approvals import Approvals
from gateway.approvals.pairing import REMINDED, REQUESTED
from gateway.approvals.questions import Questions
from gateway.config.commands import asks_model
from gateway.outbox.outbox import AWAY_SECONDS
from gateway.outbox.reply import reply
from gateway.state.ending import Ending, Reply, lost_access
from gateway.state.queues import ATTEMPTS_MAX
from gateway.state.runtime import Drained, Runtime, StartGate, Stopped
from gateway.store.contacts import APPROVED
from gateway.store.errors import Fenced, Revised, StoreUnavailable
from gateway.store.inbound import REPORT, SAY, Inbound, inbound_of, is_readable
from gateway.store.records import Entry, Lease, OutboxPart, SessionMark, WaitingMessage, Work
from gateway.store.sessions import conversation, is_control, saying_session, task_of
from gateway.turns.answering import AgentRun, NothingLeft, labelled, say
from gateway.turns.batch import Batch, answer_others, asks_beside, batch_of, has_recalled, of_one_person, stopped_of
from gateway.turns.budgets import BudgetAccount, account_of
from gateway.turns.handovers import RELAYED_NOTE, Handover, Handovers
from gateway.turns.journal import entry, hand_over, stopped
from gateway.turns.layers import Layers
from gateway.turns.reports import report_command
from gateway.turns.tasks import Tasks
from gateway.turns.watch import TurnDraft, Watch, draft_of, task_status

log = structlog.get_logger()


RunCommand: TypeAlias = Callable[[str, int, Inbound], Awaitable[Ending]]
"""Run the command in a message, given its conversation, its turn number and the message."""
TakeEffect: TypeAlias = Callable[[str, int, Inbound], Awaitable[None]]
"""Apply the stop or decision in a message, without a reply. Idempotent."""


class Turns:
    """Run the messages of every lane. Methods that return parts finish a turn durably."""

    def __init__(
        self,
        runtime: Runtime,
        approvals: Approvals,
        tasks: Tasks,
        run_command: RunCommand,
        take_effect: TakeEffect,
    ) -> None:
        self._runtime = runtime
        self._tasks = tasks
        self._approvals = approvals
        self._questions = Questions()
        self._questions.serve(runtime, approvals)
        self._handovers = Handovers().serve(runtime)
        self._run_command = run_command
        self.take_effect = take_effect
        self._store = runtime.store
        self._layers = Layers(runtime)
        self._finish = Finish(runtime, self._layers, tasks)
        self._gate = StartGate()
        self.start = TurnStart(runtime, approvals)

    def is_awaited(self, sid: str) -> bool:
        """Return whether this is the conversation of a task that a running turn waits for."""
        return self._tasks.is_awaited(sid)

    async def run(self, lease: Lease, work: Work) -> Sequence[OutboxPart]:
        """Finish the first turn of the work. Raises Fenced, Drained, Stopped or StoreUnavailable if this run cannot."""
        if unreadable := [it for it in work.waiting if not is_readable(it.body)]:
            return await self._finish.unreadable(lease, unreadable)
        if (ended := await self._ended(lease, work)) is not None:
            return ended
        batch = batch_of(self._runtime, lease, work)
        await batch.setup.owners.claimed.verify(batch.inbound.context)
        if lane := self._runtime.control.lanes.get(lease.sid):
            lane.number = batch.turn
        if work.begun != batch.turn:
            await self._store.begun(lease, batch.turn)
        if batch.messages[0].attempts >= ATTEMPTS_MAX:
            return await self._give_up(batch)
        agent, tracing, emit = batch.inbound.agent, self._runtime.tracing, self._runtime.emit
        is_awaited = self.is_awaited(lease.sid)
        handover = None if is_control(lease.sid) else await self._handovers.of(lease.sid)
        with (
            self._runtime.using(batch.setup),
            structlog.contextvars.bound_contextvars(turn=batch.turn, session=lease.sid, agent=agent),
            tracing.turn(agent, lease.sid, batch.turn, emit) if tracing else nullcontext(emit) as emit,
            self._watch(
                batch,
                draft := None if handover else await draft_of(self._runtime, batch, awaited=is_awaited),
                self._layers.follow(batch, emit),
            ) as watch,
        ):
            began = self._runtime.now()
            async with draft or nullcontext():
                ending = await self._ending(batch, watch.tell, handover)
            opened = draft.handle or None if draft else None
            try:
                inbound = batch.inbound
                revision = None if inbound.command == REPORT else work.revision  # no stop keeps it back
                parts = await self._finish.one(lease, batch.turn, inbound, ending, began, opened, revision=revision)
            except Revised:
                self._layers.drop(batch.turn)
                if ending.answers or work.so_far:
                    await hand_over(self._runtime, lease, batch.turn, ending.spent)
                raise
            watch.outcome = ending.outcome
            if tracing:
                tracing.ended(batch.turn, ending.outcome, ending.reason)
            return parts

    def _watch(self, batch: Batch, draft: TurnDraft | None, emit: Emit) -> Watch:
        context = batch.inbound.context
        channel = batch.setup.channel(context)
        shows: list[Callable[[Progress], None]] = [draft.show] if draft else []
        sid = batch.lease.sid
        if can(channel, ShowsProgress) and not is_control(sid) and not batch.inbound.command:
            show = channel.show
            if task_of(sid) is None:
                shows.append(show)
            elif not can(channel, ShowsDrafts) and not self.is_awaited(sid):
                shows.append(lambda progress: show(task_status(progress)))
        resumed = bool(batch.work.so_far) or batch.messages[-1].attempts > 0
        return Watch(shows, context, emit, self._runtime.scrubber, resumed=resumed)

    async def end_stopped(self, lease: Lease, work: Work) -> Sequence[OutboxPart]:
        """End a begun turn silently; the stop command replies itself. Messages whose turn has not begun are loaded
        again."""
        return (await self._ended(lease, now) if (now := await self._begun(lease)) else None) or []

    async def _ended(self, lease: Lease, work: Work) -> Sequence[OutboxPart] | None:
        """End stopped and recalled messages before they run. Return None if there are none."""
        begun, first = work if work.so_far else None, work.waiting[0]
        recalled = begun is not None and await has_recalled(self._runtime, lease.sid, first.turn)
        if is_control(lease.sid):
            by = await self._store.stopped_at(conversation(lease.sid)) if asks_beside(first) else 0
            concerned: Sequence[WaitingMessage] = [first] if by > first.turn else []
        else:
            by, concerned = work.stopped, stopped_of(work)
        if was_stopped := bool(concerned):
            ending = stopped(by, begun=begun is not None)
        else:
            concerned = [it for it in work.waiting if inbound_of(it.body).recalled] if begun is None else []
            concerned = [first] if recalled else concerned
            ending = Ending(outcome="recalled")
        if not concerned:
            return None
        if recalled and not was_stopped:
            await answer_others(self._runtime, lease.sid, first.turn)
        if recalled:
            await self._store.changes.wipe(lease.sid, first.turn, self._runtime.now(), ended=False)
        parts = await self._finish.all(lease, concerned, ending, begun=begun)
        if begun:
            # The message may be recalled after the check above. That recall saw a running turn and left the wipe to us.
            if await has_recalled(self._runtime, lease.sid, first.turn):
                await self._store.changes.wipe(lease.sid, first.turn, self._runtime.now(), ended=True)
            self._show(Progress(context=inbound_of(first.body).context, outcome="stopped"))
        return parts

    async def _give_up(self, batch: Batch) -> Sequence[OutboxPart]:
        context, work = batch.inbound.context, batch.work
        ending = _apology("attempts", sentences.gave_up(language_for(context)))
        parts = await self._finish.all(batch.lease, batch.messages, ending, begun=work if work.so_far else None)
        self._show(Progress(context=context, outcome=ending.outcome, resumed=True))
        return parts

    def _show(self, end: Progress) -> None:
        channel = self._runtime.setup.channel(end.context)
        if can(channel, ShowsProgress):
            channel.show(end)

    async def end_stuck(self, lease: Lease, work: Work) -> Sequence[OutboxPart]:
        """Force-finish a turn that ignored cancellation and reply with an error."""
        work = await self._begun(lease) or work
        text = sentences.internal_error(language_for(inbound_of(work.waiting[0].body).context))
        return await self._finish.all(lease, work.waiting[:1], _apology("stuck", text), begun=work)

    async def _begun(self, lease: Lease) -> Work | None:
        """Load only the message of the turn that has begun."""
        work = (await self._store.load(lease, history_turns=1, waiting_max=1)).work
        return work if work is not None and work.so_far else None

    async def _ending(self, batch: Batch, emit: Emit, handover: Handover | None) -> Ending:
        """Return the turn's ending and its cost. An internal error becomes a sentence for the user."""
        inbound, work = batch.inbound, batch.work
        language = language_for(inbound.context)
        account = account_of(self._runtime, batch.setup.config, inbound.agent, inbound.context, turn=batch.turn)
        if account and work.made:
            account.add_earlier(work.made.answers, counted=work.steps > work.made.steps)
        attempt, resumed = batch.messages[-1].attempts + 1, bool(work.so_far)
        spoken = {"text": inbound.context.text} if batch.setup.config.logging.content else {}
        log.info("turn_started", attempt=attempt, resumed=resumed, messages=len(batch.messages), **spoken)
        try:
            if inbound.command == SAY:
                ending = await say(self._runtime, batch)
            elif inbound.command == REPORT:
                ending = await self._report(batch)
                ending = replace(ending, reply=Reply()) if handover else ending
            elif is_control(batch.lease.sid):
                ending = await self._control(batch, account)
            else:
                ending = await self._agent(batch, emit, account, handover)
            if account and ending.outcome == "replied" and not inbound.asked:
                ending = ending.saying(notes=(*ending.reply.notes, *await account.warnings(language)))
        except (Fenced, Drained, Stopped, StoreUnavailable):
            raise
        except Exception as error:  # the worker's edge
            log.error("turn_failed", exc_info=error)
            ending = _apology("internal", sentences.internal_error(language))
        if account and is_control(batch.lease.sid):
            account.answers += ending.answers
        return replace(ending, spent=account.spent(besides=ending.speech_cost)) if account else ending

    async def _agent(
        self, batch: Batch, emit: Emit, account: BudgetAccount | None, handover: Handover | None
    ) -> Ending:
        inbound, context = batch.inbound, batch.inbound.context
        runner, channel = batch.setup.runners.get(inbound.agent), batch.setup.channel(context)
        if runner is None or channel is None:
            text = sentences.unknown_agent(language_for(context))
            return Ending(outcome="failed", reply=Reply(text=text), reason="not configured")
        if reason := await self._runtime.refusal(context, inbound.agent):
            lost = lost_access(reason, context)
            return Ending(outcome="failed" if lost else "refused", reply=Reply(text=lost), reason=reason)
        if handover:
            return await self._relayed(batch, channel, runner, handover)
        origin, now = context.origin, self._runtime.now()
        late = None if origin else batch.queue.lateness(context, batch.messages[-1].at, now)
        if late is not None and batch.queue.stale == "drop":
            return Ending(outcome="stale", reason=f"{late:.0f} s late")
        if account and not batch.work.so_far and (spent := await account.refusal()):
            return await self._refuse(batch, spent)
        if await self._answers(batch):
            ending = Ending(outcome="answered")
            await self._finish.all(batch.lease, batch.messages[:-1], ending)
            return ending
        if not batch.work.so_far and context.branch != "begins" and batch.is_over():
            batch = replace(batch, work=await self._begin_anew(batch))
        run = AgentRun(
            runtime=self._runtime,
            approvals=self._approvals,
            batch=batch,
            channel=channel,
            runner=runner,
            account=account,
            gate=self._gate,
        )
        try:
            ending = await run.ending(emit)
        except NothingLeft:
            ending = Ending(outcome="recalled")
            await self._finish.all(batch.lease, batch.messages[:-1], ending)
            return ending
        if await self._handovers.of(batch.lease.sid):  # by this turn, or beside it
            return replace(ending, outcome="handed-over", reply=Reply(), message=None)
        ending = with_speech(runner.config, batch, channel, ending)
        if late is not None and batch.queue.stale == "label" and ending.reply.text is not None:
            return ending.saying(text=f"{sentences.late(late, language_for(context))}\n\n{ending.reply.text}")
        return labelled(batch, ending)

    async def _relayed(self, batch: Batch, channel: Channel, runner: AgentRunner, handover: Handover) -> Ending:
        """Relay the messages of people to the colleague who has the chat, and keep them. What no person has written now
        begins nothing."""
        inbound, is_begun = batch.inbound, bool(batch.work.so_far)
        ending = Ending(outcome="handed-over")
        if inbound.approval:
            await self._approvals.close(inbound.approval)
        if inbound.approval or inbound.context.origin:
            return ending
        for message in batch.messages:
            if message.turn > handover.number or not is_begun:  # the notice shows an earlier one that had begun
                context = await channel.enrich(inbound_of(message.body).context)
                await self._handovers.relay(handover, message.turn, context, channel)
        run = AgentRun(
            runtime=self._runtime,
            approvals=self._approvals,
            batch=batch,
            channel=channel,
            runner=runner,
            account=None,
            gate=self._gate,
            note=f"{NOTE} {RELAYED_NOTE}",
        )
        try:
            await run.keep()
        except NothingLeft:
            await self._finish.all(batch.lease, batch.messages[:-1], ending)
        return ending

    async def _answers(self, batch: Batch) -> bool:
        """Return True if the messages answer the question that is open in the conversation."""
        inbound, work = batch.inbound, batch.work
        if not work.has_question or work.so_far or inbound.approval or inbound.context.origin or inbound.asked:
            return False
        return await self._questions.typed(batch.lease.sid, batch.turn, batch.contexts)

    async def _report(self, batch: Batch) -> Ending:
        """Return the report on a task or background command, unless its reader has lost access."""
        context = batch.inbound.context
        if reason := await self._runtime.refusal(context, batch.inbound.agent):
            return Ending(outcome="reported", reply=Reply(text=lost_access(reason, context)), reason=reason)
        is_task = context.origin is None or context.origin.kind == "result"
        return await (self._tasks.report(batch) if is_task else report_command(self._runtime, batch))

    async def _refuse(self, batch: Batch, spent: OverBudget) -> Ending:
        ending = Ending(outcome="over-budget", reason=spent.whose)
        await self._finish.all(batch.lease, batch.messages[:-1], ending)
        return ending.saying(text=sentences.over_budget(spent, language_for(batch.inbound.context)))

    async def _begin_anew(self, batch: Batch) -> Work:
        """End the session after its last turn; later choices, such as a model, stay valid."""
        sid, ended = batch.lease.sid, batch.work.history[-1].turn
        await self._runtime.choices.choose_queue(sid, "", turn=ended, at=self._runtime.now())
        await self._store.mark(sid, SessionMark(turn=ended, kind="new", at=self._runtime.now()))
        log.info("session_begun_anew", ended=ended)
        fresh = await self._store.conversation(sid, before=batch.turn, history_turns=1, waiting_max=1)
        return replace(fresh, has_notes=batch.work.has_notes, stopped=batch.work.stopped)

    async def _control(self, batch: Batch, account: BudgetAccount | None) -> Ending:
        """Return the answer to a command, or the note that messages are too many or too fast."""
        inbound = batch.inbound
        if asks_model(inbound.command) and (note := await self._note(batch)):
            return note
        if inbound.command in (REQUESTED, REMINDED, APPROVED):
            return await pairing.ending(self._runtime, batch.turn, inbound)
        if inbound.command == "compact" and account and (spent := await account.refusal()):
            return await self._refuse(batch, spent)
        return await self._run_command(conversation(batch.lease.sid), batch.turn, inbound)

    async def _note(self, batch: Batch) -> Ending | None:
        """Return the note for a message over a limit: too many are waiting, or they arrive too fast. None for a
        command within the rates."""
        language, rates = language_for(batch.inbound.context), batch.setup.config.rates.by_whom
        limit = await self._store.rate_limit(batch.turn, rates) if rates else None
        if limit is None:
            too_many = Ending(outcome="too-many", reply=Reply(text=sentences.too_many(language)))
            return None if batch.inbound.command else too_many
        whose, oldest = limit
        seconds = min(oldest - self._runtime.now(), 0.0) + rates[whose].seconds
        return Ending(outcome="too-fast", reply=Reply(text=sentences.too_fast(whose, seconds, language)), reason=whose)


def with_speech(config: AgentConfig, batch: Batch, channel: Channel, ending: Ending) -> Ending:
    """Return the ending with what a voice message is to speak after the text, and its price."""
    speech = config.speech.over(batch.setup.config.speech)
    is_wanted = speech.mode == "always" or (
        speech.mode == "mirror" and any(file.kind == "audio" for it in batch.contexts for file in it.attachments)
    )
    reply, is_elsewhere = ending.reply, batch.inbound.asked or task_of(batch.lease.sid)
    if not is_wanted or ending.outcome != "replied" or not reply.text or reply.voice or is_elsewhere:
        return ending
    if "media" not in channel.capabilities.directives or not (spoken := speakable(reply.text, speech.max_chars)):
        return ending
    return replace(ending.saying(spoken=spoken), speech_cost=speech.cost(spoken))


def _apology(reason: str, text: str) -> Ending:
    return Ending(outcome="failed", reply=Reply(text=text), reason=reason, dead=True)


class TurnStart:
    def __init__(self, runtime: Runtime, approvals: Approvals) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._approvals = approvals

    def wait_seconds(self, lease: Lease, work: Work, *, during_turn: bool, waited: bool) -> float:
        """Return how many seconds to wait for more messages. `during_turn`: they arrived while a turn ran, so they
        are debounced. A message with `more` parts waits for the rest. A begun turn does not wait, and messages of
        other senders are not waited for. `waited` means that this message was already debounced."""
        if self.is_away(work):
            return AWAY_SECONDS
        if (
            waited
            or work.so_far
            or not all(is_readable(it.body) for it in work.waiting)
            or of_one_person(work.waiting) != list(work.waiting)
        ):
            return 0.0
        last = inbound_of(work.waiting[-1].body)
        if not (during_turn or last.context.more):
            return 0.0
        queue, now = self._runtime.queue(lease.sid, last.agent, last.context), self._runtime.now()
        hold = queue.hold(last.context, work.waiting, now)
        return max(hold, queue.debounce(work.waiting, now)) if during_turn else hold

    async def leaves_out_branches(self, sid: str, work: Work) -> bool:
        """Mark the turns on other branches of the conversation so that the next turn skips them. Return True if the
        work must be loaded again."""
        first = work.waiting[0]
        if work.so_far or not is_readable(first.body):
            return False
        context = inbound_of(first.body).context
        if not context.branch and context.origin is None:  # one that comes later may have been asked for before
            return False
        # Cancel approvals requested on another branch: they do not apply here.
        if context.branch == "begins" and context.origin is None and not is_control(sid):
            await self._approvals.cancel(sid, first.turn)
        return await self._store.branches.leave_out(conversation(sid), first.turn, context)

    def is_away(self, work: Work) -> bool:
        """Return whether the config lacks the message's account now: an edit may have removed it briefly."""
        setup, first = self._runtime.setup, work.waiting[0]
        if not is_readable(first.body) or setup.channel(inbound_of(first.body).context):
            return False
        return self._runtime.now() - first.at < setup.limits.delivery_seconds


class Finish:
    """End messages durably; each method returns the parts to send."""

    def __init__(self, runtime: Runtime, layers: Layers, tasks: Tasks) -> None:
        self._runtime = runtime
        self._layers = layers
        self._tasks = tasks
        self._store = runtime.store

    async def one(
        self,
        lease: Lease,
        turn: int,
        inbound: Inbound,
        ending: Ending,
        began: float,
        replaces: str | None,
        *,
        revision: int | None = None,
    ) -> Sequence[OutboxPart]:
        """Finish one message. `replaces`: the handle of its draft. `revision`: the conversation's revision that the
        answer is based on."""
        seconds, aside = self._runtime.now() - began, is_control(lease.sid)
        shown, task = ending, None
        if task_of(lease.sid):  # its words go into a report, or wait for a decision
            task = await self._tasks.end_of(lease.sid, turn, ending)
            shown = replace(ending, reply=Reply())
        parts = await reply(self._runtime, inbound, shown, turn=turn, aside=aside, seconds=seconds, replaces=replaces)
        at = self._runtime.now()
        final = Entry(turn=turn, kind="final", content=ending.record(len(parts), at), spent=ending.spent)
        entries = [entry(turn, ending.message), final] if ending.message else [final]
        layers = self._layers.row(lease.sid, turn, inbound, ending, at)
        # A reminder is a turn of the conversation. Its unsent message must not block that conversation.
        beside = saying_session(lease.sid) if inbound.command == SAY and not aside else None
        queued = await self._store.finish(
            lease, entries, parts, at=at, dead=ending.dead, revision=revision, layers=layers, task=task, beside=beside
        )
        if task:
            self._tasks.committed(task)
        self._report(turn, inbound.agent, ending, self._runtime.now() - began)
        if beside:
            self._runtime.expect(beside)
            return []
        return queued

    async def all(
        self, lease: Lease, messages: Sequence[WaitingMessage], ending: Ending, *, begun: Work | None = None
    ) -> Sequence[OutboxPart]:
        """Finish several messages. `begun`: the turn so far of the only message, whose draft is removed."""
        parts: list[OutboxPart] = []
        for message in messages:
            opened = await self._store.draft(lease.sid, message.turn) if begun else None
            inbound, now = inbound_of(message.body), self._runtime.now()
            if begun:
                ending = self._with_bill(ending, inbound, begun)
            parts += await self.one(lease, message.turn, inbound, ending, now, opened)
        return parts

    async def unreadable(self, lease: Lease, messages: Sequence[WaitingMessage]) -> Sequence[OutboxPart]:
        """Close unreadable messages. Their sender is unreadable too, so no reply is sent. The operator may replay
        them."""
        for message in messages:
            at = self._runtime.now()
            ending = Ending(outcome="failed", reason="unreadable", dead=True)
            final = Entry(turn=message.turn, kind="final", content=ending.record(0, at))
            layers = self._layers.row(lease.sid, message.turn, None, ending, at)
            task = await self._tasks.end_of(lease.sid, message.turn, ending)
            await self._store.finish(lease, [final], [], at=at, dead=True, layers=layers, task=task)
            log.error("message_unreadable", turn=message.turn, session=lease.sid)
            self._runtime.metrics.dead.labels("message").inc()
            self._runtime.metrics.lose(message.turn)
        return []

    def _with_bill(self, ending: Ending, inbound: Inbound, work: Work) -> Ending:
        """Add the cost of the turn's summary, unless a later step has counted it."""
        if (made := work.made) is None:
            return ending
        account = account_of(self._runtime, self._runtime.setup.config, inbound.agent, inbound.context, turn=made.by)
        if account:
            account.add_earlier(made.answers, counted=work.steps > made.steps)
        return replace(ending, answers=made.answers, spent=account.spent() if account else None)

    def _report(self, turn: int, agent: str, ending: Ending, seconds: float) -> None:
        """Write the log line and update the metrics."""
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
            metrics.lose(turn)
        spoken = {"reply": ending.reply.shown} if self._runtime.setup.config.logging.content else {}
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
