"""The gateway as `gateway serve` runs it, in a process that kills itself at a named moment.

    python -m tests.chaos.victim --config FILE --port N

`CLAWGATE_KILL=K8:3` arms it from the start: SIGKILL when moment K8 comes for the third time. A line `arm K8:3` on
standard input does so later; the answer is `armed K8:3`. When its standard input ends, so does it. The product knows
nothing of this: the hooks are put around its store, its door and two functions of the operating system, from here.
"""

import argparse
import asyncio
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import Engine, event
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway import logs
from gateway.cli import environment
from gateway.config.load import load
from gateway.gateway import Gateway
from gateway.serve import listen, run
from gateway.store.opening import open_store
from gateway.store.store import Acceptance, Entry, NewPart, Part, Store, View

AFTER_ANSWER_SECONDS = 0.002
TEMPORARY = ".clawgate-"
"""How the files begin that become another at the end of a write."""
_CHANGES = ("CREATE", "ALTER", "DROP", "INSERT", "UPDATE", "PRAGMA USER_VERSION=")


class Kill:
    """Counts how often the armed moment came."""

    def __init__(self, spec: str = "") -> None:
        self._point, self._left = "", 0
        self.arm(spec)

    def arm(self, spec: str) -> None:
        """`K8:3`, or nothing at all."""
        point, _, count = spec.partition(":")
        self._left = int(count or 1)
        self._point = point

    def reach(self, *points: str) -> None:
        """Called at the moment itself. Does not come back from the one that counts."""
        if self.counts(*points):
            die()

    def counts(self, *points: str) -> bool:
        if self._point in points:
            self._left -= 1
            return self._left == 0
        return False


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()


class StoreHooks:
    """Puts the moments around the methods of any `Store`, whatever is behind it."""

    def __init__(self, store: Store, kill: Kill) -> None:
        self._kill = kill
        self._parts: dict[int, int] = {}
        """How many parts each reply has, by turn."""
        hooks: dict[str, tuple[Any, Any]] = {
            "accept": (self._before_accept, self._after_accept),
            "load": (None, self._after_look),
            "append": (self._before_append, self._after_append),
            "finish": (self._before_finish, self._after_finish),
            "sent": (None, self._after_sent),
        }
        for name, (before, after) in hooks.items():
            setattr(store, name, _around(getattr(store, name), before, after))

    def _before_accept(self, given: tuple[Any, ...]) -> None:
        self._kill.reach("K1")

    def _after_accept(self, given: tuple[Any, ...], result: Acceptance) -> None:
        if result.turn is not None:
            self._kill.reach("K2")

    def _after_look(self, given: tuple[Any, ...], result: View) -> None:
        if result.work is not None:
            self._kill.reach("K4")

    def _before_append(self, given: tuple[Any, ...]) -> None:
        match _entry(given):
            case "assistant":
                self._kill.reach("K7")
            case "toolResult":
                self._kill.reach("K10")

    def _after_append(self, given: tuple[Any, ...], result: object) -> None:
        match _entry(given):
            case "user":
                self._kill.reach("K4")
            case "assistant":
                self._kill.reach("K8")
            case "toolResult":
                self._kill.reach("K11")

    def _before_finish(self, given: tuple[Any, ...]) -> None:
        self._kill.reach("K7")

    def _after_finish(self, given: tuple[Any, ...], result: object) -> None:
        rows = [row for value in given if isinstance(value, Sequence) for row in value]
        (turn,) = {row.turn for row in rows if isinstance(row, Entry)}
        self._parts[turn] = sum(isinstance(row, NewPart) for row in rows)
        self._kill.reach("K12")

    def _after_sent(self, given: tuple[Any, ...], result: object) -> None:
        (part,) = (value for value in given if isinstance(value, Part))
        if (part.part, self._parts.get(part.turn)) == (1, 3):
            self._kill.reach("K15")
        if part.part + 1 == self._parts.get(part.turn):
            self._kill.reach("K16")


def _around(
    method: Callable[..., Awaitable[Any]],
    before: Callable[[tuple[Any, ...]], None] | None,
    after: Callable[[tuple[Any, ...], Any], None] | None,
) -> Callable[..., Awaitable[Any]]:
    @wraps(method)
    async def around(*positional: Any, **named: Any) -> Any:
        given = (*positional, *named.values())
        if before is not None:
            before(given)
        result = await method(*positional, **named)
        if after is not None:
            after(given, result)
        return result

    return around


def _entry(given: tuple[Any, ...]) -> str:
    return next(row.kind for value in given if isinstance(value, list) for row in value if isinstance(row, Entry))


class DoorHook:
    """An ASGI layer over the gateway's app: K3 is a moment after the 200 for a delivery."""

    def __init__(self, app: ASGIApp, kill: Kill) -> None:
        self._app = app
        self._kill = kill

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = 0

        async def watched(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)
            over = message["type"] == "http.response.body" and not message.get("more_body", False)
            if over and status == 200 and scope["path"].startswith("/webhooks/") and self._kill.counts("K3"):
                asyncio.get_running_loop().call_later(AFTER_ANSWER_SECONDS, die)

        await self._app(scope, receive, watched)


def hook_files(kill: Kill) -> None:
    """K9w: just before and just after a finished file takes the place of the old one."""
    for name in ("rename", "replace", "link"):
        original = getattr(os, name)

        def moved(source: Any, *rest: Any, original: Callable[..., None] = original, **named: Any) -> None:
            ours = Path(os.fsdecode(source)).name.startswith(TEMPORARY)
            if ours:
                kill.reach("K9w")
            original(source, *rest, **named)
            if ours:
                kill.reach("K9w")

        setattr(os, name, moved)


def hook_statements(kill: Kill) -> None:
    """SQL: before any statement; K21: before one that changes the database, meant for its opening."""

    def about_to(statement: str) -> None:
        kill.reach("SQL")
        if statement.lstrip().upper().startswith(_CHANGES):
            kill.reach("K21")

    def connected(connection: Any, _: Any) -> None:
        if isinstance(connection, sqlite3.Connection):  # also what goes past SQLAlchemy
            connection.set_trace_callback(about_to)

    def executed(connection: Any, cursor: Any, statement: str, *more: Any) -> None:
        if connection.dialect.name != "sqlite":
            about_to(statement)

    event.listen(Engine, "connect", connected)
    event.listen(Engine, "before_cursor_execute", executed)
    execute = psycopg.AsyncConnection.execute

    async def reached(*positional: Any, **named: Any) -> Any:
        kill.reach("SQL")
        return await execute(*positional, **named)

    psycopg.AsyncConnection.execute = reached  # type: ignore[method-assign]


def obey(kill: Kill) -> None:
    """Orders from standard input, until it ends: then the harness is gone, and we go too."""
    for line in sys.stdin:
        order, _, spec = line.strip().partition(" ")
        if order == "arm":
            kill.arm(spec)
            sys.stdout.write(f"armed {spec}\n")
            sys.stdout.flush()
    os._exit(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    arguments = parser.parse_args()
    given = environment()
    kill = Kill(given.get("CLAWGATE_KILL", ""))
    settings = load(arguments.config, given).config
    logs.configure(level=settings.logging.level, output=settings.logging.format, secrets=logs.secrets_of(settings))
    listener = listen("127.0.0.1", arguments.port)
    hook_statements(kill)
    store = open_store(settings.database)
    StoreHooks(store, kill)
    hook_files(kill)
    gateway = Gateway(settings, given, store=store)
    gateway.app = DoorHook(gateway.app, kill=kill)
    threading.Thread(target=obey, args=(kill,), name="chaos-orders", daemon=True).start()
    run(gateway, listener)


if __name__ == "__main__":
    main()
