"""The operator's own tools: Python files in the folders of `tools.directories`.

A file defines `TOOLS`, a list of tools or functions; otherwise every public `async def` in it is a tool, with a schema
from its type hints and texts from its docstring. A file runs in the gateway's process with its rights, so a file that
other users of this machine may write or replace is refused. A file that fails to load does not affect the others; an
unchanged file is not run again.
"""

import errno
import grp
import hashlib
import inspect
import json
import os
import pwd
import re
import stat
import struct
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from pydantic import Field, create_model
from pydantic.fields import FieldInfo

from tools.tool import Arguments, Call, Effect, Tool, ToolError, ToolResult, ToolSpec, failed

FILES_MAX = 200
FILE_BYTES_MAX = 1024 * 1024
SUMMARY_CHARS = 200
MESSAGE_CHARS = 300
CODE_IN_MEMORY = 256
LINKS_MAX = 40
_OUR_FILE = Path(__file__).resolve()
_ACL_NAMED, _ACL_WRITES = (0x02, 0x08), 0x02
"""ACL entries for a named user or group, and the right to write: `acl(5)`, `linux/posix_acl.h`."""
_NAME = re.compile(r"[a-z](?:_?[a-z0-9])*_?")
_WORD = re.compile(r"[a-z][a-z0-9_]{0,63}")
_SECTION = re.compile(r"^\s*(?:Args|Arguments|Parameters|Returns|Raises|Yields|Examples?):\s*$", re.MULTILINE)
_ARGUMENT = re.compile(r"^\s+\*{0,2}(\w+)(?:\s*\([^)]*\))?:\s*(.+)$", re.MULTILINE)

Function = TypeVar("Function", bound=Callable[..., Awaitable[Any]])


def tool(*, effect: Effect = "once", external: bool = False) -> Callable[[Function], Function]:
    """Declare a tool function's effect of a second run, and whether its results are untrusted."""

    def marked(function: Function) -> Function:
        function.__dict__["clawgate_tool"] = effect, external
        return function

    return marked


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """A file, or a tool in it, that is not used; `line` is 0 if it is unknown."""

    path: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}{f':{self.line}' if self.line else ''}: {self.reason}"


@dataclass(frozen=True, kw_only=True)
class FolderTools:
    """The tools of some folders, in a stable order: by folder, file and position in the file."""

    tools: tuple[Tool, ...] = ()
    faults: tuple[Fault, ...] = ()
    files: frozenset[Path] = frozenset()
    """The files and folders to watch for changes."""
    lost: frozenset[str] = frozenset()
    """Words in files with faults: a config may name a tool that is among them."""
    digest: str = ""
    """Changes when the tools do; empty without folders."""
    places: Mapping[str, Path] = field(default_factory=dict)
    """The file of each tool."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.places)


def folder_tools(directories: Sequence[str], taken: Sequence[str]) -> FolderTools:
    """Load the tools of the folders, except those with a `taken` name. Blocking. Raises nothing."""
    if not directories:
        return FolderTools()
    kept: dict[str, tuple[Tool, Path]] = {}
    faults: list[Fault] = []
    lost: set[str] = set()
    files, whole = {Path(it) for it in directories}, hashlib.sha256()
    for path in _files(directories):
        files.add(path)
        loaded = _loaded(path)
        whole.update(repr((loaded.key, [it.spec for it in loaded.tools], [it.reason for it in loaded.faults])).encode())
        all_faults = [*loaded.faults]
        for it in loaded.tools:
            name = it.spec.name
            if name in taken or name in kept:
                owner = str(kept[name][1]) if name in kept else "a built-in one"
                all_faults.append(
                    Fault(path=path, line=loaded.lines.get(name, 0), reason=f"the name {name} is taken: {owner}")
                )
            else:
                kept[name] = it, path
        faults += all_faults
        if all_faults:
            lost |= loaded.words
    return FolderTools(
        tools=tuple(it for it, _ in kept.values()),
        faults=tuple(faults),
        files=frozenset(files),
        lost=frozenset(lost),
        digest=whole.hexdigest(),
        places={name: path for name, (_, path) in kept.items()},
    )


def _files(directories: Sequence[str]) -> list[Path]:
    paths: list[Path] = []
    for directory in dict.fromkeys(directories):
        try:
            names = sorted(it.name for it in Path(directory).iterdir() if it.suffix == ".py" and it.name[0] not in "._")
        except OSError:
            continue  # `check` says that there is no such folder
        paths += [Path(directory, name) for name in names[:FILES_MAX]]
    return paths


@dataclass(frozen=True, kw_only=True)
class _Loaded:
    """`key` changes when the file does; `lines` are where its tools are defined."""

    key: str
    tools: tuple[Tool, ...] = ()
    faults: tuple[Fault, ...] = ()
    words: frozenset[str] = frozenset()
    lines: Mapping[str, int] = field(default_factory=dict)


def _loaded(path: Path) -> _Loaded:
    try:
        with path.open("rb") as file:
            status, source = os.fstat(file.fileno()), file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        return _Loaded(key=f"{path} {error.errno}", faults=(Fault(path=path, line=0, reason=str(error.strerror)),))
    if status.st_mode & stat.S_IWOTH:
        reason = "everybody on this machine may write to it, so it is not run"
    elif reason := _writers(path, status):
        pass
    elif len(source) > FILE_BYTES_MAX:
        reason = f"it is larger than {FILE_BYTES_MAX:,} bytes"
    if reason:
        return _Loaded(key=f"{path} {reason}", faults=(Fault(path=path, line=0, reason=reason),), words=_words(source))
    return _run(path, source, status.st_mtime_ns)


def _writers(path: Path, opened: os.stat_result) -> str:
    """Return a reason if another user of this machine could change the file, by its owner and mode or those of a folder
    or link on the path. The gateway's user, root, and the owner of the gateway's code are trusted."""
    trusted, status = _trusted(), opened
    try:
        for place, status in _way(path):
            if place in _OUR_FILE.parents:  # who may write there may replace the gateway's code as well
                continue
            if status.st_uid not in trusted:
                return f"{_shown(place, path)} belongs to another user of this machine, so it is not run"
            if not stat.S_ISLNK(status.st_mode) and _is_shared(place, status):
                return f"other users of this machine may write to {_shown(place, path)}, so it is not run"
    except OSError as error:
        return str(error.strerror)
    return "" if os.path.samestat(status, opened) else "it was replaced while it was read"


def _trusted() -> set[int]:
    return {0, os.geteuid(), _OUR_FILE.stat().st_uid}


def _shown(place: Path, path: Path) -> str:
    return "it" if place == path else str(place)


def _way(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    place, left, links = Path("/"), [*reversed(path.absolute().parts[1:])], 0
    yield place, place.stat()
    while left:
        if (name := left.pop()) == "..":
            place = place.parent
            continue
        status = (place / name).lstat()
        yield place / name, status
        if not stat.S_ISLNK(status.st_mode):
            place /= name
            continue
        target = (place / name).readlink()
        place, links = Path("/") if target.is_absolute() else place, links + 1
        left += reversed(target.parts[1:] if target.is_absolute() else target.parts)
        if links > LINKS_MAX:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _is_shared(place: Path, status: os.stat_result) -> bool:
    if stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX:  # others replace nothing in /tmp
        return False
    by_group = status.st_mode & stat.S_IWGRP and not is_own_group(status)
    return bool(status.st_mode & stat.S_IWOTH or by_group or _has_writable_acl(place))


def is_own_group(status: os.stat_result) -> bool:
    """Return whether only the owner is in the file's group, as on systems with a group for each user."""
    try:
        owner, group = pwd.getpwuid(status.st_uid).pw_name, grp.getgrgid(status.st_gid)
    except KeyError:
        return status.st_uid == status.st_gid
    return group.gr_name == owner and {*group.gr_mem} <= {owner}


def _has_writable_acl(place: Path) -> bool:
    try:
        found = os.getxattr(place, "system.posix_acl_access") if sys.platform == "linux" else b""
    except OSError:  # it has none, or the file system knows none
        return False
    entries = struct.iter_unpack("<HHI", found[4 : len(found) - (len(found) - 4) % 8])
    return any(tag in _ACL_NAMED and rights & _ACL_WRITES for tag, rights, _ in entries)


def _words(source: bytes) -> frozenset[str]:
    return frozenset(_WORD.findall(source.decode(errors="replace")))


@lru_cache(maxsize=CODE_IN_MEMORY)  # a file that is saved again is run again
def _run(path: Path, source: bytes, changed_ns: int) -> _Loaded:
    key = hashlib.sha256(os.fsencode(path.name) + b"\0" + source).hexdigest()
    module = ModuleType(f"clawgate_tools_{path.stem}_{key[:12]}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses and type hints look their module up
    try:
        with redirect_stdout(sys.stderr):  # standard output belongs to the command that reads the config
            exec(compile(source, str(path), "exec", dont_inherit=True), module.__dict__)
            made = [*_made(path, module)]
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a file does, the gateway starts
        fault = Fault(path=path, line=_line(error, path), reason=_reason(error))
        return _Loaded(key=key, faults=(fault,), words=_words(source))
    tools = tuple(it for it, _ in made if not isinstance(it, Fault))
    faults = tuple(it for it, _ in made if isinstance(it, Fault))
    if not made:
        faults = (Fault(path=path, line=0, reason="it defines no tool: neither TOOLS nor a public async def"),)
    lines = {it.spec.name: line for it, line in made if not isinstance(it, Fault)}
    return _Loaded(key=key, tools=tools, faults=faults, words=_words(source), lines=lines)


def _line(error: BaseException, path: Path) -> int:
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno or 0
    return next(
        (it.lineno or 0 for it in reversed(traceback.extract_tb(error.__traceback__)) if it.filename == str(path)), 0
    )


def _reason(error: BaseException) -> str:
    words = " ".join((error.msg if isinstance(error, SyntaxError) else str(error)).split())
    return f"{type(error).__name__}: {words}"[:MESSAGE_CHARS].rstrip(": ")


def _made(path: Path, module: ModuleType) -> Iterator[tuple[Tool | Fault, int]]:
    for it in _offered(module):
        line = it.__code__.co_firstlineno if inspect.isfunction(it) else 0
        try:
            made = _of_function(it) if inspect.isfunction(it) else _checked(it)
            if not _NAME.fullmatch(made.spec.name) or len(made.spec.name) > 64:
                raise ValueError(f"the name {made.spec.name!r:.80} is not made of a-z, 0-9 and single _")
            yield made, line
        except Exception as error:  # noqa: BLE001 - a tool that cannot be one leaves the others of its file
            yield Fault(path=path, line=line, reason=_reason(error)), line


def _offered(module: ModuleType) -> list[Any]:
    if "TOOLS" in module.__dict__:
        if not isinstance(module.TOOLS, list | tuple):
            raise TypeError("TOOLS is a list of tools, or of async functions")
        return list(module.TOOLS)
    return [
        it
        for name, it in module.__dict__.items()
        if inspect.iscoroutinefunction(it) and it.__module__ == module.__name__ and name[0] != "_"
    ]


def _checked(made: Any) -> Tool:
    if inspect.isclass(made) or not isinstance(getattr(made, "spec", None), ToolSpec):
        raise TypeError(f"{made!r:.80} is neither a tool, with `spec`, `parse` and `run`, nor an async function")
    if not inspect.iscoroutinefunction(getattr(made, "run", None)) or not callable(getattr(made, "parse", None)):
        raise TypeError(f"the tool {made.spec.name} has no `parse`, or no `async def run`")
    json.dumps(dict(made.spec.input_schema))
    checked: Tool = made
    return checked


@dataclass(frozen=True, kw_only=True)
class FunctionTool:
    """A tool made of one `async def`; an argument annotated with `Call` gets the context of the call."""

    spec: ToolSpec
    arguments: type[Arguments]
    function: Callable[..., Awaitable[Any]]
    call_name: str
    external: bool

    def parse(self, raw: Mapping[str, Any]) -> Arguments:
        return self.arguments.parse(raw)

    async def run(self, arguments: Arguments, call: Call) -> ToolResult:
        passed = {name: getattr(arguments, name) for name in arguments.model_fields_set}
        if self.call_name:
            passed[self.call_name] = call
        try:
            result = await self.function(**passed)
        except ToolError as error:
            if not self.external:
                raise
            result = failed(error)
        if isinstance(result, ToolResult):
            details = {"url": self.spec.name} if self.external else {}
            return replace(result, external=result.external or self.external, details={**details, **result.details})
        if not isinstance(result, str):
            result = "Done." if result is None else json.dumps(result, ensure_ascii=False, default=str)
        details = {"url": self.spec.name} if self.external else {}
        return ToolResult(content=(result,), external=self.external, details=details)


def _of_function(function: Callable[..., Awaitable[Any]]) -> Tool:
    name = function.__name__
    if not inspect.iscoroutinefunction(function):
        raise TypeError(f"{name} is no async function")
    text = inspect.cleandoc(function.__doc__ or "")
    described = dict(_ARGUMENT.findall(text[section.end() :])) if (section := _SECTION.search(text)) else {}
    about = text[: section.start()].strip() if section else text
    if not about:
        raise ValueError(f"{name} has no docstring, which is what a model reads of it")
    hints, members, call_name = get_type_hints(function, include_extras=True), {}, ""
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"{name}: *args, **kwargs and positional-only arguments have no place in a schema")
        if (hint := hints.get(parameter.name)) is None:
            raise TypeError(f"{name}: the argument {parameter.name} has no type hint")
        if hint is Call:
            call_name = parameter.name
        else:
            members[parameter.name] = _member(parameter, hint, described.get(parameter.name, ""))
    arguments: type[Arguments] = create_model(name, __base__=Arguments, **members)
    effect, external = function.__dict__.get("clawgate_tool", ("once", False))
    summary = about.partition("\n\n")[0].replace("\n", " ").rstrip(".")[:SUMMARY_CHARS]
    spec = arguments.spec(name, summary=summary, description=about, effect=effect)
    return FunctionTool(spec=spec, arguments=arguments, function=function, call_name=call_name, external=external)


def _member(parameter: inspect.Parameter, hint: Any, described: str) -> Any:
    of_hint = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    if not any(isinstance(it, FieldInfo) and it.description for it in of_hint):
        words = next((it for it in of_hint if isinstance(it, str)), "") or described or parameter.name.replace("_", " ")
        hint = Annotated[hint, Field(description=words)]
    return hint, ... if parameter.default is parameter.empty else parameter.default
