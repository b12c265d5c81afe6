"""The words in which OpenAI refuses what is missing, unknown, mistyped, out of range or empty, whatever it is."""

from collections.abc import Collection, Mapping
from typing import Any, NoReturn

from tests.emulators.models.server import Refusal

_NAMES: tuple[tuple[type, str], ...] = (
    (bool, "a boolean"),
    (int, "an integer"),
    (float, "a decimal number"),
    (str, "a string"),
    (list, "an array"),
    (dict, "an object"),
)


def refuse(message: str, *, code: str | None = None, param: str | None = None, status: int = 400) -> NoReturn:
    raise Refusal(status, "invalid_request_error", message, code=code, param=param)


def closed(value: Mapping[str, Any], members: Collection[str], path: str = "") -> None:
    """An object with no members but these."""
    for name in value:
        if name not in members:
            param = f"{path}.{name}".lstrip(".")
            refuse(f"Unknown parameter: '{param}'.", code="unknown_parameter", param=param)


def object_at(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        refuse_type(value, "an object", path)
    return value


def string_at(value: Mapping[str, Any], name: str, path: str, *, chars_max: int | None = None) -> str:
    """A member that must be there, and a string."""
    param = f"{path}.{name}".lstrip(".")
    if name not in value:
        refuse(f"Missing required parameter: '{param}'.", code="missing_required_parameter", param=param)
    text = value[name]
    if not isinstance(text, str):
        refuse_type(text, "a string", param)
    if chars_max is not None and len(text) > chars_max:
        refuse(
            f"Invalid '{param}': string too long. Expected a string with maximum length {chars_max}, but got a string "
            f"with length {len(text)} instead.",
            code="string_above_max_length",
            param=param,
        )
    return text


def filled_at(value: Mapping[str, Any], name: str, path: str) -> str:
    """A string that is not empty."""
    text = string_at(value, name, path)
    if not text:
        param = f"{path}.{name}"
        refuse(
            f"Invalid '{param}': empty string. Expected a string with minimum length 1, but got an empty string "
            "instead.",
            code="empty_string",
            param=param,
        )
    return text


def list_at(value: Any, path: str) -> list[Any]:
    """A list that is not empty."""
    if not isinstance(value, list):
        refuse_type(value, "an array", path)
    if not value:
        refuse(
            f"Invalid '{path}': empty array. Expected an array with minimum length 1, but got an empty array instead.",
            code="empty_array",
            param=path,
        )
    return value


def one_of(value: Any, allowed: Collection[str], path: str) -> str:
    if not isinstance(value, str) or value not in allowed:
        shown = value if isinstance(value, str) else kind_of(value)
        listed = [f"'{name}'" for name in allowed]
        names = listed[0] if len(listed) == 1 else f"{', '.join(listed[:-1])}, and {listed[-1]}"
        refuse(f"Invalid value: '{shown}'. Supported values are: {names}.", code="invalid_value", param=path)
    return value


def refuse_type(value: Any, expected: str, path: str) -> NoReturn:
    message = f"Invalid type for '{path}': expected {expected}, but got {kind_of(value)} instead."
    refuse(message, code="invalid_type", param=path)


def kind_of(value: Any) -> str:
    return next((name for kind, name in _NAMES if isinstance(value, kind)), "null")
