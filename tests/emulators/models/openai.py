"""What both of OpenAI's wires have in common: the form of their errors, their keys, and how they word a wrong shape."""

from collections.abc import Mapping
from typing import Any, NoReturn

from pydantic import BaseModel

from tests.emulators.models.server import Refusal
from tests.emulators.models.shapes import fault_of, parsed, words_of

_TYPES = {
    402: "insufficient_quota",
    429: "requests",
    500: "server_error",
    502: "server_error",
    503: "server_error",
    504: "server_error",
    529: "overloaded_error",
}
_CODES = {
    401: "invalid_api_key",
    402: "insufficient_quota",
    404: "model_not_found",
    429: "rate_limit_exceeded",
    503: "server_is_overloaded",
}
_SHAPE_CODES = {
    "extra_forbidden": "unknown_parameter",
    "missing": "missing_required_parameter",
    "union_tag_not_found": "missing_required_parameter",
    "literal_error": "invalid_value",
    "union_tag_invalid": "invalid_value",
    "string_pattern_mismatch": "invalid_value",
    "string_too_long": "string_above_max_length",
    "string_too_short": "empty_string",
    "too_long": "array_above_max_length",
    "too_short": "empty_array",
    "greater_than_equal": "integer_below_min_value",
    "value_error": "invalid_value",
}
"""By the validator's name; a type that does not fit is `invalid_type`."""


def refuse(message: str, code: str | None = None, param: str | None = None, *, status: int = 400) -> NoReturn:
    raise Refusal(status, "invalid_request_error", message, code=code, param=param)


def check_shape(shape: type[BaseModel], body: object, *, closed: bool = True) -> None:
    """Raises `Refusal`."""
    if fault := fault_of(shape, body, closed=closed):
        code = "invalid_type" if fault["type"].endswith("_type") else _SHAPE_CODES.get(fault["type"], fault["type"])
        refuse(f"Invalid request: {words_of(fault)}", code, ".".join(map(str, fault["loc"])))


def check_key(key: str, headers: Mapping[str, str], api_key: str | None) -> None:
    """Raises `Refusal`. `key` is the client's, and only `api_key` is let in where there is one."""
    if api_key is not None and key != api_key:
        refuse("Incorrect API key provided.", "invalid_api_key", status=401)
    if not headers.get("content-type", "").startswith("application/json"):
        refuse("Unsupported content type. This API only accepts 'application/json'.", "unsupported_content_type")


def bearer(headers: Mapping[str, str]) -> str:
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if scheme == "Bearer" else ""


def parse_body(raw: bytes) -> dict[str, Any]:
    """The body as an object. Raises `Refusal` for what is no strict JSON."""
    body = parsed(raw)
    return refuse(body) if isinstance(body, str) else body


def error_of(status: int, type_: str | None, message: str, code: str | None, param: str | None) -> dict[str, Any]:
    """The JSON of an error. What is None is what OpenAI says with this status."""
    code = code or (_CODES.get(status) if type_ is None else None)
    type_ = type_ or _TYPES.get(status, "invalid_request_error")
    return {"error": {"message": message, "type": type_, "param": param, "code": code}}
