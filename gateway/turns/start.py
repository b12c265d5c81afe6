"""The time at which the messages of a chat become a turn, and the branch of the conversation that it reads."""

from gateway.approvals.approvals import Approvals
from gateway.outbox.outbox import AWAY_SECONDS
from gateway.state.runtime import Runtime
from gateway.store.inbound import inbound_of, is_readable
from gateway.store.records import Lease, Work
from gateway.store.sessions import conversation, is_control
from gateway.turns.batch import of_one_person


class TurnStart:
    def __init__(self, runtime: Runtime, approvals: Approvals) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._approvals = approvals

    def wait_seconds(self, lease: Lease, work: Work, *, during_turn: bool, waited: bool) -> float:
        """Returns the seconds to wait for more messages. `during_turn`: these arrived while a turn ran; the chat must
        then be quiet for a moment before they are answered. A part of something waits for the rest of it. A turn that has
        begun does not wait, nor does a message wait for other people's. No message is `waited` for twice."""
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
        """Writes which turns are on other branches of the conversation, so that the next one does not read them. True if
        the work is to be loaded again."""
        first = work.waiting[0]
        if work.so_far or not is_readable(first.body):
            return False
        context = inbound_of(first.body).context
        if not context.branch and context.origin is None:  # one that comes later may have been asked for before
            return False
        # What was asked for on another branch is not wanted here.
        if context.branch == "begins" and context.origin is None and not is_control(sid):
            await self._approvals.cancel(sid, first.turn)
        return await self._store.branches.leave_out(conversation(sid), first.turn, context)

    def is_away(self, work: Work) -> bool:
        """True if the config has no such account now: an edit may have taken it away for a moment only."""
        setup, first = self._runtime.setup, work.waiting[0]
        if not is_readable(first.body) or setup.channel(inbound_of(first.body).context):
            return False
        return self._runtime.now() - first.at < setup.limits.delivery_seconds
