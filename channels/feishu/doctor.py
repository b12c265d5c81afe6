"""Check a Feishu app: credentials, bot, scopes, and the configured way of events. Read-only: nothing is sent, and no
connection is opened.

Every app may list its scopes; the event subscription needs a permission. Scopes are those of the open platform's page on
receiving messages and of the calls in `channels.feishu`: any of a row suffices.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from channels.bilingual import Bilingual, Finding, Status
from channels.channel import DeliveryError, RateLimited, Refused, Unreachable
from channels.condition import Cause, keys_of, unanswered
from channels.feishu.api import FeishuApi
from channels.feishu.config import FeishuAccount, listens
from channels.feishu.login import FeishuLogin
from channels.login import AppAccess
from channels.wire import mapping, mappings, number, text

CALL_SECONDS = 5.0
RECEIVE = "im.message.receive_v1"
_ACTIVE = 2
_GRANTED = 1
_NO_SCOPE = "99991672"
_LONG_CONNECTION = Bilingual("使用长连接接收事件 (receive events through a long connection)", "“使用长连接接收事件”")
_TO_A_SERVER = Bilingual(
    "将事件发送至开发者服务器 (send events to the developer's server)", "“将事件发送至开发者服务器”"
)
_SENDING = ("im:message:send_as_bot", "im:message")
_READING = ("im:message:readonly", "im:message")
_DIRECT = ("im:message.p2p_msg:readonly", "im:message.p2p_msg")
_ALL_OF_GROUPS = ("im:message.group_msg", "im:message.group_msg:readonly")
_OF_BOTS = ("im:message.group_at_msg.include_bot:readonly", "im:message.group_msg.include_bot:read")
_MENTIONS = ("im:message.group_at_msg:readonly", "im:message.group_at_msg", *_ALL_OF_GROUPS)
_NICETIES: Mapping[tuple[str, ...], Bilingual] = {
    ("contact:user.base:readonly", "contact:user.basic_profile:readonly"): Bilingual("people's names", "人名"),
    ("im:chat:readonly", "im:chat:read", "im:chat"): Bilingual("titles of groups", "群名称"),
    ("cardkit:card:write",): Bilingual("answers that grow while they are written", "边写边显示的回答"),
    ("im:resource", "im:resource:upload"): Bilingual(
        "pictures and files that the agent sends", "智能体发送的图片和文件"
    ),
}


async def probe(account: FeishuAccount, name: str, public_url: str | None) -> list[Finding]:
    check, api = f"feishu {name}", _api(account)
    try:
        if (bot := await _asked(api, name)).status == "error":
            return [bot]
        results = await asyncio.gather(
            _scopes(api, account, check),
            _events(api, account, name, public_url),
            _connection(api, account, check, public_url),
        )
        return [bot, *(it for findings in results for it in findings)]
    finally:
        await api.close()


async def watch(account: FeishuAccount, name: str) -> tuple[list[Finding], int]:
    """Return the finding of `probe` on the bot; nothing waits at Feishu that could be counted."""
    api = _api(account)
    try:
        return [await _asked(api, name)], 0
    finally:
        await api.close()


def _api(account: FeishuAccount) -> FeishuApi:
    return FeishuApi(account.but(timeout_seconds=min(account.timeout_seconds, CALL_SECONDS)))


async def _asked(api: FeishuApi, name: str) -> Finding:
    check = f"feishu {name}"
    try:
        return _bot(await api.call("/open-apis/bot/v3/info"), check)
    except DeliveryError as error:
        cause = CAUSES[cause_of(error)]
        fix = cause.fix_at(keys_of("feishu", name))
        return Finding(f"{check} credentials", "error", cause.told(str(error), error.code), fix)


def _bot(answer: Mapping[str, Any], check: str) -> Finding:
    bot = mapping(answer, "bot")
    if number(bot, "activate_status") not in (_ACTIVE, None):
        status = number(bot, "activate_status")
        message = Bilingual(
            f"the app id and secret are right, but the bot is not active (status {status})",
            f"App ID 和 App Secret 正确，但机器人未启用（状态 {status}）",
        )
        return Finding(f"{check} credentials", "error", message, _published("switch the bot on", "启用机器人"))
    name = text(bot, "app_name")
    message = Bilingual(
        f"the app id and secret are right; the bot is {name}", f"App ID 和 App Secret 正确；机器人是 {name}"
    )
    return Finding(f"{check} credentials", "ok", message)


def _published(en: str, zh: str) -> Bilingual:
    return Bilingual(
        f"{en} in the developer console, then create a version and publish it",
        f"请在开发者后台{zh}，然后创建版本并发布",
    )


def _failed(check: str, error: DeliveryError) -> Finding:
    if isinstance(error, Unreachable | RateLimited):
        fix = Bilingual(
            "is baseUrl right, and does a proxy let it through? Else try again",
            "baseUrl 是否正确？代理是否允许访问？否则请再试一次",
        )
        return Finding(check, "warning", Bilingual(str(error)), fix)
    fix = Bilingual(
        "see appId, appSecret and baseUrl, and the app in the developer console",
        "请检查 appId、appSecret 和 baseUrl，以及开发者后台中的应用",
    )
    return Finding(check, "warning", Bilingual(str(error)), fix)


async def app_access(account: FeishuAccount) -> AppAccess:
    """Return the app's token and what people can grant to it. Raises DeliveryError."""
    api, login = (
        FeishuApi(account.but(timeout_seconds=min(account.timeout_seconds, CALL_SECONDS))),
        FeishuLogin(account),
    )
    try:
        scopes = await _granted(api, "user")
        return AppAccess(token=await api.app_token(), scopes=frozenset(scopes), link=login.grant_link(()))
    finally:
        await api.close()


async def _granted(api: FeishuApi, whose: str) -> set[str]:
    data = mapping(await api.call("/open-apis/application/v6/scopes"), "data")
    return {
        text(it, "scope_name")
        for it in mappings(data, "scopes")
        if number(it, "grant_status") == _GRANTED and text(it, "scope_type") in (whose, "")
    }


async def _scopes(api: FeishuApi, account: FeishuAccount, check: str) -> list[Finding]:
    check = f"{check} scopes"
    try:
        granted = await _granted(api, "tenant")
    except DeliveryError as error:
        return [_failed(check, error)]
    fix = _published("add it under Permissions & Scopes (权限管理)", "的“权限管理”中添加")
    missing = [
        Finding(check, status, Bilingual(f"{scopes[0]} is not granted: {what}", f"未授予 {scopes[0]}：{what.zh}"), fix)
        for status, scopes, what in _wanted(account)
        if granted.isdisjoint(scopes)
    ]
    all_granted = Bilingual("all that the gateway uses are granted", "网关用到的权限均已授予")
    return missing or [Finding(check, "ok", all_granted)]


def _wanted(account: FeishuAccount) -> Iterator[tuple[Status, tuple[str, ...], Bilingual]]:
    yield "error", _SENDING, Bilingual("answers cannot be sent", "无法发送回答")
    unread = Bilingual("quoted texts and the files of people cannot be read", "无法读取被引用的内容和用户发来的文件")
    yield "error", _READING, unread
    if account.dm_policy != "disabled":
        yield "error", _DIRECT, Bilingual("direct messages do not arrive", "收不到私聊消息")
    if account.group_policy != "disabled":
        yield "error", _MENTIONS, Bilingual("messages of groups do not arrive", "收不到群聊消息")
        if account.hears_unmentioned or account.remembered:
            mentions = Bilingual(
                "of groups only messages that mention the bot arrive", "群聊中只能收到提及机器人的消息"
            )
            yield "error", _ALL_OF_GROUPS, mentions
        if account.bots_from or any(it.bots_from for it in account.chats.values()):
            yield "warning", _OF_BOTS, Bilingual("messages of other bots do not arrive", "收不到其他机器人的消息")
    for scopes, what in _NICETIES.items():
        yield "warning", scopes, Bilingual(f"there are no {what}", f"没有{what.zh}")


async def _connection(api: FeishuApi, account: FeishuAccount, check: str, public_url: str | None) -> list[Finding]:
    if not listens(account, public_url):
        return []
    check = f"{check} connection"
    try:
        await api.endpoint()
    except DeliveryError as error:
        fix = Bilingual("see the sentence, or try again", "请看上述原因，或再试一次")
        if error.code == "403":
            fix = _published(f"choose {_LONG_CONNECTION}", f"选择{_LONG_CONNECTION.zh}")
        return [Finding(check, "error", Bilingual(str(error)), fix)]
    return [Finding(check, "ok", Bilingual("a long connection may be opened", "可以建立长连接"))]


async def _events(api: FeishuApi, account: FeishuAccount, name: str, public_url: str | None) -> list[Finding]:
    check = f"feishu {name} events"
    path = f"/open-apis/application/v6/applications/{quote(account.app_id.strip(), safe='')}"
    try:
        data = mapping(await api.call(path, {"lang": "zh_cn"}), "data")
    except DeliveryError as error:
        if error.code != _NO_SCOPE:
            return [_failed(check, error)]
        message = Bilingual(
            "not shown: that needs the scope application:application:self_manage, which nothing else here needs",
            "未显示：这需要权限 application:application:self_manage，此处别无他用",
        )
        return [Finding(check, "ok", message)]
    event = mapping(mapping(data, "app"), "event")
    if not event:
        return [Finding(check, "ok", Bilingual("not shown by this platform", "此平台不显示"))]
    as_set = Bilingual(f"{RECEIVE} arrives as set", f"{RECEIVE} 按设置送达")
    return [*_wrong_way(check, event, account, name, public_url)] or [Finding(check, "ok", as_set)]


def _wrong_way(
    check: str, event: Mapping[str, Any], account: FeishuAccount, name: str, public_url: str | None
) -> Iterable[Finding]:
    way, url, wanted = text(event, "subscription_type"), text(event, "request_url"), ""
    if listens(account, public_url):
        if way and way != "websocket":
            message = Bilingual(
                "the console sends events to a server, the config waits for them on a long connection",
                "开发者后台把事件发送至服务器，而配置在长连接上等待",
            )
            fix = _published(f"choose {_LONG_CONNECTION}", f"选择{_LONG_CONNECTION.zh}")
            fix = Bilingual(f"{fix}, or set mode: webhook", f"{fix.zh}；或设置 mode: webhook")
            yield Finding(check, "error", message, fix)
    elif way == "websocket":
        message = Bilingual(
            "the console sends events through a long connection, the config waits for webhooks",
            "开发者后台通过长连接发送事件，而配置在等待 webhook",
        )
        fix = _published(f"choose {_TO_A_SERVER}", f"选择{_TO_A_SERVER.zh}")
        fix = Bilingual(f"{fix}, or set mode: websocket", f"{fix.zh}；或设置 mode: websocket")
        yield Finding(check, "error", message, fix)
    elif public_url and url and url.rstrip("/") != (wanted := f"{public_url}/webhooks/feishu/{name}"):
        host = urlsplit(url).hostname
        message = Bilingual(
            f"the console sends events to another address, at {host}", f"开发者后台把事件发送到另一个地址（{host}）"
        )
        fix = Bilingual(f"enter {wanted} as the request URL", f"请把请求地址填为 {wanted}")
        yield Finding(check, "error", message, fix)
    subscribed = event.get("subscribed_events")
    if isinstance(subscribed, list) and RECEIVE not in subscribed:
        message = Bilingual(
            f"{RECEIVE} (接收消息) is not subscribed, so no message arrives",
            f"没有订阅 {RECEIVE}（接收消息），因此收不到消息",
        )
        fix = _published("add it under Events & Callbacks (事件与回调)", "的“事件与回调”中添加")
        yield Finding(check, "error", message, fix)


WRONG_CREDENTIALS = frozenset({"514", "10003", "10014", "1000040344"})
"""The app id or the secret is wrong."""
_ENCRYPTION = "事件与回调 → 加密策略"

CAUSES: Mapping[str, Cause] = {
    "credentials": Cause(
        "refused",
        Bilingual("the app id or secret is wrong", "App ID 或 App Secret 不正确"),
        Bilingual(
            "are {at}.appId and {at}.appSecret those of the console, and is {at}.baseUrl right for this app?",
            "{at}.appId 和 {at}.appSecret 与开发者后台的一致吗？{at}.baseUrl 适用于该应用吗？",
        ),
    ),
    "console": Cause(
        "refused",
        Bilingual("Feishu refuses this app", "飞书拒绝了该应用"),
        Bilingual("see the app in the developer console", "请在开发者后台检查该应用"),
    ),
    "network": Cause(
        "unreachable",
        Bilingual("Feishu cannot be reached", "无法连接飞书"),
        Bilingual("is {at}.baseUrl right, and does a proxy let it through?", "{at}.baseUrl 是否正确？是否有代理拦截？"),
    ),
    "encryptKey": Cause(
        "refused",
        Bilingual("the signature is wrong", "推送的签名不正确"),
        Bilingual(
            "is {at}.encryptKey the one in the console? Events & Callbacks → Encryption Strategy has it",
            f"{{at}}.encryptKey 与开发者后台的一致吗？见“{_ENCRYPTION}”",
        ),
    ),
    "unsigned": Cause(
        "refused",
        Bilingual("the signature is missing", "推送没有签名"),
        Bilingual(
            "is an Encrypt Key set in the console? Enter that of {at}.encryptKey under Events & Callbacks → Encryption "
            "Strategy",
            f"开发者后台设置了 Encrypt Key 吗？请在“{_ENCRYPTION}”中填入 {{at}}.encryptKey 的值",
        ),
    ),
    "keyless": Cause(
        "refused",
        Bilingual("the console encrypts, and no key is set here", "开发者后台启用了加密，而此处没有密钥"),
        Bilingual(
            "set {at}.encryptKey to the Encrypt Key of the console", "请将 {at}.encryptKey 设为开发者后台的 Encrypt Key"
        ),
    ),
    "verificationToken": Cause(
        "refused",
        Bilingual("the verification token is wrong", "Verification Token 不正确"),
        Bilingual(
            "is {at}.verificationToken the one in the console? Events & Callbacks → Encryption Strategy has it",
            f"{{at}}.verificationToken 与开发者后台的一致吗？见“{_ENCRYPTION}”",
        ),
    ),
    "appId": Cause(
        "refused",
        Bilingual("the events are another app's", "收到的是另一个应用的事件"),
        Bilingual(
            "is {at}.appId the app whose console names this address?", "该地址是填写在 {at}.appId 的开发者后台中的吗？"
        ),
    ),
    "clock": Cause(
        "refused",
        Bilingual("the signature is too old", "推送的签名已过期"),
        Bilingual(
            "is this machine's clock right? Otherwise see {at}.timestampWindowSeconds",
            "本机时钟准确吗？否则请检查 {at}.timestampWindowSeconds",
        ),
    ),
    "unanswered": unanswered("Feishu", "飞书"),
}


def cause_of(error: DeliveryError) -> str:
    if error.code in WRONG_CREDENTIALS:
        return "credentials"
    return "console" if isinstance(error, Refused) else "network"
