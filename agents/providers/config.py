"""The config of a model provider: one block under `providers`, keyed by the name that models refer to.

The name before the slash of `provider/model` selects the block; well-known names imply their API. Model limits are
under `models`, by `provider/model` or by the model's name, over Clawgate's table (`agents.providers.models`).
"""

import re
from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias, get_args
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator

from agents.messages import ErrorKind
from agents.providers.models import DocumentForm, Level, PricesConfig, ThinkingStyle, known_names
from agents.providers.vendors import VENDORS, WellKnown, vendor_for
from channels.bilingual import NO_WORDS, Bilingual, Outage
from channels.section import Section

Api: TypeAlias = Literal["anthropic-messages", "openai-responses", "openai-chat", "google-gemini", "mistral", "demo"]
APIS: tuple[Api, ...] = get_args(Api)
NATIVE_DOCUMENTS: tuple[Api, ...] = ("anthropic-messages", "google-gemini")
"""The APIs that accept native PDFs."""
IMPLIED: dict[str, Api] = {
    **{name: "openai-chat" for vendor in VENDORS.values() for name in vendor.names},
    "anthropic": "anthropic-messages",
    "openai": "openai-responses",
    "google": "google-gemini",
    "gemini": "google-gemini",
    "mistral": "mistral",
    "demo": "demo",
}
"""Provider names that need no `api` and no block in the config."""

WELL_KNOWN: tuple[WellKnown, ...] = (
    WellKnown(
        names=("anthropic",),
        title="Anthropic (Claude)",
        made_at="https://console.anthropic.com/settings/keys",
        variables=("ANTHROPIC_API_KEY",),
        hosts=("api.anthropic.com",),
        default_model="claude-sonnet-4-6",
    ),
    VENDORS["openai"],
    WellKnown(
        names=("google", "gemini"),
        title="Google (Gemini)",
        made_at="https://aistudio.google.com/apikey",
        variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        hosts=("generativelanguage.googleapis.com",),
        default_model="gemini-3-flash",
    ),
    *(vendor for vendor in VENDORS.values() if vendor.variables and vendor.name != "openai"),
)
"""Vendors with a usual key variable, in the order that `auto` tries."""

NOT_A_KEY = "an API key has only plain ASCII characters; was a placeholder left in?"
_SLIPS: tuple[tuple[str, str], ...] = (
    (r"([\"'`]).*\1", "it has quotes around it, which are part of the value here; write it without them"),
    (r"[\"'`].*|.*[\"'`]", "it has a quote at one end; write it without"),
    (
        r"(?i)(?:authorization:\s*)?(?:bearer|basic)\s.*|authorization:.*",
        "it begins with a word of the header, such as Bearer; write the key alone",
    ),
    (r".*\s#.*", "it has a comment behind it, which is part of the value here; write the comment on a line of its own"),
    (r"(?:export\s+)?[A-Z][A-Z0-9_]*=[^=].*", "it begins with a name and an equals sign; write the value alone"),
    (r".*\s.*", "it has a blank inside; no key has one"),
)
"""Mistakes in keys from files that other programs read, such as docker's --env-file."""
_ENDPOINT = re.compile(
    r"(?:/chat)?/completions|/responses|/messages|/embeddings|/models(?:/[^/]*:(?:stream)?[gG]enerateContent)?"
)
"""The paths that the API client appends."""

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")


ToolCalling: TypeAlias = Literal["native", "prompt"]


class ModelConfig(Section):
    """Facts about a model, over Clawgate's table: for a new model, or if the table is wrong."""

    window: Annotated[int, Field(ge=1024)] | None = None
    """The context window, in tokens."""
    max_output: Annotated[int, Field(ge=16)] | None = None
    """The maximum output, in tokens."""
    vision: bool | None = None
    """True if it accepts pictures; otherwise a line of text replaces them."""
    thinking: tuple[Level, ...] | None = None
    """The thinking levels it supports; if empty, no thinking setting is sent."""
    thinking_style: ThinkingStyle | None = None
    """The way to request thinking, if the API has several ways: `adaptive`, `always`, `between_tools` or `budget` for
    Anthropic, `level` or `budget` for Gemini."""
    forced_tool: bool | None = None
    """True if `toolChoice` may force a tool."""
    documents: DocumentForm | None = None
    """`native` to send it PDFs of at most 20 pages and 3 MB with their layout and pictures; `text` if `read` gives
    their text. For Claude and Gemini on their own APIs; the provider's value if unset."""
    tool_calling: ToolCalling | None = None
    """`native`, or `prompt` for a model that takes no tools: they are described in the prompt then."""
    prices: PricesConfig | None = None
    """Prices for `/usage`, budgets, transcripts and metrics, instead of the shipped ones."""


class ProviderConfig(Section):
    """One model provider."""

    api_key: SecretStr = SecretStr("")
    """The API key, best as `${NAME}` or `${file:path}`. If neither this nor `apiKeys` is set, a well-known provider
    uses its usual variable, such as ANTHROPIC_API_KEY (docs/providers.md). Empty means no key; a provider that needs
    one then answers nothing."""
    api_keys: tuple[SecretStr, ...] = ()
    """More keys: chats are distributed over all of them, and a refused key cools down while the others work."""
    api: Api | None = None
    """The API it speaks: `anthropic-messages`, `openai-responses`, `openai-chat`, `google-gemini`, `mistral` or
    `demo`. Known provider names imply it (docs/providers.md)."""
    dialect: str | None = None
    """The vendor whose variant an `openai-chat` server speaks, such as `deepseek` (docs/providers.md). If unset, the
    provider's name decides, then the host of `baseUrl`, else `generic`."""
    base_url: str | None = None
    """The server's http or https address. With `/v1` for openai-*, without it for anthropic and mistral; the vendor's
    address if unset."""
    documents: DocumentForm = "text"
    """`native` to send its models PDFs of at most 20 pages and 3 MB in the turn that brings them; a page costs some
    2,500 tokens (docs/documents.md). For `anthropic-messages` and `google-gemini`."""
    tool_calling: ToolCalling = "native"
    """`native`, or `prompt` for models that take no tools: they are described in the prompt then."""
    timeout_seconds: Annotated[float, Field(gt=0)] = 600
    """The timeout of one answer, from request to end."""
    first_byte_seconds: Annotated[float, Field(gt=0)] = 300
    """The timeout before an answer begins: reasoning models may be silent for minutes."""
    idle_seconds: Annotated[float, Field(gt=0)] = 120
    """The idle timeout within an answer. Long tool arguments arrive in one piece, after a minute or more."""
    headers: dict[str, str] = {}
    """Extra headers, such as `anthropic-version` for a host that supports only an older one."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the configured keys, stripped and deduplicated."""
        keys = (key.get_secret_value().strip() for key in (self.api_key, *self.api_keys))
        return tuple(dict.fromkeys(key for key in keys if key))

    @field_validator("api_key", "api_keys")
    @classmethod
    def _keys_can_be_sent(cls, value: SecretStr | tuple[SecretStr, ...]) -> SecretStr | tuple[SecretStr, ...]:
        for key in value if isinstance(value, tuple) else (value,):
            if fault := fault_of_key(key.get_secret_value()):
                raise ValueError(fault)
        return value

    @field_validator("api", mode="before")
    @classmethod
    def _known_api(cls, value: object) -> object:
        if value is not None and value not in APIS:
            raise ValueError(f"unknown api {value!r}: this release speaks {', '.join(APIS)}")
        return value

    @field_validator("dialect")
    @classmethod
    def _known_dialect(cls, value: str | None) -> str | None:
        if value is not None:
            vendor_for("", None, value)
        return value

    @field_validator("base_url")
    @classmethod
    def _usable_url(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            url = urlsplit(value)
            usable = url.scheme in ("http", "https") and bool(url.hostname) and (url.port is None or url.port > 0)
        except ValueError:
            usable = False
        if not usable or not re.fullmatch(r"[\x21-\x7e]+", value) or url.query or url.fragment:
            raise ValueError("expected an http:// or https:// address without query, such as https://api.anthropic.com")
        if match := re.search(f"(?:{_ENDPOINT.pattern})/*$", url.path):
            end = match[0].rstrip("/")
            end = "/models" if end.startswith("/models/") else end
            raise ValueError(f"ends in {end}, which is added to it for each request — write the address before that")
        return value

    @field_validator("headers")
    @classmethod
    def _sendable_headers(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(text):
                raise ValueError(f"header {name!r} cannot be sent: names and values are plain ASCII on one line")
        return value


def fault_of_key(key: str) -> str:
    """Return why this cannot be a key, with the fix; empty if it may be one. Never repeats the key."""
    key = key.strip()
    slip = next((words for form, words in _SLIPS if re.fullmatch(form, key, re.DOTALL)), "")
    if slip:
        return f"this is no API key: {slip}"
    return "" if _HEADER_VALUE.fullmatch(key) else NOT_A_KEY


def api_of(name: str, config: ProviderConfig) -> Api:
    """The wire of the provider called `name`. Raises ValueError, with the fix, if neither says it, or if nothing says
    the address of a server without one."""
    api = config.api or IMPLIED.get(name)
    if api is None:
        raise ValueError(f'add "api:", one of {", ".join(APIS)}')
    if config.documents == "native" and api not in NATIVE_DOCUMENTS:
        raise ValueError(f'"documents: native" is for the wires {" and ".join(NATIVE_DOCUMENTS)}')
    if api == "openai-chat" and not (config.base_url or vendor_for(name, None, config.dialect).base_url):
        raise ValueError('add "baseUrl:", such as https://models.example.com/v1')
    return api


def well_known(name: str) -> WellKnown | None:
    """The vendor that a provider of this name means."""
    return next((vendor for vendor in WELL_KNOWN if name in vendor.names), None)


def known_models() -> list[str]:
    """Return model names to suggest for a misspelt one."""
    return [*(vendor.default_model for vendor in WELL_KNOWN if vendor.default_model), *known_names()]


def serves_own_models(name: str, base_url: str | None) -> bool:
    """Return whether a provider is a vendor's own service, whose models `models.yaml` should know: by its address if
    it has one, else by its name. Vendors without a default model have none."""
    if base_url is None:
        vendor = well_known(name)
    else:
        host = urlsplit(base_url).hostname or ""
        vendor = next((it for it in WELL_KNOWN if any(f".{host}".endswith(f".{own}") for own in it.hosts)), None)
    return vendor is not None and bool(vendor.default_model)


_REASONS: Mapping[ErrorKind, Bilingual] = {
    "auth": Bilingual("the vendor refuses the key", "厂商拒绝了密钥"),
    "billing": Bilingual("the account has no credit or no quota left", "账户的余额或配额已用完"),
    "invalid": Bilingual("the vendor does not accept the request", "厂商不接受该请求"),
    "not_found": Bilingual("the vendor has no such model", "厂商没有这个模型"),
    "too_large": Bilingual("the conversation does not fit the model", "对话超出模型的长度"),
    "message_too_long": Bilingual("the message does not fit the model", "消息超出模型的长度"),
    "stale_thinking": Bilingual("the vendor does not accept its earlier reasoning", "厂商不接受先前的思考"),
    "no_tools": Bilingual("the model takes no tools", "该模型不支持工具"),
    "rate_limited": Bilingual("the vendor's rate limit is reached", "已达到厂商的速率限制"),
    "overloaded": Bilingual("the vendor is overloaded", "厂商过载"),
    "server": Bilingual("the vendor's service has failed", "厂商的服务出现故障"),
    "network": Bilingual("the vendor cannot be reached", "无法连接厂商"),
    "timeout": Bilingual("the vendor did not answer in time", "厂商未及时应答"),
    "incomplete": Bilingual("the vendor's answer broke off", "厂商的回答中途中断"),
    "unconfigured": Bilingual("there is no key", "没有密钥"),
}
_FIXES: Mapping[ErrorKind, Bilingual] = {
    "auth": Bilingual("set a valid key: {at}", "请设置有效的密钥：{at}"),
    "billing": Bilingual("top up the vendor's account, or set another key: {at}", "请为账户充值，或换一个密钥：{at}"),
    "unconfigured": Bilingual("set a key: {at}", "请设置密钥：{at}"),
    "rate_limited": Bilingual(
        "the next message asks it again; ask the vendor for a higher limit, or give the agent a second model",
        "下一条消息会再次请求；可向厂商申请更高的限额，或为智能体设置备用模型",
    ),
    "network": Bilingual("the next message asks it again; check {at}", "下一条消息会再次请求；请检查 {at}"),
    "timeout": Bilingual("the next message asks it again; check {at}", "下一条消息会再次请求；请检查 {at}"),
}
_CHECK = Bilingual("check {at}; the log has the vendor's words", "请检查 {at}；日志中有厂商的原话")
_WAIT = Bilingual(
    "the next message asks it again; the log has the vendor's words", "下一条消息会再次请求；日志中有厂商的原话"
)


def model_outage(kind: ErrorKind, reference: str, words: str = "") -> Outage:
    """Return why `provider/model` does not answer and the next step. `words` is the vendor's message, for the operator
    only."""
    at, reason = look_at(kind, reference), reason_of(kind)
    fix = _FIXES.get(kind) or (_CHECK if at else _WAIT)
    shown = Bilingual(f"{reason} ({kind})", f"{reason.zh}（{kind}）")
    said = Bilingual(f"{shown}: {words}", f"{shown.zh}：{words}") if words else shown
    return Outage(kind, said, Bilingual(fix.replace("{at}", at), fix.zh.replace("{at}", at.zh)))


def reason_of(kind: ErrorKind) -> Bilingual:
    return _REASONS[kind]


def look_at(kind: ErrorKind, reference: str) -> Bilingual:
    """Return the config key and variable that a refusal of `provider/model` is about, if any."""
    name, _, model = reference.partition("/")
    block = f"providers.{name}"
    match kind:
        case "auth" | "billing" | "unconfigured":
            key, names = f"{block}.apiKey", vendor.variables if (vendor := well_known(name)) else ()
            return (
                Bilingual(f"{key} ({' or '.join(names)})", f"{key}（{' 或 '.join(names)}）")
                if names
                else Bilingual(key)
            )
        case "not_found":
            return Bilingual(f"the agent's model, and {block}.baseUrl", f"智能体的 model 和 {block}.baseUrl")
        case "invalid" | "no_tools" | "stale_thinking" | "too_large":
            entry = f'models."{name}/{model}"'
            return Bilingual(f"{entry}, and {block}.dialect", f"{entry} 和 {block}.dialect") if name else NO_WORDS
        case "network" | "timeout":
            return Bilingual(f"{block}.baseUrl")
    return NO_WORDS
