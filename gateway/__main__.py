"""`python -m gateway`: the guard first, then the command line."""

import sys
from pathlib import Path

from gateway.guard import foreign_packages


def main() -> None:
    root = Path(__file__).resolve().parent.parent
    if foreign := foreign_packages(root):
        sys.stderr.write("\n".join(foreign) + "\n")
        sys.stderr.write(f"Start Clawgate from its own folder: cd {root} && python -m gateway\n")
        sys.exit(1)
    from gateway.cli import app  # after the guard: it imports everything else

    app()


if __name__ == "__main__":
    main()
