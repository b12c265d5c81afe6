"""The state of the serving gateway: the lines of `status`, and the findings for `doctor`."""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agents.language import Language
from agents.providers.catalog import lacks_key
from channels.bilingual import NO_WORDS, Bilingual, Finding, Outage, Status
from channels.channel import WebhookRequest
from channels.condition import ChannelState
from channels.wire import mapping, text
from gateway.config.channels import Account, configured
from gateway.config.exposure import exposure, operator_proof
from gateway.config.load import Loaded
from gateway.config.root import Config
from gateway.config.serving import ServingRecord
from gateway.config.warnings import advice
from gateway.http.reach import led, readiness_at, unreachable_at, unverified_at
from gateway.observe.terminal import printable
from gateway.operate.sessions import handed_over
from gateway.program import VERSION, program
from gateway.state.seal import KEY_CHARS_MIN, VARIABLE, key_file
from gateway.store.logins import logins as stored_logins
from gateway.store.migrate import DatabaseUnusable
from gateway.store.opening import connected

ENDED_SHOWN = 5
WAITING_SECONDS_LONG = 60.0
"""A message that waits longer for its answer causes a warning."""
STATES: Mapping[str, Bilingual] = {
    "refused": Bilingual("refused", "被拒绝"),
    "conflict": Bilingual("conflict", "冲突"),
    "unreachable": Bilingual("unreachable", "无法连接"),
    "silent": Bilingual("silent", "没有消息到达"),
    "starting": Bilingual("starting", "正在连接"),
}
_CONNECTED = Bilingual("✓ connected", "✓ 已连接")
_CONNECTING = Bilingual("… still connecting: see status", "… 仍在连接：请运行 status 查看")
MARKS: Mapping[Status, str] = {"ok": "✓", "warning": "!", "error": "✗"}
_WORDLESS = Bilingual(
    "the running gateway has other secrets than this config and keeps its reasons: see its log, or its page",
    "运行中的网关与此配置的密钥不同，不会透露原因：请查看它的日志或网页",
)
_SEE_LOG = Bilingual("see its log", "请查看它的日志")


async def status(loaded: Loaded, refusal: Finding | None = None, serving: ServingRecord | None = None) -> list[Finding]:
    """Report address, config, database, channels, model and queue, or that no gateway serves. `refusal` is the file's
    problem, `serving` the gateway's record."""
    server = loaded.config.server
    refused = [refusal] if refusal else []
    answer = await readiness_at(server.address, operator_proof(loaded.config))
    if answer is None and serving is not None:
        return [_silent(serving, server.address), *refused]
    if answer is None:
        message = Bilingual(f"no gateway serves at {server.address}", f"{server.address} 处没有网关在运行")
        fix = Bilingual(f"start it: {program()} serve", f"启动它：{program()} serve")
        return [Finding("gateway", "error", message, fix), *refused]
    if not answer:
        message = Bilingual(f"what answers at {server.address} is no gateway", f"{server.address} 处应答的不是网关")
        fix = Bilingual(
            "see server.port, and what else listens there", "请检查 server.port，以及还有什么程序在监听该端口"
        )
        return [Finding("gateway", "error", message, fix), *refused]
    return [
        *_gateway(answer, server.address),
        *_config(mapping(answer, "config"), refusal, serving),
        *_database(answer, loaded),
        *_channels(answer),
        *_page(loaded),
        *_models(answer, loaded),
        *_queue(answer),
        *await asyncio.to_thread(logins, loaded),
        *await asyncio.to_thread(handovers, loaded),
    ]


def logins(loaded: Loaded) -> list[Finding]:
    """Return a finding on people's logins and on the key that seals them; none without logins. Blocking."""
    config, own_key = loaded.config, loaded.environment.get(VARIABLE, "")
    try:
        with connected(config.database, access="read") as connection:
            found = stored_logins(connection)
    except DatabaseUnusable:  # said by the finding on the database
        return []
    expected = any(it.kind.logs_in(it.config) for it in configured(config.channels))
    if not found and not (expected and config.database.path is None):
        return []
    ended = [it.name or it.person for it in found if it.ended is not None]
    message = Bilingual(f"{len(found)} logged in", f"已登录 {len(found)} 人")
    if ended:
        en, zh = ", ".join(ended[:ENDED_SHOWN]), "、".join(ended[:ENDED_SHOWN])
        message = Bilingual(
            f"{len(found) - len(ended)} logged in; ended, until they write /login: {en}",
            f"已登录 {len(found) - len(ended)} 人；已失效，需重新发送 /login：{zh}",
        )
    set_key = Bilingual(
        f"set {VARIABLE} to the same long random text for every replica",
        f"请为每个副本设置相同的 {VARIABLE}（一段足够长的随机文本）",
    )
    if config.database.path is None and not own_key:
        reason = Bilingual(
            f"without {VARIABLE} each machine has a key of its own, and reads only the logins that it sealed",
            f"未设置 {VARIABLE}：每台机器各用自己的密钥，只能读取自己加密的登录",
        )
        return [Finding("logins", "warning", reason, set_key)]
    if own_key and len(own_key.strip()) < KEY_CHARS_MIN:
        reason = Bilingual(f"{VARIABLE} is short enough to guess", f"{VARIABLE} 过短，容易被猜出")
        return [Finding("logins", "warning", reason, set_key)]
    if not own_key and not key_file(config).is_file():
        reason = Bilingual(
            f"the key {key_file(config)} is gone, so everybody logs in again",
            f"密钥 {key_file(config)} 不存在，需要重新登录",
        )
        return [Finding("logins", "warning", reason, NO_WORDS)]
    return [Finding("logins", "ok", message)]


def handovers(loaded: Loaded) -> list[Finding]:
    """Return a finding on the chats that are handed over to a colleague; none without any. Blocking."""
    try:
        found = handed_over(loaded.config).values()
    except DatabaseUnusable:  # said by the finding on the database
        return []
    named = [f"{printable(person)} → {printable(by) or '…'}" for person, by in found]
    message = Bilingual(f"{len(found)} handed over: {', '.join(named)}", f"已转接 {len(found)} 个：{'、'.join(named)}")
    return [Finding("handover", "ok", message)] if found else []


def start_lines(states: Mapping[tuple[str, str], ChannelState], language: Language = "en") -> Iterator[str]:
    """Yield the start-up lines about which channels are connected to their platforms."""
    for (channel, account), state in states.items():
        label = channel if account == "default" else f"{channel} {account}"
        if state.is_bad:
            finding = Finding(label, "error", state.reason, state.fix)
            yield f"  {label:<10} ✗ {finding.labelled(STATES[state.state](language), language)}"
        else:
            yield f"  {label:<10} {(_CONNECTED if state.state == 'ok' else _CONNECTING)(language)}"


async def beside(loaded: Loaded, serving: ServingRecord | None = None) -> list[Finding]:
    """Return the findings of `doctor` on a serving gateway: its channels, failing models, and the public URL."""
    server = loaded.config.server
    answer = await readiness_at(server.address, operator_proof(loaded.config))
    if answer is None and serving is not None:
        return [_silent(serving, server.address)]
    if not answer:
        message = Bilingual(
            f"none serves at {server.address}, so no connection of one is looked at",
            f"{server.address} 处没有网关在运行，因此不检查它的连接",
        )
        return [Finding("gateway", "ok", message)]
    findings = [*_gateway(answer, server.address), *_channels(answer), *_failing(answer)]
    findings += [it for it in _config(mapping(answer, "config")) if it.status == "warning"]
    findings += _watched(answer)
    if server.public_url is not None:
        reason = await unreachable_at(server.public_url, text(mapping(answer, "config"), "version"))
        findings.append(led(server.address, server.public_url, reason))
        if not reason and "version" in answer:
            checks = [await delivered(loaded.config, it, time.time()) for it in configured(loaded.config.channels)]
            findings += [it for it in checks if it and it.status != "ok"]
    return findings


async def delivered(config: Config, account: Account, now: float) -> Finding | None:
    """Return the finding on a delivery like the platform's, sent to an account through the public address; None if its
    events do not arrive there."""
    url, proof, kind = config.server.public_url, operator_proof(config), account.kind
    if not url or not proof or kind.url_check(account.config, url, "", now) is None:
        return None

    def check(value: str) -> WebhookRequest:
        found = kind.url_check(account.config, url, value, now)
        assert found is not None
        return found

    reason = await unverified_at(url, f"/webhooks/{kind.name}/{account.name}", proof, check)
    return led(config.server.address, f"{url}/webhooks/{kind.name}/{account.name}", reason)


def _gateway(answer: Mapping[str, Any], address: str) -> Iterator[Finding]:
    failing = mapping(answer, "failing")
    name = f"Clawgate {text(answer, 'version') or VERSION}"
    if not failing:
        yield Finding("gateway", "ok", Bilingual(f"{name}, ready at {address}", f"{name}，已就绪，地址 {address}"))
    for check in failing:
        found = _outage(answer, check, text(failing, check))
        message = Bilingual(
            f"{name} at {address} takes no work: {found.reason}",
            f"{name}（{address}）暂不接收消息：{found.reason.zh}",
        )
        yield Finding("gateway", "error", message, found.fix)


def _outage(answer: Mapping[str, Any], name: str, kind: str) -> Outage:
    """Return what the gateway says of this; the kind alone if it keeps its reasons."""
    view = mapping(mapping(answer, "outages"), name)
    if not view:
        return Outage(kind, Bilingual(kind), _WORDLESS)
    reason, fix = (Bilingual(text(view, it), text(mapping(view, "zh"), it)) for it in ("reason", "fix"))
    return Outage(kind, reason, fix)


def _silent(serving: ServingRecord, address: str) -> Finding:
    message = Bilingual(
        f"the gateway, process {serving.pid}, does not answer at {address}",
        f"网关（进程 {serving.pid}）在 {address} 没有应答",
    )
    return Finding("gateway", "error", message, _SEE_LOG)


def _config(
    config: Mapping[str, Any], refusal: Finding | None = None, serving: ServingRecord | None = None
) -> Iterator[Finding]:
    version, error, restart = text(config, "version"), config.get("error"), config.get("restart")
    if refusal and (serving or not error):
        yield refusal
    elif error:
        en, zh = (error, error) if error is not True else ("the edited file cannot be used", "修改后的文件无法使用")
        message = Bilingual(f"{en}; version {version} is still in force", f"{zh}；仍沿用版本 {version}")
        yield Finding("config", "error", message, Bilingual("correct the file", "请修正该文件"))
    elif restart:
        changed = Bilingual(
            f"{version}, in force; needs a restart: {', '.join(restart)}",
            f"{version}，已生效；需要重启：{'、'.join(restart)}",
        )
        yield Finding("config", "warning", changed, Bilingual("restart the gateway", "请重启网关"))
    else:
        yield Finding("config", "ok", Bilingual(f"{version}, in force", f"{version}，已生效"))


def _database(answer: Mapping[str, Any], loaded: Loaded) -> Iterator[Finding]:
    fault = text(mapping(answer, "failing"), "database")
    address = loaded.config.database.shown
    if fault:
        yield _outage(answer, "database", fault).finding("database", address)
    else:
        yield Finding("database", "ok", Bilingual(address))


def _channels(answer: Mapping[str, Any]) -> Iterator[Finding]:
    channels = mapping(answer, "channels")
    well = [name for name in channels if text(mapping(channels, name), "state") == "ok"]
    if well or not channels:
        names = Bilingual(", ".join(well), "、".join(well)) or Bilingual("none is configured", "没有配置任何渠道")
        yield Finding("channels", "ok", names)
    for name in (it for it in channels if it not in well):
        state = mapping(channels, name)
        link, since = text(state, "state"), text(state, "since")
        reason, fix = (Bilingual(text(state, it), text(mapping(state, "zh"), it)) for it in ("reason", "fix"))
        message = Bilingual(
            f"{name} is {link} since {since}" + (f": {reason}" if reason else ""),
            f"{name} 自 {since} 起{STATES[link].zh if link in STATES else link}" + (f"：{reason.zh}" if reason else ""),
        )
        if link == "starting":
            yield Finding("channels", "warning", message, Bilingual("ask again in a moment", "请稍后再查询"))
        else:
            yield Finding("channels", "error", message, fix or _WORDLESS)


def _page(loaded: Loaded) -> Iterator[Finding]:
    """Say what a browser needs where being at this machine is not enough."""
    exposed = exposure(loaded.config)
    for account in configured(loaded.config.channels):
        if account.kind.name == "web" and exposed.way == "link":
            message, _ = account.kind.arrives(account.config, account.name, exposed)
            yield Finding("page", "ok", message, Bilingual("restart for another link", "重启可获得新的链接"))


def _models(answer: Mapping[str, Any], loaded: Loaded) -> Iterator[Finding]:
    """The models that agents ask: those that fail and those without a key, or one for all."""
    models = list(dict.fromkeys(model for agent in loaded.config.agents.list for model in agent.model))
    bad = [*_failing(answer, models), *_keyless(models, loaded)]
    yield from bad or [Finding("model", "ok", Bilingual(", ".join(models), "、".join(models)))]


def _keyless(models: Sequence[str], loaded: Loaded) -> Iterator[Finding]:
    for model in models:
        name = model.partition("/")[0]
        if lacks_key(name, loaded.config.provider(name)):
            step = advice(("providers", name, "apiKey"), loaded.names)
            yield Finding("model", "error", Bilingual(f"{model}: no key", f"{model}：没有密钥"), step)


def _failing(answer: Mapping[str, Any], models: Sequence[str] | None = None) -> Iterator[Finding]:
    """The models whose last request failed: all, or those of `models`."""
    for model, kind in mapping(answer, "failingModels").items():
        if models is None or model in models:
            yield _outage(answer, model, kind).finding("model", model)


def _watched(answer: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield what the self-watch misses."""
    watched = mapping(answer, "watch")
    for name in (it for it in watched if mapping(watched, it).get("misses")):
        view, since = mapping(watched, name), text(mapping(watched, name), "since")
        reason, fix = (Bilingual(text(view, it), text(mapping(view, "zh"), it)) for it in ("reason", "fix"))
        message = Bilingual(
            f"{name} has not answered since {since}: {reason}", f"{name} 自 {since} 起没有应答：{reason.zh}"
        )
        yield Finding("watch", "error", message, fix)


def _queue(answer: Mapping[str, Any]) -> Iterator[Finding]:
    queue = mapping(answer, "queue")
    if not queue:
        return
    oldest = float(queue.get("oldestSeconds") or 0)
    messages, parts = queue.get("messages"), queue.get("parts")
    en, zh = f"{messages} to answer, {parts} to send", f"待回答 {messages} 条，待发送 {parts} 条"
    if oldest > WAITING_SECONDS_LONG:
        late = Bilingual(f"{en}; the oldest waits for {oldest:.0f} s", f"{zh}；最早的一条已等待 {oldest:.0f} 秒")
        yield Finding("queue", "warning", late, _SEE_LOG)
    else:
        yield Finding("queue", "ok", Bilingual(en, zh))
