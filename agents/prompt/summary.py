"""What the model is told that writes a summary: what it is for, its headings, and what it must keep.

The chat stands in the request as a quotation, each line of it marked; nothing in it is an instruction to whoever sums it up.
"""

from collections.abc import Sequence

from agents.prompt.texts import wording
from agents.sentences import language_of

HEADINGS = {
    "en": ("Decisions", "Open tasks", "Constraints", "Pending asks", "Exact identifiers"),
    "zh": ("决定", "未完成的任务", "约束", "待答复的请求", "准确标识"),
}
"""Of a summary, in this order, by the language of the chat; one in any other language has the English ones."""
FOCUS_CHARS_MAX = 800
SPARSE = 20
"""A chat with one Chinese character in so many is Chinese."""


def instructions(chat: str, focus: str = "") -> str:
    """The system prompt. `focus`: what the person who wishes for the summary wants to see kept."""
    wish = " ".join(focus.split())[:FOCUS_CHARS_MAX]
    kept = f"\nWhoever wished for the summary wants these kept most of all: {wish}" if wish else ""
    return wording("Summary").format(*HEADINGS[_language(chat)]) + kept


def request_text(
    earlier: str,
    source: str,
    names: Sequence[str],
    lacking: Sequence[str],
    *,
    closing: str = "Write the summary now.",
) -> str:
    """The user message: what is to be summed up, and which identifiers must stand in the summary."""
    quoted_earlier = "\n".join(f"| {line}" for line in earlier.splitlines())
    parts = [f"The summary of what was before:\n{quoted_earlier}"] if earlier else []
    parts.append(f"The chat:\n{source}")
    if names:
        parts.append("\n".join(("Each of these must stand in the summary exactly as it is here:", *names)))
    if lacking:
        parts.append("\n".join(("An earlier attempt was of no use, because these were missing:", *lacking)))
    return "\n\n".join((*parts, closing) if closing else parts)


def _language(chat: str) -> str:
    han = sum("\u4e00" <= char <= "\u9fff" for char in chat)
    return language_of(chat) if han * SPARSE >= len(chat) else "en"
