"""What one turn answers: which of the messages that wait, in which mode, and whether its session has ended by itself."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile

from channels.tools import ToolLists
from gateway.history import last_active
from gateway.queue import Inbound, Queue, inbound_of
from gateway.routing import is_control
from gateway.runtime import Runtime, Setup
from gateway.store.records import Lease, Waiting, Work


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The messages that one turn answers, oldest first: its setup, its lease, and its number, which is the last one's."""

    setup: Setup
    lease: Lease
    work: Work
    queue: Queue
    messages: Sequence[Waiting]

    @property
    def turn(self) -> int:
        return self.messages[-1].turn

    @property
    def inbound(self) -> Inbound:
        return inbound_of(self.messages[-1].body)

    @cached_property
    def layers(self) -> tuple[ToolLists, ...]:
        """What takes tools away from the turn."""
        return self.setup.layers.of(*self.inbound.contexts)

    def takes(self, message: Waiting) -> bool:
        """Whether a later message may join: not where its sender has less than the turn, which would do for him what he
        may not have done. The gateway's own message is a turn by itself."""
        return not inbound_of(message.body).approval and set(tools_of(self.setup, self.messages[-1])) <= set(
            tools_of(self.setup, message)
        )

    def is_over(self) -> bool:
        """Whether the session ended by itself before the first message of the batch was accepted."""
        rules = self.setup.session_rules(self.inbound.agent)
        if not (rules.reset_daily or rules.reset_idle_minutes):
            return False
        last = last_active(self.work.history)
        return last is not None and rules.is_over(last, self.messages[0].at, self.setup.config.server.zone)


def batch_of(runtime: Runtime, lease: Lease, work: Work) -> Batch:
    """The messages of the next turn; the parts of one thing stay together in every queue mode. All of one turn have the same
    tools: a turn that goes on after a crash knows its last message alone."""
    setup, first = runtime.setup, inbound_of(work.waiting[0].body)
    queue = runtime.queue(lease.sid, first.agent, first.context)
    if is_control(lease.sid):
        return Batch(setup=setup, lease=lease, work=work, queue=queue, messages=work.waiting[:1])
    words = list(takewhile(lambda message: not inbound_of(message.body).approval, work.waiting))
    if len(words) < len(work.waiting):  # the gateway's own message is a turn by itself
        work = replace(work, waiting=words or work.waiting[:1])
    messages = queue.batch(work.waiting, begun=bool(work.so_far))
    while len(messages) < len(work.waiting) and not work.so_far and inbound_of(messages[-1].body).context.more:
        messages = work.waiting[: len(messages) + 1]
    if len(messages) > 1 and not work.so_far:
        tools = tools_of(setup, messages[0])
        messages = list(takewhile(lambda it: tools_of(setup, it) == tools, messages))
    return Batch(setup=setup, lease=lease, work=work, queue=queue, messages=messages)


def tools_of(setup: Setup, message: Waiting) -> tuple[str, ...]:
    """The tools of a turn that answers this message alone."""
    inbound = inbound_of(message.body)
    runner = setup.runners.get(inbound.agent)
    return runner.offered(setup.layers.of(*inbound.contexts)) if runner else ()


def stopped_of(work: Work) -> Sequence[Waiting]:
    """The messages that a stop concerns. One that interrupts stops what has begun, and takes over what has not."""
    first = work.waiting[0]
    if first.turn >= work.stopped:
        return []
    if work.so_far:
        return [first]
    if work.superseded:
        return []
    return [message for message in work.waiting if message.turn < work.stopped]
