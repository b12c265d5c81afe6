"""The sentence for a value that a model refuses: what is expected, never what was found, which may be a secret."""

from collections.abc import Mapping
from typing import Any, get_args

from agents.config import AgentId, ModelName
from gateway.config.faults import colon_slip
from gateway.config.problems import did_you_mean

_PATTERNS = {
    get_args(AgentId)[1].pattern: "expected lower-case letters, digits, - and _, at most 64, a letter or digit first",
    get_args(ModelName)[1].pattern: "expected auto or provider/model, such as anthropic/claude-sonnet-4-6",
}
_EXPECTED = {
    "string_type": "a string",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}
_KINDS: tuple[tuple[Any, str], ...] = (
    (type(None), "nothing"),
    (bool, "true or false"),
    (int | float, "a number"),
    (str, "a string"),
    (list | tuple, "a list"),
)
_LIMITS = {
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be more than {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "too_short": "needs at least one entry",
    "string_too_short": "must not be empty",
}


def explain(error: Mapping[str, Any]) -> str:
    kind, value, limits = error["type"], error["input"], error.get("ctx", {})
    if kind == "value_error":
        return str(limits["error"])
    if kind == "string_pattern_mismatch":
        return _PATTERNS.get(limits["pattern"], f"must match {limits['pattern']}")
    if kind == "literal_error":
        return _one_of(value, str(limits["expected"]))
    if kind in _LIMITS:
        return _LIMITS[kind].format(**{name: _number(limit) for name, limit in limits.items() if name != "field_type"})
    if kind in _EXPECTED:
        sentence = f"expected {_EXPECTED[kind]}, got {_kind(value)}{_hint(kind, value)}"
        return not_a_mapping(value, sentence) if kind in ("model_type", "dict_type") else sentence
    return "missing" if kind == "missing" else f"not usable here ({kind})"


def not_a_mapping(value: object, otherwise: str) -> str:
    """The sentence for a text in place of a mapping: a key and value with a wrong colon are read as one text."""
    slip = colon_slip(value) if isinstance(value, str) else None
    return slip.message if slip else otherwise


def _one_of(value: object, expected: str) -> str:
    names = [name.strip("' ") for name in expected.replace(" or ", ", ").split(",")]
    sentence = f"expected {' or '.join(names)}"
    if not isinstance(value, str):
        return f"{sentence}, got {_kind(value)}"
    return f"{sentence} — {near}" if (near := did_you_mean(value, names)) else sentence


def _kind(value: object) -> str:
    return next((name for kinds, name in _KINDS if isinstance(value, kinds)), "a mapping")


def _hint(kind: str, value: object) -> str:
    if kind == "string_type" and isinstance(value, int | float):
        return " — put it in quotes"
    if kind == "tuple_type":
        return {"nothing": " — write [] for an empty list", "a string": " — write [ ] around it"}.get(_kind(value), "")
    if kind == "bool_type" and isinstance(value, str) and value.lower() in ("yes", "on", "no", "off", "true", "false"):
        return f" — write {'true' if value.lower() in ('yes', 'on', 'true') else 'false'}"
    if kind in ("int_type", "float_type") and isinstance(value, str):
        return " — write it without quotes, in digits"
    return ""


def _number(limit: float) -> str:
    return f"{int(limit):,}" if limit == int(limit) else str(limit)
