"""Feishu's own SDK for bots as a judge: run by an interpreter that has it, in `.venv/judges`, never imported by the tests.

    python feishu_judge.py FILE   what the SDK reads in the recorded events, by their names, as JSON

Its text is a format of its own. The names of its tags, the keys in them and the words that it puts where nothing is written
are taken off, its times cut to minutes: what is left, somebody has written.
"""

import asyncio
import json
import logging
import re
import sys
from pathlib import Path
from typing import Any

from lark_channel.channel.normalize.pipeline import (  # type: ignore[import-not-found]
    InboundPipeline,
    PipelineConfig,
    PipelineDeps,
)

WRAPPERS = "calendar calendar_invite calendar_share forwarded_messages meeting todo vote"
NOTHING_WRITTEN = (
    r"audio|calendar event|file|folder|image|interactive|sticker|todo|unsupported message|video( chat)?|vote"
)
OWN_FORMAT = (
    (r"!\[([^\]\n]*)\]\(img_[^)\n]*\)", r"[\1]"),
    (r"\[media:[^\]\n]*\]", ""),
    (r"<[a-z_]+((?: [a-z]+=\"[^\"]*\")*)/>", r"\1"),  # <file key="…" name="…"/>
    (r" key=\"[^\"]*\"", ""),
    (r" duration=\"0s\"", ""),
    (r" duration=\"([0-9]+)(?:\.[0-9])?s\"", r" \1 s"),
    (r" [a-z]+=\"([^\"]*)\"", r" \1"),
    (rf"</?(?:{'|'.join(WRAPPERS.split())})>", ""),
    (rf"^\s*\[(?:{NOTHING_WRITTEN})\]$", ""),
    (r"^\.\.\. \(truncated\)$", ""),
    (r"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2}):[0-9]{2}(?:\+08:00)?", r"\1 \2"),
)


async def readings(record: dict[str, Any]) -> dict[str, Any]:
    """`events` are by name; `messages` are what Feishu answers to a request for one, by its id; `bot` is an open id."""
    pipeline = InboundPipeline(PipelineConfig(), PipelineDeps(fetch_message=record["messages"].get))
    pipeline.set_bot_open_id(record["bot"])
    return {name: await reading(pipeline, event["event"]) for name, event in record["events"].items()}


async def reading(pipeline: InboundPipeline, event: dict[str, Any]) -> dict[str, Any]:
    try:
        message = await pipeline.normalize(message_event=event["message"], sender=event["sender"])
    except TypeError as error:
        return {"raised": str(error)}
    place = message.conversation
    return {
        "message": message.id,
        "sender": message.sender.open_id,
        "is_bot": message.sender.is_bot,
        "chat": place.chat_id,
        "is_direct": place.chat_type == "p2p",
        "thread": place.thread_id,
        "reply_to": message.reply and message.reply.message_id,
        "mentioned": message.mentioned_bot,
        "sent_at": message.create_time,
        "files": sorted([it.type, it.file_key] for it in message.resources),
        "text": written(message.body_text),
    }


def written(text: str) -> str:
    for pattern, kept in OWN_FORMAT:
        text = re.sub(pattern, kept, text, flags=re.MULTILINE)
    return text


if __name__ == "__main__":
    (path,) = sys.argv[1:]
    logging.disable()  # its log is on the output
    found = asyncio.run(readings(json.loads(Path(path).read_text(encoding="utf-8"))))
    json.dump(found, sys.stdout)
