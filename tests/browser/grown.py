"""A night whose every text has grown to a megabyte: what people, models and platforms wrote, and the config.

The rows were made through the gateway's doors; only their texts are changed beneath it, as no platform sends so many.
"""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import orjson
from playwright.async_api import Browser

from tests.browser.house import House
from tests.browser.night import AGENTS, COMMAND, FRIEND, night
from tests.browser.tab import Tab
from tests.emulators.models.script import calls, says
from tests.emulators.models.server import Reply
from tests.stories.at_work import text_of, users

MEGABYTE = 1_000_000
CONFIG_CHARS = 100_000
"""A config is no larger than a mebibyte, of which an escaped character takes six."""
COLUMNS = {
    "spoken": ("name",),
    "contact": ("name",),
    "web_conversation": ("title",),
    "web_message": ("words",),
    "outbox": ("reason", "payload"),
    "inbox": ("body",),
    "transcript": ("content",),
    "layer": ("content",),
    "layer_text": ("content",),
    "task": ("title",),
    "later": ("body",),
}
"""The columns that hold what others wrote, as text or as JSON."""
MEMBERS = frozenset(
    {"text", "name", "title", "words", "reason", "say", "event", "metadata", "content", "heading"}
    | {"about", "arguments", "result", "said"}
)
"""The members of that JSON that do; the arguments of a call do all."""
KEPT = frozenset({"tool", "toolCall", "tools", "channel"})
TASK = ("task", {"action": "start", "prompt": "Sum it up", "title": "Sum", "wait": False})
REMINDER = ("schedule", {"action": "create", "at": "2099-12-24T18:00", "say": "Light the tree"})


def model(body: dict[str, Any]) -> Reply:
    (*_, last) = users(body)
    answered = text_of(body["messages"][-1]) == ""
    if "Build it anew" in last:
        return says("It waits for you.") if answered else calls(("exec", {"command": COMMAND}), REMINDER, TASK)
    return says("It is done." if "This is the task" in last else "These words are lost.")


def grow(database: Path, text: str) -> None:
    """Lets the texts of all rows be this one, after their first word."""
    with closing(sqlite3.connect(database, timeout=30)) as connection, connection:
        connection.execute(
            "PRAGMA journal_mode = OFF"
        )  # the pages are written once, and nobody needs them after a crash
        for table, columns in COLUMNS.items():
            for column in columns:
                for row, value in connection.execute(f"SELECT rowid, {column} FROM {table}").fetchall():
                    new = _grown(value, text)
                    connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (new, row))


def _grown(value: str | None, text: str) -> str | None:
    if not value:
        return value
    if value[0] not in "[{":
        return value + text
    found = orjson.loads(value)
    _let_grow(found, text, everything=False)
    return orjson.dumps(found).decode()


def _let_grow(value: Any, text: str, *, everything: bool) -> None:
    named = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    is_call = isinstance(value, dict) and value.get("type") == "toolCall"
    for name, it in list(named):
        if isinstance(it, str) and it and (everything or name in MEMBERS) and not (is_call and name == "name"):
            value[name] = orjson.dumps(orjson.loads(it) | {"text": text}).decode() if name == "event" else it + text
        else:
            _let_grow(it, text, everything=everything or name == "arguments")


@asynccontextmanager
async def grown(browser: Browser, folder: Path, text: str, **options: Any) -> AsyncIterator[tuple[House, Tab]]:
    prompt, about = (orjson.dumps(text[:size]).decode() for size in (CONFIG_CHARS, CONFIG_CHARS // 2))
    agents = AGENTS.replace("message] }", f"message, schedule, task] }}\n      systemPrompt: {prompt}", 1)
    agents = agents.replace("description: Answers everybody,", f"description: {about} #", 1)
    async with night(browser, folder, script=model, agents=agents, **options) as (home, tab, telegram):
        await telegram.push(telegram.text_update("hello again", chat=FRIEND))
        await home.until(lambda: sum("lost" in it.text for it in telegram.messages) == 1)
        chat = tab.page.url
        await tab.page.goto("about:blank")
        await home.down()
        grow(Path(str(home.gateway.config.database.path)), text)
        await home.up()
        await tab.page.goto(chat)
        yield home, tab
