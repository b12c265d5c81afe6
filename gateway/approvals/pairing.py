"""Pairing: a stranger's first direct message gets a code, with which the operator lets them in.

The request is a row of the inbox like a command, so the line with the code is answered once, after redeliveries and
crashes too. The row keeps no words, only a seed: each send derives the code from it and from the account's secrets, and
the database has only its hash. A stranger's words start no turn, and earlier ones are not answered after the approval.
"""

import hashlib
import hmac
import secrets
from dataclasses import replace

import structlog
from pydantic import SecretStr

from agents.sentences import Language, language_for
from channels.access import AccessConfig
from channels.message import MessageContext, Outbound
from gateway.records.inbound import Inbound
from gateway.state.ending import Ending
from gateway.state.runtime import Runtime
from gateway.store.contacts import APPROVED

REQUESTED = "pairing"
"""The command of a stranger's request."""
ALPHABET = "ABCDEFGHJKMNPQRSTVWXYZ234567"
"""Base32 without I, L, O and U."""
HALF_CHARS = 4
_PLACE = "{code}"
_GREETINGS: dict[Language, str] = {
    "en": f"I do not know you yet. Whoever runs this bot can let you in with this code, within an hour: `{_PLACE}`",
    "zh": f"我还不认识你。请机器人的管理者在一小时内批准此配对码：`{_PLACE}`",
}
_WELCOMES: dict[Language, str] = {
    "en": "You may write to me now. What you wrote before was not read.",
    "zh": "现在可以给我发消息了。此前发送的内容未被读取。",
}

log = structlog.get_logger()


def request(context: MessageContext, agent: str, *, default: Language) -> Inbound:
    """Makes the request from a stranger's message: only its sender, chat and language are kept."""
    language = language_for(context, default)
    sender = replace(context.sender, name=None)
    kept = replace(context, sender=sender, text="", attachments=(), reply_to=None, more=False)
    return Inbound(agent=agent, context=kept, command=REQUESTED, arguments=f"{language} {secrets.token_hex(16)}")


async def ending(runtime: Runtime, turn: int, inbound: Inbound) -> Ending:
    """The reply to a pairing request or approval; none if already answered or too many wait."""
    language: Language = "zh" if inbound.arguments.startswith("zh") else "en"
    if inbound.command == APPROVED:
        return Ending(outcome="pairing-approved", text=_WELCOMES[language])
    if not await register(runtime, turn, inbound):
        return Ending(outcome="pairing", reason="known, too many wait, or no longer asked for", text=None)
    context = inbound.context
    log.info("pairing_requested", channel=context.channel, account=context.account, sender=context.sender.id)
    return Ending(outcome="pairing", text=_GREETINGS[language], seed=_seed(inbound))


async def register(runtime: Runtime, turn: int, inbound: Inbound) -> bool:
    """Registers a stranger with the hash of their code, unless they wait already or too many do; idempotent per turn."""
    context = inbound.context
    place = context.channel, context.account, context.sender.id
    channel = runtime.setup.channels.get(place[:2])
    if channel is None or channel.access.dm_policy != "pairing":
        return False
    code = hashed(code_of(channel.access, _seed(inbound))) or ""
    return await runtime.store.contacts.ask(*place, turn=turn, code=code, at=runtime.now())


def _seed(inbound: Inbound) -> str:
    return inbound.arguments.partition(" ")[2]


def code_of(access: AccessConfig, seed: str) -> str:
    """`XXXX-XXXX`, the same for the same seed as long as the account's secrets are."""
    key = "\x1f".join(value.get_secret_value() for _, value in access if isinstance(value, SecretStr))
    number = int.from_bytes(hmac.digest(key.encode(errors="surrogatepass"), seed.encode(), "sha256"))
    letters = [ALPHABET[number // len(ALPHABET) ** place % len(ALPHABET)] for place in range(2 * HALF_CHARS)]
    return f"{''.join(letters[:HALF_CHARS])}-{''.join(letters[HALF_CHARS:])}"


def with_code(part: Outbound, access: AccessConfig, seed: str) -> Outbound:
    return replace(part, text=part.text.replace(_PLACE, code_of(access, seed)))


def hashed(code: str) -> str | None:
    """The stored hash of a code, however it is typed; None if it cannot be a code."""
    plain = code.strip().upper().replace("-", "", 1)
    if len(plain) != 2 * HALF_CHARS or set(plain) - set(ALPHABET):
        return None
    return hashlib.sha256(f"clawgate pairing {plain}".encode()).hexdigest()
