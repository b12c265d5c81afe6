"""`python -m gateway doctor`: probe everything the gateway depends on, with or without a running gateway.

All probes run concurrently with a timeout. None sends a message, changes anything or shows a secret. The findings of `check`
are included.
"""

import asyncio
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path

from agents.language import Language
from agents.providers import doctor as provider_doctor
from agents.providers.catalog import wire_of
from agents.providers.config import ProviderConfig
from channels.bilingual import NO_WORDS, Bilingual, Finding, Status
from channels.transport import Transport, client_class
from gateway.config.channels import configured
from gateway.config.exposure import exposure, sandboxed
from gateway.config.load import Loaded
from gateway.config.root import Config
from gateway.config.serving import ServingRecord
from gateway.config.warnings import advice
from gateway.observe.secrets import Scrubber, presentable, secrets_of
from gateway.operate.mcp import probe as probe_server
from gateway.operate.mcp import probe_runner
from gateway.operate.report import report
from gateway.operate.status import beside, logins
from gateway.program import VERSION
from gateway.store.migrate import DatabaseUnusable
from gateway.store.opening import health
from tools.config import effective_exec
from tools.sandbox.confine import landlock_version
from tools.sandbox.sandbox import Sandbox
from tools.supervisor import allowed
from tools.workspace import NOBODY

PROBE_SECONDS = 20.0
CALL_SECONDS = 5.0
CLOCK_OFF_SECONDS = 30.0
CLOCK_WRONG_SECONDS = 300.0
PRICES_OLD_DAYS = 180

WORDS: Mapping[Status, Bilingual] = {
    "ok": Bilingual(f"{'ok':<8} ", "正常 "),
    "warning": Bilingual(f"{'warning':<8} ", "警告 "),
    "error": Bilingual(f"{'error':<8} ", "错误 "),
}

Probe = Callable[[], Awaitable[Sequence[Finding]]]
FREE_BYTES_LOW = 1024**3
FREE_BYTES_MIN = 100 * 1024**2


async def examine(
    loaded: Loaded,
    *,
    serving: ServingRecord | None = None,
    now: Callable[[], float] = time.time,
    free: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free,
    seconds: float = PROBE_SECONDS,
    wanted: Callable[[str], bool] = bool,
) -> list[Finding]:
    """Run the `wanted` probes and return their findings in order."""
    chosen = [it for it in _probes(loaded, serving, now, free) if wanted(it[0])]
    results = await asyncio.gather(*(_bounded(check, probe, seconds) for check, probe in chosen))
    shown = presentable(Scrubber(secrets_of(loaded.config)))
    return [it.cleaned(shown) for findings in results for it in findings]


def summary(findings: Sequence[Finding], language: Language) -> str:
    errors, warnings, well = (sum(it.status == status for it in findings) for status in ("error", "warning", "ok"))
    if language == "zh":
        return f"错误 {errors} 项，警告 {warnings} 项，正常 {well} 项"
    counted = [
        f"{count} {name}{'' if count == 1 else 's'}" for count, name in ((errors, "error"), (warnings, "warning"))
    ]
    return f"{', '.join(counted)}, {well} ok"


async def _bounded(check: str, probe: Probe, seconds: float) -> Sequence[Finding]:
    try:
        async with asyncio.timeout(seconds):
            return await probe()
    except Exception as error:  # noqa: BLE001 - one probe that breaks must not hide what the others found
        return [broken(check, error, seconds)]


def broken(check: str, error: Exception, seconds: float) -> Finding:
    """Return the finding on a probe that ended with an error, or not within these seconds."""
    if isinstance(error, TimeoutError):
        message = Bilingual(f"no answer within {seconds:.0f} s", f"{seconds:.0f} 秒内没有应答")
        fix = Bilingual("is the network slow, or a server ill?", "是否网络太慢，或服务器出了故障？")
        return Finding(check, "error", message, fix)
    name = type(error).__name__
    fix = Bilingual("please report this, with the probe's name", "请反馈此问题，并附上检查项的名称")
    return Finding(check, "error", Bilingual(f"could not be tried ({name})", f"无法检查（{name}）"), fix)


def _probes(
    loaded: Loaded, serving: ServingRecord | None, now: Callable[[], float], free: Callable[[Path], int]
) -> Iterator[tuple[str, Probe]]:
    config = loaded.config

    async def written() -> Sequence[Finding]:
        return [*filter(None, [config.server.exposure]), *report(loaded)]

    async def system() -> Sequence[Finding]:
        approvers = Bilingual(", ".join(config.approvers() or ())) or Bilingual(
            "the web chat of this machine until the bot is claimed, then its owners",
            "认领之前是本机的网页聊天，认领之后是所有者",
        )
        skills = dict.fromkeys(it for skills in loaded.skills.values() for it in skills)
        # The hash of a skill's document shows its reviewer whether it is still the same.
        hashes = (
            Finding(
                f"skill {it.name}",
                "ok",
                Bilingual(f"{it.version} in {it.directory}", f"{it.version}，位于 {it.directory}"),
            )
            for it in skills
        )
        return [_system(), Finding("approvers", "ok", approvers), *hashes]

    yield "config", written
    yield "system", system
    yield "gateway", lambda: beside(loaded, serving)
    yield "database", lambda: asyncio.to_thread(_database, loaded)
    yield "logins", lambda: asyncio.to_thread(logins, loaded)
    yield "disk", lambda: asyncio.to_thread(room, loaded, free)
    yield "workspaces", lambda: asyncio.to_thread(writable, loaded)
    yield "sandbox", lambda: _sandbox(loaded)
    yield "clock", lambda: _clock(loaded, now)
    yield "prices", lambda: _prices(config, now())
    for account in configured(config.channels):
        if probe := account.kind.probe:
            yield (
                f"{account.kind.name} {account.name}",
                partial(probe, account.config, account.name, exposure(config), now()),
            )
    for name in config.mcp.servers:
        yield f"mcp {name}", partial(probe_server, loaded, name)
    for agent in config.agents.list:
        if agent.runner.acp:
            yield f"runner {agent.id}", partial(probe_runner, loaded, agent)
    for name in _providers(loaded):
        asked_for = (*_models(config), *_speech_models(config))
        models = [it.partition("/")[2] for it in asked_for if it.partition("/")[0] == name]
        asked = partial(provider_doctor.probe, name, config.provider(name), models, seconds=CALL_SECONDS)
        yield f"provider {name}", partial(asked, key_fix=advice(("providers", name, "apiKey"), loaded.names))
    if (transcription := config.transcription).model:
        server = ProviderConfig(api="openai-chat", baseUrl=transcription.base_url, apiKey=transcription.api_key)
        tried = partial(provider_doctor.probe, "transcription", server, [transcription.model])
        yield "transcription", partial(tried, seconds=CALL_SECONDS, key_fix=advice(("transcription", "apiKey"), {}))


def _providers(loaded: Loaded) -> list[str]:
    names = sorted({it.partition("/")[0] for it in (*_models(loaded.config), *_speech_models(loaded.config))})
    return [it for it in names if (loaded.config.provider(it).api or it) != "demo"]


def _models(config: Config) -> Iterable[str]:
    named = (model for agent in config.agents.list for model in agent.named_models.values())
    return dict.fromkeys((*named, *config.choosable_models))


def _speech_models(config: Config) -> set[str]:
    speeches = (agent.speech.over(config.speech) for agent in config.agents.list)
    return {it.model for it in speeches if it.model and it.mode != "off"}


async def _prices(config: Config, now: float) -> Sequence[Finding]:
    # Only shipped prices: the operator's own are theirs to renew.
    shipped = {it: prices.as_of for it in _models(config) if (prices := config.prices(it, own=False)) and prices.as_of}
    oldest = (datetime.fromtimestamp(now, UTC).date() - timedelta(days=PRICES_OLD_DAYS)).isoformat()
    if not (old := [f"{it} ({day})" for it, day in shipped.items() if day < oldest]):
        return []
    en, zh = ", ".join(old), "、".join(old)
    message = Bilingual(
        f"the shipped prices of {en} are older than {PRICES_OLD_DAYS} days",
        f"自带的价格已超过 {PRICES_OLD_DAYS} 天：{zh}",
    )
    setting = f"models: {{ {old[0].partition(' ')[0]}: {{ prices: … }} }}"
    fix = Bilingual(
        f"compare them with the vendor's list, and write your own: {setting} (docs/providers.md)",
        f"请对照厂商的价目表，并写上自己的价格：{setting}（docs/providers.md）",
    )
    return [Finding("prices", "warning", message, fix)]


def _system() -> Finding:
    programs = (f"Clawgate {VERSION}", f"Python {sys.version.split()[0]}", f"Starlette {version('starlette')}")
    facts = Bilingual(", ".join((*programs, f"uid {os.geteuid()}")), "，".join((*programs, f"uid {os.geteuid()}")))
    landlock = landlock_version()
    message = Bilingual(f"{facts}, Landlock {landlock or 'not there'}", f"{facts.zh}，Landlock {landlock or '不可用'}")
    return Finding("system", "ok", message)


def _database(loaded: Loaded) -> list[Finding]:
    try:
        return [Finding("database", "ok", health(loaded.config.database))]
    except DatabaseUnusable as error:
        return [error.finding]


async def _sandbox(loaded: Loaded) -> list[Finding]:
    config = loaded.config
    agents = sandboxed(config)
    sandbox = Sandbox([Path(config.database.path)] if config.database.path else [])
    report = await sandbox.probe()
    if report.wall is not None or not agents:
        used = Bilingual("; no agent needs one", "；没有智能体需要它")
        if agents:
            used = Bilingual(f", for {', '.join(agents)}", f"，用于 {'、'.join(agents)}")
        running = [it for it in config.agents.list if it.id in agents]
        opened = [it.id for it in running if effective_exec(config.tools.exec, it.tools).network]
        if opened and (report := await sandbox.opened.probe()).wall is None:
            fix = Bilingual(
                "see docs/sandbox.md#network; until then exec refuses their commands",
                "请参阅 docs/sandbox.md#network；在此之前 exec 会拒绝它们的命令",
            )
            names = ", ".join(opened)
            message = Bilingual(f"with network for {names}: {report}", f"{names} 使用网络的沙箱：{report}")
            return [Finding("sandbox", "error", message, fix)]
        return [Finding("sandbox", "ok", Bilingual(f"{report}{used}", f"{report}{used.zh}"))]
    fix = Bilingual(
        "see docs/sandbox.md for what this machine lacks; until then exec refuses every command",
        "本机缺少什么，请参阅 docs/sandbox.md；在此之前 exec 会拒绝所有命令",
    )
    message = Bilingual(
        f"{report}, although {', '.join(agents)} may run commands", f"{report}，而 {'、'.join(agents)} 可以执行命令"
    )
    return [Finding("sandbox", "error", message, fix)]


async def _clock(loaded: Loaded, now: Callable[[], float]) -> list[Finding]:
    # Compare with the Date header of the first server that answers: a wrong clock breaks signatures, tokens and TLS.
    platforms = (it.kind.address(it.config) for it in configured(loaded.config.channels))
    providers = (wire_of(name, loaded.config.provider(name)).models_url for name in _providers(loaded))
    for address in filter(None, (*platforms, *providers)):
        sent = now()
        if (there := await _date(address)) is None:
            continue
        off = abs(there - (sent + now()) / 2)
        status: Status = "error" if off > CLOCK_WRONG_SECONDS else "warning" if off > CLOCK_OFF_SECONDS else "ok"
        fix = Bilingual(
            "set this machine's clock by NTP (timedatectl set-ntp true)",
            "请用 NTP 校准本机时钟（timedatectl set-ntp true）",
        )
        message = Bilingual(f"{off:.0f} s off", f"相差 {off:.0f} 秒")
        return [Finding("clock", status, message, NO_WORDS if status == "ok" else fix)]
    message = Bilingual("not compared: no platform or provider that answers", "未比较：没有应答的平台或厂商")
    return [Finding("clock", "ok", message)]


async def _date(address: str) -> float | None:
    import httpx

    try:
        async with client_class(httpx)(transport=Transport(httpx, address), timeout=CALL_SECONDS / 2) as client:
            response = await client.send(client.build_request("HEAD", address), stream=True)
            await response.aclose()
        return parsedate_to_datetime(response.headers.get("date", "")).timestamp()
    except (httpx.HTTPError, TypeError, ValueError, OverflowError):
        return None


def _folders(loaded: Loaded) -> dict[Path, Bilingual]:
    # For workspaces per chat, use their parent.
    config = loaded.config
    database = Path(config.database.path).parent if config.database.path else None
    folders = {database: Bilingual("the database", "数据库")} if database else {}
    folders[Path(config.tools.files.uploads_dir)] = Bilingual("uploads", "上传的文件")
    for agent in config.agents.list:
        workspace = Bilingual(f"the workspace of {agent.id}", f"{agent.id} 的工作目录")
        folders.setdefault(Path(agent.workspace_dir.partition("{")[0]), workspace)
    return folders


def _existing_parent(folder: Path) -> Path:
    return next(it for it in (folder, *folder.parents) if it.exists())


def writable(loaded: Loaded) -> list[Finding]:
    """Return a finding per folder, and per workspace that commands of a gateway running as root cannot read."""
    findings = []
    for folder, whose in _folders(loaded).items():
        try:
            with tempfile.TemporaryFile(dir=_existing_parent(folder)):  # nameless if the file system can
                pass
            message = Bilingual(f"{whose}: {folder} can be written", f"{whose.zh}：{folder} 可以写入")
            findings.append(Finding("folders", "ok", message))
        except OSError as error:
            fix = Bilingual(
                f"let uid {os.geteuid()} write there (chown, chmod 700), or name another folder",
                f"请让 uid {os.geteuid()} 可以写入（chown、chmod 700），或换一个文件夹",
            )
            message = Bilingual(
                f"{whose}: {folder} cannot be written ({error.strerror})",
                f"{whose.zh}：{folder} 无法写入（{error.strerror}）",
            )
            findings.append(Finding("folders", "error", message, fix))
    for id_ in sandboxed(loaded.config):
        folder = next(Path(it.workspace_dir) for it in loaded.config.agents.list if it.id == id_)
        if os.geteuid() == 0 and folder.is_dir():
            findings += _closed(id_, folder)
    return findings


def _closed(agent: str, folder: Path) -> list[Finding]:
    # Commands of a root gateway run as the workspace's owner, or as `nobody` if that is root.
    status = folder.stat()
    uid, gid = status.st_uid or NOBODY, status.st_gid or NOBODY
    statuses = {it.name: it.stat(follow_symlinks=False) for it in os.scandir(folder)}
    closed = [
        name
        for name, it in {**statuses, ".": status}.items()
        if not (name == "." and not it.st_uid)  # that one is given to them at the start
        and not allowed(it.st_mode, it.st_uid, it.st_gid, uid, gid) & (1 if stat.S_ISDIR(it.st_mode) else 4)
    ]
    names = ", ".join(sorted(closed)[:5]) + (f" and {len(closed) - 5} more" if len(closed) > 5 else "")
    fix = Bilingual(
        f"chown -R {uid}:{gid} {folder}, and chmod -R u+rwX {folder}",
        f"请执行 chown -R {uid}:{gid} {folder} 和 chmod -R u+rwX {folder}",
    )
    message = Bilingual(
        f"commands of {agent} run as uid {uid}, which cannot read in {folder}: {names}",
        f"{agent} 的命令以 uid {uid} 运行，无法读取 {folder} 中的 {names}",
    )
    return [Finding("folders", "warning", message, fix)] if closed else []


def room(loaded: Loaded, free: Callable[[Path], int]) -> list[Finding]:
    """Return a finding per file system; `free` returns its free bytes."""
    disks: dict[int, Finding] = {}
    for folder, whose in _folders(loaded).items():
        place = _existing_parent(folder)
        left = free(place)
        status: Status = "error" if left < FREE_BYTES_MIN else "warning" if left < FREE_BYTES_LOW else "ok"
        step = Bilingual(
            "make room: on a full disk nothing is accepted any more", "请腾出空间：磁盘满后将无法接收任何消息"
        )
        fix = NO_WORDS if status == "ok" else step
        size = f"{left / 1024**3:.1f} GiB"
        message = Bilingual(f"{size} free for {whose} ({place})", f"{whose.zh}可用空间 {size}（{place}）")
        disks.setdefault(place.stat().st_dev, Finding("disk", status, message, fix))
    return [*disks.values()]
