"""git on repositories of strangers: without the caller's `GIT_…` variables, with few protocols, and with limits on time,
memory and disk. No hook, filter, link or submodule comes to life."""

import os
import resource
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from skills.lock import SKILL_BYTES_MAX
from skills.strangers import BadSource, shown

FETCH_SECONDS = 120
REPOSITORY_BYTES_MAX = 256 * 1024 * 1024
LISTING_BYTES_MAX = 16 * 1024 * 1024
MEMORY_BYTES_MAX = 2 * 1024 * 1024 * 1024
_KEPT = ("GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH")
_SETTINGS = (
    *("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.symlinks=false", "core.bigFileThreshold=16m"),
    *("submodule.recurse=false", "fetch.recurseSubmodules=false", "gc.auto=0", "maintenance.auto=false"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeEntry:
    """An object in a repository's tree."""

    mode: str
    oid: str
    size: int
    path: str


class Git:
    """git in a separate folder. Each run raises BadSource."""

    def __init__(self, folder: Path, env: Mapping[str, str], protocols: str) -> None:
        self._folder = folder
        self._env = {name: value for name, value in env.items() if not name.startswith("GIT_") or name in _KEPT}
        self._env |= {
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ALLOW_PROTOCOL": protocols,
            "GIT_NO_LAZY_FETCH": "1",
            "LC_ALL": "C",
        }
        self._words = ["git", *(word for it in _SETTINGS for word in ("-c", it))]

    def inside(self, *words: str, bytes_max: int = LISTING_BYTES_MAX, given: bytes = b"") -> bytes:
        return self.run("--git-dir=repository", *words, bytes_max=bytes_max, given=given)

    def run(self, *words: str, bytes_max: int, given: bytes = b"") -> bytes:
        """Returns what it writes. No file that it makes, its output included, may be larger than `bytes_max`."""

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_max, bytes_max))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
            resource.setrlimit(resource.RLIMIT_CPU, (FETCH_SECONDS, FETCH_SECONDS))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as feed:
            feed.write(given)
            feed.seek(0)
            process = subprocess.Popen(
                [*self._words, *words],
                cwd=self._folder,
                env=self._env,
                stdin=feed,
                stdout=output,
                stderr=errors,
                start_new_session=True,
                preexec_fn=limit,
            )
            try:
                code = process.wait(FETCH_SECONDS)
            except BaseException as error:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                if isinstance(error, subprocess.TimeoutExpired):
                    raise BadSource(f"git did not end within {FETCH_SECONDS} s") from None
                raise
            output.seek(0)
            errors.seek(0)
            if code:
                raise BadSource(_failure(code, errors.read(65_536).decode(errors="replace"), bytes_max))
            return output.read()

    def contents(self, entries: Sequence[TreeEntry]) -> Iterator[bytes]:
        """The contents of files, in their order."""
        asked = "".join(f"{it.oid}\n" for it in entries).encode()
        data = self.inside("cat-file", "--batch", bytes_max=2 * SKILL_BYTES_MAX, given=asked)
        at = 0
        for entry in entries:
            begin = data.index(b"\n", at) + 1
            if data[at:begin].split()[1:] != [b"blob", str(entry.size).encode()]:
                raise BadSource(f"git cannot read {shown(entry.path, 80)}")
            yield data[begin : begin + entry.size]
            at = begin + entry.size + 1


def _failure(code: int, errors: str, bytes_max: int) -> str:
    if -code == signal.SIGXFSZ or "File too large" in errors or "signal 25" in errors:
        return f"the repository is larger than {bytes_max // 1024 // 1024} MiB"
    lines = [it.removeprefix("fatal: ").removeprefix("error: ") for it in errors.splitlines() if it.strip()]
    line = next((it for it in reversed(lines) if not it.startswith(("hint:", "Please make sure", "and the repo"))), "")
    return f"git could not read it: {shown(line) or f'it ended with code {code}'}"
