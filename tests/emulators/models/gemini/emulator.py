"""Gemini's API on loopback, as strict as the real one, for tests, the demo and rehearsals.

What is refused is in `rules`, what is said in `script`; here they are put on the wire in Google's form.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from tests.emulators.models.gemini.rules import check_body, check_call, check_key, parse_body
from tests.emulators.models.gemini.script import answer_of, chunks_of, rendered
from tests.emulators.models.gemini.spelling import respelt
from tests.emulators.models.script import Accident
from tests.emulators.models.server import ModelEmulator, Refusal, Script

_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_NEUTRAL = {
    "overloaded_error": 503,
    "rate_limit_error": 429,
    "authentication_error": 401,
    "permission_error": 403,
    "invalid_request_error": 400,
    "not_found_error": 404,
    "timeout_error": 504,
    "api_error": 500,
}
"""The names that scripts give to the errors in mid-stream; Google's own are taken as well."""
_MESSAGES = {
    429: "Resource has been exhausted (e.g. check quota).",
    503: "The model is overloaded. Please try again later.",
    504: "The request timed out. Please try again.",
}


class GeminiEmulator(ModelEmulator):
    """With `api_key` only that key is let in; `is_model` says which model names there are; without `ids` calls come
    without any. `Fault.code` goes into the error's details: a duration such as `12s` as the RetryInfo, a name with
    `PerDay` or `PerMinute` as the id of the exhausted quota, any other as the ErrorInfo's reason.

    What is kept of a request is the message as the server sees it, with the model of the path in it."""

    def __init__(
        self,
        script: Script = (),
        *,
        api_key: str | None = None,
        is_model: Callable[[str], bool] = lambda name: name.startswith("gemini-"),
        window_tokens: int | None = None,
        ids: bool = True,
    ) -> None:
        super().__init__(_Face(api_key, is_model, ids), script, window_tokens=window_tokens)


class _Face:
    path = "/{version}/models/{call:path}"

    def __init__(self, api_key: str | None, is_model: Callable[[str], bool], ids: bool) -> None:
        self._api_key = api_key
        self._is_model = is_model
        self._ids = ids

    def check(self, path: str, headers: Mapping[str, str], raw: bytes) -> dict[str, Any]:
        check_key(headers, self._api_key)
        model = check_call(path, self._is_model)
        body: dict[str, Any] = respelt(parse_body(raw))
        check_body(body, model)
        return body | {"model": f"models/{model}"}

    def overflow(self, tokens: int, window_tokens: int) -> Refusal:
        allowed = f"exceeds the maximum number of tokens allowed ({window_tokens})."
        return Refusal(400, "INVALID_ARGUMENT", f"The input token count ({tokens}) {allowed}")

    def last_user_text(self, body: dict[str, Any]) -> str:
        for content in reversed(body["contents"]):
            if content.get("role", "user") == "user":
                for part in reversed(content["parts"]):
                    if "text" in part:
                        return str(part["text"])
        return ""

    def headers(self, number: int) -> dict[str, str]:
        return {"server-timing": f"gfet4t7; dur={number}"}

    def error(self, status: int, type_: str | None, message: str | None, code: str | None, param: str | None) -> Any:
        error: dict[str, Any] = {
            "code": status,
            "message": message or _MESSAGES.get(status, "An internal error has occurred."),
            "status": type_ or _STATUS.get(status, "INTERNAL" if status >= 500 else "FAILED_PRECONDITION"),
        }
        if code is not None:
            error["details"] = [_detail(code)]
        return {"error": error}

    def frames(self, turn: Accident, number: int, body: dict[str, Any], tokens: int) -> list[bytes]:
        chunks = chunks_of(rendered(turn), number, _model(body), tokens, ids=self._ids)
        return [_sse(chunk) for chunk in chunks]

    def error_frame(self, type_: str) -> bytes:
        named = next((code for code, name in _STATUS.items() if name == type_), 500)
        code = _NEUTRAL.get(type_, named)
        return _sse(self.error(code, None if type_ in _NEUTRAL else type_, None, None, None))

    def whole(self, turn: Accident, number: int, body: dict[str, Any], tokens: int) -> Any:
        return answer_of(rendered(turn), number, _model(body), tokens, ids=self._ids)

    def streams(self, path: str, body: dict[str, Any]) -> bool:
        return path.endswith(":streamGenerateContent")


def _model(body: dict[str, Any]) -> str:
    return str(body["model"]).removeprefix("models/")


def _detail(code: str) -> dict[str, Any]:
    kind = "type.googleapis.com/google.rpc."
    if re.fullmatch(r"\d+(?:\.\d+)?s", code):
        return {"@type": f"{kind}RetryInfo", "retryDelay": code}
    if "PerDay" in code or "PerMinute" in code:
        return {"@type": f"{kind}QuotaFailure", "violations": [{"quotaId": code}]}
    return {"@type": f"{kind}ErrorInfo", "reason": code, "domain": "googleapis.com"}


def _sse(chunk: dict[str, Any]) -> bytes:
    # The real server ends its lines with both characters.
    return f"data: {json.dumps(chunk, ensure_ascii=False)}\r\n\r\n".encode()
