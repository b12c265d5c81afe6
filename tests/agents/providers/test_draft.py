"""What the wires cannot show of `Draft`: halves of emoji, the cap; and which arguments are an object."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.messages import Text, Thinking
from agents.providers.draft import ANSWER_CHARS_MAX, BlockKind, Draft
from agents.providers.payload import BadStream, parse_arguments
from agents.providers.provider import ModelEvent, TextDelta, ThinkingDelta


def draft() -> Draft:
    return Draft(api="wire-1", provider="vendor", model="model-1", timestamp=7.0, response_id="r1")


def write(it: Draft, kind: BlockKind, *pieces: str) -> list[ModelEvent]:
    """One block named by its kind, in these pieces."""
    it.open(kind, kind)
    return [event for piece in pieces for event in it.add(kind, piece)]


@pytest.mark.parametrize("kind", ["text", "thinking", "call"])
def test_an_answer_without_end_is_stopped(kind: BlockKind) -> None:
    it = draft()
    write(it, kind, "x" * ANSWER_CHARS_MAX)
    with pytest.raises(BadStream):
        list(it.add(kind, "x"))


@pytest.mark.parametrize("kind", ["text", "thinking"])
def test_an_emoji_in_two_halves_is_shown_whole(kind: BlockKind) -> None:
    it = draft()
    pieces = write(it, kind, "a\ud83d", "\ude42b", "\ude42\0")
    shown = [piece.text for piece in pieces if isinstance(piece, TextDelta | ThinkingDelta)]
    assert shown == ["a", "🙂b", "\ufffd\ufffd"]
    [part] = it.finished("end_turn").content
    assert isinstance(part, Text | Thinking)
    assert part.text == "a🙂b\ufffd\ufffd"


@given(st.text(alphabet=st.characters(), max_size=30), st.integers(1, 5))
def test_the_deltas_are_the_text(text: str, size: int) -> None:
    utf16 = text.encode("utf-16-le", "surrogatepass")
    units = [utf16[at : at + 2 * size].decode("utf-16-le", "surrogatepass") for at in range(0, len(utf16), 2 * size)]
    it = draft()
    shown = "".join(piece.text for piece in write(it, "text", *units) if isinstance(piece, TextDelta))
    whole = it.finished("end_turn").text
    assert whole.startswith(shown)
    assert len(whole) - len(shown) <= 1  # a first half at the very end is never shown
    whole.encode()


@pytest.mark.parametrize(
    ("raw", "arguments"),
    [
        ("", {}),
        ('{"a": [1, 2.5, null, "中"]}', {"a": [1, 2.5, None, "中"]}),
        ('{"id": 12345678901234567890123}', {"id": 12345678901234567890123}),
        ('{"a": 1', None),
        ("null", None),
        ('{"a": NaN}', None),
        ('{"a": 1e999}', None),
        ('{"a": "\\ud83d"}', None),
        ('{"a": ' + "[" * 100 + "]" * 100 + "}", None),
        ("[" * 100_000, None),
        ('{"a": ' + "9" * 5000 + "}", None),
    ],
)
def test_arguments_are_an_object_or_nothing(raw: str, arguments: dict[str, Any] | None) -> None:
    assert parse_arguments(raw) == arguments
