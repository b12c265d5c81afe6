"""Instructions for a model that writes a summary: what it is for, its headings, and what it must keep.

The chat is quoted in the request, each line of it marked; nothing in it is an instruction to the model.
"""

from collections.abc import Iterator, Sequence

from agents.language import language_of
from agents.messages import AssistantMessage, Message, Opaque, Text, Thinking, ToolCall, ToolResultMessage, UserMessage
from agents.prompt.fences import harmless
from agents.prompt.inbound import ID_LINE
from agents.prompt.texts import wording
from agents.truncate import truncate_result
from channels.marks import RESULT
from tools.tool import Image, NativeDocument

HEADINGS = {
    "en": ("Decisions", "Open tasks", "Constraints", "Pending asks", "Exact identifiers"),
    "zh": ("决定", "未完成的任务", "约束", "待答复的请求", "准确标识"),
}
"""A summary's headings, in this order, by the language of the chat; one in any other language has the English ones."""
FOCUS_CHARS_MAX = 800
RESULT_CHARS = 2_000
"""The characters of a tool's result or a call's arguments in the source: what mattered is in the answer after it."""
SPARSE = 20
"""A chat with one Chinese character in this number is Chinese."""


def instructions(chat: str, focus: str = "") -> str:
    """The system prompt. `focus`: what the person who wishes for the summary wants to see kept."""
    wish = " ".join(focus.split())[:FOCUS_CHARS_MAX]
    kept = f"\nWhoever wished for the summary wants these kept most of all: {wish}" if wish else ""
    han = sum("\u4e00" <= char <= "\u9fff" for char in chat)
    language = language_of(chat) if han * SPARSE >= len(chat) else "en"
    return wording("Summary").format(*HEADINGS[language]) + kept


def request_text(
    earlier: str, source: str, names: Sequence[str], lacking: Sequence[str], *, closing: str = "Write the summary now."
) -> str:
    """The user message: what is to be summed up, and which identifiers the summary must hold."""
    quoted_earlier = "\n".join(f"| {line}" for line in earlier.splitlines())
    parts = [f"The summary of what was before:\n{quoted_earlier}"] if earlier else []
    parts.append(f"The chat:\n{source}")
    if names:
        parts.append("\n".join(("Each of these must stand in the summary exactly as it is here:", *names)))
    if lacking:
        parts.append("\n".join(("An earlier attempt was of no use, because these were missing:", *lacking)))
    return "\n\n".join((*parts, closing) if closing else parts)


def quoted(turn: Sequence[Message]) -> str:
    """A turn as the model that summarises it reads it: every line of it is marked, so none can leave the quotation."""
    return "\n".join(f"| {line}" for message in turn for line in _lines(message))


def _lines(message: Message) -> Iterator[str]:
    match message:
        case UserMessage():
            who = "user"
        case ToolResultMessage():
            who = f"{RESULT[1:]} {message.tool}"
        case AssistantMessage():
            who = "assistant"
    for part in message.content:
        match part:
            case Text(text=text):
                is_result = isinstance(message, ToolResultMessage)
                shown = truncate_result(text, RESULT_CHARS) if is_result else ID_LINE.sub("", text)
                marked = isinstance(message, UserMessage)  # made harmless before the gateway's words were put in
                yield from f"[{who}] {harmless(shown, marks=not marked)}".splitlines()
            case ToolCall():
                arguments = truncate_result(part.arguments_raw, RESULT_CHARS)
                yield from f"[{who} calls {part.name}] {harmless(arguments)}".splitlines()
            case Image():
                yield f"[{who}] (a picture)"
            case NativeDocument():
                yield f"[{who}] (a document)"
            case Thinking() | Opaque():
                pass
