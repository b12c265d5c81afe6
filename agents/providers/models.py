"""What we know of models: windows, output limits, and which Claude refuses what.

A small table on purpose: numbers change monthly, so an agent's `contextWindow` and `maxTokens` override it. Prices are
not here.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelLimits:
    """Tokens. `known` is False where these are the cautious guess for a model that the table does not have."""

    window: int
    max_output: int
    known: bool = True


_CLAUDE_LARGE = ModelLimits(window=1_000_000, max_output=128_000)
_CLAUDE_4_5 = ModelLimits(window=200_000, max_output=64_000)
_UNKNOWN = ModelLimits(window=128_000, max_output=8_192, known=False)

_LIMITS = {
    "claude-fable-5-1": _CLAUDE_LARGE,
    "claude-opus-5-5": _CLAUDE_LARGE,
    "claude-opus-5": _CLAUDE_LARGE,
    "claude-sonnet-5-5": _CLAUDE_LARGE,
    "claude-sonnet-5": _CLAUDE_LARGE,
    "claude-haiku-5-5": _CLAUDE_LARGE,
    "claude-opus-4-8": _CLAUDE_LARGE,
    "claude-sonnet-4-6": _CLAUDE_LARGE,
    "claude-haiku-4-5": _CLAUDE_4_5,
    "claude-sonnet-4-5": _CLAUDE_4_5,
    "guide": ModelLimits(window=200_000, max_output=8_192),
}


def limits_of(model: str) -> ModelLimits:
    """The limits of a model, named without its provider; 128,000 and 8,192 where it is unknown."""
    return _LIMITS.get(family_of(model), _UNKNOWN)


def family_of(model: str) -> str:
    """The model without its date: what made a thinking block is who may get it back."""
    return re.sub(r"(?:[-@]20\d{6}|-latest)$", "", model)


def accepts_forced_tool(model: str) -> bool:
    """Whether `tool_choice` may demand a tool: Fable and Mythos from 5.1, Opus and Sonnet from 5.5 refuse."""
    line, version = _claude(model)
    refusing_from = {"fable": (5, 1), "mythos": (5, 1), "opus": (5, 5), "sonnet": (5, 5)}
    return line not in refusing_from or version < refusing_from[line]


def accepts_prefill(model: str) -> bool:
    """Whether a request may end with an assistant message: Claude up to 4.5."""
    line, version = _claude(model)
    return not line or version <= (4, 5)


def _claude(model: str) -> tuple[str, tuple[int, int]]:
    found = re.fullmatch(r"claude-([a-z]+)-(\d{1,2})(?:-(\d{1,2}))?", family_of(model))
    return (found[1], (int(found[2]), int(found[3] or 0))) if found else ("", (0, 0))
