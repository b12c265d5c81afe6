"""The paths of a config: every field that is marked as a `LocalPath`, made absolute, or listed for a backup."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from channels.section import LocalPath, Section
from gateway.config.problems import Key
from gateway.config.root import Config

Root = TypeVar("Root", bound=Config)
_SQLITE = "sqlite:///"


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedPath:
    """A path that the config names, at `key`; `how` is its field's mark."""

    key: Key
    path: str
    how: LocalPath


def mark_of(field: FieldInfo) -> LocalPath | None:
    return next((it for it in field.metadata if isinstance(it, LocalPath)), None)


def with_absolute_paths(config: Root, folder: os.PathLike[str], home: str) -> Root:
    """Make every path absolute, so that nothing later depends on the working directory. Paths count from `folder`, `~` is
    `home`; `..` and symbolic links are followed as far as they exist."""

    def resolve(path: str) -> str:
        if path.startswith(_SQLITE):
            return _SQLITE + resolve(path.removeprefix(_SQLITE))
        if "://" in path:  # PostgreSQL
            return path
        if home and (path == "~" or path.startswith("~/")):
            path = home + path[1:]
        return os.path.realpath(os.path.join(folder, path))  # noqa: PTH118 - a path may be absolute

    agents = (it.but(workspace_dir=it.workspace_dir.replace("{agent}", it.id)) for it in config.agents.list)
    servers = {name: it.but(cwd=it.cwd or f"./data/mcp/{name}") for name, it in config.mcp.servers.items()}
    named = config.but(agents=config.agents.but(list=tuple(agents)), mcp=config.mcp.but(servers=servers))
    changed: Root = _each(named, resolve)
    return changed


def paths_of(config: Config) -> list[NamedPath]:
    """List every path of a loaded config, in the order of its sections. Templates keep their placeholders."""
    return list(_found(config, ()))


def _each(value: Any, change: Callable[[str], str]) -> Any:
    """Return the value with all its marked paths changed; the same object if it has none."""
    match value:
        case Section():
            fields = {
                name: _changed(getattr(value, name), change) if mark_of(field) else _each(getattr(value, name), change)
                for name, field in type(value).model_fields.items()
                if name != "defaults"  # each agent has its own copy of them
            }
            new = {name: it for name, it in fields.items() if it is not getattr(value, name)}
            return value.but(**new) if new else value
        case dict():
            items = {name: _each(it, change) for name, it in value.items()}
            return items if any(items[name] is not it for name, it in value.items()) else value
        case tuple():
            entries = tuple(_each(it, change) for it in value)
            return entries if any(a is not b for a, b in zip(entries, value, strict=True)) else value
    return value


def _changed(value: str | tuple[str, ...], change: Callable[[str], str]) -> str | tuple[str, ...]:
    return change(value) if isinstance(value, str) else tuple(map(change, value))


def _found(value: Any, key: Key) -> Iterator[NamedPath]:
    match value:
        case BaseModel():
            for name, field in type(value).model_fields.items():
                inner, place = getattr(value, name), (*key, field.alias or name)
                if how := mark_of(field):
                    listed = (
                        [(place, inner)]
                        if isinstance(inner, str)
                        else [((*place, n), it) for n, it in enumerate(inner)]
                    )
                    yield from (NamedPath(key=at, path=path, how=how) for at, path in listed if path)
                elif name != "defaults":
                    yield from _found(inner, place)
        case dict():
            for name, it in value.items():
                yield from _found(it, (*key, name))
        case tuple():
            for number, it in enumerate(value):
                yield from _found(it, (*key, number))
