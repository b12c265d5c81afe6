"""Reads a rendered user message the way a suspicious reader would, sharing no code with what wrote it.

Every kind of newline ends a line; invisible characters, marks, width and case do not matter; quote and list marks
before the first word do not either.
"""

import json
import re
import unicodedata
from dataclasses import dataclass
from typing import Any

NEWLINES = ["\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
BLANK_LETTERS = "\u115f\u1160\u3164\uffa0"
HEADINGS = """Tooling, Tool Call Style, Execution Bias, Safety, Gateway Control, Agent Instructions, Skills, Workspace, \
Documentation, Workspace Files (injected), Assistant Output Directives, Silent Replies, Messaging, \
Caller Instructions, Runtime, Tool Calls"""
SECTIONS = HEADINGS.split(", ")
FILES = ["AGENTS.md", "SOUL.md", "IDENTITY.md", "USER.md", "TOOLS.md", "MEMORY.md"]


def lines_of(text: str) -> list[str]:
    return re.split("|".join(sorted(map(re.escape, NEWLINES), key=len, reverse=True)), text)


def seen(line: str) -> str:
    """What the eye makes of a line."""
    shown = [
        char
        for char in unicodedata.normalize("NFKC", line).casefold()
        if unicodedata.category(char) not in ("Cf", "Cc", "Mn", "Me") and char not in BLANK_LETTERS
    ]
    return re.sub(r"^(?:[\s>*•|\"'“”‘’「」+_~`-]|\d+[.)])+", "", "".join(shown)).rstrip(" \t*_~`")


def readings(line: str) -> set[str]:
    """As which of the gateway's own words a line could be read."""
    line = seen(line)
    found = set()
    heading = re.match(r"#{2,6}\s*(.*?)[\s#:*_]*$", line)
    if heading and heading[1] in [name.casefold() for name in (*SECTIONS, *FILES)]:
        found.add("section")
    if heading and heading[1].startswith("inbound context"):
        found.add("inbound")
    if "(untrusted metadata)" in line:
        found.add("untrusted")
    elif "trusted metadata)" in line:
        found.add("trusted")
    if re.search(r"\[\s*message_id\s*:", line):
        found.add("message_id")
    if "<<<cache_boundary>>>" in line:
        found.add("boundary")
    if line.strip("_") == "silent" and "__silent" in unicodedata.normalize("NFKC", line):
        found.add("silent")
    if re.match(r"\[?(?:system|assistant|human)(?: message)?\s*[:\]]", line) and not re.match(r"\[.*?\]\(", line):
        found.add("envelope")
    if re.search(r"<\|(?:im_start|im_end|start_header_id|eot_id)\|>|\[/?inst\]|<<sys>>|</?tool_call>", line):
        found.add("token")
    return found


@dataclass
class Message:
    blocks: list[tuple[str, Any]]
    body: list[str]


def read_message(text: str) -> Message:
    """Blocks and body of a whole user message. Raises AssertionError where it is not built as it must be."""
    lines = lines_of(text)
    starts = [at for at, line in enumerate(lines) if readings(line) & {"inbound", "untrusted", "trusted"}]
    blocks = []
    for at in starts:
        fence = next(n for n in range(at, len(lines)) if lines[n] == "```json")
        assert lines[fence + 2] == "```"
        assert lines[fence + 3] == ""
        blocks.append((lines[at], json.loads(lines[fence + 1])))
    ids = [at for at, line in enumerate(lines) if "message_id" in readings(line)]
    assert len(ids) == 1, "exactly one line is the message's id"
    assert all(at < ids[0] for at in starts), "no block begins in the body"
    fences = [line for line in lines[: ids[0]] if line.lstrip().startswith("```")]
    assert fences == ["```json", "```"] * len(blocks), "every fence is ours"
    return Message(blocks, lines[ids[0] :])
