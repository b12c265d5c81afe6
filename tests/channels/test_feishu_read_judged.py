"""Feishu's own SDK for bots, which we did not write, reads in a message what our channel reads, and no word more."""

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta, timezone
from itertools import count
from pathlib import Path
from typing import Any

import orjson
import pytest

from channels.channel import Arrived
from channels.feishu.channel import FeishuChannel
from channels.feishu.config import FeishuAccount
from channels.feishu.content import receipt
from channels.message import MessageContext
from tests.channels import test_feishu_content as content
from tests.channels.contexts import Kept
from tests.channels.test_feishu_receive import BOT, NOW, emulator
from tests.channels.test_samples import SAMPLES
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.feishu.events import Known
from tests.loopback import serve_on_loopback

pytestmark = pytest.mark.slow  # the SDK is asked in a process of its own

JUDGE = Path(__file__).resolve().parents[2] / ".venv" / "judges" / "bin" / "python"
SCRIPT = Path(__file__).with_name("feishu_judge.py")
judged = pytest.mark.skipif(not JUDGE.exists(), reason="the SDK's environment is not here: `make env` makes it")

BEIJING = timezone(timedelta(hours=8), "CST")
"""The zone of all times that the SDK writes."""
RANDOM_POSTS = 100
BOT_NAME, SAMPLE_BOT = "Helper Bot", "ou_5aa0d3e33fb57ba28c5e5e077a15faab"
Event = dict[str, Any]

KNOWN_DIFFERENCES = (
    ("our own messages start no turn", "ignored", "sample 29_group_own_echo", "sender: the bot itself"),
    ("a sender without an open id cannot be admitted", "ignored", "sender: without an open id"),
    ("a sender that is no user counts as a bot", "is_bot", "sender: anonymous"),
    ("a mention that only the post's nodes have is one", "mentioned", "sample 47_group_post_mention_in_content"),
    ("a reply to the first message is one, also in a topic", "reply_to", "reply: to the first", "topic: its first"),
    ("the same, in samples", "reply_to", "sample 14_topic_text", "sample 45_group_mention_alone"),
    ("we write the latitude first", "order", "location", "sample 26_direct_location"),
    ("we write the due date first", "order", "todo"),
    ("a number is shown as it was sent", "text", "shown as [location: Tower (31, 121.4)]"),
    ("a truth value is no coordinate", "text", "shown as [location]"),
    ("the client writes the words of a red packet without any", "text", "hongbao"),
    ("of an option we show the words, not the object", "text", "shown as [vote]"),
    ("we count the options beyond 20", "text", "shown as [vote: x]"),
    ("the SDK fails at a number in place of words", "raised", "shown as 12", "post: number"),
    ("the SDK leaves out files of content_v2", "files", "img in content_v2", "media in content_v2"),
    ("the same", "files", "file in content_v2", "audio in content_v2"),
    ("the SDK leaves out files in nodes of unknown kinds", "files", "object in ", "figure in "),
    ("the SDK leaves mentions in cards as tags", "text", "card: markdown"),
    ("no database takes NUL", "text", "NUL"),
    ("of two locales we have an order, the SDK reads what is first", "text", "post: two locales"),
    ("everybody is @all, whatever the client calls them", "text", "post: everybody"),
    ("a picture at an address is no file of Feishu's", "files", "post: picture at an address"),
    ("a recalled message is not shown", "text", "bundle: recalled"),
    ("the SDK leaves mentions in forwarded messages as placeholders", "text", "bundle: mention"),
)
"""The reason, what is read otherwise, and how the names of the messages begin."""


def event(kind: str, body: Any, **more: Any) -> Event:
    raw = body if isinstance(body, str) else json.dumps(body)
    settings = {"sender": "ou_alice", "chat": "oc_1", "chat_type": "group"} | more
    return emulator().message_event(kind, raw, **settings)


def text(words: str = "some words", **more: Any) -> Event:
    return event("text", {"text": words}, **more)


def post(*row: Any, **more: Any) -> Event:
    return event("post", {"title": "", "content": [list(row)], **more})


def of_samples() -> Iterator[tuple[str, Event]]:
    for sample in SAMPLES:
        if sample.event.get("header", {}).get("event_type") == "im.message.receive_v1":
            raw = json.dumps(sample.event).replace(SAMPLE_BOT, BOT).replace("Sample Bot", BOT_NAME)
            yield f"sample {sample.name}", json.loads(raw)


def of_types() -> Iterator[tuple[str, Event]]:
    """Every type of message, alone and behind a mention of the bot, and every node of a post."""
    for kind, body in content.TYPES.items():
        for shape, shaped in {"": body, ", empty": {}, ", lost": ""}.items():
            yield f"{kind}{shape}", event(kind, shaped, chat_type="p2p")
            yield f"{kind}{shape}, mentioned", event(kind, shaped, mentions=[content.MENTION], parent_id="om_before")
    for kind, body, shown in content.TEXTS:
        yield f"shown as {shown}, {json.dumps(body)}", event(kind, body)
    for name, (node, _, _) in content.NODES.items():
        for wrapped, made in content.POSTS.items():
            yield f"{name} in {wrapped}", event("post", made(node), mentions=[content.MENTION])
    for name, (card, _) in content.CARDS.items():
        yield f"card: {name}", event("interactive", card)


def of_people() -> Iterator[tuple[str, Event]]:
    """Who writes, where, to whom and in answer to what."""
    other = {"key": "@_user_2", "id": {"open_id": "ou_dana"}, "name": "Dana"}
    namesake = {"key": "@_user_2", "id": {"open_id": "ou_namesake"}, "name": "Helper Bot"}
    everybody = {"key": "@_all", "id": {"open_id": "", "user_id": "all"}, "name": "Everyone"}
    for sender_type in ("user", "app", "bot", "anonymous"):
        yield f"sender: {sender_type}", text(sender_type=sender_type)
    yield "sender: the bot itself", text(sender=BOT, sender_type="app")
    without_id = text()
    without_id["event"]["sender"]["sender_id"] = {"union_id": "on_alice"}
    yield "sender: without an open id", without_id
    for name, words, mentions in (
        ("bot", "@_user_1 hi", [content.MENTION]),
        ("bot at the end", "hi @_user_1", [content.MENTION]),
        ("bot and another", "@_user_1 ask @_user_2 now", [content.MENTION, other]),
        ("another", "ask @_user_2 now", [other]),
        ("namesake of the bot", "ask @_user_2 now", [namesake]),
        ("everybody", "@_all lunch", [everybody]),
        ("everybody, and no list", "@_all lunch", None),
        ("of nobody", "@_user_7 lunch", None),
    ):
        yield f"mention: {name}", text(words, mentions=mentions)
    for number, (words, name, _) in enumerate(content.MENTIONS):
        named = [{**content.MENTION, "name": name}, {**other, "name": name}]
        yield f"mention {number}", text(words, mentions=named)
    replied = {"parent_id": "om_before", "root_id": "om_root"}
    yield "reply", text(**replied)
    yield "reply: to the first message", text(parent_id="om_root", root_id="om_root")
    yield "topic", text(thread_id="omt_1")
    yield "topic: reply", text(thread_id="omt_1", **replied)
    yield "topic: its first message", text(thread_id="omt_1", parent_id="om_root", root_id="om_root")
    yield "half a character", text("hal\ud83d f")
    yield "NUL", text("nu\0l")
    yield "strange", text('C:\\new "x" <b>&amp;</b> 👩‍👩‍👧 ١٢ ﷽\n\ttab https://x.y/?a=1&b=2#c')


def of_posts() -> Iterator[tuple[str, Event]]:
    """Posts as a whole."""
    words, two = {"tag": "text", "text": "one"}, {"tag": "text", "text": "two"}
    plan = {"file_key": "file_1", "file_name": "plan.pdf"}
    folder = {"file_key": "file_2", "file_name": "plans", "is_folder": True}
    yield "post: files alone", event("post", {"files": [plan]})
    yield "post: files before the locale", event("post", {"files": [plan], "zh_cn": {"content": [[words]]}})
    yield "post: folder", event("post", {"files": [plan, folder], "title": "T", "content": [[words]]})
    yield "post: two locales", event("post", {"en_us": {"content": [[words]]}, "zh_cn": {"content": [[two]]}})
    yield "post: struck", post({"tag": "text", "text": "gone", "style": ["lineThrough"]})
    yield "post: everybody", post({"tag": "at", "user_id": "@_all", "user_name": "Everyone"})
    yield "post: picture at an address", post({"tag": "md", "text": "![x](https://x.y/z.png)"})
    yield "post: fence inside code", post({"tag": "code_block", "text": "```\n![x](img_v3_a)\n```", "language": "MD"})
    yield "post: number", post({"tag": "text", "text": 12})
    yield (
        "task: link",
        event("todo", {"summary": {"title": "T", "content": [[{"tag": "a", "text": "w", "href": "u"}]]}}),
    )
    chance, number = random.Random(2026), count(1)
    for at in range(RANDOM_POSTS):
        made: dict[str, Any] = {"title": f"t{next(number)}" if chance.random() < 0.5 else ""}
        made["content"] = [row(chance, number) for _ in range(chance.randint(1, 4))]
        if chance.random() < 0.3:
            made["content_v2"] = [[{"tag": "md", "text": markdown(chance, number)}]]
            made["content"] = [[{"tag": "text", "text": "flat"}]]
        zone = {"files": [plan, folder][: chance.randint(0, 2)]}
        yield f"random post {at}", event("post", made | zone if chance.random() < 0.5 else zone | {"zh_cn": made})


def row(chance: random.Random, number: "count[int]") -> list[dict[str, Any]]:
    blank = {"tag": "text", "text": " "}  # so that the marks of one word are not those of the next
    return [it for _ in range(chance.randint(1, 4)) for it in (node(chance, number), blank)]


def node(chance: random.Random, number: "count[int]") -> dict[str, Any]:
    """A node of a kind that both know, with words that no other has."""
    word = f"w{next(number)}"
    styles = [it for it in ("bold", "italic", "code", "strikethrough") if chance.random() < 0.3]
    return chance.choice(
        [
            {"tag": "text", "text": word, "style": styles},
            {"tag": "text", "text": f"{word} and\nmore"},
            {"tag": "a", "text": word, "href": f"https://x.y/{word}"},
            {"tag": "at", "user_id": f"ou_{word}", "user_name": word},
            {"tag": "emotion", "emoji_type": word.upper()},
            {"tag": "img", "image_key": f"img_{word}"},
            {"tag": "media", "file_key": f"file_{word}", "image_key": "img_cover"},
            {"tag": "audio", "file_key": f"file_{word}"},
            {"tag": "file", "file_key": f"file_{word}", "file_name": word},
            {"tag": "code_block", "text": f"{word} = `1`\n\n", "language": chance.choice(["", "PYTHON"])},
            {"tag": "hr"},
            {"tag": "md", "text": markdown(chance, number)},
        ]
    )


def markdown(chance: random.Random, number: "count[int]") -> str:
    lines = []
    for _ in range(chance.randint(1, 4)):
        word = f"m{next(number)}"
        lines.append(
            chance.choice(
                [
                    f"## {word}",
                    f"- {word}\n  - **{word}a** and `{word}b`",
                    f'<at user_id="ou_{word}">{word}</at> said',
                    f"![{word}](img_{word})",
                    f'```\n<at user_id="ou_{word}">{word}</at> ![x](img_{word})\n```',
                    f"| {word} | {word}a |\n| --- | --- |\n| 1 | [{word}b](https://x.y/{word}) |",
                ]
            )
        )
    return "\n".join(lines)


async def of_bundles(feishu: FeishuEmulator) -> list[tuple[str, Event, MessageContext, Any]]:
    """Messages that were forwarded together, read with what Feishu answers when it is asked for them."""

    def inside(upper: str, kind: str, body: Any, by: str, minute: int, **more: Any) -> str:
        key, created = f"om_{len(feishu.known)}", str(int(NOW.timestamp() * 1000) - 60_000 * minute)
        raw = json.dumps(body)
        feishu.known[key] = Known(
            chat_id="oc_1", sender=by, msg_type=kind, content=raw, upper=upper, created=created, **more
        )
        return key

    def bundle(name: str) -> str:
        made = feishu.bundle_event(sender="ou_alice", chat="oc_1")
        bundles[name] = made
        return str(made["event"]["message"]["message_id"])

    bundles: dict[str, Event] = {}
    upper = bundle("bundle")
    for minute, (kind, body) in enumerate(content.TYPES.items()):
        if kind not in ("merge_forward", "newest", "hongbao", "location", "todo"):
            inside(upper, kind, body, f"ou_{minute}", minute)
    upper = bundle("bundle: in a bundle")
    inside(upper, "text", {"text": "outside"}, "ou_dana", 3)
    nested = inside(upper, "merge_forward", {}, "ou_bob", 2)
    inside(nested, "file", {"file_key": "file_in", "file_name": "in.pdf"}, "ou_carol", 1)
    deeper = inside(nested, "merge_forward", {}, "ou_carol", 1)
    inside(deeper, "text", {"text": "deep inside"}, "ou_erin", 1)
    inside(bundle("bundle: long"), "text", {"text": " ".join(f"w{it}" for it in range(150))}, "ou_dana", 1)
    upper = bundle("bundle: many")
    for minute in range(60):
        inside(upper, "text", {"text": f"w{minute}"}, "ou_dana", minute)
    inside(bundle("bundle: recalled"), "text", {"text": "taken back"}, "ou_dana", 1, recalled=True)
    mention = {"key": "@_user_1", "id": "ou_dana", "id_type": "open_id", "name": "Dana"}
    inside(bundle("bundle: mention"), "text", {"text": "ask @_user_1"}, "ou_bob", 1, mentions=[mention])
    bundle("bundle: closed")
    found = []
    async with serve_on_loopback(feishu.app) as url:
        settings = {"appId": "cli_a", "appSecret": "s", "encryptKey": "k", "baseUrl": url}
        bot = FeishuChannel(FeishuAccount.model_validate(settings), "default", Kept(), BEIJING)
        for name, made in bundles.items():
            key = made["event"]["message"]["message_id"]
            answer = await bot._api.call(f"/open-apis/im/v1/messages/{key}")
            context = read(made)
            assert context is not None
            found.append((name, made, await bot.enrich(context), answer))
        await bot.close()
    return found


def read(made: Event) -> MessageContext | None:
    found = receipt(made, account="default", bot=BOT, now=NOW, zone=BEIJING)
    return found.context if isinstance(found, Arrived) else None


def reading(context: MessageContext) -> dict[str, Any]:
    """In the words of the judge."""
    return {
        "message": context.message_id,
        "sender": context.sender.id,
        "is_bot": context.sender.is_bot,
        "chat": context.chat.id,
        "is_direct": context.chat.kind == "direct",
        "thread": context.chat.thread,
        "reply_to": context.reply_to and context.reply_to.message_id,
        "mentioned": context.mentioned,
        "sent_at": int(context.sent_at.timestamp() * 1000),
        "files": sorted([it.kind, it.key.partition("/")[2]] for it in context.attachments if it.kind != "other"),
        "text": context.text,
    }


def differences(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """What the two read otherwise, by its name. Our text may have words that theirs lacks."""
    found = {key: (ours[key], theirs[key]) for key in ours if key != "text" and ours[key] != theirs[key]}
    seen, asked = words(ours["text"]), words(theirs["text"])
    bot = words(BOT_NAME) if ours["mentioned"] else []  # left out of what is said to it
    if missing := Counter(asked) - Counter(seen + bot):
        return found | {"text": sorted(missing)}
    left = iter(seen)
    in_order = all(word in left for word in asked if word not in bot)
    return found if in_order else found | {"order": (ours["text"], theirs["text"])}


def words(text: str) -> list[str]:
    """The words, each with the marks of style before it."""
    found = re.findall(r"([*~`]*)(\w+)", text.casefold())
    return [it for marks, word in found for it in (*(f"{mark}{word}" for mark in sorted(set(marks))), word)]


async def judgement(folder: Path, events: dict[str, Event], answers: dict[str, Any]) -> dict[str, Any]:
    file = folder / "record.json"
    file.write_bytes(orjson.dumps({"bot": BOT, "events": events, "messages": answers}))
    process = await asyncio.create_subprocess_exec(
        str(JUDGE),
        "-W",
        "error",
        str(SCRIPT),
        str(file),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, trouble = await process.communicate()
    assert process.returncode == 0, trouble.decode()
    return dict(json.loads(output))


@judged
async def test_every_message_is_read_as_the_sdk_reads_it_and_with_no_word_less(tmp_path: Path) -> None:
    made = [
        (name, event, read(event)) for table in (of_samples, of_types, of_people, of_posts) for name, event in table()
    ]
    bundles = await of_bundles(emulator(key="k"))
    made += [(name, event, context) for name, event, context, _ in bundles]
    answers = {event["event"]["message"]["message_id"]: answer for _, event, _, answer in bundles}
    theirs = await judgement(tmp_path, {name: event for name, event, _ in made}, answers)
    assert len(theirs) == len(made)
    found = {}
    for name, _, context in made:
        if context is None:
            found[name, "ignored"] = theirs[name]
        elif "raised" in theirs[name]:
            found[name, "raised"] = theirs[name]
        else:
            found |= {(name, what): it for what, it in differences(reading(context), theirs[name]).items()}
    known = {(start, what) for _, what, *starts in KNOWN_DIFFERENCES for start in starts}
    explained = {it: key for it in found for key in known if it[0].startswith(key[0]) and it[1] == key[1]}
    assert {it: found[it] for it in found if it not in explained} == {}
    assert known - set(explained.values()) == set()  # what no longer differs is no exception
    file = theirs["sample 18_direct_file"]  # and it does find fault
    assert set(differences(file | {"text": "[file]", "files": [], "sender": "ou_x"}, file)) == {
        "text",
        "files",
        "sender",
    }
    assert set(differences(file | {"text": "pdf v2 纪要 会议"}, file)) == {"order"}
