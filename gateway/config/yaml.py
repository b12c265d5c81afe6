"""A strict YAML parser that returns plain data and positions, and finds all errors in one pass.

Scalars follow YAML 1.2, so `no`, `012`, `1:30` and dates are strings. Anchors, aliases and merge keys (<<) work, keep the
positions of their values and are bounded. Duplicate or non-string keys, tags, multiple documents and oversized input are
rejected.

`${…}`, and `{agent}` in a path, belong to a plain scalar even inside `{ }` and `[ ]`: their braces are masked while the
parser runs. `load` expands them.

The parser often stops several lines after the typo that broke the file. So common typos are searched above that line, and
the one is reported that lets the parser continue once it is fixed. Other errors are reported in the parser's words, without
its quotes of the file.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

import yaml

from gateway.config.problems import Findings, Key, Mark, Position

DEPTH_MAX = 64
TOO_DEEP = f"nested deeper than {DEPTH_MAX} levels"
BYTES_MAX = 1_048_576
DIGITS_MAX = 300
ALIASED_VALUES_MAX = 10_000
"""Total values that aliases may expand to, against "billion laughs" attacks."""

Scalar: TypeAlias = str | int | float | bool | None

_BREAKS = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
_REFERENCE = re.compile(r"\$\{[^}\r\n\x85\u2028\u2029]*\}|(?<=[\w/.-])\{agent\}")
_MASK = {ord(char): 0x10FF00 + ord(char) for char in "{}[],: #?"}
_UNMASK = {stand_in: code for code, stand_in in _MASK.items()}
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010feff]")
"""The masking characters, the last private ones of Unicode, are rejected too."""
_NO_KEY = "a key must be text, not a list or a mapping"
_COLON_FOLLOWS = re.compile(r"\s*:")
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(?:(?:0|[1-9][0-9]*)\.[0-9]*|\.[0-9]+|(?:0|[1-9][0-9]*)(?=[eE]))(?:[eE][-+]?[0-9]+)?")
_WORDS: dict[str, Scalar] = {"": None, "~": None, "null": None, "true": True, "false": False}

CANDIDATES_MAX = 12
"""Lines that are tried as the cause of one parser error."""
SLIPS_MAX = 20
"""Typos that are reported in one file."""
CHARS_MAX = 65_536
"""A longer file is not searched for typos, since each trial parses it again."""

_COLON = 'a colon is not expected here — check the indentation, and put text that holds ": " in quotes'
_NO_COLON = "a colon is missing behind the key — write key: value"
_TIGHT = "a space is missing behind the colon — write key: value"
_FULL_WIDTH = "a full-width colon (：) — write a plain one and a space, key: value"
_OPEN_QUOTE = "a quotation mark opens here and never closes"
_INDENTATION = "this does not fit the lines above — give all keys of one block the same indentation"
_WIDE = "full-width punctuation — write {} as it is in English"
_DASH = "a space is missing behind the dash — write - and the entry"
_KEY_AND_VALUE = re.compile(r"(?P<key>[^\W\d][\w.-]*)\s*(?P<colon>：|:(?=[^\s/]))\s*(?P<value>.*)", re.S)
_PLAIN = str.maketrans("，｛｝［］“”‘’", ",{}[]\"\"''")


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """The content of a file. `texts` has the text of each expanded value that is not a string."""

    data: Any
    marks: Mapping[Key, Mark]
    texts: Mapping[Key, str]


def parse(
    content: bytes, findings: Findings, expand: Callable[[str, Key], str] = lambda text, key: text
) -> Document | None:
    """Parse a file, and report errors to `findings`. Return None if it is not YAML. `expand` expands a value that contains
    `${`, or raises ValueError with the reason."""
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
    """Converts nodes to data. Reports every error and continues."""

    def __init__(self, text: str, whole: bool, findings: Findings, expand: Callable[[str, Key], str]) -> None:
        self.marks: dict[Key, Mark] = {}
        self.texts: dict[Key, str] = {}
        self._text = text
        self._whole = whole
        self._findings = findings
        self._expand = expand
        self._alias: Position | None = None
        """The position of the alias being expanded, whose errors are reported at the anchor."""
        self._aliased = 0

    def value(
        self, node: "Node", key: Key, *, named_at: Position | None = None, live: bool = True, text: str | None = None
    ) -> Any:
        """Convert a node. `named_at` is the position of its key, and `text` replaces the node's own. Without `live`, below a
        rejected key, the value is only checked. Raise TooMuch."""
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

    def _scalar(self, node: "Node", text: str, key: Key) -> Scalar:
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

    def _expanded(self, node: "Node", value: str, key: Key) -> Scalar:
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

    def _collection(self, node: "Node", key: Key, live: bool) -> Any:
        if len(key) >= DEPTH_MAX:
            raise TooMuch(self._alias or node.place, TOO_DEEP)
        if node.event.tag is not None:
            self._fault(node.place, key, "tags (!…) are not allowed")
        if not isinstance(node.event, yaml.MappingStartEvent):
            return [self.value(item, (*key, index), live=live) for index, item in enumerate(node.items)]
        node.merge()  # only now, after the limits were checked
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
        self, node: "Node", item: "Node", key: Key, data: dict[str, Any], first: dict[str, Position], live: bool
    ) -> None:
        # `first` has the positions of the keys so far.
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

    def _fault_of(self, node: "Node", key: Key, first: Mapping[str, Position]) -> str | None:
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
    """Return the value of a plain scalar. Raise ValueError for a number out of range."""
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


_REPAIRS = tuple(
    (re.compile(pattern), repair, message)
    for pattern, repair, message in (
        (r"(\s*(?:- +)*)(?P<at>[\w.-]+)\s*：\s*(.*)", r"\1\2: \3", _FULL_WIDTH),
        (r"(\s*(?:- +)*)(?P<at>[\w.-]+):(?=[^\s/])(.*)", r"\1\2: \3", _TIGHT),
        (r"(\s*(?:- +)*)(?P<at>[A-Za-z][\w-]*) +([^\s#:：][^:：#]*(?:\s#.*)?)", r"\1\2: \3", _NO_COLON),
        (r"(\s*)(?P<at>-)(?=[A-Za-z])(.*)", r"\1- \3", _DASH),
        (r"""([^#"]*:\s+)(?P<at>")([^"]*)""", r'\1\2\3"', _OPEN_QUOTE),
        (r"""([^#']*:\s+)(?P<at>')([^']*)""", r"\1\2\3'", _OPEN_QUOTE),
    )
)
"""Patterns of lines with a typo, at group `at`, and their repairs."""


class TooMuch(Exception):
    def __init__(self, place: Position, message: str) -> None:
        super().__init__(message)
        self.place = place


@dataclass(slots=True)
class Node:
    """A value or a key in the file. `items` are a list's entries, or a mapping's alternating keys and values."""

    event: Any
    items: list["Node"] = field(default_factory=list)
    anchored: "Node | None" = None
    """The node that an alias refers to."""
    merged: list[tuple["Node", "Node"]] = field(default_factory=list)
    """The entries merged by <<, including nested ones."""
    merges_wrongly: bool = False
    is_used: bool = False
    """Tells whether an alias refers to it."""

    @property
    def place(self) -> Position:
        return Position.of(self.event.start_mark)

    @property
    def meant(self) -> "Node | None":
        return self.anchored if isinstance(self.event, yaml.AliasEvent) else self

    @property
    def merges(self) -> bool:
        return isinstance(self.event, yaml.ScalarEvent) and self.event.style is None and self.event.value == "<<"

    def entries(self) -> Iterable[tuple["Node", "Node"]]:
        return zip(self.items[::2], self.items[1::2], strict=False)

    def merge(self) -> None:
        """Resolve << of a complete mapping: explicit keys win, then earlier sources."""
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


class Tree:
    """A tree built iteratively from parser events; the part before an error is kept."""

    def __init__(self) -> None:
        self.root: Node | None = None
        self.last = Position(1, 1)
        self._anchors: dict[str, Node] = {}

    def build(self, events: Iterable[Any], findings: Findings) -> None:
        """Build the tree. Raise TooMuch or the parser's exceptions."""
        opened: list[Node] = []
        for event in events:
            self.last = Position.of(event.start_mark)
            if isinstance(event, yaml.DocumentStartEvent) and self.root is not None:
                findings.at(self.last, (), "a second document — a config file has one; remove this ---")
                return
            if isinstance(event, yaml.CollectionEndEvent):
                self._anchor(opened.pop())
            elif isinstance(event, yaml.NodeEvent):
                if len(opened) >= DEPTH_MAX and isinstance(event, yaml.CollectionStartEvent):
                    raise TooMuch(self.last, TOO_DEEP)
                node = Node(event)
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

    def _anchor(self, node: "Node") -> None:
        # Called for complete nodes only, so that no node contains itself.
        if name := node.event.anchor:
            if name in self._anchors:
                self._anchors[name].is_used = True
            self._anchors[name] = node


class _Slip(NamedTuple):
    """A line with a typo, and its likely repair."""

    place: Position
    message: str
    line: str


class ColonSlip(NamedTuple):
    """A text that was meant as key and value, and what is wrong with it."""

    key: str
    value: str
    message: str


def colon_slip(text: str) -> ColonSlip | None:
    if found := _KEY_AND_VALUE.fullmatch(text):
        message = _FULL_WIDTH if found["colon"] == "：" else _TIGHT
        return ColonSlip(key=found["key"], value=found["value"], message=message)
    return None


def faults(error: yaml.MarkedYAMLError, text: str) -> Iterator[tuple[Position | None, str]]:
    """Yield each error with its position, if known, and the fix."""
    for _ in range(SLIPS_MAX):
        stop = error.problem_mark or error.context_mark
        repaired = _repaired(text, Position.of(stop)) if stop is not None and len(text) <= CHARS_MAX else None
        if repaired is None:
            yield _classified(error)
            return
        slips, text = repaired
        yield from ((slip.place, slip.message) for slip in slips)
        following = _error_of(text)
        if following is None:
            return
        error = following


def _repaired(text: str, stop: Position) -> tuple[Sequence[_Slip], str] | None:
    # One typo is more likely than several in a row, so single repairs are tried first.
    lines = text.splitlines(keepends=True)
    before = ((number, lines[number - 1]) for number in range(min(stop.line, len(lines)), 0, -1))
    slips = list(islice((slip for number, line in before if (slip := _slip(line, number))), CANDIDATES_MAX))
    for chosen in [*([slip] for slip in slips), *(slips[:count] for count in range(2, len(slips) + 1))]:
        trial = list(lines)
        for slip in chosen:
            trial[slip.place.line - 1] = slip.line
        error = _error_of("".join(trial), until=stop.line)
        if error is None or ((mark := error.problem_mark) is not None and Position.of(mark) > stop):
            return chosen[::-1], "".join(trial)
    return None


def _slip(line: str, number: int) -> _Slip | None:
    body = line.rstrip()
    ending = line[len(body) :]
    for pattern, repair, message in _REPAIRS:
        if found := pattern.fullmatch(body):
            place = Position(number, found.start("at") + 1)
            return _Slip(place=place, message=message, line=found.expand(repair) + ending)
    if wide := [column for column, char in enumerate(body, start=1) if ord(char) in _PLAIN]:
        message = _WIDE.format(body[wide[0] - 1])
        return _Slip(place=Position(number, wide[0]), message=message, line=body.translate(_PLAIN) + ending)
    return None


def _error_of(text: str, until: int | None = None) -> yaml.MarkedYAMLError | None:
    try:
        events: Iterator[Any] = yaml.parse(text, Loader=yaml.SafeLoader)
        for event in events:
            if until is not None and event.start_mark.line >= until:
                return None
    except yaml.MarkedYAMLError as error:
        return error
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError):
        return None
    return None


def _classified(error: yaml.MarkedYAMLError) -> tuple[Position | None, str]:
    problem, context = error.problem or "cannot be read", error.context or ""
    mark = error.problem_mark or error.context_mark
    place = None if mark is None else Position.of(mark)
    if context == "while scanning a quoted scalar" and "end of stream" in problem:
        return Position.of(error.context_mark), _OPEN_QUOTE
    if "'\\t'" in problem:
        return place, "a tab cannot indent YAML — use spaces"
    if "tag handle" in problem:
        return place, "tags (!…) are not allowed — put text that begins with ! in quotes"
    if "cannot start any token" in problem:
        return place, f"{problem} — put the text in quotes"
    if place is None:
        return None, f"{context}: {problem}" if context else problem
    if problem.startswith("mapping values are not allowed"):
        return place, _COLON
    if context in ("while parsing a flow mapping", "while parsing a flow sequence"):
        closing = "}" if "mapping" in context else "]"
        message = f"what opens here is not closed with {closing} before line {place.line}, or lacks a comma"
        return Position.of(error.context_mark), message
    if "could not find expected ':'" in problem:
        return Position.of(error.context_mark), _NO_COLON
    if "expected <block end>" in problem:
        return place, _INDENTATION
    return place, f"{context}: {problem}" if context else problem
