"""The scripted model's words, in English and Chinese: what it is, what its tools did, how to get a real model."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

ECHO_CHARS_MAX = 60
RESULT_CHARS_MAX = 160

REAL_MODEL = (
    "For a real model, set ANTHROPIC_API_KEY, OPENAI_API_KEY or DEEPSEEK_API_KEY in the environment and start again: "
    "`model: auto` in config.yaml takes it. Other vendors: docs/providers.md"
)
REAL_MODEL_ZH = (
    "要使用真正的模型:设置环境变量 ANTHROPIC_API_KEY、OPENAI_API_KEY 或 DEEPSEEK_API_KEY,然后重新启动,"
    "config.yaml 里的 `model: auto` 就会用它。其他厂商见 docs/providers.md"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class CallMade:
    """A call of this turn and what its tool answered."""

    tool: str
    arguments: dict[str, Any]
    result: str


def closing(
    text: str, calls: Sequence[CallMade], failed: Collection[str], *, chinese: bool, attached: str | None
) -> str:
    """The final words of a turn. `failed` names the tools that did not succeed, `attached` a file to send along."""
    lines = [_opening(_echo(text), chinese=chinese)]
    if calls:
        lines.append("我实际调用了这些工具:" if chinese else "I really used these tools:")
        lines.append("\n".join(_report(one, one.tool in failed, chinese=chinese) for one in calls))
    lines.append(REAL_MODEL_ZH if chinese else REAL_MODEL)
    if attached is not None:
        lines.append(f"MEDIA:{attached}")
    return "\n\n".join(lines)


def _opening(echo: str, *, chinese: bool) -> str:
    if chinese:
        return f"我是 Clawgate 自带的脚本演示模型(demo/guide),不是真正的 AI。你说的是:「{echo}」"
    return f"I am demo/guide, the scripted demo model that ships with Clawgate, not a real AI. You said: “{echo}”"


def _report(calls: CallMade, failed: bool, *, chinese: bool) -> str:
    target = str(next(iter(calls.arguments.values()), ""))
    result = _one_line(calls.result, RESULT_CHARS_MAX) or ("(没有内容)" if chinese else "(nothing)")
    if calls.tool == "read" and not failed:
        count = len(calls.result)
        return f"- `read` {target}: {'已读取' if chinese else 'read'} {count} {'个字符' if chinese else 'characters'}"
    outcome = ("失败:" if chinese else "failed: ") if failed else ""
    return f"- `{calls.tool}` {target}: {outcome}{result}"


def _echo(text: str) -> str:
    return _one_line(text, ECHO_CHARS_MAX) or "…"


def _one_line(text: str, chars_max: int) -> str:
    """One harmless line: no markup a platform might act upon, such as a mention of everyone."""
    line = " ".join(re.sub(r"[<>`]|\[\[|\]\]", " ", text).split())
    return line if len(line) <= chars_max else line[:chars_max].rstrip() + "…"


def script_source(name: str, *, chinese: bool) -> str:
    """A small script that works: it lists every file below a folder."""
    about = "遍历目录,打印其中的所有文件。" if chinese else "Print every file below a folder."
    usage = "用法" if chinese else "Usage"
    start = "从这个目录开始,默认是当前目录" if chinese else "start here, or in the current folder"
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
