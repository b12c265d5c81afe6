"""What Gemini's API refuses, as pure functions.

The emulator asks here before it answers, and tests ask directly. A refusal carries the real status. What a message may
hold is in `shapes`; here is what belongs together: calls and responses, signatures and models. A signature is checked
against the part it stands on (`signature`): changed by a byte, or moved, it is refused as the real one refuses it.
"""

import re
from collections.abc import Mapping
from typing import Any, NoReturn
from urllib.parse import unquote

from agents.providers.gemini import signs
from agents.providers.models import facts_of
from tests.emulators.models.dialogue import Dialogue
from tests.emulators.models.gemini.shapes import Request
from tests.emulators.models.gemini.signature import is_own, is_placeholder
from tests.emulators.models.server import Refusal
from tests.emulators.models.shapes import fault_of, parsed, words_of

BODY_BYTES_MAX = 20 * 1024 * 1024
VERSIONS = frozenset({"v1", "v1beta", "v1alpha"})
_DATA = frozenset(
    {"text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode", "codeExecutionResult"}
    | {"toolCall", "toolResponse"}
)
_SAMPLING = frozenset({"temperature", "topP", "topK", "presencePenalty", "frequencyPenalty", "seed"})
_BUDGETS = {True: (128, 32_768), False: (0, 24_576)}
"""Least and most, by whether the model always thinks."""


def refuse(message: str) -> NoReturn:
    raise Refusal(400, "INVALID_ARGUMENT", message)


def check_key(headers: Mapping[str, str], api_key: str | None = None) -> None:
    """Raises `Refusal`. Names in lower case; with `api_key` only that key is let in."""
    key = headers.get("x-goog-api-key", "")
    if not key.strip():
        raise Refusal(403, "PERMISSION_DENIED", "Method doesn't allow unregistered callers. Please use API Key.")
    if api_key is not None and key != api_key:
        message = "API key not valid. Please pass a valid API key."
        raise Refusal(400, "INVALID_ARGUMENT", message, code="API_KEY_INVALID")
    if not headers.get("content-type", "").startswith("application/json"):
        refuse("Invalid JSON payload received. Expected content-type application/json.")


def check_call(path: str) -> str:
    """The model that the path asks. Raises `Refusal` for a method or a model that there is not."""
    version, _, call = unquote(path).lstrip("/").partition("/models/")
    model, _, method = call.rpartition(":")
    methods = ("streamGenerateContent", "generateContent")
    if version not in VERSIONS or method not in methods or not model.startswith("gemini-"):
        raise Refusal(404, "NOT_FOUND", f"models/{model} is not found for {version}, or not supported for {method}.")
    return model


def parse_body(raw: bytes) -> dict[str, Any]:
    """The body as an object. Raises `Refusal` for what is too large or no strict JSON."""
    if len(raw) > BODY_BYTES_MAX:
        refuse(f"Request payload size exceeds the limit: {BODY_BYTES_MAX} bytes.")
    body = parsed(raw)
    return refuse(f"Invalid JSON payload received. {body}") if isinstance(body, str) else body


def check_body(body: dict[str, Any], model: str) -> None:
    """Everything about a parsed request. Raises `Refusal`."""
    if fault := fault_of(Request, body):
        refuse(words_of(fault))
    names = _check_tools(body)
    _check_tool_config(body.get("toolConfig", {}).get("functionCallingConfig"), names)
    _check_generation(body.get("generationConfig", {}), model)
    dialogue = Dialogue(refuse)
    speaker = ""
    for content in body["contents"]:
        _check_parts(content, model)
        _check_pairs(content, speaker, dialogue)
        speaker = content.get("role", "user")
    dialogue.close()
    if speaker != "user":
        refuse("Please ensure that multiturn requests end with a user turn or a function response turn.")


def _check_tools(body: dict[str, Any]) -> list[str]:
    names: list[str] = []
    for tool in body.get("tools", ()):
        if not tool:
            refuse("required one_of 'tool_type' must have one initialized field")
        for declaration in tool.get("functionDeclarations", ()):
            names.append(declaration["name"])
            schema = declaration.get("parametersJsonSchema", {"type": "object"})
            if "parameters" in declaration and "parametersJsonSchema" in declaration:
                refuse("only one of parameters and parameters_json_schema may be set.")
            if "parameters" in declaration and declaration["parameters"].get("type") not in ("OBJECT", "object"):
                refuse("parameters.type: must be OBJECT")
            sound = isinstance(schema.get("properties", {}), dict) and isinstance(schema.get("required", []), list)
            if schema.get("type") != "object" or not sound:
                refuse("schema must be of type object, and valid")
    if len(set(names)) != len(names):
        refuse("Duplicate function declaration found")
    return names


def _check_tool_config(config: dict[str, Any] | None, names: list[str]) -> None:
    if config is None:
        return
    if not names:
        refuse("Function calling config is set without function_declarations.")
    if "allowedFunctionNames" in config and config.get("mode") not in ("ANY", "VALIDATED"):
        refuse("Please set allowed_function_names only when function calling mode is ANY.")
    if not set(config.get("allowedFunctionNames", ())) <= set(names):
        refuse("allowed_function_names contains a name that no function declaration has")


def _check_generation(config: dict[str, Any], model: str) -> None:
    newest = re.match(r"gemini-(?![123](?:\.|-|$))\d", model.rpartition("/")[2])
    if newest and config.keys() & _SAMPLING:
        refuse("Sampling is not supported for this model.")
    facts = facts_of(model)
    if not 1 <= config.get("maxOutputTokens", 1) <= (facts.max_output if facts.known else 1_048_576):
        refuse(f"Unable to submit request because of its maxOutputTokens value {config['maxOutputTokens']}")
    thinking = config.get("thinkingConfig", {})
    if "thinkingLevel" in thinking and ("thinkingBudget" in thinking or not signs(model)):
        refuse("Thinking level is not supported for this model, or beside a budget.")
    if "thinkingBudget" not in thinking:
        return
    budget = thinking["thinkingBudget"]
    least, most = _BUDGETS[model.rpartition("/")[2].startswith("gemini-2.5-pro")]
    if signs(model):
        refuse("Thinking budget is not supported for this model.")
    if budget != -1 and not least <= budget <= most:
        refuse(f"The thinking budget {budget} is invalid. Please choose a value between {least} and {most}.")
    if budget == 0 and thinking.get("includeThoughts"):
        refuse("Unable to submit request because Include_thoughts is only enabled when thinking is enabled.")


def _check_parts(content: dict[str, Any], model: str) -> None:
    role = content.get("role", "user")
    for part in content["parts"]:
        kinds = [name for name in part if name in _DATA]
        if len(kinds) != 1 or (part.get("text") == "" and "thoughtSignature" not in part):
            refuse("required oneof field 'data' must have one initialized field")
        if not isinstance(part.get("functionCall", {}).get("args", {}), dict):
            refuse("Invalid value at 'function_call.args' (type.googleapis.com/google.protobuf.Struct)")
        if kinds[0] in ("functionCall", "functionResponse") and (role == "model") != (kinds[0] == "functionCall"):
            refuse("Please ensure that calls are in a model turn and function responses in a user turn.")
        if "parts" in part.get("functionResponse", {}) and not signs(model):
            refuse("Multimodal function response is not supported for this model.")
        if "thoughtSignature" in part:
            excused = is_placeholder(part) and "functionCall" in part and signs(model)
            if role != "model" or not (excused or is_own(part)):
                refuse("Corrupted thought signature.")
    first = next((part for part in content["parts"] if "functionCall" in part), None)
    if first is not None and "thoughtSignature" not in first and signs(model):
        refuse("Function call is missing a thought_signature in functionCall parts.")


def _check_pairs(content: dict[str, Any], speaker_before: str, dialogue: Dialogue) -> None:
    """The responses to one content's calls are all in the next one."""
    for part in content["parts"]:
        if "functionResponse" in part:
            dialogue.result(part["functionResponse"].get("id", ""), part["functionResponse"]["name"])
    dialogue.close()
    for part in content["parts"]:
        if "functionCall" in part:
            if speaker_before != "user":
                refuse("Please ensure that function call turn comes immediately after a user turn.")
            dialogue.call(part["functionCall"].get("id", ""), part["functionCall"]["name"])
