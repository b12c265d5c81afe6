"""The closed shapes of a request to OpenAI's Responses API. What may be left out may be null."""

import re
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Discriminator, Field, StringConstraints, Tag, model_validator

from agents.providers.models import LEVELS
from tests.emulators.models.shapes import Shape, is_image

IMAGE_CHARS_MAX = 50 * 1024 * 1024

CallId: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=64)]
Name: TypeAlias = Annotated[str, StringConstraints(max_length=64, pattern="^[a-zA-Z0-9_-]+$")]
Words: TypeAlias = Annotated[str, StringConstraints(min_length=1)]


class InputText(Shape):
    also = "prompt_cache_breakpoint"
    type: Literal["input_text"]
    text: Words


class InputImage(Shape):
    also = "prompt_cache_breakpoint"
    type: Literal["input_image"]
    image_url: str = Field(default="", max_length=IMAGE_CHARS_MAX)
    file_id: str = ""
    detail: Literal["low", "high", "auto", "original"] | None = None

    @model_validator(mode="after")
    def _is_an_image(self) -> "InputImage":
        media_type, _, data = self.image_url.removeprefix("data:").partition(";base64,")
        elsewhere = "file_id" in self.model_fields_set or re.match(r"https?://\S", self.image_url)
        if not elsewhere and not is_image(media_type, data):
            raise ValueError("The image data you provided does not represent a valid image.")
        return self


class InputFile(Shape):
    also = "file_data file_url filename detail prompt_cache_breakpoint"
    type: Literal["input_file"]
    file_id: str = ""


class OutputText(Shape):
    also = "annotations logprobs"
    type: Literal["output_text"]
    text: Words


class Refused(Shape):
    type: Literal["refusal"]
    refusal: Words


InputParts: TypeAlias = Annotated[
    list[Annotated[InputText | InputImage | InputFile, Field(discriminator="type")]], Field(min_length=1)
]
OutputParts: TypeAlias = Annotated[
    list[Annotated[OutputText | Refused, Field(discriminator="type")]], Field(min_length=1)
]


class Item(Shape):
    id: str = Field(default="", max_length=64)
    status: Literal["in_progress", "completed", "incomplete"] | None = None


class Message(Item):
    type: Literal["message"] = "message"
    role: Literal["user", "system", "developer"]
    content: Words | InputParts


class AssistantMessage(Item):
    type: Literal["message"] = "message"
    id: str = Field(default="msg", max_length=64, pattern="^msg")
    role: Literal["assistant"]
    content: Words | OutputParts
    phase: Literal["commentary", "final_answer"] | None = None


class Summary(Shape):
    also = "type"
    text: str


class Reasoning(Item):
    also = "content"
    type: Literal["reasoning"]
    id: str = Field(max_length=64, pattern="^rs")
    summary: list[Summary]
    encrypted_content: str | None = None


class FunctionCall(Item):
    also = "namespace caller async"
    type: Literal["function_call"]
    id: str = Field(default="fc", max_length=64, pattern="^fc")
    call_id: CallId
    name: Name
    arguments: str


class FunctionCallOutput(Item):
    type: Literal["function_call_output"]
    id: str = Field(default="fc", max_length=64, pattern="^fc")
    call_id: CallId
    output: str | InputParts


class ItemReference(Shape):
    type: Literal["item_reference"]
    id: str = ""


def kind_of(item: Any) -> str:
    """A message need not say that it is one."""
    if not isinstance(item, dict):
        return "None"
    kind = str(item.get("type", "message" if "role" in item else None))
    return "assistant" if kind == "message" and item.get("role") == "assistant" else kind


AnyItem: TypeAlias = Annotated[
    Annotated[Message, Tag("message")]
    | Annotated[AssistantMessage, Tag("assistant")]
    | Annotated[Reasoning, Tag("reasoning")]
    | Annotated[FunctionCall, Tag("function_call")]
    | Annotated[FunctionCallOutput, Tag("function_call_output")]
    | Annotated[ItemReference, Tag("item_reference")],
    Discriminator(kind_of),
]


class Tool(Shape):
    also = "defer_loading parameters"
    type: Literal["function"]
    name: Name
    description: str | None = None
    strict: bool | None = None


class NamedChoice(Shape):
    type: Literal["function"]
    name: str


class AllowedTool(Shape):
    type: Literal["function"] = "function"
    name: str


class AllowedTools(Shape):
    mode: Literal["auto", "required"] = "auto"
    type: Literal["allowed_tools"]
    tools: list[AllowedTool] = Field(min_length=1)


class ReasoningOptions(Shape):
    also = "generate_summary mode"
    effort: Literal["none", *LEVELS[1:]] | None = None  # type: ignore[valid-type]
    summary: Literal["auto", "concise", "detailed"] | None = None
    context: Literal["auto", "current_turn", "all_turns"] | None = None


Include: TypeAlias = Literal[
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
]
MetadataKey: TypeAlias = Annotated[str, StringConstraints(max_length=64)]
MetadataValue: TypeAlias = Annotated[str, StringConstraints(max_length=512)]


class Request(Shape):
    also = (
        "prompt_cache_options prompt_cache_retention user text stream_options service_tier max_tool_calls "
        "context_management top_logprobs previous_response_id conversation prompt moderation"
    )
    model: str
    input: str | list[AnyItem] | None = None
    instructions: str | None = None
    tools: list[Tool] | None = Field(default=None, min_length=1)
    tool_choice: Literal["none", "auto", "required"] | NamedChoice | AllowedTools | None = None
    max_output_tokens: int | None = Field(default=None, ge=16)
    reasoning: ReasoningOptions | None = None
    include: list[Include] | None = None
    metadata: dict[MetadataKey, MetadataValue] | None = Field(default=None, max_length=16)
    prompt_cache_key: str | None = Field(default=None, max_length=64)
    safety_identifier: str | None = Field(default=None, max_length=128)
    truncation: Literal["auto", "disabled"] | None = None
    temperature: float | None = None
    top_p: float | None = None
    parallel_tool_calls: bool | None = None
    store: bool | None = None
    stream: bool | None = None
    background: bool | None = None
