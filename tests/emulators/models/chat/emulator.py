"""The servers of the Chat wire on loopback, each as strict as the real one, for tests, the demo and rehearsals.

What is refused is in `rules`, what is said in `script`, how the servers differ in `habits`; here it is put on the wire.
Serve it with a base URL that ends in `/v1`.
"""

from collections.abc import Mapping
from typing import Any

from tests.emulators.models.chat.habits import HABITS
from tests.emulators.models.chat.rules import check_body, check_headers, parse_body
from tests.emulators.models.chat.script import chunks_of, heard, message_of
from tests.emulators.models.openai import error_of
from tests.emulators.models.script import StreamFault
from tests.emulators.models.server import ModelEmulator, Refusal, Script, sse

_DONE = b"data: [DONE]\n\n"
_ZHIPU_CODES = {400: "1214", 401: "1000", 402: "1113", 404: "1211", 429: "1302", 503: "1305", 529: "1305"}
_STATUSES = {
    "overloaded_error": 503,
    "rate_limit_error": 429,
    "authentication_error": 401,
    "insufficient_quota": 402,
    "invalid_request_error": 400,
}


class ChatEmulator(ModelEmulator):
    """`vendor` is one of `HABITS`."""

    path = "/v1/chat/completions"

    def __init__(
        self,
        script: Script = (),
        *,
        vendor: str = "openai",
        api_key: str | None = None,
        window_tokens: int | None = None,
    ) -> None:
        super().__init__(script, api_key=api_key, window_tokens=window_tokens)
        self._habits = HABITS[vendor]

    def check(self, path: str, headers: Mapping[str, str], raw: bytes) -> dict[str, Any]:
        check_headers(headers, self._habits, self.api_key)
        body = parse_body(raw)
        check_body(body, self._habits.name)
        return body

    def overflow(self, tokens: int, window_tokens: int) -> Refusal:
        message = self._habits.overflow.format(tokens=tokens, maximum=window_tokens)
        codes = {"openai": "context_length_exceeded", "azure": "context_length_exceeded", "zhipu": "1261"}
        return Refusal(400, "invalid_request_error", message, code=codes.get(self._habits.name), param="messages")

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
                return error_of(status, type_, message, code, param)

    def error_frame(self, type_: str) -> bytes:
        status = _STATUSES.get(type_, 502)
        error: dict[str, Any] = {"message": "It broke.", "type": type_, "param": None, "code": None}
        if self._habits.error == "zhipu":
            error = {"code": _ZHIPU_CODES.get(status, "500"), "message": "It broke."}
        if self._habits.error != "openrouter":
            return sse({"error": error})
        choice = {"index": 0, "delta": {"content": ""}, "finish_reason": "error"}
        error = {"code": status, "message": "It broke.", "metadata": {"error_type": type_}}
        return sse({"object": "chat.completion.chunk", "error": error, "choices": [choice]})

    def frames(self, turn: StreamFault, number: int, body: dict[str, Any], tokens: int) -> list[bytes]:
        answer = heard(turn, body, self._habits)
        before = [b": OPENROUTER PROCESSING\n\n"] if self._habits.prelude == "comments" else []
        frames = [*before, *map(sse, chunks_of(answer, number, body, tokens, self._habits))]
        return [*frames, _DONE] if self._habits.done else frames

    def whole(self, turn: StreamFault, number: int, body: dict[str, Any], tokens: int) -> Any:
        return message_of(heard(turn, body, self._habits), number, body, tokens, self._habits)
