"""What went wrong at OpenAI and at servers that speak like it, as one of our error kinds: by status, `type` and `code`.

Vendors' own codes are here too, because they are no less plain than OpenAI's; the few that need a vendor's name to be
understood are in its quirk record.
"""

from collections.abc import Mapping
from typing import Any

from agents.messages import ErrorKind, ModelError
from agents.providers.errors import error_of, failure, kind_of_status, message_of, overflows, word

_BY_CODE: dict[str, ErrorKind] = {
    "insufficient_quota": "billing",
    "billing_hard_limit_reached": "billing",
    "credit_balance_exhausted": "billing",
    "organization_usage_limit_exceeded": "billing",
    "exceeded_current_quota_error": "billing",  # Moonshot
    "invalid_api_key": "auth",
    "model_not_found": "not_found",
    "unsupported_country_region_territory": "auth",
    "context_length_exceeded": "too_large",
    "rate_limit_exceeded": "rate_limited",
    "server_is_overloaded": "overloaded",
    "slow_down": "overloaded",
    "server_error": "server",
    "invalid_encrypted_content": "stale_thinking",
    # Zhipu's numbers
    "1113": "billing",
    "1261": "too_large",
    "1302": "rate_limited",
    "1305": "overloaded",
}
_BY_TYPE: dict[str, ErrorKind] = {
    "insufficient_quota": "billing",
    "exceeded_current_quota_error": "billing",
    "invalid_request_error": "invalid",
    "authentication_error": "auth",
    "rate_limit_error": "rate_limited",
    "engine_overloaded_error": "overloaded",  # Moonshot
    "overloaded_error": "overloaded",
    "server_error": "server",
}


def from_status(status: int, body: object, headers: Mapping[str, str], now: float) -> ModelError:
    """A refusal with an HTTP status. `body` is the parsed JSON, with or without an `error` member around it; `now` is
    wall time in seconds."""
    error = error_of(body) or (body if isinstance(body, dict) else {})
    kind = _kind(status, error)
    request_id = headers.get("x-request-id")
    summary = f"status={status} type={word(error.get('type'))} code={code_of(error)} request_id={word(request_id)}"
    return failure(kind, summary, headers, now)


def from_event(event: Mapping[str, Any]) -> ModelError:
    """An error told inside a stream that began with 200, with or without an `error` member around it."""
    error = error_of(event) or event
    status = error.get("code")
    kind = _kind(status if isinstance(status, int) and 400 <= status < 600 else 0, error)
    summary = f"status=200 type={word(error.get('type'))} code={code_of(error)}"
    return failure(kind, summary, {}, 0.0)


def output_blocked(status: int, body: object) -> bool:
    """Azure's filter of what goes in: a refusal rather than a mistake of ours."""
    error = error_of(body) or (body if isinstance(body, dict) else {})
    return status == 400 and error.get("code") == "content_filter"


def code_of(error: Mapping[str, Any]) -> str:
    """For the log."""
    code = error.get("code")
    return word(str(code) if isinstance(code, int) else code)


def _kind(status: int, error: Mapping[str, Any]) -> ErrorKind:
    code, type_ = str(error.get("code")), str(error.get("type"))
    if code in _BY_CODE:
        return _BY_CODE[code]
    if code.endswith("_spend_limit_exceeded"):
        return "billing"
    if code.isdigit() and 1308 <= int(code) <= 1321:  # Zhipu: packages and quotas used up
        return "billing"
    message = message_of(error)
    if status in (0, 400, 413, 422) and overflows(message):
        return "too_large"
    if "does not support tools" in message:  # Ollama
        return "no_tools"
    if "reasoning_content" in message and status == 400:  # DeepSeek, Moonshot: theirs was missing, or was not wanted
        return "stale_thinking"
    by_type = _BY_TYPE.get(type_)
    if status in (0, 400):
        return by_type or ("invalid" if status else "server")
    return "billing" if by_type == "billing" else kind_of_status(status)
