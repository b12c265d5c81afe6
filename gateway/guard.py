"""The start-up guard: our five package names are common words, and other distributions install some of them.

Clawgate is an application, started from its own folder and never installed. If Python would take `agents` or `tools`
from elsewhere, we would run somebody else's code: say so and stop.
"""

from importlib.util import find_spec
from pathlib import Path

VERSION = "0.1.0"
PACKAGES = ("gateway", "agents", "tools", "skills", "channels")


def foreign_packages(root: Path) -> list[str]:
    """One sentence for each of our packages that Python would take from outside `root`."""
    found = []
    for name in PACKAGES:
        spec = find_spec(name)
        origin = Path(spec.origin).resolve() if spec is not None and spec.origin else None
        if origin != (root / name / "__init__.py").resolve():
            found.append(f"the package {name!r} would come from {origin or 'nowhere'}, not from {root}")
    return found
