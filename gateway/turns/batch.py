"""The messages that one turn answers: their sender, their queue mode, and if their session has ended by itself."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile

from channels.message import MessageContext
from channels.section import ToolLists
from gateway.config.commands import asks_model
from gateway.state.queues import Queue, is_last_attempt
from gateway.state.runtime import Runtime, Setup
from gateway.store.inbound import REPORT, Inbound, inbound_of, is_readable
from gateway.store.records import Concerned, Delivery, Lease, WaitingMessage, Work
from gateway.store.sessions import agent_of, is_control, parent_of, sender_behind, session_key, task_of
from gateway.turns.history import last_active


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The messages that one turn answers, oldest first: its setup, its lease, and its number, which is the last one's."""

    setup: Setup
    lease: Lease
    work: Work
    queue: Queue
    messages: Sequence[WaitingMessage]

    @property
    def turn(self) -> int:
        return self.messages[-1].turn

    @property
    def inbound(self) -> Inbound:
        return inbound_of(self.messages[-1].body)

    @property
    def contexts(self) -> Sequence[MessageContext]:
        """Everything that the turn answers, oldest first."""
        return [context for message in self.messages for context in inbound_of(message.body).contexts]

    @cached_property
    def layers(self) -> tuple[ToolLists, ...]:
        """The layers that take tools away from the turn."""
        layers, sid = self.setup.layers, self.lease.sid
        of_task = layers.of_task(self.inbound.agent, agent_of(parent_of(sid))) if task_of(sid) else ()
        return (*layers.of(*self.inbound.contexts), *of_task)

    def may_join(self, message: WaitingMessage) -> bool:
        """Returns True if a later message may join the turn: the same person wrote it and its first message, so it has the
        turn's tools and budget."""
        return (
            self.inbound.context.origin is None
            and _may_join(message)
            and senders(message) == senders(self.messages[-1])
        )

    def is_over(self) -> bool:
        """True if the session ended by itself before the first message of the batch was accepted."""
        rules = self.setup.session_rules(self.inbound.agent)
        if not (rules.reset_daily or rules.reset_idle_minutes):
            return False
        last = last_active(self.work.history)
        return last is not None and rules.is_over(last, self.messages[0].at, self.setup.config.server.zone)


def batch_of(runtime: Runtime, lease: Lease, work: Work) -> Batch:
    """The messages of the next turn: of one person, whose tools and budget the turn has. The parts of one thing stay
    together in every queue mode."""
    setup, first = runtime.setup, inbound_of(work.waiting[0].body)
    queue = runtime.queue(lease.sid, first.agent, first.context)
    if is_control(lease.sid):
        return Batch(setup=setup, lease=lease, work=work, queue=queue, messages=work.waiting[:1])
    if len(work.waiting) > 1:
        work = replace(work, waiting=of_one_person(work.waiting))
    messages = queue.batch(work.waiting, begun=bool(work.so_far))
    while len(messages) < len(work.waiting) and not work.so_far and inbound_of(messages[-1].body).context.more:
        messages = work.waiting[: len(messages) + 1]
    return Batch(setup=setup, lease=lease, work=work, queue=queue, messages=messages)


def of_one_person(waiting: Sequence[WaitingMessage]) -> Sequence[WaitingMessage]:
    """The oldest messages, as far as the same person wrote them."""
    first, *others = waiting
    if not _may_join(first):
        return [first]
    whose = senders(first)
    return [first, *takewhile(lambda it: _may_join(it) and senders(it) == whose, others)]


def _may_join(message: WaitingMessage) -> bool:
    """Returns False for the gateway's own message, for a last attempt and for the first of a branch, which are turns by
    themselves, and for a recalled message."""
    if not is_readable(message.body) or is_last_attempt(message):
        return False
    inbound = inbound_of(message.body)
    is_own = inbound.approval or inbound.context.origin is not None
    return not is_own and not inbound.recalled and inbound.context.branch != "begins"


def senders(message: WaitingMessage) -> frozenset[str]:
    """The ids of the senders: one, unless an older version let a turn answer several."""
    return frozenset(context.sender.id for context in inbound_of(message.body).contexts)


def stopped_of(work: Work) -> Sequence[WaitingMessage]:
    """The messages that a stop concerns. An interrupting message stops a running turn and joins a waiting one. Nothing
    stops a report: what it tells of has ended."""
    first = work.waiting[0]
    if first.turn >= work.stopped or is_report(first):
        return []
    if work.so_far:
        return [first]
    if work.superseded:
        return []
    return [message for message in work.waiting if message.turn < work.stopped and not is_report(message)]


def is_report(message: WaitingMessage | Concerned) -> bool:
    """True if it says how a task has ended."""
    return is_readable(message.body) and inbound_of(message.body).command == REPORT


def asks_beside(message: WaitingMessage | Concerned) -> bool:
    """True if it is a command that asks a model, such as `/compact`: a stop of its conversation ends it, too."""
    command = inbound_of(message.body).command if is_readable(message.body) else None
    return command is not None and asks_model(command)


async def has_recalled(runtime: Runtime, sid: str, turn: int) -> bool:
    """True if a message that the turn answers was taken back."""
    return any(inbound_of(it).recalled for it in (await runtime.store.bodies(sid, turn)).values())


async def answer_others(runtime: Runtime, sid: str, turn: int) -> None:
    """Gives the messages that a turn answers together with a recalled one a turn without it."""
    for number, body in (await runtime.store.bodies(sid, turn)).items():
        inbound = inbound_of(body)
        if not inbound.recalled:
            again, names = replace(inbound, replays=turn), (f"recalled:{turn}:{number}",)
            await runtime.accept(Delivery.of(again, sid=sid, names=names, at=runtime.now(), internal=True))


def origin_delivery(runtime: Runtime, inbound: Inbound, name: str) -> Delivery:
    """The delivery of a message with an `origin`, under its own dedupe key `name`. No limit of waiting messages keeps it
    out, and no rate counts it."""
    context = inbound.context
    scope = runtime.setup.session_rules(inbound.agent).scope
    sid = session_key(inbound.agent, runtime.choices.before_migration(context), scope)
    return Delivery.own(inbound, name, sid=sid, at=runtime.now(), sender=sender_behind(context))
