"""Strict YAML: bytes in, plain data and positions out, every fault of the file found in one pass.

A scalar means what YAML 1.2 says, so that `no`, `012`, `1:30` and dates are text. Anchors, aliases and merge keys (<<)
work: their values keep the places where they were written, and their number is bounded. Refused are duplicate keys, keys
that are not text, tags outside the core set, a second document, and too much of anything.

`${…}`, and `{agent}` in a path, count as one word of a plain scalar, also inside `{ }` and `[ ]`, where YAML itself
would stop at the brace: their braces are masked while the parser runs. What `${…}` means is decided in `expand`.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

import yaml

from gateway.config.faults import colon_slip, faults
from gateway.config.problems import Findings, Key, Mark, Position

BYTES_MAX = 1_048_576
DEPTH_MAX = 64
DIGITS_MAX = 300
ALIASED_VALUES_MAX = 10_000
"""Values that all aliases of a file may stand for: nested ones multiply, and nine lines could fill the memory."""

Scalar: TypeAlias = str | int | float | bool | None

_BREAKS = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
_REFERENCE = re.compile(r"\$\{[^}\r\n\x85\u2028\u2029]*\}|(?<=[\w/.-])\{agent\}")
_MASK = {ord(char): 0x10FF00 + ord(char) for char in "{}[],: #?"}
_UNMASK = {stand_in: code for code, stand_in in _MASK.items()}
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010feff]")
"""Without the characters that mask, too: they are private ones at the very end of Unicode."""
_NO_KEY = "a key must be text, not a list or a mapping"
_COLON_FOLLOWS = re.compile(r"\s*:")
_CORE = "tag:yaml.org,2002:"
_TAGS = {"str": str, "int": int, "float": float, "bool": bool, "null": type(None)}
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(?:(?:0|[1-9][0-9]*)\.[0-9]*|\.[0-9]+|(?:0|[1-9][0-9]*)(?=[eE]))(?:[eE][-+]?[0-9]+)?")
_WORDS: dict[str, Scalar] = {"": None, "~": None, "null": None, "true": True, "false": False}


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """What a file says. `texts` has the text of each value that its expansion turned into something else than text."""

    data: Any
    marks: Mapping[Key, Mark]
    texts: Mapping[Key, str]


def parse(
    content: bytes, findings: Findings, expand: Callable[[str, Key], str] = lambda text, key: text
) -> Document | None:
    """Read one file. Faults go to `findings`; None where it is not YAML at all and nothing more can be said.

    `expand` fills in the text of a value that holds `${`, or raises ValueError with the reason."""
    text = _decode(content, findings)
    if text is None:
        return None
    text = _REFERENCE.sub(lambda found: found[0].translate(_MASK), text)
    tree, whole = _Tree(), False
    try:
        tree.take(yaml.parse(text, Loader=yaml.SafeLoader), findings)
        whole = True
    except _TooMuch as error:
        findings.at(error.place, (), str(error))
    except yaml.MarkedYAMLError as error:
        for place, message in faults(error, text):
            findings.at(place or tree.last, (), message.translate(_UNMASK))
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError):
        # such as an escape beyond Unicode, "\UFFFFFFFF": the parser itself gives no place, the last event is near it
        findings.at(tree.last, (), "this is not YAML that can be read, here or soon after")
    reader = _Reader(text, whole, findings, expand)
    try:
        data = None if tree.root is None else reader.value(tree.root, ())
    except _TooMuch as error:
        findings.at(error.place, (), str(error))
        return None
    return Document(data=data, marks=reader.marks, texts=reader.texts) if whole else None


def _decode(content: bytes, findings: Findings) -> str | None:
    if len(content) > BYTES_MAX:
        findings.at(Position(1, 1), (), "the file is larger than 1 MiB")
        return None
    try:
        text = content.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        findings.at(_end_of(content[: error.start].decode()), (), "not UTF-8 — save the file in the encoding UTF-8")
        return None
    if found := _UNPRINTABLE.search(text):
        message = f"the character U+{ord(found[0]):04X} is not allowed — remove it"
        findings.at(_end_of(text[: found.start()]), (), message)
        return None
    return text


def _end_of(text: str) -> Position:
    lines = _BREAKS.split(text)
    return Position(len(lines), len(lines[-1]) + 1)


class _TooMuch(Exception):
    """Reading must stop."""

    def __init__(self, place: Position, message: str) -> None:
        super().__init__(message)
        self.place = place


@dataclass(slots=True)
class _Node:
    """A value or a key as it is written. `items` are a list's entries, or a mapping's keys and values in turn."""

    event: Any
    items: list["_Node"] = field(default_factory=list)
    anchored: "_Node | None" = None
    """What an alias stands for."""
    merged: list[tuple["_Node", "_Node"]] = field(default_factory=list)
    """The entries that << brings to a mapping, those of its sources' own << included."""
    merges_wrongly: bool = False
    is_used: bool = False
    """Whether an alias refers to it."""

    @property
    def place(self) -> Position:
        return Position(self.event.start_mark.line + 1, self.event.start_mark.column + 1)

    @property
    def meant(self) -> "_Node | None":
        return self.anchored if isinstance(self.event, yaml.AliasEvent) else self

    @property
    def merges(self) -> bool:
        """Whether it is the key <<."""
        return isinstance(self.event, yaml.ScalarEvent) and self.event.style is None and self.event.value == "<<"

    def entries(self) -> Iterable[tuple["_Node", "_Node"]]:
        return zip(self.items[::2], self.items[1::2], strict=False)

    def merge(self) -> None:
        """Once it is complete: earlier sources win, and what is written here wins over all."""
        value = next((item for name, item in self.entries() if name.merges), None)
        source = value and value.meant
        if source is None or self.merged:
            return
        found = source.items if isinstance(source.event, yaml.SequenceStartEvent) else [source]
        sources = [it.meant for it in found if it.meant is not None]
        self.merges_wrongly = not all(isinstance(it.event, yaml.MappingStartEvent) for it in sources)
        known = {name.event.value for name, _ in self.entries() if isinstance(name.event, yaml.ScalarEvent)}
        for name, item in (entry for it in sources for entry in (*it.entries(), *it.merged)):
            if not self.merges_wrongly and isinstance(name.event, yaml.ScalarEvent) and name.event.value not in known:
                known.add(name.event.value)
                self.merged.append((name, item))


class _Tree:
    """Takes the parser's events. Nothing recurses, and what was read before a fault stays."""

    def __init__(self) -> None:
        self.root: _Node | None = None
        self.last = Position(1, 1)
        self._anchors: dict[str, _Node] = {}

    def take(self, events: Iterable[Any], findings: Findings) -> None:
        """Raises _TooMuch, and what the parser raises."""
        opened: list[_Node] = []
        for event in events:
            self.last = Position(event.start_mark.line + 1, event.start_mark.column + 1)
            if isinstance(event, yaml.DocumentStartEvent) and self.root is not None:
                findings.at(self.last, (), "a second document — a config file has one; remove this ---")
                return
            if isinstance(event, yaml.CollectionEndEvent):
                self._anchor(opened.pop())
            elif isinstance(event, yaml.NodeEvent):
                if len(opened) >= DEPTH_MAX and isinstance(event, yaml.CollectionStartEvent):
                    _too_deep(self.last)
                node = _Node(event)
                if opened:
                    opened[-1].items.append(node)
                else:
                    self.root = node
                if isinstance(event, yaml.CollectionStartEvent):
                    opened.append(node)
                elif isinstance(event, yaml.ScalarEvent):
                    self._anchor(node)
                elif (anchored := self._anchors.get(str(event.anchor))) is not None:
                    is_key = (
                        opened and isinstance(opened[-1].event, yaml.MappingStartEvent) and len(opened[-1].items) % 2
                    )
                    node.anchored, anchored.is_used = anchored, anchored.is_used or not is_key

    def _anchor(self, node: _Node) -> None:
        """From here on, so that nothing holds itself."""
        if name := node.event.anchor:
            if name in self._anchors:
                self._anchors[name].is_used = True
            self._anchors[name] = node


def _too_deep(place: Position) -> NoReturn:
    raise _TooMuch(place, f"nested deeper than {DEPTH_MAX} levels")


class _Reader:
    """Makes data of nodes. Every refusal is noted and read past."""

    def __init__(self, text: str, whole: bool, findings: Findings, expand: Callable[[str, Key], str]) -> None:
        self.marks: dict[Key, Mark] = {}
        self.texts: dict[Key, str] = {}
        self._text = text
        self._whole = whole
        self._findings = findings
        self._expand = expand
        self._alias: Position | None = None
        """The place of the alias whose values are being read: their faults were found at the anchor."""
        self._aliased = 0

    def value(
        self, node: _Node, key: Key, *, named_at: Position | None = None, live: bool = True, text: str | None = None
    ) -> Any:
        """`named_at` is the place of its key. Beneath a key that was refused nothing is `live`: read for its faults, then
        dropped. `text` stands for what is written there. Raises _TooMuch."""
        if isinstance(node.event, yaml.AliasEvent) and node.anchored is not None:
            outer, self._alias = self._alias, self._alias or node.place
            value = self.value(node.anchored, key, named_at=named_at, live=live)
            self._alias = outer
            return value
        self._count()
        if live:
            self.marks[key] = Mark(key=named_at, value=node.place)
        if isinstance(node.event, yaml.CollectionStartEvent):
            return self._collection(node, key, live)
        try:
            if isinstance(node.event, yaml.AliasEvent):
                raise ValueError("no anchor (&…) of this name stands above — put text that begins with * in quotes")
            written = node.event.value.translate(_UNMASK) if text is None else text
            value = self._scalar(node, written, key)
            refers = self._whole and live and isinstance(value, str) and "${" in value
            return self._expanded(node, str(value), key) if refers else value
        except ValueError as error:
            self._fault(node.place, key, str(error))
            if live:
                self._findings.broken(key)
            return None

    def _scalar(self, node: _Node, text: str, key: Key) -> Scalar:
        value = _meaning(node.event, text)
        if node.event.anchor and not node.is_used and self._whole:
            message = "no alias (*…) refers to this anchor (&…) — put text that begins with & in quotes"
            self._fault(node.place, key, message)
        return value

    def _expanded(self, node: _Node, value: str, key: Key) -> Scalar:
        text = self._expand(value, key)
        if node.event.style is not None:
            return text
        try:
            meaning = resolve(text)
        except ValueError:  # digits without end are no number, but may well be a key
            return text
        if not isinstance(meaning, str):
            self.texts[key] = text
        return meaning

    def _collection(self, node: _Node, key: Key, live: bool) -> Any:
        if len(key) >= DEPTH_MAX:
            _too_deep(self._alias or node.place)
        is_map = isinstance(node.event, yaml.MappingStartEvent)
        if node.event.tag not in (None, "!", _CORE + ("map" if is_map else "seq")):
            self._fault(node.place, key, "tags (!…) are not allowed")
        if not is_map:
            return [self.value(item, (*key, index), live=live) for index, item in enumerate(node.items)]
        node.merge()  # only now: who reads is stopped before it is too much
        data: dict[str, Any] = {}
        first: dict[str, Position] = {}
        for name, item in node.entries():
            self._entry(name, item, key, data, first, live)
        if node.merges_wrongly and "<<" in first:
            self._fault(first["<<"], (*key, "<<"), "<< takes a mapping or a list of mappings, such as *name")
        outer, self._alias = self._alias, self._alias or node.place
        for name, item in node.merged:
            self._entry(name, item, key, data, first, live)
        self._alias = outer
        return data

    def _entry(
        self, node: _Node, item: _Node, key: Key, data: dict[str, Any], first: dict[str, Position], live: bool
    ) -> None:
        """One key with its value, into `data`; `first` has the places of the keys so far."""
        name, rest, fault = "?", None, None
        if isinstance(node.event, yaml.ScalarEvent):
            self._count()
            name = node.event.value.translate(_UNMASK)
            event: Any = node.event
            alone = event.style is None and not _COLON_FOLLOWS.match(self._text, event.end_mark.index)
            if alone and (slip := colon_slip(name)):  # possible in { }
                name, rest = slip.key, slip.value
                self._fault(node.place, (*key, name), slip.message)
            if fault := self._fault_of(node, (*key, name), first):
                self._fault(node.place, (*key, name), fault)
            else:
                first[name] = node.place
        else:
            is_alias = isinstance(node.event, yaml.AliasEvent)
            fault = "an alias (*…) cannot be a key — put text that begins with * in quotes" if is_alias else _NO_KEY
            self._fault(node.place, key, fault)
            if not is_alias:
                self.value(node, (*key, name), live=False)
        counts = fault is None and not node.merges
        value = self.value(item, (*key, name), named_at=node.place, live=live and counts, text=rest)
        if counts:
            data[name] = value

    def _fault_of(self, node: _Node, key: Key, first: Mapping[str, Position]) -> str | None:
        name = str(key[-1])
        try:
            if not isinstance(self._scalar(node, name, key), str):
                return "a key must be text — put it in quotes"
        except ValueError as error:
            return str(error)
        return f"duplicate key — it stands in line {first[name].line} already" if name in first else None

    def _count(self) -> None:
        if self._alias is not None:
            self._aliased += 1
            if self._aliased > ALIASED_VALUES_MAX:
                message = f"the aliases of the file stand for more than {ALIASED_VALUES_MAX:,} values — write fewer"
                raise _TooMuch(self._alias, message)

    def _fault(self, place: Position, key: Key, message: str) -> None:
        if self._alias is None:
            self._findings.at(place, key, message)


def _meaning(event: Any, text: str) -> Scalar:
    """Of a scalar, its quotes and tag considered. Raises ValueError where it has none."""
    tag = (event.tag or "!").removeprefix(_CORE)
    if event.anchor is not None and event.style is None and not event.value:
        raise ValueError("an anchor (&…) without a value — put text that begins with & in quotes")
    if tag != "!" and tag not in _TAGS:
        raise ValueError("tags (!…) are not allowed — put text that begins with ! in quotes")
    if _UNPRINTABLE.search(text):
        raise ValueError("the text holds a control character or half a character")
    if tag == "!":
        return resolve(text) if event.tag is None and event.style is None else text
    value = text if tag == "str" else resolve(text)
    if tag == "float" and type(value) is int:
        return float(value)
    if type(value) is not _TAGS[tag]:
        raise ValueError("the value is not what its tag says — remove the tag")
    return value


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
