"""`${NAME}`, `${NAME:-default}` and `${file:path}` in the texts of a config: filled in once, while the file is read.

Only values are expanded, never keys, and a filled-in text is not expanded again. `$${` is a literal `${`. A text written
without quotes gets its meaning after the expansion (in `yaml`), so that `port: ${PORT:-8080}` is a number; the text itself
is kept beside it, for fields that want text: a secret of nothing but digits must stay one.
"""

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from channels.bilingual import Bilingual
from gateway.config.dotenv import faults
from gateway.config.problems import Findings, Key, shown

FILE_BYTES_MAX = 65_536
PRIVATE = Bilingual("chmod 600 it", "请执行 chmod 600")

_REFERENCE = re.compile(
    r"\$\$\{"
    r"|\$\{file:(?P<file>[^}]*)\}"
    r"|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<default>:-[^}]*)?\}"
    r"|(?P<odd>\$\{)"
)

_REQUIRED = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_STAND_INS = {
    "TELEGRAM_BOT_TOKEN": f"1:{'x' * 35}",
    "DATABASE_URL": "postgresql://nobody@localhost/none",
    "CLAWGATE_PUBLIC_URL": "https://bot.example.com",
}


def required(text: str) -> list[str]:
    """List the variables that a config cannot do without, in its order."""
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    return [*dict.fromkeys(_REQUIRED.findall("\n".join(lines)))]


def stand_in(name: str) -> str:
    """Return a value for a variable that is not set, so that the rest of a config can be read."""
    return _STAND_INS.get(name, f"{name}{'x' * 40}")


class Expansion:
    """Fills in the references of one file; paths count from `folder`. `names` has the environment names behind each value
    that held a reference, so that advice can name them; each of `warnings` has its fix."""

    def __init__(self, folder: Path, env: Mapping[str, str], findings: Findings) -> None:
        self.names: dict[Key, tuple[str, ...]] = {}
        self.warnings: list[tuple[Key, Bilingual, Bilingual]] = []
        self.files: set[Path] = set()
        """The files that were read, or may be."""
        self._folder = folder
        self.env = env
        self._findings = findings

    def note(self, path: Path) -> None:
        """Remembers a file of values, and warns if it is not read whole, or others can read it."""
        self.files.add(path)
        self.warnings += [((), *fault) for fault in faults(path)]
        if path.is_file() and path.stat().st_mode & 0o077:
            message = Bilingual(f"{path.name} can be read by others", f"{path.name} 可被他人读取")
            self.warnings.append(((), message, PRIVATE))

    def fill(self, value: str, key: Key) -> str:
        """The text with its references filled in. Raises ValueError with the reason and the fix if one cannot be."""
        self.names[key] = tuple(match["name"] for match in _REFERENCE.finditer(value) if match["name"])
        return _REFERENCE.sub(lambda match: self._value_of(match, key), value)

    def _value_of(self, match: re.Match[str], key: Key) -> str:
        if match["odd"]:
            raise ValueError("expected ${NAME}, ${NAME:-default} or ${file:path} — write $${ for a literal ${")
        if match["file"] is not None:
            return self._content(match["file"], key)
        if match["name"] is None:
            return "${"
        name, default = match["name"], match["default"]
        if default is not None and "${" in default:
            raise ValueError("a default is taken literally and cannot hold another ${…}")
        value = self.env.get(name, "")
        if value:
            self._findings.hide(value)
            return _usable(value, f"the value of {name}")
        if default is not None:
            return str(default[2:])
        state = "is set but empty" if name in self.env else "is not set"
        raise ValueError(f"{name} {state} in the environment — set it, or write ${{{name}:-}} if it may be empty")

    def _content(self, name: str, key: Key) -> str:
        """The text of a file, without the newline at its end."""
        what = f"the file {name}"
        if not name.strip():
            raise ValueError("${file:path} lacks its path")
        self.files.add(self._folder / name)
        content, mode = _read(self._folder / name, what)
        if mode & 0o077:
            message = Bilingual(
                f"{shown(key)}: the file {name} can be read by others", f"{shown(key)}：文件 {name} 可被他人读取"
            )
            self.warnings.append((key, message, PRIVATE))
        try:
            text = content.decode()
        except UnicodeDecodeError:
            raise ValueError(f"{what} is not UTF-8 text") from None
        text = text.removesuffix("\n").removesuffix("\r")
        if not text.strip():
            raise ValueError(f"{what} is empty")
        self._findings.hide(text)
        return _usable(text, what)


def _read(path: Path, what: str) -> tuple[bytes, int]:
    """Content and permission bits of a regular file that is no symbolic link. Raises ValueError."""
    try:
        # O_NONBLOCK: a pipe in this place must not hang the start
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            mode = os.fstat(descriptor).st_mode
            content = file.read(FILE_BYTES_MAX + 1) if stat.S_ISREG(mode) else b""
    except (OSError, ValueError) as error:
        if path.is_symlink():
            raise ValueError(f"{what} is a symbolic link — name the file itself") from None
        reason = error.strerror if isinstance(error, OSError) else "not a file name"
        raise ValueError(f"{what} cannot be read: {reason}") from None
    if not stat.S_ISREG(mode):
        raise ValueError(f"{what} is not a regular file")
    if len(content) > FILE_BYTES_MAX:
        raise ValueError(f"{what} is larger than 64 KiB")
    return content, mode


def _usable(text: str, what: str) -> str:
    if re.search("[\0\ud800-\udfff]", text):
        raise ValueError(f"{what} holds a zero byte or half a character")
    return text
