"""What to say of a value that a model refuses: what is expected, never what was found, which may be a secret."""

from collections.abc import Callable, Mapping
from typing import Any, get_args

from agents.config import AgentId, ModelName
from gateway.config.faults import colon_slip
from gateway.config.problems import suggestion

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
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "frozen_set_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_LIMITS: Mapping[str, Callable[[dict[str, Any]], str]] = {
    "greater_than_equal": lambda limit: f"must be at least {_number(limit['ge'])}",
    "greater_than": lambda limit: f"must be more than {_number(limit['gt'])}",
    "less_than_equal": lambda limit: f"must be at most {_number(limit['le'])}",
    "less_than": lambda limit: f"must be less than {_number(limit['lt'])}",
    "too_short": lambda limit: f"needs at least {_entries(limit['min_length'])}",
    "too_long": lambda limit: f"takes at most {_entries(limit['max_length'])}",
    "string_too_short": lambda limit: (
        "must not be empty" if limit["min_length"] == 1 else f"must have at least {limit['min_length']} characters"
    ),
    "string_too_long": lambda limit: f"must have at most {limit['max_length']} characters",
    "string_pattern_mismatch": lambda limit: _PATTERNS.get(limit["pattern"], f"must match {limit['pattern']}"),
    "literal_error": lambda limit: f"expected {limit['expected']}",
    "finite_number": lambda _: "must be a finite number",
}


def explain(error: Mapping[str, Any]) -> str:
    """One sentence for one of pydantic's errors."""
    kind = error["type"]
    limits = error.get("ctx", {})
    if kind == "missing":
        return "missing"
    if kind == "value_error":
        return str(limits["error"])
    if kind == "literal_error":
        return _one_of(error["input"], str(limits["expected"]))
    if kind in _LIMITS:
        return _LIMITS[kind](limits)
    if kind in ("model_type", "dict_type"):
        return not_a_mapping(error["input"], f"expected {_EXPECTED[kind]}, got {_kind(error['input'])}")
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind]}, got {_kind(error['input'])}{_hint(kind, error['input'])}"
    return f"not usable here ({kind})"


def not_a_mapping(value: object, otherwise: str) -> str:
    """For a value that should have been a mapping: a lone key and value become a text where the colon is wrong."""
    slip = colon_slip(value) if isinstance(value, str) else None
    return slip.message if slip else otherwise


def _one_of(value: object, expected: str) -> str:
    names = [name.strip("' ") for name in expected.replace(" or ", ", ").split(",")]
    return f"expected {' or '.join(names)}" + (_near(value, names) if isinstance(value, str) else _found(value))


def _near(value: str, names: list[str]) -> str:
    found = suggestion(value, names)
    return found if "did you mean" in found else ""


def _found(value: object) -> str:
    return f", got {_kind(value)}"


def _kind(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list() | tuple():
            return "a list"
        case _:
            return "a mapping"


def _hint(kind: str, value: object) -> str:
    if kind == "string_type" and isinstance(value, int | float):
        return " — put it in quotes"
    if kind in ("list_type", "tuple_type"):
        return {"nothing": " — write [] for an empty list", "a string": " — write [ ] around it"}.get(_kind(value), "")
    if kind == "bool_type" and isinstance(value, str) and value.lower() in ("yes", "on", "no", "off", "true", "false"):
        return f" — write {'true' if value.lower() in ('yes', 'on', 'true') else 'false'}"
    if kind in ("int_type", "float_type") and isinstance(value, str):
        return " — write it without quotes, in digits"
    return ""


def _number(limit: float) -> str:
    return f"{int(limit):,}" if limit == int(limit) else str(limit)


def _entries(count: int) -> str:
    return "one entry" if count == 1 else f"{count} entries"
