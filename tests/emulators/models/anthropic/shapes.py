"""The closed shapes of a request to Anthropic's Messages API.

Thinking is checked against `signature_of`, with which the emulator signs what it thinks: changed by a byte, it is
refused as the real one refuses it.
"""

import base64
import hashlib
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, StringConstraints, model_validator

from tests.emulators.models.shapes import Shape, is_image, is_pdf

IMAGE_CHARS_MAX = 5 * 1024 * 1024

Id: TypeAlias = Annotated[str, StringConstraints(pattern="^[a-zA-Z0-9_-]+$")]
Name: TypeAlias = Annotated[str, StringConstraints(pattern="^[a-zA-Z0-9_-]{1,128}$")]
Words: TypeAlias = Annotated[str, StringConstraints(pattern=r"\S")]


def signature_of(thinking: str) -> str:
    """The emulator's signature of a thinking text."""
    return base64.b64encode(hashlib.sha256(b"emulated:" + thinking.encode()).digest()).decode()


class Mark(Shape):
    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] = "5m"


class Marked(Shape):
    cache_control: Mark | None = None


class TextBlock(Marked):
    also = "citations"
    type: Literal["text"]
    text: Words


class Base64Source(Shape):
    type: Literal["base64"]
    media_type: Literal["image/png", "image/jpeg", "image/gif", "image/webp"]
    data: str = Field(max_length=IMAGE_CHARS_MAX)

    @model_validator(mode="after")
    def _is_what_it_says(self) -> "Base64Source":
        if not is_image(self.media_type, self.data):
            raise ValueError(f"data must be plain base64 of an image of type {self.media_type}")
        return self


class OtherSource(Shape):
    also = "url file_id"
    type: Literal["url", "file"]


class ImageBlock(Marked):
    type: Literal["image"]
    source: Annotated[Base64Source | OtherSource, Field(discriminator="type")]


class PdfSource(Shape):
    type: Literal["base64"]
    media_type: Literal["application/pdf"]
    data: str

    @model_validator(mode="after")
    def _is_a_pdf(self) -> "PdfSource":
        if not is_pdf(self.data):
            raise ValueError("The PDF specified was not valid.")
        return self


class DocumentBlock(Marked):
    also = "context citations"
    type: Literal["document"]
    source: Annotated[PdfSource | OtherSource, Field(discriminator="type")]
    title: Annotated[str, Field(min_length=1, max_length=500)] | None = None


class SearchBlock(Marked):
    also = "source citations content"
    type: Literal["search_result"]
    title: str = ""


class UseBlock(Marked):
    also = "caller"
    type: Literal["tool_use"]
    id: Id
    name: Name
    input: dict[str, Any]


class ResultBlock(Marked):
    type: Literal["tool_result"]
    tool_use_id: Id
    content: (
        str | list[Annotated[TextBlock | ImageBlock | DocumentBlock | SearchBlock, Field(discriminator="type")]]
    ) = ""
    is_error: bool = False

    @model_validator(mode="after")
    def _an_error_is_text(self) -> "ResultBlock":
        if self.is_error and not self.content:
            raise ValueError("content cannot be empty if `is_error` is true")
        if self.is_error and not isinstance(self.content, str) and any(it.type != "text" for it in self.content):
            raise ValueError('all content must be type "text" if "is_error" is true')
        return self


class ThinkingBlock(Shape):
    type: Literal["thinking"]
    thinking: str
    signature: str = Field(min_length=1)

    @model_validator(mode="after")
    def _is_signed(self) -> "ThinkingBlock":
        if self.signature != signature_of(self.thinking):
            raise ValueError("Invalid `signature` in `thinking` block")
        return self


class RedactedBlock(Shape):
    type: Literal["redacted_thinking"]
    data: str = Field(min_length=1)


class ServerBlock(Marked):
    also = "caller tool_use_id content"
    type: Literal["server_tool_use", "web_search_tool_result"]
    id: str = ""
    name: str = ""
    input: dict[str, Any] = Field(default={})


UserBlock: TypeAlias = Annotated[
    TextBlock | ImageBlock | DocumentBlock | SearchBlock | ResultBlock, Field(discriminator="type")
]
AssistantBlock: TypeAlias = Annotated[
    TextBlock | UseBlock | ThinkingBlock | RedactedBlock | ServerBlock, Field(discriminator="type")
]


class UserMessage(Shape):
    role: Literal["user"]
    content: Words | Annotated[list[UserBlock], Field(min_length=1)]


class AssistantMessage(Shape):
    role: Literal["assistant"]
    content: Annotated[str, StringConstraints(pattern=r"^$|\S")] | list[AssistantBlock]


class Tool(Marked):
    also = "strict input_examples eager_input_streaming defer_loading"
    type: Literal["custom"] = "custom"
    name: Name
    description: str = ""
    input_schema: dict[str, Any]


class AnyChoice(Shape):
    type: Literal["auto", "any"]
    disable_parallel_tool_use: bool = False


class ToolChoice(Shape):
    type: Literal["tool"]
    name: str
    disable_parallel_tool_use: bool = False


class NoChoice(Shape):
    type: Literal["none"]


class Budget(Shape):
    type: Literal["enabled"]
    budget_tokens: int = Field(ge=1024)
    display: Literal["summarized", "omitted"] = "summarized"


class Adaptive(Shape):
    type: Literal["adaptive"]
    display: Literal["summarized", "omitted"] = "summarized"


class Switch(Shape):
    type: Literal["disabled", "between_tools"]


class Output(Shape):
    also = "format"
    effort: Literal["low", "medium", "high", "xhigh", "max"] = "high"


class Metadata(Shape):
    user_id: str = ""


class Request(Marked):
    """Sampling is left out: today's models refuse `temperature`, `top_p` and `top_k`."""

    also = "service_tier inference_geo container diagnostics speed"
    model: str = Field(min_length=1)
    max_tokens: int = Field(ge=0)
    messages: list[Annotated[UserMessage | AssistantMessage, Field(discriminator="role")]] = Field(
        min_length=1, max_length=100_000
    )
    system: str | list[TextBlock] = ""
    tools: list[Tool] = Field(default=[], min_length=1)
    tool_choice: AnyChoice | ToolChoice | NoChoice | None = Field(default=None, discriminator="type")
    thinking: Budget | Adaptive | Switch | None = Field(default=None, discriminator="type")
    output_config: Output = Output()
    metadata: Metadata = Metadata()
    stop_sequences: list[Words] = Field(default=[])
    stream: bool = False
