"""What Gemini's API refuses, as pure functions: the request around the contents.

The emulator asks here before it answers, and tests ask directly. A refusal carries the real status and wording, as far
as they are known. The rules of the contents are in `content_rules`, those of schemas in `schema_rules`.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

import orjson

from agents.providers.gemini.request import always_thinks, signs
from agents.providers.models import facts_of
from tests.emulators.models.gemini.content_rules import check_contents
from tests.emulators.models.gemini.part_rules import check_name
from tests.emulators.models.gemini.refusals import closed, flag, listed, number, one_of, refuse, text, unset
from tests.emulators.models.gemini.schema_rules import check_json_schema, check_schema
from tests.emulators.models.server import Refusal

BODY_BYTES_MAX = 20 * 1024 * 1024
VERSIONS = frozenset({"v1", "v1beta", "v1alpha"})

_MEMBERS = frozenset(
    {
        "model",
        "contents",
        "systemInstruction",
        "tools",
        "toolConfig",
        "generationConfig",
        "safetySettings",
        "cachedContent",
        "serviceTier",
        "store",
    }
)
_TOOL_MEMBERS = frozenset(
    {"functionDeclarations", "googleSearch", "googleSearchRetrieval", "codeExecution", "urlContext", "computerUse"}
    | {"fileSearch", "googleMaps", "mcpServers"}
)
_DECLARATION_MEMBERS = frozenset(
    {"name", "description", "behavior", "parameters", "parametersJsonSchema", "response", "responseJsonSchema"}
)
_SAMPLING = frozenset({"temperature", "topP", "topK", "presencePenalty", "frequencyPenalty", "seed"})
_GENERATION_MEMBERS = _SAMPLING | {
    "candidateCount",
    "maxOutputTokens",
    "stopSequences",
    "responseLogprobs",
    "logprobs",
    "responseMimeType",
    "responseSchema",
    "responseJsonSchema",
    "responseModalities",
    "mediaResolution",
    "speechConfig",
    "imageConfig",
    "thinkingConfig",
}
_MODES = frozenset({"MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED"})
_LEVELS = frozenset({"THINKING_LEVEL_UNSPECIFIED", "MINIMAL", "LOW", "MEDIUM", "HIGH", "XHIGH"})
_BUDGETS = {True: (128, 32_768), False: (0, 24_576)}
"""Least and most, by whether the model always thinks."""


def check_key(headers: Mapping[str, str], api_key: str | None = None) -> None:
    """Raises `Refusal`. Names in lower case; with `api_key` only that key is let in."""
    key = headers.get("x-goog-api-key", "")
    if not key.strip():
        raise Refusal(
            403,
            "PERMISSION_DENIED",
            "Method doesn't allow unregistered callers (callers without established identity). Please use API Key or "
            "other form of API consumer identity to call this API.",
        )
    if api_key is not None and key != api_key:
        message = "API key not valid. Please pass a valid API key."
        raise Refusal(400, "INVALID_ARGUMENT", message, code="API_KEY_INVALID")
    if not headers.get("content-type", "").startswith("application/json"):
        refuse("Invalid JSON payload received. Expected content-type application/json.")


def check_call(path: str, is_model: Callable[[str], bool] = lambda name: name.startswith("gemini-")) -> str:
    """The model that the path asks. Raises `Refusal` for a method or a model that there is not."""
    version, _, call = unquote(path).lstrip("/").partition("/models/")
    model, _, method = call.rpartition(":")
    if version not in VERSIONS:
        raise Refusal(404, "NOT_FOUND", f"Version {version} not found.")
    if method not in ("streamGenerateContent", "generateContent"):
        raise Refusal(404, "NOT_FOUND", f"Method {method} not found.")
    if not is_model(model):
        raise Refusal(
            404,
            "NOT_FOUND",
            f"models/{model} is not found for API version v1beta, or is not supported for generateContent. Call "
            "ListModels to see the list of available models and their supported methods.",
        )
    return model


def parse_body(raw: bytes) -> dict[str, Any]:
    """The body as an object. Raises `Refusal` for what is too large or no strict JSON, half an emoji included."""
    if len(raw) > BODY_BYTES_MAX:
        refuse(f"Request payload size exceeds the limit: {BODY_BYTES_MAX} bytes.")
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        refuse(f"Invalid JSON payload received. {error}")
    if not isinstance(body, dict):
        refuse('Invalid JSON payload received. Unknown name "": Root element must be a message.')
    return body


def check_body(body: dict[str, Any], model: str) -> None:
    """Everything about a parsed request. Raises `Refusal`."""
    closed(body, _MEMBERS, "")
    _check_system(body)
    names = _check_tools(body)
    _check_tool_config(body, names)
    _check_generation(body, model)
    if "contents" not in body:
        unset("contents", "contents is not specified")
    check_contents(body["contents"], model)


def _check_system(body: dict[str, Any]) -> None:
    if "systemInstruction" not in body:
        return
    closed(body["systemInstruction"], {"role", "parts"}, "systemInstruction")
    parts = listed(body["systemInstruction"].get("parts", []), "systemInstruction.parts")
    if not parts:
        unset("systemInstruction.parts", "must not be empty.")
    for place, part in enumerate(parts):
        path = f"systemInstruction.parts[{place}]"
        closed(part, {"text"}, path)
        if not text(part.get("text"), f"{path}.text").strip():
            unset(f"{path}.data", "required oneof field 'data' must have one initialized field")


def _check_tools(body: dict[str, Any]) -> list[str]:
    names: list[str] = []
    if "tools" not in body:
        return names
    if not listed(body["tools"], "tools"):
        unset("tools", "must not be empty.")
    for number_, tool in enumerate(body["tools"]):
        closed(tool, _TOOL_MEMBERS, f"tools[{number_}]")
        if not tool:
            unset(f"tools[{number_}].toolType", "required one_of 'tool_type' must have one initialized field")
        if "functionDeclarations" in tool:
            path = f"tools[{number_}].functionDeclarations"
            if not listed(tool["functionDeclarations"], path):
                unset(path, "must not be empty.")
            for place, declaration in enumerate(tool["functionDeclarations"]):
                names.append(_declared(declaration, f"{path}[{place}]"))
    if twice := next((name for name in names if names.count(name) > 1), None):
        refuse(f"Duplicate function declaration found: {twice}")
    return names


def _declared(declaration: Any, path: str) -> str:
    closed(declaration, _DECLARATION_MEMBERS, path)
    check_name(declaration, path)
    text(declaration.get("description", ""), f"{path}.description")
    if "parameters" in declaration and "parametersJsonSchema" in declaration:
        unset(path, "only one of parameters and parameters_json_schema may be set.")
    if "parameters" in declaration:
        check_schema(declaration["parameters"], f"{path}.parameters", root=True)
    if "parametersJsonSchema" in declaration:
        check_json_schema(declaration["parametersJsonSchema"], f"{path}.parametersJsonSchema")
    return str(declaration["name"])


def _check_tool_config(body: dict[str, Any], names: list[str]) -> None:
    if "toolConfig" not in body:
        return
    closed(body["toolConfig"], {"functionCallingConfig", "retrievalConfig"}, "toolConfig")
    config = body["toolConfig"].get("functionCallingConfig")
    if config is None:
        return
    path = "toolConfig.functionCallingConfig"
    closed(config, {"mode", "allowedFunctionNames"}, path)
    if not names:
        refuse("Function calling config is set without function_declarations.")
    mode = one_of(config.get("mode", "AUTO"), _MODES, f"{path}.mode", "FunctionCallingConfig.Mode")
    allowed = listed(config.get("allowedFunctionNames", []), f"{path}.allowedFunctionNames")
    if "allowedFunctionNames" in config:
        if mode not in ("ANY", "VALIDATED"):
            refuse("Please set allowed_function_names only when function calling mode is ANY.")
        if not allowed:
            unset(f"{path}.allowedFunctionNames", "must not be empty.")
    for name in allowed:
        if name not in names:
            refuse(f"allowed_function_names contains a name that no function declaration has: {name}")


def _refuses_sampling(model: str) -> bool:
    return re.match(r"gemini-(?![123](?:\.|-|$))\d", model.rpartition("/")[2]) is not None


def _check_generation(body: dict[str, Any], model: str) -> None:
    config = body.get("generationConfig", {})
    closed(config, _GENERATION_MEMBERS, "generationConfig")
    if _refuses_sampling(model) and (sampling := next((name for name in config if name in _SAMPLING), None)):
        refuse(f"{sampling} is not supported for this model.")
    if "maxOutputTokens" in config:
        limit = number(config["maxOutputTokens"], "generationConfig.maxOutputTokens")
        facts = facts_of(model)
        most = facts.max_output if facts.known else 1_048_576
        if not 1 <= limit <= most:
            refuse(
                f"Unable to submit request because it has a maxOutputTokens value of {limit} but the supported range "
                f"is from 1 (inclusive) to {most + 1} (exclusive). Update the value and try again."
            )
    if "thinkingConfig" in config:
        _check_thinking(config["thinkingConfig"], model)


def _check_thinking(config: Any, model: str) -> None:
    path = "generationConfig.thinkingConfig"
    closed(config, {"includeThoughts", "thinkingBudget", "thinkingLevel"}, path)
    flag(config.get("includeThoughts", False), f"{path}.includeThoughts")
    if "thinkingBudget" in config and "thinkingLevel" in config:
        refuse("You can only set only one of thinking budget and thinking level.")
    if "thinkingLevel" in config:
        one_of(config["thinkingLevel"], _LEVELS, f"{path}.thinkingLevel", "ThinkingConfig.ThinkingLevel")
        if not signs(model):
            refuse("Thinking level is not supported for this model.")
    if "thinkingBudget" in config:
        budget = number(config["thinkingBudget"], f"{path}.thinkingBudget")
        if signs(model):
            refuse("Thinking budget is not supported for this model.")
        least, most = _BUDGETS[always_thinks(model)]
        if budget == 0 and least:
            refuse("Budget 0 is invalid. This model only works in thinking mode.")
        if budget != -1 and not least <= budget <= most:
            refuse(f"The thinking budget {budget} is invalid. Please choose a value between {least} and {most}.")
        if budget == 0 and config.get("includeThoughts"):
            refuse("Unable to submit request because Include_thoughts is only enabled when thinking is enabled.")
