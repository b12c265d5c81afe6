"""Budgets: the daily limits of an agent, a chat and a sender.

The journal write that carries an answer also counts its request, in its commit. Nothing is kept in memory beyond a turn,
so any number of replicas counts exactly; each request is checked before it is sent, so one may overshoot. Without a
configured budget there is no account.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta, tzinfo

from agents import sentences
from agents.messages import AssistantMessage
from agents.turn import OverBudget, Payer
from channels.message import MessageContext
from channels.moment import clock, day, local
from gateway.config.budgets import BudgetConfig
from gateway.config.root import Config
from gateway.records.sessions import chat_of, sender_of
from gateway.state.runtime import Runtime
from gateway.store.spending import DayUsage, Spent

WARN_SHARE = 0.8


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetUse:
    """A budget's use: today's tokens and money, and the limits. It starts again at `until`."""

    whose: Payer
    tokens: int
    cost: float
    allowed: BudgetConfig
    until: str

    @property
    def share(self) -> float:
        """The share that is used, 1 for all of it; of tokens or of money, whichever is further."""
        tokens, cost = self.allowed.tokens_per_day, self.allowed.cost_per_day
        return max(self.tokens / tokens if tokens else 0.0, self.cost / cost if cost else 0.0)


async def used(runtime: Runtime, config: Config, agent: str, context: MessageContext) -> Sequence[BudgetUse]:
    """The use of each budget that applies to the sender of a message to this agent in this chat."""
    account = account_of(runtime, config, agent, context, turn=0)
    return await account.used() if account else ()


def account_of(
    runtime: Runtime, config: Config, agent: str, context: MessageContext, *, turn: int
) -> "BudgetAccount | None":
    """The account of a turn that answers `context`; None if no budget is configured."""
    if not config.budgets.is_set:
        return None
    scopes: dict[Payer, str] = {"agent": f"agent:{agent}"}
    scopes |= {"chat": f"chat:{chat_of(context)}", "sender": f"sender:{sender_of(context)}"}
    allowed: dict[Payer, BudgetConfig] = {whose: getattr(config.budgets, whose) for whose in scopes}
    payers = {whose: scope for whose, scope in scopes.items() if allowed[whose].is_set}
    return BudgetAccount(runtime=runtime, payers=payers, allowed=allowed, zone=config.server.zone, turn=turn)


@dataclass(kw_only=True, slots=True)
class BudgetAccount:
    """`agents.turn.Budget` of one turn. `payers` are the scopes that its requests count for, in the store's order."""

    runtime: Runtime
    payers: Mapping[Payer, str]
    allowed: Mapping[Payer, BudgetConfig]
    zone: tzinfo
    turn: int
    answers: list[AssistantMessage] = field(default_factory=list)
    _written: int = 0
    """The number of answers that have gone into a write."""
    _is_checked: bool = False
    _seen: Sequence[DayUsage] = ()
    _seen_day: str = ""

    def add_earlier(self, answers: Sequence[AssistantMessage], *, counted: bool) -> None:
        """Adds the answers that an earlier run of the turn has left."""
        self.answers += answers
        self._written = len(self.answers) if counted else 0

    async def refusal(self) -> OverBudget | None:
        """Checks the budgets as the turn begins, for its first request as well."""
        self._is_checked = False
        spent = await self.exhausted()
        self._is_checked = True
        return spent

    async def exhausted(self) -> OverBudget | None:
        if self._is_checked:
            self._is_checked = False
            return None
        over = next((it for it in await self.used() if it.share >= 1), None)
        if over is None:
            return None
        self.runtime.metrics.refusals.labels(f"{over.whose}-budget").inc()
        return OverBudget(whose=over.whose, until=over.until)

    async def used(self) -> Sequence[BudgetUse]:
        self._seen_day = self._day()
        self._seen = await self.runtime.store.usage(self._seen_day, list(self.payers.values()))
        return self._current()

    def spent(self) -> Spent | None:
        """The amount to count with the next write, and with no other, even if that write fails."""
        tokens, cost = self._unwritten()
        self._written = len(self.answers)
        if not tokens:
            return None
        return Spent(scopes=tuple(self.payers.values()), day=self._day(), tokens=tokens, cost=cost)

    async def warnings(self, request: str) -> tuple[str, ...]:
        """The lines beneath the answer to `request` that say that most of a budget is used: each once a day."""
        if self._day() != self._seen_day:
            self._seen, self._seen_day = (), self._day()
        warned = {row.scope: row.warned for row in self._seen}
        lines = []
        for it in self._current():
            scope = self.payers[it.whose]
            due = it.share >= WARN_SHARE and warned.get(scope, 0) in (0, self.turn)
            if due and await self.runtime.store.claim_warning(scope, self._seen_day, self.turn):
                lines.append(sentences.budget_warning(it.whose, it.share, it.until, request))
        return tuple(lines)

    def _current(self) -> Sequence[BudgetUse]:
        """The budgets as last seen, with what has been spent since."""
        tokens, cost = self._unwritten()
        seen = {row.scope: row for row in self._seen}
        nothing = DayUsage(scope="", tokens=0, cost=0.0, warned=0)
        rows = {whose: seen.get(scope, nothing) for whose, scope in self.payers.items()}
        tomorrow = local(self.runtime.now(), self.zone).date() + timedelta(days=1)
        until = clock(datetime.combine(tomorrow, time(), self.zone).timestamp(), self.zone)
        return [
            BudgetUse(whose=it, tokens=row.tokens + tokens, cost=row.cost + cost, allowed=self.allowed[it], until=until)
            for it, row in rows.items()
        ]

    def _unwritten(self) -> tuple[int, float]:
        new = self.answers[self._written :]
        usages = [answer.usage for answer in new]
        tokens = sum(it.input + it.cache_read + it.cache_write + it.output for it in usages)
        return tokens, sum(answer.cost or 0.0 for answer in new)

    def _day(self) -> str:
        return day(self.runtime.now(), self.zone)
