"""One turn from the inbox row to the finished reply: the agent runner between two durable ends.

Every step is journaled before the next one; what a crash leaves behind is enough to go on from. However a turn goes, it
is finished with a reply, a recorded silence, or a sentence that says what went wrong: never with nothing.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import structlog

from agents import sentences
from agents.messages import Message, ToolResultMessage, UserMessage, message_json
from agents.prompt.inbound import HEARD, ids
from agents.prompt.internals import without_internals
from agents.runner import AgentRunner
from agents.turn import Emit, OverBudget, Turn, settings_json
from channels.channel import Channel, Progress, ShowsDrafts, ShowsProgress
from channels.message import File, MessageContext, StoredFile
from gateway import pairing
from gateway.approvals.gate import TurnGate, opening
from gateway.attachments import Attachments
from gateway.batch import Batch, batch_of, stopped_of
from gateway.budgets import Account, account_of
from gateway.commands.approve import NOTICES
from gateway.commands.catalog import run
from gateway.commands.settings import above
from gateway.drafts import Draft
from gateway.journal import Ending, TurnJournal, ending_of, entry, stopped
from gateway.memory import StoredMemory
from gateway.outbox import arranged, reply_parts
from gateway.pairing import REQUESTED
from gateway.queue import Inbound, inbound_of
from gateway.routing import conversation, is_control, is_operator, is_with_owner
from gateway.runtime import Drained, Gate, Runtime, Stopped
from gateway.store.approvals import Approval
from gateway.store.contacts import APPROVED
from gateway.store.records import Entry, Lease, Mark, Part, Summary, Waiting, Work
from gateway.store.store import Fenced, StoreUnavailable
from gateway.watch import Watch
from tools.memory import Note

ATTEMPTS_MAX = 3
"""A message whose turn has brought its process down this often is closed with an apology."""

DRAFT_SECONDS_MAX = 3.0

log = structlog.get_logger()


class Turns:
    """Runs the messages of every lane."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._attachments = Attachments(runtime)
        self._memory = StoredMemory(runtime.store)
        self._gate = Gate()

    def wait_seconds(self, lease: Lease, work: Work, *, during_turn: bool) -> float:
        """What is collected during a turn waits until the chat has been quiet for a moment, and a part of something
        for the rest of it; a turn that has begun waits for nothing."""
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
        inbound = batch.inbound
        with (
            self._runtime.using(batch.setup),
            structlog.contextvars.bound_contextvars(turn=batch.turn, session=lease.sid, agent=inbound.agent),
            self._traced(batch) as emit,
            self._watch(batch, draft := await self._draft(batch), emit) as watch,
        ):
            began = self._runtime.now()
            context = inbound.context
            account = account_of(self._runtime, batch.setup.config, inbound.agent, context, turn=batch.turn)
            if account and (made := batch.work.made):
                account.take_up(made.answers, counted=batch.work.steps > made.steps)
            attempt = batch.messages[-1].attempts + 1
            spoken = {"text": context.text} if batch.setup.config.logging.content else {}
            log.info("turn_started", attempt=attempt, resumed=bool(work.so_far), messages=len(batch.messages), **spoken)
            try:
                ending = await self._ending(batch, watch.tell, account)
                if account and ending.outcome == "replied" and not inbound.asked:
                    ending = replace(ending, notes=(*ending.notes, *await account.warnings(context.text)))
            except asyncio.CancelledError:
                if draft:
                    draft.cancel()
                raise
            except (Fenced, Drained, Stopped, StoreUnavailable):
                if draft:
                    await draft.settle()
                raise
            except Exception as error:  # the worker's edge: our own fault becomes a sentence to the user
                log.error("turn_failed", exc_info=error)
                text = sentences.internal_error(context.text)
                ending = Ending(outcome="failed", reason="internal", text=text, dead=True)
            if account and is_control(lease.sid):
                account.answers += ending.answers
            ending = replace(ending, spent=account.spent()) if account else ending
            replaces = await draft.settle() if draft else None
            parts = await self._finish(lease, batch.turn, inbound, ending, began, replaces)
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
        channel = batch.setup.channels.get((context.channel, context.account))
        shows: list[Callable[[Progress], None]] = [draft.show] if draft else []
        if isinstance(channel, ShowsProgress) and not is_control(batch.lease.sid):
            shows.append(channel.show)
        resumed = bool(batch.work.so_far) or batch.messages[-1].attempts > 0
        return Watch(shows, context, emit, self._runtime.scrubber, resumed=resumed)

    async def _draft(self, batch: Batch) -> Draft | None:
        """The answer as it grows, where the chat is to see it; after a crash the one that was begun."""
        context = batch.inbound.context
        channel = batch.setup.channels.get((context.channel, context.account))
        if not isinstance(channel, ShowsDrafts) or is_control(batch.lease.sid):
            return None
        opened = await self._store.draft(batch.lease.sid, batch.turn) if batch.work.so_far else None
        seconds = channel.draft_seconds(context)
        if seconds is None and opened is None:
            return None
        return Draft(
            runtime=self._runtime,
            channel=channel,
            context=context,
            sid=batch.lease.sid,
            turn=batch.turn,
            seconds=seconds or DRAFT_SECONDS_MAX,
            whole=seconds is None or channel.draft_is_whole(context),
            handle=opened,
        )

    async def end_stopped(self, lease: Lease, work: Work) -> Sequence[Part]:
        """End what was begun, silently: the stop's own reply says so. What was not begun is loaded anew."""
        if not (now := await self._begun(lease)):
            return []
        parts = await self._end_all(lease, now.waiting, stopped(now.stopped, begun=True), begun=now)
        context = inbound_of(now.waiting[0].body).context
        channel = self._runtime.setup.channels.get((context.channel, context.account))
        if isinstance(channel, ShowsProgress):
            channel.show(Progress(context=context, outcome="stopped"))
        return parts

    async def end_stuck(self, lease: Lease, work: Work) -> Sequence[Part]:
        work = await self._begun(lease) or work
        text = sentences.internal_error(inbound_of(work.waiting[0].body).context.text)
        ending = Ending(outcome="failed", reason="stuck", text=text, dead=True)
        return await self._end_all(lease, work.waiting[:1], ending, begun=work)

    async def _begun(self, lease: Lease) -> Work | None:
        """The message whose turn has begun, as the journal has it, alone."""
        work = (await self._store.load(lease, history_turns=1, waiting_max=1)).work
        return work if work is not None and work.so_far else None

    async def _ending(self, batch: Batch, emit: Emit, account: Account | None) -> Ending:
        inbound = batch.inbound
        context = inbound.context
        if is_control(batch.lease.sid):
            return await self._control(batch, account)
        if max(waiting.attempts for waiting in batch.messages) >= ATTEMPTS_MAX:
            return Ending(outcome="failed", reason="attempts", text=sentences.gave_up(context.text), dead=True)
        runner = batch.setup.runners.get(inbound.agent)
        channel = batch.setup.channels.get((context.channel, context.account))
        if runner is None or channel is None:
            return Ending(outcome="failed", reason="not configured", text=sentences.unknown_agent(context.text))
        queue = batch.queue
        late = queue.lateness(context, batch.messages[-1].at, self._runtime.now())
        if late is not None and queue.stale == "drop":
            return Ending(outcome="stale", reason=f"{late:.0f} s late", text=None)
        if account and not batch.work.so_far and (spent := await account.refusal()):
            return await self._refuse(batch, spent)
        ending = await self._answer(batch, channel, runner, emit, account)
        if late is not None and queue.stale == "label" and ending.text is not None:
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

    async def _answer(
        self, batch: Batch, channel: Channel, runner: AgentRunner, emit: Emit, account: Account | None
    ) -> Ending:
        context = batch.inbound.context
        met: list[UserMessage] = []

        async def user_message(
            *contexts: MessageContext, notes: Sequence[Note] = (), heard: Sequence[MessageContext] = ()
        ) -> UserMessage:
            fresh = [_with_new_files(it, work) for it in contexts]
            received = [await self._attachments.receive(runner, channel, it, batch.lease.sid) for it in fresh]
            met.append(runner.user_message(*contexts, received=received, notes=notes, heard=heard))
            return met[-1]

        work = batch.work
        if not work.so_far and batch.is_over():
            work = await self._begin_anew(batch)
        asked = batch.inbound.asked
        earlier = asked.turns(runner.limits.message_chars) if asked else []
        journal = TurnJournal(
            runtime=self._runtime,
            lease=batch.lease,
            turn=batch.turn,
            mode=batch.queue.mode,
            enrich=channel.enrich,
            user_message=user_message,
            takes=batch.takes,
            numbers=[*(0 for _ in earlier), *work.numbers],
            steps=work.steps,
            account=account,
        )
        journaled = [message_json.validate_json(row.content) for row in work.so_far if row.kind != "drained"]
        approvals = self._runtime.approvals
        decided = await approvals.get(batch.inbound.approval) if batch.inbound.approval else None
        if not journaled and decided is not None:
            journaled = [*opening(decided, context, self._runtime.now())]
            await journal.begin(*journaled, joined=())
        elif not journaled:
            written = (context for message in batch.messages for context in inbound_of(message.body).contexts)
            contexts = [await channel.enrich(it) for it in written]
            context = contexts[-1]
            notes = await self._memory.notes(batch.lease.sid, context) if work.has_notes else ()
            heard = await self._heard(batch, channel, context)
            journaled = [await user_message(*contexts, notes=notes, heard=heard)]
            await journal.begin(journaled[0], joined=[message.turn for message in batch.messages[:-1]])
        await self._gate.enter()
        user, *so_far = journaled
        if not isinstance(user, UserMessage):
            raise TypeError("a transcript's turn begins with its user message")
        turn = Turn(
            context=context,
            session=batch.lease.sid,
            capabilities=channel.capabilities.names,
            directives=channel.capabilities.directives,
            actions=channel.capabilities.actions,
            history=[*earlier, *work.turns] if earlier else work.turns,
            user=user,
            so_far=so_far,
            interrupted=bool(work.so_far) and work.so_far[-1].kind != "drained" and not _is_unspawned(decided, so_far),
            with_owner=is_with_owner(batch.setup.config.owners, context),
            layers=batch.layers,
            settings=settings_json.validate_json(work.settings),
            summary=work.summary.text,
            summarised=work.made.answers if work.made else None,
            again=tuple(filter(None, (str(batch.inbound.replays or ""), batch.inbound.approval))),
            tainted=bool(decided.tainted) if decided else HEARD in user.metadata,
            caller=asked.instructions if asked else "",
        )
        save = self._memory.saver(batch.lease.sid, context, turn=batch.turn, at=self._runtime.now())
        gate = TurnGate(approvals=approvals, runner=runner, session=batch.lease.sid, turn=batch.turn, decided=decided)
        result = await runner.run(turn, journal=journal, emit=emit, budget=account, save=save, gate=gate)
        if decided is not None:
            await approvals.close(decided.id)
        ending = ending_of(result.outcome, context.text)
        if ending.answers_to:
            here = {it for turn_ in (*work.turns, journaled, met) for message in turn_ for it in ids(message)}
            here |= {it.reply_to.message_id for it in batch.inbound.contexts if it.reply_to}
            is_here = "reply" in channel.capabilities.directives and ending.answers_to in here - {
                context.message_id,
                "",
            }
            ending = ending if is_here else replace(ending, answers_to=None)
        if ending.media and ending.text is not None:
            files, note = await self._attachments.send(runner, channel, turn, ending.media)
            ending = replace(ending, text=f"{ending.text}\n\n{note}".strip() if note else ending.text, files=files)
        if ending.text is not None and (turn.settings.reasoning or turn.settings.verbose):
            steps = [*so_far, *journal.kept, *([ending.message] if ending.message else [])]
            shown = map(without_internals, above(turn.settings, steps))
            ending = replace(ending, text="\n\n".join((*shown, ending.text)))
        is_for_people = ending.text is not None and not asked  # a program gets the agent's words alone
        shortened = sentences.compacted(result.compaction, context.text) if is_for_people else None
        fault = f"({ending.fault})" if ending.fault and is_operator(batch.setup.config, context) else None
        results = tuple(it for it in journal.kept if isinstance(it, ToolResultMessage))
        lines = tuple(it for it in (shortened, fault) if it)
        return replace(ending, answers=result.answers, results=results, notes=lines)

    async def _heard(self, batch: Batch, channel: Channel, context: MessageContext) -> Sequence[MessageContext]:
        """What the group said since the last answer, where its history is kept."""
        limit = channel.access.history_in(context.chat.id) if context.chat.kind == "group" else 0
        if not limit:
            return ()
        until = batch.messages[-1].at
        found = await self._store.chatter.since(batch.lease.sid, context, turn=batch.turn, until=until, limit=limit)
        return [await channel.enrich(it) for it in found]

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
            if begun and begun.made:
                ending = self._with_bill(ending, begun.made, inbound, begun)
            parts += await self._finish(lease, message.turn, inbound, ending, now, opened)
        return parts

    def _with_bill(self, ending: Ending, made: Summary, inbound: Inbound, work: Work) -> Ending:
        """With what the turn's summary took, which is still to be counted where no step was journaled behind it."""
        config = self._runtime.setup.config
        account = account_of(self._runtime, config, inbound.agent, inbound.context, turn=made.by)
        if account:
            account.take_up(made.answers, counted=work.steps > made.steps)
        return replace(ending, answers=made.answers, spent=account.spent() if account else None)

    async def _finish(
        self, lease: Lease, turn: int, inbound: Inbound, ending: Ending, began: float, replaces: str | None = None
    ) -> Sequence[Part]:
        """`replaces`: the handle of the unfinished answer."""
        context, metrics = inbound.context, self._runtime.metrics
        channel = self._runtime.setup.channels.get((context.channel, context.account))
        marked = ending.dropped and channel is not None and channel.capabilities.marks_dropped
        is_notice = inbound.command in NOTICES
        shown = None if marked else ending.shown
        texts, whole = await self._texts(channel, shown, context.text, is_notice=is_notice)
        messages = arranged([""] if marked else texts, (*whole, *ending.files), channel, captions=replaces is None)
        record = ending.record(len(messages), self._runtime.now())
        final = Entry(turn=turn, kind="final", content=record, spent=ending.spent)
        entries = [entry(turn, ending.message), final] if ending.message else [final]
        purpose = "aside" if is_control(lease.sid) else "dropped" if marked else "reply"
        shows_facts = purpose == "reply" and channel is not None and channel.capabilities.marks_dropped
        if is_notice or inbound.approval:
            purpose = f"{inbound.command or 'approval'} {inbound.arguments or inbound.approval or turn}"
        if inbound.replays:
            purpose = f"{purpose} {inbound.replays}"
        parts = reply_parts(
            context,
            messages,
            turn=ending.facts(self._runtime.now() - began) if shows_facts else None,
            voice=ending.voice,
            purpose=purpose,
            quotes=channel.capabilities.quotes_in(context) if channel else "all",
            dropped=marked,
            replaces=replaces or ending.replaces,
            seed=ending.seed,
            buttons=ending.buttons,
            answers_to=ending.answers_to,
        )
        queued = await self._store.finish(lease, entries, parts, at=self._runtime.now(), dead=ending.dead)
        seconds = self._runtime.now() - began
        metrics.turns.labels(inbound.agent, ending.outcome).inc()
        metrics.turn_seconds.observe(seconds)
        for answer in ending.answers:
            metrics.count_request(answer)
        for result in ending.results:
            metrics.count_tool(result)
        if ending.outcome == "failed":
            metrics.failures.labels(ending.reason).inc()
        spoken = {"reply": ending.shown} if self._runtime.setup.config.logging.content else {}
        if ending.dead:
            metrics.dead.labels("message").inc()
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
        return queued

    async def _texts(
        self, channel: Channel | None, text: str | None, request: str, *, is_notice: bool
    ) -> tuple[list[str], tuple[StoredFile, ...]]:
        """The reply in parts that its channel can carry; of too many the first, and the whole as a file. Where no files go,
        as many as may be. A notice is read whole."""
        if text is None or channel is None:
            return [], ()
        text, parts_max = self._runtime.scrubber.scrub(text), self._runtime.setup.limits.reply_parts
        texts = channel.split(text)
        if is_notice or len(texts) <= parts_max:
            return texts, ()
        if "media" not in channel.capabilities.directives:
            return [*texts[: parts_max - 1], sentences.cut_short(request)], ()
        note = f"{sentences.goes_on(request)}\n\n"
        first = channel.split(note + text)[0].removeprefix(note).rstrip()  # so the note behind it fits as well
        file = File(name="answer.md", type="text/markdown", data=text.encode(errors="replace"))
        kept = await self._store.archive.put(file, self._runtime.now())
        return [f"{first}\n\n{note.strip()}"], (kept,)


def _with_new_files(context: MessageContext, work: Work) -> MessageContext:
    """Without the files of a quoted message that the conversation holds, with its files."""
    quote = context.reply_to
    if quote is None or not quote.attachments:
        return context
    held = any(quote.message_id in ids(message) for turn in work.turns for message in turn)
    return replace(context, reply_to=replace(quote, attachments=())) if held else context


def _is_unspawned(decided: Approval | None, so_far: Sequence[Message]) -> bool:
    """Whether the turn has come as far as to the call that was decided, and that was not begun."""
    return decided is not None and decided.state != "spawned" and len(so_far) == 1
