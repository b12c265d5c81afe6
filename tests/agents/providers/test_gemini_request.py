"""Our request as Gemini's body: what goes where, judged by the emulator's own rules and by Google's own SDK."""

import base64
import json
import warnings
from dataclasses import replace
from typing import Any

import pytest

from agents.messages import Message, Opaque, Text, Thinking, ToolCall, ToolResultMessage, UserMessage, Wire
from agents.providers.gemini import API, PLACEHOLDER_SIGNATURE
from agents.providers.models import Level, ModelFacts
from agents.providers.provider import ModelRequest
from tests.agents.providers.contract import bodies
from tests.agents.providers.requests import LS, PIXEL, READ, asking, assistant, call, result, user
from tests.emulators.models.gemini.script import call_part, text_part, thought_part
from tests.emulators.models.gemini.signature import signed
from tools.tool import Image, ToolSpec

MODEL = "gemini-3.1-pro-preview"
OLD = "gemini-2.5-flash"
PICTURE = Image(media_type="image/png", data=PIXEL, name="a.png")
PNG = {"inlineData": {"mimeType": "image/png", "data": PIXEL}}


def ask(*messages: Message, model: str = MODEL, **options: Any) -> ModelRequest:
    return asking(*messages, model=model, **options)


def wire(request: ModelRequest) -> dict[str, Any]:
    with warnings.catch_warnings(action="ignore"):
        from google.genai import types
    judges: dict[str, Any] = {"contents": types.Content, "tools": types.Tool, "systemInstruction": types.Content}
    judges |= {"toolConfig": types.ToolConfig, "generationConfig": types.GenerationConfig}
    body = bodies.gemini(request)
    for name, value in body.items():
        for item in value if isinstance(value, list) else [value]:
            assert judges[name].model_validate_json(json.dumps(item))
    return body


def own(part: dict[str, Any], model: str = MODEL) -> Wire:
    """What the emulator's signature of `part` is kept as."""
    return Wire(api=API, family=model, kind="thought_signature", data=signed(part)["thoughtSignature"])


def declared(schema: dict[str, Any]) -> dict[str, Any]:
    """What is said of a tool beside its name and its description."""
    tool = ToolSpec(name="t", summary="s", description="", input_schema=schema)
    (sent,) = wire(ask(tools=(tool,)))["tools"][0]["functionDeclarations"]
    return {key: value for key, value in sent.items() if key not in ("name", "description")}


def test_the_first_request_of_a_chat() -> None:
    body = wire(ask(user("张三: 你好", metadata="## Inbound Context\n{}"), tools=(READ, LS)))
    path = {"type": "string", "description": "The folder."}
    schema = {"type": "object", "properties": {"path": path}, "required": [], "additionalProperties": False}
    assert body == {
        "contents": [{"role": "user", "parts": [{"text": "## Inbound Context\n{}\n\n张三: 你好"}]}],
        "systemInstruction": {"parts": [{"text": "You are a helper."}, {"text": "## Runtime\nagent=coder"}]},
        "tools": [
            {
                "functionDeclarations": [
                    {"name": "read", "description": "Read a file.", "parametersJsonSchema": schema},
                    {"name": "ls", "description": "List a folder.", "parametersJsonSchema": schema},
                ]
            }
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
        "generationConfig": {"maxOutputTokens": 1024},
    }


def test_a_long_history_goes_back_as_it_was() -> None:
    """Signed parts stay apart, each with its own signature, but a call that had to be changed goes without; results share
    a content in call order, and the next words follow in it."""
    gif = Image(media_type="image/gif", data=base64.b64encode(b"GIF89a.....").decode(), name="b.gif")
    shown, end, thought = text_part("ld"), signed(text_part("")), thought_part("hm")
    broken = ToolCall(id="b", name="ls", arguments=None, arguments_raw="{oops", wire=own(call_part("ls", {"x": 1})))
    renamed = ToolCall(id="c", name="目录", arguments={}, arguments_raw="{}", wire=own(call_part("目录", {})))
    stranger = Wire(api="elsewhere", family="x", kind="thought_signature", data="AAAA")
    answer = (
        Thinking(text="a summary, for people"),
        Thinking(text="hm", wire=own(thought)),
        Text(text="wor"),
        Text(text="ld", wire=own(shown)),
        replace(call("a"), wire=own(call_part("ls", {"path": "."}))),
        *(broken, renamed),
        Opaque(wire=Wire(api=API, family=MODEL, kind="empty_text", data=end)),
        Opaque(wire=replace(stranger, data={"text": "not ours"})),
        Thinking(text="a stranger's", wire=stranger),
    )
    sent = wire(
        ask(
            UserMessage(content=(PICTURE, gif, Text(text="look")), metadata="META"),
            assistant(*answer),
            ToolResultMessage(call_id="a", tool="ls", content=(Text(text="see"), PICTURE)),
            result("b", "two", is_error=True),
            ToolResultMessage(call_id="c", tool="目录", content=()),
            user("and?"),
            assistant(renamed),
            ToolResultMessage(call_id="c", tool="目录", content=(), is_error=True),
        )
    )["contents"]

    def response(call_id: str, name: str, answered: dict[str, str], **more: Any) -> dict[str, Any]:
        return {"functionResponse": {"id": call_id, "name": name, "response": answered} | more}

    silent = {"error": "The tool failed and gave no reason."}
    assert sent == [
        {"role": "user", "parts": [PNG, {"text": "[image: b.gif]"}, {"text": "META\n\nlook"}]},
        {
            "role": "model",
            "parts": [
                *(signed(thought), text_part("wor"), signed(shown)),
                signed(call_part("ls", {"path": "."}, id="a")),
                *(call_part("ls", {}, id="b"), call_part("__", {}, id="c"), end),
            ],
        },
        {
            "role": "user",
            "parts": [
                response("a", "ls", {"output": "see"}, parts=[PNG]),
                response("b", "ls", {"error": "two"}),
                response("c", "__", {"output": ""}),
                {"text": "and?"},
            ],
        },
        {"role": "model", "parts": [call_part("__", {}, id="c") | {"thoughtSignature": PLACEHOLDER_SIGNATURE}]},
        {"role": "user", "parts": [response("c", "__", silent)]},
    ]


def test_older_models_get_the_pictures_of_tools_behind_all_results() -> None:
    seen = ToolResultMessage(call_id="a", tool="ls", content=(Text(text="see"), PICTURE))
    history = (user("go"), assistant(call("a"), call("b")), seen, result("b"))
    for after in ((), (user("which?"),)):
        parts = wire(ask(*history, *after, model=OLD))["contents"][2]["parts"]
        assert "parts" not in parts[0]["functionResponse"]
        assert parts[2:] == [
            {"text": "(The gateway: pictures of the results above.)"},
            PNG,
            *({"text": "which?"} for _ in after),
        ]


@pytest.mark.parametrize(
    ("model", "placeholder"),
    [
        *(
            (it, PLACEHOLDER_SIGNATURE)
            for it in (MODEL, "gemini-4-argon", "gemini-flash-latest", "models/gemini-3-flash")
        ),
        *((it, None) for it in (OLD, "gemini-2.5-pro", "gemini-2.0-flash", "gemini-1.5-pro")),
    ],
)
def test_gemini_first_call_gets_a_placeholder_signature(model: str, placeholder: str | None) -> None:
    history = (user("old"), assistant(call("a"), call("b")), result("a"), result("b"), assistant(Text(text="done")))
    body = wire(ask(*history, user("new"), assistant(call("c")), result("c"), model=model))
    parts = [part for content in body["contents"] for part in content["parts"] if "functionCall" in part]
    assert [part.get("thoughtSignature") for part in parts] == [placeholder, None, placeholder]


_THINKING: list[tuple[str, Level | None, dict[str, Any] | None]] = [
    (MODEL, None, None),
    (MODEL, "high", {"thinkingLevel": "HIGH", "includeThoughts": True}),
    (MODEL, "off", {"thinkingLevel": "MINIMAL"}),
    (OLD, None, None),
    (OLD, "off", {"thinkingBudget": 0}),
    (OLD, "low", {"thinkingBudget": 1638, "includeThoughts": True}),
    (OLD, "high", {"thinkingBudget": 4915, "includeThoughts": True}),
    ("gemini-2.5-pro", "off", {"thinkingBudget": 128}),
]


@pytest.mark.parametrize(("model", "level", "sent"), _THINKING)
def test_thinking(model: str, level: Level | None, sent: dict[str, Any] | None) -> None:
    body = wire(replace(ask(model=model), thinking=level, max_tokens=8192))
    assert body["generationConfig"].get("thinkingConfig") == sent


def test_a_budget_has_its_limits_and_leaves_room_for_an_answer() -> None:
    def budget(max_tokens: int) -> Any:
        body = wire(replace(ask(model=OLD), thinking="high", max_tokens=max_tokens))
        return body["generationConfig"].get("thinkingConfig", {}).get("thinkingBudget")

    assert (budget(65_536), budget(700), budget(512)) == (24_576, 512, None)


def test_a_model_that_cannot_be_forced_is_asked_politely() -> None:
    request = replace(ask(tool_choice="required"), facts=ModelFacts(forced_tool=False))
    assert wire(request)["toolConfig"] == {"functionCallingConfig": {"mode": "AUTO"}}


OBJECT = {"type": "object", "required": [], "additionalProperties": False}


def test_a_schema_goes_whole_and_an_empty_one_not_at_all() -> None:
    members = {"a": {"type": ["string", "null"]}, "b": {"$ref": "#/$defs/node"}, "c": {}}
    whole = OBJECT | {"properties": members, "required": ["a", "y"]}
    assert declared(whole) == {"parametersJsonSchema": whole}
    assert declared(OBJECT | {"properties": {}}) == declared({"type": "object"}) == {}
