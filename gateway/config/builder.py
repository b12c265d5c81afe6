"""From the YAML parser's events to plain data, where each value knows its place.

It takes the events one by one instead of building YAML's node graph, so nothing recurses deeper than the file nests. What
an alias or a merge key stands for is read once more from the events of its anchor: its values keep the places where they
were written, and their number is bounded.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import yaml

from gateway.config.faults import colon_slip
from gateway.config.problems import Findings, Key, Mark, Position
from gateway.config.scalars import CORE, Scalar, meaning

DEPTH_MAX = 64
ALIASED_VALUES_MAX = 10_000
"""Values that all aliases of a file may stand for: nested ones multiply, and nine lines could fill the memory."""

_COLON_FOLLOWS = re.compile(r"\s*:")

_MERGES = "<< takes a mapping or a list of mappings, such as *name"
_UNUSED = "no alias (*…) refers to this anchor (&…) — put text that begins with & in quotes"


@dataclass(slots=True)
class _Frame:
    """An open mapping or list. `live` is False beneath a key that was refused: read for its faults, then dropped."""

    key: Key
    container: dict[str, Any] | list[Any]
    live: bool
    anchor: str | None = None
    start: int = 0
    """Where its events begin among the recorded ones, if it has an anchor."""
    count: int = 0
    awaiting: tuple[str, Position, bool] | None = None
    """The key whose value comes next: name, place, whether it counts."""
    first: dict[str, Position] = field(default_factory=dict)
    rest: str | None = None
    """The value of the awaited key, where its colon lacks the space."""
    merging: int | None = None
    """Where the events of the value of << begin among the recorded ones."""
    merged: range | None = None

    @property
    def wants_key(self) -> bool:
        return isinstance(self.container, dict) and self.awaiting is None


class Builder:
    """Takes events, builds data. Every refusal is noted and read past, except too deep a nesting and too many values.

    `text` is what the parser reads, `restored` gives a scalar of it back as it was written."""

    def __init__(self, text: str, restored: Callable[[str], str], findings: Findings) -> None:
        self._text = text
        self._restored = restored
        self._findings = findings
        self._stack: list[_Frame] = []
        self._documents = 0
        self._events: list[Any] = []
        self._recording = 0
        """How many open anchors and merge keys need the events that are read."""
        self._anchors: dict[str, range] = {}
        self._unused: dict[str, tuple[Position, Key]] = {}
        self._alias: Position | None = None
        """The place of the alias whose values are being read: their faults were found at the anchor."""
        self._aliased = 0
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
        self.last = Position(event.start_mark.line + 1, event.start_mark.column + 1)
        frame = self._stack[-1] if self._stack else None
        if frame is not None and frame.merging is not None and frame.wants_key:
            frame.merged, frame.merging = range(frame.merging, len(self._events)), None
            self._recording -= 1
        match event:
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    self._fault((), "a second document — a config file has one; remove this ---")
                    return False
            case yaml.DocumentEndEvent():
                for place, key in self._unused.values():
                    self._findings.at(place, key, _UNUSED)
            case yaml.AliasEvent():
                return self._follow(event, frame)
            case yaml.ScalarEvent():
                return self._counted() and self._scalar(event, frame)
            case yaml.CollectionStartEvent():
                return self._counted() and self._open(event, frame)
            case yaml.CollectionEndEvent() if frame is not None:
                return self._close(event, frame)
        return True

    def _counted(self) -> bool:
        if self._alias is not None:
            self._aliased += 1
            if self._aliased > ALIASED_VALUES_MAX:
                message = f"the aliases of the file stand for more than {ALIASED_VALUES_MAX:,} values — write fewer"
                self._findings.at(self._alias, (), message)
                return False
        return True

    def _record(self, event: Any) -> None:
        if self._recording:
            self._events.append(event)

    def _fault(self, key: Key, message: str) -> None:
        if self._alias is None:
            self._findings.at(self.last, key, message)

    def _scalar(self, event: Any, frame: _Frame | None) -> bool:
        if event.anchor is not None and self._alias is None:
            self._anchors[event.anchor] = range(len(self._events), len(self._events) + 1)
            if event.value or event.style is not None:
                self._unused[event.anchor] = (self.last, self._next_key()[0])
            self._events.append(event)
        else:
            self._record(event)
        text, plain = self._restored(event.value), event.style is None
        if frame is not None and frame.rest is not None:
            text, frame.rest = frame.rest, None
        value: Scalar = text
        fault = None
        try:
            value = meaning(event, text)
        except ValueError as error:
            fault = str(error)
        if frame is not None and frame.wants_key:
            self._begin_entry(frame, event, value, fault)
        elif fault is not None:
            self._refuse(fault)
        else:
            key = self._put(value)
            if key is not None and plain and isinstance(value, str):
                self.plain.add(key)
        return True

    def _begin_entry(self, frame: _Frame, event: Any, value: Scalar, fault: str | None) -> None:
        """A scalar where a mapping's key is expected."""
        name = self._restored(event.value)
        merges = event.style is None and name == "<<"
        alone = event.style is None and not _COLON_FOLLOWS.match(self._text, event.end_mark.index)  # possible in { }
        if alone and (slip := colon_slip(name)):
            name, frame.rest = slip.key, slip.value
            self._fault((*frame.key, name), slip.message)
        if fault is None and not isinstance(value, str):
            fault = "a key must be text — put it in quotes"
        if fault is None and name in frame.first:
            fault = f"duplicate key — it stands in line {frame.first[name].line} already"
        if fault is None:
            frame.first[name] = self.last
        else:
            self._fault((*frame.key, name), fault)
        if merges and fault is None:
            frame.merging = len(self._events)
            self._recording += 1
        frame.awaiting = (name, self.last, fault is None and not merges)

    def _open(self, event: Any, frame: _Frame | None) -> bool:
        if len(self._stack) >= DEPTH_MAX:
            self._findings.at(self._alias or self.last, (), f"nested deeper than {DEPTH_MAX} levels")
            return False
        is_map = isinstance(event, yaml.MappingStartEvent)
        container: dict[str, Any] | list[Any] = {} if is_map else []
        start = len(self._events)
        anchor = event.anchor if self._alias is None else None
        self._recording += anchor is not None
        self._record(event)
        if frame is not None and frame.wants_key:
            self._fault(frame.key, "a key must be text, not a list or a mapping")
            frame.awaiting = ("?", self.last, False)
            self._stack.append(_Frame((*frame.key, "?"), container, live=False, anchor=anchor, start=start))
            return True
        key, live = self._next_key()
        if event.tag not in (None, "!", CORE + ("map" if is_map else "seq")):
            self._fault(key, "tags (!…) are not allowed")
        self._put(container)
        self._stack.append(_Frame(key, container, live, anchor=anchor, start=start))
        return True

    def _close(self, event: Any, frame: _Frame) -> bool:
        if frame.merged is not None and not self._merge(frame, frame.merged):
            return False
        self._record(event)
        if frame.anchor is not None:
            self._anchors[frame.anchor] = range(frame.start, len(self._events))
            self._recording -= 1
        self._stack.pop()
        return True

    def _follow(self, event: Any, frame: _Frame | None) -> bool:
        """An alias: its values are those of the anchor, read once more."""
        if frame is not None and frame.wants_key:
            self._refuse("an alias (*…) cannot be a key — put text that begins with * in quotes")
        elif event.anchor not in self._anchors:
            self._refuse("no anchor (&…) of this name stands above — put text that begins with * in quotes")
        else:
            self._unused.pop(event.anchor, None)
            return self._again(self._anchors[event.anchor])
        return True

    def _again(self, events: range) -> bool:
        outer, self._alias = self._alias, self._alias or self.last
        going = all(self.take(self._events[index]) for index in events)
        self._alias = outer
        return going

    def _merge(self, frame: _Frame, value: range) -> bool:
        """Read the entries that << brings, where the mapping has no key of that name: earlier ones win."""
        here = self.last
        sources = self._items(value) if self._opens(value, yaml.SequenceStartEvent) else [value] if value else []
        if not all(self._opens(source, yaml.MappingStartEvent) for source in sources):
            self.last, sources = frame.first["<<"], []
            self._fault((*frame.key, "<<"), _MERGES)
        for source in sources:
            entries = self._items(source)
            for name, content in zip(entries[::2], entries[1::2], strict=True):
                key = self._events[name.start]
                known = isinstance(key, yaml.ScalarEvent) and self._restored(key.value) in frame.first
                if not known and not self._again(range(name.start, content.stop)):
                    return False
        self.last = here
        return True

    def _opens(self, value: range, kind: type[yaml.Event]) -> bool:
        return bool(value) and isinstance(self._events[value.start], kind)

    def _items(self, collection: range) -> list[range]:
        """The recorded events of each key, value or entry that stands directly in a collection."""
        found, depth, start = [], 0, collection.start + 1
        for index in range(start, collection.stop - 1):
            event = self._events[index]
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth == 0:
                found.append(range(start, index + 1))
                start = index + 1
        return found

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
        if frame is not None and frame.wants_key:
            self._fault(frame.key, message)
            frame.awaiting = ("?", self.last, False)
            return
        key, live = self._next_key()
        self._fault(key, message)
        if live:
            self._findings.broken(key)
        self._put(None)
