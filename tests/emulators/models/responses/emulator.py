"""OpenAI's Responses API on loopback, as strict as the real one, for tests, the demo and rehearsals.

What is refused is in `rules`, what is said in `script` and `stream`; here they are put on the wire in OpenAI's form.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.emulators.models.responses.order_rules import check_led, led_by
from tests.emulators.models.responses.rules import check_body, check_headers, is_openai_model, parse_body
from tests.emulators.models.responses.script import rendered, response_of
from tests.emulators.models.responses.stream import events_of
from tests.emulators.models.script import Accident
from tests.emulators.models.server import ModelEmulator, Refusal, Script

_TYPES = {429: "requests", 500: "server_error", 502: "server_error", 503: "server_error", 504: "server_error"}
_CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded", 503: "server_is_overloaded"}
_TOO_LONG = "Your input exceeds the context window of this model. Please adjust your input and try again."
_STREAM_CODES = {"overloaded_error": "server_is_overloaded", "rate_limit_error": "rate_limit_exceeded"}
"""By the names that neutral scripts may use."""


class ResponsesEmulator(ModelEmulator):
    """With `api_key` only that key is let in; `is_model` says which model names there are."""

    def __init__(
        self,
        script: Script = (),
        *,
        api_key: str | None = None,
        is_model: Callable[[str], bool] = is_openai_model,
        window_tokens: int | None = None,
    ) -> None:
        super().__init__(_Face(api_key, is_model), script, window_tokens=window_tokens)


class _Face:
    path = "/v1/responses"

    def __init__(self, api_key: str | None, is_model: Callable[[str], bool]) -> None:
        self._api_key = api_key
        self._is_model = is_model
        self._led: dict[str, str] = {}
        """What it said, by id, and the reasoning that led to it."""

    def check(self, path: str, headers: Mapping[str, str], raw: bytes) -> dict[str, Any]:
        check_headers(headers, self._api_key)
        body = parse_body(raw)
        check_body(body, self._is_model)
        if isinstance(body["input"], list):
            check_led(body["input"], self._led)
        return body

    def overflow(self, tokens: int, window_tokens: int) -> Refusal:
        return Refusal(400, "invalid_request_error", _TOO_LONG, code="context_length_exceeded", param="input")

    def last_user_text(self, body: dict[str, Any]) -> str:
        return last_user_text(body)

    def headers(self, number: int) -> dict[str, str]:
        return {"x-request-id": f"req_{number:04d}"}

    def error(self, status: int, type_: str | None, message: str | None, code: str | None, param: str | None) -> Any:
        said = message or "The server had an error while processing your request."
        if type_ is None and code is None:
            code = _CODES.get(status)
        type_ = type_ or _TYPES.get(status, "invalid_request_error")
        return {"error": {"message": said, "type": type_, "param": param, "code": code}}

    def frames(self, turn: Accident, number: int, body: dict[str, Any], tokens: int) -> list[bytes]:
        events = events_of(rendered(turn), number, body, tokens)
        self._led.update(led_by(events[-1]["response"]["output"]))
        return [_sse(event) for event in events]

    def error_frame(self, type_: str) -> bytes:
        code = _STREAM_CODES.get(type_, type_)
        return _sse({"type": "error", "code": code, "message": "It broke.", "param": None, "sequence_number": 0})

    def whole(self, turn: Accident, number: int, body: dict[str, Any], tokens: int) -> Any:
        response = response_of(rendered(turn), number, body, tokens)
        self._led.update(led_by(response["output"]))
        return response

    def streams(self, path: str, body: dict[str, Any]) -> bool:
        return bool(body.get("stream"))


def last_user_text(body: dict[str, Any]) -> str:
    """The last text that a user message of this request holds, metadata and all."""
    told = body["input"]
    if isinstance(told, str):
        return told
    for item in reversed(told):
        if item.get("role") == "user":
            content = item["content"]
            if isinstance(content, str):
                return content
            for part in reversed(content):
                if part["type"] == "input_text":
                    return str(part["text"])
    return ""


def _sse(event: dict[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n".encode()
