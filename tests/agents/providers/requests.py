"""Requests that the tests of the providers share, and the way to collect a stream."""

from collections.abc import Sequence
from typing import Any

from agents.messages import AssistantMessage, AssistantPart, Message, Text, ToolCall, ToolResultMessage, UserMessage
from agents.providers.models import facts_of
from agents.providers.provider import Done, ModelEvent, ModelRequest, Provider, System, ToolChoice
from tools.tool import ToolSpec

MODEL = "claude-sonnet-4-6"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

LS = ToolSpec(
    name="ls",
    summary="list a folder",
    description="List a folder.",
    input_schema={
        "type": "object",
        "properties": {"path": {"type": "string", "description": "The folder."}},
        "required": [],
        "additionalProperties": False,
    },
)
READ = ToolSpec(name="read", summary="read a file", description="Read a file.", input_schema=LS.input_schema)
WRITE = ToolSpec(name="write", summary="write a file", description="Write a file.", input_schema=LS.input_schema)


def user(text: str, metadata: str = "") -> UserMessage:
    return UserMessage(content=(Text(text=text),), metadata=metadata)


def assistant(*parts: AssistantPart) -> AssistantMessage:
    called = any(isinstance(part, ToolCall) for part in parts)
    return AssistantMessage(
        content=parts,
        provider="anthropic",
        model=MODEL,
        api="anthropic-messages",
        stop_reason="tool_use" if called else "end_turn",
    )


def call(call_id: str, name: str = "ls") -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments={"path": "."}, arguments_raw='{"path": "."}')


def result(call_id: str, text: str = "README.md", *, is_error: bool = False) -> ToolResultMessage:
    return ToolResultMessage(call_id=call_id, tool="ls", content=(Text(text=text),), is_error=is_error)


def asking(
    *messages: Message,
    tools: Sequence[ToolSpec] = (LS,),
    model: str = MODEL,
    tool_choice: ToolChoice = "auto",
    system: System | None = None,
) -> ModelRequest:
    return ModelRequest(
        model=model,
        facts=facts_of(model),
        system=system or System(stable="You are a helper.", volatile="## Runtime\nagent=coder"),
        messages=messages or (user("hello"),),
        tools=tuple(tools),
        tool_choice=tool_choice,
        max_tokens=1024,
    )


def without(body: dict[str, Any], member: str) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key != member}


async def collect(provider: Provider, request: ModelRequest) -> tuple[list[ModelEvent], AssistantMessage]:
    """Everything before `Done`, and the message in it."""
    events = [event async for event in provider.stream(request)]
    *pieces, done = events
    assert isinstance(done, Done)
    assert not any(isinstance(piece, Done) for piece in pieces)
    return pieces, done.message
