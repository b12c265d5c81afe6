"""The self-watch: probe each account and model in use every `watch.every`, and notify the owners of two misses in a row.

A round begins with its row of `later`, which one worker takes, so of several replicas one probes. What was seen is stored
before the owners are notified, and a notice has a key of its outage: a process that dies in between neither loses nor
repeats it. Rounds run beside the turns, with timeouts, and only a failed model is asked no more than turns ask it.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import structlog

from agents.messages import Text, UserMessage
from agents.providers.config import model_outage
from agents.providers.provider import Done, ModelRequest, System
from agents.providers.retry import RetryConfig, RetryEvent, complete
from channels.bilingual import Finding
from gateway.approvals.display import value
from gateway.approvals.notices import Notice
from gateway.config.channels import Account, configured
from gateway.config.exposure import exposure
from gateway.later.watched import Watched, body_of, seen_in
from gateway.observe.logs import logged
from gateway.observe.secrets import presentable
from gateway.operate.doctor import broken
from gateway.operate.status import delivered
from gateway.state.runtime import Runtime
from gateway.store.later import WATCH, Later
from gateway.turns.budgets import agent_account

SETTLED_SECONDS = 10.0
"""Seconds after the start before the first round: the port is open by then, and a proxy has noticed."""
PROBE_SECONDS = 20.0
ROUND_SECONDS = 45.0
"""Longest round, less than the shortest `every`: the next one must find what it has stored."""
OWN_FAULT = frozenset({"invalid", "too_large", "message_too_long", "stale_thinking", "no_tools"})
"""Errors with which a model has answered: a request of one token is not every model's."""

Probed: TypeAlias = tuple[Finding | None, int]
"""The finding on what is wrong, if anything, and the number of events that wait at the platform."""
log = structlog.get_logger()


class SelfWatch:
    """`tell` stores a notice and returns whether an owner has it; `spawn` runs work in the background."""

    def __init__(
        self,
        runtime: Runtime,
        tell: Callable[[Notice], Awaitable[bool]],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._runtime = runtime
        self._tell = tell
        self._spawn = spawn
        self.busy = False

    def begin(self, row: Later) -> None:
        """Begin a round with the row that this worker has taken."""
        if not self.busy and self._runtime.setup.config.watch.seconds:
            self.busy = True
            self._spawn(self._run(row))

    async def _run(self, row: Later) -> None:
        try:
            with logged("self_watch_failed"):
                await asyncio.sleep(min(SETTLED_SECONDS, self._runtime.began + SETTLED_SECONDS - self._runtime.now()))
                async with asyncio.timeout(ROUND_SECONDS):
                    await self._round(seen_in(row.body))
        finally:
            self.busy = False

    async def _round(self, before: Mapping[str, Watched]) -> None:
        accounts = self._accounts(before)
        probes = {**accounts, **self._models()}
        results = await asyncio.gather(*(_bounded(name, it) for name, it in probes.items()))
        after: dict[str, Watched] = {}
        for name, (finding, waiting) in zip(probes, results, strict=True):
            new = Watched(kind="account" if name in accounts else "model")
            it = replace(before.get(name, new), waiting=waiting)
            after[name] = self._missed(name, it, finding) if finding else replace(it, misses=0)
        await self._keep(after)
        told = {name: await self._told(name, it) for name, it in after.items()}
        if told != after:
            await self._keep(told)

    async def _keep(self, seen: Mapping[str, Watched]) -> None:
        await self._runtime.store.later.rewrite(WATCH, body_of(seen))

    def _missed(self, name: str, it: Watched, finding: Finding) -> Watched:
        finding = finding.cleaned(presentable(self._runtime.scrubber))
        log.warning("self_watch_missed", name=name, misses=it.misses + 1, reason=finding.message.en)
        states = {":".join(key): state for key, state in self._runtime.channel_states().items()}
        is_known = states[name].is_bad if name in states else name in self._runtime.trouble.told
        return it.missed(finding, self._runtime.now(), is_known=is_known)

    async def _told(self, name: str, it: Watched) -> Watched:
        """Notify the owners of the outage, if that is owed, and of its end. Return the state after that."""
        if it.told == "owed" and await self._tell(_down(name, it)):
            it = replace(it, told="told")
        if it.misses:
            return it
        if it.told == "told":
            await self._tell(_up(name, it))
        return Watched(kind=it.kind, waiting=it.waiting)

    def _accounts(self, before: Mapping[str, Watched]) -> dict[str, Coroutine[Any, Any, Probed]]:
        found = {f"{it.kind.name}:{it.name}": it for it in configured(self._runtime.setup.config.channels)}
        return {
            name: self._account(it, before[name].waiting if name in before else 0)
            for name, it in found.items()
            if it.kind.watch
        }

    async def _account(self, account: Account, before: int) -> Probed:
        config, now = self._runtime.setup.config, self._runtime.now()
        assert account.kind.watch is not None
        findings, waiting = await account.kind.watch(account.config, account.name, exposure(config), now, before)
        if all(it.status == "ok" for it in findings) and (delivery := await delivered(config, account, now)):
            findings = [delivery]
        return next((it for it in findings if it.status != "ok"), None), waiting

    def _models(self) -> dict[str, Coroutine[Any, Any, Probed]]:
        config = self._runtime.setup.config
        agents = [it for it in config.agents.list if config.watch.model and not it.runner.acp]
        asked = {it.model[0]: it.id for it in reversed(agents) if not config.is_demo(it.model[0])}
        return {model: self._model(model, agent) for model, agent in asked.items()}

    async def _model(self, reference: str, agent: str) -> Probed:
        """Ask a model for one token, with each of its keys that is ready. The request changes nothing about how turns use
        the model: one that rests after their failures is not asked."""
        models, store = self._runtime.setup.runners[agent].models, self._runtime.store
        model = models.get(reference)
        name = model.provider.name
        if models.health.rests(name, model.name):
            return model_outage(models.health.failing[reference], reference).finding("model", reference), 0
        said = UserMessage(content=(Text(text="Say ok."),), timestamp=self._runtime.now())
        request = ModelRequest(
            model=model.name,
            facts=model.facts,
            system=System(stable="", volatile=""),
            messages=(said,),
            max_tokens=1,
            conversation=secrets.token_hex(8),
        )
        answers = []

        def count(event: RetryEvent) -> None:
            if isinstance(event, Done) and event.message.usage.is_reported:
                answers.append(models.priced(event.message, request))

        deadline, once = time.monotonic() + PROBE_SECONDS, RetryConfig().but(max_seconds=0)
        answer = await complete(model.provider, request, deadline=deadline, config=once, emit=count)
        for it in answers:
            self._runtime.metrics.count_request(it)
        account = agent_account(self._runtime, agent, answers)
        if spent := account and account.spent():
            await store.spend(spent)
        if answer.error is None or answer.error.kind in OWN_FAULT:
            return None, 0
        return model_outage(answer.error.kind, reference, answer.error.words).finding("model", reference), 0


async def _bounded(name: str, probe: Coroutine[Any, Any, Probed]) -> Probed:
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            return await probe
    except Exception as error:  # noqa: BLE001 - one probe that breaks must not hide what the others found
        return broken(name, error, PROBE_SECONDS), 0


def _down(name: str, it: Watched) -> Notice:
    (en, zh), (fix, fix_zh) = it.reason, it.fix
    return Notice(
        cause=f"watch {name} {it.since}",
        once=f"watch {name} {it.since}",
        en=f"{value(name)} failed its last checks: {value(en)}{f' — {fix}' if fix else ''}",
        zh=f"{value(name)} 连续几次检查失败：{value(zh)}{f'——{fix_zh}' if fix_zh else ''}",
    )


def _up(name: str, it: Watched) -> Notice:
    cause = f"watch {name} {it.since} ok"
    return Notice(cause=cause, once=cause, en=f"{value(name)} is working again.", zh=f"{value(name)} 已恢复正常。")
