"""Terminal output: names and texts of chat users never reach an operator's terminal raw, and no command prints another way.

A hostile user writes, is named, is refused, makes a reminder and has a tool called; then each command that lists or shows
runs in a real terminal.
"""

import ast
import asyncio
import io
import json
import os
import pty
import re
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import structlog

from gateway.observe import logs
from gateway.observe.secrets import Scrubber
from gateway.observe.terminal import escaped, printable
from tests import warm
from tests.case import case
from tests.emulators.models.script import calls, says
from tests.parsed import parsed
from tests.running import ALICE, BOB, BOB_CHAT, FEISHU, SECRETS, Running, running
from tests.stories.process.test_process import GATEWAY

HOSTILE = "Eve\x1b[2J\x1b]0;pwned\x07\u202e\x9b31m\u2066\u200bx"
ROWS = f"{HOSTILE}\nforged  row"
AGENTS = """
agents:
  list:
    - id: helper
      model: anthropic/claude-sonnet-4-6
      tools: { allow: [schedule, ls] }
"""
PAIRING = FEISHU.replace("dmPolicy: open", f"dmPolicy: pairing\n    allowFrom: [{ALICE}]")
OWNED = f'owners: ["feishu:{ALICE}"]\nnotifyOwners: false'
COMMANDS = [
    *(
        (name, "list", *form)
        for name in ("sessions", "turns", "schedules", "pairing", "dead-letters")
        for form in ((), ("--json",))
    ),
    ("sessions", "show", "SESSION"),
    ("sessions", "show", "SESSION", "--json"),
    ("turns", "show", "TURN"),
    ("turns", "show", "TURN", "--json"),
    ("usage", "--by", "person"),
    ("usage", "--by", "chat", "--json"),
    ("pairing", "revoke", f"feishu:{HOSTILE}"),
]


async def in_a_terminal(house: Running, *words: str) -> str:
    """What a terminal receives of a command: standard output and standard error."""
    master, theirs = pty.openpty()
    env = {"PATH": os.environ["PATH"], "HOME": str(house.folder), "TERM": "xterm", **SECRETS}
    config = str(house.folder / "config.yaml")
    try:
        process = await warm.start(
            GATEWAY, *words, "--config", config, env=env, stdin=theirs, stdout=theirs, stderr=theirs, terminal=True
        )
    finally:
        os.close(theirs)
    reading = asyncio.create_task(asyncio.to_thread(_all_of, master))
    await process.wait()
    return (await reading).decode(errors="surrogateescape").replace("\r\n", "\n")


def _all_of(master: int) -> bytes:
    pieces = []
    try:
        while piece := os.read(master, 65_536):
            pieces.append(piece)
    except OSError:  # the last process has closed its end
        pass
    os.close(master)
    return b"".join(pieces)


def obeyed(output: str) -> set[str]:
    """The characters of an output that a terminal obeys or a reader cannot see."""
    return {it for it in output if it != "\n" and unicodedata.category(it) in ("Cc", "Cf", "Cs", "Zl", "Zp")}


@pytest.mark.slow
async def test_terminal_output_of_listings_has_no_control_or_bidi_characters(tmp_path: Path) -> None:
    async with running(tmp_path, agents=AGENTS, feishu=PAIRING, more=OWNED) as house:
        house.feishu.users |= {ALICE: ROWS, BOB: ROWS}
        plan = {"action": "create", "at": "every 5h", "say": ROWS, "title": ROWS}
        house.anthropic.script = [calls(("schedule", plan), ("ls", {"path": HOSTILE})), says(f"Done, {ROWS}")]
        await house.say(f"{ROWS}: remind me")
        await house.say("let me in", sender=BOB, chat=BOB_CHAT)
        await house.replies(2)
        await house.idle()
        (session,) = json.loads(await in_a_terminal(house, "sessions", "list", "--json"))
        turns = json.loads((await in_a_terminal(house, "turns", "list", "--json")).rpartition("]")[0] + "]")
        turn = next(it for it in turns if it["calls"] == 2)
        assert turn["name"].startswith("Eve\x1b[2J")  # JSON keeps the value, as an escape
        places = {"SESSION": session["id"], "TURN": str(turn["id"])}
        for words in COMMANDS:
            with case(" ".join(words).replace(HOSTILE, "EVE")):
                output = await in_a_terminal(house, *(places.get(it, it) for it in words))
                assert obeyed(output) == set()
                assert "Traceback" not in output
        listed = await in_a_terminal(house, "turns", "list")
        assert [it for it in listed.splitlines() if it.startswith("forged")] == []
        assert "�[2J" in listed
        schedules = await in_a_terminal(house, "schedules", "list")
        assert "Eve�[2J�]0;pwned�" in schedules
        assert len(schedules.splitlines()) == 2  # the row and the total


TEXTS: dict[str, str] = {
    "plain\ttext\nwith lines": "plain\ttext\nwith lines",
    "one\r\ntwo\rthree": "one\ntwo�three",
    "\x1b]8;;http://x\x07link\x1b]8;;\x07": "�]8;;http://x�link�]8;;�",
    "\x7f\x85\x9b": "���",
    "a\u202eb\u2066c\u2069d\u200fe\u061cf": "a�b�c�d�e�f",
    "a\u2028b\u2029c": "a�b�c",
    "\ufeffa\u200bb\u2060c": "�a�b�c",
    "half \ud83d": "half �",
    "family 👨‍👩‍👧, 中文, ไทย, é": "family 👨‍👩‍👧, 中文, ไทย, é",
}


def test_terminal_printable_text_is_safe_and_escaped_json_equal() -> None:
    for text, shown in TEXTS.items():
        with case(repr(text)):
            assert printable(text) == shown
            document = escaped(json.dumps([text], ensure_ascii=False))
            assert json.loads(document) == [text]
            assert obeyed(document) - {"\u200d"} == set()


@pytest.mark.parametrize("form", ["console", "json"])
def test_terminal_log_line_has_no_control_or_bidi_characters(form: Any) -> None:
    stream = io.StringIO()
    logs.configure(level="info", output=form, scrubber=Scrubber(), stream=stream)
    structlog.get_logger().info("contact_waits", name=HOSTILE, person="x\x9b31m")
    assert obeyed(stream.getvalue()) == set()
    assert "Eve" in stream.getvalue()


ONLY = "gateway/observe/terminal.py"
GUARD = "gateway/__main__.py"
"""It speaks before anything is loaded, of this program's own arguments."""


def test_commands_print_through_the_one_output_function_only() -> None:
    """Another call would print a chat user's text raw: `typer.echo`, `print`, a stream's `write`, or a question."""
    other = re.compile(r"(?:typer|click)\.(?:echo|secho|confirm|prompt)|print|sys\.std(?:out|err)(?:\.buffer)?\.write")
    found = []
    for path, nodes in parsed().items():
        name = str(path).partition("/gateway/")[2]
        calls_made = (ast.unparse(it.func) for it in nodes if isinstance(it, ast.Call)) if name else ()
        found += [f"gateway/{name}: {it}" for it in calls_made if other.fullmatch(it)]
    assert [it for it in found if not it.startswith((ONLY, GUARD))] == []
