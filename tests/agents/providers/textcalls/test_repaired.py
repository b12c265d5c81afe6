"""A model with tools that wrote its call as text: made a real call where it is nothing else, else kept from people."""

import re
from collections.abc import Callable
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.messages import AssistantPart, StopReason, Text, Thinking, Wire
from agents.providers.prompted import PromptedTools
from agents.providers.provider import Done, OneTool, Provider, TextDelta, ThinkingDelta, ToolChoice
from agents.providers.textcalls import RepairedCalls
from tests.agents.providers.requests import asking, call, collect
from tests.agents.providers.textcalls.scripted import Scripted, ask, chunkings, mentions, outline, says, shown, texts

TAGGED = '<tool_call>{"name": "ls", "arguments": {"path": "/tmp"}}</tool_call>'
BARE = '{"name": "ls", "arguments": {"path": "/tmp"}}'
TMP = ("ls", {"path": "/tmp"})
FORMS = [
    TAGGED,
    TAGGED.removesuffix("</tool_call>"),
    "<tool_call>\n<function=ls>\n<parameter=path>\n/tmp\n</parameter>\n</function>\n</tool_call>",
    '[tool:ls] {"path": "/tmp"}',
    '[tool:ls]\n{"path": "/tmp"}\n[/ls]',
    '[tool:ls] {"path": "/tmp"} [END_TOOL_REQUEST]',
    '[ls]\n{"path": "/tmp"}\n[/ls]',
    '[ls]\n{"path": "/tmp"}[END_TOOL_REQUEST]',
    '<|channel|>commentary to=ls <|constrain|>json<|message|>{"path": "/tmp"}<|call|>',
    '<|channel|>commentary to=functions.ls<|message|>{"path": "/tmp"}',
    "<function=ls><parameter=path>/tmp</parameter></function>",
    '<function=ls>\n{"path": "/tmp"}\n</function>',
    '[TOOL_CALLS][{"name": "ls", "arguments": {"path": "/tmp"}}]',
    BARE,
    '[{"name": "ls", "parameters": {"path": "/tmp"}}]',
]
TAGS = [form for form in FORMS if form[0] == "<" or form.startswith(("[tool:", "[TOOL_"))]
WIRE = Wire(api="scripted-api", family="m", kind="text", data={})


async def test_thoughts_do_not_stand_in_the_way() -> None:
    events, message = await ask(RepairedCalls(says(f"<think>look</think>\n\n{BARE}")), asking())
    assert outline(message) == ["(look)", TMP]
    assert [event for event in events if isinstance(event, ThinkingDelta)] == [ThinkingDelta(index=1, text="look")]
    native = Thinking(text="hm", wire=WIRE)
    halves = Text(text=TAGGED[:20], wire=WIRE), Text(text=TAGGED[20:])
    _, message = await ask(RepairedCalls(Scripted((native, *halves))), asking())
    assert message.content[0] is native
    assert outline(message) == ["(hm)", TMP]


@pytest.mark.parametrize("form", TAGS)
@pytest.mark.parametrize(("before", "after"), [("I call: ", ""), ("", "\n\nDone."), ("Look\n\n", "\n\nthere")])
async def test_a_call_among_words_is_not_made_and_not_seen(before: str, form: str, after: str) -> None:
    if after and form == FORMS[1]:
        return  # without its end nothing stands behind it
    _, message = await ask(RepairedCalls(says(f"{before}{form}{after}", [4])), asking())
    assert outline(message) == [before + (after.lstrip() if not before or before[-1].isspace() else after)]
    assert message.stop_reason == "end_turn"


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        (TAGGED.replace('"ls"', '"rm"'), []),
        ('<tool_call>{"name": "ls", "arguments": {"path', []),
        (TAGGED + TAGGED.replace('"ls"', '"rm"'), []),
        ('[tool:rm] {"path": "/"}', []),
        (f"say `{TAGGED}` here", [f"say `{TAGGED}` here"]),
        (f"say ``{TAGGED}`` here {TAGGED}", [f"say ``{TAGGED}`` here "]),
        (f"a lone ` then {TAGGED}\n`", ["a lone ` then `"]),
        ("if (a <function", ["if (a <function"]),
        ("std::<function = 3", ["std::<function = 3"]),
        ("use [tool:hammer] for this", ["use [tool:hammer] for this"]),
        ('so [tool:ls] {"path": "a\\"}b"} c', ["so c"]),
        ('so [tool:ls] {"path": } c', ["so c"]),
        ("so [tool:ls]\n{", ["so "]),
        ("so [tool:ls] {} [link]", ["so [link]"]),
        ("a<function=w><parameter=c>a</function>b</parameter></function>.", ["a."]),
        ("<function=ls>{}</function>\n</tool_call> so", ["so"]),
        ('<function_calls>\n<invoke name="ls">x</invoke>\n</function_calls>', []),
        ('Now <invoke name="ls"><parameter name="path">/tmp</parameter></invoke> so', ["Now so"]),
        ('Now <function_calls><invoke name="ls">', ["Now "]),
        (BARE.replace('"ls"', '"rm"'), [BARE.replace('"ls"', '"rm"')]),
        ('{"name": "ls", "arguments": {}, "x": 1}', ['{"name": "ls", "arguments": {}, "x": 1}']),
        ('{"name": "ls", "arguments": {"path', ['{"name": "ls", "arguments": {"path']),
        ('[ls]\n{"path": "/tmp"}', ['[ls]\n{"path": "/tmp"}']),
        ('[rm]\n{"path": "/tmp"}\n[/rm]', ['[rm]\n{"path": "/tmp"}\n[/rm]']),
        (f"```json\n{BARE}\n```", [f"```json\n{BARE}\n```"]),
        (f"```\n{TAGGED}\n```", [f"```\n{TAGGED}\n```"]),
        (f"`{TAGGED}`", [f"`{TAGGED}`"]),
        (f"{BARE}\n{TAGGED} is it", [f"{BARE}\nis it"]),
        (f'{{"name": "{TAGGED}"', ['{"name": ""']),
        *((text, [text]) for text in (f"Send this:\n{BARE}", f"{FORMS[-1]}\nis what I would send", "   ")),
        ("3 < 4 and [x] {y}", ["3 < 4 and [x] {y}"]),
    ],
)
async def test_what_does_not_qualify(text: str, seen: list[str]) -> None:
    for pieces in ([], [1], [6, 5]):
        _, message = await ask(RepairedCalls(says(text, pieces)), asking())
        assert (outline(message), message.stop_reason) == (seen, "end_turn")


GOOD_ENDS = ("end_turn", "stop_sequence", "tool_use")


@pytest.mark.parametrize("reason", get_args(StopReason))
@pytest.mark.parametrize("choice", ["auto", "required", OneTool(name="ls"), "none"])
async def test_only_a_model_that_may_call_and_ended_well_makes_calls(reason: StopReason, choice: ToolChoice) -> None:
    for form, seen in ((TAGGED, []), (BARE, [BARE])):
        made = reason in GOOD_ENDS and choice != "none"
        _, message = await ask(RepairedCalls(says(form, [5], reason)), asking(tool_choice=choice))
        assert (outline(message), message.stop_reason) == (([TMP], "tool_use") if made else (seen, reason))


async def test_without_tools_nothing_is_a_call() -> None:
    text = f"{TAGGED} and {BARE}"
    for before, thoughts in (("", []), ("<think>hm</think>", ["(hm)"])):
        _, message = await ask(RepairedCalls(says(before + text, [4])), asking(tools=[]))
        assert outline(message) == [*thoughts, text]


@pytest.mark.parametrize(("chars", "made"), [(250_000, True), (256_000, False)])
async def test_a_call_of_a_quarter_megabyte_is_the_largest(chars: int, made: bool) -> None:
    text = '<tool_call>{"name": "ls", "arguments": {"path": "' + "a" * chars + '"}}</tool_call>'
    for pieces in ([], [9973]):
        _, message = await ask(RepairedCalls(says(text, pieces)), asking())
        assert (bool(message.calls), message.text) == (made, "")
    text = '{"name": "ls", "arguments": {"path": "' + "中" * chars
    _, message = await ask(RepairedCalls(says(text, [50_000])), asking())
    assert message.text == text


@pytest.mark.parametrize(
    "text", ["I found it", "a > b", "a lone ` and <b", '{"ok": true', "[docs](", "[x] done", '{"title": "', "<thin"]
)
async def test_what_cannot_become_a_call_is_shown_while_it_comes(text: str) -> None:
    inner, seen = says(f"{text} and more", [1]), 0
    async for event in RepairedCalls(inner).stream(asking()):
        if isinstance(event, TextDelta):
            seen += len(event.text)
            assert seen == len(inner.sent)
    assert seen == len(text) + 9


async def test_next_to_native_calls_text_is_only_cleaned() -> None:
    native = call("toolu_1")
    inner = Scripted((Text(text=TAGGED), native, Text(text="ok", wire=WIRE)), pieces=[3], stop_reason="tool_use")
    events, message = await ask(RepairedCalls(inner), asking())
    assert message.content == (native, inner.content[2])
    assert message.content[0] is native
    assert message.content[1] is inner.content[2]
    assert [event.index for event in events if not isinstance(event, Done)] == [1, 1, 1, 2]
    _, message = await ask(RepairedCalls(Scripted((Text(text=BARE), native))), asking())
    assert outline(message) == [BARE, ("ls", {"path": "."})]


async def test_a_healthy_answer_passes_as_the_very_same_objects() -> None:
    parts: tuple[AssistantPart, ...] = (
        Thinking(text="hm", wire=WIRE),
        Text(text="Hello 你好 🙂\n\nwell, ", wire=WIRE),
        Text(text="all right", wire=WIRE),
        call("toolu_1"),
    )
    inner = Scripted(parts, pieces=[3])
    got = [event async for event in RepairedCalls(inner).stream(asking())]
    assert len(got) == len(inner.sent)
    assert all(mine is theirs for mine, theirs in zip(got, inner.sent, strict=True))


async def test_textcalls_wrapper_leaves_the_request_alone() -> None:
    inner, request = says("hi"), asking()
    provider = RepairedCalls(inner)
    await ask(provider, request)
    await provider.warm_up()
    await provider.close()
    assert inner.requests[0] is request
    assert (provider.name, provider.api, inner.warm, inner.closed) == ("scripted", "scripted-api", True, True)


async def test_a_stream_that_is_left_early_is_closed() -> None:
    inner = says("one two three", pieces=[2])
    events = RepairedCalls(inner).stream(asking())
    await anext(events)
    await events.aclose()
    assert inner.streams_closed == 1


@pytest.mark.parametrize("provider", [RepairedCalls, PromptedTools])
@given(texts, chunkings, st.sampled_from(["end_turn", "max_tokens", "error"]), st.integers(0, 40))
async def test_chunking_never_changes_the_outcome(
    provider: Callable[..., Provider], text: str, pieces: list[int], reason: StopReason, at: int
) -> None:
    parts = [Text(text=half) for half in (text[:at], text[at:]) if half]
    _, whole = await collect(provider(Scripted(parts, (), reason)), asking())
    events, message = await ask(provider(Scripted(parts, pieces, reason)), asking())
    assert message == whole
    assert shown(events) == message.text


@given(mentions, chunkings, st.sampled_from([TAGGED, *TAGS[2:]]))
async def test_words_about_calls_pass_whole_and_a_call_among_them_is_not_seen(
    words: str, pieces: list[int], form: str
) -> None:
    _, message = await ask(RepairedCalls(says(words, pieces)), asking())
    assert outline(message) == [words]
    _, message = await ask(RepairedCalls(says(f"{words}\n\n{form}", pieces)), asking())
    assert outline(message) == [f"{words}\n\n"]


@given(st.lists(st.sampled_from(FORMS), min_size=1, max_size=3), chunkings)
async def test_an_answer_that_is_nothing_but_calls_becomes_the_calls(forms: list[str], pieces: list[int]) -> None:
    forms = [TAGGED if form == FORMS[1] and len(forms) > 1 else form for form in forms]
    events, message = await ask(RepairedCalls(says("\n{}\n".format("\n".join(forms)), pieces)), asking())
    assert (outline(message), message.stop_reason) == ([TMP] * len(forms), "tool_use")
    assert all(re.fullmatch(r"call_[0-9a-f]{8}", made.id) for made in message.calls)
    assert not any(isinstance(event, TextDelta) for event in events)
