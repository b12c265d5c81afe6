"""YAML as it is written: the parser's events as a tree of nodes, each with its place, and what its aliases mean."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import yaml

from gateway.config.problems import Findings, Position

DEPTH_MAX = 64
TOO_DEEP = f"nested deeper than {DEPTH_MAX} levels"


class TooMuch(Exception):
    def __init__(self, place: Position, message: str) -> None:
        super().__init__(message)
        self.place = place


@dataclass(slots=True)
class Node:
    """A value or a key as it is written. `items` are a list's entries, or a mapping's keys and values in turn."""

    event: Any
    items: list["Node"] = field(default_factory=list)
    anchored: "Node | None" = None
    """The node that an alias refers to."""
    merged: list[tuple["Node", "Node"]] = field(default_factory=list)
    """The entries that << brings to a mapping, those of its sources' own << included."""
    merges_wrongly: bool = False
    is_used: bool = False
    """True if an alias refers to it."""

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
        """Resolves << once the mapping is complete: earlier sources win, and its own keys win over all."""
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
    """Built of the parser's events. Nothing recurses, and what was read before a fault stays."""

    def __init__(self) -> None:
        self.root: Node | None = None
        self.last = Position(1, 1)
        self._anchors: dict[str, Node] = {}

    def build(self, events: Iterable[Any], findings: Findings) -> None:
        """Raises TooMuch, and what the parser raises."""
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

    def _anchor(self, node: Node) -> None:
        """Makes the anchor known only once its node is complete, so that no node contains itself."""
        if name := node.event.anchor:
            if name in self._anchors:
                self._anchors[name].is_used = True
            self._anchors[name] = node
