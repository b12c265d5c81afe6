"""`python -m gateway doctor` tries everything the gateway depends on, with or without a running gateway.

Every probe has a deadline, and all run side by side; none sends a message, changes anything or shows a secret. The
findings of `check` are there as well.
"""

import asyncio
import json
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from email.utils import parsedate_to_datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path

from agents.providers import doctor as provider_doctor
from agents.providers.catalog import wire_of
from agents.providers.config import ProviderConfig
from channels.finding import Finding, Status
from channels.transport import Transport, client_class
from gateway.config.channels import configured
from gateway.config.exposure import exposure, sandboxed
from gateway.config.load import Loaded
from gateway.config.root import Config
from gateway.config.warnings import advice
from gateway.guard import VERSION
from gateway.observe.secrets import Scrubber, redacted, secrets_of
from gateway.operate.report import report
from gateway.operate.status import beside
from gateway.store.inspect import health
from gateway.store.migrate import DatabaseUnusable
from tools.config import effective_exec
from tools.held import allowed
from tools.sandbox.confine import landlock_version
from tools.sandbox.sandbox import Sandbox
from tools.workspace import NOBODY

PROBE_SECONDS = 20.0
CALL_SECONDS = 5.0
FREE_BYTES_LOW = 1024**3
FREE_BYTES_MIN = 100 * 1024**2
CLOCK_OFF_SECONDS = 30.0
CLOCK_WRONG_SECONDS = 300.0

Probe = Callable[[], Awaitable[Sequence[Finding]]]


async def examine(
    loaded: Loaded,
    *,
    now: Callable[[], float] = time.time,
    free: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free,
    seconds: float = PROBE_SECONDS,
    wanted: Callable[[str], bool] = bool,
) -> list[Finding]:
    """All findings of the probes that are `wanted`, in their order. Raises nothing for what is broken: it looks for that."""
    chosen = [it for it in _probes(loaded, now, free) if wanted(it[0])]
    found = await asyncio.gather(*(_bounded(check, probe, seconds) for check, probe in chosen))
    scrub = Scrubber(secrets_of(loaded.config)).scrub

    def shown(text: str) -> str:
        """The text without what a terminal obeys: a platform names itself and its models in it, too."""
        return redacted(scrub("".join(filter(str.isprintable, " ".join(text.split())))))

    return [it.cleaned(shown) for findings in found for it in findings]


def by_severity(findings: Sequence[Finding]) -> list[Finding]:
    """The errors first, then the warnings."""
    return sorted(findings, key=lambda it: ("error", "warning", "ok").index(it.status))


def summary(findings: Sequence[Finding]) -> str:
    errors, warnings, well = (sum(it.status == status for it in findings) for status in ("error", "warning", "ok"))
    counted = [
        f"{count} {name}{'' if count == 1 else 's'}" for count, name in ((errors, "error"), (warnings, "warning"))
    ]
    return f"{', '.join(counted)}, {well} ok"


def as_json(findings: Sequence[Finding]) -> str:
    return json.dumps([asdict(it) for it in findings], ensure_ascii=False, indent=2)


async def _bounded(check: str, probe: Probe, seconds: float) -> Sequence[Finding]:
    try:
        async with asyncio.timeout(seconds):
            return await probe()
    except TimeoutError:
        return [Finding(check, "error", f"no answer within {seconds:.0f} s", "is the network slow, or a server ill?")]
    except Exception as error:  # noqa: BLE001 - one probe that breaks must not hide what the others found
        fix = "please report this, with the probe's name"
        return [Finding(check, "error", f"could not be tried ({type(error).__name__})", fix)]


def _probes(loaded: Loaded, now: Callable[[], float], free: Callable[[Path], int]) -> Iterator[tuple[str, Probe]]:
    config = loaded.config

    async def written() -> Sequence[Finding]:
        return [*filter(None, [config.server.exposure]), *report(loaded)]

    async def system() -> Sequence[Finding]:
        approvers = ", ".join(config.approvers() or ()) or "the web chat of this machine alone"
        skills = dict.fromkeys(it for skills in loaded.skills.values() for it in skills)
        # The hash of a skill's document shows its reviewer whether it is still the same.
        hashes = (Finding(f"skill {it.name}", "ok", f"{it.version} in {it.directory}") for it in skills)
        return [_system(), Finding("approvers", "ok", approvers), *hashes]

    yield "config", written
    yield "system", system
    yield "gateway", lambda: beside(loaded)
    yield "database", lambda: asyncio.to_thread(_database, loaded)
    yield "disk", lambda: asyncio.to_thread(_disk, loaded, free)
    yield "workspaces", lambda: asyncio.to_thread(_workspaces, loaded)
    yield "sandbox", lambda: _sandbox(loaded)
    yield "clock", lambda: _clock(loaded, now)
    for account in configured(config.channels):
        if probe := account.kind.probe:
            yield (
                f"{account.kind.name} {account.name}",
                partial(probe, account.config, account.name, exposure(config), now()),
            )
    for name in _providers(loaded):
        yield f"provider {name}", _of_provider(name, loaded)
    if (speech := config.transcription).model:
        server = ProviderConfig(api="openai-chat", baseUrl=speech.base_url, apiKey=speech.api_key)
        tried = partial(provider_doctor.probe, "transcription", server, [speech.model])
        yield "transcription", partial(tried, seconds=CALL_SECONDS, key_fix="set transcription.apiKey")


def _of_provider(name: str, loaded: Loaded) -> Probe:
    models = [it.partition("/")[2] for it in _models(loaded.config) if it.partition("/")[0] == name]
    key_fix = advice(("providers", name, "apiKey"), loaded.names)
    provider = loaded.config.provider(name)
    return lambda: provider_doctor.probe(name, provider, models, seconds=CALL_SECONDS, key_fix=key_fix)


def _providers(loaded: Loaded) -> list[str]:
    """The providers that an agent or `/model` may ask."""
    names = sorted({it.partition("/")[0] for it in _models(loaded.config)})
    return [it for it in names if (loaded.config.provider(it).api or it) != "demo"]


def _models(config: Config) -> Iterable[str]:
    named = (model for agent in config.agents.list for model in agent.named_models.values())
    return dict.fromkeys((*named, *config.choosable_models))


def _system() -> Finding:
    facts = (
        f"Clawgate {VERSION}, Python {sys.version.split()[0]}, Starlette {version('starlette')}",
        f"uid {os.geteuid()}, Landlock {landlock_version() or 'not there'}",
    )
    return Finding("system", "ok", ", ".join(facts))


def _database(loaded: Loaded) -> list[Finding]:
    try:
        return [Finding("database", "ok", health(loaded.config.database))]
    except DatabaseUnusable as error:
        return [Finding("database", "error", error.reason, error.fix)]


def _folders(loaded: Loaded) -> dict[Path, str]:
    """The folders that are written while it serves, each with its owner; for a workspace of each chat, their parent."""
    config = loaded.config
    found = {Path(config.database.path).parent: "the database"} if config.database.path else {}
    found[Path(config.tools.files.uploads_dir)] = "uploads"
    for agent in config.agents.list:
        found.setdefault(Path(agent.workspace_dir.partition("{")[0]), f"the workspace of {agent.id}")
    return found


def _existing_parent(folder: Path) -> Path:
    """The folder, or the nearest parent that exists."""
    return next(it for it in (folder, *folder.parents) if it.exists())


def _workspaces(loaded: Loaded) -> list[Finding]:
    found = []
    for folder, whose in _folders(loaded).items():
        try:
            with tempfile.TemporaryFile(dir=_existing_parent(folder)):  # nameless if the file system can
                pass
            found.append(Finding("folders", "ok", f"{whose}: {folder} can be written"))
        except OSError as error:
            fix = f"let uid {os.geteuid()} write there (chown, chmod 700), or name another folder"
            found.append(Finding("folders", "error", f"{whose}: {folder} cannot be written ({error.strerror})", fix))
    for id_ in sandboxed(loaded.config):
        folder = next(Path(it.workspace_dir) for it in loaded.config.agents.list if it.id == id_)
        if os.geteuid() == 0 and folder.is_dir():
            found += _closed(id_, folder)
    return found


def _closed(agent: str, folder: Path) -> list[Finding]:
    """Names what the commands of a root gateway cannot read: they run as the workspace's owner, or as nobody for root's."""
    status = folder.stat()
    uid, gid = status.st_uid or NOBODY, status.st_gid or NOBODY
    statuses = {it.name: it.stat(follow_symlinks=False) for it in os.scandir(folder)}
    closed = [
        name
        for name, it in {**statuses, ".": status}.items()
        if not (name == "." and not it.st_uid)  # that one is given to them at the start
        and not allowed(it.st_mode, it.st_uid, it.st_gid, uid, gid) & (1 if stat.S_ISDIR(it.st_mode) else 4)
    ]
    shown = ", ".join(sorted(closed)[:5]) + (f" and {len(closed) - 5} more" if len(closed) > 5 else "")
    fix = f"chown -R {uid}:{gid} {folder}, and chmod -R u+rwX {folder}"
    message = f"commands of {agent} run as uid {uid}, which cannot read in {folder}: {shown}"
    return [Finding("folders", "warning", message, fix)] if closed else []


def _disk(loaded: Loaded, free: Callable[[Path], int]) -> list[Finding]:
    found: dict[int, Finding] = {}
    for folder, whose in _folders(loaded).items():
        place = _existing_parent(folder)
        left = free(place)
        status: Status = "error" if left < FREE_BYTES_MIN else "warning" if left < FREE_BYTES_LOW else "ok"
        fix = "" if status == "ok" else "make room: on a full disk nothing is accepted any more"
        message = f"{left / 1024**3:.1f} GiB free for {whose} ({place})"
        found.setdefault(place.stat().st_dev, Finding("disk", status, message, fix))
    return [*found.values()]


async def _sandbox(loaded: Loaded) -> list[Finding]:
    config = loaded.config
    agents = sandboxed(config)
    sandbox = Sandbox([Path(config.database.path)] if config.database.path else [])
    report = await sandbox.probe()
    if report.wall is not None or not agents:
        used = f", for {', '.join(agents)}" if agents else "; no agent needs one"
        named = [it for it in config.agents.list if it.id in agents]
        opened = [it.id for it in named if effective_exec(config.tools.exec, it.tools).network]
        if opened and (report := await sandbox.opened.probe()).wall is None:
            fix = "see docs/sandbox.md#network; until then exec refuses their commands"
            return [Finding("sandbox", "error", f"with network for {', '.join(opened)}: {report}", fix)]
        return [Finding("sandbox", "ok", f"{report}{used}")]
    fix = "see docs/sandbox.md for what this machine lacks; until then exec refuses every command"
    return [Finding("sandbox", "error", f"{report}, although {', '.join(agents)} may run commands", fix)]


async def _clock(loaded: Loaded, now: Callable[[], float]) -> list[Finding]:
    """Compares the clock with the Date of the first server that answers: a wrong one breaks signatures, tokens and TLS."""
    platforms = (it.kind.address(it.config) for it in configured(loaded.config.channels))
    providers = (wire_of(name, loaded.config.provider(name)).models_url for name in _providers(loaded))
    for address in filter(None, (*platforms, *providers)):
        sent = now()
        if (there := await _date(address)) is None:
            continue
        off = abs(there - (sent + now()) / 2)
        status: Status = "error" if off > CLOCK_WRONG_SECONDS else "warning" if off > CLOCK_OFF_SECONDS else "ok"
        fix = "" if status == "ok" else "set this machine's clock by NTP (timedatectl set-ntp true)"
        return [Finding("clock", status, f"{off:.0f} s off", fix)]
    return [Finding("clock", "ok", "not compared: no platform or provider that answers")]


async def _date(address: str) -> float | None:
    import httpx

    try:
        async with client_class(httpx)(transport=Transport(httpx, address), timeout=CALL_SECONDS / 2) as client:
            response = await client.send(client.build_request("HEAD", address), stream=True)
            await response.aclose()
        return parsedate_to_datetime(response.headers.get("date", "")).timestamp()
    except (httpx.HTTPError, TypeError, ValueError, OverflowError):
        return None
