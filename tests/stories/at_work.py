"""An agent that does what a test tells it to, in somebody's chat, and what stands in the requests to its model."""

from collections.abc import Mapping
from typing import Any

from tests.emulators.models.script import calls, says
from tests.running import Running

DONE = "done"
NEVER = says("x", pause_seconds=60.0)
RUNS = "tools: { exec: { mode: allow } }"


async def works(house: Running, *wanted: tuple[str, dict[str, Any]], text: str = "go on", **who: Any) -> list[str]:
    """Somebody writes, and the agent makes these calls, one after the other; what each of them gave."""
    house.anthropic.script = [*(calls(it) for it in wanted), says(DONE)]
    answers = len(house.feishu.messages)
    await house.say(text, **who)
    await house.replies(answers + 1)
    await house.idle()
    found = results(house.anthropic.requests[-1].body)
    return found[len(found) - len(wanted) :]


def prompt(house: Running) -> str:
    """The system prompt of the newest request."""
    return "".join(block["text"] for block in house.anthropic.requests[-1].body["system"])


def spoken(house: Running) -> str:
    """What the model was told as the newest message of a person."""
    return users(house.anthropic.requests[-1].body)[-1]


def users(body: Mapping[str, Any]) -> list[str]:
    """What people say in a request, message by message."""
    return [text for message in body["messages"] if message["role"] == "user" and (text := text_of(message))]


def results(body: Mapping[str, Any]) -> list[str]:
    """The tool results of a request."""
    blocks = [block for message in body["messages"] for block in message["content"] if isinstance(block, dict)]
    return [text_of(block) for block in blocks if block["type"] == "tool_result"]


def shown(house: Running) -> tuple[str, list[str]]:
    """The words of the newest message of a person, and the types of its pictures."""
    (*_, last) = [message for message in house.anthropic.requests[-1].body["messages"] if message["role"] == "user"]
    parts = last["content"] if isinstance(last["content"], list) else []
    return text_of(last), [part["source"]["media_type"] for part in parts if part["type"] == "image"]


def text_of(message: Mapping[str, Any]) -> str:
    """Of a message, or of a tool result."""
    content = message["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content if part["type"] == "text")
