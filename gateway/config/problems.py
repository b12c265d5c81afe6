"""Problems of a config file: a line for each, with the position, the key and the fix.

Positions count lines and columns from 1, as editors do. Messages never contain values of the file or the environment, which
may be secrets, but may contain keys that do not look like secrets. The other modules here find the problems.
"""

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from agents.config import AgentDefaults
from channels.bilingual import NO_WORDS, Bilingual, Finding
from gateway.observe.secrets import REDACTED, redacted
from gateway.program import OperatorError

PROBLEMS_MAX = 100
"""Problems that are listed; one more line counts the rest."""

Key: TypeAlias = tuple[str | int, ...]
"""The path of a value in the file: mapping keys and list indexes from the root."""
Warned: TypeAlias = Iterator[tuple[Key, Bilingual, Bilingual]]
"""Tuples of key, message and fix; the key is `()` if none is concerned."""

INHERITED = frozenset(field.alias or name for name, field in AgentDefaults.model_fields.items())
"""The keys that agents inherit from `agents.defaults`."""
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")
_KEY_CHARS_MAX = 64
_HIDDEN_CHARS_MIN = 6


@dataclass(frozen=True, order=True, slots=True)
class Position:
    """Line and column, both from 1."""

    line: int
    column: int

    @classmethod
    def of(cls, mark: Any) -> "Position":
        """Convert a mark of the YAML parser, which counts from 0."""
        return cls(mark.line + 1, mark.column + 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """The position of a value, and of its key if it has one."""

    key: Position | None
    value: Position


@dataclass(frozen=True, order=True, slots=True)
class Problem:
    """A problem of the config. `file` is the path that the user typed; `path` is empty if no key is concerned."""

    file: str
    line: int
    column: int
    path: str
    message: str
    fix: str = ""
    names: tuple[str, ...] = ()
    """The environment variables in the value."""

    def __str__(self) -> str:
        return str(self.finding)

    @property
    def finding(self) -> Finding:
        place = f"{self.file}:{self.line}:{self.column}: {f'{self.path}: ' if self.path else ''}"
        origin = f" (the value comes from {' and '.join(self.names)} in the environment)" if self.names else ""
        return Finding("config", "error", Bilingual(place + self.message + origin), Bilingual(self.fix))


class ConfigErrors(OperatorError):
    """The config file cannot be used. `problems` are all there are, in the order of the file."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


class Findings:
    """Collects problems while a file is read, without reporting consequences of earlier ones."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._marks: Mapping[Key, Mark] = {}
        self._found: set[Problem] = set()
        self._blamed: set[tuple[Position, str]] = set()
        self._broken: set[Key] = set()
        self._hidden: set[str] = set()
        self._names: Mapping[Key, tuple[str, ...]] = {}

    def locate(self, marks: Mapping[Key, Mark], names: Mapping[Key, tuple[str, ...]]) -> None:
        """Set the positions of keys. `names` are the environment variables in values, which may cause a problem."""
        self._marks, self._names = marks, names

    def origin(self, key: Key) -> Key:
        """Return the key where a value was written: an agent's may be in `agents.defaults`."""
        end = len(key)
        while end and isinstance(key[end - 1], int):
            end -= 1
        default: Key = ("agents", "defaults", *key[3:])
        inherits = key[:2] == ("agents", "list") and end > 3 and key[3] in INHERITED
        return default if inherits and key[:end] not in self._marks and default[: end - 1] in self._marks else key

    def place_of(self, key: Key) -> str:
        """Format the position of a key, or of its nearest parent, as a message prefix; empty if the file has neither."""
        key = self.origin(key)
        marks = (self._marks.get(key[:length]) for length in range(len(key), 0, -1))
        mark = next(filter(None, marks), None)
        if mark is None:
            return ""
        at = mark.key or mark.value
        return f"{self._file}:{at.line}:{at.column}: "

    def is_sound(self, key: Key) -> bool:
        """Return whether the key and its parents have no known problem."""
        key = self.origin(key)
        return not any(key[:length] in self._broken for length in range(len(key) + 1))

    def at(self, position: Position, key: Key, text: str, names: tuple[str, ...] = ()) -> None:
        """Add a problem at a position. A validator can raise a single text, so the fix follows its first dash."""
        for value in self._hidden:
            text = text.replace(value, REDACTED)
        message, _, fix = redacted(" ".join(text.split())).partition(" — ")
        self._found.add(Problem(self._file, position.line, position.column, shown(key), message, fix, names))

    def add(self, key: Key, message: str, *, on: Literal["key", "value"] = "value", name: str | None = None) -> None:
        """Add a problem of a key or its value. A missing key is located at the mapping that lacks it. `name` is shown
        instead of the key, if the key contains more than a name."""
        if not self.is_sound(key):
            return
        key = self.origin(key)
        while key and isinstance(key[-1], int) and key not in self._marks:
            key = key[:-1]  # an entry of a list that the model made of a single value
        path = key if name is None else (*key[:-1], name)
        there = next((key[:length] for length in range(len(key), -1, -1) if key[:length] in self._marks), None)
        if there is None:
            self.at(Position(1, 1), path, message)
            return
        mark = self._marks[there]
        place = mark.key if on == "key" and there == key and mark.key is not None else mark.value
        if there == key:
            if (place, message) in self._blamed:
                return  # the same message, repeated by an alias
            self._blamed.add((place, message))
        self.at(place, path, message, self._names.get(key, ()) if on == "value" else ())

    def hide(self, value: str) -> None:
        """Redact a value from outside the file in all messages."""
        if len(value) >= _HIDDEN_CHARS_MIN:
            self._hidden.add(value)

    def mark_unusable(self, key: Key) -> None:
        """Mark a key as reported, so that later problems of it are dropped."""
        self._broken.add(self.origin(key))

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All of them, in the order of the file; at most `PROBLEMS_MAX` and a line about the rest."""
        ordered = sorted(self._found)
        if len(ordered) <= PROBLEMS_MAX:
            return tuple(ordered)
        last = ordered[PROBLEMS_MAX]
        rest = f"{len(ordered) - PROBLEMS_MAX} more problems from here on"
        return (*ordered[:PROBLEMS_MAX], Problem(self._file, last.line, last.column, "", rest))


def shown(key: Key) -> str:
    """Format a key, such as `agents.list[0].name`; a part with unusual characters is quoted."""
    text = ""
    for part in key:
        name = part if isinstance(part, int) else redacted(part)
        if isinstance(name, int):
            text += f"[{name}]"
        elif name == REDACTED or _PLAIN_KEY.fullmatch(name):
            text += f".{name}" if text else name
        else:
            text += f"[{quoted(name)}]"
    return text


def keyed(key: Key, message: Bilingual) -> Bilingual:
    return Bilingual(f"{shown(key)}: {message}", f"{shown(key)}：{message.zh}")


def quoted(name: str) -> str:
    """Quote a user's name on one line, truncated and redacted."""
    name = redacted(name)
    short = name if len(name) <= _KEY_CHARS_MAX else name[:_KEY_CHARS_MAX] + "…"
    return json.dumps(short, ensure_ascii=not short.isprintable())


def suggestion(wrong: str, known: Iterable[str]) -> str:
    """Return ` — did you mean "name"?`, or the known names if they are few, or nothing."""
    names = list(known)
    listed = f" — known here: {', '.join(names)}" if 0 < len(names) <= 32 else ""
    return f" — {meant}" if (meant := did_you_mean(wrong, names)) else listed


def did_you_mean(wrong: str, names: Sequence[str]) -> Bilingual:
    """Suggest the closest name; empty if none is close."""
    bare = {re.sub(r"[_\- ]", "", name).casefold(): name for name in names}
    near = bare.get(re.sub(r"[_\- ]", "", wrong).casefold())
    if near is None:
        near = next(iter(difflib.get_close_matches(wrong, names, n=1)), None)
    return NO_WORDS if near is None else Bilingual(f"did you mean {quoted(near)}?", f"是否想写 {quoted(near)}？")
