"""Mistral's chat API on loopback, as strict as the real one, for tests, the demo and rehearsals.

What is refused is in `rules`, what is said in `script`; here they are put on the wire in Mistral's form.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.emulators.models.mistral.rules import check_body, check_headers, is_model, parse_body
from tests.emulators.models.mistral.script import answer_of, chunks_of, completion_of
from tests.emulators.models.script import Accident
from tests.emulators.models.server import ModelEmulator, Refusal, Script

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
    """With `api_key` only that key is let in; `is_model` says which model names there are."""

    def __init__(
        self,
        script: Script = (),
        *,
        api_key: str | None = None,
        window_tokens: int | None = None,
        is_model: Callable[[str], bool] = is_model,
    ) -> None:
        super().__init__(_Face(api_key, is_model), script, window_tokens=window_tokens)


class _Face:
    path = "/v1/chat/completions"

    def __init__(self, api_key: str | None, is_model: Callable[[str], bool]) -> None:
        self._api_key = api_key
        self._is_model = is_model

    def check(self, path: str, headers: Mapping[str, str], raw: bytes) -> dict[str, Any]:
        check_headers(headers, self._api_key)
        body = parse_body(raw)
        check_body(body, self._is_model)
        return body

    def overflow(self, tokens: int, window_tokens: int) -> Refusal:
        message = (
            f"Prompt contains {tokens} tokens and 0 draft tokens, too large for model with {window_tokens} maximum "
            "context length"
        )
        return Refusal(400, "invalid_request_error", message, code="3051")

    def last_user_text(self, body: dict[str, Any]) -> str:
        contents = [message["content"] for message in body["messages"] if message["role"] == "user"]
        texts = [text for content in contents for text in _texts(content)]
        return texts[-1] if texts else ""

    def headers(self, number: int) -> dict[str, str]:
        return {"mistral-correlation-id": f"correlation-{number:04d}"}

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

    def frames(self, turn: Accident, number: int, body: dict[str, Any], tokens: int) -> list[bytes]:
        answer = answer_of(turn)
        frames = [_sse(chunk) for chunk in chunks_of(answer, number, body["model"], tokens)]
        if answer.noise:
            frames = [part for frame in frames for part in (b": a comment\n\n", frame)]
        return [*frames, b"data: [DONE]\n\n"]

    def error_frame(self, type_: str) -> bytes:
        return _sse({"object": "error", "message": "Overloaded", "type": type_, "param": None, "code": None})

    def whole(self, turn: Accident, number: int, body: dict[str, Any], tokens: int) -> Any:
        return completion_of(answer_of(turn), number, body["model"], tokens)

    def streams(self, path: str, body: dict[str, Any]) -> bool:
        return bool(body.get("stream"))


def _texts(content: str | list[dict[str, Any]]) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [chunk["text"] for chunk in content if chunk["type"] == "text"]


def _sse(event: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(event)}\n\n".encode()
