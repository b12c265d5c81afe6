"""The approval requests of one gateway: create, decide, expire or cancel them, and return the outcome to the
conversation.

Each request is a row. Each of its messages is an internal message to a session, with a dedupe key derived from the
approval: accepting it is idempotent on any replica, and a round of `run` repeats what a crash left out.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import structlog

from channels.message import MessageContext
from gateway.approvals.display import SHOWN_CHARS_MAX, visible
from gateway.approvals.notices import (
    Surface,
    find_surfaces,
    is_approver,
    message_json,
    message_of,
    surfaces_json,
    surfaces_of,
)
from gateway.observe.logs import logged
from gateway.state.runtime import Runtime
from gateway.store.approvals import Admitted, Approval, Decider, Grant, State
from gateway.store.errors import StoreUnavailable
from gateway.store.inbound import ASK, OUTCOME, Inbound
from gateway.store.records import Delivery
from gateway.store.sessions import LOCAL_PERSON, control_session, person_of, session_key, task_of
from tools.ask import NAME as QUESTION
from tools.tool import Request, ToolError, digest_of

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
WATCH_SECONDS = 1.0
IDLE_SECONDS = 5.0
JUMP_SECONDS = 60.0
DAY_SECONDS = 86_400.0
COMMANDS = ("exec", "process")
"""The tools that `tools.exec.mode` switches off."""

log = structlog.get_logger()


def new_id() -> str:
    """Return a new id of 60 random bits: `K7QF-2M9X-D3TA`."""
    return id_of("".join(secrets.choice(ALPHABET) for _ in range(12)))


def id_of(typed: str) -> str:
    """Normalise a typed id: hyphens and case do not matter."""
    letters = "".join(char for char in typed.upper() if char != "-") if typed.isascii() else ""
    return "-".join((letters[:4], letters[4:8], letters[8:]))


class Clock:
    """Decide which requests have expired. Within one boot the monotonic clock decides as well, and alone once the
    wall clock has jumped ahead; setting the wall clock back revives nothing."""

    def __init__(self, now: Callable[[], float], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._now, self._monotonic = now, monotonic
        self._last, self._jumped = (now(), monotonic()), False
        self.boot = uuid4().hex
        with suppress(OSError):
            self.boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()

    def deadline(self, seconds: float) -> float:
        return self._monotonic() + seconds

    def is_over(self, approval: Approval) -> bool:
        wall, monotonic = self._now(), self._monotonic()
        ahead = (wall - self._last[0]) - (monotonic - self._last[1])
        self._last = wall, monotonic
        if ahead > JUMP_SECONDS and not self._jumped:
            log.warning("clock_jumped", seconds=round(ahead))
            self._jumped = True
        if approval.boot != self.boot:
            return wall >= approval.expires
        return monotonic >= approval.deadline or (not self._jumped and wall >= approval.expires)


class Approvals:
    def __init__(self, runtime: Runtime, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self.clock = Clock(runtime.now, monotonic)
        self._asked = asyncio.Event()
        self._repeated: set[str] = set()
        """Requests whose messages this process has sent again."""

    def approvers(self, agent: str) -> Sequence[str]:
        """Return the current approvers of an agent's calls: membership of a chat does not make anyone an approver."""
        config, owners = self._runtime.setup.config, self._runtime.setup.owners
        named = config.approvers(next((it for it in config.agents.list if it.id == agent), None), owners)
        return (LOCAL_PERSON,) if named is None else named

    def approvers_of(self, approval: Approval) -> Sequence[str]:
        """Return who may decide a request: the one who acts, if the call is made as a person; else the approvers."""
        return (approval.decider,) if approval.decider else self.approvers(approval.agent)

    def may_decide_any(self, message: MessageContext) -> bool:
        return any(is_approver(message, self.approvers(it.id)) for it in self._runtime.setup.config.agents.list)

    async def awaits(self, message: MessageContext) -> bool:
        """Return whether a request waits for the decision of this sender alone. Raises StoreUnavailable."""
        waiting = [it for it in await self._store.approvals.open_requests() if it.state == "pending"]
        return any(is_approver(message, [it.decider]) for it in waiting if it.decider)

    def may_decide(self, approval: Approval, message: MessageContext) -> bool:
        return is_approver(message, self.approvers_of(approval))

    async def get(self, id_: str) -> Approval | None:
        return await self._store.approvals.get(id_)

    async def request(
        self,
        request: Request,
        bound: str,
        *,
        agent: str,
        session: str,
        turn: int,
        origin: MessageContext,
        people: Sequence[str],
        tainted: bool,
    ) -> tuple[Admitted, Approval | None]:
        """Ask the approvers. `people` are all senders that the turn answers. Raises ToolError."""
        config = self._runtime.setup.config.approvals
        text = request.subject.text
        if len(visible(text)[0]) > SHOWN_CHARS_MAX:
            message = "it is too long to show an approver in full; put it into a file, and call that"
            raise ToolError("EXEC_DENIED", message)
        if self._runtime.scrubber.scrub(text) != text:
            message = "it holds a secret of this gateway, so it cannot be shown to an approver"
            raise ToolError("EXEC_DENIED", message)
        approvers = (request.subject.decider,) if request.subject.decider else self.approvers(agent)
        surfaces = await find_surfaces(self._runtime, origin, approvers)
        new = replace(
            self._new(request, bound, agent, session, turn, origin, people, config.expiry_seconds),
            tainted=int(tainted),
            surfaces=surfaces_json.dump_json(surfaces).decode(),
        )
        admission, approval = await self._store.approvals.request(
            new,
            approvers=approvers,
            session_max=config.pending_per_session,
            agent_max=config.pending_per_agent,
        )
        if approval is not None and admission == "pending":
            await self._ask(approval)
        return admission, approval

    async def question(
        self,
        request: Request,
        bound: str,
        *,
        agent: str,
        session: str,
        turn: int,
        origin: MessageContext,
        people: Sequence[str],
        tainted: bool,
    ) -> Approval | None:
        """Put a question with choices to the chat of `origin`. Return None if the conversation has another open one. Raises
        ToolError."""
        channel = self._runtime.setup.channel(origin)
        if channel is None or channel.capabilities.programs or task_of(session) is not None:
            message = "nobody can be asked here; say in your answer what you need to know, with the options"
            raise ToolError("CANNOT_ASK", message)
        here = replace(origin, attachments=(), reply_to=None, press=None, more=False, origin=None)
        seconds = 60.0 * int(request.arguments.get("minutes") or 60)
        new = replace(
            self._new(request, bound, agent, session, turn, origin, people, seconds),
            tainted=int(tainted),
            surfaces=surfaces_json.dump_json((Surface(context=here),)).decode(),
        )
        if (approval := await self._store.approvals.question(new)) is not None:
            await self._ask(approval)
        return approval

    def _new(
        self,
        request: Request,
        bound: str,
        agent: str,
        session: str,
        turn: int,
        origin: MessageContext,
        people: Sequence[str],
        seconds: float,
    ) -> Approval:
        now = self._runtime.now()
        return Approval(
            id=new_id(),
            tool=request.tool,
            agent=agent,
            sid=session,
            turn=turn,
            requester=", ".join(people),
            origin=message_json.dump_json(origin).decode(),
            request=bound,
            digest=digest_of(bound),
            always=int(request.subject.always),
            tainted=0,
            surfaces="[]",
            created=now,
            expires=now + seconds,
            boot=self.clock.boot,
            deadline=self.clock.deadline(seconds),
        )

    async def _ask(self, approval: Approval) -> None:
        await self._tell(approval, ASK, "ask")
        self._repeated.add(approval.id)
        self._asked.set()

    async def _tell(self, approval: Approval, command: str, purpose: str) -> None:
        """Send one internal message to each chat of the request. Raises StoreUnavailable."""
        agent, scope = approval.agent, self._runtime.setup.session_rules(approval.agent).scope
        for number, surface in enumerate(surfaces_of(approval)):
            sid = control_session(session_key(agent, surface.context, scope))
            arguments = f"{approval.id} {number}"
            inbound = Inbound(agent=agent, context=surface.context, command=command, arguments=arguments)
            await self._accept(inbound, dedupe(approval.id, f"{purpose}:{number}"), sid)

    async def _accept(self, inbound: Inbound, name: str, sid: str) -> None:
        """Accept an internal message. Idempotent by `name`. Raises StoreUnavailable."""
        now = self._runtime.now()
        context = replace(inbound.context, sent_at=datetime.fromtimestamp(now, tz=UTC))
        await self._runtime.accept(Delivery.own(replace(inbound, context=context), name, sid=sid, at=now))

    async def decide(self, approval: Approval, decision: str, by: Decider) -> tuple[bool, Approval]:
        """Apply a decision. Return whether this decision counts, and the updated approval. `by` is known to be an
        approver."""
        now, grant = self._runtime.now(), None
        if approval.state == "pending" and self.clock.is_over(approval):
            await self.move(approval.id, "pending", "expired")
        if decision == "allow-always":
            seconds = self._runtime.setup.config.approvals.grant_days * DAY_SECONDS
            grant = Grant(
                id=new_id(),
                agent=approval.agent,
                digest=approval.digest,
                request=approval.request,
                granted_by=by.person,
                granted_at=now,
                expires=now + seconds,
                source=approval.id,
            )
        won, found = await self._store.approvals.decide(approval.id, decision, by, at=now, grant=grant)
        approval = found or approval
        if not approval.announced:
            await self.announce(approval)
        return won, approval

    async def is_lost(self, approval: Approval) -> bool:
        """Return whether no chat could be sent the complete request."""
        count = len(surfaces_of(approval))
        requests = [dedupe(approval.id, f"ask:{number}") for number in range(count)]
        return await self._store.approvals.given_up(requests) >= count

    async def announce(self, approval: Approval) -> None:
        """Continue the conversation and notify every chat that was asked. Idempotent. Raises StoreUnavailable."""
        if approval.state == "pending":
            return
        if not (approval.decision or "").startswith("message "):  # whoever ends the conversation asks for no answer
            origin = replace(message_of(approval), attachments=(), reply_to=None, press=None, more=False)
            inbound = Inbound(agent=approval.agent, context=origin, approval=approval.id)
            await self._accept(inbound, dedupe(approval.id, "decided"), approval.sid)
        await self._tell(approval, OUTCOME, "settled")
        await self._store.approvals.announced(approval.id)

    async def cancel(
        self, session: str, turn: int, which: Callable[[Approval], bool] = lambda approval: True
    ) -> Sequence[Approval]:
        """Cancel the open requests of a conversation that message `turn` ends, limited to `which`. Return what
        `turn` cancelled there, the same when repeated. Raises StoreUnavailable."""
        store, by, at = self._store.approvals, f"message {turn}", self._runtime.now()
        requests = [it for it in await store.open_in([session]) if which(it)]
        cancelled = await store.cancel(session, requests, by=by, at=at)
        # A request may be approved after the query above. Cancel it as approved, or it would run after the stop.
        while requests := [it for it in await store.open_in([session]) if which(it)]:
            cancelled = await store.cancel(session, requests, by=by, at=at)
        for approval in cancelled:
            if not approval.announced:
                await self.announce(approval)
        return cancelled

    def may_cancel(self, approval: Approval, message: MessageContext) -> bool:
        """Return whether a sender's stop may end the request. A decided request can be stopped like any work; a
        pending one only by its requester and its approvers."""
        asked = person_of(message) in approval.requester.split(", ")
        return asked or approval.state != "pending" or self.may_decide(approval, message)

    async def move(self, id_: str, before: State, after: State, **facts: object) -> bool:
        """Change the state without a decider. Return False if the state is no longer `before`."""
        return await self._store.approvals.move(id_, before, after, at=self._runtime.now(), facts=facts)

    async def close(self, id_: str) -> None:
        """Close an approval whose turn is over, even if its call never ended or started."""
        if not await self.move(id_, "spawned", "interrupted"):
            await self.move(id_, "approved", "cancelled", decision="changed")

    async def run(self) -> None:
        """Run as long as the gateway does: expire old requests, and repeat messages that a crash left out."""
        while True:
            waits = False
            with logged("approvals_round_failed"), suppress(StoreUnavailable):
                waits = await self._round()
            with suppress(TimeoutError):
                async with asyncio.timeout(WATCH_SECONDS if waits else IDLE_SECONDS):
                    await self._asked.wait()
            self._asked.clear()

    async def _round(self) -> bool:
        """Expire, announce or repeat each open request. Return whether there is one."""
        open_requests = await self._store.approvals.open_requests()
        for approval in open_requests:
            with logged("approval_not_settled", but=StoreUnavailable):  # a broken one does not block the others
                await self._advance(approval)
        if open_requests:
            await self._store.approvals.close_lost(at=self._runtime.now())
        self._repeated &= {it.id for it in open_requests}
        return bool(open_requests)

    async def _advance(self, approval: Approval) -> None:
        if approval.state == "pending" and self.clock.is_over(approval):
            await self.move(approval.id, "pending", "expired")
        elif approval.state == "pending" and self._is_off(approval):
            await self.move(approval.id, "pending", "cancelled", decision="config")
        elif approval.state == "pending" and await self._is_unseen(approval):
            await self.move(approval.id, "pending", "undeliverable")
        if (current := await self._store.approvals.get(approval.id)) is not None and current.state != "pending":
            await self.announce(current)
        elif approval.id not in self._repeated:
            # A process that died while storing the messages may have left some out.
            await self._ask(approval)

    async def _is_unseen(self, approval: Approval) -> bool:
        """Return whether no one can allow it any more. The operator can always read the full request in the console."""
        is_read = approval.tool != QUESTION and LOCAL_PERSON in self.approvers_of(approval)
        return not is_read and await self.is_lost(approval)

    def _is_off(self, approval: Approval) -> bool:
        """Return whether the config no longer allows the agent to do this."""
        runner = self._runtime.setup.runners.get(approval.agent)
        return runner is None or (approval.tool in COMMANDS and runner.exec_config.mode == "deny")


def dedupe(id_: str, purpose: str) -> str:
    """Return the dedupe key of an internal message; no channel's dedupe key has this prefix."""
    return f"gateway:approval:{id_}:{purpose}"
