"""The gateway as `gateway serve` runs it, in a process that kills itself at a named moment.

    python -m tests.chaos.victim --config FILE --port N

`CLAWGATE_KILL=K8:3` arms it from the start: SIGKILL when moment K8 comes for the third time. A line `K8:3` on
standard input does so later and comes back when it is done; `where` has it say in its log what it is doing. When its
standard input ends, so does it. The product knows nothing of this: the hooks are put around its store, its door and two
functions of the operating system, from here.
"""

import argparse
import asyncio
import faulthandler
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import Engine, event
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.app.gateway import Gateway
from gateway.app.serve import listen, run
from gateway.cli.options import environment
from gateway.config.load import load
from gateway.observe import logs
from gateway.observe.secrets import Scrubber, secrets_of
from gateway.store import postgres
from gateway.store.inbound import inbound_of
from gateway.store.opening import open_store
from gateway.store.records import Delivery, Entry, Lease, NewPart, OutboxPart, SessionMark, View
from gateway.store.sessions import is_control
from gateway.store.store import Store
from gateway.store.tasks import TaskEnd
from tests.sandboxes import reported

AFTER_ANSWER_SECONDS = 0.002
TEMPORARY = ".clawgate-"
"""How the files begin that become another at the end of a write."""
_CHANGES = ("CREATE", "ALTER", "DROP", "INSERT", "UPDATE", "PRAGMA USER_VERSION=")


class Kill:
    """Counts how often the armed moment came."""

    def __init__(self, spec: str) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.arm(spec)

    def arm(self, spec: str) -> None:
        """`K8:3`, or nothing at all."""
        self._point, _, count = spec.partition(":")
        self._left = int(count or 1)

    def reach(self, point: str | None) -> None:
        """Called at the moment itself. Does not come back from the one that counts."""
        if self.counts(point):
            die()

    def counts(self, point: str | None) -> bool:
        self._left -= point == self._point
        return point == self._point and self._left == 0


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()


COMMANDED = dict.fromkeys(("stop", "mark new", "mark undone", "finish command"), "K20")
"""What a command does, and its reply."""
BEFORE = COMMANDED | {
    "accept": "K1",
    "mark summary": "K19",
    "append assistant": "K7",
    "append toolResult": "K10",
    "finish": "K7",
}
AFTER = COMMANDED | {
    "mark summary": "K19",
    "append user": "K4",
    "append assistant": "K8",
    "append toolResult": "K11",
    "finish": "K12",
}


BY_CAUSE = {"schedule": "K34", "result": "K30", "hook": "K31", "send": "K32", "handover": "K36"}
"""The moments of what no person's message began: before and after each step of it."""
STEPS = ("append", "finish", "sent")


def hook_store(store: Store, kill: Kill) -> None:
    """Put the moments around the methods of any `Store`, whatever is behind it."""
    counts: dict[int, int] = {}
    """How many parts each reply has, by turn."""
    causes: dict[str, str | None] = {}
    """The moments of the turn that was loaded last, by conversation."""

    def of_cause(moment: str, given: Sequence[Any], view: View | None = None) -> str | None:
        if any(isinstance(it, TaskEnd) for it in given):
            return "K30"
        for it in given:
            if isinstance(it, Delivery) and moment == "accept":
                kind, _, of_what = it.dedupe[0].partition(":")
                return "K27" if kind == "gateway" and of_what.startswith("task:") else BY_CAUSE.get(kind)
            if isinstance(it, Lease) and moment in STEPS:
                return causes.get(it.sid)
            if isinstance(it, Lease) and view is not None and view.work is not None:
                origin = inbound_of(view.work.waiting[0].body).context.origin
                causes[it.sid] = BY_CAUSE.get(origin.kind) if origin else None
                return causes[it.sid]
        return None

    def after(moment: str, given: Sequence[Any], result: Any) -> str | None:
        match moment:
            case "accept":
                return "K2" if result.turn is not None else None
            case "load":
                return "K4" if result.work is not None else None
            case "finish" | "finish command":
                (turn,) = {row.turn for row in given if isinstance(row, Entry)}
                counts[turn] = sum(isinstance(row, NewPart) for row in given)
            case "sent":
                (part,) = (value for value in given if isinstance(value, OutboxPart))
                parts = counts.get(part.turn)
                return "K15" if (part.part, parts) == (1, 3) else "K16" if part.part + 1 == parts else None
        return AFTER.get(moment)

    def hook(name: str, holder: object) -> None:
        method: Callable[..., Awaitable[Any]] = getattr(holder, name)

        async def around(*positional: Any, **named: Any) -> Any:
            values = [value if isinstance(value, list | tuple) else [value] for value in (*positional, *named.values())]
            given = [row for rows in values for row in rows]
            kinds = [f"append {row.kind}" for row in given if isinstance(row, Entry)]
            kinds += [f"mark {row.kind}" for row in given if isinstance(row, SessionMark)]
            moment = kinds[0] if name in ("append", "mark", "summarise") else name
            if any(isinstance(row, Lease) and is_control(row.sid) for row in given) and name == "finish":
                moment = "finish command"
            kill.reach(BEFORE.get(moment))
            kill.reach(of_cause(name, given))
            result = await method(*positional, **named)
            kill.reach(after(moment, given, result))
            kill.reach(of_cause(name, given, result if name == "load" else None))
            return result

        setattr(holder, name, around)

    def hook_at(holder: object, name: str, point: str) -> None:
        method: Callable[..., Awaitable[Any]] = getattr(holder, name)

        async def around(*positional: Any, **named: Any) -> Any:
            kill.reach(point)
            result = await method(*positional, **named)
            kill.reach(point)
            return result

        setattr(holder, name, around)

    for name in ("accept", "load", "append", "mark", "stop", "finish", "sent"):
        hook(name, store)
    hook("summarise", store.changes)
    hook_at(store.later, "advance", "K26")
    hook_at(store.later, "change", "K35")
    hook_at(store.tasks, "begin", "K27")
    for name, point in (
        ("request", "K17"),
        ("question", "K17"),
        ("announced", "K17"),
        ("decide", "K18"),
        ("move", "K18"),
    ):
        hook_at(store.approvals, name, point)


def hook_door(app: ASGIApp, kill: Kill) -> ASGIApp:
    """K3 is a moment after the 200 for a delivery."""

    async def door(scope: Scope, receive: Receive, send: Send) -> None:
        kill.loop = asyncio.get_running_loop()
        status = 0

        async def watched(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)
            over = message["type"] == "http.response.body" and not message.get("more_body", False)
            if over and status == 200 and scope["path"].startswith("/webhooks/") and kill.counts("K3"):
                asyncio.get_running_loop().call_later(AFTER_ANSWER_SECONDS, die)

        await app(scope, receive, watched)

    return door


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

    event.listen(Engine, "connect", connected)

    def hooked(run: Any) -> Any:
        def executed(on: Any, statement: Any, *more: Any, **named: Any) -> Any:
            about_to(statement.decode() if isinstance(statement, bytes) else str(statement))
            return run(on, statement, *more, **named)

        return executed

    setattr(psycopg.Cursor, "execute", hooked(psycopg.Cursor.execute))  # noqa: B010 - it has overloads
    setattr(postgres, "command", hooked(postgres.command))  # noqa: B010 - BEGIN and COMMIT


def explain(loop: asyncio.AbstractEventLoop | None) -> None:
    """On standard error, what every thread and every task is doing."""
    faulthandler.dump_traceback()
    for task in asyncio.all_tasks(loop) if loop else ():
        task.print_stack()


def obey(kill: Kill) -> None:
    """Orders from standard input, until it ends: then the harness is gone, and we go too."""
    for line in sys.stdin:
        if line.strip() == "where":
            explain(kill.loop)
        else:
            kill.arm(line.strip())
        sys.stdout.write(line)
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
    logs.configure(
        level=settings.logging.level, output=settings.logging.format, scrubber=Scrubber(secrets_of(settings))
    )
    listener = listen("127.0.0.1", arguments.port)
    hook_statements(kill)
    store = open_store(settings.database)
    hook_store(store, kill)
    hook_files(kill)
    gateway = Gateway(settings, given, store=store)
    reported(gateway.runtime.sandbox)
    gateway.app = hook_door(gateway.app, kill)
    threading.Thread(target=obey, args=(kill,), name="chaos-orders", daemon=True).start()
    run(gateway, listener)


if __name__ == "__main__":
    main()
