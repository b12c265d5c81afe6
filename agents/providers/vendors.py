"""The vendors of the Chat API, one record each.

A provider's record is selected by the `dialect` in its config, else its name, else the host of its baseUrl, else `generic`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from agents.messages import StopReason

ThinkingForm: TypeAlias = Literal["none", "effort", "deepseek", "switch", "kept", "enable", "reasoning", "template"]
"""The way to request thinking: `none` not at all · `effort` reasoning_effort · `deepseek` thinking.type and an effort ·
`switch` thinking.type alone, or an effort if a model cannot be switched · `kept` thinking.type, keeping earlier thinking ·
`enable` enable_thinking and a budget · `reasoning` an object of that name · `template` arguments of the chat template."""

Replay: TypeAlias = Literal["never", "calls", "filled", "own", "details", "chunks"]
"""The reasoning to resend: `never` none · `calls` on every message with calls, "" if we have none · `filled` the same,
but "" is refused · `own` what we have · `details` the list of reasoning_details unchanged · `chunks` the thinking
chunks of a content list, in place."""

ForcedChoice: TypeAlias = Literal["none", "required", "named"]


@dataclass(frozen=True, kw_only=True, slots=True)
class WellKnown:
    """A vendor of any API, known by name."""

    names: tuple[str, ...] = ()
    """Provider names in the config that select it; `auto` uses the first."""
    title: str = ""
    """The display name."""
    made_at: str = ""
    """The page for creating a key."""
    variables: tuple[str, ...] = ()
    """The usual environment variables of the key; the first that is set is used."""
    hosts: tuple[str, ...] = ()
    """Hosts, including subdomains, with a port if only that one is meant; other addresses may offer any model."""
    default_model: str = ""
    """The model, without the provider, that `auto` uses if this vendor's key is the first one set; empty if none is
    obvious."""

    def model_of(self, name: str) -> str:
        """Return the default model under one of the vendor's names."""
        return f"{name}/{self.default_model}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Vendor(WellKnown):
    """A vendor of the Chat API. Its names and hosts select this record."""

    base_url: str | None = None
    """The default address; None if only the config can know it."""
    keyless: bool = False
    """Works without a key."""
    key_path: str = ""
    """A path that checks a key, if the list of models is public."""
    models: Mapping[str, str] = field(default_factory=dict)
    """Model name patterns that another record describes."""

    limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    stream_options: bool = True
    """Supports `stream_options.include_usage`."""
    prompt_cache_key: bool = False
    description_chars_max: int | None = None
    """The limit of a tool's description, if there is one."""
    thinking: ThinkingForm = "none"
    reasoning_unarmed: tuple[str, ...] = ()
    """Patterns of models that refuse tools while reasoning: with tools, reasoning is turned off."""

    choices: frozenset[ForcedChoice] = frozenset({"none", "required", "named"})
    """Supported forms of tool_choice, besides `auto`."""
    forced_while_thinking: bool = True
    """Supports `required` and the named form while the model thinks."""
    required: str = "required"
    """The vendor's value for `required`."""
    always_choice: bool = False
    """Needs tool_choice in every request with tools."""

    may_ignore_tools: bool = False
    """Some of its models silently ignore tools and answer in text."""

    call_content: Literal[""] | None = None
    """The content of a message with only calls."""
    json_arguments: bool = False
    """Refuses a history with arguments that are not JSON."""
    json_results: bool = False
    """Requires results as JSON text."""
    ids: str = r"[a-zA-Z0-9_-]{1,64}"
    """Accepted call ids; others are renamed."""
    replay: Replay = "never"
    reasoning_fields: tuple[str, ...] = ("reasoning_content", "reasoning")
    """The fields of reasoning in answers; the first is used for resending."""

    finish: Mapping[str, StopReason] = field(default_factory=dict)
    """Finish reasons beyond OpenAI's; `error` is a failed attempt."""
    finish_known: bool = False
    """The list is complete: after an unknown reason no calls are run."""
    finish_optional: bool = False
    """Sometimes omits the finish reason; `[DONE]` then proves the end."""

    @property
    def name(self) -> str:
        """The value of `dialect` in the config."""
        return self.names[0] if self.names else "generic"


_OPENAI = Vendor(
    names=("openai",),
    title="OpenAI",
    made_at="https://platform.openai.com/api-keys",
    hosts=("api.openai.com",),
    base_url="https://api.openai.com/v1",
    variables=("OPENAI_API_KEY",),
    default_model="gpt-5.5",
    limit_field="max_completion_tokens",
    prompt_cache_key=True,
    description_chars_max=1024,
    thinking="effort",
    reasoning_unarmed=("gpt-5.4*", "gpt-5.5*", "gpt-5.6*", "gpt-6*"),
    ids=r"[a-zA-Z0-9_-]{1,40}",
)

VENDORS: dict[str, Vendor] = {
    vendor.name: vendor
    for vendor in (
        _OPENAI,
        Vendor(
            names=("mistral",),
            title="Mistral",
            made_at="https://console.mistral.ai/api-keys",
            hosts=("api.mistral.ai",),
            base_url="https://api.mistral.ai/v1",
            variables=("MISTRAL_API_KEY",),
            default_model="mistral-large-latest",
            stream_options=False,  # refused; usage comes with the finish reason unasked
            required="any",
            ids=r"[a-zA-Z0-9]{9}",
            replay="chunks",
            finish={"model_length": "context_window"},
            finish_known=True,
        ),
        replace(
            _OPENAI,
            names=("azure", "azure-openai"),
            title="Azure OpenAI",
            made_at="",
            hosts=("openai.azure.com", "services.ai.azure.com", "cognitiveservices.azure.com"),
            base_url=None,
            variables=("AZURE_OPENAI_API_KEY",),
            default_model="",  # its models bear the names of one's own deployments
            prompt_cache_key=False,
        ),
        Vendor(
            names=("deepseek",),
            title="DeepSeek",
            made_at="https://platform.deepseek.com/api_keys",
            hosts=("api.deepseek.com",),
            base_url="https://api.deepseek.com/v1",
            variables=("DEEPSEEK_API_KEY",),
            default_model="deepseek-v4-pro",
            models={"deepseek-reasoner": "deepseek-r1", "deepseek-r1*": "deepseek-r1"},
            thinking="deepseek",
            forced_while_thinking=False,
            call_content="",
            replay="calls",
        ),
        Vendor(
            names=("deepseek-r1",),
            base_url="https://api.deepseek.com/v1",
            variables=("DEEPSEEK_API_KEY",),
            choices=frozenset({"none"}),
            call_content="",
        ),
        Vendor(
            names=("moonshot", "kimi"),
            title="Moonshot (Kimi)",
            made_at="https://platform.moonshot.ai/console/api-keys",
            hosts=("api.moonshot.ai", "api.moonshot.cn"),
            base_url="https://api.moonshot.ai/v1",
            variables=("MOONSHOT_API_KEY",),
            default_model="kimi-k2.6",
            stream_options=False,  # usage comes in the last choice unasked
            thinking="switch",
            choices=frozenset({"none", "named"}),
            forced_while_thinking=False,
            ids=r"[a-zA-Z0-9_.:-]{1,64}",
            replay="filled",
        ),
        Vendor(
            names=("zhipu", "glm", "zai", "z.ai"),
            title="Zhipu (GLM) 智谱",
            made_at="https://open.bigmodel.cn/usercenter/apikeys",
            hosts=("open.bigmodel.cn", "api.z.ai"),
            base_url="https://open.bigmodel.cn/api/paas/v4",
            variables=("ZHIPUAI_API_KEY",),
            default_model="glm-4.7",
            stream_options=False,  # usage comes with the finish reason unasked
            thinking="kept",
            choices=frozenset(),
            replay="own",
            finish={
                "sensitive": "content_filter",
                "model_context_window_exceeded": "context_window",
                "network_error": "error",
            },
        ),
        Vendor(
            names=("qwen", "dashscope"),
            title="Qwen 通义千问",
            made_at="https://bailian.console.aliyun.com/?tab=model#/api-key",
            hosts=("dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com", "dashscope-us.aliyuncs.com"),
            base_url="https://dashscope.aliyuncs.com/compatible-mode/v1",
            variables=("DASHSCOPE_API_KEY",),
            default_model="qwen3-max",
            thinking="enable",
            forced_while_thinking=False,
            call_content="",
            json_arguments=True,
            replay="own",
        ),
        Vendor(
            names=("openrouter",),
            title="OpenRouter",
            made_at="https://openrouter.ai/settings/keys",
            hosts=("openrouter.ai",),
            base_url="https://openrouter.ai/api/v1",
            key_path="/key",
            variables=("OPENROUTER_API_KEY",),
            thinking="reasoning",
            ids=r"[a-zA-Z0-9_-]{1,40}",  # what the strictest of those behind it takes
            replay="details",
            reasoning_fields=("reasoning", "reasoning_content"),
        ),
        Vendor(
            names=("ollama",),
            title="Ollama",
            hosts=("localhost:11434", "127.0.0.1:11434"),
            base_url="http://127.0.0.1:11434/v1",
            keyless=True,
            thinking="effort",
            choices=frozenset(),
            call_content="",
            json_arguments=True,  # it parses them for the template
            reasoning_fields=("reasoning", "reasoning_content"),
            finish_optional=True,
        ),
        Vendor(
            names=("vllm",),
            base_url="http://127.0.0.1:8000/v1",
            keyless=True,
            may_ignore_tools=True,
            thinking="template",
            call_content="",
            json_arguments=True,
            replay="own",
            reasoning_fields=("reasoning", "reasoning_content"),
        ),
        Vendor(
            names=("lmstudio", "lm-studio"),
            hosts=("localhost:1234", "127.0.0.1:1234"),
            base_url="http://127.0.0.1:1234/v1",
            keyless=True,
            may_ignore_tools=True,
            call_content="",
            json_arguments=True,
            finish_optional=True,
        ),
        Vendor(
            names=("clawdbot",),
            variables=("CLAWDBOT_API_KEY",),
            stream_options=False,
            choices=frozenset({"none", "named"}),
            always_choice=True,
            may_ignore_tools=True,
            json_results=True,
        ),
        Vendor(may_ignore_tools=True, finish_optional=True),
    )
}


def vendor_for(name: str, base_url: str | None, dialect: str | None) -> Vendor:
    """Return the record of provider `name`. Raises ValueError, with the fix, for an unknown dialect."""
    if dialect is not None:
        if dialect not in VENDORS:
            raise ValueError(f"unknown dialect {dialect!r}: this release knows {', '.join(VENDORS)}")
        return VENDORS[dialect]
    by_name = next((vendor for vendor in VENDORS.values() if name in vendor.names), None)
    by_host = next((vendor for vendor in VENDORS.values() if base_url and _is_at(vendor, base_url)), None)
    return by_name or by_host or VENDORS["generic"]


def for_model(vendor: Vendor, model: str) -> Vendor:
    """Return the record for this model: some vendors changed their API between models."""
    other = next((name for pattern, name in vendor.models.items() if fnmatchcase(model, pattern)), vendor.name)
    return VENDORS[other] if other != vendor.name else vendor


def _is_at(vendor: Vendor, base_url: str) -> bool:
    url = urlsplit(base_url)
    return any(
        where == host or where.endswith(f".{host}")
        for host in vendor.hosts
        for where in (url.hostname or "", url.netloc.rpartition("@")[2])
    )
