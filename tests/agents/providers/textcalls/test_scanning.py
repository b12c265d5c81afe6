"""The stream cut into ordinary text and call text: nothing lost, nothing shown too early, however it is chunked."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings

from agents.providers.textcalls.fences import CodeMarks
from agents.providers.textcalls.forms import bare_forms, prompted_forms, tag_forms
from agents.providers.textcalls.scanner import Marked, Plain, Scanner
from agents.providers.textcalls.thinking import Thoughts
from tests.agents.providers.textcalls.scripted import chunkings, cut, texts

CALL = '<tool_call>{"name": "ls", "arguments": {}}</tool_call>'


def prompted() -> Scanner:
    return Scanner(prompted_forms(), quoting="fences")


def native() -> Scanner:
    return Scanner(tag_forms(), quoting="fences and spans")


def alone() -> Scanner:
    return Scanner((*tag_forms(), *bare_forms(["ls"])), quoting="fences and spans")


def scanned(scanner: Scanner, text: str, pieces: Sequence[int] = ()) -> list[Plain | Marked]:
    """What it gives, neighbouring plain text joined."""
    items = [item for piece in cut(text, pieces) for item in scanner.feed(piece)] + scanner.finish()
    joined: list[Plain | Marked] = []
    for item in items:
        if isinstance(item, Plain) and joined and isinstance(joined[-1], Plain):
            joined[-1] = Plain(start=joined[-1].start, text=joined[-1].text + item.text)
        else:
            joined.append(item)
    return joined


@settings(deadline=None)
@given(texts, chunkings)
def test_chunking_never_changes_what_is_a_call(text: str, pieces: list[int]) -> None:
    for new in (prompted, native, alone):
        whole = scanned(new(), text)
        assert scanned(new(), text, pieces) == whole
        assert scanned(new(), text, [1]) == whole
        assert "".join(item.text for item in whole) == text
        assert all(text[item.start :].startswith(item.text) for item in whole)


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        (f"a{CALL}b", [CALL]),
        ("<tool_call>{} <tool_call>{}", ["<tool_call>{} ", "<tool_call>{}"]),
        (
            '<tool_call>{"name": "w", "arguments": {"c": "</tool_call>"}}</tool_call>.',
            ['<tool_call>{"name": "w", "arguments": {"c": "</tool_call>"}}</tool_call>'],
        ),
        ('<tool_call>{"name": "w}</tool_call> later', ['<tool_call>{"name": "w}</tool_call>']),
        ("so </tool_call> what", ["</tool_call>"]),
        ("<tool_call>{} <tool_response>x", ["<tool_call>{} ", "<tool_response>x"]),
        ("is 3 <", []),
        ("<tool", []),
        ("a <tool_", ["<tool_"]),
        ("<tools>", []),
        ("<toolbox_call>", []),
        (f"```\n{CALL}\n```\n", []),
        (f"~~~xml\n{CALL}\n~~~\n", []),
        (f"```\n{CALL}\n```\n{CALL}", [CALL]),
        (f"````\n```\n{CALL}\n````", []),
        (f"```{CALL}```", []),
        (f"    ```\n{CALL}", [CALL]),
        (f"`{CALL}`", [CALL]),
    ],
)
def test_what_a_prompted_model_wrote_as_a_call(text: str, marked: list[str]) -> None:
    assert [item.text for item in scanned(prompted(), text) if isinstance(item, Marked)] == marked


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        (f"a {CALL}", [CALL]),
        (f"say `{CALL}` here", []),
        (f"say ``{CALL}`` here {CALL}", [CALL]),
        (f"a lone ` then {CALL}", [CALL]),
        (f"a lone ` then {CALL}\n`", [CALL]),
        (f"a lone ` then <function=ls>{'x' * 1000}</function>`", [f"<function=ls>{'x' * 1000}</function>"]),
        ("<function=ls>{}</function>", ["<function=ls>{}</function>"]),
        ("if (a <function", ["<function"]),
        ("std::<function = 3", []),
        (
            "<function=w><parameter=c>a</function>b</parameter></function>.",
            ["<function=w><parameter=c>a</function>b</parameter></function>"],
        ),
        ('<function_calls><invoke name="ls"></invoke></function_calls>.', None),
        ('a <invoke name="ls">x</invoke> b', ['<invoke name="ls">x</invoke>']),
        ('[tool:ls] {"path": "]}"} [/ls] b', ['[tool:ls] {"path": "]}"} [/ls]']),
        ("[tool:ls]\n{}[END_TOOL_REQUEST]", ["[tool:ls]\n{}[END_TOOL_REQUEST]"]),
        ('[tool:ls] {"path": "a\\"}b"} c', ['[tool:ls] {"path": "a\\"}b"}']),
        ("[tool:ls] {} [link]", ["[tool:ls] {}"]),
        ("use [tool:hammer] for this", []),
        ("[tool:ls]\n{", ["[tool:ls]\n{"]),
        ('[TOOL_CALLS][{"name": "ls"}] b', ['[TOOL_CALLS][{"name": "ls"}]']),
        ("[TOOL_CALLS] b", ["[TOOL_CALLS]"]),
        (
            "<|channel|>commentary to=functions.ls <|constrain|>json<|message|>{}<|call|>.",
            ["<|channel|>commentary to=functions.ls <|constrain|>json<|message|>{}<|call|>"],
        ),
        ("<|channel|>commentary to=ls<|message|>{} b", ["<|channel|>commentary to=ls<|message|>{}"]),
        ('{"name": "ls", "arguments": {}}', []),
        ("[docs](https://example.com)", []),
    ],
)
def test_what_is_unmistakably_a_call(text: str, marked: list[str] | None) -> None:
    found = [item.text for item in scanned(native(), text) if isinstance(item, Marked)]
    assert found == ([text[:-1]] if marked is None else marked)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ('{"name": "ls", "arguments": {}}', ["bare"]),
        ('[ {"name": "ls", "arguments": {}} ]', ["bare"]),
        ("[ls]\n{}\n[/ls]", ["block"]),
        ("[ls]\n{} [END_TOOL_REQUEST]", ["block"]),
        ("[ls]\n{}", []),
        ("[ls] {} [/ls]", []),
        ("[rm]\n{}\n[/rm]", []),
        ('{"name": "ls"', []),
        ('{"temperature": 3}', []),
    ],
)
def test_what_may_be_a_call_where_it_stands_alone(text: str, kinds: list[str]) -> None:
    assert [item.kind for item in scanned(alone(), text) if isinstance(item, Marked)] == kinds


@pytest.mark.parametrize(
    "text", ["I found it", "a > b", "a lone ` and <b", '{"ok": true', "[docs](", "[x] done", '{"title": "']
)
def test_what_cannot_become_a_call_is_not_held_back(text: str) -> None:
    scanner = alone()
    assert "".join(item.text for piece in cut(text, [1]) for item in scanner.feed(piece)) == text


@pytest.mark.parametrize(
    ("text", "in_fence", "span"),
    [
        ("```py\nx", True, 0),
        ("```py\nx\n```", True, 0),
        ("```py\nx\n```\n", False, 0),
        ("```py\nx\n``` y\n", True, 0),
        ("````\n```\n", True, 0),
        ("~~~\n```\n", True, 0),
        ("text ```\n", False, 0),
        ("```x``` y", False, 0),
        ("   ```\n", True, 0),
        ("    ```\n", False, 0),
        ("a `b", False, 1),
        ("a `b`", False, 0),
        ("a ``b` c", False, 2),
        ("a `b\n", False, 0),
    ],
)
def test_where_code_is(text: str, in_fence: bool, span: int) -> None:
    for pieces in ([], [1], [2, 3]):
        marks = CodeMarks()
        for piece in cut(text, pieces):
            marks.feed(piece)
        assert (marks.in_fence, marks.span) == (in_fence, span)


@pytest.mark.parametrize(
    ("text", "thought", "said"),
    [
        ("hello", "", "hello"),
        ("<think>hm</think>hello", "hm", "hello"),
        ("\n <think>\n\nhm\n</think>\n\n hello ", "hm\n", "hello "),
        ("<think>\n\n</think>\n\nhello", "", "hello"),
        ("<think>hm", "hm", ""),
        ("<think>a < b </thi", "a < b ", ""),
        ("<thin", "", "<thin"),
        ("<thinking>", "", "<thinking>"),
        ("I <think>hm</think> so", "", "I <think>hm</think> so"),
        ("  \n", "", "  \n"),
    ],
)
def test_only_what_an_answer_begins_with_is_thought(text: str, thought: str, said: str) -> None:
    for pieces in ([], [1], [2, 3]):
        thoughts = Thoughts()
        passed = [thoughts.feed(piece) for piece in cut(text, pieces)] + [thoughts.finish()]
        assert ("".join(a for a, _ in passed), "".join(b for _, b in passed)) == (thought, said)
        assert thoughts.text == thought
        assert text[thoughts.end :] == said
