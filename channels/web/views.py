"""What the page is told, as JSON: the shapes of docs/http.md, and how an event of a stream is written.

The stream is server-sent events (WHATWG HTML, section 9.2): a name, perhaps a number to go on from, and one line of data.
"""

from typing import Any

import orjson

from channels.channel import ToolUse
from channels.message import StoredFile
from channels.web.archive import Conversation, Said
from channels.web.markdown import html


def event(name: str, data: dict[str, Any]) -> bytes:
    return written(name, orjson.dumps(data))


def written(name: str, json: bytes, *, number: int | None = None) -> bytes:
    """An event whose data is JSON already; `number` is where a stream that broke off behind it goes on."""
    head = f"id: {number}\n" if number is not None else ""
    return f"{head}event: {name}\ndata: ".encode() + json + b"\n\n"


ALIVE = event("alive", {})
"""Said into a silence: a page cannot see a comment, and a connection that died without a word looks like silence."""


def said_view(said: Said) -> dict[str, Any]:
    words, yours = said.words, said.author == "you"
    return {
        "id": said.number,
        "chat": said.chat,
        "author": said.author,
        "message": said.key if yours else None,
        "reply_to": words.reply_to,
        "agent": words.agent or None,
        "text": words.text,
        "html": None if yours else html(words.text),
        "files": [file_view(file) for file in words.files],
        "tools": [tool_view(tool) for tool in words.tools],
        "at": said.at,
    }


def conversation_view(conversation: Conversation, *, running: bool) -> dict[str, Any]:
    facts = {"id": conversation.id, "title": conversation.title, "agent": conversation.agent, "at": conversation.at}
    return facts | {"running": running}


def file_view(file: StoredFile) -> dict[str, Any]:
    return {"id": file.id, "name": file.name, "type": file.type, "size": file.size}


def tool_view(tool: ToolUse) -> dict[str, Any]:
    return {"id": tool.id, "name": tool.name, "about": tool.about, "state": tool.state}
