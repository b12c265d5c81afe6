"""The file `.env` beside the config: what it adds to the environment, and the secrets that a person gave, put at its end.

Nothing that is there is changed. If a name is there twice, the last value counts, as docker compose has it.
"""

import errno
import io
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from channels.bilingual import Bilingual
from tools.encoding import UTF_8, encoding_of, is_valid

DOTENV = ".env"
SECRET = re.compile(r"[\x21-\x26\x28-\x5b\x5d-\x7e]{1,1000}")
"""A value that means itself between single quotes: ASCII without blanks, quotes and backslashes."""


def over_file(path: Path, env: Mapping[str, str]) -> Mapping[str, str]:
    """The environment over what the file sets; one that cannot be read sets nothing, and `faults` says why. A name without a
    value is ignored, and so is an empty variable, as docker compose hands it on, of which the file has a value."""
    if not path.is_file():
        return env
    from dotenv import dotenv_values

    try:
        text = path.read_bytes().decode().removeprefix("\ufeff")
    except (OSError, UnicodeDecodeError):
        return env
    written = dotenv_values(stream=io.StringIO(text), interpolate=False)
    named = {name: value for name, value in written.items() if value is not None}
    return {**named, **{name: value for name, value in env.items() if value or not named.get(name)}}


def faults(path: Path) -> Iterator[tuple[Bilingual, Bilingual]]:
    """The reasons for which the file, or a line of it, sets nothing, each with its fix. No value is shown."""
    if not path.is_file():
        return
    from dotenv.parser import parse_stream

    name = path.name
    try:
        data = path.read_bytes()
    except OSError as error:
        fix = Bilingual("let the user that runs this read it", "请让运行本程序的用户可以读取它")
        unread = Bilingual(
            f"{name} cannot be read ({error.strerror}), so it sets nothing",
            f"{name} 无法读取（{error.strerror}），因此其中的设置无效",
        )
        yield unread, fix
        return
    if not is_valid(data):
        encoding = encoding_of(data, nuls=True)
        guess = encoding.title if encoding not in (None, UTF_8) and encoding else ""
        message = Bilingual(
            f"{name} is not UTF-8{f' but {guess}' if guess else ''}, so nothing of it is read",
            f"{name} 不是 UTF-8{f'，而是 {guess}' if guess else ''}，因此其中的设置全部无效",
        )
        yield message, Bilingual("save it in the encoding UTF-8", "请以 UTF-8 编码保存")
        return
    for line in parse_stream(io.StringIO(data.decode().removeprefix("\ufeff"))):
        if line.error:
            at = line.original.line
            message = Bilingual(
                f"{name}: line {at} is not NAME=value, so it is passed over",
                f"{name}：第 {at} 行不是 NAME=value，已略过",
            )
            yield message, Bilingual("correct it, or put # before it", "请改正，或在行首加 #")


def append(path: Path, values: Mapping[str, str]) -> None:
    """Adds values, all or none; from then on only its owner can read the file. Raises OSError, also for a file that is not
    UTF-8, and ValueError."""
    if not all(SECRET.fullmatch(value) for value in values.values()):
        raise ValueError("a value cannot be written")
    lines = "".join(f"{name}='{value}'\n" for name, value in values.items()).encode()
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        if not is_valid(b"".join(iter(lambda: os.read(file, 65_536), b""))):
            raise OSError(errno.EILSEQ, "it is not UTF-8, so what is written there would not be read; save it as UTF-8")
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
