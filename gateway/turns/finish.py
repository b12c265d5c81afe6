"""The end of a turn: its last rows and the parts of its reply, in one commit."""

from collections.abc import Sequence
from dataclasses import replace

import structlog

from gateway.observe.logs import logged
from gateway.outbox.reply import reply
from gateway.state.ending import Ending
from gateway.state.runtime import Runtime
from gateway.store.inbound import SAY, Inbound, inbound_of
from gateway.store.records import Entry, Lease, OutboxPart, WaitingMessage, Work
from gateway.store.sessions import is_control, saying_session, task_of
from gateway.turns.budgets import account_of
from gateway.turns.journal import entry
from gateway.turns.layers import Layers
from gateway.turns.tasks import Tasks

log = structlog.get_logger()


class Finish:
    """Ends messages durably; each method returns the parts that are to be sent."""

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
        """`replaces`: the handle of the unfinished answer. `revision`: the conversation's that the answer was made of."""
        seconds, aside = self._runtime.now() - began, is_control(lease.sid)
        shown, task = ending, None
        if task_of(lease.sid):  # its words go into a report, or wait for a decision
            task = await self._tasks.end_of(lease.sid, turn, ending)
            shown = replace(ending, text=None, notes=(), files=(), answers_to=None)
        parts = await reply(self._runtime, inbound, shown, turn=turn, aside=aside, seconds=seconds, replaces=replaces)
        at = self._runtime.now()
        final = Entry(turn=turn, kind="final", content=ending.record(len(parts), at), spent=ending.spent)
        entries = [entry(turn, ending.message), final] if ending.message else [final]
        layers, texts = self._layers.row(lease.sid, turn, inbound, ending, at) or (None, {})
        # A reminder is a turn of the conversation; that it is still to be sent keeps nobody waiting there.
        beside = saying_session(lease.sid) if inbound.command == SAY and not aside else None
        queued = await self._store.finish(
            lease, entries, parts, at=at, dead=ending.dead, revision=revision, layers=layers, task=task, beside=beside
        )
        with logged("layers_not_kept"):
            await self._layers.keep(texts)
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
        """Finishes several messages. `begun`: the one message's turn so far, whose unfinished answer is removed."""
        parts: list[OutboxPart] = []
        for message in messages:
            opened = await self._store.draft(lease.sid, message.turn) if begun else None
            inbound, now = inbound_of(message.body), self._runtime.now()
            if begun:
                ending = self._with_bill(ending, inbound, begun)
            parts += await self.one(lease, message.turn, inbound, ending, now, opened)
        return parts

    async def unreadable(self, lease: Lease, messages: Sequence[WaitingMessage]) -> Sequence[OutboxPart]:
        """Closes messages whose sender cannot be read either, so no reply is sent. The operator may replay them."""
        for message in messages:
            at = self._runtime.now()
            ending = Ending(outcome="failed", reason="unreadable", text=None, dead=True)
            final = Entry(turn=message.turn, kind="final", content=ending.record(0, at))
            layers, _ = self._layers.row(lease.sid, message.turn, None, ending, at) or (None, {})
            task = await self._tasks.end_of(lease.sid, message.turn, ending)
            await self._store.finish(lease, [final], [], at=at, dead=True, layers=layers, task=task)
            log.error("message_unreadable", turn=message.turn, session=lease.sid)
            self._runtime.metrics.dead.labels("message").inc()
        return []

    def _with_bill(self, ending: Ending, inbound: Inbound, work: Work) -> Ending:
        """Adds the cost of the turn's summary, if no step behind it has counted it."""
        if (made := work.made) is None:
            return ending
        account = account_of(self._runtime, self._runtime.setup.config, inbound.agent, inbound.context, turn=made.by)
        if account:
            account.add_earlier(made.answers, counted=work.steps > made.steps)
        return replace(ending, answers=made.answers, spent=account.spent() if account else None)

    def _report(self, turn: int, agent: str, ending: Ending, seconds: float) -> None:
        """Writes the log line and the metrics."""
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
