"""Strict YAML: bytes in, plain data and positions out, every fault of the file found in one pass.

It takes the parser's events one by one instead of building YAML's node graph, so that nothing recurses and an alias
can never be followed. Scalars mean what YAML 1.2 says: `no`, `012`, `1:30` and dates are text. Refused are aliases,
anchors, merge keys, duplicate keys, keys that are not text, tags outside the core set, a second document, and too much
of anything.

`${…}`, and `{agent}` in a path, count as one word of a plain scalar, also inside `{ }` and `[ ]`, where YAML itself
would stop at the brace: their braces are masked while the parser runs. What they mean is decided elsewhere.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml

from gateway.config.faults import fault
from gateway.config.problems import Findings, Key, Mark, Position

BYTES_MAX = 1_048_576
DEPTH_MAX = 64
DIGITS_MAX = 300

Scalar: TypeAlias = str | int | float | bool | None

_CORE = "tag:yaml.org,2002:"
_SCALAR_TAGS = {f"{_CORE}{name}": kind for name, kind in {"str": str, "int": int, "float": float, "bool": bool}.items()}
_NULL_TAG = f"{_CORE}null"
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(?:(?:0|[1-9][0-9]*)\.[0-9]*|\.[0-9]+|(?:0|[1-9][0-9]*)(?=[eE]))(?:[eE][-+]?[0-9]+)?")
_WORDS: dict[str, Scalar] = {"": None, "~": None, "null": None, "true": True, "false": False}

_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_BREAKS = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
_REFERENCE = re.compile(r"\$\{[^}\r\n\x85\u2028\u2029]*\}|(?<=[\w/.-])\{agent\}")
_MASKED = "{}[],: #?"
_MASK = {ord(char): 0x10FF00 + ord(char) for char in _MASKED}
_UNMASK = {stand_in: code for code, stand_in in _MASK.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """What a file says. `plain` names the texts written without quotes."""

    data: Any
    marks: Mapping[Key, Mark]
    plain: frozenset[Key]


def parse(content: bytes, findings: Findings) -> Document | None:
    """Read one file. Faults go to `findings`; None where it is not YAML at all and nothing more can be said."""
    text = _decode(content, findings)
    if text is None:
        return None
    builder = _Builder(findings)
    try:
        for event in yaml.parse(_REFERENCE.sub(lambda found: found[0].translate(_MASK), text), Loader=yaml.SafeLoader):
            if not builder.take(event):
                break
    except yaml.MarkedYAMLError as error:
        place, message = fault(error, text)
        findings.at(place or builder.last, (), message.translate(_UNMASK))
        return None
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError):
        # such as an escape beyond Unicode, "\UFFFFFFFF": the parser itself gives no place, the last event is near it
        findings.at(builder.last, (), "this is not YAML that can be read, here or soon after")
        return None
    if builder.unfinished:
        return None
    return Document(data=builder.root, marks=builder.marks, plain=frozenset(builder.plain))


def resolve(text: str) -> Scalar:
    """What a plain scalar means. Raises ValueError where it is a number beyond measure."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        if len(text) > DIGITS_MAX:
            raise ValueError("a number with too many digits — put it in quotes if it is text")
        return int(text)
    if _FLOAT.fullmatch(text):
        number = float(text)
        if not math.isfinite(number):
            raise ValueError("a number out of range — put it in quotes if it is text")
        return number
    return text


def _decode(content: bytes, findings: Findings) -> str | None:
    if len(content) > BYTES_MAX:
        findings.at(Position(1, 1), (), "the file is larger than 1 MiB")
        return None
    try:
        text = content.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        findings.at(_place_in(content[: error.start].decode()), (), "not UTF-8 — save the file in the encoding UTF-8")
        return None
    if found := _UNPRINTABLE.search(text) or re.search(r"[\U0010ff00-\U0010ffff]", text):
        message = f"the character U+{ord(found[0]):04X} is not allowed — remove it"
        findings.at(_place_in(text[: found.start()]), (), message)
        return None
    return text


def _place_in(before: str) -> Position:
    lines = _BREAKS.split(before)
    return Position(len(lines), len(lines[-1]) + 1)


def _position(mark: Any) -> Position:
    return Position(mark.line + 1, mark.column + 1)


@dataclass(slots=True)
class _Frame:
    """An open mapping or list. `live` is False beneath a key that was refused: read for its faults, then dropped."""

    key: Key
    container: dict[str, Any] | list[Any]
    live: bool
    count: int = 0
    awaiting: tuple[str, Position, bool] | None = None
    """The key whose value comes next: name, place, whether it counts."""
    first: dict[str, Position] = field(default_factory=dict)


class _Builder:
    """Takes events, builds data. Every refusal is noted and read past, except too deep a nesting."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._stack: list[_Frame] = []
        self._documents = 0
        self.root: Any = None
        self.marks: dict[Key, Mark] = {}
        self.plain: set[Key] = set()
        self.last = Position(1, 1)

    @property
    def unfinished(self) -> bool:
        """Whether reading stopped in the middle of something."""
        return bool(self._stack)

    def take(self, event: Any) -> bool:
        """False where reading must stop."""
        self.last = _position(event.start_mark)
        match event:
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    self._findings.at(self.last, (), "a second document — a config file has one; remove this ---")
                    return False
            case yaml.AliasEvent():
                self._refuse("aliases (*…) are not allowed — put text that begins with * in quotes")
            case yaml.ScalarEvent():
                self._scalar(event)
            case yaml.CollectionStartEvent():
                return self._open(event)
            case yaml.CollectionEndEvent():
                self._stack.pop()
        return True

    def _scalar(self, event: Any) -> None:
        frame = self._stack[-1] if self._stack else None
        text = event.value.translate(_UNMASK)
        fault = self._fault(event)
        value: Scalar = text
        if fault is None:
            try:
                value = _meaning(event, text)
            except ValueError as error:
                fault = str(error)
        if frame is not None and isinstance(frame.container, dict) and frame.awaiting is None:
            self._begin_entry(frame, event, value, fault)
        elif fault is not None:
            self._refuse(fault)
        else:
            key = self._put(value)
            if key is not None and event.style is None and isinstance(value, str):
                self.plain.add(key)

    def _fault(self, event: Any) -> str | None:
        """What is wrong with a scalar whatever its meaning."""
        if event.anchor is not None:
            return "anchors (&…) are not allowed — put text that begins with & in quotes"
        if event.tag not in (None, "!", _NULL_TAG) and event.tag not in _SCALAR_TAGS:
            return "tags (!…) are not allowed — put text that begins with ! in quotes"
        if _UNPRINTABLE.search(event.value):
            return "the text holds a control character or half a character"
        return None

    def _begin_entry(self, frame: _Frame, event: Any, value: Scalar, fault: str | None) -> None:
        """A scalar where a mapping's key is expected."""
        name = event.value.translate(_UNMASK)
        if fault is None and event.style is None and name == "<<":
            fault = "merge keys (<<) are not allowed — write the keys out"
        if fault is None and not isinstance(value, str):
            fault = "a key must be text — put it in quotes"
        if fault is None and name in frame.first:
            fault = f"duplicate key — it stands in line {frame.first[name].line} already"
        if fault is None:
            frame.first[name] = self.last
        else:
            self._findings.at(self.last, (*frame.key, name), fault)
        frame.awaiting = (name, self.last, fault is None)

    def _open(self, event: Any) -> bool:
        frame = self._stack[-1] if self._stack else None
        if len(self._stack) >= DEPTH_MAX:
            self._findings.at(self.last, (), f"nested deeper than {DEPTH_MAX} levels")
            return False
        is_map = isinstance(event, yaml.MappingStartEvent)
        container: dict[str, Any] | list[Any] = {} if is_map else []
        if frame is not None and isinstance(frame.container, dict) and frame.awaiting is None:
            self._findings.at(self.last, frame.key, "a key must be text, not a list or a mapping")
            frame.awaiting = ("?", self.last, False)
            self._stack.append(_Frame((*frame.key, "?"), container, live=False))
            return True
        key, live = self._next_key()
        if event.anchor is not None or event.tag not in (None, "!", _CORE + ("map" if is_map else "seq")):
            what = "anchors (&…)" if event.anchor is not None else "tags (!…)"
            self._findings.at(self.last, key, f"{what} are not allowed")
        self._put(container)
        self._stack.append(_Frame(key, container, live))
        return True

    def _next_key(self) -> tuple[Key, bool]:
        """Where the next value goes, and whether it counts."""
        if not self._stack:
            return (), True
        frame = self._stack[-1]
        if frame.awaiting is not None:
            name, _, counts = frame.awaiting
            return (*frame.key, name), frame.live and counts
        return (*frame.key, frame.count), frame.live

    def _put(self, value: Any) -> Key | None:
        """Store a value at its place. None where it does not count."""
        key, live = self._next_key()
        frame = self._stack[-1] if self._stack else None
        at = frame.awaiting[1] if frame is not None and frame.awaiting is not None else None
        if frame is not None:
            frame.count += 1
        if frame is not None and frame.awaiting is not None:
            name, frame.awaiting = frame.awaiting[0], None
            if live and isinstance(frame.container, dict):
                frame.container[name] = value
        elif frame is not None and isinstance(frame.container, list):
            frame.container.append(value)
        else:
            self.root = value
        if live:
            self.marks[key] = Mark(key=at, value=self.last)
        return key if live else None

    def _refuse(self, message: str) -> None:
        """A value that cannot be used: said once, stored as nothing, and its consequences kept quiet."""
        frame = self._stack[-1] if self._stack else None
        if frame is not None and isinstance(frame.container, dict) and frame.awaiting is None:
            self._findings.at(self.last, frame.key, message)
            frame.awaiting = ("?", self.last, False)
            return
        key, live = self._next_key()
        self._findings.at(self.last, key, message)
        if live:
            self._findings.broken(key)
        self._put(None)


def _meaning(event: Any, text: str) -> Scalar:
    """Raises ValueError where a core tag and the text disagree."""
    if event.tag in (None, "!"):
        return resolve(text) if event.tag is None and event.style is None else text
    wanted = type(None) if event.tag == _NULL_TAG else _SCALAR_TAGS[event.tag]
    value = text if wanted is str else resolve(text)
    if wanted is float and type(value) is int:
        return float(value)
    if type(value) is not wanted:
        raise ValueError("the value is not what its tag says — remove the tag")
    return value
