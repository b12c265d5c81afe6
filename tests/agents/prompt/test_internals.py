"""What stands in a prompt reaches no chat: not whole, not in an answer that grows, wherever its pieces are cut."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.prompt.fences import BOUNDARY, external
from agents.prompt.inbound import body, metadata_blocks
from agents.prompt.reply import draft, visible, without_beginnings, without_internals
from channels.message import Chat, MessageContext, Quote, Sender

MESSAGE = MessageContext(
    channel="feishu",
    account="default",
    chat=Chat(id="oc_secret", kind="group", title="secret plans"),
    message_id="om_secret",
    sender=Sender(id="ou_secret", name="张三"),
    text="hello",
    sent_at=datetime(2026, 6, 15, tzinfo=UTC),
    reply_to=Quote(message_id="om_secret", text="secret quote"),
)
BLOCKS = metadata_blocks(MESSAGE, zone=UTC)
KEY = "agent:coder:feishu:default:oc_secret"
GONE = {
    f"a\n{BLOCKS}\nb": "a\nb",
    f"a\n{BLOCKS.replace('```json', '```')}\nb": "a\nb",
    'Sender (untrusted metadata):\n{\n"id": "ou_secret"\n}\nb': "b",
    body(MESSAGE, 100): "张三: hello",
    "x [Message_ID: om_secret] y": "x y",
    "```\n[message_id: om_secret]\nx\n```": "```\nx\n```",
    external("page", "https://secret.test/", "0123abcd"): "page",
    f"a{BOUNDARY}\nb": "ab",
    "<think>secret\n```\nsecret</think>yes": "yes",
    "<think>a<think>b</think>secret</think>yes": "yes",
    "<th<think>x</think>ink>secret</think>yes": "",
    "secret thoughts\n</think>\n\nyes": "yes",
    "yes\n<think>secret": "yes",
    'yes <tool_call>{"name": "secret"}</tool_call>': "yes",
    '<function_calls><invoke name="secret">secret</invoke></function_calls>yes': "yes",
    '<invoke name="secret">secret</invoke>yes': "yes",
    "<function=secret>secret</function>yes": "yes",
    "<|im_start|>yes<｜end▁of▁sentence｜>": "yes",
    f"in {KEY}, aside:{KEY}:thread:1": "in [session], [session]",
}
KEPT = [
    "Write `<think>` before, `</think>` behind.",
    "```xml\n<think>\nx\n</think>\n<tool_call>{}</tool_call>\n```\nand on",
    "a < b, x<y, <b>bold</b> and List<Item>",
    "The tag [message_id: …] is the gateway's.",
    "my agent: fine; user-agent:curl, agent:x",
    '```json\n{"a": 1}\n```\n[1, 2]',
    "See <https://x.test/thinking> and </p>",
]


@pytest.mark.parametrize(("text", "shown"), GONE.items())
def test_internals_are_taken_out(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.parametrize("text", KEPT)
def test_what_only_talks_about_them_stays(text: str) -> None:
    assert visible(text) == text
    assert visible(without_beginnings(text + "\n")) == text


pieces = st.sampled_from([*GONE, *KEPT, "words ", "\n", "<", "[", "`", "```\n", "中文。"])


@given(st.lists(pieces, max_size=5).map("\n".join))
def test_taken_out_once_is_taken_out_for_good(text: str) -> None:
    shown = visible(text) or ""
    assert without_internals(shown) == shown
    assert "om_secret" not in shown.replace("[session]", "")


@pytest.mark.parametrize("text", [it for it in GONE if "secret thoughts" not in it])
def test_an_answer_that_grows_shows_nothing_of_them(text: str) -> None:
    """A thought that no tag opens is known by its end only."""
    for end in range(len(text) + 1):
        shown = draft(text[:end])
        assert "secret" not in shown, end
        assert not any(it in shown.lower() for it in ("<think", "<tool", "<func", "<ant", "<|", "agent:c", "<<<")), end


@given(st.lists(pieces, max_size=4).map("\n".join), st.data())
def test_pieces_of_any_length_show_no_id(text: str, data: st.DataObject) -> None:
    end = data.draw(st.integers(0, len(text)))
    assert "om_secret" not in draft(text[:end])
