"""How one command starts: what the sandbox decides, and the supervisor does."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

SCRATCH = "@TMPDIR@"
"""What stands in `argv` for the temporary folder that the supervisor makes for this command alone."""


@dataclass(kw_only=True)
class Launch:
    """`argv` is what the supervisor executes, `env` all that it knows. `pass_fds` are named in `argv` and `plan`; `close`
    shuts those that were opened for it, once the supervisor has them. `plan` is the supervisor's part, as JSON."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    pass_fds: tuple[int, ...] = ()
    plan: str = "{}"
    _own_fds: list[int] = field(default_factory=list)

    def close(self) -> None:
        while self._own_fds:
            os.close(self._own_fds.pop())


@contextmanager
def closing(launch: Launch) -> Iterator[Launch]:
    try:
        yield launch
    finally:
        launch.close()
