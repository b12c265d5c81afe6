"""Thoughts at the beginning of an answer, told apart from its words however the stream is cut."""

import pytest

from agents.providers.textcalls.thinking import Thoughts
from tests.agents.providers.textcalls.scripted import cut


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
