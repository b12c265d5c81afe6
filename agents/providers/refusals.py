"""Classify vendors' errors: our error kind, when to retry, and the message for the operator.

Kinds come from the status and the names in `type`, `code` and similar members, which are unambiguous across vendors.
Prose is read only where vendors leave no choice. A summary is for the log: numbers and names in a safe alphabet, never
the provider's prose.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from email.utils import parsedate_to_datetime

from agents.messages import ErrorKind, ModelError, StopReason
from agents.providers.payload import object_of, objects_of, text_of

RETRYABLE: frozenset[ErrorKind] = frozenset(
    {"rate_limited", "overloaded", "server", "network", "timeout", "incomplete"}
)
WORDS_CHARS_MAX = 300
_PROSE_CHARS_MAX = 2000
_BY_STATUS: dict[int, ErrorKind] = {
    401: "auth",
    402: "billing",
    403: "auth",
    404: "not_found",
    408: "timeout",
    409: "server",
    413: "too_large",
    429: "rate_limited",
    499: "server",
    503: "overloaded",
    529: "overloaded",
}
_CERTAIN: dict[ErrorKind, str] = {
    "billing": r"quota|billing|credit|(?:spend|usage)_limit|perday|\b1113\b|\b13(?:0[89]|1\d|2[01])\b"
    r"|arrear|overdue|balance|payment_required|chargeresourceexhausted|resourcepackexhausted",
    "stale_thinking": r"invalid_encrypted_content",
    "too_large": r"context_length_exceeded|request_too_large|\b1261\b",
    "overloaded": r"overload|slow_down|\b1305\b",
    "not_found": r"model_not_found|invalid_model",
    "timeout": r"deadline_exceeded",
}
"""Names that outrank any status; the numbers are Zhipu's. For an empty account DashScope has `Arrearage`, Volcengine
`AccountOverdueError`, Tencent `ResourcePackExhausted`."""
_LIKELY: dict[ErrorKind, str] = {
    "rate_limited": r"rate_limit|resource_exhausted|\b1302\b",
    "overloaded": r"capacity|unavailable",
    "auth": r"authenti|unauth|permission|api_key|unsupported_country|failed_precondition",
    "not_found": r"not_found",
    "timeout": r"timeout",
    "server": r"server_error|api_error",
    "invalid": r"invalid|out_of_range|image|data_residency|policy",
}
"""Names that outrank status 400 or a missing status."""
_OVERFLOW = (
    r"prompt is too long|exceed context limit|maximum context length|exceeds the context window|input token count"
    r"|too large for model with|exceeded model token limit|range of input length|exceeds max length"
    r"|exceeds the available context size|exceeded max context length|greater than the context length"
    r"|context window exceeds|maximum prompt length|input is too long|request payload size exceeds"
)
_NOT_OVERFLOW = r"rate.?limit|too many (?:requests|tokens)|please wait|number of output tokens"
_SAYS: dict[ErrorKind, str] = {
    "stale_thinking": r"thinking` block|thinking`, but found|thinking chunk|thinking signature|thought.?signature"
    r"|`signature`|reasoning_content|\.thinking\b",  # the last is the place that Mistral's validator names
    "billing": r"credit balance is too low|insufficient[ _](?:account )?(?:balance|credits?|funds)"
    r"|balance is (?:insufficient|not enough)|not enough (?:balance|credits?)|account is in good standing|in arrears"
    r"|account is overdue|overdue balance|(?:out of|all) (?:your )?available credits"
    r"|余额不足|欠费|额度不足|额度已?用[尽完]",
}
_EMPTY_STATUS = (0, 400, 401, 402, 403, 422, 429, 500)
"""Statuses with which a vendor may report an empty account only in prose: SiliconFlow 403, MiniMax 200, routers 429
and 500."""
_ANSWERS = frozenset(
    {"choices", "candidates", "output", "content", "response", "message_id", "delta", "usageMetadata", "type"}
)
"""Every answer event has at least one of these members."""
_ERROR_MEMBERS = frozenset(
    {"code", "status", "status_code", "success", "error_code", "errcode", "errorCode", "error_msg", "errors", "detail"}
)
_TAGS = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>?", re.DOTALL | re.IGNORECASE)
_DELAY = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s")


class RequestRefused(Exception):
    """The server answered with an error status. `body` is the parsed JSON, its text, or None."""

    def __init__(self, status: int, body: object, headers: Mapping[str, str]) -> None:
        super().__init__(f"status {status}")
        self.status = status
        self.body = body
        self.headers = headers


class AttemptFailed(Exception):
    """An attempt that failed for a known reason: an error inside a stream, or a content filter."""

    def __init__(self, error: ModelError, reason: StopReason = "error") -> None:
        super().__init__(error.summary)
        self.error = error
        self.reason = reason


def failure_of(
    body: object, status: int = 0, headers: Mapping[str, str] | None = None, now: float = 0
) -> AttemptFailed:
    """Classify an error with `status`, or one in a stream that began with 200. `body` is the parsed JSON, with or
    without an `error` member around it. `headers` influence retries (`x-should-retry` overrides the kind). `now`: wall
    time in seconds, for a Retry-After date."""
    body = _unwrapped(body)
    error = object_of(body, "error") or (body if isinstance(body, dict) else {})
    headers, code = headers or {}, error.get("code", error.get("error_code"))
    names, words = " ".join(_names(error))[:_PROSE_CHARS_MAX].lower(), prose_of(body)
    prose = words.lower()
    meant = status or next((it for it in map(_status, (code, error.get("status"), error.get("status_code"))) if it), 0)
    kind = _kind(meant, names, prose)
    should_retry = headers.get("x-should-retry", "").lower()
    wait = retry_after(headers, now)
    failed = ModelError(
        kind=kind,
        summary=f"status={status or 200} type={word(error.get('type') or error.get('status'))} code={word(code)}",
        retryable=should_retry == "true" or (should_retry != "false" and kind in RETRYABLE),
        retry_after_seconds=_retry_delay(error) if wait is None else wait,
        words=" ".join(words.split())[:WORDS_CHARS_MAX],
    )
    return AttemptFailed(failed, "content_filter" if _is_filtered(meant, names, prose) else "error")


def unreadable(text: str) -> AttemptFailed:
    """Return the failure for a body with status 200 that is no answer, such as a proxy's page; the start of its text
    is kept."""
    words = prose_of(text)
    shown = "a web page" if _is_page(text) else "compressed, and does not say so" if text.startswith("\x1f") else "text"
    summary = f"status=200 the answer is {shown if text.strip() else 'empty'}, not a model's"
    return AttemptFailed(
        ModelError(kind="incomplete", summary=summary, retryable=True, words=" ".join(words.split())[:WORDS_CHARS_MAX])
    )


def is_error(event: object) -> bool:
    """Return whether an event is an error without an `error` member, in the forms of routers and of vendors' native APIs."""
    event = _unwrapped(event)
    if isinstance(event, dict) and event.get("object") == "error":  # Mistral, vLLM
        return True
    if not isinstance(event, dict) or event.keys() & _ANSWERS:
        return False
    return bool(event.get("error")) or (bool(event.keys() & _ERROR_MEMBERS) and bool(prose_of(event)))


def _unwrapped(body: object) -> object:
    """Unwrap a refusal: a list of one, Tencent's `Response.Error`, MiniMax's `base_resp`."""
    body = body[0] if isinstance(body, list) and body else body
    if error := object_of(object_of(body, "Response"), "Error"):
        return {"code": error.get("Code"), "message": error.get("Message")}
    told = object_of(body, "base_resp")
    if told.get("status_code") and isinstance(body, dict) and not body.get("choices"):
        return {"code": told.get("status_code"), "message": told.get("status_msg")}
    return body


def _status(value: object) -> int:
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    return int(text) if re.fullmatch(r"[45]\d\d", text) else 0


def _is_page(text: str) -> bool:
    return bool(re.match(r"\s*<(?:!doctype|html|head|body|\?xml|!--)", text, re.IGNORECASE))


def broken_off(reason: str, kind: ErrorKind = "server") -> AttemptFailed:
    """Return the failure for an answer that ended abnormally."""
    summary = f"status=200 finish_reason={word(reason)}"
    return AttemptFailed(ModelError(kind=kind, summary=summary, retryable=kind in RETRYABLE))


def _names(error: Mapping[str, object]) -> Iterator[str]:
    values = (error.get(member) for member in ("code", "type", "status", "error_code", "errorCode", "errcode"))
    yield from (str(value) for value in values if isinstance(value, str | int))
    yield text_of(error.get("details"), "error_code")
    for detail in objects_of(error, "details"):
        yield text_of(detail, "reason")
        yield from (text_of(violation, "quotaId") for violation in objects_of(detail, "violations"))


def _kind(status: int, names: str, prose: str) -> ErrorKind:
    if "does not support tools" in prose:  # Ollama
        return "no_tools"
    if kind := _named(_CERTAIN, names):
        return kind
    if status in _EMPTY_STATUS and re.search(_SAYS["billing"], prose):
        return "billing"
    if status in (0, 400, 413, 422):
        if re.search(_OVERFLOW, prose) and not re.search(_NOT_OVERFLOW, prose):
            return "too_large"
        if kind := _named(_SAYS, prose):
            return kind
    if status in (0, 400):
        return _named(_LIKELY, names) or ("invalid" if status else "server")
    return _BY_STATUS.get(status, "server" if status >= 500 else "invalid")


def _named(kinds: Mapping[ErrorKind, str], names: str) -> ErrorKind | None:
    return next((kind for kind, pattern in kinds.items() if re.search(pattern, names)), None)


def _is_filtered(status: int, names: str, prose: str) -> bool:
    """Return whether a content filter refused the input or the output."""
    if status == 400 and ("content_filter" in names or "output blocked by content filtering" in prose):
        return True
    return status in (0, 400) and bool(re.search(r"_policy\b|policy_violation", names))


def prose_of(value: object, depth: int = 4) -> str:
    """Return a refusal's message: next to or in the error object, as a string, or from a validator's list with locations."""
    match value:
        case str() if _is_page(value):
            return " ".join(_TAGS.sub(" ", value).split())[:_PROSE_CHARS_MAX]
        case str():
            return value[:_PROSE_CHARS_MAX]
        case list() if depth:
            return "; ".join(filter(None, (prose_of(item, depth - 1) for item in value[:10])))
        case {"msg": str(fault), **more}:
            place = more.get("loc")
            steps = (str(it) for it in place if isinstance(it, str | int)) if isinstance(place, list) else ()
            return f"{fault} {'.'.join(steps)}"[:_PROSE_CHARS_MAX]
        case dict() if depth:
            inner = value.get("error")
            told = (value.get(it) for it in ("message", "detail", "error_msg", "errmsg", "errorMessage", "errors"))
            places = (inner if isinstance(inner, dict) else None, *told, inner)
            return next(filter(None, (prose_of(it, depth - 1) for it in places)), "")
    return ""


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the server's Retry-After in seconds; None if it is missing, invalid or past."""
    for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        text = headers.get(name, "").strip()
        if not text:
            continue
        try:
            seconds = float(text) / scale
        except ValueError:
            seconds = _until(text, now)
        if math.isfinite(seconds) and seconds > 0:
            return seconds
    return None


def _until(date: str, now: float) -> float:
    try:
        return parsedate_to_datetime(date).timestamp() - now
    except (ValueError, OverflowError):
        return math.nan


def _retry_delay(error: Mapping[str, object]) -> float | None:
    """Return Google's `RetryInfo` delay in seconds."""
    delays: Iterable[str] = (text_of(detail, "retryDelay") for detail in objects_of(error, "details"))
    found = (float(match[1]) for delay in delays if (match := _DELAY.fullmatch(delay)))
    return next((seconds for seconds in found if seconds > 0), None)


def word(value: object) -> str:
    """Return a name that is safe to log; other server text is not repeated."""
    return str(value) if isinstance(value, str | int) and re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", str(value)) else "none"
