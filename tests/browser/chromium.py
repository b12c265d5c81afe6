"""Where this machine's Chromium is, and how a Debian machine gets one: `python -m tests.browser.chromium`.

The browser is the system's, so that its updates are the system's business too; nothing is downloaded past the package
manager. Where none can be had this says in a line what to install, and the tests that need it say "skipped".
"""

import ctypes
import os
import platform
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ON_A_MAC = Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome")
BROWSER, LIGHT, LIBRARY = "chromium", "chromium-headless-shell", "libatomic1"
"""Debian's packages: the browser, the same without windows, and what Playwright's driver, a Node.js, needs of the
system."""
MISSING = (
    "no browser to drive: the browser tests are skipped. "
    f"On Debian, as root: apt-get install --no-install-recommends {BROWSER} {LIBRARY}"
)
FLAGS = (
    "--no-sandbox",  # root has none to offer, and the only page is ours
    "--disable-gpu",
    "--renderer-process-limit=1",  # a person's pages share one; else a page takes two, of which the first stays empty
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
)


def chromium() -> str | None:
    """The path of a browser to drive, if there is one."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    return found or (str(ON_A_MAC) if ON_A_MAC.exists() else None)


def light() -> str | None:
    """The path of the one without windows, else of any. It takes half the processor time; what a window asks a person, such
    as for the microphone, it cannot ask."""
    return shutil.which(LIGHT) or chromium()


def missing() -> list[str]:
    """Debian's names of what there is not."""
    return [*([] if chromium() else [BROWSER]), *([] if driver_starts() else [LIBRARY])]


def driver_starts() -> bool:
    """The library is asked, not the driver, which may be on its way at this moment."""
    with suppress(OSError):
        return sys.platform != "linux" or ctypes.CDLL(f"{LIBRARY[:-1]}.so.1") is not None
    return False


def installable() -> bool:
    """Debian's own, not its children's: Ubuntu's package of this name starts a snap."""
    with suppress(OSError):
        debian = platform.freedesktop_os_release()["ID"] == "debian"
        return debian and os.geteuid() == 0 and shutil.which("apt-get") is not None
    return False


def install(packages: list[str]) -> None:
    """By apt, whose words are shown where it fails."""
    for command in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        done = subprocess.run(
            ["timeout", "600", "apt-get", "-qq", "-o", "DPkg::Lock::Timeout=120", *command],
            env={"DEBIAN_FRONTEND": "noninteractive"} | os.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            print(done.stdout[-2000:], file=sys.stderr)  # noqa: T201 - a command line
            return


def main() -> None:
    wanted = [*missing(), *([] if shutil.which(LIGHT) else [LIGHT])]
    if wanted and installable():
        print(f"Installing Debian's {' and '.join(wanted)} for the browser tests (once) ...", flush=True)  # noqa: T201
        install(wanted)
    if missing():
        print(MISSING)  # noqa: T201


if __name__ == "__main__":
    main()
