"""The state of the gateway that serves at the config's address: the lines of `status`, and what `doctor` adds of it."""

from collections.abc import Iterator, Mapping
from typing import Any

from agents.providers.catalog import needs_key
from channels.condition import ChannelState
from channels.finding import Finding, Status
from channels.wire import mapping, text
from gateway.config.exposure import operator_proof
from gateway.config.load import Loaded
from gateway.config.warnings import advice
from gateway.guard import VERSION
from gateway.http.reach import readiness_at, unreachable_at
from gateway.program import program

WAITING_SECONDS_LONG = 60.0
"""A message that waits longer for its answer deserves a look."""
MARKS: Mapping[Status, str] = {"ok": "✓", "warning": "!", "error": "✗"}
_WORDLESS = "the running gateway has other secrets than this config and keeps its reasons: see its log, or its page"


async def status(loaded: Loaded) -> list[Finding]:
    """About six findings: address, config, database, channels, model and queue. One alone if no gateway serves."""
    server = loaded.config.server
    answer = await readiness_at(server.address, operator_proof(loaded.config))
    if answer is None:
        return [Finding("gateway", "error", f"no gateway serves at {server.address}", f"start it: {program()} serve")]
    if not answer:
        message = f"what answers at {server.address} is no gateway"
        return [Finding("gateway", "error", message, "see server.port, and what else listens there")]
    return [
        *_gateway(answer, server.address),
        *_config(mapping(answer, "config")),
        *_database(answer, loaded),
        *_channels(answer),
        *_models(answer, loaded),
        *_queue(answer),
    ]


def start_lines(states: Mapping[tuple[str, str], ChannelState]) -> Iterator[str]:
    """The lines of the start once it is known which channels are in touch with their platform."""
    for (channel, account), state in states.items():
        label = channel if account == "default" else f"{channel} {account}"
        if state.is_bad:
            yield f"  {label:<10} ✗ {state.state}: {state.reason.en} — {state.fix.en}"
        else:
            yield f"  {label:<10} {'✓ in touch' if state.state == 'ok' else '… still connecting: see status'}"


async def beside(loaded: Loaded) -> list[Finding]:
    """The findings of `doctor` on a gateway that serves meanwhile: its channels, and the public address."""
    server = loaded.config.server
    answer = await readiness_at(server.address, operator_proof(loaded.config))
    if not answer:
        return [Finding("gateway", "ok", f"none serves at {server.address}, so no connection of one is looked at")]
    found = [*_gateway(answer, server.address), *_channels(answer)]
    if server.public_url is not None:
        reason = await unreachable_at(server.public_url, text(mapping(answer, "config"), "version"))
        fix = f"let the name and the proxy lead to {server.address}, and try it from outside, too"
        message = f"{server.public_url}: {reason or 'leads to this gateway'}"
        found.append(Finding("publicUrl", "error" if reason else "ok", message, fix if reason else ""))
    return found


def _gateway(answer: Mapping[str, Any], address: str) -> Iterator[Finding]:
    failing = mapping(answer, "failing")
    name = f"Clawgate {text(answer, 'version') or VERSION}"
    if not failing:
        yield Finding("gateway", "ok", f"{name}, ready at {address}")
    for check, reason in failing.items():
        yield Finding("gateway", "error", f"{name} at {address} takes no work: {check}, {reason}", "see its log")


def _config(config: Mapping[str, Any]) -> Iterator[Finding]:
    version, error, restart = text(config, "version"), config.get("error"), config.get("restart")
    if error:
        message = f"the edited file cannot be used; {version} holds"
        yield Finding("config", "error", f"{message}: {error}" if error is not True else message, "mend the file")
    elif restart:
        changed = f"{version}; changed since the start: {', '.join(restart)}"
        yield Finding("config", "warning", changed, "restart the gateway")
    else:
        yield Finding("config", "ok", f"{version}, in force")


def _database(answer: Mapping[str, Any], loaded: Loaded) -> Iterator[Finding]:
    reason = text(mapping(answer, "failing"), "database")
    shown = loaded.config.database.shown
    yield (
        Finding("database", "error", f"{shown}: {reason}", "see doctor") if reason else Finding("database", "ok", shown)
    )


def _channels(answer: Mapping[str, Any]) -> Iterator[Finding]:
    """One for all that are ok, and one for each that is not."""
    channels = mapping(answer, "channels")
    well = [name for name in channels if text(mapping(channels, name), "state") == "ok"]
    if well or not channels:
        yield Finding("channels", "ok", ", ".join(well) or "none is configured")
    for name in (it for it in channels if it not in well):
        state = mapping(channels, name)
        reason = f": {text(state, 'reason')}" if text(state, "reason") else ""
        message = f"{name} is {text(state, 'state')} since {text(state, 'since')}{reason}"
        if text(state, "state") == "starting":
            yield Finding("channels", "warning", message, "ask again in a moment")
        else:
            yield Finding("channels", "error", message, text(state, "fix") or _WORDLESS)


def _models(answer: Mapping[str, Any], loaded: Loaded) -> Iterator[Finding]:
    """The models that agents ask: without a key, or failing."""
    failing = answer.get("failingModels") or ()
    models = dict.fromkeys(model for agent in loaded.config.agents.list for model in agent.model)
    bad = False
    for model in models:
        name = model.partition("/")[0]
        provider = loaded.config.provider(name)
        if not provider.keys and needs_key(name, provider):
            bad = True
            yield Finding("model", "error", f"{model}: no key", advice(("providers", name, "apiKey"), loaded.names))
        elif model in failing:
            bad = True
            yield Finding("model", "error", f"{model}: its last request failed", "see doctor, and the log")
    if not bad:
        yield Finding("model", "ok", ", ".join(models))


def _queue(answer: Mapping[str, Any]) -> Iterator[Finding]:
    queue = mapping(answer, "queue")
    if not queue:
        return
    oldest = float(queue.get("oldestSeconds") or 0)
    message = f"{queue.get('messages')} to answer, {queue.get('parts')} to send"
    if oldest > WAITING_SECONDS_LONG:
        yield Finding("queue", "warning", f"{message}; the oldest waits for {oldest:.0f} s", "see its log")
    else:
        yield Finding("queue", "ok", message)
