"""The guided tour of the scripted model: what it does, and says, if a person asks what the bot can do.

It works with the agent's own tools: it writes a small file and asks to run it. A command that waits for an approval ends
the turn; the turn that the gateway opens after the decision ends the tour.
"""

import json
import re
from collections.abc import Collection, Sequence
from typing import Any, TypeAlias

from agents.language import Language
from agents.messages import ToolCall, ToolResultMessage, texts

Made: TypeAlias = tuple[ToolCall, ToolResultMessage | None]

_WANTED = re.compile(
    r"\bwhat (?:can|could|do) (?:you|i|this bot) do\b|\bhow (?:can|do) you (?:help|work)\b"
    r"|\bshow me (?:around|what)\b|\btour\b"
    r"|[能会]\S{0,6}[做干帮]\S{0,3}(?:什么|啥)|有(?:什么|哪些)功能|怎么用|演示一下|带我(?:看看|了解)",
    re.IGNORECASE,
)
FILE = "clawgate_tour.sh"
COMMAND = f"sh {FILE}"
SCRIPTS: dict[Language, str] = {
    "en": "#!/bin/sh\n# Read me before you allow me: I print two lines and change nothing.\n"
    'echo "Hello! I ran on your own machine, and only as a person allowed it."\ndate\n',
    "zh": "#!/bin/sh\n# 批准之前请先读一读：只打印两行，不改动任何东西。\n"
    'echo "你好！我在你自己的机器上运行，而且是经人批准的。"\ndate\n',
}
RESULT_CHARS_MAX = 160
OUTPUT_LINES_MAX = 12

_SAID: dict[str, tuple[str, str]] = {
    "begin": (
        "Let me show you what an agent does here, with its real tools:",
        "我用真实的工具演示一下智能体在这里能做什么：",
    ),
    "talk": (
        "In this chat I may use no tools, so I can only tell you: an agent with tools writes files, runs commands once a "
        "person has allowed them, remembers, and opens links.",
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
        f"**2. A command, and a person's decision.** I want to run `{COMMAND}`. Nothing runs unasked here: the gateway has "
        "put exactly this command before whoever may decide. If that is you, read the request and allow it. Then I show you "
        "what came out.",
        f"**2. 运行命令，由人决定。** 我想运行 `{COMMAND}`。这里的命令不会擅自运行：网关已把这条命令原样交给有权批准的人。"
        "如果那就是你，请看清请求并批准，然后我会给你看结果。",
    ),
    "unable": (
        "**2. A command** would come now, but this agent may run none here.",
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
        "**3. The result.** It was denied, so nothing ran. That is what the question is for.",
        "**3. 结果。** 请求被拒绝，所以什么都没有运行。审批正是为此而设。",
    ),
    "expired": (
        "**3. The result.** Nobody decided in time, so nothing ran.",
        "**3. 结果。** 没有人及时决定，所以什么都没有运行。",
    ),
    "failed": ("**3. The result.** It was allowed, but it failed: ", "**3. 结果。** 已获批准，但运行失败："),
    "end": (
        "That was the tour. A real model has the same tools, and decides by itself what to do with them.",
        "演示到此结束。真正的模型使用同样的工具，并会自己决定怎么用。",
    ),
}
_OUTCOMES = {"EXEC_DENIED": "denied", "EXEC_APPROVAL_EXPIRED": "expired"}


def wanted(text: str) -> bool:
    return bool(_WANTED.search(text))


def steps(offered: Collection[str], done: Sequence[Made], language: Language) -> list[tuple[str, dict[str, Any]]]:
    """The calls of the tour. Without its file there is nothing to run."""
    write = ("write", {"file_path": FILE, "content": SCRIPTS[language]})
    written = any(call.name == "write" and result and not result.is_error for call, result in done)
    run = [("exec", {"command": COMMAND})] if written and "exec" in offered else []
    return [write, *run] if "write" in offered else []


def told(done: Sequence[Made], language: Language) -> tuple[str, bool]:
    """The account of the calls of a tour, and true if the tour is over."""
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


def outcome(done: Sequence[Made], language: Language) -> str:
    """The account of the call that a person has decided on; it has a result."""
    result = next(result for _, result in done if result)
    if not result.is_error:
        return f"{_printed('allowed', result, language)}\n\n{_said('end', language)}"
    word = _OUTCOMES.get(_code(result))
    return _said(word, language) if word else _said("failed", language) + reason(result)


def _said(word: str, language: Language) -> str:
    return _SAID[word][language == "zh"]


def _printed(word: str, result: ToolResultMessage, language: Language) -> str:
    """The output as a quotation: no line of it begins like an instruction to the platform."""
    lines = [one_line(it, RESULT_CHARS_MAX) for it in "\n".join(texts(result)).splitlines()[:OUTPUT_LINES_MAX]]
    return "\n".join([_said(word, language), "", *(f"> {it}  " for it in lines if it)])


def reason(result: ToolResultMessage) -> str:
    """The sentence of a failure, without the form that it has for models."""
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
    """One harmless line: no markup a platform might act upon, such as a mention of everyone."""
    line = " ".join(re.sub(r"[<>`]|\[\[|\]\]", " ", text).split())
    return line if len(line) <= chars_max else line[:chars_max].rstrip() + "…"
