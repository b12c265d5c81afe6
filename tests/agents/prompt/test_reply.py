"""What a person sees of the model's last words."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.prompt.reply import visible

SILENT = [
    "__SILENT__",
    "  __SILENT__\n\n",
    "`__SILENT__`",
    "**__SILENT__**.",
    "__SILENT__\n__SILENT__",
    "```\n__SILENT__\n```",
    "MEDIA:a.png\n__SILENT__",
]

SHOWN = {
    "你好!": "你好!",
    "": "",
    " \n ": "",
    "好的 __SILENT__": "好的",
    "__SILENT__ 好的": "好的",
    "__SILENT__\n\nDone.": "Done.",
    "one\n\n__SILENT__\n\ntwo": "one\n\ntwo",
    "👍 __SILENT__": "👍",
    "__silent__": "__silent__",
    "call __init__ then": "call __init__ then",
    "[[reply_to_current]] Yes.": "Yes.",
    "[[reply_to:om_1]][[audio_as_voice]]\nYes.": "Yes.",
    "[[ Reply_To : om_1 ]]Yes.": "Yes.",
    "Yes. [[reply_to_current]]": "Yes.",
    "[[reply_to_current]]": "",
    "[[reply_to_current]]?": "?",
    "[[reply_to_someone]] [[x]] a[[0]]": "[[reply_to_someone]] [[x]] a[[0]]",
    "say `[[reply_to_current]]` first": "say `[[reply_to_current]]` first",
    "Here it is.\nMEDIA:./my chart.png": "Here it is.",
    "a\n\n  MEDIA: https://x.test/a.png  \n\nb": "a\n\nb",
    "MEDIA: the press and other media": "MEDIA: the press and other media",
    "see MEDIA:a.png there": "see MEDIA:a.png there",
    "media:a.png": "media:a.png",
    "```\nMEDIA:a.png\n[[reply_to_current]]\n```": "```\nMEDIA:a.png\n[[reply_to_current]]\n```",
    "~~~~\n~~~\nMEDIA:a\n~~~~\nMEDIA:a\nb": "~~~~\n~~~\nMEDIA:a\n~~~~\nb",
    "```inline``` x\nMEDIA:a": "```inline``` x",
    "```\nMEDIA:a": "```\nMEDIA:a",
    "    indented\n\n\n\ncode": "    indented\n\n\n\ncode",
    "\n\n  \n    x": "    x",
}


@pytest.mark.parametrize("text", SILENT)
def test_the_silent_token_alone_sends_nothing(text: str) -> None:
    assert visible(text) is None


@pytest.mark.parametrize(("text", "shown"), SHOWN.items())
def test_what_is_meant_for_the_gateway_is_not_sent(text: str, shown: str) -> None:
    assert visible(text) == shown


lines = st.sampled_from(
    [
        "hello",
        "",
        "```",
        "~~~",
        "MEDIA:a",
        "[[reply_to_current]]",
        "__SILENT__",
        "x __SILENT__ y",
        "__SIL__SILENT__ENT__",
        " ",
    ]
)


@settings(max_examples=200)
@given(st.lists(lines, max_size=8).map("\n".join))
def test_the_token_is_never_seen_and_a_second_look_finds_nothing_more(text: str) -> None:
    shown = visible(text)
    if shown is not None:
        assert "__SILENT__" not in shown
        assert visible(shown) == shown
