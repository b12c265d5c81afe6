"""What Gemini's API refuses about one part.

A signature is checked against the part it stands on (`signature`): changed by a byte, or moved, it is refused as the
real one refuses it. How contents must follow each other is in `content_rules`.
"""

import re
from typing import Any

from agents.providers.gemini.request import SPOKEN_IMAGES, signs
from tests.emulators.models.gemini.refusals import closed, flag, listed, refuse, snake, struct, text, unset
from tests.emulators.models.gemini.signature import decoded, is_own, is_placeholder

_DATA = frozenset(
    {"text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode", "codeExecutionResult"}
    | {"toolCall", "toolResponse"}
)
_MEMBERS = _DATA | {"thought", "thoughtSignature", "videoMetadata", "mediaResolution", "partMetadata"}
_HEADS = {"image/png": b"\x89PNG\r\n\x1a\n", "image/jpeg": b"\xff\xd8\xff", "image/webp": b"RIFF"}
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")


def check_part(part: Any, role: str, path: str, model: str) -> None:
    """Raises `Refusal`."""
    closed(part, _MEMBERS, path)
    kinds = [name for name in part if name in _DATA]
    if not kinds or (part.get("text") == "" and "thoughtSignature" not in part):
        unset(f"{path}.data", "required oneof field 'data' must have one initialized field")
    if len(kinds) > 1:
        refuse(f"Invalid value at '{path}' (oneof), oneof field 'data' is already set. Cannot set '{snake(kinds[1])}'")
    flag(part.get("thought", False), f"{path}.thought")
    match kinds[0]:
        case "text":
            text(part["text"], f"{path}.text")
        case "inlineData":
            _check_blob(part["inlineData"], f"{path}.inlineData")
        case "functionCall":
            if role != "model":
                refuse("Please ensure that function call parts are in a model turn.")
            _check_call(part["functionCall"], f"{path}.functionCall")
        case "functionResponse":
            if role != "user":
                refuse("Please ensure that function response parts are in a user turn.")
            _check_response(part["functionResponse"], f"{path}.functionResponse", model)
    if "thoughtSignature" in part:
        _check_signature(part, role, f"{path}.thoughtSignature", model)


def _check_signature(part: dict[str, Any], role: str, path: str, model: str) -> None:
    signature = text(part["thoughtSignature"], path)
    if decoded(signature) is None:
        refuse(f"Invalid value at '{snake(path)}' (TYPE_BYTES), Base64 decoding failed for \"{signature}\"")
    excused = is_placeholder(part) and "functionCall" in part and signs(model)
    if role != "model" or not (excused or is_own(part)):
        refuse("Corrupted thought signature.")


def _check_call(call: Any, path: str) -> None:
    closed(call, {"id", "name", "args"}, path)
    text(call.get("id", ""), f"{path}.id")
    struct(call.get("args", {}), f"{path}.args")
    check_name(call, path)


def _check_response(response: Any, path: str, model: str) -> None:
    closed(response, {"id", "name", "response", "parts", "willContinue", "scheduling"}, path)
    text(response.get("id", ""), f"{path}.id")
    check_name(response, path)
    struct(response.get("response"), f"{path}.response")
    if "parts" not in response:
        return
    if not signs(model):
        refuse("Multimodal function response is not supported for this model.")
    if not listed(response["parts"], f"{path}.parts"):
        unset(f"{path}.parts", "must not be empty.")
    for place, part in enumerate(response["parts"]):
        closed(part, {"inlineData", "fileData"}, f"{path}.parts[{place}]")
        _check_blob(part.get("inlineData"), f"{path}.parts[{place}].inlineData")


def check_name(value: dict[str, Any], path: str) -> None:
    """Of a call, a response or a declaration."""
    name = text(value.get("name", ""), f"{path}.name")
    if not name:
        unset(f"{path}.name", "Name cannot be empty.")
    if not NAME.fullmatch(name):
        unset(
            f"{path}.name",
            "Invalid function name. Must start with a letter or an underscore. Must be alphanumeric (a-z, A-Z, 0-9), "
            "underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of 128.",
        )


def _check_blob(blob: Any, path: str) -> None:
    closed(blob, {"mimeType", "data"}, path)
    kind, data = text(blob.get("mimeType"), f"{path}.mimeType"), text(blob.get("data"), f"{path}.data")
    raw = decoded(data)
    if not raw:
        refuse(f"Invalid value at '{snake(path)}.data' (TYPE_BYTES), Base64 decoding failed for \"{data[:40]}\"")
    if kind not in SPOKEN_IMAGES:
        refuse(f"Unsupported MIME type: {kind}")
    if not raw.startswith(_HEADS.get(kind, b"")):
        refuse("Unable to process input image. Please retry or report in https://developers.generativeai.google/")
