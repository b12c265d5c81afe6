"""The mistakes in a config file: one line each, with the place, the key and the fix.

Positions are those of the file as a person sees it in an editor, lines and columns from 1. A value of the file or of
the environment is never part of a message, since it may be a secret; names that a person wrote as keys are, where they
do not look like one, and so are lists of what would have been right. The other modules here find the problems.
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
"""The most problems that are listed; one further line counts the rest."""

Key: TypeAlias = tuple[str | int, ...]
"""The place of a value in the file: mapping keys and list indexes from the top."""
Warned: TypeAlias = Iterator[tuple[Key, Bilingual, Bilingual]]
"""Messages, each behind the key whose place in the file is shown, and before its fix; `()` if no key is concerned."""

INHERITED = frozenset(field.alias or name for name, field in AgentDefaults.model_fields.items())
"""The keys that an agent has from `agents.defaults`."""
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
        """The position of one of the YAML parser's marks, which count from 0."""
        return cls(mark.line + 1, mark.column + 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """The place of a value, and of its key if it has one."""

    key: Position | None
    value: Position


@dataclass(frozen=True, order=True, slots=True)
class Problem:
    """One thing to mend. `file` is the file as the user named it; `path` is empty if no key is concerned."""

    file: str
    line: int
    column: int
    path: str
    message: str
    fix: str = ""
    names: tuple[str, ...] = ()
    """The names in the environment that the value comes from."""

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
    """Collects problems while a file is read. What was reported once is not reported again as its own consequence."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._marks: Mapping[Key, Mark] = {}
        self._found: set[Problem] = set()
        self._blamed: set[tuple[Position, str]] = set()
        self._broken: set[Key] = set()
        self._hidden: set[str] = set()
        self._names: Mapping[Key, tuple[str, ...]] = {}

    def locate(self, marks: Mapping[Key, Mark], names: Mapping[Key, tuple[str, ...]]) -> None:
        """Makes keys locatable. `names` are the environment names of values: a mistake in one is not the file's."""
        self._marks, self._names = marks, names

    def origin(self, key: Key) -> Key:
        """The key under which a value was written: an agent's may be in its own block or in the defaults."""
        end = len(key)
        while end and isinstance(key[end - 1], int):
            end -= 1
        default: Key = ("agents", "defaults", *key[3:])
        inherits = key[:2] == ("agents", "list") and end > 3 and key[3] in INHERITED
        return default if inherits and key[:end] not in self._marks and default[: end - 1] in self._marks else key

    def place_of(self, key: Key) -> str:
        """The place of a key, or of what should hold it, to put before a sentence; empty if the file has neither."""
        key = self.origin(key)
        marks = (self._marks.get(key[:length]) for length in range(len(key), 0, -1))
        mark = next(filter(None, marks), None)
        if mark is None:
            return ""
        at = mark.key or mark.value
        return f"{self._file}:{at.line}:{at.column}: "

    def is_sound(self, key: Key) -> bool:
        """True if no problem is known of it or of what contains it."""
        key = self.origin(key)
        return not any(key[:length] in self._broken for length in range(len(key) + 1))

    def at(self, position: Position, key: Key, text: str, names: tuple[str, ...] = ()) -> None:
        """Adds a problem at a place. A validator can raise one text only, so the fix is what follows its first dash."""
        for value in self._hidden:
            text = text.replace(value, REDACTED)
        message, _, fix = redacted(" ".join(text.split())).partition(" — ")
        self._found.add(Problem(self._file, position.line, position.column, shown(key), message, fix, names))

    def add(self, key: Key, message: str, *, on: Literal["key", "value"] = "value", name: str | None = None) -> None:
        """A problem of this key: with its value, or with the key itself. A key that is not there belongs to the
        mapping that lacks it. `name` is shown in its place, if the key holds more than a name."""
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
                return  # the same words, used again through an alias
            self._blamed.add((place, message))
        self.at(place, path, message, self._names.get(key, ()) if on == "value" else ())

    def hide(self, value: str) -> None:
        """This came from outside the file: strike it out of messages, wherever a section might quote it."""
        if len(value) >= _HIDDEN_CHARS_MIN:
            self._hidden.add(value)

    def mark_unusable(self, key: Key) -> None:
        """Marks the value of this key as reported: later complaints about it are dropped."""
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
    """`agents.list[0].name`; a key with odd characters is quoted, so that it stays on its line."""
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
    """A name that a person wrote, in quotes, on one line and not too long; no secret in the place of a name."""
    name = redacted(name)
    short = name if len(name) <= _KEY_CHARS_MAX else name[:_KEY_CHARS_MAX] + "…"
    return json.dumps(short, ensure_ascii=not short.isprintable())


def suggestion(wrong: str, known: Iterable[str]) -> str:
    """` — did you mean "name"?`, or the known names if they are few, or nothing."""
    names = list(known)
    listed = f" — known here: {', '.join(names)}" if 0 < len(names) <= 24 else ""
    return f" — {meant}" if (meant := did_you_mean(wrong, names)) else listed


def did_you_mean(wrong: str, names: Sequence[str]) -> Bilingual:
    """The question for the name that is nearest; empty if none is near."""
    bare = {re.sub(r"[_\- ]", "", name).casefold(): name for name in names}
    near = bare.get(re.sub(r"[_\- ]", "", wrong).casefold())
    if near is None:
        near = next(iter(difflib.get_close_matches(wrong, names, n=1)), None)
    return NO_WORDS if near is None else Bilingual(f"did you mean {quoted(near)}?", f"是否想写 {quoted(near)}？")
