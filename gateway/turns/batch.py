"""The messages that one turn answers: their sender, their queue mode, and whether their session has expired."""

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
    """The messages that one turn answers, oldest first, with their setup and lease. The turn has the number of the
    last message."""

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
        """The contexts of all messages that the turn answers, oldest first."""
        return [context for message in self.messages for context in inbound_of(message.body).contexts]

    @cached_property
    def layers(self) -> tuple[ToolLists, ...]:
        """The policy layers that remove tools from the turn."""
        layers, sid = self.setup.layers, self.lease.sid
        of_task = layers.of_task(self.inbound.agent, agent_of(parent_of(sid))) if task_of(sid) else ()
        return (*layers.of(*self.inbound.contexts), *of_task)

    def may_join(self, message: WaitingMessage) -> bool:
        """Return whether a later message may join the turn: its sender also wrote the first message, so tools and
        budget match."""
        return (
            self.inbound.context.origin is None
            and _may_join(message)
            and senders(message) == senders(self.messages[-1])
        )

    def is_over(self) -> bool:
        """Return whether the session expired before the first message of the batch was accepted."""
        rules = self.setup.session_rules(self.inbound.agent)
        if not (rules.reset_daily or rules.reset_idle_minutes):
            return False
        last = last_active(self.work.history)
        return last is not None and rules.is_over(last, self.messages[0].at, self.setup.config.server.zone)


def batch_of(runtime: Runtime, lease: Lease, work: Work) -> Batch:
    """Return the messages of the next turn. They have one sender, whose tools and budget the turn gets. Parts of one
    message stay together in every queue mode."""
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
    """Return the oldest messages up to the first one of another sender."""
    first, *others = waiting
    if not _may_join(first):
        return [first]
    whose = senders(first)
    return [first, *takewhile(lambda it: _may_join(it) and senders(it) == whose, others)]


def _may_join(message: WaitingMessage) -> bool:
    """Return False for messages that need a turn alone: those of the gateway, a last attempt, the first of a branch.
    A recalled message joins no turn either."""
    if not is_readable(message.body) or is_last_attempt(message):
        return False
    inbound = inbound_of(message.body)
    is_own = inbound.approval or inbound.context.origin is not None
    return not is_own and not inbound.recalled and inbound.context.branch != "begins"


def senders(message: WaitingMessage) -> frozenset[str]:
    """Return the ids of the senders: one, unless an older version let a turn answer several users."""
    return frozenset(context.sender.id for context in inbound_of(message.body).contexts)


def stopped_of(work: Work) -> Sequence[WaitingMessage]:
    """Return the messages that a stop applies to. An interrupting message stops a running turn and joins a waiting
    one. A report is never stopped: the work it reports has already ended."""
    first = work.waiting[0]
    if first.turn >= work.stopped or is_report(first):
        return []
    if work.so_far:
        return [first]
    if work.superseded:
        return []
    return [message for message in work.waiting if message.turn < work.stopped and not is_report(message)]


def is_report(message: WaitingMessage | Concerned) -> bool:
    """Return whether the message reports the end of a task."""
    return is_readable(message.body) and inbound_of(message.body).command == REPORT


def asks_beside(message: WaitingMessage | Concerned) -> bool:
    """Return whether it is a command that calls a model, such as `/compact`: a stop of its conversation ends it as
    well."""
    command = inbound_of(message.body).command if is_readable(message.body) else None
    return command is not None and asks_model(command)


async def has_recalled(runtime: Runtime, sid: str, turn: int) -> bool:
    """Return whether a message that the turn answers was recalled."""
    return any(inbound_of(it).recalled for it in (await runtime.store.bodies(sid, turn)).values())


async def answer_others(runtime: Runtime, sid: str, turn: int) -> None:
    """Requeue the messages that a turn answers together with a recalled one, so that they get a turn without it."""
    for number, body in (await runtime.store.bodies(sid, turn)).items():
        inbound = inbound_of(body)
        if not inbound.recalled:
            again, names = replace(inbound, replays=turn), (f"recalled:{turn}:{number}",)
            await runtime.accept(Delivery.of(again, sid=sid, names=names, at=runtime.now(), internal=True))


def origin_delivery(runtime: Runtime, inbound: Inbound, name: str) -> Delivery:
    """Build the delivery of a message with an `origin`, with the dedupe key `name`. It is exempt from queue limits
    and rates."""
    context = inbound.context
    scope = runtime.setup.session_rules(inbound.agent).scope
    sid = session_key(inbound.agent, runtime.choices.before_migration(context), scope)
    return Delivery.own(inbound, name, sid=sid, at=runtime.now(), sender=sender_behind(context))
