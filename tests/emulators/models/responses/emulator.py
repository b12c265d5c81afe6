"""OpenAI's Responses API on loopback, as strict as the real one, for tests, the demo and rehearsals.

What is refused is in `rules`, what is said in `script` and `stream`; here they are put on the wire in OpenAI's form.
"""

from collections.abc import Mapping
from typing import Any

from tests.emulators.models.openai import error_of
from tests.emulators.models.responses.rules import check_body, check_headers, check_led, led_by, parse_body
from tests.emulators.models.responses.script import rendered, response_of
from tests.emulators.models.responses.stream import events_of
from tests.emulators.models.script import StreamFault
from tests.emulators.models.server import ModelEmulator, Refusal, Script, sse

_TOO_LONG = "Your input exceeds the context window of this model. Please adjust your input and try again."
_STREAM_CODES = {"overloaded_error": "server_is_overloaded", "rate_limit_error": "rate_limit_exceeded"}
"""By the names that neutral scripts may use."""


class ResponsesEmulator(ModelEmulator):
    path = "/v1/responses"

    def __init__(self, script: Script = (), *, api_key: str | None = None, window_tokens: int | None = None) -> None:
        super().__init__(script, api_key=api_key, window_tokens=window_tokens)
        self._led: dict[str, str] = {}
        """What it said, by id, and the reasoning that led to it."""

    def check(self, path: str, headers: Mapping[str, str], raw: bytes) -> dict[str, Any]:
        check_headers(headers, self.api_key)
        body = parse_body(raw)
        check_body(body)
        if isinstance(body["input"], list):
            check_led(body["input"], self._led)
        return body

    def overflow(self, tokens: int, window_tokens: int) -> Refusal:
        return Refusal(400, "invalid_request_error", _TOO_LONG, code="context_length_exceeded", param="input")

    def error(self, status: int, type_: str | None, message: str | None, code: str | None, param: str | None) -> Any:
        return error_of(status, type_, message or "The server had an error.", code, param)

    def frames(self, turn: StreamFault, number: int, body: dict[str, Any], tokens: int) -> list[bytes]:
        events = events_of(rendered(turn), number, body, tokens)
        self._led.update(led_by(events[-1]["response"]["output"]))
        return [sse(event, event["type"]) for event in events]

    def error_frame(self, type_: str) -> bytes:
        code = _STREAM_CODES.get(type_, type_)
        event = {"type": "error", "code": code, "message": "It broke.", "param": None, "sequence_number": 0}
        return sse(event, "error")

    def whole(self, turn: StreamFault, number: int, body: dict[str, Any], tokens: int) -> Any:
        response = response_of(rendered(turn), number, body, tokens)
        self._led.update(led_by(response["output"]))
        return response
