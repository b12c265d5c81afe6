"""Pairing: an unknown sender's first direct message gets a code, with which an owner or the operator approves them.

The request is a row of the inbox like a command, so the code is sent once, also after redeliveries and crashes. The row
keeps no text, only a seed: each send derives the code from it and from the account's secrets, and the database has only
its hash. An unknown sender's messages start no turn, and earlier ones are not answered after the approval.
"""

import hmac
import secrets
from dataclasses import replace

import structlog
from pydantic import SecretStr

from agents.language import Language, language_for
from channels.access import AccessConfig
from channels.bilingual import Bilingual
from channels.message import MessageContext, Outbound
from channels.moment import clock
from gateway.approvals.display import person
from gateway.approvals.notices import OWN, Choice, Notice, Notices
from gateway.state.ending import Ending, Reply
from gateway.state.runtime import Runtime
from gateway.store.contacts import ALPHABET, APPROVED, HALF_CHARS, contact_name, hashed, written
from gateway.store.inbound import Inbound
from gateway.store.statements import PAIRING_SECONDS

REQUESTED, REMINDED = "pairing", "pairing:again"
"""The commands of an unknown sender's request, and of their next message while they wait."""
NAME_CHARS_MAX = 64
CODE = "{code}"
_GREETING = Bilingual(
    "Hi! This is a private bot, and I have asked its owner to let you in. If you know them, give them this code "
    f"(valid for an hour): `{CODE}`",
    f"你好！这是一个私人机器人，我已经通知所有者。你也可以把配对码发给对方（一小时内有效）：`{CODE}`",
)
_GREETING_NOT_TOLD = Bilingual(
    f"Hi! This is a private bot. To be let in, give its owner this code (valid for an hour): `{CODE}`",
    f"你好！这是一个私人机器人。请把配对码发给它的所有者，批准后我们就可以聊天（一小时内有效）：`{CODE}`",
)
_GREETING_UNOWNED = Bilingual(
    "Hi! This is a private bot. Is it yours? Send `/claim` with the code that it printed at startup. If not, give this code "
    f"to its operator (valid for an hour): `{CODE}`",
    "你好！这是一个私人机器人。它是你的吗？请发送 `/claim` 加启动时显示的认领码。如果不是，"
    f"请把配对码发给它的管理员（一小时内有效）：`{CODE}`",
)
_WELCOME = Bilingual(
    "You are in. Ask me anything; /help shows what I can do. (I have not read what you wrote before.)",
    "已通过，现在可以和我聊天了，发送 /help 查看我能做什么。（之前的消息我没有读过。）",
)
_STILL_WAITING = Bilingual(
    "Still waiting: I asked the owner at {at}. I will write to you as soon as you are let in.",
    "仍在等待批准，我已在 {at} 通知所有者。批准后我会告诉你。",
)
_NOT_TOLD = Bilingual(
    "Still waiting. Give the code to the bot's owner; I will write to you as soon as you are let in.",
    "仍在等待批准。请把配对码发给机器人的所有者，批准后我会告诉你。",
)

log = structlog.get_logger()


def request(context: MessageContext, agent: str, *, again: bool = False) -> Inbound:
    """Build the request from an unknown sender's message; only the sender, the chat and the language are kept."""
    sender = replace(context.sender, name=(context.sender.name or "")[:NAME_CHARS_MAX] or None)
    stranger = replace(context, sender=sender, text="", attachments=(), reply_to=None, more=False)
    return Inbound(
        agent=agent,
        context=stranger,
        command=REMINDED if again else REQUESTED,
        arguments=f"{language_for(context)} {secrets.token_hex(16)}",
    )


async def ending(runtime: Runtime, turn: int, inbound: Inbound) -> Ending:
    """Return the line for a user who asked or was approved; no reply if they had theirs already, or if too many
    wait."""
    language: Language = "zh" if inbound.arguments.startswith("zh") else "en"
    if inbound.command == APPROVED:  # the person may have written in another language since the request
        newest = await runtime.languages.found(replace(inbound.context, language=None), language)
        return Ending(outcome="pairing-approved", reply=Reply(text=_WELCOME(language_for(newest))))
    if inbound.command == REMINDED:
        return await _reminder(runtime, turn, inbound, language)
    context = inbound.context
    if channel := runtime.setup.channel(context):
        named = (await channel.enrich(context)).sender.name
        name = (
            (named or "")[:NAME_CHARS_MAX] if named != context.sender.id else None
        )  # a platform without a name for them
        context = replace(context, sender=replace(context.sender, name=name or None))
    if not await register(runtime, turn, replace(inbound, context=context)):
        return Ending(outcome="pairing", reason="known, too many wait, or no longer asked for")
    log.info("pairing_requested", channel=context.channel, account=context.account, sender=context.sender.id)
    greeting = _GREETING_NOT_TOLD if runtime.setup.owners else _GREETING_UNOWNED
    if await _tell(runtime, turn, place_of(context), context.sender.name):
        greeting = _GREETING
    return Ending(outcome="pairing", reply=Reply(text=greeting(language), seed=_seed(inbound)))


async def _reminder(runtime: Runtime, turn: int, inbound: Inbound, language: Language) -> Ending:
    """Return one reminder to a waiting user, then nothing for the hour."""
    reminded = await runtime.store.contacts.remind(*place_of(inbound.context), turn=turn)
    if reminded is None:
        return Ending(outcome="pairing", reason="known")
    at = clock(reminded, runtime.setup.config.server.zone)
    text = _STILL_WAITING(language).format(at=at) if reminded else _NOT_TOLD(language)
    return Ending(outcome="pairing", reply=Reply(text=text))


async def tell_who_waits(runtime: Runtime) -> None:
    """Notify a new owner of the users who asked while the bot had none, each with buttons to decide."""
    for it in await runtime.store.contacts.waiting(runtime.now() - PAIRING_SECONDS):
        if it.turn is not None:
            await _tell(runtime, it.turn, (it.channel, it.account, it.person), it.called)


async def _tell(runtime: Runtime, turn: int, place: tuple[str, str, str], name: str | None) -> bool:
    """Notify the owners of a request and record that. Return False if no owner can be reached."""
    told = await Notices(runtime).tell(_notice(turn, place, name))
    if told:
        await runtime.store.contacts.told(turn, runtime.now())
    return told


def _notice(turn: int, place: tuple[str, str, str], name: str | None) -> Notice:
    channel, _, sender = place
    who, asker = contact_name(*place), (f"{channel}:{sender}", name)
    return Notice(
        cause=f"waits {turn}",
        once=f"waits {turn}",
        en=f"{person(*asker, 'en')} wants to write to me.",
        zh=f"{person(*asker, 'zh')} 想给我发消息。",
        choices=(
            Choice(token=f"{OWN}in:{turn}", en="Let in", zh="批准"),
            Choice(token=f"{OWN}refuse:{turn}", en="Refuse", zh="拒绝", danger=True),
        ),
        typed=f"/pair {who}",
        ids=(who,),
    )


async def register(runtime: Runtime, turn: int, inbound: Inbound) -> bool:
    """Create a pending pairing request with the hash of its code. Idempotent per turn and capped per account."""
    channel = runtime.setup.channel(inbound.context)
    if channel is None or channel.access.dm_policy != "pairing":
        return False
    code, name = hashed(code_of(channel.access, _seed(inbound))) or "", inbound.context.sender.name
    place = place_of(inbound.context)
    return await runtime.store.contacts.ask(*place, turn=turn, code=code, at=runtime.now(), name=name)


def place_of(context: MessageContext) -> tuple[str, str, str]:
    return context.channel, context.account, context.sender.id


def _seed(inbound: Inbound) -> str:
    return inbound.arguments.partition(" ")[2]


def code_of(access: AccessConfig, seed: str) -> str:
    """Return `XXXX-XXXX`, deterministic for a seed as long as the account's secrets are unchanged."""
    key = "\x1f".join(value.get_secret_value() for _, value in access if isinstance(value, SecretStr))
    number = int.from_bytes(hmac.digest(key.encode(errors="surrogatepass"), seed.encode(), "sha256"))
    letters = [ALPHABET[number // len(ALPHABET) ** place % len(ALPHABET)] for place in range(2 * HALF_CHARS)]
    return written(letters)


def with_code(part: Outbound, access: AccessConfig, seed: str) -> Outbound:
    return replace(part, text=part.text.replace(CODE, code_of(access, seed)))
