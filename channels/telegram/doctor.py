"""Check a Telegram bot: its token, its view of groups, and where updates go. Read-only: nothing is set, and no update is
fetched.
"""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from channels.bilingual import Bilingual, Finding
from channels.channel import DeliveryError, Refused
from channels.condition import Cause, keys_of, unanswered
from channels.telegram.api import TelegramApi, refusal_of
from channels.telegram.config import TelegramAccount
from channels.wire import number, text

CALL_SECONDS = 5.0
ERROR_RECENT_SECONDS = 3600.0
"""Telegram never clears its last failure; ignore older ones."""


async def probe(account: TelegramAccount, name: str, public_url: str | None, now: float) -> list[Finding]:
    findings, me, _ = await _asked(account, name, public_url, now)
    return [*findings[:1], *_groups(account, me, f"telegram {name}"), *findings[1:]] if me else findings


async def watch(
    account: TelegramAccount, name: str, public_url: str | None, now: float, before: int
) -> tuple[list[Finding], int]:
    """Return the findings of `probe` on the bot and its updates, and how many wait at a webhook. `before` waited last
    time: more is a finding."""
    findings, _, waiting = await _asked(account, name, public_url, now)
    if waiting > before > 0:
        message = Bilingual(
            f"{waiting} updates wait at Telegram, {before} before",
            f"Telegram 处有 {waiting} 条待推送，此前 {before} 条",
        )
        findings.append(Finding(f"telegram {name} updates", "warning", message, CAUSES["undelivered"].fix))
    return findings, waiting


async def _asked(
    account: TelegramAccount, name: str, public_url: str | None, now: float
) -> tuple[list[Finding], Mapping[str, Any], int]:
    """Return the findings on the bot and its updates, the bot (empty if unknown), and how many updates wait at a webhook."""
    api = TelegramApi(account.but(timeout_seconds=min(account.timeout_seconds, CALL_SECONDS)))
    check = f"telegram {name}"
    try:
        me, info = await asyncio.gather(api.call("getMe"), api.call("getWebhookInfo"))
    except DeliveryError as error:
        cause = CAUSES[cause_of(error)]
        fix = cause.fix_at(keys_of("telegram", name))
        return [Finding(f"{check} credentials", "error", cause.told(str(error), error.code), fix)], {}, 0
    finally:
        await api.close()
    if not isinstance(me, dict) or not isinstance(info, dict):
        message = Bilingual("the answer cannot be read", "无法读取应答")
        fix = Bilingual("is apiRoot a Bot API server?", "apiRoot 是 Bot API 服务器吗？")
        return [Finding(f"{check} credentials", "error", message, fix)], {}, 0
    username = text(me, "username")
    right = Bilingual(f"the token is right; the bot is @{username}", f"令牌正确；机器人是 @{username}")
    bot = Finding(f"{check} credentials", "ok", right)
    url = None if public_url is None else f"{public_url}/webhooks/telegram/{name}"
    waiting = (number(info, "pending_update_count") or 0) if account.mode == "webhook" else 0
    return [bot, *_updates(account, info, f"{check} updates", url, now)], me, waiting


def _groups(account: TelegramAccount, me: Mapping[str, Any], check: str) -> Iterator[Finding]:
    if account.group_policy == "disabled" or (account.group_policy == "allowlist" and not account.group_allow_from):
        return
    if me.get("can_read_all_group_messages") is not True:
        message = Bilingual(
            "privacy mode is on: of groups the bot gets mentions, replies and commands, and nothing else",
            "隐私模式已开启：在群聊中机器人只能收到提及、回复和命令",
        )
        fix = Bilingual(
            "@BotFather, /setprivacy, Disable; then remove the bot from each group and add it again. Or leave it so",
            "在 @BotFather 中依次 /setprivacy、Disable，再把机器人移出各群并重新加入；也可以保持现状",
        )
        yield Finding(f"{check} privacy", "warning", message, fix)
    if me.get("can_join_groups") is False:
        message = Bilingual("nobody can add the bot to a group", "没有人能把机器人加入群聊")
        fix = Bilingual("@BotFather, /setjoingroups", "在 @BotFather 中使用 /setjoingroups")
        yield Finding(f"{check} groups", "warning", message, fix)


def _updates(
    account: TelegramAccount, info: Mapping[str, Any], check: str, wanted: str | None, now: float
) -> Iterator[Finding]:
    url, waiting = text(info, "url"), number(info, "pending_update_count") or 0
    host = urlsplit(url).hostname  # without the path, which may contain a secret
    where = Bilingual(f"a webhook is set for this bot, at {host}", f"该机器人设置了 webhook，位于 {host}")
    if account.mode == "polling":
        if url:
            fix = Bilingual(
                "stop the deployment that sets it, then start this one: it removes it. Or choose mode: webhook",
                "请停止设置它的部署，再启动本网关，它会移除该 webhook；或改用 mode: webhook",
            )
            message = Bilingual(f"{where}, so polling gets nothing", f"{where.zh}，因此轮询收不到消息")
            yield Finding(check, "error", message, fix)
        else:
            yield Finding(check, "ok", Bilingual(f"polling, {waiting} waiting", f"轮询，{waiting} 条待取"))
        return
    if wanted is None:
        fix = Bilingual(
            "set it to the https address under which Telegram reaches this server, or choose mode: polling",
            "请设为 Telegram 访问此服务器的 https 地址，或改用 mode: polling",
        )
        message = Bilingual(
            "mode: webhook has no address, as server.publicUrl is not set",
            "mode: webhook 没有地址，因为未设置 server.publicUrl",
        )
        yield Finding(check, "error", message, fix)
    elif not url:
        fix = Bilingual("start the gateway: it sets it", "请启动网关，它会自动设置")
        yield Finding(check, "warning", Bilingual("no webhook is set yet", "尚未设置 webhook"), fix)
    elif url != wanted:
        fix = Bilingual(
            f"start the gateway, which sets {wanted}; stop the other one",
            f"请启动网关，它会设置 {wanted}；并停止另一个",
        )
        yield Finding(check, "error", Bilingual(f"{where}, not here", f"{where.zh}，不在这里"), fix)
    else:
        message = Bilingual(f"the webhook is set, {waiting} waiting", f"webhook 已设置，{waiting} 条待推送")
        yield Finding(check, "ok", message)
    at, reason = number(info, "last_error_date"), text(info, "last_error_message")
    if url == wanted and at is not None and now - at < ERROR_RECENT_SECONDS:
        fix = Bilingual(
            "is server.publicUrl reachable from outside, with a valid certificate, and the proxy in front of it up?",
            "从外部能否访问 server.publicUrl？证书是否有效？前面的代理是否在运行？",
        )
        reason = " ".join(reason.split())[:200]
        message = Bilingual(f"Telegram's last delivery failed: {reason}", f"Telegram 上一次推送失败：{reason}")
        yield Finding(check, "warning", message, fix)


CAUSES: Mapping[str, Cause] = {
    "token": Cause(
        "refused",
        Bilingual("the bot token is wrong or was revoked", "机器人令牌不正确或已被撤销"),
        Bilingual(
            "take {at}.botToken from @BotFather, and see {at}.apiRoot",
            "请从 @BotFather 获取 {at}.botToken，并检查 {at}.apiRoot",
        ),
    ),
    "network": Cause(
        "unreachable",
        Bilingual("Telegram cannot be reached", "无法连接 Telegram"),
        Bilingual("is {at}.apiRoot right, and is there a proxy?", "{at}.apiRoot 是否正确？是否需要代理？"),
    ),
    "another": Cause(
        "conflict",
        Bilingual("another process polls with this bot token", "另一个进程正用同一个令牌拉取消息"),
        Bilingual("stop it, or give one of the two a bot of its own", "请停止它，或为其中一个换一个机器人"),
    ),
    "webhook": Cause(
        "conflict",
        Bilingual("a webhook is set for this bot", "该机器人设置了 webhook"),
        Bilingual(
            "stop the deployment that sets it, or choose {at}.mode: webhook here",
            "请停止设置它的部署，或在此处选择 {at}.mode: webhook",
        ),
    ),
    "webhookSecret": Cause(
        "refused",
        Bilingual("the webhook's secret is wrong or missing", "webhook 密钥不正确或缺失"),
        Bilingual(
            "is {at}.webhookSecret the one that the webhook was set with? The gateway sets its own again within minutes; "
            "stop what else sets one",
            "webhook 是用 {at}.webhookSecret 设置的吗？网关会在几分钟内重新设置；请停止其他设置它的程序",
        ),
    ),
    "address": Cause(
        "silent",
        Bilingual("Telegram does not know where to deliver", "Telegram 不知道该向哪里推送"),
        Bilingual(
            "set server.publicUrl to the https address under which Telegram reaches this server, or {at}.mode: polling",
            "请将 server.publicUrl 设为 Telegram 可访问的 https 地址，或选择 {at}.mode: polling",
        ),
    ),
    "undelivered": Cause(
        "silent",
        Bilingual("Telegram's deliveries do not arrive", "Telegram 的推送无法送达"),
        Bilingual(
            "is server.publicUrl reachable from outside, with a valid certificate, and the proxy in front of it up?",
            "server.publicUrl 能从外网访问吗？证书有效吗？前面的代理在运行吗？",
        ),
    ),
    "unanswered": unanswered("Telegram", " Telegram "),
}


def cause_of(error: DeliveryError) -> str:
    refusal = refusal_of(error)
    if refusal is not None and refusal.is_conflict:
        return "webhook" if "webhook" in refusal.description.lower() else "another"
    return "token" if isinstance(error, Refused) else "network"
