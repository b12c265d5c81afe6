"""`${NAME}`, `${NAME:-default}` and `${file:path}` in the texts of a config: filled in once, after parsing.

Only values are expanded, never keys, and what comes in is not looked at again. `$${` is a literal `${`. A text written
without quotes gets its meaning after the expansion, so that `port: ${PORT:-8080}` is a number; the text itself is kept
beside it, for fields that want text, where a secret of nothing but digits must stay one.
"""

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.config.problems import Findings, Key, shown
from gateway.config.scalars import resolve
from gateway.config.yaml import Document

FILE_BYTES_MAX = 65_536

_REFERENCE = re.compile(
    r"\$\$\{"
    r"|\$\{file:(?P<file>[^}]*)\}"
    r"|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<default>:-[^}]*)?\}"
    r"|(?P<odd>\$\{)"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Expanded:
    """The data after expansion. `texts` has the text of each value that turned into something else than text;
    `names` has the environment names behind a value, so that advice can name them."""

    data: Any
    texts: Mapping[Key, str]
    names: Mapping[Key, tuple[str, ...]]
    warnings: tuple[str, ...]


def expand(document: Document, folder: Path, env: Mapping[str, str], findings: Findings) -> Expanded:
    """Fill in every reference; those that cannot be go to `findings`. Paths count from `folder`."""
    filling = _Filling(document.plain, folder, env, findings)
    data = filling.fill(document.data, ())
    return Expanded(data=data, texts=filling.texts, names=filling.names, warnings=tuple(filling.warnings))


class _Unfilled(Exception):
    """A reference that cannot be filled in, with the reason and the fix."""


@dataclass(slots=True)
class _Filling:
    plain: frozenset[Key]
    folder: Path
    env: Mapping[str, str]
    findings: Findings
    texts: dict[Key, str] = field(default_factory=dict)
    names: dict[Key, tuple[str, ...]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def fill(self, value: Any, key: Key) -> Any:
        """A copy of `value` with its texts expanded. The nesting is bounded by the parser."""
        if isinstance(value, dict):
            return {name: self.fill(item, (*key, name)) for name, item in value.items()}
        if isinstance(value, list):
            return [self.fill(item, (*key, index)) for index, item in enumerate(value)]
        if isinstance(value, str) and "${" in value:
            return self._text(value, key)
        return value

    def _text(self, value: str, key: Key) -> Any:
        found = list(_REFERENCE.finditer(value))
        names = tuple(match["name"] for match in found if match["name"])
        if names:
            self.names[key] = names
        try:
            text = _REFERENCE.sub(lambda match: self._value_of(match, key), value)
            if key not in self.plain or all(match[0] == "$${" for match in found):
                return text
        except _Unfilled as error:
            self.findings.add(key, str(error))
            self.findings.broken(key)
            return None
        try:
            meaning = resolve(text)
        except ValueError:  # digits without end are no number, but may well be a key
            return text
        if not isinstance(meaning, str):
            self.texts[key] = text
        return meaning

    def _value_of(self, match: re.Match[str], key: Key) -> str:
        if match["odd"]:
            raise _Unfilled("expected ${NAME}, ${NAME:-default} or ${file:path} — write $${ for a literal ${")
        if match["file"] is not None:
            return self._content(match["file"], key)
        if match["name"] is None:
            return "${"
        name, default = match["name"], match["default"]
        if default is not None and "${" in default:
            raise _Unfilled("a default is taken as it stands and cannot hold another ${…}")
        value = self.env.get(name, "")
        if value:
            self.findings.hide(value)
            return _usable(value, f"the value of {name}")
        if default is not None:
            return str(default[2:])
        state = "is set but empty" if name in self.env else "is not set"
        raise _Unfilled(f"{name} {state} in the environment — set it, or write ${{{name}:-}} if it may be empty")

    def _content(self, name: str, key: Key) -> str:
        """The text of a file, without the newline at its end."""
        what = f"the file {name}"
        if not name.strip():
            raise _Unfilled("${file:path} lacks its path")
        content, mode = _read(self.folder / name, what)
        if mode & 0o077:
            self.warnings.append(f"{shown(key)}: {what} can be read by others — chmod 600 it")
        try:
            text = content.decode()
        except UnicodeDecodeError:
            raise _Unfilled(f"{what} is not UTF-8 text") from None
        text = text.removesuffix("\n").removesuffix("\r")
        if not text.strip():
            raise _Unfilled(f"{what} is empty")
        self.findings.hide(text)
        return _usable(text, what)


def _read(path: Path, what: str) -> tuple[bytes, int]:
    """Content and permission bits of a regular file that is no symbolic link. Raises _Unfilled."""
    try:
        # O_NONBLOCK: a pipe in this place must not hang the start
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise _Unfilled(f"{what} is not a regular file")
            content = file.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        if path.is_symlink():
            raise _Unfilled(f"{what} is a symbolic link — name the file itself") from None
        reason = error.strerror if isinstance(error, OSError) else "not a file name"
        raise _Unfilled(f"{what} cannot be read: {reason}") from None
    if len(content) > FILE_BYTES_MAX:
        raise _Unfilled(f"{what} is larger than 64 KiB")
    return content, status.st_mode


def _usable(text: str, what: str) -> str:
    if re.search("[\0\ud800-\udfff]", text):
        raise _Unfilled(f"{what} holds a zero byte or half a character")
    return text
