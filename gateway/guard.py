"""The start-up guard: our five package names are common words, and other distributions install some of them.

All five must come from one folder, a checkout's or an environment's, and hold our code. If Python would take `agents` or
`tools` from elsewhere, or another distribution has written over one, we would run foreign code: say so and stop.
"""

from importlib.util import find_spec
from pathlib import Path

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
