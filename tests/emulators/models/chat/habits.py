"""How the emulated servers of the Chat wire differ: what each refuses, and in which form it streams.

Written down from the vendors' side and on purpose not made of our own records (`vendors`): a mistake there must not
excuse itself here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tests.emulators.models.script import Stop

_FINISH: dict[Stop, str] = {
    "length": "length",
    "refusal": "content_filter",
    "filter": "content_filter",
    "context": "length",
}
_QWEN = "<400> InternalError.Algo.InvalidParameter: "
ALL_CHOICES = frozenset({"auto", "none", "required", "named"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Habits:
    """One server. The defaults are those of a lenient one."""

    name: str
    closed: bool = False
    """Refuses members that it does not know, and wants its own name for the output limit."""
    keyless: bool = False
    choices: frozenset[str] = ALL_CHOICES
    """Forms of tool_choice; another one is refused, or does nothing where `mute`."""
    mute: bool = False
    """Never says what is wrong with the tools: it just does not call them."""
    forced: str = ""
    """The refusal of a forced tool while the model thinks; empty where it is allowed."""
    reasoning: Literal["unknown", "absent", "calls", "filled", "details", "free"] = "free"
    """Of earlier messages. `unknown`: no such member · `absent`: refused where present · `calls`: demanded on messages
    with calls · `filled`: the same, and not empty · `details`: signed · `free`: as one likes."""
    json_arguments: str = ""
    """The refusal of arguments that are no JSON; empty where nobody looks."""
    json_results: bool = False
    refs: bool = True
    """Schemas may have `$ref`."""
    id_chars_max: int | None = None
    system_first: bool = False

    reasoning_field: Literal["", "reasoning_content", "reasoning", "details"] = "reasoning_content"
    """Where reasoning is streamed; empty where it is not shown."""
    refusals: bool = False
    """Has a member of its own for a refusal."""
    calls: Literal["pieces", "whole", "unnumbered"] = "pieces"
    """`whole`: each in one delta · `unnumbered`: in pieces that repeat id and name and have no index."""
    ids: Literal["openai", "kimi", "vllm", "none"] = "openai"
    usage: Literal["requested", "finish", "choice", "every"] = "requested"
    cached: Literal["details", "deepseek", "kimi"] = "details"
    finish: Mapping[Stop, str] = field(default_factory=lambda: _FINISH)
    finishes: bool = True
    calls_finish: str = "tool_calls"
    done: bool = True
    prelude: Literal["", "filters", "comments"] = ""
    error: Literal["openai", "zhipu", "openrouter", "vllm"] = "openai"
    overflow: str = (
        "This model's maximum context length is {maximum} tokens. However, your messages resulted in {tokens} tokens. "
        "Please reduce the length of the messages."
    )


HABITS: dict[str, Habits] = {
    habits.name: habits
    for habits in (
        Habits(name="openai", closed=True, reasoning="unknown", id_chars_max=40, reasoning_field="", refusals=True),
        Habits(
            name="azure",
            closed=True,
            reasoning="unknown",
            id_chars_max=40,
            reasoning_field="",
            refusals=True,
            prelude="filters",
        ),
        Habits(
            name="deepseek",
            forced="Thinking mode does not support this tool_choice",
            reasoning="calls",
            cached="deepseek",
        ),
        Habits(
            name="deepseek-r1",
            choices=frozenset({"auto", "none"}),
            reasoning="absent",
            cached="deepseek",
        ),
        Habits(
            name="moonshot",
            choices=ALL_CHOICES - {"required"},
            forced="tool_choice 'specified' is incompatible with thinking enabled",
            reasoning="filled",
            ids="kimi",
            usage="choice",
            cached="kimi",
            overflow="Your request exceeded model token limit: {maximum} (requested: {tokens})",
        ),
        Habits(
            name="zhipu",
            choices=frozenset({"auto"}),
            refs=False,
            calls="whole",
            usage="finish",
            finish=_FINISH
            | {"filter": "sensitive", "refusal": "sensitive", "context": "model_context_window_exceeded"},
            error="zhipu",
            overflow="Prompt exceeds max length",
        ),
        Habits(
            name="qwen",
            forced=_QWEN
            + "The tool_choice parameter does not support being set to required or object in thinking mode",
            json_arguments=_QWEN + 'The "function.arguments" parameter of the code model must be in JSON format.',
            refs=False,
            overflow=_QWEN + "Range of input length should be [1, {maximum}]",
        ),
        Habits(
            name="openrouter",
            id_chars_max=64,
            reasoning="details",
            reasoning_field="details",
            refusals=True,
            prelude="comments",
            error="openrouter",
            overflow="This endpoint's maximum context length is {maximum} tokens. However, you requested about {tokens}.",
        ),
        Habits(
            name="ollama",
            keyless=True,
            json_arguments="invalid tool call arguments",
            refs=False,
            reasoning_field="reasoning",
            calls="whole",
            ids="none",
            finishes=False,
            overflow="prompt with {tokens} tokens exceeded max context length of {maximum}",
        ),
        Habits(
            name="vllm",
            keyless=True,
            json_arguments="Expecting value: line 1 column 1 (char 0)",
            refs=False,
            system_first=True,
            reasoning_field="reasoning",
            ids="vllm",
            error="vllm",
        ),
        Habits(name="lmstudio", keyless=True, json_arguments="invalid tool call arguments", finishes=False),
        Habits(name="clawdbot", mute=True, json_results=True, reasoning_field="", usage="finish"),
        Habits(
            name="generic",
            keyless=True,
            calls="unnumbered",
            usage="every",
            calls_finish="stop",
            done=False,
        ),
    )
}
