"""Mistral's chat API on loopback, as strict as the real one, for tests, the demo and rehearsals.

What is refused is in `rules`, what is said in `script`; here they are put on the wire in Mistral's form.
"""

import json
from collections.abc import Mapping
from typing import Any

from tests.emulators.models.mistral.rules import check_body, check_headers, parse_body
from tests.emulators.models.mistral.script import chunks_of, completion_of
from tests.emulators.models.script import StreamFault, neutral
from tests.emulators.models.server import ModelEmulator, Refusal, sse

_TYPES = {
    400: "invalid_request_error",
    402: "insufficient_credits",
    403: "permission_denied",
    404: "not_found",
    429: "rate_limited",
    503: "service_unavailable",
    529: "overloaded",
}
_CODES = {429: "1300", 503: "3505", 529: "3505"}


class MistralEmulator(ModelEmulator):
    path = "/v1/chat/completions"
    id_header = "mistral-correlation-id"

    def check(self, path: str, headers: Mapping[str, str], raw: bytes) -> dict[str, Any]:
        check_headers(headers, self.api_key)
        body = parse_body(raw)
        check_body(body)
        return body

    def overflow(self, tokens: int, window_tokens: int) -> Refusal:
        message = (
            f"Prompt contains {tokens} tokens and 0 draft tokens, too large for model with {window_tokens} maximum "
            "context length"
        )
        return Refusal(400, "invalid_request_error", message, code="3051")

    def error(self, status: int, type_: str | None, message: str | None, code: str | None, param: str | None) -> Any:
        if status == 401:
            return {"detail": message or "Unauthorized"}
        if status == 422:
            place = json.loads(param) if param else ["body"]
            return {
                "detail": [{"type": type_ or "value_error", "loc": place, "msg": message or "Invalid", "input": {}}]
            }
        return {
            "object": "error",
            "message": message or "Internal server error",
            "type": type_ or _TYPES.get(status, "internal_server_error"),
            "param": None,
            "code": code or _CODES.get(status),
            "raw_status_code": status,
        }

    def frames(self, turn: StreamFault, number: int, body: dict[str, Any], tokens: int) -> list[bytes]:
        answer = neutral(turn)
        frames = [sse(chunk) for chunk in chunks_of(answer, number, body["model"], tokens)]
        if answer.noise:
            frames = [part for frame in frames for part in (b": a comment\n\n", frame)]
        return [*frames, b"data: [DONE]\n\n"]

    def error_frame(self, type_: str) -> bytes:
        return sse({"object": "error", "message": "Overloaded", "type": type_, "param": None, "code": None})

    def whole(self, turn: StreamFault, number: int, body: dict[str, Any], tokens: int) -> Any:
        return completion_of(neutral(turn), number, body["model"], tokens)
