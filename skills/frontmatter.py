"""The head of a SKILL.md: its front matter, or without one its heading and first sentence.

The YAML is read as plain text, lists and mappings: no aliases, anchors, tags or duplicate keys, and little depth.
Unknown keys are ignored, so that skills written for other gateways work.
"""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, TypeAlias

import yaml

FRONT_MATTER_CHARS_MAX = 16_384
EVENTS_MAX = 2_000
DEPTH_MAX = 16
DESCRIPTION_CHARS_MAX = 1_024
HEADS_MAX = 64
"""Heads to cache: each reload of the config reads all skills again."""

Plain: TypeAlias = "str | list[Plain] | dict[str, Plain]"

_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(?:(.*?)\n)?(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_HEADING = re.compile(r"^#{1,6}[ \t]+(.+?)[ \t#]*$", re.MULTILINE)
_SENTENCE = re.compile(r".+?(?:[.!?](?=\s|$)|[。!?]|$)", re.DOTALL)
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}")
_SYSTEMS = {"macos": "darwin", "osx": "darwin", "mac": "darwin", "windows": "win32", "win": "win32"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Requirements:
    """Requirements of a skill: programs on the PATH, environment variables, one of these systems, tools of the agent."""

    bins: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    os: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillHead:
    """The parts of a SKILL.md that the catalogue needs. `name` is as written, None if missing."""

    name: str | None
    description: str
    requires: Requirements


class BadSkill(Exception):
    """The document cannot be used; the message says why, briefly and without quoting it."""


@lru_cache(HEADS_MAX)
def read_head(text: str) -> SkillHead:
    """Parse a whole SKILL.md. Raises BadSkill."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    front, body = _split(text)
    data = _mapping(front) if front.strip() else {}
    name = data.get("name")
    written = data.get("description")
    if written is not None and not isinstance(written, str):
        raise BadSkill("the description is not text")
    description = _one_line(written or "") or _one_line(_summary(body))
    if not description:
        raise BadSkill("there is neither a description nor a text")
    if len(description) > DESCRIPTION_CHARS_MAX:
        description = description[: DESCRIPTION_CHARS_MAX - 1] + "…"
    return SkillHead(name=name if isinstance(name, str) else None, description=description, requires=_requires(data))


def _split(text: str) -> tuple[str, str]:
    if not re.match(r"---[ \t]*\n", text):
        return "", text
    match = _FRONT_MATTER.match(text)
    if match is None:
        raise BadSkill("the front matter has no closing ---")
    front = match[1] or ""
    if len(front) > FRONT_MATTER_CHARS_MAX:
        raise BadSkill(f"the front matter is longer than {FRONT_MATTER_CHARS_MAX:,} characters")
    return front, text[match.end() :]


def _mapping(front: str) -> dict[str, Plain]:
    try:
        _refuse_cleverness(front)
        data = yaml.load(front, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 2 if error.problem_mark else 2
        raise BadSkill(f"line {line} is not YAML; put text that holds a colon or a # in quotes") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise BadSkill("the front matter is not YAML") from None
    if not isinstance(data, dict):
        raise BadSkill("the front matter is not a list of keys and values")
    return data


class _Loader(yaml.BaseLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        data = super().construct_mapping(node, deep=deep)
        if len(data) != len(node.value) or not all(isinstance(key, str) for key in data):
            raise BadSkill("the front matter has a key twice, or one that is not text")
        return data


def _refuse_cleverness(front: str) -> None:
    """Check the parser's events first, which are flat: nothing is expanded before it is known to be small."""
    depth = 0
    for count, event in enumerate(yaml.parse(front, Loader=yaml.BaseLoader)):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise BadSkill("aliases and anchors are not allowed; put text that begins with * or & in quotes")
        if getattr(event, "tag", None) not in (None, "!"):
            raise BadSkill("tags are not allowed; put text that begins with ! in quotes")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEPTH_MAX or count > EVENTS_MAX:
            raise BadSkill("the front matter is too large or too deep")


def _requires(data: Mapping[str, Plain]) -> Requirements:
    more = data.get("metadata")  # or inside one gateway's own mapping there
    inside = (it for it in (more, *more.values()) if isinstance(it, dict)) if isinstance(more, dict) else ()
    demands = [demand for place in (data, *inside) if (demand := place.get("requires"))]
    mappings = [demand for demand in demands if isinstance(demand, dict)]
    if len(mappings) < len(demands):
        raise BadSkill("requires is not a mapping with bins, env, os or tools")
    bins, env, systems, tools = (
        tuple(dict.fromkeys(chain.from_iterable(_words(mapping.get(kind) or [], kind) for mapping in mappings)))
        for kind in ("bins", "env", "os", "tools")
    )
    systems = tuple(_SYSTEMS.get(name.lower(), name.lower()) for name in systems)
    return Requirements(bins=bins, env=env, os=systems, tools=tools)


def _words(value: Plain, kind: str) -> list[str]:
    items = value if isinstance(value, list) else [value]
    words = [item for item in items if isinstance(item, str)]
    if len(words) != len(items) or not all(_WORD.fullmatch(word) for word in words):
        raise BadSkill(f"requires.{kind} is not a list of names")
    return words


def _summary(body: str) -> str:
    heading = _HEADING.search(body)
    paragraphs = (paragraph.strip() for paragraph in re.split(r"\n[^\S\n]*\n", _HEADING.sub("\n", body)))
    prose = next((paragraph for paragraph in paragraphs if paragraph), "")
    sentence = _SENTENCE.match(prose)
    return ": ".join(part for part in (heading[1] if heading else "", sentence[0] if sentence else "") if part)


def _one_line(text: str) -> str:
    shown = (" " if unicodedata.category(char)[0] in "CZ" and char != "\u200d" else char for char in text)
    return " ".join("".join(shown).split())
