"""What runs on this machine, as the kernel tells it."""

from contextlib import suppress
from pathlib import Path


def processes_of(words: str) -> dict[int, tuple[str, int]]:
    """Processes whose command line holds the words: that line and the parent, by process id. A dead one has no line."""
    found: dict[int, tuple[str, int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if words in line:
                found[int(entry.name)] = line, parent(int(entry.name))
    return found


def parent(pid: int) -> int:
    """Raises OSError where there is no such process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
