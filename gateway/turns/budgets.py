"""Budgets: limits per agent, chat and sender for a day and a month.

The journal write that stores an answer also counts its request, in one commit. No counter outlives a turn in memory, so
any number of replicas counts exactly. A request is checked before it is sent, so one request may overshoot. Without a
configured budget there is no account.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta, tzinfo

from agents import sentences
from agents.language import Language
from agents.messages import AssistantMessage
from agents.turn import OverBudget, Payer, Period
from channels.message import MessageContext
from channels.moment import clock, day, local
from gateway.config.budgets import BudgetConfig
from gateway.config.root import Config
from gateway.state.runtime import Runtime
from gateway.store.records import ScopeUsage, Spent, month_of
from gateway.store.sessions import chat_of, sender_of

WARN_SHARE = 0.8


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetUse:
    """The use of one budget in its current period, with its limits. It resets at `until`."""

    whose: Payer
    period: Period
    tokens: int
    cost: float
    tokens_max: int | None
    cost_max: float | None
    until: str

    @property
    def share(self) -> float:
        """The used share of tokens or of money, whichever is larger; 1 means exhausted."""
        of_tokens = self.tokens / self.tokens_max if self.tokens_max else 0.0
        return max(of_tokens, self.cost / self.cost_max if self.cost_max else 0.0)


async def used(runtime: Runtime, config: Config, agent: str, context: MessageContext) -> Sequence[BudgetUse]:
    """Return the use of each budget that applies to this sender, agent and chat."""
    account = account_of(runtime, config, agent, context, turn=0)
    return await account.used() if account else ()


def account_of(
    runtime: Runtime, config: Config, agent: str, context: MessageContext, *, turn: int
) -> "BudgetAccount | None":
    """Return the account of a turn that answers `context`; None if no budget is configured."""
    if not config.budgets.is_set:
        return None
    scopes: dict[Payer, str] = {"agent": f"agent:{agent}"}
    scopes["chat"] = f"chat:{chat_of(context)}"
    if context.sender.id:  # else the operator's own turn, which no person pays for
        scopes["sender"] = f"sender:{sender_of(context)}"
    allowed: dict[Payer, BudgetConfig] = {whose: getattr(config.budgets, whose) for whose in scopes}
    payers = {whose: scope for whose, scope in scopes.items() if allowed[whose].is_set}
    return BudgetAccount(runtime=runtime, payers=payers, allowed=allowed, zone=config.server.zone, turn=turn)


def agent_account(runtime: Runtime, agent: str, answers: Sequence[AssistantMessage]) -> "BudgetAccount | None":
    """Return the account of requests that are no turn's, for the agent alone; None if agents have no budget."""
    config = runtime.setup.config
    payers: dict[Payer, str] = {"agent": f"agent:{agent}"}
    if not config.budgets.agent.is_set:
        return None
    allowed: dict[Payer, BudgetConfig] = {"agent": config.budgets.agent}
    zone, counted = config.server.zone, list(answers)
    return BudgetAccount(runtime=runtime, payers=payers, allowed=allowed, zone=zone, turn=0, answers=counted)


@dataclass(kw_only=True, slots=True)
class BudgetAccount:
    """The budget of one turn (`agents.turn.Budget`). `payers` are the scopes that its requests count towards, in the
    store's order."""

    runtime: Runtime
    payers: Mapping[Payer, str]
    allowed: Mapping[Payer, BudgetConfig]
    zone: tzinfo
    turn: int
    answers: list[AssistantMessage] = field(default_factory=list)
    _written: int = 0
    """The number of answers already counted in a write."""
    _is_checked: bool = False
    _seen: Sequence[ScopeUsage] = ()
    _seen_day: str = ""

    def add_earlier(self, answers: Sequence[AssistantMessage], *, counted: bool) -> None:
        """Add the answers of an earlier run of the same turn."""
        self.answers += answers
        self._written = len(self.answers) if counted else 0

    async def refusal(self) -> OverBudget | None:
        """Check the budgets at the start of the turn, which covers its first request too."""
        self._is_checked = False
        spent = await self.exhausted()
        self._is_checked = True
        return spent

    async def exhausted(self) -> OverBudget | None:
        if self._is_checked:
            self._is_checked = False
            return None
        spent = [it for it in await self.used() if it.share >= 1]
        if not spent:
            return None
        over = next((it for it in spent if it.period == "month"), spent[0])
        self.runtime.metrics.refusals.labels(f"{over.whose}-{'month-' * (over.period == 'month')}budget").inc()
        return OverBudget(whose=over.whose, period=over.period, until=over.until)

    async def used(self) -> Sequence[BudgetUse]:
        self._seen_day = self._day()
        self._seen = await self.runtime.store.usage(self._seen_day, list(self.payers.values()))
        return self._current()

    def spent(self, *, besides: float = 0.0) -> Spent | None:
        """Return the amount to count with the next write. Each amount is returned once, even if that write fails. `besides`:
        a cost without an answer, such as that of speech."""
        tokens, cost = self._unwritten()
        self._written = len(self.answers)
        if not tokens and not besides:
            return None
        return Spent(scopes=tuple(self.payers.values()), day=self._day(), tokens=tokens, cost=cost + besides)

    async def warnings(self, language: Language) -> tuple[str, ...]:
        """Return the warnings below an answer for budgets that are nearly used up: one per budget and period."""
        if self._day() != self._seen_day:
            await self.used()
        lines = []
        for it in self._current():
            scope, is_month = self.payers[it.whose], it.period == "month"
            row = self._row(it.whose)
            due = it.share >= WARN_SHARE and (row.month_warned if is_month else row.warned) in (0, self.turn)
            period = month_of(self._seen_day) if is_month else self._seen_day
            if due and await self.runtime.store.claim_warning(scope, period, self.turn):
                lines.append(sentences.budget_warning(it.whose, it.period, it.share, it.until, language))
        return tuple(lines)

    def _current(self) -> Sequence[BudgetUse]:
        """Return the budgets as last read, plus what this turn has spent since."""
        return [use for whose in self.payers for use in self._uses(whose, self._row(whose))]

    def _row(self, whose: Payer) -> ScopeUsage:
        scope = self.payers[whose]
        return next((row for row in self._seen if row.scope == scope), ScopeUsage(scope=scope))

    def _uses(self, whose: Payer, row: ScopeUsage) -> Iterator[BudgetUse]:
        tokens, cost = self._unwritten()
        allowed, today = self.allowed[whose], local(self.runtime.now(), self.zone).date()
        if allowed.is_set_for_day:
            tomorrow = datetime.combine(today + timedelta(days=1), time(), self.zone)
            yield BudgetUse(
                whose=whose,
                period="day",
                tokens=row.tokens + tokens,
                cost=row.cost + cost,
                tokens_max=allowed.tokens_per_day,
                cost_max=allowed.cost_per_day,
                until=clock(tomorrow.timestamp(), self.zone),
            )
        if allowed.cost_per_month is not None:
            yield BudgetUse(
                whose=whose,
                period="month",
                tokens=0,
                cost=row.month_cost + cost,
                tokens_max=None,
                cost_max=allowed.cost_per_month,
                until=(today.replace(day=1) + timedelta(days=32)).replace(day=1).isoformat(),
            )

    def _unwritten(self) -> tuple[int, float]:
        new = self.answers[self._written :]
        usages = [answer.usage for answer in new]
        tokens = sum(it.input + it.cache_read + it.cache_write + it.output for it in usages)
        return tokens, sum(answer.cost or 0.0 for answer in new)

    def _day(self) -> str:
        return day(self.runtime.now(), self.zone)
