"""The files that a new workspace begins with: a start for the operator to write on, and short, since all of them stand in
the prompt. Only a folder that the gateway has just made gets them, and nothing is ever written over."""

import os
from collections.abc import Mapping
from contextlib import suppress

from agents.sentences import Language

_ENGLISH = {
    "AGENTS.md": """# How you work

- Start when a request is clear. Ask one short question when two readings would lead to different work.
- Say what you changed, and what you could not check.
- Leave files that you did not make as they are, unless somebody asks for a change.
""",
    "SOUL.md": """# How you sound

Friendly, brief and exact. Plain words; no flattery, no filler. If you are not sure, say so.
""",
    "USER.md": """# Who you work for

(Nothing yet. The operator writes here: names, time zone, what they work on, how they like to be answered.)
""",
    "MEMORY.md": """# What lasts

(Nothing yet. One line for each fact or decision, with its date; more in memory/YYYY-MM-DD.md. No passwords, no keys.)
""",
}
_CHINESE = {
    "AGENTS.md": """# 工作方式

- 需求清楚就直接动手；如果两种理解会导致不同的工作，先问一个简短的问题。
- 说明改了什么，以及哪些没能核实。
- 不是你创建的文件，没有人要求就不要改动。
""",
    "SOUL.md": """# 说话方式

友好、简短、准确。用平实的话，不奉承，不说空话。不确定时直说。
""",
    "USER.md": """# 服务对象

（暂无。由管理员填写：姓名、时区、从事的工作、喜欢怎样的回答。）
""",
    "MEMORY.md": """# 长期记忆

（暂无。每条事实或决定写一行并注明日期；更多内容放在 memory/YYYY-MM-DD.md。不要写密码和密钥。）
""",
}
SEEDS: Mapping[Language, Mapping[str, str]] = {"en": _ENGLISH, "zh": _CHINESE}


def seed(folder: int, language: Language) -> None:
    """Write them into a folder that is open by this descriptor. Blocking. What cannot be written is left out: an agent
    works without them."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    for name, text in SEEDS[language].items():
        with suppress(OSError), os.fdopen(os.open(name, flags, 0o644, dir_fd=folder), "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o644)  # whatever the umask: commands may be another user's
            file.write(text)
