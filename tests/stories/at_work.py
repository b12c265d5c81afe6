"""An agent that does what a test tells it to, in somebody's chat, and what its tools answered."""

from collections.abc import Mapping
from typing import Any

from tests.emulators.models.script import calls, says
from tests.running import Running

DONE = "done"


async def works(house: Running, *wanted: tuple[str, dict[str, Any]], text: str = "go on", **who: Any) -> list[str]:
    """Somebody writes, and the agent makes these calls, one after the other; what each of them gave."""
    house.anthropic.script = [*(calls(it) for it in wanted), says(DONE)]
    answers = len(house.feishu.messages)
    await house.say(text, **who)
    await house.replies(answers + 1)
    await house.idle()
    messages = house.anthropic.requests[-1].body["messages"]
    last = max(at for at, message in enumerate(messages) if _is_spoken(message))
    return [_text(block) for message in messages[last + 1 :] for block in _results(message)]


def prompt(house: Running) -> str:
    """The system prompt of the newest request."""
    return "".join(block["text"] for block in house.anthropic.requests[-1].body["system"])


def spoken(house: Running) -> str:
    """What the model was told as the newest message of a person."""
    message = [it for it in house.anthropic.requests[-1].body["messages"] if _is_spoken(it)][-1]
    content = message["content"]
    return content if isinstance(content, str) else "".join(it["text"] for it in content if it["type"] == "text")


def _is_spoken(message: Mapping[str, Any]) -> bool:
    return message["role"] == "user" and not _results(message)


def _results(message: Mapping[str, Any]) -> list[Any]:
    content = message["content"] if message["role"] == "user" else []
    return [block for block in content if isinstance(block, dict) and block["type"] == "tool_result"]


def _text(block: Mapping[str, Any]) -> str:
    content = block["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content if part["type"] == "text")
