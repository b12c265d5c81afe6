"""The settings that connect a Feishu app: one account, or several under `accounts`."""

import re
from collections.abc import Iterator
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, SecretStr

from channels.access import AccessConfig, Mistake, Quotes, access_warnings, id_problems, is_blank, is_http
from channels.bilingual import Bilingual
from channels.message import ChatKind
from channels.section import QueueConfig, Section

DEFAULT = "default"
_EXAMPLE = re.compile("(ou|oc)_(0123456789abcdef[0-9a-f]*|.*….*)")
Rendering: TypeAlias = Literal["auto", "post", "card"]


class LoginConfig(Section):
    """The login of people at Feishu, after which tools act as them."""

    scopes: tuple[Annotated[str, Field(pattern=r"^[a-z][a-zA-Z0-9_.:-]{0,127}$")], ...] = ()
    """The permissions that `/login` asks for if no tool needs others, such as `docx:document:readonly`. The app must have
    each of them, too. Permissions add up over logins."""


class FeishuAccount(AccessConfig):
    """One Feishu app."""

    app_id: str = ""
    """The app's id, `cli_…`; empty means that this account is not configured."""
    app_secret: SecretStr = SecretStr("")
    """The app's secret, from "Credentials & Basic Info" (凭证与基础信息) in the developer console."""
    encrypt_key: SecretStr = SecretStr("")
    """The Encrypt Key, from "Events & Callbacks → Encryption Strategy" (事件与回调 → 加密策略). `mode: websocket`
    needs none."""
    verification_token: SecretStr = SecretStr("")
    """The Verification Token, from the same page; checked in addition to the signature."""
    mode: Literal["webhook", "websocket", "auto"] = "auto"
    """Delivery of events: `webhook`, at `/webhooks/feishu/{account}`; `websocket`, through a long connection (长连接)
    opened by the gateway, without a public address; `auto`: `webhook` if `server.publicUrl` and the verification keys
    are set, else `websocket`. The developer console must have the same setting."""
    verification: Literal["signature", "token"] = "signature"
    """`signature` needs the Encrypt Key; `token` trusts the Verification Token alone, which is weaker."""
    base_url: str = "https://open.feishu.cn"
    """The open platform: `https://open.larksuite.com` for Lark."""
    login: LoginConfig = LoginConfig()
    timestamp_window_seconds: Annotated[int, Field(ge=1)] | None = 3600
    """Maximum age of a signed delivery; null accepts any age. Replays are always deduplicated by message id."""
    timeout_seconds: Annotated[float, Field(gt=0)] = 10
    """Timeout of a call to Feishu's API."""
    sends_per_second: Annotated[float, Field(gt=0)] | None = None
    """Rate limit of this app's sends. If unset, there is none until Feishu asks to slow down; then Feishu's documented rate
    (50 a second, 5 in one chat) applies for a minute."""
    resend_ambiguous: bool = True
    """An ambiguous send is retried for an hour, in which Feishu deduplicates it. After that, `true` still retries it: better
    a duplicate than a lost message. `false` makes it a dead letter."""
    reaction: Literal["Typing", "OnIt", "OneSecond", "Get", "OK", "THINKING", "GLANCE", ""] = "Typing"
    """The reaction that a message has while it is being answered, `""` for none. The app needs the scope
    `im:message.reactions:write_only` and `im:message:readonly`."""
    quotes: Quotes = "all"
    """The messages of an answer that quote the question: `all`, `first`, or `off` for none; in a topic always all."""
    rendering: Rendering = "auto"
    """The form of an answer that does not grow in a card: `auto`, a card if it has code or tables, else rich text
    (`post`); or always one of them."""
    queue: QueueConfig = QueueConfig()


class FeishuConfig(FeishuAccount):
    """The section `channels.feishu`: its own keys are the account `default`."""

    enabled: bool = True
    """`false` switches the channel off and leaves its settings in place."""
    accounts: dict[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")], FeishuAccount] = Field(default={})
    """More apps, by name; the name is part of the webhook's path."""


def accounts(config: FeishuConfig) -> dict[str, FeishuAccount]:
    if not config.enabled:
        return {}
    named = {DEFAULT: config, **config.accounts}
    return {name: account for name, account in named.items() if account.app_id.strip()}


def listens(account: FeishuAccount, public_url: str | None) -> bool:
    """Return True if events arrive through our own connection."""
    verifies = not is_blank(account.encrypt_key) or (
        account.verification == "token" and not is_blank(account.verification_token)
    )
    return account.mode == "websocket" or (account.mode == "auto" and not (public_url and verifies))


def example(id_: str) -> ChatKind | None:
    """Return the chat kind of an id from the documentation; None for any other."""
    if not _EXAMPLE.fullmatch(id_):
        return None
    return "direct" if id_.startswith("ou_") else "group"


def problems(account: FeishuAccount) -> Iterator[Mistake]:
    if is_blank(account.app_secret):
        yield ("appSecret",), "missing: copy it from Credentials & Basic Info in the Feishu developer console"
    by_webhook = account.mode == "webhook"
    if by_webhook and account.verification == "signature" and is_blank(account.encrypt_key):
        message = (
            "missing: without it anybody could send events. Set one in the developer console under Events & Callbacks → "
            "Encryption Strategy and copy it here, or choose mode: websocket, which needs none"
        )
        yield ("encryptKey",), message
    if by_webhook and account.verification == "token" and is_blank(account.verification_token):
        yield ("verificationToken",), "missing: `verification: token` has nothing else to check"
    if not is_http(account.base_url):
        yield ("baseUrl",), "must be an http or https URL, such as https://open.feishu.cn"
    yield from id_problems(
        account,
        person=("ou_.*", "a person's open id, ou_…: ids only, never names"),
        group=("oc_.*", "a group's chat id, oc_…: ids only, never names"),
    )


def warnings(account: FeishuAccount) -> Iterator[tuple[Bilingual, Bilingual]]:
    if account.verification == "token" and is_blank(account.encrypt_key):
        message = Bilingual(
            "verification: token lets anyone who learns the Verification Token forge events",
            "verification: token 会让任何得知 Verification Token 的人都能伪造事件",
        )
        yield message, Bilingual("set encryptKey", "请设置 encryptKey")
    person, place = Bilingual("the ou_… id", " ou_… ID "), Bilingual("in the tenant", "企业内")
    yield from access_warnings(account, person=person, place=place, added="it is added to")
