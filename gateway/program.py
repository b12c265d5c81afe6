"""The program: its version, the name that its user typed, its packages, and the error that an operator can fix.

Our five package names are common words, and other distributions install some of them. All five must come from one folder,
a checkout's or an environment's, and hold our code; otherwise we would run foreign code, so the start stops. Nothing of
ours is imported here: the command line needs it before anything is loaded.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

COMMAND = "clawgate"
MODULE = "python -m gateway"


def program() -> str:
    """`clawgate` if its script was called. Else Python's module, with a Python that was named by a path of this folder."""
    if Path(sys.argv[0]).stem == COMMAND:
        return COMMAND
    python = Path(sys.orig_argv[0])
    return MODULE if python.is_absolute() or len(python.parts) < 2 else MODULE.replace("python", str(python), 1)


VERSION = "1.0.0"
"""The one place of it: the wheel's is read from here."""
PACKAGES = ("gateway", "agents", "tools", "skills", "channels")


def foreign_packages(root: Path) -> list[str]:
    """One sentence for each of our packages that Python would take from outside `root`, or that is not ours there."""
    wrong = []
    for name in PACKAGES:
        spec = find_spec(name)
        origin = Path(spec.origin).resolve() if spec is not None and spec.origin else None
        if origin != (root / name / "__init__.py").resolve():
            wrong.append(f"the package {name!r} would come from {origin or 'nowhere'}, not from {root}")
        elif origin.stat().st_size:  # ours are empty: pip lets another distribution write over a file without a word
            wrong.append(f"the package {name!r} is another distribution's: {origin} is not the file that we installed")
    return wrong


class OperatorError(Exception):
    """Its text is all that a command prints of it; `code` is the command's exit code."""

    code = 1

    def text(self, language: str) -> str:
        """Return the text in this language, if it is there in several."""
        return str(self)
