"""Telegram's word on a bot: whether its token works, what it sees of groups, and where its updates go. All of it is
read; nothing is set and nothing is fetched."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from channels.channel import DeliveryError, Refused
from channels.finding import Finding
from channels.telegram.api import TelegramApi, refusal_of
from channels.telegram.config import TelegramAccount
from channels.wire import number, text

CALL_SECONDS = 5.0
ERROR_RECENT_SECONDS = 3600.0
"""Telegram keeps its last failure for good; an older one says nothing of now."""


async def probe(account: TelegramAccount, name: str, public_url: str | None, now: float) -> list[Finding]:
    api = TelegramApi(account.model_copy(update={"timeout_seconds": min(account.timeout_seconds, CALL_SECONDS)}))
    check = f"telegram {name}"
    try:
        me, info = await asyncio.gather(api.call("getMe"), api.call("getWebhookInfo"))
    except DeliveryError as error:
        wrong = isinstance(error, Refused) or refusal_of(error) is not None
        fix = "take botToken from @BotFather, and see apiRoot" if wrong else "is apiRoot right, and is there a proxy?"
        return [Finding(f"{check} credentials", "error", str(error), fix)]
    finally:
        await api.close()
    if not isinstance(me, dict) or not isinstance(info, dict):
        return [Finding(f"{check} credentials", "error", "the answer cannot be read", "is apiRoot a Bot API server?")]
    bot = Finding(f"{check} credentials", "ok", f"the token is right; the bot is @{text(me, 'username')}")
    wanted = None if public_url is None else f"{public_url}/webhooks/telegram/{name}"
    return [bot, *_groups(account, me, check), *_updates(account, info, f"{check} updates", wanted, now)]


def _groups(account: TelegramAccount, me: Mapping[str, Any], check: str) -> Iterator[Finding]:
    if account.group_policy == "disabled" or (account.group_policy == "allowlist" and not account.group_allow_from):
        return
    if me.get("can_read_all_group_messages") is not True:
        message = "privacy mode is on: of groups the bot gets mentions, replies and commands, and nothing else"
        fix = "@BotFather, /setprivacy, Disable; then remove the bot from each group and add it again. Or leave it so"
        yield Finding(f"{check} privacy", "warning", message, fix)
    if me.get("can_join_groups") is False:
        yield Finding(f"{check} groups", "warning", "nobody can add the bot to a group", "@BotFather, /setjoingroups")


def _updates(
    account: TelegramAccount, info: Mapping[str, Any], check: str, wanted: str | None, now: float
) -> Iterator[Finding]:
    url, waiting = text(info, "url"), number(info, "pending_update_count") or 0
    where = f"a webhook is set for this bot, at {urlsplit(url).hostname}"  # its path may hold a secret
    if account.mode == "polling":
        if url:
            fix = "stop the deployment that sets it, then start this one: it removes it. Or choose mode: webhook"
            yield Finding(check, "error", f"{where}, so polling gets nothing", fix)
        else:
            yield Finding(check, "ok", f"polling, {waiting} waiting")
        return
    if wanted is None:
        fix = "set it to the https address under which Telegram reaches this server, or choose mode: polling"
        yield Finding(check, "error", "mode: webhook has no address, as server.publicUrl is not set", fix)
    elif not url:
        yield Finding(check, "warning", "no webhook is set yet", "start the gateway: it sets it")
    elif url != wanted:
        yield Finding(
            check, "error", f"{where}, not here", f"start the gateway, which sets {wanted}; stop the other one"
        )
    else:
        yield Finding(check, "ok", f"the webhook is set, {waiting} waiting")
    at, reason = number(info, "last_error_date"), text(info, "last_error_message")
    if url == wanted and at is not None and now - at < ERROR_RECENT_SECONDS:
        fix = "is server.publicUrl reachable from outside, with a valid certificate, and the proxy in front of it up?"
        yield Finding(check, "warning", f"Telegram's last delivery failed: {' '.join(reason.split())[:200]}", fix)
