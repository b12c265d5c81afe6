"""What a person sees of the model's last words, and of an answer while it grows; and which files it names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.prompt.fences import SILENT
from agents.prompt.reply import draft, media, visible

SILENCES = [
    "__SILENT__",
    "`__SILENT__`",
    "**__SILENT__**.",
    "```\n__SILENT__\n```",
    "MEDIA:a.png\n__SILENT__",
]

SHOWN = {
    "": "",
    " \n ": "",
    "__SILENT__ 好的": "好的",
    "__SILENT__\n\nDone.": "Done.",
    "one\n\n__SILENT__\n\ntwo": "one\n\ntwo",
    "__silent__": "__silent__",
    "[[reply_to:om_1]][[audio_as_voice]]\nYes.": "Yes.",
    "[[ Reply_To : om_1 ]]Yes.": "Yes.",
    "[[reply_to_current]]": "",
    "[[reply_to_current]]?": "?",
    "[[reply_to_someone]] [[x]] a[[0]]": "[[reply_to_someone]] [[x]] a[[0]]",
    "say `[[reply_to_current]]` first": "say `[[reply_to_current]]` first",
    "a\n\n  MEDIA: https://x.test/a.png  \n\nb": "a\n\nb",
    "MEDIA: the press and other media": "MEDIA: the press and other media",
    "see MEDIA:a.png there": "see MEDIA:a.png there",
    "```\nMEDIA:a.png\n[[reply_to_current]]\n```": "```\nMEDIA:a.png\n[[reply_to_current]]\n```",
    "~~~~\n~~~\nMEDIA:a\n~~~~\nMEDIA:a\nb": "~~~~\n~~~\nMEDIA:a\n~~~~\nb",
    "```inline``` x\nMEDIA:a": "```inline``` x",
    "    indented\n\n\n\ncode": "    indented\n\n\n\ncode",
    "\n\n  \n    x": "    x",
}


@pytest.mark.parametrize("text", SILENCES)
def test_the_silent_token_alone_sends_nothing(text: str) -> None:
    assert visible(text) is None


@pytest.mark.parametrize(("text", "shown"), SHOWN.items())
def test_what_is_meant_for_the_gateway_is_not_sent(text: str, shown: str) -> None:
    assert visible(text) == shown


LINES = [
    *("hello", "", " ", "```", "~~~", "- a", "__b__", "MEDIA:secret", "  MEDIA: secret", "[[reply_to_current]]"),
    *("[[reply_to_current]] yes", SILENT, f"x {SILENT} y", f"__SIL{SILENT}ENT__"),
]
lines = st.sampled_from(LINES)


@given(st.lists(lines, max_size=8).map("\n".join))
def test_the_token_is_never_seen_and_a_second_look_finds_nothing_more(text: str) -> None:
    shown = visible(text)
    if shown is not None:
        assert "__SILENT__" not in shown
        assert visible(shown) == shown


DRAFTS = {
    "_": "",
    "__init__": "__init",
    "__init__ is": "__init__ is",
    "Here. _": "Here.",
    "Here. _it": "Here. _it",
    "MEDIA: the press": "",
    "MEDIA: the press says\n": "MEDIA: the press says",
    "Monday": "Monday",
    "Done.\nMEDIA:./a.png\n": "Done.",
    "[": "",
    "[[reply_to_cur": "",
    "Done.\n  MED": "Done.",
    "[a link](https": "[a link](https",
    "see [": "see",
    "```\nMEDIA:a\n```": "```\nMEDIA:a\n```",
    "**": "",
}


@pytest.mark.parametrize(("text", "shown"), DRAFTS.items())
def test_what_is_shown_of_an_answer_so_far(text: str, shown: str) -> None:
    assert draft(text) == shown


ANSWERS = [
    SILENT,
    f"`{SILENT}`.",
    f"```\n{SILENT}\n```",
    f"Here it is. {SILENT}",
    f"{SILENT}MEDIA:a.png",
    "Here it is.\n\nMEDIA:./secret.png\nMEDIA: secret.pdf",
    "[[reply_to: om_1]][[audio_as_voice]]\nHere it is.",
]


@pytest.mark.parametrize("text", ANSWERS)
def test_however_far_it_has_come_nothing_is_shown_that_will_not_be_said(text: str) -> None:
    reply = visible(text) or ""
    for end in range(len(text) + 1):
        shown = draft(text[:end])
        assert reply.startswith(shown.rstrip()), (text[:end], shown)


@given(st.lists(st.sampled_from(LINES[:-1]), max_size=6).map("\n".join), st.data())
def test_no_draft_of_anything_shows_the_token_or_a_part_of_it(text: str, data: st.DataObject) -> None:
    shown = draft(text[: data.draw(st.integers(0, len(text)))])
    assert "__S" not in shown
    assert "reply_to" not in shown or "```" in shown or "~~~" in shown


@given(st.text(max_size=50), st.sampled_from(["hello", "a b c", "x = 1"]))
def test_a_whole_line_of_plain_words_is_shown(before: str, words: str) -> None:
    shown = draft(f"{before}\n{words}\n")
    assert shown == (visible(f"{before}\n{words}\n") or "")
    assert words in shown


FILES = {
    "MEDIA: a.png ": ["a.png"],
    "  MEDIA:./my chart.png": ["./my chart.png"],
    "MEDIA:a\nMEDIA:b\nMEDIA:a": ["a", "b"],
    "see MEDIA:a": [],
    "media:a": [],
    "```\nMEDIA:a\n```\nMEDIA:b": ["b"],
    "MEDIA:https://x.test/a.png": ["https://x.test/a.png"],
    "MEDIA:MEDIA:a": ["MEDIA:a"],
    f"{SILENT}MEDIA:a": ["a"],
}


@pytest.mark.parametrize(("text", "files"), FILES.items())
def test_which_files_an_answer_names(text: str, files: list[str]) -> None:
    assert media(text) == files


@given(st.lists(lines, max_size=6).map("\n".join))
def test_what_is_shown_names_no_file_any_more(text: str) -> None:
    assert media(visible(text) or "") == []
    assert set(media(text)) <= {"secret"}
