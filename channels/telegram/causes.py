"""The causes for which a Telegram bot receives nothing, each with its next step, and the one that an error means."""

from collections.abc import Mapping

from channels.bilingual import Bilingual
from channels.channel import DeliveryError, Refused
from channels.condition import Cause
from channels.telegram.api import refusal_of

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
    "unanswered": Cause(
        "silent",
        Bilingual("no gateway answers at server.publicUrl", "server.publicUrl 处没有网关应答"),
        Bilingual(
            "let its name and the proxy lead to this gateway; a first delivery of Telegram ends this, too",
            "请让该域名和代理指向本网关；收到 Telegram 的第一条推送后也会恢复",
        ),
    ),
}


def cause_of(error: DeliveryError) -> str:
    refusal = refusal_of(error)
    if refusal is not None and refusal.is_conflict:
        return "webhook" if "webhook" in refusal.description.lower() else "another"
    return "token" if isinstance(error, Refused) else "network"
