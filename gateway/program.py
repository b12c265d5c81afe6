"""The program's name for those who type it: hints, errors and the help name it as it was called."""

import sys
from pathlib import Path

COMMAND = "clawgate"
MODULE = "python -m gateway"


def program() -> str:
    """`clawgate` if its script was called. Else Python's module, with a Python that was named by a path of this folder."""
    if Path(sys.argv[0]).stem == COMMAND:
        return COMMAND
    python = Path(sys.orig_argv[0])
    return MODULE if python.is_absolute() or len(python.parts) < 2 else MODULE.replace("python", str(python), 1)
