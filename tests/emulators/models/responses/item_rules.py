"""What the Responses API refuses about one item of the input. How items must follow each other is in `order_rules`.

Reasoning is checked against the emulator's own sealing: changed by a byte, cut or from elsewhere, it is refused as the
real one refuses it.
"""

import base64
import binascii
import re
from typing import Any

from tests.emulators.models.responses.refusals import closed, filled_at, list_at, object_at, one_of, refuse, string_at
from tests.emulators.models.responses.sealing import is_sealed

CALL_ID_CHARS_MAX = 64
IMAGE_CHARS_MAX = 50 * 1024 * 1024

_MEMBERS: dict[str, frozenset[str]] = {
    "message": frozenset({"type", "id", "role", "status", "content", "phase"}),
    "reasoning": frozenset({"type", "id", "summary", "content", "encrypted_content", "status"}),
    "function_call": frozenset(
        {"type", "id", "call_id", "name", "arguments", "status", "namespace", "caller", "async"}
    ),
    "function_call_output": frozenset({"type", "id", "call_id", "output", "status"}),
    "item_reference": frozenset({"type", "id"}),
}
_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc", "function_call_output": "fc"}
_ROLES = ("user", "assistant", "system", "developer")
_INPUT_PARTS = ("input_text", "input_image", "input_file")
_OUTPUT_PARTS = ("output_text", "refusal")
_PART_MEMBERS: dict[str, frozenset[str]] = {
    "input_text": frozenset({"type", "text", "prompt_cache_breakpoint"}),
    "input_image": frozenset({"type", "image_url", "file_id", "detail", "prompt_cache_breakpoint"}),
    "input_file": frozenset(
        {"type", "file_id", "file_data", "file_url", "filename", "detail", "prompt_cache_breakpoint"}
    ),
    "output_text": frozenset({"type", "text", "annotations", "logprobs"}),
    "refusal": frozenset({"type", "refusal"}),
}
_STATUSES = ("in_progress", "completed", "incomplete")
_PHASES = ("commentary", "final_answer")
_IMAGE_HEADS = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
}
_NO_IMAGE = (
    "The image data you provided does not represent a valid image. Please check your input and try again with one of "
    "the following image formats: ['image/jpeg', 'image/png', 'image/gif', 'image/webp']."
)


def kind_of_item(item: dict[str, Any]) -> str:
    """A message need not say that it is one."""
    return str(item.get("type", "message" if "role" in item else None))


def check_item(item: Any, path: str) -> None:
    """Raises `Refusal`."""
    item = object_at(item, path)
    kind = one_of(kind_of_item(item), tuple(_MEMBERS), f"{path}.type")
    closed(item, _MEMBERS[kind], path)
    if "id" in item:
        _check_id(item, kind, path)
    if item.get("status") is not None:
        one_of(item["status"], _STATUSES, f"{path}.status")
    match kind:
        case "message":
            _check_message(item, path)
        case "reasoning":
            _check_reasoning(item, path)
        case "function_call":
            _check_call(item, path)
        case "function_call_output":
            _check_output(item, path)
        case _:
            _refuse_unstored(item)


def _check_id(item: dict[str, Any], kind: str, path: str) -> None:
    item_id = string_at(item, "id", path, chars_max=64)
    prefix = _PREFIXES.get(kind, "")
    if kind == "message" and item.get("role") != "assistant":
        return
    if not item_id.startswith(prefix):
        refuse(
            f"Invalid '{path}.id': '{item_id}'. Expected an ID that begins with '{prefix}'.",
            code="invalid_value",
            param=f"{path}.id",
        )


def _check_message(item: dict[str, Any], path: str) -> None:
    string_at(item, "role", path)
    role = one_of(item["role"], _ROLES, f"{path}.role")
    if "phase" in item:
        if role != "assistant":
            closed(item, _MEMBERS["message"] - {"phase"}, path)
        elif item["phase"] is not None:
            one_of(item["phase"], _PHASES, f"{path}.phase")
    if isinstance(item.get("content"), str):
        filled_at(item, "content", path)
        return
    if "content" not in item:
        string_at(item, "content", path)
    allowed = _OUTPUT_PARTS if role == "assistant" else _INPUT_PARTS
    for place, part in enumerate(list_at(item["content"], f"{path}.content")):
        _check_part(part, allowed, f"{path}.content[{place}]")


def _check_part(part: Any, allowed: tuple[str, ...], path: str) -> None:
    part = object_at(part, path)
    string_at(part, "type", path)
    kind = one_of(part["type"], allowed, f"{path}.type")
    closed(part, _PART_MEMBERS[kind], path)
    match kind:
        case "input_text" | "output_text":
            filled_at(part, "text", path)
        case "refusal":
            filled_at(part, "refusal", path)
        case "input_image":
            _check_image(part, path)


def _check_image(part: dict[str, Any], path: str) -> None:
    if part.get("detail") is not None:
        one_of(part["detail"], ("low", "high", "auto", "original"), f"{path}.detail")
    if "file_id" in part:
        return
    url = part.get("image_url")
    if isinstance(url, dict):
        param = f"{path}.image_url"
        message = f"Invalid type for '{param}': expected an image URL, but got an object instead."
        refuse(message, code="invalid_type", param=param)
    url = string_at(part, "image_url", path, chars_max=IMAGE_CHARS_MAX)
    if re.match(r"https?://\S", url):
        return
    told = re.fullmatch(r"data:([a-z]+/[a-z+.-]+);base64,([A-Za-z0-9+/=]+)", url)
    if told is None:
        message = f"Invalid '{path}.image_url'. Expected a valid URL, but got a value with an invalid format."
        refuse(message, code="invalid_value", param=f"{path}.image_url")
    head = _IMAGE_HEADS.get(told[1])
    try:
        raw = base64.b64decode(told[2], validate=True)
    except (binascii.Error, ValueError):
        refuse(_NO_IMAGE, code="invalid_base64_image", param=f"{path}.image_url")
    if head is None or not raw.startswith(head):
        refuse(_NO_IMAGE, code="image_parse_error", param=f"{path}.image_url")


def _check_reasoning(item: dict[str, Any], path: str) -> None:
    item_id = string_at(item, "id", path)
    summary = item.get("summary")
    if not isinstance(summary, list):
        string_at(item, "summary", path)
        object_at(summary, f"{path}.summary")
    for place, part in enumerate(summary or []):
        part = object_at(part, f"{path}.summary[{place}]")
        closed(part, {"type", "text"}, f"{path}.summary[{place}]")
        string_at(part, "text", f"{path}.summary[{place}]")
    content = item.get("encrypted_content")
    if content is None:
        _refuse_unstored(item)
    content = string_at(item, "encrypted_content", path)
    if not is_sealed(item_id, summary or [], content):
        shown = f"{content[:4]}..."
        refuse(
            f"The encrypted content {shown} could not be verified. Reason: Encrypted content could not be decrypted or "
            "parsed.",
            code="invalid_encrypted_content",
        )


def _refuse_unstored(item: dict[str, Any]) -> None:
    """The emulator stores nothing, whatever the request said."""
    refuse(
        f"Item with id '{item.get('id')}' not found. Items are not persisted when `store` is set to false. Try again "
        "with `store` set to true, or remove this item from your input.",
        param="input",
        status=404,
    )


def _check_call(item: dict[str, Any], path: str) -> None:
    _check_call_id(item, path)
    name = string_at(item, "name", path, chars_max=64)
    if not re.fullmatch(r"[a-zA-Z0-9_-]+", name):
        refuse(
            f"Invalid '{path}.name': string does not match pattern. Expected a string that matches the pattern "
            "'^[a-zA-Z0-9_-]+$'.",
            code="invalid_value",
            param=f"{path}.name",
        )
    string_at(item, "arguments", path)


def _check_output(item: dict[str, Any], path: str) -> None:
    _check_call_id(item, path)
    if isinstance(item.get("output"), list):
        for place, part in enumerate(list_at(item["output"], f"{path}.output")):
            _check_part(part, _INPUT_PARTS, f"{path}.output[{place}]")
    else:
        string_at(item, "output", path)


def _check_call_id(item: dict[str, Any], path: str) -> None:
    string_at(item, "call_id", path, chars_max=CALL_ID_CHARS_MAX)
    filled_at(item, "call_id", path)
