"""The reference case, through every layer: the one test to read first."""

import json
from pathlib import Path

import pytest

from tests.demo import story
from tests.demo.makers import MAKERS, Maker
from tests.demo.play import Layer, stage
from tests.emulators.models.script import says
from tests.running import push
from tests.stories.at_work import results, text_of

SIX_TOOLS = ["read", "write", "edit", "ls", "exec", "message"]


async def test_one_message_makes_a_file_and_a_reply_and_leaves_a_clean_history(tmp_path: Path) -> None:
    layers: list[Layer] = []
    async with stage(tmp_path, layers) as (url, feishu, anthropic):
        event = feishu.text_event(story.ASKED, sender=story.SENDER, chat=story.CHAT, message_id=story.MESSAGE_ID)
        assert (await push(feishu, url, event)).json() == {}
        await feishu.sent(1)

        reply = feishu.messages[0]
        assert reply.reply_to == story.MESSAGE_ID
        assert reply.chat_id == story.CHAT
        assert reply.text == story.ANSWER
        written = tmp_path / "data" / "workspaces" / "coder" / story.SCRIPT_NAME
        assert written.read_text(encoding="utf-8") == story.SCRIPT

        requests = [received.body for received in anthropic.requests]
        assert [received.refusal for received in anthropic.requests] == [None] * 4
        assert [[tool["name"] for tool in body["tools"]] for body in requests] == [SIX_TOOLS] * 4
        first = text_of(requests[0]["messages"][0])
        body = f"[message_id: {story.MESSAGE_ID}]\n{story.SENDER_NAME}: {story.ASKED}"
        assert first.startswith("## Inbound Context (trusted metadata)\n")
        assert first.endswith("\n\n" + body)
        trusted = json.loads(first.split("```json\n", 1)[1].split("\n```", 1)[0])
        assert trusted.keys() == {"schema", "channel", "provider", "surface", "chat_type", "account"}
        assert trusted["schema"] == "clawgate.inbound_meta.v1"

        read, listed, wrote = results(requests[-1])
        assert "create-python-script" in read
        assert listed == "README.md\nrequirements.txt\nscripts/\ntests/"
        assert wrote == f"Wrote {story.SCRIPT_NAME} ({len(story.SCRIPT.encode())} bytes)"

        anthropic.script = [says("不客气！")]
        thanks = feishu.text_event("谢谢", sender=story.SENDER, chat=story.CHAT, message_id="om_2")
        await push(feishu, url, thanks)
        await feishu.sent(2)
        later = anthropic.requests[-1].body
        assert text_of(later["messages"][0]) == body
        assert "metadata" not in json.dumps(later["messages"][:-1], ensure_ascii=False)
        assert [message["role"] for message in later["messages"]] == ["user", "assistant"] * 4 + ["user"]
        assert later["system"][0] == requests[0]["system"][0]
        assert later["tools"] == requests[0]["tools"]

        stable, volatile = next(layer.data for layer in layers if layer.name == "system_prompt").split(
            "<<<CACHE_BOUNDARY>>>"
        )
        for fact in (story.MESSAGE_ID, story.SENDER, story.SENDER_NAME, story.ASKED):
            assert fact not in stable + volatile
        assert "CACHE_BOUNDARY" not in json.dumps(requests)
        assert later["system"][0]["cache_control"] == {"type": "ephemeral"}
        assert [block["text"] for block in requests[0]["system"]] == [stable.strip(), volatile.strip()]


OTHERS = {name: maker for name, maker in MAKERS.items() if name != "anthropic-messages"}


@pytest.mark.parametrize("maker", OTHERS.values(), ids=OTHERS.keys())
async def test_walkthrough_on_every_other_wire(tmp_path: Path, maker: Maker) -> None:
    layers: list[Layer] = []
    async with stage(tmp_path, layers, maker) as (url, feishu, model):
        event = feishu.text_event(story.ASKED, sender=story.SENDER, chat=story.CHAT, message_id=story.MESSAGE_ID)
        await push(feishu, url, event)
        (reply,) = await feishu.sent(1)
        assert (reply.reply_to, reply.text) == (story.MESSAGE_ID, story.ANSWER)
        written = tmp_path / "data" / "workspaces" / "coder" / story.SCRIPT_NAME
        assert written.read_text(encoding="utf-8") == story.SCRIPT
        called = [layer.data["name"] for layer in layers if layer.name == "tool_call"]
        assert called == ["read", "ls", "write"]
        assert ["tools" in received.body for received in model.requests] == [maker is not MAKERS["prompt"]] * 4

        model.script = [says("不客气！")]
        await push(feishu, url, feishu.text_event("谢谢", sender=story.SENDER, chat=story.CHAT, message_id="om_2"))
        await feishu.sent(2)
        assert feishu.messages[1].text == "不客气！"
        assert [received.refusal for received in model.requests] == [None] * 5
