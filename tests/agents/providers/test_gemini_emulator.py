"""The emulator refuses what Gemini refuses, with the same status and words, and streams what it streams."""

import json
from typing import Any

import httpx
import pytest

from agents.providers.gemini.request import PLACEHOLDER_SIGNATURE
from tests.agents.providers.requests import PIXEL
from tests.emulators.models.gemini.emulator import GeminiEmulator
from tests.emulators.models.gemini.rules import check_body, check_call, parse_body
from tests.emulators.models.gemini.script import call_part, text_part, thought_part
from tests.emulators.models.gemini.shapes import respelt
from tests.emulators.models.gemini.signature import signed
from tests.emulators.models.script import calls
from tests.emulators.models.server import Refusal
from tests.loopback import serve_on_loopback

MODEL = "gemini-3.1-pro-preview"
OLD = "gemini-2.5-flash"
HEADERS = {"x-goog-api-key": "k", "content-type": "application/json"}
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


def schema(**members: Any) -> dict[str, Any]:
    return declared(parameters={"type": "OBJECT", "properties": {"a": {"type": "STRING"} | members}})


def thinking(**members: Any) -> dict[str, Any]:
    return talk([HI], generationConfig={"thinkingConfig": members})


def calling(**members: Any) -> dict[str, Any]:
    return talk([HI], toolConfig={"functionCallingConfig": members})


HI = text_part("hi")
LOOP = talk([HI], [text_part("Looking."), use("a"), plain(use("b"))], [answer("a"), answer("b")])

BY_THE_NEWEST: dict[str, dict[str, Any]] = {
    "a plain question": {"contents": [{"parts": [HI]}]},
    "a finished loop": LOOP,
    "responses in another order, by their ids": talk(
        [HI], [use("a"), use("b", "read")], [answer("b", "read"), answer("a")]
    ),
    "responses without ids, by position": talk([HI], [use("a"), use("b")], [answer(""), answer("")]),
    "words and a picture behind the responses": talk([HI], [use()], [answer(), PNG, text_part("see")]),
    "a user content behind the responses": {"contents": [*LOOP["contents"], {"role": "user", "parts": [HI]}]},
    "a picture in a response": talk([HI], [use()], [answer(parts=[PNG])]),
    "a call of another model's": talk([HI], [plain(use()) | {"thoughtSignature": PLACEHOLDER_SIGNATURE}], [answer()]),
    "a signature in the other alphabet of base64": talk(
        [HI], [use() | {"thoughtSignature": use()["thoughtSignature"].replace("+", "-").replace("/", "_")}], [answer()]
    ),
    "signed words, signed emptiness and a signed thought": talk(
        [HI], [signed(thought_part("hm")), signed(HI), signed(text_part(""))], [HI]
    ),
    "everything": talk(
        [HI],
        systemInstruction={"parts": [HI]},
        toolConfig={"functionCallingConfig": {"mode": "AUTO"}},
        generationConfig={"maxOutputTokens": 9, "thinkingConfig": {"includeThoughts": True}},
    ),
    "a whole schema": schema(description="x", title="x", nullable=True, minItems=0, enum=["x"], format="enum"),
    "a level": thinking(thinkingLevel="LOW", includeThoughts=True),
    "one certain tool": calling(mode="ANY", allowedFunctionNames=["ls"]),
    "a schema in lower case": declared(parameters={"type": "object", "properties": {"a": {"type": "string"}}}),
    "a JSON schema": declared(parametersJsonSchema={"type": "object", "$defs": {}}),
}
BY_AN_OLD_ONE: dict[str, dict[str, Any]] = {
    "an unsigned call to an old model": talk([HI], [plain(use())], [answer()]),
    "a budget": thinking(thinkingBudget=0),
    "a dynamic budget": thinking(thinkingBudget=-1, includeThoughts=True),
}
ACCEPTED = {name: (MODEL, body) for name, body in BY_THE_NEWEST.items()}
ACCEPTED |= {name: (OLD, body) for name, body in BY_AN_OLD_ONE.items()}


REFUSED: list[tuple[str, dict[str, Any]]] = [
    (MODEL, {}),
    (MODEL, {"contents": []}),
    (MODEL, talk([])),
    (MODEL, {"contents": [{"role": "system", "parts": [HI]}]}),
    (MODEL, talk([{}])),
    (MODEL, talk([text_part("")])),
    (MODEL, talk([HI | PNG])),
    (MODEL, talk([HI], [use(), plain(use("b"))], [answer()])),
    (MODEL, talk([HI], [use()], [answer(), answer()])),
    (MODEL, talk([HI], [use()])),
    (MODEL, {"contents": [*talk([HI], [HI])["contents"], {"role": "model", "parts": [use()]}]}),
    (MODEL, talk([HI], [HI])),
    (MODEL, talk([HI], [use("a")], [answer("b")])),
    (MODEL, talk([HI], [use("a")], [answer("a", "read")])),
    (MODEL, talk([use()])),
    (MODEL, talk([HI], [answer()])),
    (MODEL, talk([HI], [plain(use())], [answer()])),
    (MODEL, talk([HI], [plain(use("a")), use("b")], [answer("a"), answer("b")])),
    (MODEL, talk([HI], [use() | plain(use(path="/"))], [answer()])),
    (MODEL, talk([HI], [HI | {"thoughtSignature": use()["thoughtSignature"]}], [HI])),
    (MODEL, talk([HI], [HI | {"thoughtSignature": PLACEHOLDER_SIGNATURE}], [HI])),
    (OLD, talk([HI], [use() | {"thoughtSignature": PLACEHOLDER_SIGNATURE}], [answer()])),
    (MODEL, talk([signed(HI)])),
    (MODEL, talk([HI], [signed(call_part("ls", {}, raw="{"))], [answer()])),
    (MODEL, talk([HI], [use(name="目录")], [answer(name="目录")])),
    (OLD, talk([HI], [plain(use())], [answer(parts=[PNG])])),
    (MODEL, talk([HI], [use()], [answer(parts=[])])),
    (MODEL, talk([{"inlineData": {"mimeType": "image/png", "data": "!"}}])),
    (MODEL, talk([{"inlineData": {"mimeType": "image/gif", "data": PIXEL}}])),
    (MODEL, talk([{"inlineData": {"mimeType": "image/jpeg", "data": PIXEL}}])),
    (MODEL, talk([{"inlineData": {"mime_type": "image/png", "data": PIXEL}}])),
    (MODEL, talk([HI], systemInstruction={"parts": []})),
    (MODEL, talk([HI], systemInstruction={"parts": [text_part(" ")]})),
    (MODEL, talk([HI], tools=[])),
    (MODEL, talk([HI], tools=[{}])),
    (MODEL, talk([HI], tools=[{"functionDeclarations": []}])),
    (MODEL, talk([HI], tools=[{"functionDeclarations": [TOOL, TOOL]}])),
    (MODEL, declared(name="a" * 129)),
    (MODEL, declared(description=None)),
    (MODEL, declared(parameters={"type": "OBJECT", "properties": {"a": {"type": "STRING"}}}, parametersJsonSchema={})),
    (MODEL, declared(parametersJsonSchema={"type": "string"})),
    (MODEL, declared(parameters={"type": "OBJECT"})),
    (MODEL, declared(parameters={"type": "STRING"})),
    (MODEL, declared(parameters={"properties": {}})),
    (MODEL, declared(parameters={"type": "OBJECT", "properties": {"a": {"type": "STRING"}}, "required": ["b"]})),
    (MODEL, schema(type="text")),
    (MODEL, schema(type="ARRAY")),
    (MODEL, schema(type="INTEGER", enum=["1"])),
    (MODEL, schema(enum=[""])),
    (MODEL, schema(format="uuid")),
    (MODEL, calling(mode="any")),
    (MODEL, calling(mode="AUTO", allowedFunctionNames=["ls"])),
    (MODEL, calling(mode="ANY", allowedFunctionNames=["rm"])),
    (MODEL, calling(mode="ANY", allowedFunctionNames=[])),
    (MODEL, {"contents": [{"parts": [HI]}], "toolConfig": {"functionCallingConfig": {"mode": "NONE"}}}),
    (MODEL, talk([HI], generationConfig={"maxOutputTokens": 65537})),
    (MODEL, talk([HI], generationConfig={"maxOutputTokens": 0})),
    ("gemini-4-argon", talk([HI], generationConfig={"temperature": 1})),
    (OLD, thinking(thinkingLevel="LOW")),
    (MODEL, thinking(thinkingBudget=5)),
    (MODEL, thinking(thinkingBudget=5, thinkingLevel="LOW")),
    (MODEL, thinking(thinkingLevel="low")),
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


@pytest.mark.parametrize(
    "path",
    [
        "/v1beta/models/gpt-4:generateContent",
        "/v1beta/models/gemini-3-flash:countAllTokens",
        "/v1beta/models/gemini-3-flash",
        "/v9/models/gemini-3-flash:generateContent",
    ],
)
def test_a_model_a_method_or_a_version_that_does_not_exist(path: str) -> None:
    with pytest.raises(Refusal) as refusal:
        check_call(path)
    assert (refusal.value.status, refusal.value.type) == (404, "NOT_FOUND")


async def test_the_chunks_on_the_wire() -> None:
    emulator = GeminiEmulator([calls(("ls", {"path": "."}), before="Looking.")])
    body = {"contents": [{"role": "user", "parts": [HI]}]}
    async with serve_on_loopback(emulator.app) as url, httpx.AsyncClient() as client:
        path = f"{url}/v1beta/models/{MODEL}:streamGenerateContent?alt=sse"
        response = await client.post(path, headers=HEADERS, json=body)
    assert response.headers["content-type"].startswith("text/event-stream")
    chunks = [json.loads(line[6:]) for line in response.text.split("\r\n\r\n") if line]
    call = signed(call_part("ls", {"path": "."}, id="fc_000101"))
    parts = [chunk["candidates"][0]["content"]["parts"] for chunk in chunks]
    assert parts == [[{"text": "Looking."}], [call], [{"text": ""}]]
    assert [chunk["candidates"][0].get("finishReason") for chunk in chunks] == [None, None, "STOP"]
    assert {(chunk["responseId"], chunk["modelVersion"]) for chunk in chunks} == {("resp_0001", MODEL)}
    assert chunks[-1]["usageMetadata"]["candidatesTokenCount"] > 0
    assert emulator.requests[0].body == body | {"model": f"models/{MODEL}"}


def test_both_spellings_of_the_protocols_names_are_one_and_other_names_are_left_alone() -> None:
    spelt = {
        "generation_config": {"thinking_config": {"include_thoughts": True}},
        "tools": [
            {"function_declarations": [{"name": "a_b", "parameters": {"properties": {"a_b": {"max_items": 1}}}}]}
        ],
        "contents": [{"parts": [{"function_call": {"args": {"a_b": {"c_d": 1}}}, "thought_signature": "x"}]}],
    }
    assert respelt(spelt) == {
        "generationConfig": {"thinkingConfig": {"includeThoughts": True}},
        "tools": [{"functionDeclarations": [{"name": "a_b", "parameters": {"properties": {"a_b": {"maxItems": 1}}}}]}],
        "contents": [{"parts": [{"functionCall": {"args": {"a_b": {"c_d": 1}}}, "thoughtSignature": "x"}]}],
    }
