"""`/login` and `/logout`, the login card and its last state, and what `/whoami` says of a login.

The card is a message of the gateway's own. So it is shown once, also after a crash, and becomes its own last state.
"""

from collections.abc import Mapping

from channels.bilingual import Bilingual
from channels.channel import DeliveryError
from channels.login import LoginFailed
from channels.message import Button
from channels.plain import plain
from gateway.approvals.display import name_of
from gateway.commands.command import CommandContext, Perform
from gateway.later.pending import LoginEnd, card_end_json, minutes_left
from gateway.state.ending import Reply
from gateway.store.inbound import LOGIN_CARD, LOGIN_END

_ENDS: Mapping[LoginEnd, Bilingual] = {
    "done": Bilingual("✓ logged in as {}", "✓ 已登录：{}"),
    "denied": Bilingual("✗ The login was denied.", "✗ 登录已被拒绝。"),
    "expired": Bilingual("✗ The login was not finished in time.", "✗ 登录已超时。"),
    "stranger": Bilingual(
        "✗ Somebody else logged in with this link, so nothing was kept.", "✗ 有其他人用此链接登录，未保留任何内容。"
    ),
    "lost": Bilingual("✗ The login was interrupted.", "✗ 登录被中断。"),
    "cancelled": Bilingual("✗ The login was cancelled.", "✗ 登录已取消。"),
    "barred": Bilingual("✗ You may not use this app.", "✗ 你无权使用此应用。"),
    "policy": Bilingual("✗ A policy of your organisation blocks the login.", "✗ 企业的安全策略阻止了登录。"),
    "app_lacks": Bilingual("✗ The app lacks a permission for it.", "✗ 应用缺少所需的权限。"),
    "refused": Bilingual("✗ The platform refused the login.", "✗ 平台拒绝了登录。"),
    "replaced": Bilingual("A newer login follows.", "请使用下方新的登录卡片。"),
}
_AGAIN = Bilingual(" Write /login to try again.", "发送 /login 可重试。")
_RETRIED: tuple[LoginEnd, ...] = ("denied", "expired", "stranger", "lost", "cancelled")
"""Ends after which another login may succeed."""


async def login(context: CommandContext) -> str | None:
    """Show the card of the login that waits, or begin one."""
    channel = context.logins.channel_of(context.message)
    if channel is None or context.message.chat.kind != "direct":
        return context.say("Write /login to me in a direct chat in Feishu.", "请在飞书中与我私聊，发送 /login。")
    pending, current = context.logins.pending, await context.logins.of(context.message)
    try:
        await pending.begin(channel, context.message, (), login=current, command=context.turn)
    except LoginFailed as error:
        return _end(context, error.reason, link=error.link)
    except (DeliveryError, OSError):
        return context.say("The login cannot begin now. Try again later.", "暂时无法登录，请稍后再试。")
    return None


async def logout(context: CommandContext) -> str:
    message = context.message
    if context.logins.channel_of(message) is None:
        return context.say("There is no login here.", "这里没有登录。")
    await context.logins.pending.cancel(message)
    names = message.channel, message.account, message.sender.id
    if await context.runtime.store.logins.forget(*names):
        return context.say("Logged out: the login is deleted here.", "已退出登录，这里保存的登录已删除。")
    return context.say("You are not logged in.", "你没有登录。")


async def show_card(context: CommandContext) -> Reply | None:
    """Show a login that still waits."""
    id_, run, *_ = context.arguments.split()
    pending = await context.logins.pending.get(id_, run)
    if pending is None:
        return None
    minutes = minutes_left(pending, context.runtime.now())
    text = context.say(
        f"Log in, so that I can work in Feishu as you. The code there must be **{pending.user_code}**. "
        f"The login ends in {minutes} minute{'s' * (minutes > 1)}.",
        f"请登录，以便我以你的身份在飞书中操作。页面上的验证码应为 **{pending.user_code}**，{minutes} 分钟内有效。",
    )
    return Reply(text=text, buttons=(Button(label=context.say("Log in", "登录"), url=pending.url, style="primary"),))


async def finish_card(context: CommandContext) -> Reply:
    """Replace the card by its last state; where none was sent, say it."""
    end = card_end_json.validate_json(context.arguments)
    sent = await context.runtime.store.approvals.sent(end.card)
    text = _end(context, end.end, name=plain(name_of(end.name) or context.person), link=end.link)
    return Reply(text=text, replaces=sent[-1] if sent else None)


def _end(context: CommandContext, end: LoginEnd, *, name: str = "", link: str = "") -> str:
    text = _ENDS.get(end, _ENDS["refused"])(context.language).format(name)
    text += _AGAIN(context.language) if end in _RETRIED else ""
    return f"{text} {link}" if link else text


async def login_line(context: CommandContext) -> tuple[str, str]:
    """Return the line of `/whoami`: who is logged in, and what the login allows. Empty in a group, and where nobody logs
    in."""
    label = context.say("Login", "登录")
    channel = context.logins.channel_of(context.message)
    if channel is None or context.message.chat.kind != "direct":
        return label, ""
    found = await context.logins.of(context.message)
    if found is None:
        return label, context.say("none (/login)", "无（/login）") if channel.login.scopes else ""
    if found.ended is not None:
        return label, context.say("ended (/login)", "已失效（/login）")
    scopes = ", ".join(f"`{it}`" for it in sorted(found.granted - {"offline_access"}))
    return label, plain(name_of(found.name) or found.person) + (context.aside(scopes) if scopes else "")


LOGIN_RUNS: Mapping[str, Perform] = {LOGIN_CARD: show_card, LOGIN_END: finish_card}
"""The gateway's own messages about logins, by their internal commands."""
