"""Installs a lock into an environment: `python -m tests.installer LOCK ENVIRONMENT [--compile-bytecode]`.

uv takes seconds for what takes pip a minute. It reads none of pip's settings, so it is told where pip's mirror is and whom
pip trusts. Whatever keeps it from its work, pip does it. Nothing but Python's own library is imported: there is no more yet.
"""

import ast
import os
import subprocess
import sys
from pathlib import Path

UV = Path(sys.prefix) / "bin" / "uv"
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
HANDED_OVER = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
}
"""Names of pip's settings, and the variables that uv reads."""
OURS = {
    "UV_SYSTEM_CERTS": "1",  # as pip: the system's authorities
    "UV_INDEX_STRATEGY": "unsafe-first-match",  # as pip: every index is asked; the hash says whether it is the one
    "UV_HTTP_RETRIES": "1",  # then it is pip's turn
}


def settings_of_pip() -> dict[str, str]:
    """The later section wins, as in pip."""
    found: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    listed = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True, check=False).stdout
    for line in listed.splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.partition(".")
        if section in found:
            found[section][name] = " ".join(str(ast.literal_eval(value)).split())
    return found["global"] | found["install"] | found[":env:"]


def installs_by_uv(lock: str, environment: Path, options: list[str]) -> bool:
    """Says why if it does not."""
    settings = settings_of_pip()
    if not UV.exists() or "no-index" in settings:
        return False
    told = {variable: settings[name] for name, variable in HANDED_OVER.items() if name in settings}
    command = [str(UV), "pip", "install", "--quiet", "--python", str(environment / "bin" / "python"), *options]
    try:
        subprocess.run(
            [*command, "--require-hashes", "-r", lock],
            env=OURS | told | os.environ,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        why = getattr(error, "stderr", "") or str(error)
        print(f"uv did not install them, so pip tries, which takes longer:\n{why.strip()}", file=sys.stderr)  # noqa: T201
        return False
    return True


def packages(environment: Path) -> set[Path]:
    return set(environment.glob("lib/python*/site-packages/*"))


def main() -> int:
    lock, environment, options = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    before = packages(environment)
    if installs_by_uv(lock, environment, options):
        return 0
    if packages(environment) != before:  # pip would take what is half-written for installed
        print("It was stopped in the middle. Type make again: that begins anew.", file=sys.stderr)  # noqa: T201
        return 1
    into = ("--python", str(environment / "bin" / "python"))
    done = subprocess.run([*PIP, *into, "install", "--quiet", "--require-hashes", "-r", lock], check=False)
    return int(done.returncode != 0)


if __name__ == "__main__":
    sys.exit(main())
