"""The closed shapes of a request to OpenAI's Chat Completions. Servers that speak like it leave some of them open."""

import hashlib
import json
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, StringConstraints, model_validator

from tests.emulators.models.shapes import Open, Shape, is_image

Name: TypeAlias = Annotated[str, StringConstraints(max_length=64, pattern="^[a-zA-Z0-9_-]+$")]
Words: TypeAlias = Annotated[str, StringConstraints(min_length=1)]


def signature_of(entry: dict[str, Any]) -> str:
    """The emulator's signature of everything else in an entry of OpenRouter's `reasoning_details`."""
    rest = {key: value for key, value in entry.items() if key != "signature"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


class TextPart(Shape):
    also = "cache_control"
    type: Literal["text"]
    text: Words


class RefusalPart(Shape):
    also = "cache_control"
    type: Literal["refusal"]
    refusal: Words


class ImageUrl(Shape):
    url: str
    detail: Literal["auto", "low", "high"] = "auto"

    @model_validator(mode="after")
    def _is_an_image(self) -> "ImageUrl":
        media_type, _, data = self.url.removeprefix("data:").partition(";base64,")
        if not self.url.startswith(("https://", "http://")) and not is_image(media_type, data):
            raise ValueError("The image data you provided does not represent a valid image.")
        return self


class ImagePart(Shape):
    type: Literal["image_url"]
    image_url: ImageUrl


class CalledFunction(Shape):
    name: Name
    arguments: str


class Call(Shape):
    id: Words
    type: Literal["function"]
    function: CalledFunction


class Message(Open):
    name: str = Field(default="x", pattern=r"^[^\s<|\\/>]{1,64}$")


class SystemMessage(Message):
    role: Literal["system", "developer"]
    content: Words | Annotated[list[TextPart], Field(min_length=1)]


class UserMessage(Message):
    role: Literal["user"]
    content: Words | Annotated[list[Annotated[TextPart | ImagePart, Field(discriminator="type")]], Field(min_length=1)]


class ToolMessage(Open):
    role: Literal["tool"]
    tool_call_id: Words
    content: Words | Annotated[list[TextPart], Field(min_length=1)]


class AssistantMessage(Message):
    """What servers want to see again of their reasoning differs."""

    also = "refusal audio reasoning_content reasoning reasoning_details"
    role: Literal["assistant"]
    content: (
        str
        | Annotated[list[Annotated[TextPart | RefusalPart, Field(discriminator="type")]], Field(min_length=1)]
        | None
    ) = None
    tool_calls: list[Call] = Field(default=[], min_length=1)


class Function(Open):
    also = "strict"
    name: Name
    description: str = ""
    parameters: dict[str, Any] = Field(default={})


class Tool(Open):
    type: Literal["function"]
    function: Function


class NamedFunction(Open):
    name: str


class NamedChoice(Open):
    type: Literal["function"]
    function: NamedFunction


class StreamOptions(Shape):
    include_usage: bool = False
    include_obfuscation: bool = False


class Request(Open):
    also = (
        "audio frequency_penalty function_call functions logit_bias logprobs metadata modalities moderation n "
        "prediction presence_penalty prompt_cache_options prompt_cache_retention reasoning_effort "
        "response_format safety_identifier seed service_tier stop store temperature top_logprobs top_p user verbosity "
        "web_search_options"
    )
    model: str
    messages: list[
        Annotated[SystemMessage | UserMessage | ToolMessage | AssistantMessage, Field(discriminator="role")]
    ] = Field(min_length=1)
    tools: list[Tool] = Field(default=[], min_length=1, max_length=128)
    tool_choice: Literal["none", "auto", "required"] | NamedChoice = "auto"
    max_tokens: int = Field(default=1, ge=1)
    max_completion_tokens: int = Field(default=1, ge=1)
    parallel_tool_calls: bool = True
    prompt_cache_key: str = Field(default="", max_length=64)
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
