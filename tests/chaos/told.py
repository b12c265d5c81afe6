"""`clawgate send` in a process that kills itself at a named moment, as the victim does.

    python -m tests.chaos.told send --config FILE --to PLACE TEXT

K33 is before and after its message is stored, and, where it sends by itself, before and after each further step. It says
`stored` as soon as that is so: a person whose command died before that would give it again.
"""

import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from gateway.cli import app, terminal
from gateway.config.root import DatabaseConfig
from gateway.store.opening import open_store
from gateway.store.sends import DatabaseSends
from gateway.store.store import Store
from tests.chaos.victim import Kill

STORING = ("accept", "queue")


def hook(holder: object, name: str, kill: Kill) -> None:
    method: Callable[..., Awaitable[Any]] = getattr(holder, name)

    async def around(*positional: Any, **named: Any) -> Any:
        kill.reach("K33")
        result = await method(*positional, **named)
        if name in STORING:
            sys.stdout.write("stored\n")
            sys.stdout.flush()
        kill.reach("K33")
        return result

    setattr(holder, name, around)


def main() -> None:
    kill = Kill(os.environ.get("CLAWGATE_KILL", ""))
    hook(DatabaseSends, "queue", kill)

    def opened(config: DatabaseConfig) -> Store:
        store = open_store(config)
        for name in ("accept", "finish", "sent"):
            hook(store, name, kill)
        return store

    vars(terminal)["open_store"] = opened
    app()


if __name__ == "__main__":
    main()
