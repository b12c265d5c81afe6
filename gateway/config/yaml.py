"""Strict YAML: bytes in, plain data and positions out, every fault of the file found in one pass.

A scalar means what YAML 1.2 says, so that `no`, `012`, `1:30` and dates are text. Anchors, aliases and merge keys (<<)
work: their values keep the places where they were written, and their number is bounded. Refused are duplicate keys, keys
that are not text, tags, a second document, and too much of anything.

`${…}`, and `{agent}` in a path, count as one word of a plain scalar, also inside `{ }` and `[ ]`, where YAML itself
would stop at the brace: their braces are masked while the parser runs. What `${…}` means is decided in `expand`.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import yaml

from gateway.config.faults import colon_slip, faults
from gateway.config.problems import Findings, Key, Mark, Position
from gateway.config.tree import DEPTH_MAX, TOO_DEEP, Node, TooMuch, Tree

BYTES_MAX = 1_048_576
DIGITS_MAX = 300
ALIASED_VALUES_MAX = 10_000
"""Values that all aliases of a file may repeat: nested ones multiply, and nine lines could fill the memory."""

Scalar: TypeAlias = str | int | float | bool | None

_BREAKS = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
_REFERENCE = re.compile(r"\$\{[^}\r\n\x85\u2028\u2029]*\}|(?<=[\w/.-])\{agent\}")
_MASK = {ord(char): 0x10FF00 + ord(char) for char in "{}[],: #?"}
_UNMASK = {stand_in: code for code, stand_in in _MASK.items()}
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010feff]")
"""The masking characters are refused as well: private ones at the very end of Unicode."""
_NO_KEY = "a key must be text, not a list or a mapping"
_COLON_FOLLOWS = re.compile(r"\s*:")
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(?:(?:0|[1-9][0-9]*)\.[0-9]*|\.[0-9]+|(?:0|[1-9][0-9]*)(?=[eE]))(?:[eE][-+]?[0-9]+)?")
_WORDS: dict[str, Scalar] = {"": None, "~": None, "null": None, "true": True, "false": False}


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """The content of a file. `texts` has the text of each value that its expansion turned into something else than text."""

    data: Any
    marks: Mapping[Key, Mark]
    texts: Mapping[Key, str]


def parse(
    content: bytes, findings: Findings, expand: Callable[[str, Key], str] = lambda text, key: text
) -> Document | None:
    """Read one file. Faults go to `findings`; None if it is not YAML at all. `expand`
    fills in the text of a value that holds `${`, or raises ValueError with the reason."""
    text = _decode(content, findings)
    if text is None:
        return None
    text = _REFERENCE.sub(lambda found: found[0].translate(_MASK), text)
    tree, whole = Tree(), False
    try:
        tree.build(yaml.parse(text, Loader=yaml.SafeLoader), findings)
        whole = True
    except TooMuch as error:
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
    except TooMuch as error:
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
        self, node: Node, key: Key, *, named_at: Position | None = None, live: bool = True, text: str | None = None
    ) -> Any:
        """`named_at` is the place of its key. Beneath a key that was refused nothing is `live`: read for its faults, then
        dropped. `text` replaces the node's own. Raises TooMuch."""
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
                raise ValueError("there is no anchor (&…) of this name above — put text that begins with * in quotes")
            written = node.event.value.translate(_UNMASK) if text is None else text
            value = self._scalar(node, written, key)
            refers = self._whole and live and isinstance(value, str) and "${" in value
            return self._expanded(node, str(value), key) if refers else value
        except ValueError as error:
            self._fault(node.place, key, str(error))
            if live:
                self._findings.mark_unusable(key)
            return None

    def _scalar(self, node: Node, text: str, key: Key) -> Scalar:
        """The meaning of the node's `text`, with its quotes considered. Raises ValueError if it has none."""
        event = node.event
        if event.anchor is not None and event.style is None and not event.value:
            raise ValueError("an anchor (&…) without a value — put text that begins with & in quotes")
        if event.tag is not None:
            raise ValueError("tags (!…) are not allowed — put text that begins with ! in quotes")
        if _UNPRINTABLE.search(text):
            raise ValueError("the text holds a control character or half a character")
        value = resolve(text) if event.style is None else text
        if event.anchor and not node.is_used and self._whole:
            message = "no alias (*…) refers to this anchor (&…) — put text that begins with & in quotes"
            self._fault(node.place, key, message)
        return value

    def _expanded(self, node: Node, value: str, key: Key) -> Scalar:
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

    def _collection(self, node: Node, key: Key, live: bool) -> Any:
        if len(key) >= DEPTH_MAX:
            raise TooMuch(self._alias or node.place, TOO_DEEP)
        if node.event.tag is not None:
            self._fault(node.place, key, "tags (!…) are not allowed")
        if not isinstance(node.event, yaml.MappingStartEvent):
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
        self, node: Node, item: Node, key: Key, data: dict[str, Any], first: dict[str, Position], live: bool
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

    def _fault_of(self, node: Node, key: Key, first: Mapping[str, Position]) -> str | None:
        name = str(key[-1])
        try:
            if not isinstance(self._scalar(node, name, key), str):
                return "a key must be text — put it in quotes"
        except ValueError as error:
            return str(error)
        return f"duplicate key — it is in line {first[name].line} already" if name in first else None

    def _count(self) -> None:
        if self._alias is not None:
            self._aliased += 1
            if self._aliased > ALIASED_VALUES_MAX:
                message = f"the aliases of the file repeat more than {ALIASED_VALUES_MAX:,} values — write fewer"
                raise TooMuch(self._alias, message)

    def _fault(self, place: Position, key: Key, message: str) -> None:
        if self._alias is None:
            self._findings.at(place, key, message)


def resolve(text: str) -> Scalar:
    """The meaning of a plain scalar. Raises ValueError if it is a number beyond measure."""
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
