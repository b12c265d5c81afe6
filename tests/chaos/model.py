"""The scripted model of the campaigns: it does what the last message wishes for, then answers with its serial.

It keeps nothing between requests but how often it answered each message, so a request that is made again after a crash
gets the same kind of answer, and two answers to one message can be told apart.
"""

import random
from collections import Counter
from typing import Any

from tests.chaos.ledger import Wish, running
from tests.emulators.models.anthropic.script import Turn, call_block, text_block
from tests.emulators.models.dialogue import summary_names
from tests.emulators.models.script import says
from tests.emulators.models.server import Reply

EFFECTS = "effects.txt"
PART_CHARS = 2_600
"""Three paragraphs of this length go out as three messages."""
FILE_LINES = 1_000


class Model:
    """The emulator's script. `marker` stands in every command line, so that orphans can be found."""

    def __init__(self, marker: str, chance: random.Random) -> None:
        self._marker = marker
        self._chance = chance
        self._takes: Counter[str] = Counter()
        self.pace()

    def pace(self, *, sleep_seconds: float = 0.02, pause_seconds: float = 0.0) -> None:
        """How long commands take from now on, and the silence before each piece of an answer."""
        self._sleep_seconds = sleep_seconds
        self._pause_seconds = pause_seconds

    def __call__(self, body: dict[str, Any]) -> Reply:
        if (names := summary_names(body)) is not None:
            return says("\n".join(("## Decisions", "-", "## Exact identifiers", *names)))
        if (found := running(body)) is None:
            return says("I do not know that one.")
        serial, wish, called = found
        block = None if called else self._call(serial, wish)
        if block is None:
            self._takes[serial] += 1
            block = text_block(self._answer(serial, wish))
        chunk_bytes = {"write": 8_000, "long": 20_000}.get(wish, 600)
        return Turn(blocks=(block,), pause_seconds=self._pause_seconds, chunk_bytes=chunk_bytes)

    def _call(self, serial: str, wish: Wish) -> dict[str, Any] | None:
        match wish:
            case "exec":
                command = f"echo {serial} >> {EFFECTS}; sleep {self._sleep_seconds}; : {self._marker}"
                return call_block("exec", {"command": command})
            case "file":
                return call_block("write", {"file_path": f"file-{serial}.txt", "content": serial})
            case "write":
                name = f"note-{self._chance.randrange(3)}.txt"
                return call_block("write", {"file_path": name, "content": f"{serial}\n" * FILE_LINES})
            case "ls":
                return call_block("ls", {"path": "."})
            case "task":
                task = f"T{serial[1:]}"
                return call_block("task", {"action": "start", "title": task, "prompt": f"{task} exec"})
            case "plain" | "long" | "/new" | "/undo" | "/approve" | "decided" | "handed" | "say":
                return None

    def _answer(self, serial: str, wish: Wish) -> str:
        if wish == "file":
            return f"R {serial} n{self._takes[serial]} p1/2\n\nMEDIA: ./file-{serial}.txt"
        parts = 3 if wish == "long" else 1
        heads = (f"R {serial} n{self._takes[serial]} p{part}/{parts}" for part in range(1, parts + 1))
        return "\n".join(f"{head} {'and so on ' * (PART_CHARS // 10)}" if parts > 1 else head for head in heads)


def is_whole(text: str) -> bool:
    """Whether a file holds exactly what one `write` put there."""
    lines = text.splitlines()
    return len(lines) == FILE_LINES and len(set(lines)) == 1 and text.endswith("\n")
