"""What each wire makes of a request, judged by its emulator's own rules, and thoughts as each would have kept them."""

import json
from collections.abc import Callable
from typing import Any, TypeAlias

from agents.messages import Thinking, Wire
from agents.providers import anthropic as anthropic_wire
from agents.providers import chat as chat_wire
from agents.providers import gemini as gemini_wire
from agents.providers import responses as responses_wire
from agents.providers.models import family_of
from agents.providers.provider import ModelRequest
from agents.providers.vendors import VENDORS, for_model
from tests.emulators.models.anthropic import rules as anthropic_rules
from tests.emulators.models.anthropic.script import thinking_block
from tests.emulators.models.chat import rules as chat_rules
from tests.emulators.models.gemini import rules as gemini_rules
from tests.emulators.models.gemini.script import thought_part
from tests.emulators.models.gemini.signature import signed
from tests.emulators.models.mistral import rules as mistral_rules
from tests.emulators.models.mistral.script import thinking_chunk
from tests.emulators.models.responses import rules as responses_rules
from tests.emulators.models.responses.sealing import sealed

Body: TypeAlias = dict[str, Any]


def anthropic(request: ModelRequest) -> Body:
    body = anthropic_wire.wire_request(request)
    anthropic_rules.check_body(body)
    return body


def chat(vendor: str) -> Callable[[ModelRequest], Body]:
    def made(request: ModelRequest) -> Body:
        body = chat_wire.wire_request(request, VENDORS[vendor])
        chat_rules.check_body(body, for_model(VENDORS[vendor], request.model).name)
        json.dumps(body, ensure_ascii=False).encode()
        return body

    return made


def gemini(request: ModelRequest) -> Body:
    body = gemini_wire.wire_request(request)
    gemini_rules.check_body(gemini_rules.parse_body(json.dumps(body).encode()), request.model)
    return body


def mistral(request: ModelRequest) -> Body:
    """Proved acceptable to Mistral's own models of a request, too."""
    from mistralai.client.models import ChatCompletionStreamRequest

    body = chat_wire.wire_request(request, VENDORS["mistral"])
    mistral_rules.check_body(body)
    judged = ChatCompletionStreamRequest.model_validate(body)
    assert json.loads(judged.model_dump_json(by_alias=True, exclude_unset=True)) == body
    return body


def responses(request: ModelRequest) -> Body:
    body = responses_wire.wire_request(request)
    sent = responses_rules.parse_body(json.dumps(body, ensure_ascii=False).encode())
    responses_rules.check_body(sent)
    return sent


def thought(api: str, model: str, text: str = "hm", name: str = "rs_1") -> Thinking:
    """A thought that `model` had on this wire; `name` is its id where it has one."""
    kind: str
    data: Any
    match api:
        case "anthropic-messages":
            kind, data = "thinking", thinking_block(text)
        case "google-gemini":
            kind, data = "thought_signature", signed(thought_part(text))["thoughtSignature"]
        case "mistral":
            kind, data = "thinking", thinking_chunk(text)
        case "openai-responses":
            summary = [{"type": "summary_text", "text": text}]
            kind = "reasoning"
            data = {"type": kind, "id": name, "summary": summary, "encrypted_content": sealed(name, summary)}
        case _:
            kind, data = "reasoning_content", text
    return Thinking(text=text, wire=Wire(api=api, family=family_of(model), kind=kind, data=data))
