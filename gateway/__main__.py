"""`clawgate` and `python -m gateway`: the guards first, then the command line.

Any Python can read this file, however old it is and with nothing installed, so that it can say what to type.
"""

import sys
from os import path


def main():  # type: () -> None
    if sys.version_info < (3, 11):  # noqa: UP036 - a foreign python3 arrives here, too
        stop("Clawgate needs Python 3.11 or newer, and this is " + sys.version.split()[0] + what_to_type())
    from importlib import import_module
    from pathlib import Path

    from gateway.program import PACKAGES, foreign_packages

    root = Path(__file__).resolve().parent.parent
    foreign = foreign_packages(root)
    if foreign:
        stop("\n".join(foreign) + "\n" + way_out(root))
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


def is_checkout():  # type: () -> bool
    beside = path.join(path.dirname(path.abspath(__file__)), "..", "Makefile")  # noqa: PTH100, PTH118, PTH120
    return path.exists(beside)  # noqa: PTH110


def way_out(root):  # type: (object) -> str
    if is_checkout():
        return "Start Clawgate from its own folder: cd " + str(root) + " && make run"
    return "Start it as clawgate, without PYTHONPATH; it needs a separate environment, as uv tool and pipx make one"


def what_to_type():  # type: () -> str
    if not is_checkout():
        return ": install Clawgate again, with uv tool or pipx"
    return (": type make run, or .venv/bin/python -m gateway " + " ".join(sys.argv[1:])).rstrip()


def stop(message):  # type: (str) -> None
    sys.stderr.write(message + "\n")
    sys.exit(1)


if __name__ == "__main__":
    main()
