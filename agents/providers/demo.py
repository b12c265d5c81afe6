"""`demo/guide`, the scripted model that ships: no key, no network, deterministic.

It streams through the loop like a real model, so that the whole product can be tried and tested without an account. A plan
is derived from the user's text and the offered tools; each step is one call and runs at most once, so every turn ends after
a few rounds. It has no randomness and no state: the tour, which an approval may interrupt, continues from the history.
"""

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from html import unescape
from itertools import count
from typing import Any, TypeAlias

from agents.language import Language, language_of
from agents.messages import AssistantMessage, Message, ToolCall, ToolResultMessage, Usage, UserMessage, texts
from agents.providers.draft import Draft
from agents.providers.provider import Done, ModelEvent, ModelRequest, OneTool
from agents.tokens import request_tokens, tokens
from channels.marks import OWN_TURN

Made: TypeAlias = tuple[ToolCall, ToolResultMessage | None]

PIECE_CHARS = 16


class DemoProvider:
    """A `Provider` of the API `demo`. Accepts any model name."""

    api = "demo"

    def __init__(self, name: str, *, now: Callable[[], float] = time.time) -> None:
        self.name = name
        self._now = now

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        draft = Draft(api=self.api, provider=self.name, model=request.model, timestamp=self._now())
        for event in _events(draft, next_step(request)):
            yield event
            await asyncio.sleep(0)  # yield to other tasks, as a network would
        message = draft.finished("end_turn")
        read = request_tokens(request.system, request.tools, request.messages)
        yield Done(message=replace(message, usage=Usage(input=read, output=tokens(message), estimated=True)))

    async def warm_up(self) -> None:
        """No-op: nothing to warm."""

    async def close(self) -> None:
        """No-op: nothing to close."""


def _events(draft: Draft, step: ToolCall | str) -> Iterator[ModelEvent]:
    if isinstance(step, str):
        draft.open(0, "text")
    else:
        draft.open(0, "call")
        yield from draft.start(0, vendor_id=step.id, name=step.name)
    text = step if isinstance(step, str) else step.arguments_raw
    for at in range(0, len(text), PIECE_CHARS):
        yield from draft.add(0, text[at : at + PIECE_CHARS])
    yield from draft.close(0)


STEPS_MAX = 4
SCRIPT_NAME = "list_files"

_CJK_PAIRS = re.compile(r"(?=([⺀-鿿豈-﫿\U00020000-\U0003ffff]{2}))")
_WANTS_SCRIPT = re.compile(
    r"脚本|写.{0,12}(?:代码|程序)|\bscripts?\b|\bwrite\b.{0,40}\b(?:code|program|file)\b", re.IGNORECASE | re.DOTALL
)
_WANTS_REMINDER = re.compile(r"\bremind\b|提醒", re.IGNORECASE)
_MINUTES = re.compile(r"([1-9][0-9]{0,2}) ?(?:min|分)", re.IGNORECASE)
_WANTS_LISTING = re.compile(r"文件|目录|文件夹|\b(?:files?|folders?|director(?:y|ies)|ls)\b", re.IGNORECASE)
_SKILL = re.compile(r"<skill>(.*?)</skill>", re.DOTALL)
_MEDIA_OFFERED = re.compile(r"^## Assistant Output Directives\n(?:(?!## ).*\n)*?- `MEDIA:", re.MULTILINE)
_NOTE = re.compile(r"\n\(The gateway: [^\n]*\)(?:\n\[image: [^\n]*\])*\Z")
_BODY = re.compile(r"\A\[message_id: [^\]\n]*\]\n[^\n]{0,200}?: ?")

_SAID: dict[Language, dict[str, str]] = {
    "en": {
        "opening": "I am demo/guide, the scripted demo model that ships with Clawgate, not a real AI.",
        "invitation": "I understand few requests. Ask me “What can you do for me?”, and I show you around.",
        "try": "Try this, too: “Remind me in one minute to stretch.”",
        "remember": "You asked me: {}",
        "tools": "I really used these tools:",
        "read": "read {} characters",
        "failed": "failed: ",
        "nothing": "(nothing)",
        "real": "**For a real model**, open a new chat on the gateway's own page, and paste its key there. "
        "Or write `ANTHROPIC_API_KEY=…`, `OPENAI_API_KEY=…` or `DEEPSEEK_API_KEY=…` into a file `.env` beside config.yaml: "
        "`model: auto` takes it at once, without a restart. Other vendors: docs/providers.md",
    },
    "zh": {
        "opening": "我是 Clawgate 自带的脚本演示模型（demo/guide），不是真正的 AI。",
        "invitation": "我只听得懂几种请求。问我「你能帮我做什么？」，我就演示给你看。",
        "try": "还可以试试：「一分钟后提醒我活动一下」",
        "remember": "你让我提醒：{}",
        "tools": "我实际调用了这些工具：",
        "read": "已读取 {} 个字符",
        "failed": "失败：",
        "nothing": "（没有内容）",
        "real": "**要使用真正的模型**：在网关自己的网页聊天中新建对话，把密钥粘贴到页面上的输入框。"
        "也可以在 config.yaml 旁边的 `.env` 文件中写入 `ANTHROPIC_API_KEY=…`、`OPENAI_API_KEY=…` 或 `DEEPSEEK_API_KEY=…`，"
        "`model: auto` 会立即使用它，无需重启。其他厂商见 docs/providers.md",
    },
}


def next_step(request: ModelRequest) -> ToolCall | str:
    """Return the next call, or the final text."""
    done = _done(request.messages)
    people = [it for it in request.messages if isinstance(it, UserMessage)]
    if people and _is_note(people[-1]) and any(result for _, result in done):  # the outcome of an approval
        spoken = next((_words(it) for it in reversed(people) if not _is_note(it)), "")
        language = language_of(spoken)
        return "\n\n".join([tour_outcome(done, language), *_endings(request, language)])
    text = _words(people[-1]) if people else ""
    language = language_of(text)
    if len(done) < STEPS_MAX:
        for name, arguments in _plan(request, text, done, language):
            if name not in {call.name for call, _ in done}:
                used = {call.id for it in request.messages if isinstance(it, AssistantMessage) for call in it.calls}
                new = next(id_ for number in count(len(used) + 1) if (id_ := f"demo_{number}") not in used)
                raw = json.dumps(arguments, ensure_ascii=False)
                return ToolCall(id=new, name=name, arguments=arguments, arguments_raw=raw)
    if _wants_tour(text):
        account, is_over = tour_account(done, language)
        return "\n\n".join([_SAID[language]["opening"], account, *(_endings(request, language) if is_over else [])])
    attached = _written(done) if _MEDIA_OFFERED.search(request.system.stable) else None
    return closing(done, language, attached=attached)


def _endings(request: ModelRequest, language: Language) -> list[str]:
    """Return suggestions after the tour, and how to set up a real model."""
    words = _SAID[language]
    return [*([words["try"]] if "schedule" in {it.name for it in request.tools} else []), words["real"]]


def _is_note(message: UserMessage) -> bool:
    """Return whether the gateway began the turn after an approval decision."""
    return _text(message).partition("\n")[2].startswith(OWN_TURN)


def _words(message: UserMessage) -> str:
    """Return the user's text without the gateway's lines and the name."""
    return _NOTE.sub("", _BODY.sub("", _text(message))).strip()


def _wants_tour(text: str) -> bool:
    return bool(_TOUR_WANTED.search(text)) and not _WANTS_SCRIPT.search(text) and not _WANTS_LISTING.search(text)


def _plan(
    request: ModelRequest, text: str, done: Sequence[Made], language: Language
) -> list[tuple[str, dict[str, Any]]]:
    offered = {tool.name for tool in request.tools} if request.tool_choice != "none" else set()
    if _WANTS_REMINDER.search(text) and "schedule" in offered and not _forced(request):
        return [("schedule", _reminder(request.messages, text, language))]
    if _wants_tour(text) and not _forced(request):
        return tour_steps(offered, done, language)
    wants_script = bool(_WANTS_SCRIPT.search(text))
    plan: list[tuple[str, dict[str, Any]]] = []
    if location := _skill_for(request.system.stable, text, wants_script=wants_script):
        plan.append(("read", {"file_path": location}))
    if wants_script or _WANTS_LISTING.search(text) or _forced(request) in ("ls", "any"):
        plan.append(("ls", {"path": "."}))
    if wants_script or _forced(request) == "write":
        name = _free_name(request.messages)
        plan.append(("write", {"file_path": name, "content": script_source(name, chinese=language == "zh")}))
    return [step for step in plan if step[0] in offered]


def _reminder(messages: Sequence[Message], text: str, language: Language) -> dict[str, Any]:
    """Return a reminder's arguments: the user's text, in the minutes named, else one."""
    minutes = int(found[1]) if (found := _MINUTES.search(text)) else 1
    said = max((it.timestamp or 0.0 for it in messages if isinstance(it, UserMessage)), default=0.0)
    at = datetime.fromtimestamp(said + 60 * minutes, UTC).isoformat(timespec="seconds")
    say = _SAID[language]["remember"].format(one_line(text, RESULT_CHARS_MAX))
    return {"action": "create", "at": at, "say": say}


def _written(done: Sequence[Made]) -> str | None:
    """Return the file that this turn wrote. Another model may have made the calls, so its name is untrusted."""
    writes = (call for call, result in done if call.name == "write" and result and not result.is_error)
    paths = ((call.arguments or {}).get("file_path") for call in writes)
    return next((path for path in paths if isinstance(path, str) and re.fullmatch(r"\S.*", path)), None)


def _forced(request: ModelRequest) -> str:
    if isinstance(request.tool_choice, OneTool):
        return request.tool_choice.name
    return "any" if request.tool_choice == "required" else ""


def _skill_for(prompt: str, text: str, *, wants_script: bool) -> str | None:
    """Return the location of the skill that matches the request best, if any."""
    best: tuple[int, str] | None = None
    for skill in _SKILL.findall(prompt):
        found = (re.search(rf"<{it}>(.*?)</{it}>", skill, re.DOTALL) for it in ("name", "description", "location"))
        name, description, location = (unescape(it[1].strip()) if it else "" for it in found)
        words = {word for word in re.findall(r"[a-z]{4,}", f"{name} {description}".lower()) if word in name.lower()}
        score = sum(bool(re.search(rf"\b{word}\b", text.lower())) for word in words)
        score += sum(pair in description for pair in set(_CJK_PAIRS.findall(text)))
        score += 2 if wants_script and "script" in name else 0
        if location and score >= 2 and (best is None or score > best[0]):
            best = (score, location)
    return best[1] if best else None


def _free_name(messages: Sequence[Message]) -> str:
    """Return a file name that the turn's listing does not show."""
    listing = next((_text(result) for call, result in _done(messages) if call.name == "ls"), None)
    if listing is None:
        return f"clawgate_demo_{SCRIPT_NAME}.py"
    taken = set(listing.split())
    names = [f"{SCRIPT_NAME}.py", *(f"{SCRIPT_NAME}_{number}.py" for number in range(2, 100))]
    return next((name for name in names if name not in taken), f"clawgate_demo_{SCRIPT_NAME}.py")


def _done(messages: Sequence[Message]) -> list[Made]:
    start = max((n for n, message in enumerate(messages) if isinstance(message, UserMessage)), default=0)
    turn = messages[start:]
    results = {message.call_id: message for message in turn if isinstance(message, ToolResultMessage)}
    calls = (call for message in turn if isinstance(message, AssistantMessage) for call in message.calls)
    return [(call, results.get(call.id)) for call in calls]


def _text(message: UserMessage | ToolResultMessage | None) -> str:
    return "\n".join(texts(message)) if message else ""


def closing(done: Sequence[Made], language: Language, *, attached: str | None) -> str:
    """Return the final text of a turn. `attached` is a file to send."""
    phrases = _SAID[language]
    lines = [phrases["opening"]]
    if done:
        lines += [phrases["tools"], "\n".join(_report(call, result, phrases) for call, result in done)]
    else:
        lines.append(phrases["invitation"])
    lines.append(phrases["real"])
    if attached is not None:
        lines.append(f"MEDIA:{attached}")
    return "\n\n".join(lines)


def _report(call: ToolCall, result: ToolResultMessage | None, phrases: Mapping[str, str]) -> str:
    target = one_line(str(next(iter((call.arguments or {}).values()), "")), RESULT_CHARS_MAX)
    if result is None or result.is_error:
        return f"- `{call.name}` {target}: {phrases['failed']}{reason(result) if result else phrases['nothing']}"
    text = _text(result)
    shown = phrases["read"].format(len(text)) if call.name == "read" else one_line(text, RESULT_CHARS_MAX)
    return f"- `{call.name}` {target}: {shown or phrases['nothing']}"


def script_source(name: str, *, chinese: bool) -> str:
    about = "遍历目录，打印其中的所有文件。" if chinese else "Print every file below a folder."
    usage = "用法" if chinese else "Usage"
    start = "从这个目录开始，默认是当前目录" if chinese else "start here, or in the current folder"
    return f'''#!/usr/bin/env python3
"""{about}

{usage}: python3 {name} [folder]
"""

import os
import sys


def main() -> None:
    # {start}
    top = sys.argv[1] if len(sys.argv) > 1 else "."
    for folder, _, files in os.walk(top):
        for file in sorted(files):
            print(os.path.join(folder, file))


if __name__ == "__main__":
    main()
'''


_TOUR_WANTED = re.compile(
    r"\bwhat (?:can|could|do) (?:you|i|this bot) do\b|\bhow (?:can|do) you (?:help|work)\b"
    r"|\bshow me (?:around|what)\b|\btour\b"
    r"|[能会]\S{0,6}[做干帮]\S{0,3}(?:什么|啥)|有(?:什么|哪些)功能|怎么用|演示一下|带我(?:看看|了解)",
    re.IGNORECASE,
)
FILE = "clawgate_tour.sh"
COMMAND = f"sh {FILE}"
SCRIPTS: dict[Language, str] = {
    "en": "#!/bin/sh\n# Read me before you allow me: I print two lines and change nothing.\n"
    'echo "Hello! I ran on your own machine, and only because a person allowed it."\ndate\n',
    "zh": "#!/bin/sh\n# 批准之前请先读一读：只打印两行，不改动任何东西。\n"
    'echo "你好！我在你自己的机器上运行，而且是经人批准的。"\ndate\n',
}
RESULT_CHARS_MAX = 160
OUTPUT_LINES_MAX = 12

_TOUR: dict[str, tuple[str, str]] = {
    "begin": (
        "Let me show you what an agent does here, with its real tools:",
        "我用真实的工具演示一下智能体在这里能做什么：",
    ),
    "talk": (
        "I have no tools in this chat, so I can only describe it: an agent with tools writes files, runs commands that a "
        "person has allowed, remembers things, and opens links.",
        "在这个会话里我没有可用的工具，只能口头介绍：有工具的智能体会写文件、在有人批准后运行命令、记住事情，还会打开链接。",
    ),
    "wrote": (
        f"**1. A file.** I wrote `{FILE}` into my workspace.",
        f"**1. 写文件。** 我在工作目录里写好了 `{FILE}`。",
    ),
    "unwritten": (
        f"**1. A file.** I tried to write `{FILE}`, and it failed: ",
        f"**1. 写文件。** 我想写 `{FILE}`，但没有成功：",
    ),
    "ran": (f"**2. A command.** I ran `{COMMAND}`. It printed:", f"**2. 运行命令。** 我运行了 `{COMMAND}`，输出是："),
    "waits": (
        f"**2. A command, and a person's decision.** I want to run `{COMMAND}`. Nothing runs here without approval: "
        "the gateway has shown exactly this command to the people who may approve it. If that is you, read the request and "
        "allow it. Then I will show you the output.",
        f"**2. 运行命令，由人决定。** 我想运行 `{COMMAND}`。这里的命令不会擅自运行：网关已把这条命令原样交给有权批准的人。"
        "如果那就是你，请看清请求并批准，然后我会给你看结果。",
    ),
    "unable": (
        "**2. A command** would be next, but this agent may not run commands here.",
        "**2. 运行命令。** 本该演示这一步，但这个智能体在这里不能运行命令。",
    ),
    "refused": (
        f"**2. A command.** I wanted to run `{COMMAND}`, and it was refused: ",
        f"**2. 运行命令。** 我想运行 `{COMMAND}`，但被拒绝了：",
    ),
    "allowed": (
        "**3. The result.** It was allowed, so it ran. It printed:",
        "**3. 结果。** 已获批准，命令运行了，输出是：",
    ),
    "denied": (
        "**3. The result.** It was denied, so nothing ran. That is what approvals are for.",
        "**3. 结果。** 请求被拒绝，所以什么都没有运行。审批正是为此而设。",
    ),
    "expired": (
        "**3. The result.** Nobody decided in time, so nothing ran.",
        "**3. 结果。** 没有人及时决定，所以什么都没有运行。",
    ),
    "failed": ("**3. The result.** It was allowed, but it failed: ", "**3. 结果。** 已获批准，但运行失败："),
    "end": (
        "That was the tour. A real model has the same tools, and decides for itself what to do with them.",
        "演示到此结束。真正的模型使用同样的工具，并会自己决定怎么用。",
    ),
}
_OUTCOMES = {"EXEC_DENIED": "denied", "EXEC_APPROVAL_EXPIRED": "expired"}


def tour_steps(offered: Collection[str], done: Sequence[Made], language: Language) -> list[tuple[str, dict[str, Any]]]:
    """Return the tour's calls; the command needs the file."""
    write = ("write", {"file_path": FILE, "content": SCRIPTS[language]})
    written = any(call.name == "write" and result and not result.is_error for call, result in done)
    run = [("exec", {"command": COMMAND})] if written and "exec" in offered else []
    return [write, *run] if "write" in offered else []


def tour_account(done: Sequence[Made], language: Language) -> tuple[str, bool]:
    """Return the tour's report, and whether the tour is over."""
    results = {call.name: result for call, result in done if result}
    if "write" not in results:
        return _said("talk", language), True
    lines = [_said("begin", language)]
    if results["write"].is_error:
        return "\n\n".join([*lines, _said("unwritten", language) + reason(results["write"])]), True
    lines.append(_said("wrote", language))
    ran = results.get("exec")
    if ran is None:
        lines.append(_said("unable", language))
    elif _code(ran) == "EXEC_APPROVAL_PENDING":
        return "\n\n".join([*lines, _said("waits", language)]), False
    else:
        lines.append(_said("refused", language) + reason(ran) if ran.is_error else _printed("ran", ran, language))
    return "\n\n".join([*lines, _said("end", language)]), True


def tour_outcome(done: Sequence[Made], language: Language) -> str:
    """Return the report of the call that was decided on; it has a result."""
    result = next(result for _, result in done if result)
    if not result.is_error:
        return f"{_printed('allowed', result, language)}\n\n{_said('end', language)}"
    word = _OUTCOMES.get(_code(result))
    return _said(word, language) if word else _said("failed", language) + reason(result)


def _said(word: str, language: Language) -> str:
    return _TOUR[word][language == "zh"]


def _printed(word: str, result: ToolResultMessage, language: Language) -> str:
    """Quote the output, so that no line reads as an instruction to the platform."""
    lines = [one_line(it, RESULT_CHARS_MAX) for it in "\n".join(texts(result)).splitlines()[:OUTPUT_LINES_MAX]]
    return "\n".join([_said(word, language), "", *(f"> {it}  " for it in lines if it)])


def reason(result: ToolResultMessage) -> str:
    """Return a failure's message without the JSON for models."""
    text = "\n".join(texts(result))
    return one_line(str(_failure(text).get("message", text)), RESULT_CHARS_MAX)


def _code(result: ToolResultMessage) -> str:
    return str(_failure("\n".join(texts(result))).get("error_code", "")) if result.is_error else ""


def _failure(text: str) -> dict[str, Any]:
    try:
        failure = json.loads(text)
    except ValueError:
        return {}
    return failure if isinstance(failure, dict) else {}


def one_line(text: str, chars_max: int) -> str:
    """Return one line without markup that a platform may interpret, such as a mention of everyone."""
    line = " ".join(re.sub(r"[<>`]|\[\[|\]\]", " ", text).split())
    return line if len(line) <= chars_max else line[:chars_max].rstrip() + "…"
