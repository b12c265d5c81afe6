"""`python -m gateway`: the guards first, then the command line.

Any Python can read this file, however old it is and with nothing installed, so that it can say what to type.
"""

import sys


def main():  # type: () -> None
    if sys.version_info < (3, 11):  # noqa: UP036 - somebody else's python3 comes here, too
        stop("Clawgate needs Python 3.11 or newer, and this is " + sys.version.split()[0] + what_to_type())
    from importlib import import_module
    from pathlib import Path

    from gateway.guard import PACKAGES, foreign_packages

    root = Path(__file__).resolve().parent.parent
    foreign = foreign_packages(root)
    if foreign:
        stop("\n".join(foreign) + "\nStart Clawgate from its own folder: cd " + str(root) + " && make run")
    try:
        sys.modules["rich"] = None  # type: ignore[assignment]
        for name in ("structlog", "httpx"):  # they would load its 80 modules, for what a server never shows
            import_module(name)
        del sys.modules["rich"]
        from gateway.cli import app  # after the guards: it imports everything else

        app()
    except ImportError as error:
        if (error.name or "").partition(".")[0] in PACKAGES:
            raise
        stop(sys.executable + " lacks what Clawgate needs (" + str(error) + ")" + what_to_type())


def what_to_type():  # type: () -> str
    return (": type make run, or .venv/bin/python -m gateway " + " ".join(sys.argv[1:])).rstrip()


def stop(message):  # type: (str) -> None
    sys.stderr.write(message + "\n")
    sys.exit(1)


if __name__ == "__main__":
    main()
