"""A gateway that something in a message kills, again and again, and that is started again each time.

    python -m tests.chaos.poisoned --config FILE --port N --stage NAME

Whatever reaches the named stage with the word POISON in it takes the process down with SIGKILL, as a decoder would that
runs out of memory. One warm parent forks the lives, says `killed` for each that ended so, and gives up after LIVES_MAX.
"""

import argparse
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agents.runner import AgentRunner, SessionFiles
from channels.feishu.channel import FeishuChannel
from gateway.app.gateway import Gateway
from gateway.app.serve import listen, run
from gateway.cli.options import environment
from gateway.commands.catalog import Dispatch
from gateway.config.load import load
from gateway.observe import logs
from gateway.observe.secrets import Scrubber, secrets_of
from gateway.state.runtime import Runtime
from gateway.store.opening import open_store
from gateway.turns import attachments, turns
from gateway.turns.journal import TurnJournal
from tests.chaos.victim import die
from tests.sandboxes import reported

POISON = "poison"
LIVES_MAX = 6
STAGES: dict[str, tuple[Any, str]] = {
    "draft": (turns, "draft_of"),
    "enrich": (FeishuChannel, "enrich"),
    "fetch": (FeishuChannel, "fetch"),
    "transcribe": (attachments, "transcribe"),
    "decode": (SessionFiles, "receiver"),
    "compose": (AgentRunner, "user_message"),
    "first row": (TurnJournal, "begin"),
    "model": (AgentRunner, "run"),
    "command": (Dispatch, "run"),
}
"""From the first thing that is done for a turn to the first row of its transcript; then behind it, and a command."""


def poison(stage: str) -> None:
    owner, name = STAGES[stage]
    original: Callable[..., Any] = getattr(owner, name)

    def deadly(*positional: Any, **named: Any) -> Any:
        given = positional[isinstance(owner, type) :]
        # What the turn answers: not the messages behind it, nor the turns before it.
        said = (getattr(it, "user", getattr(it, "messages", it)) for it in given if not isinstance(it, Runtime))
        if any(POISON in repr(it) for it in said):
            die()
        return original(*positional, **named)

    setattr(owner, name, deadly)


def live(config: Path, port: int) -> None:
    given = environment()
    settings = load(config, given).config
    scrubber = Scrubber(secrets_of(settings))
    logs.configure(level=settings.logging.level, output=settings.logging.format, scrubber=scrubber)
    gateway = Gateway(settings, given, store=open_store(settings.database))
    reported(gateway.runtime.sandbox)
    run(gateway, listen("127.0.0.1", port))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--stage", choices=STAGES, required=True)
    arguments = parser.parse_args()
    poison(arguments.stage)
    for _ in range(LIVES_MAX):
        pid = os.fork()
        if pid == 0:
            live(arguments.config, arguments.port)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        if not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
            break
        sys.stdout.write("killed\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
