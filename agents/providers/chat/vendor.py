"""What sets one vendor of the Chat wire apart from the others: a record of data, no code.

The defaults are what OpenAI's own form allows. Every member is about what we send or read; what a vendor's server
refuses is written down apart from this, in its emulator, so that a wrong record is found out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from agents.messages import StopReason

ThinkingForm: TypeAlias = Literal["none", "effort", "deepseek", "switch", "kept", "enable", "reasoning", "template"]
"""How thinking is asked for: `none` not at all · `effort` reasoning_effort · `deepseek` thinking.type and an effort ·
`switch` thinking.type alone, or an effort where a model cannot be switched · `kept` thinking.type, and earlier
thinking is to be kept · `enable` enable_thinking and a budget · `reasoning` an object of that name · `template`
arguments of the chat template."""

Replay: TypeAlias = Literal["never", "calls", "filled", "own", "details"]
"""Which reasoning goes back: `never` any · `calls` on every message with calls, "" where we have none · `filled` the
same, but "" is refused · `own` what we have · `details` the list of reasoning_details as it came."""

Choice: TypeAlias = Literal["none", "required", "named"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Vendor:
    name: str
    """What `dialect` in the config says."""
    names: tuple[str, ...] = ()
    """Names of providers in the config that pick this record."""
    hosts: tuple[str, ...] = ()
    """Hosts of a baseUrl that pick it, with their subdomains; with a port where only that one is meant."""
    base_url: str | None = None
    """Where requests go if the config does not say; None where only the config can know."""
    key_env: str = ""
    """The usual name of the environment variable that holds the key."""
    default_model: str = ""
    """What `model: auto` takes where this vendor's key is the first that is set; empty where no model is the obvious one."""
    keyless: bool = False
    """May be asked without a key."""
    models: Mapping[str, str] = field(default_factory=dict)
    """Patterns of model names that another record is about."""

    limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    stream_options: bool = True
    """Takes `stream_options.include_usage`."""
    prompt_cache_key: bool = False
    description_chars_max: int | None = None
    """Of a tool, where longer ones have been refused."""
    inline_defs: bool = False
    """Schemas may not refer to `$defs`."""
    thinking: ThinkingForm = "none"
    reasoning_unarmed: tuple[str, ...] = ()
    """Patterns of models that take no tools while they reason: with tools they are asked not to."""

    choices: frozenset[Choice] = frozenset({"none", "required", "named"})
    """Forms of tool_choice that it takes and heeds, besides `auto`."""
    forced_while_thinking: bool = True
    """Takes `required` and the named form while the model thinks."""
    always_choice: bool = False
    """Wants tool_choice with every request that has tools."""

    may_ignore_tools: bool = False
    """Some of its models take no tools and answer in words without saying so."""

    call_content: Literal[""] | None = None
    """The content of a message that only calls."""
    json_arguments: bool = False
    """Refuses a history whose arguments are not JSON."""
    json_results: bool = False
    """Wants results as JSON text."""
    ids: str = r"[a-zA-Z0-9_-]{1,64}"
    """Ids of calls that it takes; others are renamed."""
    replay: Replay = "never"
    reasoning_fields: tuple[str, ...] = ("reasoning_content", "reasoning")
    """Where reasoning comes in; the first is where it goes back."""

    finish: Mapping[str, StopReason] = field(default_factory=dict)
    """Finish reasons that OpenAI does not have; `error` is a failed attempt."""
    finish_optional: bool = False
    """Sends no finish reason at times: then `[DONE]` alone is the proof of an end."""
