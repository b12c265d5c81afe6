"""Gemini's API on loopback, as strict as the real one, for tests, the demo and rehearsals.

What is refused is in `rules`, what is said in `script`; here they are put on the wire in Google's form.
"""

import re
from collections.abc import Mapping
from typing import Any

from tests.emulators.models.gemini.rules import check_body, check_call, check_key, parse_body
from tests.emulators.models.gemini.script import answer_of, chunks_of, rendered
from tests.emulators.models.gemini.shapes import respelt
from tests.emulators.models.script import StreamFault
from tests.emulators.models.server import ModelEmulator, Refusal, Script, sse

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
    """Without `ids` calls come without any. `Fault.code` goes into the error's details: a duration such as `12s` as the
    RetryInfo, a name with `PerDay` or `PerMinute` as the id of the exhausted quota, any other as the ErrorInfo's reason.

    What is kept of a request is the message as the server sees it, with the model of the path in it."""

    path = "/{version}/models/{call:path}"
    models_path = "/{version}/models"
    id_header = "server-timing"

    def __init__(
        self,
        script: Script = (),
        *,
        api_key: str | None = None,
        window_tokens: int | None = None,
        ids: bool = True,
    ) -> None:
        super().__init__(script, api_key=api_key, window_tokens=window_tokens)
        self._ids = ids

    def check(self, path: str, headers: Mapping[str, str], raw: bytes) -> dict[str, Any]:
        check_key(headers, self.api_key)
        model = check_call(path)
        body: dict[str, Any] = respelt(parse_body(raw))
        check_body(body, model)
        return body | {"model": f"models/{model}"}

    def check_key(self, headers: Mapping[str, str]) -> None:
        check_key({"content-type": "application/json"} | dict(headers), self.api_key)

    def listing(self) -> Any:
        return {"models": [{"name": f"models/{name}"} for name in self.models]}

    def overflow(self, tokens: int, window_tokens: int) -> Refusal:
        allowed = f"exceeds the maximum number of tokens allowed ({window_tokens})."
        return Refusal(400, "INVALID_ARGUMENT", f"The input token count ({tokens}) {allowed}")

    def error(self, status: int, type_: str | None, message: str | None, code: str | None, param: str | None) -> Any:
        error: dict[str, Any] = {
            "code": status,
            "message": message or _MESSAGES.get(status, "An internal error has occurred."),
            "status": type_ or _STATUS.get(status, "INTERNAL" if status >= 500 else "FAILED_PRECONDITION"),
        }
        if code is not None:
            error["details"] = [_detail(code)]
        return {"error": error}

    def frames(self, turn: StreamFault, number: int, body: dict[str, Any], tokens: int) -> list[bytes]:
        chunks = chunks_of(rendered(turn), number, _model(body), tokens, ids=self._ids)
        return [sse(chunk, newline="\r\n") for chunk in chunks]  # as the real server ends its lines

    def error_frame(self, type_: str) -> bytes:
        named = next((code for code, name in _STATUS.items() if name == type_), 500)
        code = _NEUTRAL.get(type_, named)
        return sse(self.error(code, None if type_ in _NEUTRAL else type_, None, None, None), newline="\r\n")

    def whole(self, turn: StreamFault, number: int, body: dict[str, Any], tokens: int) -> Any:
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
