"""The servers of the Chat wire on loopback, each as strict as the real one, for tests, the demo and rehearsals.

What is refused is in `rules`, what is said in `script`, how the servers differ in `habits`; here it is put on the wire.
Serve it with a base URL that ends in `/v1`.
"""

import json
from collections.abc import Mapping
from typing import Any

from tests.emulators.models.chat.habits import HABITS, Habits
from tests.emulators.models.chat.rules import check_body, check_headers, parse_body
from tests.emulators.models.chat.script import chunks_of, heard, message_of
from tests.emulators.models.script import Accident
from tests.emulators.models.server import ModelEmulator, Refusal, Script

_DONE = b"data: [DONE]\n\n"
_TYPES = {
    402: "insufficient_quota",
    429: "requests",
    500: "server_error",
    502: "server_error",
    503: "server_error",
    529: "overloaded_error",
}
_CODES = {401: "invalid_api_key", 402: "insufficient_quota", 429: "rate_limit_exceeded", 503: "server_is_overloaded"}
_ZHIPU_CODES = {400: "1214", 401: "1000", 402: "1113", 404: "1211", 429: "1302", 503: "1305", 529: "1305"}
_STATUSES = {
    "overloaded_error": 503,
    "rate_limit_error": 429,
    "authentication_error": 401,
    "insufficient_quota": 402,
    "invalid_request_error": 400,
}


class ChatEmulator(ModelEmulator):
    """With `api_key` only that key is let in. `vendor` is one of `HABITS`."""

    def __init__(
        self,
        script: Script = (),
        *,
        vendor: str = "openai",
        api_key: str | None = None,
        window_tokens: int | None = None,
    ) -> None:
        super().__init__(_Face(HABITS[vendor], api_key), script, window_tokens=window_tokens)


class _Face:
    path = "/v1/chat/completions"

    def __init__(self, habits: Habits, api_key: str | None) -> None:
        self._habits = habits
        self._api_key = api_key

    def check(self, path: str, headers: Mapping[str, str], raw: bytes) -> dict[str, Any]:
        check_headers(headers, self._habits, self._api_key)
        body = parse_body(raw)
        check_body(body, self._habits.name)
        return body

    def overflow(self, tokens: int, window_tokens: int) -> Refusal:
        message = self._habits.overflow.format(tokens=tokens, maximum=window_tokens)
        codes = {"openai": "context_length_exceeded", "azure": "context_length_exceeded", "zhipu": "1261"}
        return Refusal(400, "invalid_request_error", message, code=codes.get(self._habits.name), param="messages")

    def last_user_text(self, body: dict[str, Any]) -> str:
        for message in reversed(body["messages"]):
            if message["role"] == "user":
                content = message["content"]
                parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
                for part in reversed(parts):
                    if part["type"] == "text":
                        return str(part["text"])
        return ""

    def headers(self, number: int) -> dict[str, str]:
        return {"x-request-id": f"req_{number:04d}"}

    def error(self, status: int, type_: str | None, message: str | None, code: str | None, param: str | None) -> Any:
        message = message or "The server had an error while processing your request."
        match self._habits.error:
            case "zhipu":
                usual = "1113" if type_ == "insufficient_quota" else _ZHIPU_CODES.get(status, "500")
                return {"error": {"code": code or usual, "message": message}}
            case "openrouter":
                return {"error": {"code": code or status, "message": message, "metadata": {"provider_name": "x"}}}
            case "vllm":
                named = type_ if status != 400 else "BadRequestError"
                return {"error": {"message": message, "type": named or "Error", "param": param, "code": code or status}}
            case "openai":
                code = code or (_CODES.get(status) if type_ is None else None)
                type_ = type_ or _TYPES.get(status, "invalid_request_error")
                return {"error": {"message": message, "type": type_, "param": param, "code": code}}

    def error_frame(self, type_: str) -> bytes:
        status = _STATUSES.get(type_, 502)
        told: dict[str, Any] = {"message": "It broke.", "type": type_, "param": None, "code": None}
        if self._habits.error == "zhipu":
            told = {"code": _ZHIPU_CODES.get(status, "500"), "message": "It broke."}
        if self._habits.error != "openrouter":
            return _sse({"error": told})
        choice = {"index": 0, "delta": {"content": ""}, "finish_reason": "error"}
        told = {"code": status, "message": "It broke.", "metadata": {"error_type": type_}}
        return _sse({"object": "chat.completion.chunk", "error": told, "choices": [choice]})

    def frames(self, turn: Accident, number: int, body: dict[str, Any], tokens: int) -> list[bytes]:
        told = heard(turn, body, self._habits)
        before = [b": OPENROUTER PROCESSING\n\n"] if self._habits.prelude == "comments" else []
        frames = [*before, *map(_sse, chunks_of(told, number, body, tokens, self._habits))]
        return [*frames, _DONE] if self._habits.done else frames

    def whole(self, turn: Accident, number: int, body: dict[str, Any], tokens: int) -> Any:
        return message_of(heard(turn, body, self._habits), number, body, tokens, self._habits)

    def streams(self, path: str, body: dict[str, Any]) -> bool:
        return bool(body.get("stream", False))


def _sse(event: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(event, ensure_ascii=False)}\n\n".encode()
