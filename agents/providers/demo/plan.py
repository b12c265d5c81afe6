"""What the scripted model does next: look at the turn so far, take one step, and in the end report the results.

A plan is read off the person's words and the tools on offer; each of its steps is one call and is taken at most once,
so every turn is over after a handful of rounds whatever the tools answer. No randomness, no state.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from agents.messages import AssistantMessage, Message, Text, ToolCall, ToolResultMessage, UserMessage
from agents.providers.demo.words import CallMade, closing, script_source
from agents.providers.provider import ModelRequest, OneTool
from agents.sentences import language_of

STEPS_MAX = 4
SCRIPT_NAME = "list_files"

_CJK = re.compile(r"[⺀-鿿豈-﫿\U00020000-\U0003ffff]")
_WANTS_SCRIPT = re.compile(
    r"脚本|写.{0,12}(?:代码|程序)|\bscripts?\b|\bwrite\b.{0,40}\b(?:code|program|file)\b", re.IGNORECASE | re.DOTALL
)
_WANTS_LISTING = re.compile(r"文件|目录|文件夹|\b(?:files?|folders?|director(?:y|ies)|ls)\b", re.IGNORECASE)
_SKILL = re.compile(r"<skill>(.*?)</skill>", re.DOTALL)
_MEDIA_OFFERED = re.compile(r"^## Assistant Output Directives\n(?:(?!## ).*\n)*?- `MEDIA:", re.MULTILINE)
_NOTE = re.compile(r"\n\(The gateway: [^\n]*\)(?:\n\[image: [^\n]*\])*\Z")
_BODY = re.compile(r"\A\[message_id: [^\]\n]*\]\n[^\n]{0,200}?: ?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A tool to use now."""

    id: str
    name: str
    arguments: dict[str, Any]


def next_step(request: ModelRequest) -> Call | str:
    """The call to make, or the words that end the turn."""
    text = _last_request(request.messages)
    chinese = language_of(text) == "zh"
    done = _done(request.messages)
    if len(done) < STEPS_MAX:
        for name, arguments in _plan(request, text, chinese=chinese):
            if name not in {call.name for call, _ in done}:
                return Call(id=_new_id(request.messages), name=name, arguments=arguments)
    done_calls = [
        CallMade(tool=call.name, arguments=call.arguments or {}, result=_text(result)) for call, result in done
    ]
    failed = {call.name for call, result in done if result is None or result.is_error}
    attached = _written(done_calls, failed) if _MEDIA_OFFERED.search(request.system.stable) else None
    return closing(text, done_calls, failed, chinese=chinese, attached=attached)


def _plan(request: ModelRequest, text: str, *, chinese: bool) -> list[tuple[str, dict[str, Any]]]:
    """The calls of this turn, in order, as far as the tools on offer go."""
    offered = {tool.name for tool in request.tools} if request.tool_choice != "none" else set()
    wants_script = bool(_WANTS_SCRIPT.search(text))
    plan: list[tuple[str, dict[str, Any]]] = []
    if location := _skill_for(request.system.stable, text, wants_script=wants_script):
        plan.append(("read", {"file_path": location}))
    if wants_script or _WANTS_LISTING.search(text) or _forced(request) in ("ls", "any"):
        plan.append(("ls", {"path": "."}))
    if wants_script or _forced(request) == "write":
        name = _free_name(request.messages)
        plan.append(("write", {"file_path": name, "content": script_source(name, chinese=chinese)}))
    return [step for step in plan if step[0] in offered]


def _written(done_calls: Sequence[CallMade], failed: Collection[str]) -> str | None:
    """The file that this turn has made. Another model may have made the calls: then its name may be anything."""
    paths = [one.arguments.get("file_path") for one in done_calls if one.tool == "write" and one.tool not in failed]
    return next((path for path in paths if isinstance(path, str) and re.fullmatch(r"\S.*", path)), None)


def _forced(request: ModelRequest) -> str:
    if isinstance(request.tool_choice, OneTool):
        return request.tool_choice.name
    return "any" if request.tool_choice == "required" else ""


def _skill_for(prompt: str, text: str, *, wants_script: bool) -> str | None:
    """The location of the skill whose name or description shares most with the request; None where none does."""
    best: tuple[int, str] | None = None
    for skill in _SKILL.findall(prompt):
        name, description, location = (_element(skill, tag) for tag in ("name", "description", "location"))
        words = {word for word in re.findall(r"[a-z]{4,}", f"{name} {description}".lower()) if word in name.lower()}
        score = sum(bool(re.search(rf"\b{word}\b", text.lower())) for word in words)
        score += sum(pair in description for pair in {text[at : at + 2] for at in range(len(text))} if _is_cjk(pair))
        score += 2 if wants_script and "script" in name else 0
        if location and score >= 2 and (best is None or score > best[0]):
            best = (score, location)
    return best[1] if best else None


def _element(xml: str, tag: str) -> str:
    found = re.search(rf"<{tag}>(.*?)</{tag}>", xml, re.DOTALL)
    text = found[1].strip() if found else ""
    for escaped, plain in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&apos;", "'"), ("&amp;", "&")):
        text = text.replace(escaped, plain)
    return text


def _is_cjk(pair: str) -> bool:
    return len(pair) == 2 and all(_CJK.match(char) for char in pair)


def _free_name(messages: Sequence[Message]) -> str:
    """A name that the listing of this turn does not show; without a listing one that nobody else would choose."""
    listing = next((_text(result) for call, result in _done(messages) if call.name == "ls"), None)
    if listing is None:
        return f"clawgate_demo_{SCRIPT_NAME}.py"
    taken = set(listing.split())
    names = [f"{SCRIPT_NAME}.py", *(f"{SCRIPT_NAME}_{number}.py" for number in range(2, 100))]
    return next((name for name in names if name not in taken), f"clawgate_demo_{SCRIPT_NAME}.py")


def _last_request(messages: Sequence[Message]) -> str:
    """The person's last message, without the gateway's line above it and their name before it."""
    for message in reversed(messages):
        if isinstance(message, UserMessage):
            text = "\n".join(part.text for part in message.content if isinstance(part, Text))
            return _NOTE.sub("", _BODY.sub("", text)).strip()
    return ""


def _done(messages: Sequence[Message]) -> list[tuple[ToolCall, ToolResultMessage | None]]:
    """The calls of the running turn, each with its result."""
    start = max((n for n, message in enumerate(messages) if isinstance(message, UserMessage)), default=0)
    turn = messages[start:]
    results = {message.call_id: message for message in turn if isinstance(message, ToolResultMessage)}
    calls = (call for message in turn if isinstance(message, AssistantMessage) for call in message.calls)
    return [(call, results.get(call.id)) for call in calls]


def _text(result: ToolResultMessage | None) -> str:
    return "\n".join(part.text for part in result.content if isinstance(part, Text)) if result else ""


def _new_id(messages: Sequence[Message]) -> str:
    used = {call.id for message in messages if isinstance(message, AssistantMessage) for call in message.calls}
    number = len(used) + 1
    while f"demo_{number}" in used:
        number += 1
    return f"demo_{number}"
