"""Random histories, healthy and not: what a session may hold after crashes, refusals, cuts and changes of model."""

from dataclasses import replace

from hypothesis import strategies as st

from agents.messages import (
    AssistantMessage,
    AssistantPart,
    Message,
    ModelError,
    Opaque,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    UserPart,
    Wire,
)
from tests.agents.providers.requests import MODEL, PIXEL, assistant
from tests.emulators.models.anthropic.script import redacted_block, thinking_block
from tools.tool import Image

API = "anthropic-messages"
OTHER = "claude-opus-5"

texts = st.text(alphabet=st.sampled_from("a中 \n🙂\ud83d\ude42\0"), max_size=6)
call_ids = st.sampled_from(["a", "b", "a_2", "functions.ls:0", "", "é\ud800"])
families = st.sampled_from([MODEL, MODEL, OTHER])
makers = st.builds(lambda api, family: (api, family), st.sampled_from([API, API, "elsewhere"]), families)


def _thinking(maker: tuple[str, str], text: str, shape: str) -> Thinking:
    block = redacted_block("x") if shape == "redacted" else thinking_block(text, shown=shape == "shown")
    return Thinking(text=text, wire=Wire(api=maker[0], family=maker[1], kind=str(block["type"]), data=block))


def _opaque(maker: tuple[str, str], number: int) -> Opaque:
    block = {"type": "server_tool_use", "id": f"srvtoolu_{number}", "name": "web_search", "input": {}}
    return Opaque(wire=Wire(api=maker[0], family=maker[1], kind="server_tool_use", data=block))


def _call(call_id: str, name: str, value: str | None) -> ToolCall:
    arguments = None if value is None else {"path": value, "deep": [{"x": value}]}
    return ToolCall(id=call_id, name=name, arguments=arguments, arguments_raw='{"path": ' if value is None else "{}")


text_parts = st.builds(lambda text: Text(text=text), texts)
thinking_parts = st.one_of(
    st.builds(_thinking, makers, st.sampled_from(["hm", "嗯"]), st.sampled_from(["shown", "hidden", "redacted"])),
    st.just(Thinking(text="unsigned")),
)
call_parts = st.builds(_call, call_ids, st.sampled_from(["ls", "目录", ""]), st.one_of(st.none(), texts))
opaque_parts = st.builds(_opaque, makers, st.integers(0, 3))
images = st.builds(
    lambda media_type, data: Image(media_type=media_type, data=data, name="picture.png"),
    st.sampled_from(["image/png", "image/jpeg", "image/bmp"]),
    st.sampled_from([PIXEL, PIXEL, "not base64", "AAAA", "A" * 5_000_004]),
)
user_parts: st.SearchStrategy[UserPart] = st.one_of(text_parts, text_parts, images)
assistant_parts: st.SearchStrategy[AssistantPart] = st.one_of(
    text_parts, thinking_parts, call_parts, call_parts, opaque_parts
)
stop_reasons: st.SearchStrategy[StopReason] = st.sampled_from(
    ["end_turn", "tool_use", "tool_use", "max_tokens", "refusal", "content_filter", "pause", "error", "aborted"]
)


def _assistant(parts: list[AssistantPart], stop: StopReason) -> AssistantMessage:
    error = ModelError(kind="server", summary="", retryable=True) if stop == "error" else None
    return replace(assistant(), content=tuple(parts), stop_reason=stop, error=error, timestamp=1.0)


user_messages = st.builds(
    lambda parts, metadata: UserMessage(content=tuple(parts), metadata=metadata),
    st.lists(user_parts, max_size=3),
    st.sampled_from(["", "", "META\ud800"]),
)
assistant_messages = st.builds(_assistant, st.lists(assistant_parts, max_size=5), stop_reasons)
result_messages = st.builds(
    lambda call_id, parts, failed: ToolResultMessage(
        call_id=call_id, tool="ls", content=tuple(parts), is_error=failed, timestamp=2.0
    ),
    call_ids,
    st.lists(user_parts, max_size=2),
    st.booleans(),
)
broken_histories: st.SearchStrategy[list[Message]] = st.lists(
    st.one_of(user_messages, assistant_messages, assistant_messages, result_messages, result_messages), max_size=10
)
