"""What of an answer is shown while it grows, and which files it names."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.prompt.markers import SILENT
from agents.prompt.reply import draft, media, visible

DRAFTS = {
    "": "",
    "Hello": "Hello",
    "Hello\n": "Hello",
    "Hello\nwor": "Hello\nwor",
    "_": "",
    "__SIL": "",
    "__SILENT__": "",
    "**__SIL": "",
    "`__SILENT": "",
    "__init__": "__init",
    "__init__ is": "__init__ is",
    "call __init": "call __init",
    "Here. __SIL": "Here.",
    "Here. __SILENT__": "Here.",
    "Here. _": "Here.",
    "Here. _it": "Here. _it",
    "```\n__SILENT__": "",
    "M": "",
    "MEDIA": "",
    "MEDIA:": "",
    "MEDIA: the press": "",
    "MEDIA: the press says\n": "MEDIA: the press says",
    "Monday": "Monday",
    "MEDICINE": "MEDICINE",
    "Done.\nMEDIA:./a": "Done.",
    "Done.\n  MED": "Done.",
    "Done.\nMEDIA:./a.png\n": "Done.",
    "[": "",
    "[[": "",
    "[[reply_to_cur": "",
    "[[reply_to_current]]": "",
    "Yes [[audio": "Yes",
    "one\nYes [[audio": "one\nYes",
    "[a link](https": "[a link](https",
    "see [": "see",
    "```\nMEDIA:a\n```": "```\nMEDIA:a\n```",
    "**": "",
    "---": "",
}


@pytest.mark.parametrize(("text", "shown"), DRAFTS.items())
def test_what_is_shown_of_an_answer_so_far(text: str, shown: str) -> None:
    assert draft(text) == shown


ANSWERS = [
    SILENT,
    f"**{SILENT}**",
    f"`{SILENT}`.",
    f"```\n{SILENT}\n```",
    f"Here it is. {SILENT}",
    f"{SILENT}\n\nHere it is.",
    f"{SILENT}MEDIA:a.png",
    "Here it is.\n\nMEDIA:./secret.png\nMEDIA: secret.pdf",
    "[[reply_to_current]] Here it is.",
    "Here it is. [[audio_as_voice]]",
    "[[reply_to: om_1]][[audio_as_voice]]\nHere it is.",
]


@pytest.mark.parametrize("text", ANSWERS)
def test_however_far_it_has_come_nothing_is_shown_that_will_not_be_said(text: str) -> None:
    said = visible(text) or ""
    for end in range(len(text) + 1):
        shown = draft(text[:end])
        assert said.startswith(shown.rstrip()), (text[:end], shown)


lines = st.sampled_from(
    [
        "hello",
        "",
        "```",
        "MEDIA:secret",
        "  MEDIA: secret",
        "[[reply_to_current]] yes",
        SILENT,
        f"x {SILENT}",
        "- a",
        "__b__",
    ]
)


@settings(max_examples=300)
@given(st.lists(lines, max_size=6).map("\n".join), st.data())
def test_no_draft_of_anything_shows_the_token_or_a_part_of_it(text: str, data: st.DataObject) -> None:
    shown = draft(text[: data.draw(st.integers(0, len(text)))])
    assert "__S" not in shown
    assert "reply_to" not in shown or "```" in shown


@given(st.text(max_size=50), st.sampled_from(["hello", "a b c", "x = 1"]))
def test_a_whole_line_of_plain_words_is_shown(before: str, words: str) -> None:
    shown = draft(f"{before}\n{words}\n")
    assert shown == (visible(f"{before}\n{words}\n") or "")
    assert words in shown


FILES = {
    "": [],
    "no files": [],
    "MEDIA:a.png": ["a.png"],
    "MEDIA: a.png ": ["a.png"],
    "  MEDIA:./my chart.png": ["./my chart.png"],
    "MEDIA:a\nMEDIA:b\nMEDIA:a": ["a", "b"],
    "MEDIA: the press and others": [],
    "MEDIA:": [],
    "MEDIA: ": [],
    "see MEDIA:a": [],
    "media:a": [],
    "```\nMEDIA:a\n```\nMEDIA:b": ["b"],
    "```\nMEDIA:a": [],
    "MEDIA:https://x.test/a.png": ["https://x.test/a.png"],
    "MEDIA:MEDIA:a": ["MEDIA:a"],
    f"{SILENT}MEDIA:a": ["a"],
    "> MEDIA:a": [],
    "- MEDIA:a": [],
}


@pytest.mark.parametrize(("text", "files"), FILES.items())
def test_which_files_an_answer_names(text: str, files: list[str]) -> None:
    assert media(text) == files


@given(st.lists(lines, max_size=6).map("\n".join))
def test_what_is_shown_names_no_file_any_more(text: str) -> None:
    assert media(visible(text) or "") == []
    assert set(media(text)) <= {"secret"}
