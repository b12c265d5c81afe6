"""The closed shapes of a request to Gemini's API, in camel case.

The server takes the names of members in two spellings, and Google's own SDK mixes them: `respelt` brings a message into
the one that the shapes know.
"""

import re
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import ConfigDict, Field, StringConstraints, model_validator
from pydantic.alias_generators import to_camel

from agents.providers.gemini import SPOKEN_IMAGES
from tests.emulators.models.gemini.signature import decoded
from tests.emulators.models.shapes import IMAGE_HEADS, Shape, is_pdf

Name: TypeAlias = Annotated[str, StringConstraints(pattern="^[A-Za-z_][A-Za-z0-9_.:-]{0,127}$")]
TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object"})
FORMATS = {
    "string": frozenset({"date-time", "enum"}),
    "number": frozenset({"float", "double"}),
    "integer": frozenset({"int32", "int64"}),
}
_OWN = frozenset({"args", "response", "parametersJsonSchema", "responseJsonSchema", "partMetadata", "default"})
"""Members whose values are not the protocol's but somebody's own."""


def respelt(value: Any) -> Any:
    """The same message with the members' names in camel case; what a tool or a person named stays as it is."""
    if isinstance(value, list):
        return [respelt(item) for item in value]
    if not isinstance(value, dict):
        return value
    respelled: dict[str, Any] = {}
    for name, member in value.items():
        name = re.sub(r"(?<=[a-z])_([a-z])", lambda match: match[1].upper(), name)
        if name == "properties" and isinstance(member, dict):
            respelled[name] = {key: respelt(inner) for key, inner in member.items()}
        else:
            respelled[name] = member if name in _OWN else respelt(member)
    return respelled


class CamelShape(Shape):
    model_config = ConfigDict(alias_generator=to_camel)
    nulls = False


class Blob(CamelShape):
    mime_type: str
    data: str

    @model_validator(mode="after")
    def _is_an_image(self) -> "Blob":
        raw = decoded(self.data)
        if self.mime_type == "application/pdf" and is_pdf(self.data):
            return self
        if not raw or self.mime_type not in SPOKEN_IMAGES or not raw.startswith(IMAGE_HEADS.get(self.mime_type, b"")):
            raise ValueError("Unable to process input image, or unsupported MIME type.")
        return self


class ResponsePart(CamelShape):
    also = "fileData"
    inline_data: Blob


class FunctionCall(CamelShape):
    also = "args"
    id: str = ""
    name: Name


class FunctionResponse(CamelShape):
    also = "willContinue scheduling"
    id: str = ""
    name: Name
    response: dict[str, Any]
    parts: list[ResponsePart] = Field(default=[], min_length=1)


class Part(CamelShape):
    also = (
        "fileData executableCode codeExecutionResult toolCall toolResponse videoMetadata mediaResolution partMetadata"
    )
    text: str = ""
    inline_data: Blob | None = None
    function_call: FunctionCall | None = None
    function_response: FunctionResponse | None = None
    thought: bool = False
    thought_signature: str = ""


class Content(CamelShape):
    role: Literal["user", "model"] = "user"
    parts: list[Part] = Field(min_length=1)


class SystemPart(CamelShape):
    text: str = Field(pattern=r"\S")


class SystemInstruction(CamelShape):
    also = "role"
    parts: list[SystemPart] = Field(min_length=1)


class Schema(CamelShape):
    """The server's own dialect."""

    also = "additionalProperties propertyOrdering default example pattern defs minimum maximum"
    type: str = ""
    format: str = ""
    title: str = ""
    description: str = ""
    nullable: bool = False
    enum: list[Annotated[str, StringConstraints(min_length=1)]] = Field(default=[], min_length=1)
    items: "Schema | None" = None
    prefix_items: list[Any] = Field(default=[])
    properties: "dict[str, Schema]" = Field(default={})
    required: list[str] = Field(default=[])
    any_of: "list[Schema]" = Field(default=[])
    one_of: "list[Schema]" = Field(default=[])
    ref: Any = None
    min_items: int = 0
    max_items: int = 0
    min_length: int = 0
    max_length: int = 0
    min_properties: int = 0
    max_properties: int = 0

    @model_validator(mode="after")
    def _fits_its_type(self) -> "Schema":
        kind = self.type.lower()
        sound = {
            "a type": (kind in TYPES or kind == "null") and self.type in (kind, kind.upper()),
            "enum only with strings": not self.enum or kind == "string",
            "a format of the type": not self.format or self.format in FORMATS.get(kind, ()),
            "items of an array": kind != "array" or bool(self.items or self.prefix_items),
            "properties of an object alone": bool(self.properties) == (kind == "object"),
            "required properties that are there": kind != "object" or set(self.required) <= self.properties.keys(),
        }
        choice = not self.type and bool({"any_of", "one_of", "ref"} & self.model_fields_set)
        if not choice and (missing := next((name for name, holds in sound.items() if not holds), None)):
            raise ValueError(f"a schema has {missing}")
        return self


class Declaration(CamelShape):
    also = "behavior response responseJsonSchema"
    name: Name
    description: str = ""
    parameters: Schema | None = None
    parameters_json_schema: dict[str, Any] = Field(default={"type": "object"})


class Tool(CamelShape):
    also = "googleSearch googleSearchRetrieval codeExecution urlContext computerUse fileSearch googleMaps mcpServers"
    function_declarations: list[Declaration] = Field(default=[], min_length=1)


class FunctionCallingConfig(CamelShape):
    mode: Literal["MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED"] = "AUTO"
    allowed_function_names: list[str] = Field(default=[], min_length=1)


class ToolConfig(CamelShape):
    also = "retrievalConfig"
    function_calling_config: FunctionCallingConfig | None = None


class ThinkingConfig(CamelShape):
    include_thoughts: bool = False
    thinking_budget: int = 0
    thinking_level: Literal["THINKING_LEVEL_UNSPECIFIED", "MINIMAL", "LOW", "MEDIUM", "HIGH", "XHIGH"] = "LOW"


class GenerationConfig(CamelShape):
    also = (
        "temperature topP topK presencePenalty frequencyPenalty seed candidateCount stopSequences responseLogprobs "
        "logprobs responseMimeType responseSchema responseJsonSchema responseModalities mediaResolution speechConfig "
        "imageConfig"
    )
    max_output_tokens: int = 1
    thinking_config: ThinkingConfig | None = None


class Request(CamelShape):
    also = "model safetySettings cachedContent serviceTier store"
    contents: list[Content] = Field(min_length=1)
    system_instruction: SystemInstruction | None = None
    tools: list[Tool] = Field(default=[], min_length=1)
    tool_config: ToolConfig | None = None
    generation_config: GenerationConfig | None = None
