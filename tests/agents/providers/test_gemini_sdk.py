"""Google's own SDK as the judge: it knows every member that we send, and understands every chunk of our emulator."""

import json
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from agents.messages import Text, ToolCall, ToolResultMessage, UserMessage
from agents.providers.gemini.request import wire_request
from agents.providers.models import Level
from agents.providers.provider import ModelRequest, OneTool
from tests.agents.providers.requests import LS, PIXEL, READ, asking, assistant, call, result, user
from tests.emulators.models.gemini.emulator import GeminiEmulator
from tests.emulators.models.script import Call, Fault, Say, Think, Turn, says
from tests.loopback import serve_on_loopback
from tools.tool import Image, ToolSpec

MODEL = "gemini-3.1-pro-preview"
OLD = "gemini-2.5-flash"


@pytest.fixture
def genai() -> Iterator[Any]:
    """What the SDK warns of while it is imported and used is its own business."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from google import genai

        yield genai


def _requests() -> list[ModelRequest]:
    picture = Image(media_type="image/png", data=PIXEL)
    union = {"type": "object", "properties": {"x": {"type": ["string", "null"]}}, "required": []}
    rich = {
        "type": "object",
        "properties": {
            "kind": {"type": "string", "enum": ["a", "b"], "description": "Which."},
            "sizes": {"type": "array", "items": {"type": "number", "minimum": 0}, "minItems": 1, "maxItems": 3},
            "when": {"type": "string", "format": "date-time", "maxLength": 40, "pattern": "^2"},
        },
        "required": ["kind"],
        "additionalProperties": False,
    }
    tools = (
        LS,
        READ,
        ToolSpec(name="rich", summary="r", description="", input_schema=rich),
        ToolSpec(name="union", summary="u", description="", input_schema=union),
        ToolSpec(name="empty", summary="e", description="", input_schema={"type": "object", "properties": {}}),
    )
    seen = ToolResultMessage(call_id="a", tool="ls", content=(Text(text="see"), picture))
    history = (
        UserMessage(content=(picture, Text(text="go")), metadata="META"),
        assistant(Text(text="Looking."), call("a"), ToolCall(id="?", name="!", arguments=None, arguments_raw="{")),
        seen,
        result("?", "bad JSON", is_error=True),
        user("and?"),
    )
    levels: list[Level] = ["off", "low", "high"]
    return [
        *(asking(*history, model=model, tools=tools) for model in (MODEL, OLD)),
        *(asking(*history, model=model, tools=()) for model in (MODEL, OLD)),
        asking(model=MODEL, tools=tools, tool_choice=OneTool(name="ls")),
        asking(model=MODEL, tools=tools, tool_choice="required"),
        *(replace(asking(model=model), thinking=level, max_tokens=8192) for model in (MODEL, OLD) for level in levels),
    ]


@pytest.mark.parametrize("request_", _requests())
def test_the_sdk_knows_every_member_that_we_send(genai: Any, request_: ModelRequest) -> None:
    types = genai.types
    judges = {
        "contents": types.Content,
        "tools": types.Tool,
        "systemInstruction": types.Content,
        "toolConfig": types.ToolConfig,
        "generationConfig": types.GenerationConfig,
    }
    for name, value in wire_request(request_).items():
        for item in value if isinstance(value, list) else [value]:
            assert judges[name].model_validate_json(json.dumps(item))


def test_the_judge_is_strict(genai: Any) -> None:
    with pytest.raises(ValueError, match="Extra inputs"):
        genai.types.Content.model_validate_json('{"parts": [{"text": "x", "mood": "calm"}]}')


async def test_the_sdk_understands_our_emulator_and_its_replays_are_accepted(genai: Any) -> None:
    types = genai.types
    turn = Turn(
        parts=(Think(text="Let me look."), Say(text="Looking at it."), Call(name="ls", arguments={"path": "目录"}))
    )
    emulator = GeminiEmulator([turn, says("Done, and well.")])
    schema = types.Schema(type="OBJECT", properties={"path": types.Schema(type="STRING")})
    declaration = types.FunctionDeclaration(name="ls", description="List.", parameters=schema)
    config = types.GenerateContentConfig(
        tools=[types.Tool(function_declarations=[declaration])],
        system_instruction="Be kind.",
        max_output_tokens=99,
        thinking_config=types.ThinkingConfig(thinking_level="LOW", include_thoughts=True),
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    )
    question = types.Content(role="user", parts=[types.Part(text="hi")])
    async with serve_on_loopback(emulator.app) as url:
        client = genai.Client(api_key="k", http_options=types.HttpOptions(base_url=url))
        stream = await client.aio.models.generate_content_stream(model=MODEL, contents=[question], config=config)
        chunks = [chunk async for chunk in stream]
        parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts]
        made = next(part.function_call for part in parts if part.function_call)
        answer = types.FunctionResponse(id=made.id, name=made.name, response={"output": "x"})
        contents = [
            question,
            types.Content(role="model", parts=[part for part in parts if part.text != ""]),
            types.Content(role="user", parts=[types.Part(function_response=answer)]),
        ]
        whole = await client.aio.models.generate_content(model=MODEL, contents=contents, config=config)
        await client.aio.aclose()
        client.close()
    assert [received.refusal for received in emulator.requests] == [None, None]
    assert "".join(part.text for part in parts if part.text and part.thought) == "Let me look."
    assert "".join(part.text for part in parts if part.text and not part.thought) == "Looking at it."
    assert (made.name, made.args) == ("ls", {"path": "目录"})
    assert chunks[-1].candidates[0].finish_reason == types.FinishReason.STOP
    assert chunks[-1].usage_metadata.candidates_token_count > 0
    assert whole.text == "Done, and well."


@pytest.mark.parametrize(
    ("key", "status", "detail"),
    [
        ("bad", (400, "INVALID_ARGUMENT"), {"reason": "API_KEY_INVALID"}),
        ("good", (429, "RESOURCE_EXHAUSTED"), {"retryDelay": "12s"}),
    ],
)
async def test_the_sdk_understands_our_emulators_errors(
    genai: Any, key: str, status: tuple[int, str], detail: dict[str, str]
) -> None:
    emulator = GeminiEmulator([Fault(status=429, code="12s")], api_key="good")
    async with serve_on_loopback(emulator.app) as url:
        client = genai.Client(api_key=key, http_options=genai.types.HttpOptions(base_url=url))
        with pytest.raises(genai.errors.ClientError) as refused:
            await client.aio.models.generate_content(model=MODEL, contents="hi")
        await client.aio.aclose()
        client.close()
    assert (refused.value.code, refused.value.status) == status
    assert refused.value.details["error"]["details"][0].items() >= detail.items()
