"""Rehearsal: stored turns run again under another config, with recorded messages, history and tool results.

Only the models are called for real. The database is read-only, no tool or MCP server runs, no platform is connected, and a
missing workspace is a temporary empty folder.

Models rarely repeat their wording. So a turn counts as the same if the same agent made the same tool calls in the same order
and then answered, or stayed silent, as before.
"""

import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher, unified_diff
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

from agents.config import AgentConfig
from agents.language import language_for
from agents.messages import AssistantMessage, Message, ToolResultMessage, UserMessage
from agents.runner import AgentRunner
from agents.turn import ModelCalled, OverBudget, TurnEvent, TurnResult, TurnStarted
from agents.workspaces import is_template, workspace_path
from channels.api.channel import ApiChannel
from channels.channel import Channel
from channels.message import MessageContext
from gateway.app.setup import Lasting, build_setup
from gateway.config.load import Loaded
from gateway.config.root import Config, route
from gateway.observe.secrets import Scrubber
from gateway.rehearse.kept import (
    KeptAnswers,
    KeptTurn,
    NotRehearsed,
    RunFacts,
    calls_in,
    reply_in,
    sections_of,
    stand_ins,
)
from gateway.state.choices import chat_key, listen_key, switch_of
from gateway.state.reasons import access_reason
from gateway.state.runtime import Setup
from gateway.store.inbound import LoadedBody, inbound_json
from gateway.store.layers import DatabaseLayers
from gateway.store.opening import ReadOnlyStore
from gateway.store.records import Lease
from gateway.store.sessions import LOCAL_CHANNEL, is_open, sees_private, session_parts
from gateway.turns.answering import turn_of
from gateway.turns.batch import Batch
from gateway.turns.journal import ending_of
from tools.sandbox.sandbox import Sandbox

Layer: TypeAlias = Literal["access", "agent", "model", "prompt", "tools", "calls", "outcome", "reply"]
Verdict: TypeAlias = Literal["same", "different", "failed", "not-asked"]
"""`failed`: the model request failed or broke off. `not-asked`: `--max-cost` was reached before the turn's end."""
COUNTING: Sequence[Layer] = ("access", "agent", "calls", "outcome")
SIMILAR_CHARS = 5_000
"""Characters of a reply that are compared; the time is quadratic."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """`before` and `after` are the values that differ; `lines` have details."""

    layer: Layer
    before: str = ""
    after: str = ""
    lines: tuple[str, ...] = ()

    @property
    def counts(self) -> bool:
        return self.layer in COUNTING


def differences(before: RunFacts, after: RunFacts) -> Iterator[Difference]:
    yield from _named("agent", before.agent, after.agent)
    yield from _named("model", before.model, after.model)
    if lines := tuple(_sections(before.sections, after.sections)):
        sizes = (sum(map(len, it.sections.values())) for it in (before, after))
        old, new = (f"{it:,} characters" for it in sizes)
        yield Difference(layer="prompt", before=old, after=new, lines=lines)
    if set(before.tools) != set(after.tools):
        lost, gained = sorted({*before.tools} - {*after.tools}), sorted({*after.tools} - {*before.tools})
        lines = (*(f"- {it}" for it in lost), *(f"+ {it}" for it in gained))
        old, new = str(len(before.tools)), str(len(after.tools))
        yield Difference(layer="tools", before=old, after=new, lines=lines)
    if [*before.calls] != [*after.calls]:
        calls = ([f"{tool} {arguments}" for tool, arguments in it.calls] for it in (before, after))
        old_lines, new_lines = calls
        lines = tuple(_diff(old_lines, new_lines))
        yield Difference(layer="calls", before=str(len(old_lines)), after=str(len(new_lines)), lines=lines)
    yield from _named("outcome", before.outcome, after.outcome)
    if before.reply != after.reply:
        lines = tuple(_diff(before.reply.splitlines(), after.reply.splitlines()))
        old, new = (f"{len(it.reply):,} characters" for it in (before, after))
        yield Difference(layer="reply", before=old, after=new, lines=lines)


def similarity(before: RunFacts, after: RunFacts) -> int:
    """Return the similarity of the replies in percent; 100 only if they are equal."""
    if before.reply == after.reply:
        return 100
    pair = before.reply[:SIMILAR_CHARS], after.reply[:SIMILAR_CHARS]
    return min(99, round(100 * SequenceMatcher(None, *pair, autojunk=False).ratio()))


def _named(layer: Layer, before: str, after: str) -> Iterator[Difference]:
    if before != after:
        yield Difference(layer=layer, before=before, after=after)


def _sections(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    for heading in dict.fromkeys((*before, *after)):
        old, new = before.get(heading), after.get(heading)
        if old is None or new is None:
            yield f"{'+' if old is None else '-'} {heading}: {len(new or old or ''):,}"
        elif old != new:
            yield f"{heading}: {len(old):,} → {len(new):,}"


def _diff(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    for line in list(unified_diff(before, after, n=0, lineterm=""))[2:]:
        if not line.startswith("@@"):
            yield f"{line[0]} {line[1:]}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Rehearsed:
    """A turn and its rehearsal. `unknown` are the tools of calls without a recorded result."""

    kept: KeptTurn
    verdict: Verdict
    after: RunFacts
    differences: Sequence[Difference] = ()
    similarity: int | None = None
    unknown: Sequence[str] = ()


@dataclass(kw_only=True)
class Purse:
    """`agents.turn.Budget`: the total cost limit of the rehearsal; None for no limit."""

    most: float | None
    before: float = 0.0
    answers: list[AssistantMessage] = field(default_factory=list)

    @property
    def spent(self) -> float:
        return self.before + sum(it.cost or 0.0 for it in self.answers)

    async def exhausted(self) -> OverBudget | None:
        is_empty = self.most is not None and self.spent >= self.most
        return OverBudget(whose="agent", period="day", until="") if is_empty else None


@dataclass(kw_only=True)
class RehearsalJournal:
    """`agents.loop.Journal` in memory. Messages that arrived during the turn arrive after the same number of
    results. `sections` and `tools` are those that the model got."""

    steps: Sequence[Message]
    kept: list[Message] = field(default_factory=list)
    sections: Sequence[str] = ()
    tools: Sequence[str] = ()

    def __post_init__(self) -> None:
        self._waiting: list[tuple[int, UserMessage]] = []
        results = 0
        for it in self.steps:
            results += isinstance(it, ToolResultMessage)
            if isinstance(it, UserMessage):
                self._waiting.append((results, it))

    async def append(self, message: AssistantMessage | ToolResultMessage) -> None:
        self.kept.append(message)

    async def steered(self) -> Sequence[UserMessage]:
        results = sum(isinstance(it, ToolResultMessage) for it in self.kept)
        arrived = [it for count, it in self._waiting if count <= results]
        self._waiting = self._waiting[len(arrived) :]
        self.kept += arrived
        return arrived

    async def summarised(
        self, text: str, turns: int, answers: tuple[AssistantMessage, ...], *, external: bool = False
    ) -> None:
        """Drops it: the summary is for this turn alone."""

    def follow(self, event: TurnEvent) -> None:
        """Record what the model gets in addition to the messages."""
        match event:
            case TurnStarted(system=system):
                above, below = system.sections
                self.sections = (*above, *below)
            case ModelCalled(request=request):
                self.tools = [it.name for it in request.tools]
            case _:
                return


@asynccontextmanager
async def opened(loaded: Loaded, present: Config, scrubber: Scrubber, most: float | None) -> AsyncIterator["Rehearsal"]:
    """A rehearsal of the config `loaded` on the database of the `present` one, which spends `most` and what one request
    more may cost. Raises DatabaseUnusable and NotRehearsed."""
    config = loaded.config.but(database=present.database)
    with tempfile.TemporaryDirectory(prefix="rehearsal-") as folder:
        agents = tuple(_in_folder(it, folder) if _is_new(it.workspace_dir) else it for it in config.agents.list)
        config = config.but(agents=config.agents.but(list=agents))
        store = ReadOnlyStore(config.database)
        lasting = Lasting(store=store, scrubber=scrubber, sandbox=Sandbox(), now=time.time, wake=lambda: None)
        setup = build_setup(config, loaded.environment, lasting)
        await setup.owners.claimed.load()
        try:
            if most is not None and (names := _unpriced(setup)):
                raise NotRehearsed(f"--max-cost: no price is known of {', '.join(names)} — write it under `models`")
            yield Rehearsal(
                setup=setup,
                present=present,
                layers=store.layers,
                scrubber=scrubber,
                folder=folder,
                most=most,
            )
        finally:
            for runner in setup.runners.values():
                runner.close()
            for provider in setup.providers.values():
                await provider.close()
            for channel in setup.channels.values():
                await channel.close()


def _is_new(workspace: str) -> bool:
    return not is_template(workspace) and not Path(workspace).is_dir()


def _in_folder(agent: AgentConfig, folder: str) -> AgentConfig:
    return agent.but(workspace_dir=f"{folder}/{agent.id}")


def _unpriced(setup: Setup) -> list[str]:
    models = {name: it.models.get(name) for it in setup.runners.values() for name in it.config.model}
    return sorted(name for name, it in models.items() if it.facts.prices is None and it.provider.api != "demo")


@dataclass(kw_only=True)
class Rehearsal:
    """`folder` holds the temporary workspaces."""

    setup: Setup
    present: Config
    layers: DatabaseLayers
    scrubber: Scrubber
    folder: str
    most: float | None
    spent: float = 0.0

    async def run(self, kept: KeptTurn) -> Rehearsed:
        inbound, context = kept.inbound, kept.inbound.context
        agent, channel = await self._agent(kept), self.setup.channel(context)
        runner = self.setup.runners.get(agent)
        if runner is None or channel is None:
            missing = f"no agent {agent}" if runner is None else f"no account {context.channel}:{context.account}"
            return _refused(kept, agent, missing)
        if (refused := await self._access(kept, channel)) != "allowed":
            return _refused(kept, agent, refused)
        purse = Purse(most=self.most, before=self.spent)
        if await purse.exhausted():
            return Rehearsed(kept=kept, verdict="not-asked", after=RunFacts(agent=agent, outcome="not-asked"))
        body = inbound_json.dump_json(replace(inbound, agent=agent)).decode()
        messages = [*kept.messages[:-1], replace(kept.messages[-1], body=LoadedBody(body))]
        batch = Batch(
            setup=self.setup,
            lease=Lease(sid=kept.sid, epoch=0),
            work=kept.work,
            queue=self.setup.queues.of(agent, context),
            messages=messages,
        )
        earlier = inbound.asked.turns(runner.limits.message_chars) if inbound.asked else ()
        # A person who was approved by pairing still is; and nothing asks for an approval here.
        access = getattr(channel, "access", None)
        is_paired = access is not None and access.dm_policy == "pairing"
        private = sees_private(self.setup.owners, context, access, is_paired=is_paired)
        groups = (context.chat.id,) if any(it.get("name") == "group_history" for it in kept.tools) else ()
        told = (batch, channel, context, earlier, kept.begun)
        turn = turn_of(*told, sees_private=private, tainted=False, groups=groups)
        journal, answers = RehearsalJournal(steps=kept.steps), KeptAnswers.of(kept.steps)
        lists, mcp = runner.config.tools, self.setup.config.mcp
        stand_in = partial(stand_ins, answers=answers, listed=kept.tools, lists=lists, mcp=mcp)
        runner = self._with_workspace(runner, context)
        result = await runner.run(turn, journal=journal, emit=journal.follow, budget=purse, stand_in=stand_in)
        self.spent = purse.spent
        after = self._after(agent, kept, journal, result)
        return _judged(kept, after, result, answers.unknown)

    def _after(self, agent: str, turn: KeptTurn, journal: RehearsalJournal, result: TurnResult) -> RunFacts:
        ending = ending_of(result.outcome, language_for(turn.inbound.context))
        whole = [*turn.begun, *journal.kept, *([ending.message] if ending.message else [])]
        bill = replace(ending, answers=result.answers).bill()
        return RunFacts(
            agent=agent,
            model=result.answers[-1].reference if result.answers else "",
            outcome=ending.outcome,
            reply=reply_in(whole) if ending.outcome == "replied" else "",
            calls=calls_in(whole),
            sections=sections_of(map(self.scrubber.scrub, journal.sections)),
            tools=journal.tools,
            requests=bill.get("requests", 0),
            tokens=bill.get("tokens", {}),
            cost=bill.get("cost"),
            fault=str(ending.fault or ""),
        )

    async def _agent(self, turn: KeptTurn) -> str:
        """Return the agent that the new config routes the message to. An agent that was named explicitly stays: by a
        program, a schedule, a task, a button or the page."""
        inbound, context, config = turn.inbound, turn.inbound.context, self.setup.config
        if inbound.approval or context.origin or context.press or context.channel == ApiChannel.name:
            return inbound.agent
        place = replace(context, chat=replace(context.chat, id=session_parts(turn.sid).chat))
        chosen = await self.layers.chosen(chat_key(place), turn.began)
        if chosen in self.setup.runners and is_open(config, self.setup.owners, chosen, place, chosen=chosen):
            return chosen
        usual = route(self.present.routes, self.present.agents, context)
        if context.channel == LOCAL_CHANNEL and inbound.agent != usual:
            return inbound.agent
        return route(config.routes, config.agents, context)

    async def _access(self, turn: KeptTurn, channel: Channel) -> str:
        """Return `allowed`, or why the new config would not answer the sender. Approved pairings stay valid."""
        inbound, context = turn.inbound, turn.inbound.context
        if inbound.approval or context.origin or context.press:
            return "allowed"
        first = session_parts(turn.sid).chat
        switch = switch_of(await self.layers.chosen(listen_key(context.channel, context.account, first), turn.began))
        access, owners = getattr(channel, "access", None), self.setup.owners
        access_now = access_reason(access, owners, context, switch=switch, pairing_state=lambda: "paired")
        return "allowed" if access_now.value == "allowed" else access_now.reason

    def _with_workspace(self, runner: AgentRunner, context: MessageContext) -> AgentRunner:
        template = runner.config.workspace_dir
        if not is_template(template) or Path(workspace_path(template, context)).is_dir():
            return runner
        return replace(runner, config=_in_folder(runner.config, self.folder))


def _refused(turn: KeptTurn, agent: str, reason: str) -> Rehearsed:
    found = Difference(layer="access", before="allowed", after=reason)
    return Rehearsed(
        kept=turn, verdict="different", after=RunFacts(agent=agent, outcome="refused"), differences=[found]
    )


def _judged(turn: KeptTurn, after: RunFacts, result: TurnResult, unknown: Sequence[str]) -> Rehearsed:
    found = list(differences(turn.before, after))
    verdict: Verdict = "different" if unknown or any(it.counts for it in found) else "same"
    if after.fault:
        verdict = "failed"
    elif isinstance(result.outcome, OverBudget):
        verdict = "not-asked"
    has_replies = turn.before.reply and after.reply
    alike = similarity(turn.before, after) if has_replies else None
    return Rehearsed(kept=turn, verdict=verdict, after=after, differences=found, similarity=alike, unknown=unknown)
