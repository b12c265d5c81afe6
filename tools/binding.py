"""What a command is made of when a person approves it: the program, the folder, and the files that a script is read from.

Only a command of the simplest form is taken apart: words and quotes that the shell leaves as they are. What is bound of
it is advice for the person and a guard against a file that changes in between; it permits nothing. A command that is not
understood is bound by its bytes and its folder alone, and is never approved for good.
"""

import hashlib
import os
import re
import shlex
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

HASHED_BYTES_MAX = 64 * 1024 * 1024
_SIMPLE = re.compile(r"""(?:[A-Za-z0-9_@%+=:,./ -]|'[^'\n]*'|"[^"$`\\!\n]*")+""")
_INTERPRETERS = re.compile(
    r"(?:python|pypy|perl|ruby|node|nodejs|deno|bun|php|lua|luajit|tclsh|Rscript|osascript|pwsh"
    r"|(?:ba|da|z|k|fi|c|tc|a)?sh)[0-9.]*"
)
_RUNNERS = re.compile(
    r"(?:env|sudo|doas|su|xargs|find|fd|nohup|timeout|nice|ionice|setsid|stdbuf|time|watch|parallel|busybox|toybox|ssh|scp|rsync"
    r"|make|gmake|cmake|ninja|just|npm|npx|pnpm|yarn|pip|pipx|uv|uvx|cargo|go|mvn|gradle|docker|podman|kubectl|git|tar|zip|sed"
    r"|g?awk|mawk|nawk|vim?|ex|ed|emacs|less|more|man|script|expect|gdb|strace|ld|ld\.so|systemctl|crontab|at|tmux|screen|flock"
    r"|unshare|nsenter|chroot|bwrap|eval|exec|command|source|run-parts|start-stop-daemon|runuser|setpriv|chrt|taskset|numactl"
    r"|prlimit|setarch|linux32|linux64|ltrace|perf|valgrind|java|jshell|dotnet|mono|julia|R|runghc|escript|elixir|octave|tcc"
    r"|m4|dc|sqlite3|psql|mysql|gnuplot|rake|bundle|gem|composer|poetry|tox|nox|pytest|entr|sort|split|ansible|terraform"
    r"|(?:rba|mk|pdk|ya|xon)sh|nu)"
)
"""Programs that run what their arguments, or files that nobody names, say: approved once at a time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Binding:
    """`identity` by what it is of; `always` where nothing that is run is left out of it."""

    identity: Mapping[str, str | int] = field(default_factory=dict)
    always: bool = False


def binding_of(command: str, *, folder: int, path: str) -> Binding:
    """`folder` is the descriptor of the one it runs in, `path` where the shell looks for programs. Blocking."""
    status = os.fstat(folder)
    bound: dict[str, str | int] = {"folder": f"{status.st_dev}:{status.st_ino}"}
    words = _words(command)
    if not words:
        return Binding(identity=bound)
    program = _program(words[0], folder, path)
    if program is None:
        return Binding(identity=bound)
    name = words[0].rpartition("/")[2]
    is_script = "/" in words[0]
    interprets = bool(_INTERPRETERS.fullmatch(name))
    bound["program"] = program
    operands = dict(_operands(words, folder)) if interprets or is_script else {}
    bound |= {f"file {name}": digest for name, digest in operands.items()}
    runs_its_file = interprets and len(words) > 1 and words[1] in operands
    whole = not _RUNNERS.fullmatch(name) and "?" not in operands.values()
    return Binding(identity=bound, always=whole and (runs_its_file or not interprets))


def _words(command: str) -> list[str]:
    """The words of a simple command; none where a shell might make something else of it."""
    if not _SIMPLE.fullmatch(command):
        return []
    try:
        words = shlex.split(command)
    except ValueError:
        return []
    return [] if not words or "=" in words[0] else words


def _program(name: str, folder: int, path: str) -> str | None:
    places = [name] if "/" in name else [f"{place}/{name}" for place in path.split(":")]
    for place in places:
        if (found := _identity(place, folder)) is not None:
            return found
    return None


def _identity(place: str, folder: int) -> str | None:
    """Which file stands there, and what is in it where somebody like us could change it; None where nothing can be run."""
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or not status.st_mode & 0o111:
            return None
        real = Path(f"/proc/self/fd/{descriptor}").readlink()
        facts = f"{real} {status.st_dev}:{status.st_ino} {status.st_size} {status.st_mtime_ns}"
        if not os.access(f"/proc/self/fd/{descriptor}", os.W_OK) or status.st_size > HASHED_BYTES_MAX:
            return facts
        return f"{facts} {hashlib.file_digest(file, 'sha256').hexdigest()}"


def _operands(words: list[str], folder: int) -> Iterator[tuple[str, str]]:
    """The files among the words, each with the digest of its content; `?` where there is none to be had."""
    for word in words:
        try:
            descriptor = os.open(word, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        except PermissionError:
            yield word, "?"
            continue
        except (OSError, ValueError):
            continue
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode):
                whole = status.st_size <= HASHED_BYTES_MAX
                yield word, hashlib.file_digest(file, "sha256").hexdigest() if whole else "?"
