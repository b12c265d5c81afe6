"""The emulator refuses what Gemini refuses, with the same status, and is understood by Google's own SDK."""

import warnings
from typing import Any

import pytest

from agents.providers.gemini import PLACEHOLDER_SIGNATURE
from tests.agents.providers.requests import PIXEL
from tests.emulators.models.gemini.emulator import GeminiEmulator
from tests.emulators.models.gemini.rules import check_body, check_call, parse_body
from tests.emulators.models.gemini.script import call_part, text_part
from tests.emulators.models.gemini.signature import signed
from tests.emulators.models.script import Call, Fault, Say, Think, Turn
from tests.emulators.models.server import Refusal
from tests.loopback import serve_on_loopback

MODEL = "gemini-3.1-pro-preview"
OLD = "gemini-2.5-flash"
TOOL: dict[str, Any] = {"name": "ls", "description": "List."}
PNG = {"inlineData": {"mimeType": "image/png", "data": PIXEL}}


def use(call_id: str = "a", name: str = "ls", **args: Any) -> dict[str, Any]:
    return signed(call_part(name, args, id=call_id))


def plain(part: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in part.items() if key != "thoughtSignature"}


def answer(call_id: str = "a", name: str = "ls", **members: Any) -> dict[str, Any]:
    given_id = {"id": call_id} if call_id else {}
    return {"functionResponse": given_id | {"name": name, "response": {"output": "ok"}} | members}


def talk(*contents: list[Any], tools: Any = None, **members: Any) -> dict[str, Any]:
    """A request whose contents alternate, beginning with the user."""
    roles = ["user", "model"] * len(contents)
    turns = [{"role": role, "parts": parts} for role, parts in zip(roles, contents, strict=False)]
    return {"contents": turns, "tools": [{"functionDeclarations": [TOOL]}] if tools is None else tools} | members


def declared(**members: Any) -> dict[str, Any]:
    return talk([HI], tools=[{"functionDeclarations": [TOOL | members]}])


def thinking(**members: Any) -> dict[str, Any]:
    return talk([HI], generationConfig={"thinkingConfig": members})


def calling(**members: Any) -> dict[str, Any]:
    return talk([HI], toolConfig={"functionCallingConfig": members})


HI = text_part("hi")
JSON = {"type": "object", "$defs": {}}
SCHEMA = {"type": "OBJECT", "properties": {"a": {"type": "string", "enum": ["x"], "format": "enum", "minItems": 0}}}
REFUSED: list[tuple[str, dict[str, Any]]] = [
    (MODEL, talk([{}])),
    (MODEL, talk([text_part("")])),
    (MODEL, talk([HI | PNG])),
    (MODEL, talk([HI], [use(), plain(use("b"))], [answer()])),
    (MODEL, talk([HI], [use()], [answer(), answer()])),
    (MODEL, talk([HI], [use()])),
    (MODEL, {"contents": [*talk([HI], [HI])["contents"], {"role": "model", "parts": [use()]}]}),
    (MODEL, talk([HI], [HI])),
    (MODEL, talk([HI], [use("a")], [answer("a", "read")])),
    (MODEL, talk([use()])),
    (MODEL, talk([HI], [answer()])),
    (MODEL, talk([HI], [plain(use("a")), use("b")], [answer("a"), answer("b")])),
    (MODEL, talk([HI], [use() | plain(use(path="/"))], [answer()])),
    (MODEL, talk([HI], [HI | {"thoughtSignature": PLACEHOLDER_SIGNATURE}], [HI])),
    (OLD, talk([HI], [use() | {"thoughtSignature": PLACEHOLDER_SIGNATURE}], [answer()])),
    (MODEL, talk([signed(HI)])),
    (MODEL, talk([HI], [signed(call_part("ls", {}, raw="{"))], [answer()])),
    (OLD, talk([HI], [plain(use())], [answer(parts=[PNG])])),
    *((MODEL, talk([{"inlineData": PNG["inlineData"] | it}])) for it in ({"data": "!"}, {"mimeType": "image/jpeg"})),
    (MODEL, talk([HI], tools=[{}])),
    (MODEL, talk([HI], tools=[{"functionDeclarations": [TOOL, TOOL]}])),
    (MODEL, declared(description=None)),
    (MODEL, declared(parameters=SCHEMA, parametersJsonSchema=JSON)),
    (MODEL, declared(parametersJsonSchema={"type": "string"})),
    (MODEL, declared(parameters=SCHEMA | {"type": "STRING", "properties": {}})),
    (MODEL, declared(parameters=SCHEMA | {"properties": {}})),
    (MODEL, declared(parameters=SCHEMA | {"required": ["b"]})),
    (MODEL, calling(mode="AUTO", allowedFunctionNames=["ls"])),
    (MODEL, calling(mode="ANY", allowedFunctionNames=["rm"])),
    (MODEL, calling(mode="NONE") | {"tools": [{"googleSearch": {}}]}),
    *((MODEL, talk([HI], generationConfig={"maxOutputTokens": it})) for it in (65537, 0)),
    ("gemini-4-argon", talk([HI], generationConfig={"temperature": 1})),
    (OLD, thinking(thinkingLevel="LOW")),
    (MODEL, thinking(thinkingBudget=5)),
    (MODEL, thinking(thinkingBudget=5, thinkingLevel="LOW")),
    (OLD, thinking(thinkingBudget=99999)),
    ("gemini-2.5-pro", thinking(thinkingBudget=0)),
    (OLD, thinking(thinkingBudget=0, includeThoughts=True)),
]


@pytest.mark.parametrize(("model", "body"), REFUSED, ids=range(len(REFUSED)))
def test_refused(model: str, body: dict[str, Any]) -> None:
    with pytest.raises(Refusal) as refusal:
        check_body(body, model)
    assert (refusal.value.status, refusal.value.type) == (400, "INVALID_ARGUMENT")


def test_a_request_that_is_too_large() -> None:
    with pytest.raises(Refusal, match="Request payload size exceeds"):
        parse_body(b" " * 21_000_000)


def test_a_model_a_method_or_a_version_that_does_not_exist() -> None:
    for path in ("v1beta/models/gpt-4:generateContent", "v1/models/gemini-3:x", "v9/models/gemini-3:generateContent"):
        with pytest.raises(Refusal) as refusal:
            check_call(path)
        assert (refusal.value.status, refusal.value.type) == (404, "NOT_FOUND")


async def test_the_sdk_understands_our_emulators_answers_and_errors() -> None:
    with warnings.catch_warnings(action="ignore"):  # of what the SDK does while it is imported and used
        from google import genai

        turn = Turn(parts=(Think(text="Let me."), Say(text="Looking."), Call(name="ls", arguments={"a_path": "目录"})))
        emulator, refused = GeminiEmulator([turn, Fault(status=429, code="12s")], api_key="good"), []
        request: dict[str, Any] = {"model": MODEL, "contents": "hi"}
        async with serve_on_loopback(emulator.app) as url:
            options = genai.types.HttpOptions(base_url=url)
            async with genai.Client(api_key="good", http_options=options).aio as client:
                chunks: list[Any] = [chunk async for chunk in await client.models.generate_content_stream(**request)]
            for key in ("bad", "good"):
                async with genai.Client(api_key=key, http_options=options).aio as client:
                    with pytest.raises(genai.errors.ClientError) as error:
                        await client.models.generate_content(**request)
                refused.append((error.value.code, error.value.status, error.value.details["error"]["details"][0]))
    parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts]
    assert [(part.function_call.name, part.function_call.args) for part in parts if part.function_call] == [
        ("ls", {"a_path": "目录"})
    ]
    for thought, text in ((True, "Let me."), (False, "Looking.")):
        assert "".join(part.text or "" for part in parts if bool(part.thought) is thought) == text
    assert chunks[-1].candidates[0].finish_reason == genai.types.FinishReason.STOP
    assert chunks[-1].usage_metadata.candidates_token_count > 0
    (code, status, detail), (busy, exhausted, delay) = refused
    assert (code, status, detail["reason"]) == (400, "INVALID_ARGUMENT", "API_KEY_INVALID")
    assert (busy, exhausted, delay["retryDelay"]) == (429, "RESOURCE_EXHAUSTED", "12s")
