"""Anthropic's Messages API on loopback, as strict as the real one, for tests, the demo and rehearsals.

What is refused is in `rules`, what is said in `script`; here they are put on the wire in Anthropic's form.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.emulators.models.anthropic.rules import check_body, check_headers, parse_body
from tests.emulators.models.anthropic.script import events_of, message_of, rendered
from tests.emulators.models.script import Accident
from tests.emulators.models.server import ModelEmulator, Refusal, Script

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
    """With `api_key` only that key is let in; `is_model` says which model names there are."""

    def __init__(
        self,
        script: Script = (),
        *,
        api_key: str | None = None,
        is_model: Callable[[str], bool] = lambda name: name.startswith("claude-"),
        window_tokens: int | None = None,
    ) -> None:
        super().__init__(_Face(api_key, is_model), script, window_tokens=window_tokens)


class _Face:
    path = "/v1/messages"

    def __init__(self, api_key: str | None, is_model: Callable[[str], bool]) -> None:
        self._api_key = api_key
        self._is_model = is_model

    def check(self, path: str, headers: Mapping[str, str], raw: bytes) -> dict[str, Any]:
        check_headers(headers, self._api_key)
        body = parse_body(raw)
        check_body(body, self._is_model)
        return body

    def overflow(self, tokens: int, window_tokens: int) -> Refusal:
        message = f"prompt is too long: {tokens} tokens > {window_tokens} maximum"
        return Refusal(400, "invalid_request_error", message)

    def last_user_text(self, body: dict[str, Any]) -> str:
        return last_user_text(body)

    def headers(self, number: int) -> dict[str, str]:
        return {"request-id": f"req_{number:04d}"}

    def error(self, status: int, type_: str | None, message: str | None, code: str | None, param: str | None) -> Any:
        error: dict[str, Any] = {
            "type": type_ or _TYPES.get(status, "api_error"),
            "message": message or "Internal server error",
        }
        if code is not None:
            error["details"] = {"error_code": code}
        return {"type": "error", "error": error, "request_id": None}

    def frames(self, turn: Accident, number: int, body: dict[str, Any], tokens: int) -> list[bytes]:
        return [_sse(event) for event in events_of(rendered(turn), number, body["model"], tokens)]

    def error_frame(self, type_: str) -> bytes:
        return _sse({"type": "error", "error": {"type": type_, "message": "Overloaded"}})

    def whole(self, turn: Accident, number: int, body: dict[str, Any], tokens: int) -> Any:
        return message_of(rendered(turn), number, body["model"], tokens)

    def streams(self, path: str, body: dict[str, Any]) -> bool:
        return bool(body.get("stream", False))


def last_user_text(body: dict[str, Any]) -> str:
    """The last text block that a user message of this request holds, metadata and all."""
    for message in reversed(body["messages"]):
        if message["role"] == "user":
            content = message["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            for block in reversed(blocks):
                if block["type"] == "text":
                    return str(block["text"])
    return ""


def _sse(event: dict[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n".encode()
