"""The words in which OpenAI refuses a request, for the emulator's rules. Servers that speak like it mostly repeat them."""

from typing import Any, NoReturn

from tests.emulators.models.server import Refusal

INVALID = "invalid_request_error"


def refuse(message: str, code: str | None = None, param: str | None = None) -> NoReturn:
    raise Refusal(400, INVALID, message, code=code, param=param)


def missing(path: str) -> NoReturn:
    refuse(f"Missing required parameter: '{path}'.", "missing_required_parameter", path)


def unknown(path: str) -> NoReturn:
    refuse(f"Unknown parameter: '{path}'.", "unknown_parameter", path)


def mistyped(path: str, expected: str, value: object) -> NoReturn:
    message = f"Invalid type for '{path}': expected {expected}, but got {_named(value)} instead."
    refuse(message, "invalid_type", path)


def empty(path: str) -> NoReturn:
    minimum = "Expected an array with minimum length 1, but got an empty array instead."
    refuse(f"Invalid '{path}': empty array. {minimum}", "empty_array", path)


def unsupported_value(path: str, value: object, allowed: list[str]) -> NoReturn:
    *others, last = (f"'{it}'" for it in allowed)
    supported = f"{', '.join(others)}, and {last}" if others else last
    refuse(f"Invalid value: '{value}'. Supported values are: {supported}.", "invalid_value", path)


def too_long(path: str, maximum: int, length: int) -> NoReturn:
    lengths = f"Expected a string with maximum length {maximum}, but got a string with length {length} instead."
    refuse(f"Invalid '{path}': string too long. {lengths}", "string_above_max_length", path)


def need_object(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        mistyped(path, "an object", value)
    return value


def need_list(value: Any, path: str) -> list[Any]:
    """With something in it."""
    if not isinstance(value, list):
        mistyped(path, "an array", value)
    if not value:
        empty(path)
    return value


def need_text(owner: dict[str, Any], key: str, path: str) -> str:
    if key not in owner:
        missing(f"{path}.{key}".lstrip("."))
    if not isinstance(owner[key], str):
        mistyped(f"{path}.{key}".lstrip("."), "a string", owner[key])
    return str(owner[key])


def only(value: dict[str, Any], members: frozenset[str], path: str) -> None:
    for name in value:
        if name not in members:
            unknown(f"{path}.{name}".lstrip("."))


def _named(value: object) -> str:
    names = {"NoneType": "null", "bool": "a boolean", "int": "an integer", "float": "a decimal", "str": "a string"}
    return names.get(type(value).__name__) or ("an array" if isinstance(value, list) else "an object")
