"""The emulator refuses what Gemini refuses, with the same status and words, and streams what it streams."""

import json
from contextlib import suppress
from copy import deepcopy
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.providers.gemini.request import PLACEHOLDER_SIGNATURE
from tests.agents.providers.requests import PIXEL
from tests.emulators.models.gemini.emulator import GeminiEmulator
from tests.emulators.models.gemini.rules import check_body, check_call, check_key, parse_body
from tests.emulators.models.gemini.script import call_part, text_part, thought_part
from tests.emulators.models.gemini.signature import signed
from tests.emulators.models.gemini.shapes import respelt
from tests.emulators.models.script import Fault, calls, says
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

ACCEPTED: dict[str, tuple[str, dict[str, Any]]] = {
    "a plain question": (MODEL, {"contents": [{"parts": [HI]}]}),
    "a finished loop": (MODEL, LOOP),
    "responses in another order, by their ids": (
        MODEL,
        talk([HI], [use("a"), use("b", "read")], [answer("b", "read"), answer("a")]),
    ),
    "responses without ids, by position": (MODEL, talk([HI], [use("a"), use("b")], [answer(""), answer("")])),
    "words and a picture behind the responses": (MODEL, talk([HI], [use()], [answer(), PNG, text_part("see")])),
    "a user content behind the responses": (
        MODEL,
        {"contents": [*LOOP["contents"], {"role": "user", "parts": [HI]}]},
    ),
    "a picture in a response": (MODEL, talk([HI], [use()], [answer(parts=[PNG])])),
    "a call of another model's": (
        MODEL,
        talk([HI], [plain(use()) | {"thoughtSignature": PLACEHOLDER_SIGNATURE}], [answer()]),
    ),
    "a signature in the other alphabet of base64": (
        MODEL,
        talk(
            [HI],
            [use() | {"thoughtSignature": use()["thoughtSignature"].replace("+", "-").replace("/", "_")}],
            [answer()],
        ),
    ),
    "signed words, signed emptiness and a signed thought": (
        MODEL,
        talk([HI], [signed(thought_part("hm")), signed(HI), signed(text_part(""))], [HI]),
    ),
    "an unsigned call to an old model": (OLD, talk([HI], [plain(use())], [answer()])),
    "a level": (MODEL, thinking(thinkingLevel="LOW", includeThoughts=True)),
    "a budget": (OLD, thinking(thinkingBudget=0)),
    "a dynamic budget": (OLD, thinking(thinkingBudget=-1, includeThoughts=True)),
    "one certain tool": (MODEL, calling(mode="ANY", allowedFunctionNames=["ls"])),
    "a schema in lower case": (MODEL, declared(parameters={"type": "object", "properties": {"a": {"type": "string"}}})),
    "a JSON schema": (MODEL, declared(parametersJsonSchema={"type": "object", "$defs": {}})),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name: str) -> None:
    model, body = ACCEPTED[name]
    before = deepcopy(body)
    check_body(body, model)
    assert body == before


COUNT = "Please ensure that the number of function response parts is equal to the number of function call parts"
UNKNOWN = "Invalid JSON payload received. Unknown name"
ONEOF = "required oneof field 'data' must have one initialized field"
MISSING = "Function call is missing a thought_signature in functionCall parts."

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (MODEL, talk([HI], colour="red"), f'{UNKNOWN} "colour": Cannot find field.'),
    (MODEL, talk([HI], system_instruction={}), f'{UNKNOWN} "system_instruction"'),
    (
        MODEL,
        {"contents": [{"role": "user", "parts": [HI], "name": "x"}]},
        f"{UNKNOWN} \"name\" at 'contents[0]': Cannot find field.",
    ),
    (MODEL, talk([HI | {"mood": 1}]), f"{UNKNOWN} \"mood\" at 'contents[0].parts[0]': Cannot find field."),
    (MODEL, talk([HI], [use() | {"functionCall": {"name": "ls", "arguments": {}}}]), '"arguments" at'),
    (MODEL, talk([HI], [use()], [answer(is_error=True)]), "\"is_error\" at 'contents[2].parts[0].function_response'"),
    (MODEL, {}, "* GenerateContentRequest.contents: contents is not specified"),
    (MODEL, {"contents": []}, "contents is not specified"),
    (MODEL, {"contents": "hi"}, "Invalid value at 'contents'"),
    (MODEL, {"contents": ["hi"]}, "Expected an object at 'contents[0]'"),
    (MODEL, talk([]), "* GenerateContentRequest.contents[0].parts: contents.parts must not be empty."),
    (MODEL, {"contents": [{"role": "system", "parts": [HI]}]}, "Please use a valid role: user, model."),
    (MODEL, talk([{}]), ONEOF),
    (MODEL, talk([text_part("")]), f"contents[0].parts[0].data: {ONEOF}"),
    (MODEL, talk([{"thoughtSignature": "AAAA"}]), ONEOF),
    (MODEL, talk([HI | PNG]), "oneof field 'data' is already set. Cannot set 'inline_data'"),
    (MODEL, talk([{"text": 5}]), "Invalid value at 'contents[0].parts[0].text' (TYPE_STRING), 5"),
    (MODEL, talk([HI | {"thought": "yes"}]), "(TYPE_BOOL)"),
    (MODEL, talk([HI], [use(), plain(use("b"))], [answer()]), COUNT),
    (MODEL, talk([HI], [use()], [answer(), answer()]), COUNT),
    (MODEL, talk([HI], [use()], [HI]), COUNT),
    (MODEL, talk([HI], [use()]), COUNT),
    (MODEL, talk([HI], [HI], [answer()]), "function response turn comes immediately after a function call turn"),
    (MODEL, {"contents": [*talk([HI], [HI])["contents"], {"role": "model", "parts": [use()]}]}, "response turn."),
    (MODEL, {"contents": [{"role": "model", "parts": [use()]}]}, "function call turn comes immediately after"),
    (MODEL, talk([HI], [HI]), "multiturn requests end with a user turn or a function response turn"),
    (MODEL, talk([HI], [use("a")], [answer("b")]), "Function response id b does not match"),
    (MODEL, talk([HI], [use("a"), use("b")], [answer("a"), answer("a")]), "Function response id a does not match"),
    (MODEL, talk([HI], [use("a")], [answer("a", "read")]), "name read does not match function call name ls"),
    (MODEL, talk([use()]), "function call parts are in a model turn"),
    (MODEL, talk([HI], [answer()]), "function response parts are in a user turn"),
    (MODEL, talk([HI], [plain(use())], [answer()]), f"{MISSING} This is required"),
    (MODEL, talk([HI], [plain(use())], [answer()]), "function call `default_api:ls` , position 2."),
    (MODEL, talk([HI], [plain(use("a")), use("b")], [answer("a"), answer("b")]), MISSING),
    (MODEL, talk([HI], [use() | plain(use(path="/"))], [answer()]), "Corrupted thought signature."),
    (MODEL, talk([HI], [HI | {"thoughtSignature": use()["thoughtSignature"]}], [HI]), "Corrupted thought signature."),
    (MODEL, talk([HI], [HI | {"thoughtSignature": PLACEHOLDER_SIGNATURE}], [HI]), "Corrupted thought signature."),
    (OLD, talk([HI], [use() | {"thoughtSignature": PLACEHOLDER_SIGNATURE}], [answer()]), "thought signature."),
    (MODEL, talk([signed(HI)]), "Corrupted thought signature."),
    (MODEL, talk([HI], [use() | {"thoughtSignature": "?"}], [answer()]), "(TYPE_BYTES), Base64 decoding failed for"),
    (MODEL, talk([HI], [signed(call_part("ls", {}, raw="{"))], [answer()]), "google.protobuf.Struct"),
    (MODEL, talk([HI], [use(name="目录")], [answer(name="目录")]), "Invalid function name. Must start with a letter"),
    (MODEL, talk([HI], [use(name="")], [answer(name="")]), "function_call.name: Name cannot be empty."),
    (MODEL, talk([HI], [use()], [answer(response="ok")]), "google.protobuf.Struct"),
    (OLD, talk([HI], [plain(use())], [answer(parts=[PNG])]), "Multimodal function response is not supported"),
    (MODEL, talk([HI], [use()], [answer(parts=[])]), "function_response.parts: must not be empty."),
    (MODEL, talk([{"inlineData": {"mimeType": "image/png", "data": "!"}}]), "inline_data.data' (TYPE_BYTES)"),
    (MODEL, talk([{"inlineData": {"mimeType": "image/gif", "data": PIXEL}}]), "Unsupported MIME type: image/gif"),
    (MODEL, talk([{"inlineData": {"mimeType": "image/jpeg", "data": PIXEL}}]), "Unable to process input image."),
    (MODEL, talk([{"inlineData": {"mime_type": "image/png", "data": PIXEL}}]), '"mime_type" at'),
    (MODEL, talk([HI], systemInstruction="be kind"), "Expected an object at 'system_instruction'"),
    (MODEL, talk([HI], systemInstruction={"parts": []}), "system_instruction.parts: must not be empty."),
    (MODEL, talk([HI], systemInstruction={"parts": [text_part(" ")]}), ONEOF),
    (MODEL, talk([HI], tools=[]), "tools: must not be empty."),
    (MODEL, talk([HI], tools=[{}]), "required one_of 'tool_type' must have one initialized field"),
    (MODEL, talk([HI], tools=[{"functionDeclarations": []}]), "tools[0].function_declarations: must not be empty."),
    (MODEL, talk([HI], tools=[{"functionDeclarations": [TOOL, TOOL]}]), "Duplicate function declaration found: ls"),
    (MODEL, declared(strict=True), "\"strict\" at 'tools[0].function_declarations[0]'"),
    (MODEL, declared(name="1st"), "tools[0].function_declarations[0].name: Invalid function name."),
    (MODEL, declared(name="a" * 129), "with a maximum length of 128."),
    (MODEL, declared(description=None), "description' (TYPE_STRING)"),
    (
        MODEL,
        declared(parameters={"type": "OBJECT", "properties": {"a": {"type": "STRING"}}}, parametersJsonSchema={}),
        "only one of",
    ),
    (MODEL, declared(parametersJsonSchema={"type": "string"}), "schema must be of type object"),
    (MODEL, declared(parameters={"type": "OBJECT"}), "properties: should be non-empty for OBJECT type"),
    (MODEL, declared(parameters={"type": "STRING"}), "must be OBJECT"),
    (MODEL, declared(parameters={"properties": {}}), "type: must be specified"),
    (
        MODEL,
        declared(parameters={"type": "OBJECT", "properties": {"a": {"type": "STRING"}}, "required": ["b"]}),
        "required[0]: property is not defined",
    ),
    (MODEL, schema(const="x"), "\"const\" at 'tools[0].function_declarations[0].parameters.properties[a]'"),
    (MODEL, schema(type="text"), '(type.googleapis.com/google.ai.generativelanguage.v1beta.Type), "text"'),
    (MODEL, schema(type=["string", "null"]), "v1beta.Type)"),
    (MODEL, schema(type="ARRAY"), "items: missing field."),
    (MODEL, schema(type="INTEGER", enum=["1"]), "enum: only allowed for STRING type"),
    (MODEL, schema(enum=[1]), "(TYPE_STRING), 1"),
    (MODEL, schema(enum=[""]), "enum[0]: cannot be empty"),
    (MODEL, schema(format="uuid"), "only 'date-time' and 'enum' are supported for STRING type"),
    (MODEL, calling(mode="any"), 'FunctionCallingConfig.Mode), "any"'),
    (MODEL, calling(mode="AUTO", allowedFunctionNames=["ls"]), "only when function calling mode is ANY"),
    (MODEL, calling(mode="ANY", allowedFunctionNames=["rm"]), "no function declaration has: rm"),
    (MODEL, calling(mode="ANY", allowedFunctionNames=[]), "allowed_function_names: must not be empty."),
    (MODEL, calling(mode="ANY", parallel=False), '"parallel" at'),
    (
        MODEL,
        {"contents": [{"parts": [HI]}], "toolConfig": {"functionCallingConfig": {"mode": "NONE"}}},
        "Function calling config is set without function_declarations.",
    ),
    (MODEL, talk([HI], generationConfig={"max_tokens": 1}), "\"max_tokens\" at 'generation_config'"),
    (MODEL, talk([HI], generationConfig={"maxOutputTokens": 65_537}), "from 1 (inclusive) to 65537 (exclusive)"),
    (MODEL, talk([HI], generationConfig={"maxOutputTokens": 0}), "maxOutputTokens value of 0"),
    (MODEL, talk([HI], generationConfig={"maxOutputTokens": "9"}), "(TYPE_INT32)"),
    ("gemini-4-argon", talk([HI], generationConfig={"temperature": 1}), "temperature is not supported for this model."),
    (OLD, thinking(thinkingLevel="LOW"), "Thinking level is not supported for this model."),
    (MODEL, thinking(thinkingBudget=5), "Thinking budget is not supported for this model."),
    (MODEL, thinking(thinkingBudget=5, thinkingLevel="LOW"), "only one of thinking budget and thinking level"),
    (MODEL, thinking(thinkingLevel="low"), 'ThinkingConfig.ThinkingLevel), "low"'),
    (OLD, thinking(thinkingBudget=99_999), "Please choose a value between 0 and 24576."),
    ("gemini-2.5-pro", thinking(thinkingBudget=0), "Budget 0 is invalid. This model only works in thinking mode."),
    (OLD, thinking(thinkingBudget=0, includeThoughts=True), "only enabled when thinking is enabled"),
]


@pytest.mark.parametrize(("model", "body", "message"), REFUSED, ids=range(len(REFUSED)))
def test_refused(model: str, body: dict[str, Any], message: str) -> None:
    with pytest.raises(Refusal) as refusal:
        check_body(body, model)
    assert (refusal.value.status, refusal.value.type) == (400, "INVALID_ARGUMENT")
    assert message in refusal.value.message


_JUNK: list[Any] = [None, True, 0, -1.5, "", "x", [], {}, [{}], {"a": 1}, ["x"]]


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every member and item inside, as the container and its key."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, member in inside for place in [(value, key), *_places(member)]]


@settings(deadline=None)
@given(st.sampled_from(sorted(ACCEPTED)), st.data())
def test_a_request_with_a_wrong_value_anywhere_is_answered_or_refused_but_never_breaks(
    name: str, data: st.DataObject
) -> None:
    model, body = deepcopy(ACCEPTED[name])
    container, key = data.draw(st.sampled_from(_places(body)))
    container[key] = data.draw(st.sampled_from(_JUNK))
    with suppress(Refusal):
        check_body(body, model)


@pytest.mark.parametrize(
    ("headers", "status", "type_", "code"),
    [
        ({"content-type": "application/json"}, 403, "PERMISSION_DENIED", None),
        (HEADERS | {"x-goog-api-key": "wrong"}, 400, "INVALID_ARGUMENT", "API_KEY_INVALID"),
        (HEADERS | {"content-type": "text/plain"}, 400, "INVALID_ARGUMENT", None),
    ],
)
def test_keys(headers: dict[str, str], status: int, type_: str, code: str | None) -> None:
    with pytest.raises(Refusal) as refusal:
        check_key(headers, "k")
    assert (refusal.value.status, refusal.value.type, refusal.value.code) == (status, type_, code)


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


@pytest.mark.parametrize("raw", [b"{", b'{"a": "\\ud83d"}', b'{"a": NaN}', b"[]", b'"\xff"', b" " * 21_000_000])
def test_a_body_that_is_no_strict_json_object(raw: bytes) -> None:
    with pytest.raises(Refusal) as refusal:
        parse_body(raw)
    assert refusal.value.status == 400


async def test_the_chunks_on_the_wire_and_the_ledger() -> None:
    emulator = GeminiEmulator([calls(("ls", {"path": "."}), before="Looking.")])
    body = {"contents": [{"role": "user", "parts": [HI]}]}
    async with serve_on_loopback(emulator.app) as url, httpx.AsyncClient() as client:
        path = f"{url}/v1beta/models/{MODEL}:streamGenerateContent?alt=sse"
        response = await client.post(path, headers=HEADERS, json=body)
        refused = await client.post(path, json=body)
    assert response.headers["content-type"].startswith("text/event-stream")
    chunks = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: ")]
    assert [chunk["candidates"][0]["content"]["parts"] for chunk in chunks] == [
        [{"text": "Looking."}],
        [signed(call_part("ls", {"path": "."}, id="fc_000101"))],
        [{"text": ""}],
    ]
    assert [chunk["candidates"][0].get("finishReason") for chunk in chunks] == [None, None, "STOP"]
    assert {chunk["responseId"] for chunk in chunks} == {"resp_0001"}
    assert {chunk["modelVersion"] for chunk in chunks} == {MODEL}
    assert chunks[-1]["usageMetadata"]["candidatesTokenCount"] > 0
    assert (refused.status_code, refused.json()["error"]["status"]) == (403, "PERMISSION_DENIED")
    first, second = emulator.requests
    assert (first.body, first.refusal) == (body | {"model": f"models/{MODEL}"}, None)
    assert second.refusal is not None


async def test_without_a_stream_the_answer_is_one_object_and_the_default_is_an_echo() -> None:
    emulator = GeminiEmulator(lambda body: says("from a function") if "tools" in body else Fault(status=500))
    async with serve_on_loopback(emulator.app) as url, httpx.AsyncClient(headers=HEADERS) as client:
        path = f"{url}/v1beta/models/{MODEL}:generateContent"
        made = await client.post(path, json=talk([HI]))
        failed = await client.post(path, json={"contents": [{"parts": [HI]}]})
        emulator.script = []
        echoed = await client.post(path, json=LOOP)
    texts = [part["text"] for part in made.json()["candidates"][0]["content"]["parts"]]
    assert "".join(texts) == "from a function"
    assert (failed.status_code, failed.json()["error"]["status"]) == (500, "INTERNAL")
    assert echoed.json()["candidates"][0]["content"]["parts"] == [{"text": "hi"}]


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
