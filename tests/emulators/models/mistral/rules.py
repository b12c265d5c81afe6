"""What Mistral's chat API refuses, as pure functions.

The emulator asks here before it answers, and tests ask directly. A refusal carries the real status, type and code: 422
for what does not fit the schema of a request (`shapes`), 400 for what the models' tokenizers refuse. These are the rules
of today's models, which take a user behind results and calls beside content.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NoReturn

from agents.providers.models import facts_of
from tests.emulators.models.dialogue import Dialogue
from tests.emulators.models.mistral.shapes import Request
from tests.emulators.models.server import Refusal
from tests.emulators.models.shapes import decoded, fault_of, is_image, parsed, root_fault

IMAGE_BYTES_MAX = 10 * 1024 * 1024
_MODELS = ("mistral-", "ministral-", "magistral-", "pixtral-", "codestral-", "devstral-", "voxtral-", "open-", "ft:")
_CHUNKS = {
    "system": {"text", "thinking"},
    "user": {"text", "image_url"},
    "assistant": {"text", "thinking"},
    "tool": {"text"},
}
_AFTER = {
    "system": {"system", "user", "assistant"},
    "user": {"user", "assistant", "system"},
    "assistant": {"assistant", "user", "tool"},
    "tool": {"assistant", "tool", "user"},
}


def refuse(message: str, *, type_: str = "invalid_request_error", code: str | None = None) -> NoReturn:
    raise Refusal(400, type_, message, code=code)


def invalid(place: Sequence[str | int], type_: str, message: str) -> NoReturn:
    """The validator's 422. `param` carries the place, for a refusal has no list."""
    raise Refusal(422, type_, message, param=json.dumps(["body", *place]))


def _misplace(message: str) -> NoReturn:
    refuse(message, type_="invalid_request_message_order", code="3230")


def check_headers(headers: Mapping[str, str], api_key: str | None = None) -> None:
    """Raises `Refusal`. Names in lower case; with `api_key` only that key is let in, without it any."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme != "Bearer" or not key.strip() or (api_key is not None and key != api_key):
        raise Refusal(401, "unauthorized", "Unauthorized")
    if not headers.get("content-type", "").startswith("application/json"):
        invalid((), "model_attributes_type", "Input should be a valid dictionary or object to extract fields from")


def parse_body(raw: bytes) -> dict[str, Any]:
    """The body as an object. Raises `Refusal` for what is no strict JSON."""
    body = parsed(raw)
    return invalid((), "json_invalid", body) if isinstance(body, str) else body


def check_body(body: dict[str, Any]) -> None:
    """Everything about a parsed request: first its schema, then its sense. Raises `Refusal`."""
    if fault := fault_of(Request, body):
        # The service reads attributes too, and names the fault after that.
        type_ = "model_attributes_type" if fault["type"] == "model_type" else fault["type"]
        invalid(fault["loc"], type_, fault["msg"])
    model, facts = body["model"], facts_of(body["model"])
    if not model.startswith(_MODELS):
        refuse(f"Invalid model: {model}", type_="invalid_model", code="1500")
    if facts.known and (body.get("max_tokens") or 0) > facts.max_output:
        refuse(f"max_tokens is too large for model {model}: it can write {facts.max_output} tokens")
    if body.get("reasoning_effort") is not None and not facts.thinking:
        refuse(f"reasoning_effort={body['reasoning_effort']!r} is not supported for this model")
    _check_tools(body)
    messages = body["messages"]
    _check_order(messages)
    dialogue = Dialogue(_misplace)
    for message in messages:
        _check_pairs(message, dialogue)
        _check_content(message, vision=facts.vision or not facts.known)
    dialogue.close()


def _check_tools(body: dict[str, Any]) -> None:
    functions = [tool["function"] for tool in body.get("tools") or ()]
    names = [function["name"] for function in functions]
    for function in functions:
        _check_name(function["name"])
        if fault := root_fault(function["parameters"]):
            refuse(f"Invalid tool schema: {fault}", type_="invalid_tool_schema")
    if len(set(names)) != len(names):
        refuse("Function names must be unique.", type_="invalid_tools")
    choice = body.get("tool_choice")
    if choice is not None and not names:
        refuse("tool_choice can only be used with tools", type_="invalid_tool_choice")
    if isinstance(choice, dict) and choice["function"]["name"] not in names:
        refuse(f"Function {choice['function']['name']} of tool_choice is not in tools", type_="invalid_tool_choice")


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name):
        refuse(f"Function name was {name}", type_="invalid_function_call", code="3280")


def _check_order(messages: list[dict[str, Any]]) -> None:
    if not messages or messages[0]["role"] not in ("system", "user"):
        _misplace("Conversation must start with a user message or system message")
    for before, message in pairwise(messages):
        if message["role"] not in _AFTER[before["role"]]:
            _misplace(f"Unexpected role '{message['role']}' after role '{before['role']}'")
        if before.get("prefix"):
            _misspoken("Assistant message with prefix True must be last message")
    last = messages[-1]
    if last["role"] == "system" or (last["role"] == "assistant" and last.get("prefix") is not True):
        _misplace(f"Expected last role User or Tool (or Assistant with prefix True) but got {last['role']}")


def _misspoken(message: str) -> NoReturn:
    refuse(message, type_="invalid_assistant_message", code="3240")


def _check_pairs(message: dict[str, Any], dialogue: Dialogue) -> None:
    """Each call is answered once, before anybody else speaks."""
    if message["role"] == "tool":
        if message.get("tool_call_id") is None:
            refuse("Tool call id has to be defined.")
        dialogue.result(_fitting(message["tool_call_id"]))
        if message.get("name") is not None:
            _check_name(message["name"])
        return
    dialogue.close()
    for call in message.get("tool_calls") or ():
        dialogue.call(_fitting(call.get("id", "null")))
        _check_name(call["function"]["name"])


def _fitting(call_id: object) -> str:
    if not re.fullmatch(r"[a-zA-Z0-9]{9}", str(call_id)):
        words = f"Tool call id was {call_id} but must be a-z, A-Z, 0-9, with a length of 9."
        refuse(words, type_="invalid_function_call", code="3280")
    return str(call_id)


def _check_content(message: dict[str, Any], *, vision: bool) -> None:
    role, content = message["role"], message.get("content")
    if not content and role == "assistant":
        if not message.get("tool_calls"):
            _misspoken("Assistant message must have either content or tool_calls.")
        return
    if not content:
        refuse(f"{role.capitalize()} message must have content", type_=f"invalid_{role}_message")
    for chunk in content if isinstance(content, list) else ():
        kind = chunk["type"]
        if kind not in _CHUNKS[role]:
            refuse(f"Unexpected content chunk types in {role} message: ['{kind}']", type_=f"invalid_{role}_message")
        if kind == "text" and not chunk["text"]:
            refuse(f"Text chunks in {role} message must not be empty", type_=f"invalid_{role}_message")
        if kind == "thinking" and chunk.get("signature") != signature_of(chunk["thinking"]):
            refuse("Invalid `signature` in thinking chunk", type_="invalid_assistant_message")
        if kind == "image_url":
            _check_image(chunk["image_url"], vision=vision)


def signature_of(thinking: Sequence[dict[str, Any]]) -> str:
    """The emulator's signature of what was thought: changed by a byte, it is refused."""
    text = json.dumps(list(thinking), sort_keys=True)
    return base64.b64encode(hashlib.sha256(b"emulated:" + text.encode()).digest()).decode()


def _check_image(image: str | dict[str, Any], *, vision: bool) -> None:
    url = image if isinstance(image, str) else image["url"]
    if not vision:
        refuse("Image input is not enabled for this model")
    if url.startswith(("https://", "http://")):
        return
    media_type, _, data = url.removeprefix("data:").partition(";base64,")
    if not is_image(media_type, data) or len(decoded(data) or b"") > IMAGE_BYTES_MAX:
        refuse("image_url must be an https URL or a base64 data URL of a picture that is not too large")
