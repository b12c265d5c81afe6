"""Run an agent once over a batch of messages: build its input, run it, and render the answer for the chat.

The run continues from the journal. It starts with user messages, or with a tool call that has been approved or denied.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from agents import sentences
from agents.attachments import Received, Untaken
from agents.language import language_for
from agents.messages import AssistantMessage, Message, Text, Thinking, ToolResultMessage, UserMessage, message_json
from agents.prompt.fences import harmless, speaker
from agents.prompt.inbound import SAID, Heard, capped, ids, own_note
from agents.prompt.reply import without_internals
from agents.runner import AgentRunner
from agents.turn import Emit, ModelFailed, Settings, Turn, TurnResult, settings_json
from channels.api.channel import ApiChannel
from channels.bilingual import Finding
from channels.channel import Channel
from channels.message import MessageContext, Origin, OriginKind
from channels.moment import timestamp
from gateway.approvals.approvals import Approvals
from gateway.approvals.gate import TurnGate, opening
from gateway.approvals.notices import Notices
from gateway.observe.secrets import redacted
from gateway.outbox.outbox import payload_json
from gateway.state.ending import Ending, Reply
from gateway.state.runtime import REFUSALS, Runtime, StartGate
from gateway.store.approvals import Approval
from gateway.store.inbound import inbound_of
from gateway.store.records import Spoken, WaitingMessage
from gateway.store.sessions import (
    agent_of,
    conversation,
    is_among_others,
    is_control,
    is_operator,
    is_with_owner,
    parent_of,
    person_of,
    task_of,
)
from gateway.store.statements import NEVER
from gateway.turns.attachments import Attachments
from gateway.turns.batch import Batch
from gateway.turns.budgets import BudgetAccount
from gateway.turns.handovers import said_by
from gateway.turns.journal import TurnJournal, copied, ending_of, entry
from gateway.turns.memory import StoredMemory
from gateway.turns.watch import about
from tools.memory import Note
from tools.tool import schedule_source

REASONING_CHARS_MAX = 4_000
CALL_CHARS_MAX = 100
OF_A_MESSAGE: Collection[OriginKind] = ("task", "result", "process", "login")
"""Origins whose turn belongs to the message that caused it: recalling that message recalls the turn as well."""
NOT_OF_TASKS = ("buttons", "poll")
"""Actions that a task does not get: a button press would arrive in a conversation that has ended."""


UNTAKEN_LINES_MAX = 3
"""Lines below an answer about files that could not be received."""


class NothingLeft(Exception):
    """Every message of the turn was recalled before its content could be read."""


@dataclass(kw_only=True)
class AgentRun:
    """One run. `gate` spaces out the starts of turns."""

    runtime: Runtime
    approvals: Approvals
    batch: Batch
    channel: Channel
    runner: AgentRunner
    account: BudgetAccount | None
    gate: StartGate
    note: str = ""
    """The gateway's line below each message."""
    _decided: Approval | None = None
    """The approval that the run continues with; None if it starts with user messages."""
    _messages: list[UserMessage] = field(default_factory=list)
    """The user messages of this turn, created by this run or by an earlier one."""
    _untaken: list[Untaken] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._attachments = Attachments(self.runtime)
        self._memory = StoredMemory(self.runtime.store, self.runner.zone)

    async def ending(self, emit: Emit) -> Ending:
        """Run the agent and return its ending. Raises Fenced, Drained, Stopped, StoreUnavailable or NothingLeft."""
        batch, approvals, caller = self.batch, self.approvals, self.batch.inbound.asked
        sid, id_ = batch.lease.sid, batch.inbound.approval
        earlier = caller.turns(self.runner.limits.message_chars) if caller else []
        numbers = [*(0 for _ in earlier), *batch.work.numbers]
        journal = TurnJournal(
            runtime=self.runtime, batch=batch, read=self._steered, numbers=numbers, account=self.account
        )
        decided = self._decided = await approvals.get(id_) if id_ else None
        context, journaled = await self._journaled(journal)
        await self.gate.enter()
        private, tainted = await self.runtime.sees_private(batch.setup, context), await self._is_tainted(context)
        told = (batch, self.channel, context, earlier, journaled, decided)
        groups = await self.runner.ports.groups.open_to(context) if self.runner.ports.groups else ()
        turn = turn_of(*told, sees_private=private, tainted=tainted, groups=groups)
        save = self._memory.saver(sid, context, turn=batch.turn, at=self.runtime.now(), revision=batch.work.revision)
        people = tuple(dict.fromkeys(person_of(it) if it.sender.id else "the operator" for it in batch.contexts))
        asker = batch.setup.runners.get(agent_of(parent_of(sid)))
        gate = TurnGate(
            approvals=approvals,
            runner=self.runner,
            session=sid,
            turn=batch.turn,
            people=people,
            decided=decided,
            asker=asker,
        )
        result = await self.runner.run(turn, journal=journal, emit=emit, budget=self.account, save=save, gate=gate)
        if decided is not None:
            await approvals.close(decided.id)
        return await self._shown(turn, journal, result, gate)

    async def keep(self) -> None:
        """Journal the messages without a model request. Raises Fenced, Stopped, StoreUnavailable or NothingLeft."""
        await self._journaled(TurnJournal(runtime=self.runtime, batch=self.batch, read=self._steered, numbers=()))

    async def _journaled(self, journal: TurnJournal) -> tuple[MessageContext, Sequence[Message]]:
        """Return the message to answer and the turn so far. Journal the first rows if there are none."""
        batch, work, context = self.batch, self.batch.work, self.batch.inbound.context
        if so_far := [message_json.validate_json(row.content) for row in work.so_far if row.kind != "drained"]:
            journal.follow(*so_far)
            self._messages += [it for it in so_far if isinstance(it, UserMessage)]
            return context, so_far
        if self._decided is not None:
            begun = opening(self._decided, context, self.runtime.now(), self.runner.zone)
            await journal.begin(*begun, joined=())
            journal.follow(*begun)
            return context, begun
        enriched = [await self._enriched(it) for it in batch.contexts]
        contexts = [it for it, before in zip(enriched, batch.contexts, strict=True) if not is_recalled(it, before)]
        if not contexts:
            raise NothingLeft
        notes = await self._memory.notes(batch.lease.sid, contexts[-1]) if work.has_notes else ()
        user, spoken = await self._user_message(*contexts, notes=notes, heard=await self._heard(contexts[-1]))
        await journal.begin(user, joined=[message.turn for message in batch.messages[:-1]], spoken=spoken)
        return contexts[-1], [user]

    async def _heard(self, context: MessageContext) -> Heard:
        """Return the group's messages since the last answer, if its history is kept, and other users' votes. Votes
        that arrived while this vote was queued are answered by the same turn."""
        sid, until = self.batch.lease.sid, self.batch.messages[-1].at
        if context.chat.kind != "group" or task_of(sid):
            return Heard()
        chatter, turn = self.runtime.store.chatter, self.batch.turn
        limit, lines, left_out = self.channel.access.history_in(context.chat.id), list[MessageContext](), 0
        if limit:
            lines += await chatter.since(sid, context, turn=turn, until=until, limit=limit)
            left_out = await chatter.count_since(sid, context, turn=turn, until=until) - len(lines)
        latest = max(until, self.runtime.now()) if context.is_vote else until
        lines += await chatter.votes_since(sid, context, turn=turn, until=latest)
        return Heard(messages=[await self.channel.enrich(it) for it in lines], left_out=max(left_out, 0))

    async def _steered(self, message: WaitingMessage) -> tuple[UserMessage, Sequence[Spoken]]:
        return await self._user_message(await self._enriched(inbound_of(message.body).context))

    async def _enriched(self, context: MessageContext) -> MessageContext:
        """Add what the channel knows about the message. A quoted bot answer counts as untrusted if external content
        may have led to it, or if it was sent to another conversation."""
        context = await self.channel.enrich(self._without_known_root(context))
        quote, store = context.reply_to, self.runtime.store
        if quote is None or quote.foreign or not quote.message_id:
            return context
        sid = self.batch.lease.sid
        for sent in await store.sent_parts(ext_id=quote.message_id):
            to = payload_json.validate_json(sent.payload)
            if (to.channel, to.account, to.part.target.chat) == (context.channel, context.account, context.chat.id):
                foreign = conversation(sent.sid) != sid or await self._memory.was_external(sent.sid, sent.turn)
                return replace(context, reply_to=replace(quote, foreign=foreign))
        return context

    async def _is_tainted(self, context: MessageContext) -> bool:
        """Return whether the request holds text of users without access to the turn's tools: untrusted, so it must
        not steer them."""
        batch, work, sid = self.batch, self.batch.work, self.batch.lease.sid
        agent = batch.inbound.agent
        if task_of(sid) or not is_among_others(context) or not batch.setup.has_ranks(agent, context):
            return False
        kept = len(work.numbers) if self.runner.config.history_turns is None else self.runner.config.history_turns
        shown_from = next(iter(work.numbers[max(0, len(work.numbers) - kept) :]), NEVER)
        summarised_to = next(iter(work.numbers), NEVER) if work.summary.text else 0
        people = [
            it.person
            for it in await self.runtime.store.memory.speakers(sid, batch.turn)
            if it.last >= shown_from or it.first < summarised_to
        ]
        return batch.setup.outranks(agent, context, people)

    async def _user_message(
        self, *contexts: MessageContext, notes: Sequence[Note] = (), heard: Heard | None = None
    ) -> tuple[UserMessage, Sequence[Spoken]]:
        sid, received = self.batch.lease.sid, list[Received]()
        held = self._held()
        for context in contexts:
            reading = _without_files_of(held, context)
            received.append(await self._attachments.receive(self.runner, self.channel, reading, sid))
            if reading.reply_to and received[-1].has_quoted:
                held.add(reading.reply_to.message_id)
        self._untaken += [it for files in received for it in files.untaken]
        if self.note:
            received = [replace(it, note="\n".join(filter(None, (it.note, self.note)))) for it in received]
        message = self.runner.user_message(*contexts, received=received, notes=notes, heard=heard)
        self._messages.append(message)
        quotes = [it.reply_to for it in contexts if it.reply_to]
        spoken = [
            *(spoken_in(it, "said", 1 + len(files.shown)) for it, files in zip(contexts, received, strict=True)),
            *(Spoken(message=it.message_id, person="", how="quoted") for it in quotes),
            *(spoken_in(it, "heard", 0) for it in (heard.messages if heard else ())),
            *(it for context in contexts for it in reminder_in(context)),
        ]
        return self._messages[-1], spoken

    def _held(self) -> set[str]:
        """Return the ids of the messages whose files the conversation already has, sent or quoted."""
        turns = (*self.batch.work.turns, self._messages)
        return {id_ for turn in turns for message in turn for id_ in (*ids(message), *quoted_in(message))}

    def _without_known_root(self, context: MessageContext) -> MessageContext:
        """Drop the message that opens the thread unless this turn starts the conversation: later it is already in
        the history."""
        work, quote = self.batch.work, context.reply_to
        is_known = bool(work.turns or work.so_far or work.summary.text or self._messages)
        return replace(context, reply_to=None) if quote and quote.opens_thread and is_known else context

    async def _shown(self, turn: Turn, journal: TurnJournal, result: TurnResult, gate: TurnGate) -> Ending:
        """Return the ending with the files that the answer names and the lines above and below it."""
        language, caller = language_for(turn.context), self.batch.inbound.asked
        ending = ending_of(result.outcome, language)
        if ending.outcome == "replied" and result.answers:
            self.runtime.trouble.answered(result.answers[-1].reference)
        if ending.reply.answers_to and not self._is_here(ending.reply.answers_to, turn):
            ending = ending.saying(answers_to=None)
        if ending.media and ending.reply.text is not None:
            asks = partial(gate.asks, tainted=result.tainted)
            files, note = await self._attachments.send(self.runner, self.channel, turn, ending.media, asks)
            text = f"{ending.reply.text}\n\n{note}".strip() if note else ending.reply.text
            ending = ending.saying(text=text, files=files)
        if ending.reply.text is not None and (turn.settings.reasoning or turn.settings.verbose):
            steps = [*turn.so_far, *journal.kept, *([ending.message] if ending.message else [])]
            shown = map(without_internals, above(turn.settings, steps))
            ending = ending.saying(text="\n\n".join((*shown, ending.reply.text)))
        is_for_people = ending.reply.text is not None and not caller  # a program gets the agent's words alone
        shortened = sentences.compacted(result.compaction, language) if is_for_people else None
        is_theirs = turn.with_owner or is_operator(self.batch.setup.config, turn.context)
        fault = sentences.beneath(ending.fault(language), language) if ending.fault and is_theirs else None
        if ending.outcome == "failed" and ending.reply.text is not None and is_theirs:
            ending = ending.saying(text=sentences.for_owner(ending.reply.text))
        if isinstance(result.outcome, ModelFailed) and ending.fault:
            told = await self._tell(result.outcome, ending.fault, turn)
            if told and ending.reply.text is not None and is_for_people and not is_theirs:
                ending = ending.saying(text=sentences.owner_told(ending.reply.text))
        results = tuple(it for it in journal.kept if isinstance(it, ToolResultMessage))
        untaken = [sentences.not_taken(it, language) for it in self._untaken] if not caller else []
        if turn.context.chat.kind == "group" and any("login" in (it.details or {}) for it in results):
            untaken.append(sentences.log_in_directly(language))
        lines = tuple(it for it in (*untaken[:UNTAKEN_LINES_MAX], shortened, fault) if it)
        return replace(ending.saying(notes=lines), answers=result.answers, results=results, external=result.tainted)

    async def _tell(self, failed: ModelFailed, fault: Finding, turn: Turn) -> bool:
        """Record a provider refusal for the owners' notice. Skip the owner who reads it in this answer. Return
        whether owners are notified."""
        trouble, context = self.runtime.trouble, turn.context
        if failed.error.kind not in REFUSALS:
            return False
        if turn.with_owner:
            trouble.read(failed.model, person_of(context))
            return False
        trouble.failed(failed.model, fault)
        return await Notices(self.runtime).reaches_owners()

    def _is_here(self, message_id: str, turn: Turn) -> bool:
        """Validate a model-supplied reply_to id: it must be another message of this conversation."""
        turns = (*self.batch.work.turns, (turn.user, *turn.so_far), self._messages)
        here = {it for messages in turns for message in messages for it in ids(message)}
        here |= {it.reply_to.message_id for it in self.batch.inbound.contexts if it.reply_to}
        return "reply" in self.channel.capabilities.directives and message_id in here - {turn.context.message_id, ""}


def is_recalled(context: MessageContext, before: MessageContext) -> bool:
    """Return whether the message had text before the channel was asked for its content: it was recalled meanwhile."""
    return bool(before.text) and not context.text and not context.attachments


def quoted_in(message: Message) -> Sequence[str]:
    return message.quoted if isinstance(message, UserMessage) else ()


def _without_files_of(held: Collection[str], context: MessageContext) -> MessageContext:
    quote = context.reply_to
    if quote is None or quote.message_id not in held:
        return context
    return replace(context, reply_to=replace(quote, attachments=()))


def turn_of(
    batch: Batch,
    channel: Channel,
    context: MessageContext,
    earlier: Sequence[Sequence[Message]],
    journaled: Sequence[Message],
    decided: Approval | None = None,
    *,
    sees_private: bool,
    tainted: bool,
    groups: tuple[str, ...] = (),
) -> Turn:
    """Build the turn that the agent runs: it answers `context` and continues after `journaled`. `earlier` is the
    history that an API client supplied; `decided` is the approval to continue with. `tainted`: the request has
    untrusted text of other users."""
    work, inbound = batch.work, batch.inbound
    user, *so_far = journaled
    origin, is_task = context.origin, task_of(batch.lease.sid) is not None
    is_foreign = origin is not None and origin.is_foreign
    if not isinstance(user, UserMessage):
        raise TypeError("a transcript's turn begins with its user message")
    # Nothing ran after the approved call as long as the call itself has not begun.
    is_unspawned = decided is not None and decided.state != "spawned" and len(so_far) == 1
    return Turn(
        context=context,
        session=batch.lease.sid,
        capabilities=channel.capabilities.names,
        directives=channel.capabilities.directives,
        actions=tuple(it for it in channel.capabilities.actions if not is_task or it not in NOT_OF_TASKS),
        history=[*earlier, *work.turns] if earlier else work.turns,
        user=user,
        so_far=so_far,
        interrupted=bool(work.so_far) and work.so_far[-1].kind != "drained" and not is_unspawned,
        with_owner=is_with_owner(batch.setup.owners, context),
        sees_private=sees_private,
        layers=batch.layers,
        settings=settings_json.validate_json(work.settings),
        summary=work.summary.text,
        summary_external=work.summary.external,
        summarised=work.made.answers if work.made else None,
        again=tuple(filter(None, (str(inbound.replays or ""), inbound.approval, origin.key if origin else ""))),
        several=len({it.sender.id for it in batch.contexts}) > 1,
        tainted=tainted or is_foreign or (decided is not None and bool(decided.tainted)),
        caller=inbound.asked.instructions if inbound.asked else "",
        groups=groups,
        files_of=parent_of(batch.lease.sid) if is_task else "",
        reports_ends=not is_task and context.channel != ApiChannel.name,
    )


def spoken_in(context: MessageContext, how: Literal["said", "heard"], parts: int) -> Spoken:
    name, is_direct = context.sender.name or context.sender.id, context.chat.kind == "direct"
    person, message = person_of(context), context.message_id
    if context.origin and context.origin.kind not in OF_A_MESSAGE:
        # Found by the person on whose behalf it ran, never by the message that it answers.
        person, message, name = person if context.sender.id else "", "", name or "operator"
    return Spoken(message=message, person=person, name=name, direct=is_direct, how=how, parts=parts)


def reminder_in(context: MessageContext) -> Sequence[Spoken]:
    """Return the source of the reminder whose text this run repeats."""
    origin = context.origin
    return [copied(schedule_source(origin.id))] if origin and origin.kind == "schedule" else ()


def above(settings: Settings, messages: Sequence[Message]) -> Iterator[str]:
    """Yield the lines above an answer: the model's readable reasoning as a quote, and one line per tool call."""
    answers = [it for it in messages if isinstance(it, AssistantMessage)]
    thoughts = [it.text.strip() for answer in answers for it in answer.content if isinstance(it, Thinking)]
    if settings.reasoning and (text := "\n\n".join(filter(None, thoughts))):
        yield "\n".join(f"> {line}".rstrip() for line in capped(text, REASONING_CHARS_MAX).split("\n"))
    calls = [call for answer in answers for call in answer.calls]
    if settings.verbose and calls:
        lines = [(call.name, redacted(about(call)).replace("`", "'")[:CALL_CHARS_MAX]) for call in calls]
        yield "\n".join(f"- `{tool}`" + (f" `{argument}`" if argument else "") for tool, argument in lines)


async def say(runtime: Runtime, batch: Batch) -> Ending:
    """Send the message's own text without a model request. In its conversation the text is stored as an assistant
    message; next to a running turn it is only sent. Raises Fenced or Revised."""
    context, at = batch.inbound.context, runtime.now()
    foreign = context.origin is not None and context.origin.is_foreign
    ending = Ending(outcome="said", reply=Reply(text=context.text, files=batch.inbound.files), external=foreign)
    ending = labelled(batch, ending)
    if is_control(batch.lease.sid) or context.origin is None:
        return ending
    if context.origin.kind == "handover":
        return await _say_of_colleague(runtime, batch, context.origin, ending)
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


async def _say_of_colleague(runtime: Runtime, batch: Batch, origin: Origin, ending: Ending) -> Ending:
    """Send a colleague's text under their name. In the history it is the colleague's, not the agent's."""
    text, name = batch.inbound.context.text, origin.title
    if not batch.work.so_far:
        note = own_note(origin, SAID[origin.kind])
        content = (Text(text=f"[message_id: ]\n{note}\n{speaker(name)}: {harmless(text)}"),)
        user = UserMessage(content=content, external="content" if origin.is_foreign else "", timestamp=runtime.now())
        of_colleague = Spoken(message="", person=batch.inbound.arguments, name=name, how="said", parts=1)
        begun = replace(entry(batch.turn, user), spoken=[of_colleague])
        await runtime.store.append(batch.lease, [begun], revision=batch.work.revision)
    return ending.saying(text=said_by(name, text))


def labelled(batch: Batch, ending: Ending) -> Ending:
    """Prepend a note if the gateway was down when the message was due."""
    context, zone = batch.inbound.context, batch.setup.config.server.zone
    if ending.reply.text is None or context.origin is None or not context.origin.late:
        return ending
    missed = sentences.missed(timestamp(context.origin.due, zone), language_for(context))
    return ending.saying(text=f"{missed}\n\n{ending.reply.text}")
