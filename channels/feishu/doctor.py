"""Feishu's word on an app: whether its credentials work, its bot is on, its scopes are granted, and its events come the
way that the config says. All of it is read; nothing is sent to anybody and no connection is opened.

The list of scopes is open to every app, the event subscription only to one that may read about itself. Scopes are those
of the open platform's page on receiving messages and of the calls in `channels.feishu`: any of a row will do.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from channels.channel import DeliveryError, RateLimited, Unreachable
from channels.feishu.api import FeishuApi
from channels.feishu.config import FeishuAccount, listens
from channels.finding import Finding, Status
from channels.wire import mapping, mappings, number, text

CALL_SECONDS = 5.0
RECEIVE = "im.message.receive_v1"
_ACTIVE = 2
_GRANTED = 1
_NO_SCOPE = "99991672"
_LONG_CONNECTION = "使用长连接接收事件 (receive events through a long connection)"
_TO_A_SERVER = "将事件发送至开发者服务器 (send events to the developer's server)"
_PUBLISH = "in the developer console, then create a version and publish it"
_SENDING = ("im:message:send_as_bot", "im:message")
_READING = ("im:message:readonly", "im:message")
_DIRECT = ("im:message.p2p_msg:readonly", "im:message.p2p_msg")
_ALL_OF_GROUPS = ("im:message.group_msg", "im:message.group_msg:readonly")
_MENTIONS = ("im:message.group_at_msg:readonly", "im:message.group_at_msg", *_ALL_OF_GROUPS)
_NICETIES: Mapping[tuple[str, ...], str] = {
    ("contact:user.base:readonly", "contact:user.basic_profile:readonly"): "people's names",
    ("im:chat:readonly", "im:chat:read", "im:chat"): "titles of groups",
    ("cardkit:card:write",): "answers that grow while they are written",
    ("im:resource", "im:resource:upload"): "pictures and files that the agent sends",
}


async def probe(account: FeishuAccount, name: str, public_url: str | None) -> list[Finding]:
    check = f"feishu {name}"
    api = FeishuApi(account.model_copy(update={"timeout_seconds": min(account.timeout_seconds, CALL_SECONDS)}))
    try:
        try:
            answer = await api.call("/open-apis/bot/v3/info")
        except DeliveryError as error:
            return [_failed(f"{check} credentials", error)]
        found = await asyncio.gather(
            _scopes(api, account, check),
            _events(api, account, name, public_url),
            _connection(api, account, check, public_url),
        )
        return [_bot(answer, check), *(it for findings in found for it in findings)]
    finally:
        await api.close()


def _bot(answer: Mapping[str, Any], check: str) -> Finding:
    bot = mapping(answer, "bot")
    if number(bot, "activate_status") not in (_ACTIVE, None):
        message = (
            f"the app id and secret are right, but the bot is not active (status {number(bot, 'activate_status')})"
        )
        return Finding(f"{check} credentials", "error", message, f"switch the bot on {_PUBLISH}")
    return Finding(f"{check} credentials", "ok", f"the app id and secret are right; the bot is {text(bot, 'app_name')}")


def _failed(check: str, error: DeliveryError, status: Status = "error") -> Finding:
    if isinstance(error, Unreachable | RateLimited):
        return Finding(check, status, str(error), "is baseUrl right, and does a proxy let it through? Else try again")
    return Finding(check, status, str(error), "see appId, appSecret and baseUrl, and the app in the developer console")


async def _scopes(api: FeishuApi, account: FeishuAccount, check: str) -> list[Finding]:
    check = f"{check} scopes"
    try:
        data = mapping(await api.call("/open-apis/application/v6/scopes"), "data")
    except DeliveryError as error:
        return [_failed(check, error, "warning")]
    granted = {
        text(it, "scope_name")
        for it in mappings(data, "scopes")
        if number(it, "grant_status") == _GRANTED and text(it, "scope_type") in ("tenant", "")
    }
    fix = f"add it under Permissions & Scopes (权限管理) {_PUBLISH}"
    missing = [
        Finding(check, status, f"{scopes[0]} is not granted: {what}", fix)
        for status, scopes, what in _wanted(account)
        if granted.isdisjoint(scopes)
    ]
    return missing or [Finding(check, "ok", "all that the gateway uses are granted")]


def _wanted(account: FeishuAccount) -> Iterator[tuple[Status, tuple[str, ...], str]]:
    yield "error", _SENDING, "answers cannot be sent"
    yield "error", _READING, "quoted texts and the files of people cannot be read"
    if account.dm_policy != "disabled":
        yield "error", _DIRECT, "direct messages do not arrive"
    if account.group_policy != "disabled":
        yield "error", _MENTIONS, "messages of groups do not arrive"
        unmentioned = (account.require_mention, *(it.require_mention for it in account.chats.values()))
        if False in unmentioned or account.mention_patterns:
            yield "error", _ALL_OF_GROUPS, "of groups only messages that mention the bot arrive"
    for scopes, what in _NICETIES.items():
        yield "warning", scopes, f"there are no {what}"


async def _connection(api: FeishuApi, account: FeishuAccount, check: str, public_url: str | None) -> list[Finding]:
    """Finds out if a long connection could be opened: an address is asked for, as every start does."""
    if not listens(account, public_url):
        return []
    check = f"{check} connection"
    try:
        await api.endpoint()
    except DeliveryError as error:
        fix = f"choose {_LONG_CONNECTION} {_PUBLISH}" if error.code == "403" else "see the sentence, or try again"
        return [Finding(check, "error", str(error), fix)]
    return [Finding(check, "ok", "a long connection may be opened")]


async def _events(api: FeishuApi, account: FeishuAccount, name: str, public_url: str | None) -> list[Finding]:
    check = f"feishu {name} events"
    path = f"/open-apis/application/v6/applications/{quote(account.app_id.strip(), safe='')}"
    try:
        data = mapping(await api.call(path, {"lang": "zh_cn"}), "data")
    except DeliveryError as error:
        if error.code != _NO_SCOPE:
            return [_failed(check, error, "warning")]
        message = "not shown: that needs the scope application:application:self_manage, which nothing else here needs"
        return [Finding(check, "ok", message)]
    event = mapping(mapping(data, "app"), "event")
    if not event:
        return [Finding(check, "ok", "not shown by this platform")]
    return [*_wrong_way(check, event, account, name, public_url)] or [Finding(check, "ok", f"{RECEIVE} arrives as set")]


def _wrong_way(
    check: str, event: Mapping[str, Any], account: FeishuAccount, name: str, public_url: str | None
) -> Iterable[Finding]:
    way, url, wanted = text(event, "subscription_type"), text(event, "request_url"), ""
    if listens(account, public_url):
        if way and way != "websocket":
            message = "the console sends events to a server, the config waits for them on a long connection"
            yield Finding(check, "error", message, f"choose {_LONG_CONNECTION} {_PUBLISH}, or set mode: webhook")
    elif way == "websocket":
        message = "the console sends events through a long connection, the config waits for webhooks"
        yield Finding(check, "error", message, f"choose {_TO_A_SERVER} {_PUBLISH}, or set mode: websocket")
    elif public_url and url and url.rstrip("/") != (wanted := f"{public_url}/webhooks/feishu/{name}"):
        message = f"the console sends events to another address, at {urlsplit(url).hostname}"
        yield Finding(check, "error", message, f"enter {wanted} as the request URL")
    subscribed = event.get("subscribed_events")
    if isinstance(subscribed, list) and RECEIVE not in subscribed:
        message = f"{RECEIVE} (接收消息) is not subscribed, so no message arrives"
        yield Finding(check, "error", message, f"add it under Events & Callbacks (事件与回调) {_PUBLISH}")
