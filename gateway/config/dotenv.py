"""The file `.env` beside the config: what it adds to the environment, and the secrets that a person gave, put at its end.

Nothing that is there is changed. If a name is there twice, the last value counts, as docker compose has it.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

DOTENV = ".env"
SECRET = re.compile(r"[\x21-\x26\x28-\x5b\x5d-\x7e]{1,1000}")
"""A value that means itself between single quotes: ASCII without blanks, quotes and backslashes."""


def over_file(path: Path, env: Mapping[str, str]) -> Mapping[str, str]:
    """The environment over what the file sets; one that cannot be read sets nothing. A name without a value is ignored, and
    so is an empty variable, as docker compose hands it on, of which the file has a value."""
    if not path.is_file():
        return env
    from dotenv import dotenv_values

    try:
        written = dotenv_values(path, interpolate=False)
    except (OSError, UnicodeDecodeError):
        return env
    named = {name: value for name, value in written.items() if value is not None}
    return {**named, **{name: value for name, value in env.items() if value or not named.get(name)}}


def append(path: Path, values: Mapping[str, str]) -> None:
    """Adds values, all or none; from then on only its owner can read the file. Raises OSError, ValueError."""
    if not all(SECRET.fullmatch(value) for value in values.values()):
        raise ValueError("a value cannot be written")
    lines = "".join(f"{name}='{value}'\n" for name, value in values.items()).encode()
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(file, 0o600)
        size = os.fstat(file).st_size
        begun = size and os.pread(file, 1, size - 1) != b"\n"
        data = b"\n" * bool(begun) + lines
        try:
            if os.write(file, data) < len(data):
                raise OSError(28, os.strerror(28))
            os.fsync(file)
        except OSError:
            os.ftruncate(file, size)
            raise
    finally:
        os.close(file)
