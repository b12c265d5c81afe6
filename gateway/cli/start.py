"""The program alone, without a command: from an empty folder to a page that answers, without a question."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from gateway.cli.init import write_default
from gateway.cli.options import CONFIG, environment
from gateway.cli.serving import run_gateway


def start() -> None:
    """Serves the config of this folder; writes one first if there is none. Shows the page if there is a display."""
    if not CONFIG.exists() and not CONFIG.is_symlink():
        write_default(CONFIG)
    serve_shown(CONFIG)


def serve_shown(config: Path) -> None:
    """Serves until a signal ends it, and opens the page where a person sees it."""
    os.umask(umask := os.umask(0))  # as it is before the gateway makes its own strict: the browser is no part of it
    run_gateway(config, shown=lambda address: _browse(address, umask) if has_display(environment()) else None)


def has_display(env: Mapping[str, str]) -> bool:
    """A browser that is started here is seen by the person at the terminal."""
    if "SSH_CONNECTION" in env:
        return False
    return sys.platform == "darwin" or bool(env.get("DISPLAY") or env.get("WAYLAND_DISPLAY"))


def _browse(address: str, umask: int) -> None:
    """Starts a process of its own: some browsers hold whoever calls them for seconds, and Ctrl-C is not for them."""
    command = [sys.executable, "-I", "-m", "webbrowser", address]
    null = subprocess.DEVNULL
    subprocess.Popen(command, stdin=null, stdout=null, stderr=null, start_new_session=True, umask=umask)
