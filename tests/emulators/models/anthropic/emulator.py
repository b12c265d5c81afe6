"""Anthropic's Messages API on loopback, as strict as the real one, for tests, the demo and rehearsals.

What is refused is in `rules`, what is said in `script`; here they are put on the wire in Anthropic's form.
"""

from collections.abc import Mapping
from typing import Any

from tests.emulators.models.anthropic.rules import check_body, check_headers, parse_body
from tests.emulators.models.anthropic.script import events_of, message_of, rendered
from tests.emulators.models.script import StreamFault
from tests.emulators.models.server import ModelEmulator, Refusal, sse

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


class AnthropicEmulator(ModelEmulator):
    path = "/v1/messages"
    id_header = "request-id"

    def check(self, path: str, headers: Mapping[str, str], raw: bytes) -> dict[str, Any]:
        check_headers(headers, self.api_key)
        body = parse_body(raw)
        check_body(body)
        return body

    def check_key(self, headers: Mapping[str, str]) -> None:
        check_headers({"content-type": "application/json"} | dict(headers), self.api_key)

    def overflow(self, tokens: int, window_tokens: int) -> Refusal:
        message = f"prompt is too long: {tokens} tokens > {window_tokens} maximum"
        return Refusal(400, "invalid_request_error", message)

    def error(self, status: int, type_: str | None, message: str | None, code: str | None, param: str | None) -> Any:
        error: dict[str, Any] = {
            "type": type_ or _TYPES.get(status, "api_error"),
            "message": message or "Internal server error",
        }
        if code is not None:
            error["details"] = {"error_code": code}
        return {"type": "error", "error": error, "request_id": None}

    def frames(self, turn: StreamFault, number: int, body: dict[str, Any], tokens: int) -> list[bytes]:
        events = events_of(rendered(turn), number, body["model"], tokens)
        return [sse(event, event["type"]) for event in events]

    def error_frame(self, type_: str) -> bytes:
        return sse({"type": "error", "error": {"type": type_, "message": "Overloaded"}}, "error")

    def whole(self, turn: StreamFault, number: int, body: dict[str, Any], tokens: int) -> Any:
        return message_of(rendered(turn), number, body["model"], tokens)
