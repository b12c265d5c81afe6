"""The closed shapes of a request to Mistral's chat API: what its validator refuses with 422.

What is refused with 400, by the models' tokenizers, is in `rules`: order, pairs, ids, names and what is empty.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from tests.emulators.models.shapes import Shape


class TextChunk(Shape):
    type: Literal["text"]
    text: str


class ImageUrl(Shape):
    also = "detail"
    url: str


class ImageChunk(Shape):
    type: Literal["image_url"]
    image_url: str | ImageUrl


class Thought(Shape):
    also = "type"
    text: str


class ThinkingChunk(Shape):
    also = "signature"
    type: Literal["thinking"]
    thinking: list[Thought]
    closed: bool = True


class Message(Shape):
    content: str | list[Annotated[TextChunk | ImageChunk | ThinkingChunk, Field(discriminator="type")]]


class OtherMessage(Message):
    role: Literal["system", "user"]


class ToolMessage(Message):
    also = "tool_call_id"
    role: Literal["tool"]
    name: str | None = None


class CalledFunction(Shape):
    name: str
    arguments: str | dict[str, Any]


class Call(Shape):
    also = "id"
    type: Literal["function"] = "function"
    function: CalledFunction
    index: int = 0


class AssistantMessage(Shape):
    also = "prefix"
    role: Literal["assistant"]
    content: str | list[Annotated[TextChunk | ImageChunk | ThinkingChunk, Field(discriminator="type")]] | None = None
    tool_calls: list[Call] | None = Field(default=None, min_length=1)


class Function(Shape):
    name: str
    description: str = ""
    parameters: dict[str, Any]
    strict: bool = False


class Tool(Shape):
    type: Literal["function"]
    function: Function


class NamedFunction(Shape):
    name: str


class NamedChoice(Shape):
    type: Literal["function"] = "function"
    function: NamedFunction


class Request(Shape):
    also = (
        "min_tokens stop top_p top_k metadata response_format presence_penalty frequency_penalty repetition_penalty "
        "logprobs top_logprobs prompt_logprobs top_prompt_logprobs prediction reasoning_effort prompt_mode guardrails "
        "prompt_cache_key service_tier"
    )
    model: str
    messages: list[Annotated[OtherMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]]
    tools: list[Tool] | None = Field(default=None, min_length=1)
    tool_choice: Literal["auto", "none", "any", "required"] | NamedChoice = "auto"
    max_tokens: int | None = Field(default=None, ge=0)
    n: int | None = None
    random_seed: int | None = None
    temperature: float | None = Field(default=None, ge=0, le=1.5)
    stream: bool = False
    parallel_tool_calls: bool = False
    safe_prompt: bool = False
