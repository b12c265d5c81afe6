"""The vendors of the Chat wire, one literal record each: to add one is to add its record.

Which record a provider gets: the `dialect` in its config, else its name, else the host of its baseUrl, else `generic`.
"""

from dataclasses import replace
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from agents.providers.chat.vendor import Vendor

_OPENAI = Vendor(
    name="openai",
    names=("openai",),
    hosts=("api.openai.com",),
    base_url="https://api.openai.com/v1",
    key_env="OPENAI_API_KEY",
    default_model="gpt-5.5",
    limit_field="max_completion_tokens",
    prompt_cache_key=True,
    description_chars_max=1024,
    thinking="effort",
    reasoning_unarmed=("gpt-5.4*", "gpt-5.5*", "gpt-5.6*", "gpt-6*"),
    ids=r"[a-zA-Z0-9_-]{1,40}",
)
_AZURE = replace(
    _OPENAI,
    name="azure",
    names=("azure", "azure-openai"),
    hosts=("openai.azure.com", "services.ai.azure.com", "cognitiveservices.azure.com"),
    base_url=None,
    key_env="AZURE_OPENAI_API_KEY",
    default_model="",  # its models bear the names of one's own deployments
    prompt_cache_key=False,
)
_DEEPSEEK = Vendor(
    name="deepseek",
    names=("deepseek",),
    hosts=("api.deepseek.com",),
    base_url="https://api.deepseek.com/v1",
    key_env="DEEPSEEK_API_KEY",
    default_model="deepseek-v4-pro",
    models={"deepseek-reasoner": "deepseek-r1", "deepseek-r1*": "deepseek-r1"},
    thinking="deepseek",
    forced_while_thinking=False,
    call_content="",
    replay="calls",
)
_DEEPSEEK_R1 = Vendor(
    name="deepseek-r1",
    names=("deepseek-r1",),
    base_url="https://api.deepseek.com/v1",
    key_env="DEEPSEEK_API_KEY",
    choices=frozenset({"none"}),
    call_content="",
    replay="never",
)
_MOONSHOT = Vendor(
    name="moonshot",
    names=("moonshot", "kimi"),
    hosts=("api.moonshot.ai", "api.moonshot.cn"),
    base_url="https://api.moonshot.ai/v1",
    key_env="MOONSHOT_API_KEY",
    default_model="kimi-k2.6",
    stream_options=False,  # usage comes in the last choice unasked
    thinking="switch",
    choices=frozenset({"none", "named"}),
    forced_while_thinking=False,
    ids=r"[a-zA-Z0-9_.:-]{1,64}",
    replay="filled",
)
_ZHIPU = Vendor(
    name="zhipu",
    names=("zhipu", "glm", "zai", "z.ai"),
    hosts=("open.bigmodel.cn", "api.z.ai"),
    base_url="https://open.bigmodel.cn/api/paas/v4",
    key_env="ZHIPUAI_API_KEY",
    default_model="glm-4.7",
    stream_options=False,  # usage comes with the finish reason unasked
    inline_defs=True,
    thinking="kept",
    choices=frozenset(),
    replay="own",
    finish={"sensitive": "content_filter", "model_context_window_exceeded": "context_window", "network_error": "error"},
)
_QWEN = Vendor(
    name="qwen",
    names=("qwen", "dashscope"),
    hosts=("dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com", "dashscope-us.aliyuncs.com"),
    base_url="https://dashscope.aliyuncs.com/compatible-mode/v1",
    key_env="DASHSCOPE_API_KEY",
    default_model="qwen3-max",
    inline_defs=True,
    thinking="enable",
    forced_while_thinking=False,
    call_content="",
    json_arguments=True,
    replay="own",
)
_OPENROUTER = Vendor(
    name="openrouter",
    names=("openrouter",),
    hosts=("openrouter.ai",),
    base_url="https://openrouter.ai/api/v1",
    key_env="OPENROUTER_API_KEY",
    thinking="reasoning",
    ids=r"[a-zA-Z0-9_-]{1,40}",  # what the strictest of those behind it takes
    replay="details",
    reasoning_fields=("reasoning", "reasoning_content"),
)
_OLLAMA = Vendor(
    name="ollama",
    names=("ollama",),
    hosts=("localhost:11434", "127.0.0.1:11434"),
    base_url="http://127.0.0.1:11434/v1",
    keyless=True,
    inline_defs=True,
    thinking="effort",
    choices=frozenset(),
    call_content="",
    json_arguments=True,  # it parses them for the template
    reasoning_fields=("reasoning", "reasoning_content"),
    finish_optional=True,
)
_VLLM = Vendor(
    name="vllm",
    names=("vllm",),
    base_url="http://127.0.0.1:8000/v1",
    keyless=True,
    inline_defs=True,
    may_ignore_tools=True,
    thinking="template",
    call_content="",
    json_arguments=True,
    replay="own",
    reasoning_fields=("reasoning", "reasoning_content"),
)
_LMSTUDIO = Vendor(
    name="lmstudio",
    names=("lmstudio", "lm-studio"),
    hosts=("localhost:1234", "127.0.0.1:1234"),
    base_url="http://127.0.0.1:1234/v1",
    keyless=True,
    inline_defs=True,
    may_ignore_tools=True,
    call_content="",
    json_arguments=True,
    finish_optional=True,
)
_CLAWDBOT = Vendor(
    name="clawdbot",
    names=("clawdbot",),
    key_env="CLAWDBOT_API_KEY",
    stream_options=False,
    choices=frozenset({"none", "named"}),
    always_choice=True,
    may_ignore_tools=True,
    json_results=True,
)
_GENERIC = Vendor(name="generic", may_ignore_tools=True, finish_optional=True)

VENDORS: dict[str, Vendor] = {
    vendor.name: vendor
    for vendor in (
        _OPENAI,
        _AZURE,
        _DEEPSEEK,
        _DEEPSEEK_R1,
        _MOONSHOT,
        _ZHIPU,
        _QWEN,
        _OPENROUTER,
        _OLLAMA,
        _VLLM,
        _LMSTUDIO,
        _CLAWDBOT,
        _GENERIC,
    )
}


def vendor_for(name: str, base_url: str | None, dialect: str | None) -> Vendor:
    """The record of the provider called `name` in the config. Raises ValueError, with the fix, for an unknown
    dialect."""
    if dialect is not None:
        if dialect not in VENDORS:
            raise ValueError(f"unknown dialect {dialect!r}: this release knows {', '.join(VENDORS)}")
        return VENDORS[dialect]
    by_name = next((vendor for vendor in VENDORS.values() if name in vendor.names), None)
    by_host = next((vendor for vendor in VENDORS.values() if base_url and _is_at(vendor, base_url)), None)
    return by_name or by_host or VENDORS["generic"]


def for_model(vendor: Vendor, model: str) -> Vendor:
    """The record that is about this model of the vendor's: some vendors have had two eras."""
    other = next((name for pattern, name in vendor.models.items() if fnmatchcase(model, pattern)), vendor.name)
    return VENDORS[other] if other != vendor.name else vendor


def _is_at(vendor: Vendor, base_url: str) -> bool:
    url = urlsplit(base_url)
    return any(
        where == host or where.endswith(f".{host}")
        for host in vendor.hosts
        for where in (url.hostname or "", url.netloc.rpartition("@")[2])
    )
